//! Contexts: errors with their status and sentence, attributes, memory that runs out, and measuring.

use nn_ffi::{Context, DType, Device, Error, InstructionSet, Machine, NonFinite, Result, Status, Tensor, Use, kernels};

fn cpu() -> Context {
    Context::open(Device::Cpu, Some(2), None).expect("there is a CPU")
}

#[test]
fn devices_are_read_by_name() {
    let named = |name: &str| name.parse::<Device>().map_err(|error| error.to_string());
    assert_eq!(named("auto"), Ok(Device::Auto));
    assert_eq!(named("cpu"), Ok(Device::Cpu));
    assert_eq!(named("cuda:3"), Ok(Device::Cuda(3)));
    for wrong in ["", "gpu", "cpu:1", "cuda:", "cuda:x", "cuda:-1", "cuda:99999999999"] {
        let sentence = format!("device is '{wrong}'; it must be 'auto', 'cpu', 'cuda' or 'cuda:INDEX'");
        assert_eq!(named(wrong), Err(sentence));
    }
    assert_eq!(Device::Cuda(1).to_string(), "cuda:1");
}

#[test]
fn a_device_that_is_not_there_is_named_with_the_reason() {
    let error = Context::new(Device::Cuda(4000)).expect_err("nobody has that many");
    assert_eq!(error.status(), Some(Status::NoDevice));
    let sentence = error.to_string();
    assert!(sentence.starts_with("device 'cuda:4000': "), "{sentence}");
    assert!(sentence.ends_with("(NNCUDA_ERROR_NO_DEVICE)"), "{sentence}");
}

#[test]
fn attributes_are_read_and_set() -> Result<()> {
    let context = Context::open(Device::Auto, None, None)?;
    assert_ne!(context.device(), Device::Auto);
    let context = Context::open(Device::Cpu, Some(3), Some(InstructionSet::Baseline))?;
    assert_eq!((context.threads()?, context.isa()?), (3, Some(InstructionSet::Baseline)));
    assert_eq!(context.compute_capability()?, None);
    assert!(!context.tf32()?);
    assert!(!context.two_parts()?);
    context.set_two_parts(true)?;
    assert!(context.two_parts()? && !context.tf32()?);
    assert_eq!(context.nodes()?, 1);
    assert_eq!(context.set_nodes(100_000).expect_err("no machine has as many").status(), Some(Status::InvalidValue));
    let error = context.set_threads(100_000).expect_err("there are at most 256");
    assert_eq!(error.status(), Some(Status::InvalidValue));
    assert!(!context.device_text().is_empty());
    let (free, total) = context.memory_info()?;
    assert!(0 < free && free <= total);
    Ok(())
}

#[test]
fn an_error_has_status_function_and_the_librarys_sentence() -> Result<()> {
    let context = cpu();
    let table = context.zeros(&[4, 2], DType::F32)?;
    let ids = context.tensor(&[0, 9, 1], &[3])?;
    let rows = context.zeros(&[3, 2], DType::F32)?;
    let Err(Error::Call { status, function, message }) = kernels::embedding(&table, &ids, &rows) else {
        panic!("id 9 is not in a table of 4 rows")
    };
    assert_eq!((status, function), (Status::OutOfRange, "cuda_embedding"));
    assert!(message.contains("ids[1] is 9"), "{message}");
    // The context continues.
    kernels::embedding(&table, &context.tensor(&[0, 3, 1], &[3])?, &rows)?;
    context.synchronize()
}

#[test]
fn running_out_of_memory_leaves_the_context_usable() -> Result<()> {
    let context = cpu();
    let error = context.empty(&[1 << 50], DType::F32).expect_err("no machine has that much");
    assert_eq!(error.status(), Some(Status::OutOfMemory));
    let tensor = context.tensor(&[1.0_f32, 2.0], &[2])?;
    kernels::add(&tensor, &tensor, &tensor)?;
    assert_eq!(tensor.to_vec::<f32>()?, [2.0, 4.0]);
    let more_than_addresses = context.empty(&[usize::MAX, 2], DType::F32).expect_err("no address reaches there");
    assert!(matches!(more_than_addresses, Error::Shape { .. }));
    Ok(())
}

#[test]
fn the_data_order_visits_each_window_once_an_epoch() -> Result<()> {
    let context = cpu();
    let order = context.data_order(7, 0, 20, 10)?;
    for epoch in order.chunks(10) {
        let mut sorted = epoch.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..10).collect::<Vec<_>>());
    }
    assert_eq!(context.data_order(7, 5, 10, 10)?, order[5..15]);
    assert_eq!(context.data_order(7, 0, 1, 0).expect_err("no windows").status(), Some(Status::InvalidValue));
    Ok(())
}

