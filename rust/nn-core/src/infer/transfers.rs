//! What goes between host and device in a loop of decoding.

use nn_ffi::{Context, Relay, Tensor};

use crate::error::Result;

/// Steps whose results can be on their way at once: that which was computed, and that which is.
const STEPS: usize = 2;

/// How the drawn ids of a step come to the host.
#[derive(Debug)]
pub(super) enum Transfers {
    /// When the step has ended: nothing is computed while the host and the device talk.
    Waiting {
        /// i32 `[rows]`, where a step puts the drawn ids.
        ids: Tensor,
        here: Vec<i32>,
    },
    /// While the device computes the next step.
    Beside {
        /// i32 `[rows]`, where a step puts the drawn ids.
        ids: Tensor,
        relay: Relay<i32>,
    },
}

impl Transfers {
    pub(super) fn new(ctx: &Context, ids: &Tensor, beside: bool) -> Result<Self> {
        let (ids, rows) = (ids.clone(), ids.len());
        Ok(if beside {
            Self::Beside { ids, relay: Relay::new(ctx, rows, STEPS)? }
        } else {
            Self::Waiting { ids, here: vec![0; rows] }
        })
    }

    /// All of a step was given to the device: its results are wanted.
    pub(super) fn end(&mut self) -> Result<()> {
        match self {
            Self::Waiting { .. } => Ok(()),
            Self::Beside { ids, relay } => Ok(relay.send(ids)?),
        }
    }

    /// The results of the oldest step whose results were not read.
    pub(super) fn ids(&mut self) -> Result<&[i32]> {
        match self {
            Self::Waiting { ids, here } => {
                ids.copy_to_slice(here)?;
                Ok(here)
            }
            Self::Beside { relay, .. } => Ok(relay.receive()?),
        }
    }
}
