//! Contexts, tensors and graphs that threads share, on the real library.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nn_ffi::{
    Context, DType, Device, DeviceBuffer, Error, Event, Graph, PinnedBuffer, Result, Status, Stream, Tensor, kernels,
};

/// Whether threads may pass a type on and share it, which the compiler answers.
const fn shared<T: Send + Sync + 'static>() {}

const _: () = {
    shared::<Context>();
    shared::<Tensor>();
    shared::<DeviceBuffer<f32>>();
    shared::<PinnedBuffer<f32>>();
    shared::<Stream>();
    shared::<Event>();
    shared::<Graph>();
    shared::<Error>();
};

/// A product of random matrices, many times over, in memory that comes and goes.
fn product(context: &Context, seed: i64) -> Result<Vec<f32>> {
    let (b, c) = (context.empty(&[33, 130], DType::F32)?, context.empty(&[65, 33], DType::F32)?);
    for round in 0..30 {
        let a = context.empty(&[65, 130], DType::F32)?;
        kernels::normal(&a, 0.0, 1.0, seed, round, 0)?;
        kernels::normal(&b, 0.0, 1.0, seed, round, 4096)?;
        kernels::gemm(&a, &b, &c, false, true)?;
    }
    c.to_vec()
}

#[test]
fn threads_of_one_context_get_the_bits_of_one_thread() -> Result<()> {
    let context = Context::open(Device::Cpu, Some(2), None)?;
    let alone: Vec<_> = (0..4).map(|seed| product(&context, seed)).collect::<Result<_>>()?;
    let together: Result<Vec<_>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|seed| {
                scope.spawn({
                    let context = &context;
                    move || product(context, seed)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    });
    assert_eq!(together?, alone);
    Ok(())
}

#[test]
fn errors_are_those_of_the_threads_own_call() -> Result<()> {
    let context = Context::open(Device::Cpu, Some(1), None)?;
    let (table, rows) = (context.zeros(&[4, 2], DType::F32)?, context.zeros(&[1, 2], DType::F32)?);
    thread::scope(|scope| {
        for wrong in 10..14 {
            let (context, table, rows) = (&context, &table, &rows);
            scope.spawn(move || {
                let ids = context.tensor(&[wrong], &[1]).expect("there is room");
                for _ in 0..200 {
                    let error = kernels::embedding(table, &ids, rows).expect_err("the table has 4 rows");
                    assert!(error.to_string().contains(&format!("ids[0] is {wrong}")), "{error}");
                }
            });
        }
    });
    Ok(())
}

#[test]
fn a_graph_runs_on_any_thread() -> Result<()> {
    let context = Context::open(Device::Cpu, Some(2), None)?;
    let (sum, one) = (context.zeros(&[4], DType::F32)?, context.tensor(&[1.0_f32; 4], &[4])?);
    let graph = context.capture(|| kernels::add(&sum, &one, &sum))?;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..100).for_each(|_| graph.launch().expect("it runs")));
        }
    });
    assert_eq!(sum.to_vec::<f32>()?, [300.0; 4]);
    Ok(())
}

/// Of those that begin at once some are refused; none waits for a context that another holds.
#[test]
fn contexts_that_shadow_each_other_do_not_wait_for_each_other() -> Result<()> {
    let (one, other) = (Context::open(Device::Cpu, Some(1), None)?, Context::open(Device::Cpu, Some(1), None)?);
    thread::scope(|scope| {
        for (context, reference) in [(&one, &other), (&other, &one)] {
            scope.spawn(move || {
                for _ in 0..50_000 {
                    let refused = context.shadow(reference, || Ok::<_, Error>(())).err();
                    assert!(refused.is_none_or(|error| error.status().is_some()));
                }
            });
        }
    });
    Ok(())
}

/// A thread that captures keeps its turn, so who waited for it with a turn on another context might wait for ever.
#[test]
fn a_context_that_is_captured_is_no_reference_for_another_thread() -> Result<()> {
    let (one, other) = (Context::open(Device::Cpu, Some(1), None)?, Context::open(Device::Cpu, Some(1), None)?);
    thread::scope(|scope| {
        let graph = one.capture(|| {
            let (told, answer) = mpsc::channel();
            let (one, other) = (&one, &other);
            scope.spawn(move || told.send(other.shadow(one, || Ok::<_, Error>(())).err()));
            let refused = answer.recv_timeout(Duration::from_secs(30)).expect("it does not wait");
            assert_eq!(refused.and_then(|error| error.status()), Some(Status::Busy));
            one.shadow(other, || Ok::<_, Error>(())).map(|_| ())
        });
        graph.map(|_| ())
    })
}
