//! Copies on streams, pinned and typed memory.

mod device;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nn_ffi::{Context, DType, Device, Error, HostBytes, Relay, Result, Status, kernels};

#[test]
fn a_scope_copies_both_ways_and_waits() -> Result<()> {
    let context = device::context();
    let stream = context.stream()?;
    let mut pinned = context.pinned::<f32>(1000)?;
    pinned.iter_mut().enumerate().for_each(|(index, value)| *value = index as f32);
    let (there, back) = (context.empty(&[1000], DType::F32)?, &mut vec![0.0_f32; 1000]);
    stream.scope(|copies| {
        copies.upload(&there, &pinned)?;
        copies.download(back, &there)
    })??;
    assert_eq!(back[..], pinned[..]);
    kernels::scale(&there, &there, 2.0)?;
    assert_eq!(there.to_vec::<f32>()?[999], 1998.0);
    Ok(())
}

#[test]
fn a_tensor_that_is_copied_can_be_used_by_nobody_else() -> Result<()> {
    let context = device::context();
    let (stream, other) = (context.stream()?, context.stream()?);
    let values = [1.0_f32; 64];
    let (busy, free) = (context.zeros(&[64], DType::F32)?, context.zeros(&[64], DType::F32)?);
    let graph = context.capture(|| kernels::silu(&busy, &free))?;
    let refused = |result: Result<()>| {
        let sentence = result.expect_err("a stream is copying it").to_string();
        assert!(sentence.contains("is copying"), "{sentence}");
    };
    stream.scope(|copies| {
        copies.upload(&busy, &values)?;
        refused(kernels::silu(&busy, &free));
        refused(kernels::silu(&free, &busy.narrow(0, 0, 64)?));
        refused(busy.zero());
        refused(busy.copy_from_slice(&values));
        refused(free.copy_from(&busy));
        refused(busy.to_vec::<f32>().map(|_| ()));
        refused(graph.launch());
        refused(other.scope(|copies| copies.upload(&busy, &values))?);
        copies.upload(&busy, &values)?; // one stream's copies are in order
        kernels::silu(&free, &free)
    })??;
    graph.launch()?;
    kernels::silu(&busy, &free)
}

#[test]
fn nor_can_a_tensor_that_was_made_in_a_capture() -> Result<()> {
    let context = device::context();
    let (values, kept) = ([1.0_f32; 64], Cell::new(None));
    let graph = context.capture(|| {
        let inside = context.empty(&[64], DType::F32)?;
        kernels::silu(&inside, &inside)?;
        kept.set(Some(inside));
        Ok::<_, Error>(())
    })?;
    let inside = kept.take().expect("it was set");
    context.stream()?.scope(|copies| {
        copies.upload(&inside, &values)?;
        assert!(graph.launch().expect_err("a stream is copying it").to_string().contains("is copying"));
        Ok::<_, Error>(())
    })??;
    graph.launch()
}

