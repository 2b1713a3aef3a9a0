//! The sizes that a kernel gets from tensors' shapes, and the errors when they disagree.

use nn_ffi::catalogue::{Argument, Kernel, Kind};
use nn_ffi::{Activation, Context, DType, Device, Error, Result, RopeLayout, Status, Tensor, kernels};

fn cpu() -> Context {
    Context::open(Device::Cpu, Some(1), None).expect("there is a CPU")
}

/// A tensor of small whole numbers.
fn numbers(context: &Context, shape: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|index: usize| (index % 7) as f32 - 3.0).collect();
    context.tensor(&values, shape).expect("it fits")
}

fn sentence(result: Result<()>) -> String {
    match result.expect_err("the shapes disagree") {
        error @ Error::Shape { .. } => error.to_string(),
        other => panic!("the library was called: {other}"),
    }
}

#[test]
fn leading_dimensions_fold_and_one_dimension_takes_everything() -> Result<()> {
    let context = cpu();
    let (x, y) = (numbers(&context, &[2, 3, 4]), context.zeros(&[2, 3, 4], DType::F32)?);
    kernels::softmax(&x, &y)?;
    let sum = context.zeros(&[2, 3, 4], DType::F32)?;
    kernels::add(&y, &y, &sum)?;
    let flat = sum.view(&[24])?;
    let sums: Vec<f32> = flat.to_vec::<f32>()?.chunks(4).map(|row| row.iter().sum()).collect();
    assert!(sums.iter().all(|sum| (sum - 2.0).abs() < 1e-6), "{sums:?}");
    let few = sentence(kernels::softmax(&flat, &flat));
    assert_eq!(few, "softmax: x has shape [24]; [rows, cols] was expected");
    Ok(())
}

