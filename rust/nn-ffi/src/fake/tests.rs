//! Handles, memory and lifetimes, on a library that frees what it is told to free.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use super::{library, state};
use crate::{Context, DType, Device, Error, Result, Status, kernels};

fn context() -> Context {
    Context::with_library(library(), Device::Cpu).expect("it is always there")
}

/// Pieces of memory, streams and events that the library has given and not got back.
fn held(context: &Context) -> (usize, usize) {
    // SAFETY: the context lives, and nobody else looks at its state now.
    let state = unsafe { state(context.handle()) };
    (state.memory.len(), state.handles)
}

#[test]
fn tensors_share_memory_and_give_it_back_once() -> Result<()> {
    let context = context();
    let tensor = context.tensor(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?;
    let (view, row, column) = (tensor.view(&[6])?, tensor.narrow(0, 1, 1)?, tensor.narrow(1, 1, 1)?);
    assert_eq!(held(&context).0, 1);
    drop(tensor);
    assert_eq!(view.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!((row.to_vec::<f32>()?, column.to_vec::<f32>()?), (vec![3.0, 4.0], vec![2.0, 4.0, 6.0]));
    column.zero()?;
    row.copy_from_slice(&[7.0_f32, 8.0])?;
    assert_eq!(view.to_vec::<f32>()?, [1.0, 0.0, 7.0, 8.0, 5.0, 0.0]);
    assert_eq!(column.contiguous()?.to_vec::<f32>()?, [0.0, 8.0, 0.0]);
    drop((view, row, column));
    assert_eq!(held(&context), (0, 0));
    Ok(())
}

#[test]
fn no_bytes_are_no_memory() -> Result<()> {
    let context = context();
    let empty = context.tensor::<f32>(&[], &[0, 3])?;
    assert!(empty.pointer().is_null() && empty.to_vec::<f32>()?.is_empty());
    let end = context.zeros(&[4, 2], DType::F32)?.narrow(0, 4, 0)?;
    assert!(end.to_vec::<f32>()?.is_empty());
    kernels::add(&empty, &empty, &empty)?;
    assert!(context.pinned::<i64>(0)?.is_empty());
    Ok(())
}

#[test]
fn a_failed_call_is_an_error_with_the_statuss_meaning() -> Result<()> {
    let context = context();
    let error = context.empty(&[1 << 22], DType::F32).expect_err("the stand-in has no more");
    let message = "what a status means".to_owned();
    assert_eq!(error, Error::Call { status: Status::OutOfMemory, function: "nncuda_malloc", message });
    let whole = context.zeros(&[2], DType::I32)?;
    assert_eq!(kernels::add(&whole, &whole, &whole).expect_err("it adds f32").status(), Some(Status::InvalidDtype));
    assert_eq!(Context::with_library(library(), Device::Cuda(0)).expect_err("no GPU").status(), Some(Status::NoDevice));
    Ok(())
}

#[test]
fn what_a_graph_uses_lives_as_long_as_it() -> Result<()> {
    let context = context();
    let sum = context.zeros(&[4], DType::F32)?;
    let graph = {
        let ones = context.tensor(&[1.0_f32; 4], &[4])?;
        context.capture(|| {
            for _ in 0..3 {
                let inside = context.empty(&[4], DType::F32)?;
                kernels::add(&ones, &ones, &inside)?;
                kernels::add(&sum, &inside, &sum)?;
            }
            Ok::<_, Error>(())
        })?
    };
    // `sum`, `ones`, and one piece that all three turns of the loop used in turn.
    assert_eq!(held(&context).0, 3);
    graph.launch()?;
    graph.launch()?;
    assert_eq!((graph.calls()?, sum.to_vec::<f32>()?), (6, vec![12.0; 4]));
    drop(sum);
    graph.launch()?;
    drop(graph);
    assert_eq!(held(&context), (0, 0));
    Ok(())
}

#[test]
fn what_is_let_go_while_capturing_is_freed_afterwards() -> Result<()> {
    let context = context();
    let (before, stream) = (Cell::new(Some(context.zeros(&[4], DType::F32)?)), Cell::new(Some(context.stream()?)));
    let older = Cell::new(Some({
        let tensor = context.zeros(&[3], DType::F32)?;
        context.capture(|| kernels::add(&tensor, &tensor, &tensor))?
    }));
    let kept = Cell::new(None);
    let graph = context.capture(|| {
        drop((before.take(), stream.take(), older.take()));
        kept.set(Some(context.empty(&[2], DType::F32)?));
        context.event().map(|_| ())
    });
    assert_eq!(graph.expect_err("no event while capturing").status(), Some(Status::Capturing));
    assert_eq!(held(&context), (3, 1), "they wait until they can be given back");
    let later = context.zeros(&[1], DType::F32)?;
    assert_eq!(held(&context), (2, 0));
    kept.set(None);
    drop(later);
    assert_eq!(held(&context), (0, 0));
    Ok(())
}

#[test]
fn a_panic_ends_a_capture() -> Result<()> {
    let context = context();
    let tensor = context.tensor(&[1.0_f32; 2], &[2])?;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        context.capture::<Error>(|| {
            let inside = context.empty(&[2], DType::F32)?;
            kernels::add(&tensor, &tensor, &inside)?;
            panic!("on purpose")
        })
    }));
    assert!(panicked.is_err());
    kernels::add(&tensor, &tensor, &tensor)?;
    assert_eq!((tensor.to_vec::<f32>()?, held(&context).0), (vec![2.0; 2], 1));
    Ok(())
}