#[test]
fn a_panic_in_a_scope_waits_for_the_copies() -> Result<()> {
    let context = device::context();
    let stream = context.stream()?;
    let values = vec![5.0_f32; 100_000];
    let tensor = context.zeros(&[100_000], DType::F32)?;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.scope(|copies| {
            copies.upload(&tensor, &values).expect("it is given to the stream");
            panic!("on purpose")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(tensor.to_vec::<f32>()?, values);
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let (context, elsewhere) = (device::context(), device::context());
    let stream = context.stream()?;
    let tensor = context.zeros(&[4, 4], DType::F32)?;
    let message = |result: Result<Result<()>>| match result {
        Ok(Err(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let (three, whole, bytes) = ([0.0_f32; 3], [0.0_f32; 16], [0_u8; 16]);
    assert!(message(stream.scope(|copies| copies.upload(&tensor, &three))).contains("3 values"));
    assert!(message(stream.scope(|copies| copies.upload(&tensor, &bytes))).contains("values of u8"));
    let narrow = tensor.narrow(1, 0, 2)?;
    assert!(message(stream.scope(|copies| copies.upload(&narrow, &whole[..8]))).contains("must be dense"));
    let foreign = elsewhere.zeros(&[16], DType::F32)?;
    assert!(message(stream.scope(|copies| copies.upload(&foreign, &whole))).contains("another context"));
    let captured = context.capture(|| stream.scope(|copies| copies.upload(&tensor, &whole))?);
    assert_eq!(captured.expect_err("not while capturing").status(), Some(Status::Capturing));
    Ok(())
}

#[test]
fn events_order_and_measure() -> Result<()> {
    let context = device::context();
    let stream = context.stream()?;
    let (start, end) = (context.event()?, context.event()?);
    assert!(start.happened()?, "an event that was never recorded counts as happened");
    start.record(None)?;
    stream.wait(&start)?;
    let tensor = context.zeros(&[1 << 16], DType::F32)?;
    kernels::silu(&tensor, &tensor)?;
    end.record(Some(&stream))?;
    context.wait(&end)?;
    end.synchronize()?;
    assert!(end.happened()?);
    assert!(start.milliseconds_to(&end)? >= 0.0);
    let foreign = device::context();
    let error = foreign.wait(&end).expect_err("it is an event of another context");
    assert!(matches!(error.status(), Some(Status::WrongDevice | Status::InvalidContext)), "{error}");
    stream.synchronize()
}

#[test]
fn buffers_are_tensors_whose_type_is_known() -> Result<()> {
    let context = device::context();
    let numbers = context.buffer_of(&[1_i32, 2, 3])?;
    kernels::increment(numbers.as_tensor(), 10)?;
    assert_eq!(numbers.to_vec()?, [11, 12, 13]);
    assert_eq!(context.buffer::<f32>(6)?.view(&[2, 3])?.shape(), [2, 3]);
    assert!(numbers.copy_from_slice(&[1, 2]).is_err());
    let empty = context.buffer::<f32>(0)?;
    assert!(empty.is_empty() && empty.to_vec()?.is_empty());
    let mut nothing = context.pinned::<i64>(0)?;
    assert!(nothing.is_empty() && nothing.iter_mut().next().is_none());
    Ok(())
}

#[test]
fn rows_that_lie_apart_are_copied_row_by_row() -> Result<()> {
    let context = device::context();
    let values: Vec<i32> = (0..12).collect();
    let whole = context.tensor(&values, &[3, 4])?;
    let middle = whole.narrow(1, 1, 2)?;
    assert_eq!(middle.to_vec::<i32>()?, [1, 2, 5, 6, 9, 10]);
    assert_eq!(middle.contiguous()?.to_vec::<i32>()?, [1, 2, 5, 6, 9, 10]);
    middle.copy_from_slice(&[-1, -2, -5, -6, -9, -10])?;
    assert_eq!(whole.to_vec::<i32>()?, [0, -1, -2, 3, 4, -5, -6, 7, 8, -9, -10, 11]);
    middle.zero()?;
    let rest = whole.narrow(1, 2, 2)?;
    middle.copy_from(&rest.contiguous()?)?;
    assert_eq!(whole.to_vec::<i32>()?, [0, 0, 3, 3, 4, 0, 7, 7, 8, 0, 11, 11]);
    let mut bytes = vec![0; 6 * 4];
    rest.copy_to_bytes(&mut bytes)?;
    assert_eq!(bytes[..8], [3, 0, 0, 0, 3, 0, 0, 0]);
    assert!(matches!(rest.copy_from_bytes(&bytes[1..]), Err(Error::Shape { .. })));
    assert!(matches!(rest.item::<i32>(), Err(Error::Shape { .. })));
    assert!(matches!(rest.to_vec::<f32>(), Err(Error::Shape { .. })));
    Ok(())
}

#[test]
fn a_relay_brings_each_state_of_a_tensor() -> Result<()> {
    let context = device::context();
    let count = context.zeros(&[2, 3], DType::I32)?;
    let step = context.capture(|| kernels::increment(&count, 1))?;
    let mut relay = Relay::<i32>::new(&context, 6, 2)?;
    assert!(relay.receive().is_err(), "nothing is on its way");
    step.launch()?;
    relay.send(&count)?;
    for round in 1..50 {
        // The next step runs, and overwrites what was sent, before that is read.
        step.launch()?;
        relay.send(&count)?;
        assert!(relay.send(&count).is_err(), "there is room for two");
        assert_eq!(relay.receive()?, [round; 6]);
    }
    assert!(relay.send(&context.zeros(&[5], DType::I32)?).is_err());
    assert!(relay.send(&context.zeros(&[6], DType::F32)?).is_err());
    assert_eq!(relay.receive()?, [50; 6]);
    relay.send(&count) // and drops it on its way
}

#[test]
fn tensors_look_at_bytes_of_the_host_and_cannot_change_them() -> Result<()> {
    let context = Context::new(Device::Cpu)?;
    let values: Vec<u8> = (0..6).flat_map(|value| (value as f32).to_le_bytes()).collect();
    let path = std::env::temp_dir().join(format!("nn-ffi-{}", std::process::id()));
    std::fs::write(&path, &values).unwrap();
    let mapped = HostBytes::map(&std::fs::File::open(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let joined = HostBytes::joined([&values[..8], &values[8..]]).unwrap();
    for bytes in [mapped, joined] {
        let tensor = context.tensor_over(&bytes, &[2, 3], DType::F32)?;
        let twice = context.empty(&[2, 3], DType::F32)?;
        kernels::scale(&tensor, &twice, 2.0)?;
        assert_eq!(twice.to_vec::<f32>()?, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        for refused in [tensor.zero(), tensor.copy_from(&twice), tensor.copy_from_slice(&[0.0_f32; 6])] {
            assert!(refused.unwrap_err().to_string().contains("can be read alone"));
        }
        let scoped =
            context.stream()?.scope(|copies| copies.upload(&tensor, &[0.0_f32; 6]).map_err(|e| e.to_string()))?;
        assert!(scoped.unwrap_err().contains("can be read alone"));
        // Given back or not, they are the same bytes, and parts that follow each other are one.
        bytes.release();
        let (first, second) = (bytes.slice(0..12).unwrap(), bytes.slice(12..24).unwrap());
        assert_eq!(first.followed_by(&second).unwrap()[..], values);
        assert!(
            second.followed_by(&first).is_none()
                && bytes.slice(0..25).is_none()
                && bytes.slice(std::ops::Range { start: 3, end: 2 }).is_none()
        );
        let graph = context.capture(|| kernels::scale(&tensor, &twice, 3.0))?;
        drop((tensor, bytes, first, second)); // the graph keeps the bytes
        graph.launch()?;
        assert_eq!(twice.to_vec::<f32>()?[5], 15.0);
    }
    let odd = HostBytes::joined([&[0; 9][..]]).unwrap();
    let misplaced = context.tensor_over(&odd.slice(1..9).unwrap(), &[2], DType::F32);
    assert!(misplaced.unwrap_err().to_string().contains("a multiple of 4"));
    assert!(context.tensor_over(&odd, &[10], DType::U8).is_err());
    assert_eq!(context.tensor_over(&odd.slice(0..0).unwrap(), &[0], DType::U8)?.len(), 0);
    Ok(())
}
