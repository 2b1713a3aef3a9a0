//! Captured calls give the bits of the calls themselves, keep what they use, and fail without a trace.

mod device;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nn_ffi::{DType, Error, Result, Status, Tensor, kernels};

/// A few products and norms, so that sums have many terms.
fn work(x: &Tensor, weight: &Tensor, y: &Tensor) -> Result<()> {
    let context = x.context();
    let hidden = context.empty(&[x.shape()[0], weight.shape()[0]], DType::F32)?;
    kernels::gemm(x, weight, &hidden, false, true)?;
    let activated = context.empty(hidden.shape(), DType::F32)?;
    kernels::silu(&hidden, &activated)?;
    drop(hidden);
    let again = context.empty(activated.shape(), DType::F32)?;
    kernels::softmax(&activated, &again)?;
    kernels::gemm(&again, weight, y, false, false)
}

#[test]
fn a_graph_gives_the_bits_of_its_calls() -> Result<()> {
    let context = device::context();
    let (x, weight) = (context.empty(&[37, 96], DType::F32)?, context.empty(&[200, 96], DType::F32)?);
    kernels::normal(&weight, 0.0, 0.3, 1, 0, 0)?;
    let (eager, captured) = (context.zeros(&[37, 96], DType::F32)?, context.zeros(&[37, 96], DType::F32)?);
    let graph = context.capture(|| work(&x, &weight, &captured))?;
    assert_eq!(graph.calls()?, 4);
    assert_eq!(captured.to_vec::<f32>()?, vec![0.0; 37 * 96], "a capture runs nothing");
    for seed in 0..5 {
        kernels::normal(&x, 0.0, 1.0, seed, 0, 0)?;
        work(&x, &weight, &eager)?;
        graph.launch()?;
        let bits =
            |tensor: &Tensor| tensor.to_vec::<f32>().map(|values| values.iter().map(|value| value.to_bits()).collect());
        let (one, other): (Vec<u32>, Vec<u32>) = (bits(&eager)?, bits(&captured)?);
        assert_eq!(one, other);
    }
    Ok(())
}

#[test]
fn a_graph_keeps_the_memory_of_its_calls() -> Result<()> {
    let context = device::context();
    let result = context.zeros(&[8], DType::F32)?;
    let graph = {
        let ones = context.tensor(&[1.0_f32; 8], &[8])?;
        let twos = context.empty(&[8], DType::F32)?;
        kernels::scale(&ones, &twos, 2.0)?;
        context.capture(|| {
            let copy = context.empty(&[8], DType::F32)?;
            copy.copy_from(&ones)?;
            kernels::add(&copy, &result, &result)?;
            kernels::add(&twos, &result, &result)
        })?
    };
    // What would be reused if the graph did not keep it.
    let others: Vec<_> = (0..16).map(|_| context.tensor(&[-100.0_f32; 8], &[8])).collect::<Result<_>>()?;
    graph.launch()?;
    graph.launch()?;
    assert_eq!(result.to_vec::<f32>()?, [6.0; 8]);
    drop(others);
    let used = context.bytes_used()?;
    drop(graph);
    assert!(context.bytes_used()? < used, "the memory is given back with the graph");
    Ok(())
}

#[test]
fn tensors_of_a_capture_may_outlive_the_graph() -> Result<()> {
    let context = device::context();
    let kept = Cell::new(None);
    let graph = context.capture(|| {
        let tensor = context.empty(&[5], DType::F32)?;
        kernels::fill(&tensor, 3.0)?;
        kept.set(Some(tensor));
        Ok::<_, Error>(())
    })?;
    graph.launch()?;
    drop(graph);
    let tensor = kept.take().expect("it was set");
    assert_eq!(tensor.to_vec::<f32>()?, [3.0; 5]);
    let used = context.bytes_used()?;
    drop(tensor);
    assert!(context.bytes_used()? < used);
    Ok(())
}

#[test]
fn a_capture_that_fails_leaves_nothing_behind() -> Result<()> {
    let context = device::context();
    let tensor = context.tensor(&[1.0_f32; 4], &[4])?;
    let failed = context.capture(|| {
        kernels::silu(&tensor, &tensor)?;
        Err(Error::Value("no more".to_owned()))
    });
    assert_eq!(failed.err(), Some(Error::Value("no more".to_owned())));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        context.capture::<Error>(|| {
            kernels::silu(&tensor, &tensor)?;
            panic!("on purpose")
        })
    }));
    assert!(panicked.is_err());
    let inside: Result<_> = context.capture(|| context.capture(|| kernels::silu(&tensor, &tensor)).map(|_| ()));
    let error = inside.expect_err("a capture goes on already");
    assert!(matches!(error.status(), Some(Status::Capturing | Status::State)), "{error}");
    let from_host = context.capture(|| tensor.copy_from_slice(&[2.0_f32; 4]));
    assert_eq!(from_host.expect_err("the host's memory may be gone").status(), Some(Status::Capturing));
    // After all that the context computes as before.
    kernels::add(&tensor, &tensor, &tensor)?;
    assert_eq!(tensor.to_vec::<f32>()?, [2.0; 4]);
    context.capture(|| kernels::add(&tensor, &tensor, &tensor))?.launch()?;
    assert_eq!(tensor.to_vec::<f32>()?, [4.0; 4]);
    Ok(())
}

#[test]
fn a_graph_dropped_while_another_is_captured_leaves_that_alone() -> Result<()> {
    let context = device::context();
    let tensor = context.tensor(&[1.0_f32; 4], &[4])?;
    let first = Cell::new(Some(context.capture(|| kernels::silu(&tensor, &tensor))?));
    let second = context.capture(|| {
        drop(first.take());
        let event = context.event();
        assert_eq!(event.expect_err("not while capturing").status(), Some(Status::Capturing));
        kernels::add(&tensor, &tensor, &tensor)
    })?;
    second.launch()?;
    assert_eq!(tensor.to_vec::<f32>()?, [2.0; 4]);
    Ok(())
}
