//! Handles, memory and lifetimes, on a library that frees what it is told to free.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

use super::{library, state};
use crate::call::{Call, Sizes, plus, times};
use crate::{Context, DType, Device, Error, Result, Status, kernels};

fn context() -> Context {
    Context::with_library(library(), Device::Cpu).expect("it is always there")
}

/// Pieces of memory, streams and events that the library has given and not got back.
fn held(context: &Context) -> (usize, usize) {
    // SAFETY: the context lives, and nobody else looks at its state now.
    let state = unsafe { state(context.turn().handle()) };
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
    let elsewhere = context.clone();
    let sum = thread::spawn(move || {
        let one = elsewhere.tensor(&[1.0_f32], &[1])?;
        kernels::add(&one, &one, &one)?;
        one.item::<f32>()
    });
    assert_eq!(sum.join().expect("the thread ends"), Ok(2.0));
    assert_eq!(held(&context), (0, 0));
    Ok(())
}

#[test]
fn threads_share_a_context_and_its_tensors() -> Result<()> {
    let (threads, rounds) = (4, if cfg!(miri) { 5 } else { 500 });
    let context = context();
    let (sum, one) = (context.zeros(&[1], DType::F32)?, context.tensor(&[1.0_f32], &[1])?);
    thread::scope(|scope| {
        let work = || -> Result<()> {
            for _ in 0..rounds {
                let own = context.zeros(&[3], DType::F32)?;
                kernels::add(&sum, &one, &sum)?;
                assert_eq!(own.view(&[3])?.to_vec::<f32>()?, [0.0; 3]);
            }
            Ok(())
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("it ends"))
    })?;
    assert_eq!((sum.item::<f32>()?, held(&context)), ((threads * rounds) as f32, (2, 0)));
    Ok(())
}

#[test]
fn the_last_tensor_gives_up_its_context_on_any_thread() -> Result<()> {
    let tensor = context().zeros(&[2], DType::F32)?;
    let graph = tensor.context().capture(|| kernels::add(&tensor, &tensor, &tensor))?;
    let values = thread::spawn(move || {
        drop(tensor.clone());
        tensor.copy_from_slice(&[1.0_f32, 2.0])?;
        graph.launch()?;
        drop(graph);
        tensor.to_vec::<f32>()
    });
    // Miri would report a context that is leaked, or used after its end.
    assert_eq!(values.join().expect("the thread ends"), Ok(vec![2.0, 4.0]));
    Ok(())
}

#[test]
fn a_capture_holds_calls_of_its_own_thread_alone() -> Result<()> {
    let context = context();
    let (own, other) = (context.tensor(&[1.0_f32], &[1])?, context.tensor(&[1.0_f32], &[1])?);
    let (begun, captures) = mpsc::channel();
    let graph = thread::scope(|scope| {
        let other = &other;
        let beside = scope.spawn(move || {
            captures.recv().expect("it is sent while the capture goes on");
            kernels::add(other, other, other)?; // waits for its end
            other.item::<f32>()
        });
        let graph = context.capture(|| {
            begun.send(()).expect("the thread waits");
            for _ in 0..20 {
                thread::yield_now();
                kernels::add(&own, &own, &own)?;
            }
            Ok::<_, Error>(())
        });
        assert_eq!(beside.join().expect("the thread ends"), Ok(2.0), "it was computed, not recorded");
        graph
    })?;
    assert_eq!((graph.calls()?, own.item::<f32>()?), (20, 1.0));
    Ok(())
}

