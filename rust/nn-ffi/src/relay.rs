//! What a loop of kernels makes, on its way to the host while the loop goes on.

use std::fmt;

use crate::{Context, Element, Error, Event, PinnedBuffer, Result, Stream, Tensor};

/// Carries the values that a tensor has at several moments to the host, beside the kernels that come after.
///
/// The kernels may overwrite the tensor at once: its values are put aside on the device first, in the order of the kernels.
///
/// ```
/// use nn_ffi::{Context, DType, Device, Relay, kernels};
///
/// # fn main() -> nn_ffi::Result<()> {
/// let context = Context::new(Device::Cpu)?;
/// let count = context.zeros(&[1], DType::I32)?;
/// let mut relay = Relay::<i32>::new(&context, 1, 2)?;
/// for _ in 0..2 {
///     kernels::increment(&count, 1)?;
///     relay.send(&count)?;
/// }
/// assert_eq!((relay.receive()?[0], relay.receive()?[0]), (1, 2));
/// # Ok(()) }
/// ```
pub struct Relay<T: Element> {
    context: Context,
    stream: Stream,
    slots: Vec<Slot<T>>,
    sent: usize,
    received: usize,
}

struct Slot<T: Element> {
    /// On the device; nobody else has it, so nothing else writes there while it is copied.
    aside: Tensor,
    here: PinnedBuffer<T>,
    made: Event,
    arrived: Event,
}

impl<T: Element> Relay<T> {
    /// Room for `depth` tensors of `len` elements that are on their way at once.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] while a graph is captured, or when the device has no more memory.
    pub fn new(context: &Context, len: usize, depth: usize) -> Result<Self> {
        let slot = || {
            Ok(Slot {
                aside: context.zeros(&[len], T::DTYPE)?,
                here: context.pinned(len)?,
                made: context.event()?,
                arrived: context.event()?,
            })
        };
        let slots = (0..depth.max(1)).map(|_| slot()).collect::<Result<_>>()?;
        Ok(Self { context: context.clone(), stream: context.stream()?, slots, sent: 0, received: 0 })
    }

    /// Sends the values that the tensor has after the kernels that were called so far.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when the tensor is of another dtype or length, or as many are on their way as there is room for;
    /// [`Error::Call`] while a graph is captured.
    pub fn send(&mut self, source: &Tensor) -> Result<()> {
        let (depth, len) = (self.slots.len(), self.slots[0].here.len());
        source.matches::<T>("send", len)?;
        if self.sent - self.received == depth {
            return Err(Error::shape("send", format!("{depth} tensors are on their way already: receive one first")));
        }
        let slot = &mut self.slots[self.sent % depth];
        slot.aside.copy_from(&source.view(&[len])?)?;
        slot.made.record(None)?;
        self.stream.wait(&slot.made)?;
        // SAFETY: both sides are this slot's. The host's is looked at only after `arrived`, and neither is freed or used
        // again before the stream has been waited for.
        unsafe { self.stream.copy_to_pinned(&mut slot.here, &slot.aside)? };
        slot.arrived.record(Some(&self.stream))?;
        self.sent += 1;
        Ok(())
    }

    /// The oldest values that were sent and not received yet, when they have arrived.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when none are on their way; else the first that the device met.
    pub fn receive(&mut self) -> Result<&[T]> {
        if self.received == self.sent {
            return Err(Error::shape("receive", "nothing is on its way: send a tensor first".to_owned()));
        }
        let slot = &self.slots[self.received % self.slots.len()];
        slot.arrived.synchronize()?;
        self.received += 1;
        Ok(&slot.here)
    }
}

impl<T: Element> Drop for Relay<T> {
    fn drop(&mut self) {
        // A stream that cannot be waited for has failed with its device, and copies nothing any more.
        let _ = self.stream.synchronize();
    }
}

impl<T: Element> fmt::Debug for Relay<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let under_way = self.sent - self.received;
        f.debug_struct("Relay").field("under_way", &under_way).field("context", &self.context).finish_non_exhaustive()
    }
}
