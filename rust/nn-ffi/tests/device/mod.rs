//! The context that tests of any engine run on.

use std::env;

use nn_ffi::{Context, Device};

/// A context of the device that `NNCUDA_TEST_DEVICE` names, such as "cuda"; without it of the CPU, with two threads.
pub(crate) fn context() -> Context {
    let device = env::var("NNCUDA_TEST_DEVICE").map_or(Device::Cpu, |name| name.parse().expect("it names a device"));
    let threads = (device == Device::Cpu).then_some(2);
    Context::open(device, threads, None).unwrap_or_else(|error| panic!("{error}"))
}