#[test]
fn no_thread_uses_a_tensor_in_flight() -> Result<()> {
    let context = context();
    let (tensor, values) = (context.zeros(&[2], DType::F32)?, [3.0_f32, 4.0]);
    context.stream()?.scope(|copies| -> Result<()> {
        copies.upload(&tensor, &values)?;
        let refused = thread::scope(|scope| {
            let used = scope.spawn(|| (kernels::add(&tensor, &tensor, &tensor), tensor.zero(), tensor.to_vec::<f32>()));
            used.join().expect("the thread ends")
        });
        assert!(matches!(refused, (Err(_), Err(_), Err(_))), "{refused:?}");
        Ok(())
    })??;
    assert_eq!(tensor.to_vec::<f32>()?, values);
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

#[test]
fn shapes_fold_solve_and_disagree() -> Result<()> {
    let context = context();
    let (x, flat) = (context.zeros(&[2, 3, 4], DType::F32)?, context.zeros(&[24], DType::F32)?);
    let call = Call::new("cuda_test", &x);
    let (folded, whole) = (call.dense::<2>("x", "[rows, cols]", &x)?, call.dense::<1>("flat", "[n]", &flat)?);
    assert_eq!((folded.dims, whole.dims), ([6, 4], [24]));
    let sentence = |error: Option<Error>| error.expect("it is refused").to_string();
    let few = call.dense::<2>("flat", "[rows, cols]", &flat).err();
    assert_eq!(sentence(few), "test: flat has shape [24]; [rows, cols] was expected");
    // rows = 2*k, and rows = k/2 + 3.
    assert_eq!((folded.solve(0, "k", 2, 1, 0)?, folded.solve(0, "k", 1, 2, 3)?), (3, 6));
    assert!(sentence(folded.solve(0, "k", 4, 1, 0).err()).contains("no k gives the 6 entries of dimension 0"));
    assert!(folded.solve(0, "k", 0, 1, 0).is_err() && folded.solve(0, "k", 1, 1, 7).is_err());
    let none = context.zeros(&[0, 4], DType::F32)?;
    let none = call.dense::<2>("none", "[a*b, 4]", &none)?;
    assert_eq!(none.solve(0, "b", 0, 1, 0)?, 1, "nothing times anything is nothing");
    let sizes = Sizes { names: &[("rows", "from y"), ("k", "given")], values: &[5, 9] };
    folded.expect([6, 4], sizes)?;
    let wrong = folded.expect([5, 4], sizes).err();
    assert_eq!(sentence(wrong), "test: x has shape [2, 3, 4]; [rows, cols] with rows = 5 (from y) was expected");
    let turned = call.dense::<2>("x", "[rows, cols]^t", &x)?.swapped(true).err();
    assert!(sentence(turned).contains("has shape [2, 3, 4]"), "folded rows cannot be swapped");
    let square = x.view(&[6, 4])?;
    assert_eq!(call.dense::<2>("square", "[rows, cols]^t", &square)?.swapped(true)?.dims, [4, 6]);
    assert_eq!((times(&[usize::MAX, 2]), plus(usize::MAX, 1)), (usize::MAX, usize::MAX));
    Ok(())
}

#[test]
fn strides_are_those_of_the_tensors_that_have_rows() -> Result<()> {
    let context = context();
    let wide = context.zeros(&[4, 8], DType::F32)?;
    let (left, dense) = (wide.narrow(1, 0, 3)?, context.zeros(&[4, 3], DType::F32)?);
    let call = Call::new("cuda_test", &wide);
    let rows = |tensor| call.strided::<2>("x", "[rows:ld, cols]", tensor).map(|operand| operand.rows());
    let (single, folded) = (dense.narrow(0, 0, 1)?, dense.view(&[1, 4, 3])?);
    assert_eq!(call.stride(&[rows(&left)?, rows(&left)?])?, 8);
    assert_eq!(call.stride(&[rows(&single)?, rows(&left)?])?, 8, "one row has no stride of its own");
    assert_eq!(call.stride(&[rows(&single)?, rows(&single)?])?, 3, "none has one: the longest row");
    assert_eq!(call.stride(&[rows(&folded)?])?, 3);
    assert!(call.stride(&[rows(&left)?, rows(&dense)?]).is_err());
    assert!(call.stride(&[rows(&left)?, rows(&folded)?]).is_err(), "four rows, though the first dimension is one");
    assert!(call.dense::<2>("left", "[rows, cols]", &left).is_err());
    assert!(call.strided::<2>("left", "[rows:ld, cols]", &left.view(&[4, 3, 1])?).is_err(), "gaps cannot be folded");
    Ok(())
}
