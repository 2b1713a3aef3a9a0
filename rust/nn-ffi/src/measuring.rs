//! Contexts that measure what a program would need, and run nothing.

use std::ptr;

use crate::library::meaning;
use crate::{Context, Device, Error, InstructionSet, Result};

/// A machine that a context can measure for, which need not be this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// The CPU engine; what is not given is this machine's.
    Cpu {
        /// Worker threads.
        threads: Option<usize>,
        /// The instruction set.
        isa: Option<InstructionSet>,
    },
    /// A GPU.
    Cuda {
        /// Its compute capability, 90 for 9.0; without it, that of the GPU here.
        capability: Option<u32>,
        /// Its multiprocessors; without them, those of the usual GPU of its capability.
        multiprocessors: Option<u32>,
    },
}

impl Context {
    /// A context that measures what a program would need of a machine, which need not be this one.
    ///
    /// The same program runs on it as on the real one, but its kernels do nothing: arguments are checked, the bytes are
    /// those of the real device, and [`profile`](Self::profile) gives calls, bytes and operations, without times. Its
    /// memory costs none; what is read from it is zeros.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] when there is no library, [`crate::Status::InvalidValue`] when there is no such machine.
    pub fn measuring(machine: Machine) -> Result<Self> {
        let library = nn_cuda::library()?;
        let whole =
            |number: Option<usize>, none| number.map_or(none, |number| i32::try_from(number).unwrap_or(i32::MAX));
        let (device, isa, threads, multiprocessors) = match machine {
            Machine::Cpu { threads, isa } => (Device::Cpu, isa.map_or(-1, |isa| isa as i32), whole(threads, 0), 0),
            Machine::Cuda { capability, multiprocessors } => {
                let [capability, multiprocessors] =
                    [capability, multiprocessors].map(|number| number.map(|n| n as usize));
                (Device::Cuda(0), whole(capability, -1), 0, whole(multiprocessors, 0))
            }
        };
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` may be written.
        let code = unsafe {
            (library.nncuda_ctx_create_measuring)(device.numbers().0, isa, threads, multiprocessors, &raw mut handle)
        };
        Self::made(library, device, handle, code).map_err(|status| {
            let message = format!("a context that measures for {machine:?}: {}", meaning(library, code));
            Error::Call { status, function: "nncuda_ctx_create_measuring", message }
        })
    }

    /// Whether it [measures](Self::measuring), so that its memory holds nothing.
    pub fn measures(&self) -> Result<bool> {
        Ok(self.get(nn_cuda::NNCUDA_CTX_MEASURING)? != 0)
    }

    /// What it would take a context that measures to measure for its device.
    pub fn machine(&self) -> Result<Machine> {
        Ok(if self.device() == Device::Cpu {
            Machine::Cpu { threads: Some(self.threads()?), isa: self.isa()? }
        } else {
            let multiprocessors = u32::try_from(self.get(nn_cuda::NNCUDA_CTX_MULTIPROCESSORS)?).ok();
            Machine::Cuda { capability: self.compute_capability()?, multiprocessors }
        })
    }
}
