//! Calls that become a graph on their second run.

#[path = "../../nn-ffi/tests/device/mod.rs"]
mod device;

use std::cell::Cell;

use nn_core::Result;
use nn_core::replay::{Replay, Run};
use nn_ffi::{DType, kernels};

#[test]
fn calls_are_captured_on_the_second_run_and_replayed_after_it() -> Result<()> {
    let context = device::context();
    let tensor = context.zeros(&[1], DType::I32)?;
    let (made, mut runs) = (Cell::new(0), Vec::new());
    let calls = || {
        made.set(made.get() + 1);
        Ok(kernels::increment(&tensor, 1)?)
    };
    let mut replay = Replay::new(&context, true);
    for _ in 0..5 {
        runs.push(replay.run(false, calls)?);
    }
    assert_eq!(runs, [Run::Calls, Run::Calls, Run::Graph, Run::Graph, Run::Graph]);
    assert_eq!((made.get(), tensor.item::<i32>()?), (2, 5));
    let mut short = Replay::new(&context, true);
    short.run(false, calls)?;
    short.run(true, calls)?;
    assert!(!short.is_captured(), "nothing is captured for the last time");
    let mut eager = Replay::new(&context, false);
    for _ in 0..3 {
        assert_eq!(eager.run(false, calls)?, Run::Calls);
    }
    assert_eq!(tensor.item::<i32>()?, 10);
    Ok(())
}