#[test]
fn rows_may_lie_apart_where_the_header_says_so() -> Result<()> {
    let context = cpu();
    let both = numbers(&context, &[5, 8]);
    let (gate, up) = (both.narrow(1, 0, 4)?, both.narrow(1, 4, 4)?);
    let (apart, dense) = (context.zeros(&[5, 4], DType::F32)?, context.zeros(&[5, 4], DType::F32)?);
    kernels::swiglu(&gate, &up, None, &apart)?;
    kernels::swiglu(&gate.contiguous()?, &up.contiguous()?, None, &dense)?;
    assert_eq!(apart.to_vec::<f32>()?, dense.to_vec::<f32>()?);
    // A single row has no stride of its own.
    kernels::swiglu(&gate.narrow(0, 4, 1)?, &up.contiguous()?.narrow(0, 4, 1)?, None, &dense.narrow(0, 0, 1)?)?;
    assert_eq!(dense.to_vec::<f32>()?[..4], apart.to_vec::<f32>()?[16..]);
    let mixed = sentence(kernels::swiglu(&gate, &up.contiguous()?, None, &apart));
    assert_eq!(mixed, "swiglu: the rows of up lie 4 elements apart, but those of gate 8; both must be the same");
    let strided = sentence(kernels::silu(&gate, &dense));
    assert_eq!(
        strided,
        "silu: x must be dense, but its rows of 4 elements lie 8 apart; contiguous() makes a dense copy"
    );
    // Folded rows have the stride of the innermost of them, also where the first dimension is a single one.
    let fold = |tensor: &Tensor| tensor.contiguous()?.view(&[1, 5, 4]);
    kernels::swiglu(&fold(&gate)?, &fold(&up)?, None, &dense.view(&[1, 5, 4])?)?;
    assert_eq!(dense.to_vec::<f32>()?, apart.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn what_disagrees_is_named_with_what_was_expected() -> Result<()> {
    let context = cpu();
    let x = numbers(&context, &[3, 4]);
    let y = context.zeros(&[4, 3], DType::F32)?;
    assert_eq!(
        sentence(kernels::softmax(&x, &y)),
        "softmax: y has shape [4, 3], but x has shape [3, 4]; both must have the same shape"
    );
    let whole = context.zeros(&[3, 4], DType::I32)?;
    assert_eq!(sentence(kernels::softmax(&x, &whole)), "softmax: y is i32; x is f32");
    let gain = numbers(&context, &[4]);
    let wrong = context.zeros(&[3], DType::I32)?;
    assert_eq!(sentence(kernels::rmsnorm(&x, &gain, &x, Some(&wrong), 1e-6)), "rmsnorm: rstd is i32; it must be f32");
    let short = context.zeros(&[2], DType::F32)?;
    assert_eq!(
        sentence(kernels::rmsnorm(&x, &gain, &x, Some(&short), 1e-6)),
        "rmsnorm: rstd has shape [2]; [rows] with rows = 3 (from x) was expected"
    );
    let elsewhere = cpu();
    let foreign = numbers(&elsewhere, &[3, 4]);
    assert_eq!(sentence(kernels::softmax(&x, &foreign)), "softmax: y is of another context than the first tensor");
    let norm = context.zeros(&[2], DType::F32)?;
    assert_eq!(sentence(kernels::grad_norm(&x, &norm)), "grad_norm: norm has shape [2]; one element was expected");
    Ok(())
}

/// A call of tests/shapes.json.
fn call(context: &Context, call: &serde_json::Value) -> Result<()> {
    let kernel = Kernel::find(call["kernel"].as_str().expect("it is a name")).expect("there is such a kernel");
    let placed: Vec<Option<Tensor>> = (kernel.parameters.iter())
        .map(|parameter| {
            let (Kind::Tensor { dtype, .. }, Some(shape)) = (parameter.kind, call["shapes"][parameter.name].as_array())
            else {
                return Ok(None);
            };
            let shape: Vec<usize> = shape.iter().map(|size| size.as_u64().expect("it is a size") as usize).collect();
            Ok(Some(context.zeros(&shape, dtype.parse().unwrap_or(DType::F32))?))
        })
        .collect::<Result<_>>()?;
    let number = |name: &str| call["numbers"][name].as_f64().unwrap_or(0.0);
    let arguments: Vec<Argument<'_>> = (kernel.parameters.iter().zip(&placed))
        .map(|(parameter, tensor)| match parameter.kind {
            Kind::Tensor { .. } => Argument::Tensor(tensor.as_ref()),
            Kind::Float => Argument::Float(number(parameter.name)),
            Kind::DType | Kind::Integer => Argument::Integer(number(parameter.name) as i64),
        })
        .collect();
    kernel.call(&arguments)
}

#[test]
fn shapes_are_taken_as_in_every_language() -> Result<()> {
    let context = cpu();
    let file: serde_json::Value = serde_json::from_str(include_str!("../../../tests/shapes.json")).expect("it is JSON");
    for each in file["calls"].as_array().expect("it has calls") {
        let result = call(&context, each);
        match each["refused"].as_str() {
            None => assert!(result.is_ok(), "{each}: {result:?}"),
            Some(tensor) => {
                let said = sentence(result);
                let start = format!("{}: {tensor} ", each["kernel"].as_str().expect("it is a name"));
                assert!(said.starts_with(&start), "{each}: {said:?} does not refuse {tensor}");
            }
        }
    }
    Ok(())
}

#[test]
fn sizes_are_solved_from_products() -> Result<()> {
    let context = cpu();
    // 2 sequences of 3 queries and 5 keys, 4 heads over 2, of 8.
    let q = numbers(&context, &[6, 4, 8]);
    let (k, v) = (numbers(&context, &[10, 2, 8]), numbers(&context, &[10, 2, 8]));
    let out = context.zeros(&[6, 4, 8], DType::F32)?;
    let lse = context.zeros(&[2, 4, 3], DType::F32)?;
    kernels::flash_attention(&q, &k, &v, None, &out, Some(&lse), 2, 0.3, true)?;
    let folded = context.zeros(&[2, 3, 4, 8], DType::F32)?;
    kernels::flash_attention(
        &q.view(&[2, 3, 4, 8])?,
        &k.view(&[2, 5, 2, 8])?,
        &v.view(&[2, 5, 2, 8])?,
        None,
        &folded,
        None,
        2,
        0.3,
        true,
    )?;
    assert_eq!(out.to_vec::<f32>()?, folded.to_vec::<f32>()?);
    let four = sentence(kernels::flash_attention(&q, &k, &v, None, &out, None, 4, 0.3, true));
    assert!(four.starts_with("flash_attention: q has shape [6, 4, 8]"), "{four}");
    assert!(four.contains("no q_len gives the 6 entries"), "{four}");
    let uneven = numbers(&context, &[9, 2, 8]);
    assert!(
        sentence(kernels::flash_attention(&q, &uneven, &uneven, None, &out, None, 2, 0.3, true)).contains("no kv_len")
    );
    let tall = context.zeros(&[2, 4, 2], DType::F32)?;
    assert!(
        sentence(kernels::flash_attention(&q, &k, &v, None, &out, Some(&tall), 2, 0.3, true)).contains("lse has shape")
    );
    Ok(())
}

#[test]
fn nothing_is_done_for_sizes_of_zero() -> Result<()> {
    let context = cpu();
    let none = context.zeros(&[0, 4], DType::F32)?;
    kernels::softmax(&none, &none)?;
    kernels::gemm(&none, &numbers(&context, &[3, 4]), &context.zeros(&[0, 3], DType::F32)?, false, true)?;
    let (q, k) = (context.zeros(&[0, 2, 8], DType::F32)?, context.zeros(&[0, 2, 8], DType::F32)?);
    kernels::flash_attention(&q, &k, &k, None, &q.view(&[0, 2, 8])?, None, 0, 1.0, false)?;
    assert!(none.to_vec::<f32>()?.is_empty());
    Ok(())
}

#[test]
fn options_are_what_the_header_says() -> Result<()> {
    let context = cpu();
    assert_eq!((RopeLayout::default() as i32, RopeLayout::Interleaved as i32), (0, 1));
    let (a, b) = (numbers(&context, &[2, 4]), numbers(&context, &[3, 4]));
    let (plain, silu) = (context.zeros(&[2, 3], DType::F32)?, context.zeros(&[2, 3], DType::F32)?);
    kernels::gemm_epilogue(&a, &b, None, None, &plain, Activation::None)?;
    kernels::gemm_epilogue(&a, &b, None, None, &silu, Activation::Silu)?;
    kernels::silu(&plain, &plain)?;
    let close = plain.to_vec::<f32>()?.iter().zip(silu.to_vec::<f32>()?).all(|(one, other)| (one - other).abs() < 1e-5);
    assert!(close);
    // What the library refuses comes with its own sentence.
    let error = kernels::rmsnorm(&a, &numbers(&context, &[4]), &a, None, -1.0).expect_err("eps is negative");
    assert_eq!(error.status(), Some(Status::InvalidValue));
    assert!(error.to_string().contains("eps"), "{error}");
    let error = kernels::fill(&context.buffer::<i64>(3)?.view(&[3])?, 1.0).expect_err("no kernel takes i64");
    assert_eq!(error.status(), Some(Status::InvalidDtype));
    Ok(())
}