#[test]
fn profile_and_trace_name_the_kernels() -> Result<()> {
    let context = cpu();
    let tensor = context.tensor(&[1.0_f32, -2.0], &[2])?;
    let (result, profile) = context.profile(|| kernels::silu(&tensor, &tensor).map(|()| 5))?;
    assert_eq!(result, 5);
    for text in [&profile.table, &profile.json, &profile.chrome_trace] {
        assert!(text.contains("silu"), "{text}");
    }
    let ((), lines) = context.trace(2, || kernels::scale(&tensor, &tensor, 2.0))?;
    assert!(lines.contains("scale"), "{lines}");
    let failed: Result<((), String)> = context.trace(0, || Err(Error::Value("stop".to_owned())));
    assert_eq!(failed.err(), Some(Error::Value("stop".to_owned())));
    context.trace(0, || kernels::scale(&tensor, &tensor, 2.0)).map(|_| ())
}

#[test]
fn the_first_value_that_is_not_finite_is_found() -> Result<()> {
    let context = cpu();
    let (x, y) = (context.tensor(&[1.0_f32, 2.0, f32::NAN], &[3])?, context.zeros(&[3], DType::F32)?);
    let search = |x: &Tensor, factor: f32| {
        context.trace_nonfinite(|| {
            context.label(|| "model.norm".to_owned())?;
            kernels::scale(x, &y.narrow(0, 0, x.len())?, factor)?;
            kernels::scale(&y, &y, 0.0)
        })
    };
    let ((), Some(NonFinite { place, used, address, value })) = search(&x, 1.0)? else { panic!("there is a NaN") };
    assert_eq!((place.call, place.label.as_deref(), &*place.kernel), (0, Some("model.norm"), "cuda_scale"));
    assert_eq!((&*place.argument, used, &place.index[..], &*value), ("x", Use::In, &[2][..], "nan"));
    assert_eq!(address, x.pointer() as usize + 8);
    let x = x.narrow(0, 0, 2)?;
    let ((), Some(NonFinite { place, used, .. })) = search(&x.view(&[2])?, f32::INFINITY)? else {
        panic!("it is made")
    };
    assert_eq!((&*place.argument, used), ("y", Use::Out));
    assert_eq!(search(&x, 1.0)?.1, None);
    Ok(())
}

#[test]
fn a_shadow_run_compares_two_contexts() -> Result<()> {
    let (context, reference) = (cpu(), Context::open(Device::Cpu, Some(1), Some(InstructionSet::Baseline))?);
    let (x, y) = (context.tensor(&[0.5_f32; 40], &[8, 5])?, context.zeros(&[8, 8], DType::F32)?);
    let ((), shadow) = context.shadow(&reference, || kernels::gemm(&x, &x, &y, false, true))?;
    assert_eq!((shadow.calls, shadow.compared, shadow.over, shadow.first), (1, 1, 0, None));
    assert_eq!((&*shadow.kernels[0].kernel, y.to_vec::<f32>()?), ("cuda_gemm", vec![1.25; 64]));
    let itself = context.shadow(&context, || Ok::<_, Error>(()));
    assert_eq!(itself.expect_err("it is no other").status(), Some(Status::InvalidValue));
    Ok(())
}

#[test]
fn a_context_that_measures_runs_nothing_and_counts_all() -> Result<()> {
    let machine = Machine::Cpu { threads: Some(3), isa: Some(InstructionSet::Baseline) };
    let context = Context::measuring(machine)?;
    assert_eq!((context.measures()?, context.machine()?), (true, machine));
    let (x, y) = (context.tensor(&[1.0_f32; 64], &[8, 8])?, context.empty(&[8, 8], DType::F32)?);
    let ((), profile) = context.profile(|| kernels::gemm(&x, &x, &y, false, true))?;
    assert!(profile.table.contains("gemm"), "{}", profile.table);
    assert_eq!((y.to_vec::<f32>()?, context.bytes_used()?), (vec![0.0; 64], 512));
    assert!(kernels::gemm(&x, &x.narrow(1, 0, 4)?, &y, false, true).is_err(), "arguments are checked");
    // Of a GPU that is not here, with memory that is nowhere.
    let gpu = Context::measuring(Machine::Cuda { capability: Some(90), multiprocessors: None })?;
    let machine = Machine::Cuda { capability: Some(90), multiprocessors: Some(132) };
    assert_eq!((gpu.machine()?, gpu.device()), (machine, Device::Cuda(0)));
    let large = gpu.zeros(&[1 << 40], DType::F32)?;
    assert_eq!(gpu.bytes_peak()?, 4 << 40);
    drop(large);
    assert!(!Context::new(Device::Cpu)?.measures()?);
    let wrong = Context::measuring(Machine::Cpu { threads: Some(1000), isa: None });
    assert_eq!(wrong.map(|_| ()).expect_err("256 threads at most").status(), Some(Status::InvalidValue));
    Ok(())
}