#[test]
fn copies_are_done_and_their_memory_kept_when_a_scope_ends() -> Result<()> {
    let context = context();
    let stream = context.stream()?;
    let mut back = [0.0_f32; 3];
    {
        let values = vec![1.0_f32, 2.0, 3.0];
        let tensor = context.zeros(&[3], DType::F32)?;
        stream.scope(|copies| {
            let clone = tensor.clone();
            copies.upload(&clone, &values)?;
            copies.download(&mut back, &clone)?;
            drop(clone);
            assert!(kernels::add(&tensor, &tensor, &tensor).is_err(), "it is in flight");
            Ok::<_, Error>(())
        })??;
        kernels::add(&tensor, &tensor, &tensor)?;
    }
    assert_eq!((back, held(&context).0), ([1.0, 2.0, 3.0], 0));
    let values = [4.0_f32; 3];
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.scope(|copies| {
            let gone_at_the_panic = context.zeros(&[3], DType::F32).expect("there is room");
            copies.upload(&gone_at_the_panic, &values).expect("it is given");
            panic!("on purpose")
        })
    }));
    assert!(panicked.is_err());
    drop(stream);
    assert_eq!(held(&context), (0, 0));
    Ok(())
}

#[test]
fn pinned_memory_is_a_slice() -> Result<()> {
    let context = context();
    let mut pinned = context.pinned::<i32>(5)?;
    assert_eq!(pinned[..], [0; 5]);
    pinned[3] = 7;
    pinned.swap(0, 3);
    let numbers = context.buffer_of(&pinned)?;
    assert_eq!((numbers.to_vec()?, held(&context).0), (vec![7, 0, 0, 0, 0], 2));
    drop(pinned);
    assert_eq!(held(&context).0, 1);
    Ok(())
}

#[test]
fn a_context_moves_with_what_waits_in_it() -> Result<()> {
    let context = context();
    let tensor = Cell::new(Some(context.zeros(&[2], DType::F32)?));
    context.capture(|| {
        drop(tensor.take());
        Ok::<_, Error>(())
    })?;
    assert_eq!(held(&context).0, 1);
    drop(tensor);
    let context = thread::spawn(move || {
        let sum = (|| -> Result<f32> {
            let one = context.tensor(&[1.0_f32], &[1])?;
            kernels::add(&one, &one, &one)?;
            one.item()
        })();
        assert_eq!(sum, Ok(2.0));
        context
    });
    let context = context.join().expect("the thread ends");
    assert_eq!(held(&context), (0, 0));
    Ok(())
}

#[test]
#[cfg_attr(miri, ignore = "Miri reports what is leaked on purpose")]
fn forgotten_tensors_are_freed_with_their_context() -> Result<()> {
    let context = context();
    std::mem::forget(context.zeros(&[2], DType::F32)?);
    assert_eq!(held(&context).0, 1);
    Ok(())
}
