//! Experts that are on several ranks: rows travel to them and back, and their gradients are added in one order.

use std::ptr;

use crate::call::{Call, Operand, Sizes, pointer, tensor};
use crate::comm::number;
use crate::library::without_context;
use crate::{Comm, DType, Error, Result, Tensor};

/// The tensors of an exchange of rows, whose sizes agree.
struct Exchange<'t> {
    x: Option<Operand<'t, 2>>,
    offsets: Option<Operand<'t, 1>>,
    y: Operand<'t, 3>,
    y_offsets: Operand<'t, 2>,
}

impl<'t> Exchange<'t> {
    fn new(
        call: &Call<'t>,
        ranks: usize,
        x: Option<(&'t Tensor, &'t Tensor)>,
        y: &'t Tensor,
        y_offsets: &'t Tensor,
    ) -> Result<Self> {
        const FROM_OFFSETS: [(&str, &str); 2] = [("ranks", "from the communicator"), ("own", "from y_offsets")];
        let Half { x: rows, y } = Half::new(call, ranks, x.map(|(x, _)| x), y)?;
        let y_offsets = call.dense::<2>("y_offsets", "[ranks, own+1]", y_offsets)?.of(DType::I32)?;
        let own = y_offsets.dims[1].saturating_sub(1);
        let sizes = Sizes { names: &FROM_OFFSETS, values: &[ranks, own] };
        y_offsets.expect([ranks, own + 1], sizes)?;
        let Some((_, offsets)) = x else { return Ok(Self { x: None, offsets: None, y, y_offsets }) };
        let offsets = call.dense::<1>("offsets", "[ranks*own+1]", offsets)?.of(DType::I32)?;
        offsets.expect([ranks * own + 1], sizes)?;
        Ok(Self { x: rows, offsets: Some(offsets), y, y_offsets })
    }

    /// Rows, rows of a slot, bytes of a row, ranks, experts of each.
    fn sizes(&self) -> [i64; 5] {
        let [ranks, slot_rows, dim] = self.y.dims;
        let rows = self.x.as_ref().map_or(0, |x| x.dims[0]);
        let row_bytes = dim.saturating_mul(self.y.dtype().size());
        [rows, slot_rows, row_bytes, ranks, self.y_offsets.dims[1] - 1].map(number)
    }

    fn tensors(&self) -> [Option<&Tensor>; 4] {
        [tensor(&self.x), tensor(&self.offsets), Some(self.y.tensor), Some(self.y_offsets.tensor)]
    }
}

/// The tensors of half an exchange of rows, whose sizes agree.
struct Half<'t> {
    x: Option<Operand<'t, 2>>,
    y: Operand<'t, 3>,
}

impl<'t> Half<'t> {
    fn new(call: &Call<'t>, ranks: usize, x: Option<&'t Tensor>, y: &'t Tensor) -> Result<Self> {
        const FROM_Y: [(&str, &str); 3] =
            [("ranks", "from the communicator"), ("slot_rows", "from y"), ("dim", "from y")];
        let y = call.dense::<3>("y", "[ranks, slot_rows, dim]", y)?;
        let [_, slot_rows, dim] = y.dims;
        y.expect([ranks, slot_rows, dim], Sizes { names: &FROM_Y, values: &[ranks, slot_rows, dim] })?;
        let Some(x) = x else { return Ok(Self { x: None, y }) };
        let x = call.dense::<2>("x", "[rows, dim]", x)?;
        x.same(y.dtype(), "y")?;
        x.expect([x.dims[0], dim], Sizes { names: &[("dim", "from y")], values: &[dim] })?;
        Ok(Self { x: Some(x), y })
    }

    /// Rows, rows of a slot, bytes of a row, ranks.
    fn sizes(&self) -> [i64; 4] {
        let [ranks, slot_rows, dim] = self.y.dims;
        let rows = self.x.as_ref().map_or(0, |x| x.dims[0]);
        [rows, slot_rows, dim.saturating_mul(self.y.dtype().size()), ranks].map(number)
    }

    fn tensors(&self) -> [Option<&Tensor>; 2] {
        [tensor(&self.x), Some(self.y.tensor)]
    }
}

impl Comm {
    /// Sends rows to the ranks that have their experts: each rank as many, the first rank the first ones.
    ///
    /// `x` are rows `[rows, dim]` in the order of experts, and i32 `[experts+1]` the first of each; a rank that has no rows
    /// gives none. Of each rank this one gets the rows for its own experts, into a slot of `y` `[ranks, slot_rows, dim]`
    /// from the start of it, and `y_offsets` i32 `[ranks, own+1]` become the first of each expert there. The rest of a slot
    /// stays.
    ///
    /// # Errors
    ///
    /// As [`broadcast`](Self::broadcast), and when the offsets are not those of the rows.
    pub fn dispatch(&self, x: Option<(&Tensor, &Tensor)>, y: &Tensor, y_offsets: &Tensor) -> Result<()> {
        let call = self.call("nncuda_comm_dispatch");
        let all = Exchange::new(&call, self.ranks(), x, y, y_offsets)?;
        let [rows, slot_rows, row_bytes, ranks, own] = all.sizes();
        // SAFETY: context and communicator live, and the tensors, which are of this context, have these sizes.
        let code = unsafe {
            (call.functions().nncuda_comm_dispatch)(
                call.handle(),
                self.pointer(),
                pointer(&all.x),
                pointer(&all.offsets).cast(),
                all.y.pointer(),
                all.y_offsets.pointer().cast(),
                rows,
                slot_rows,
                row_bytes,
                ranks,
                own,
            )
        };
        self.finish(call, code, &all.tensors())
    }

    /// The way back of [`dispatch`](Self::dispatch): the rows of each slot go to their rank, to the places in `x` that they
    /// came from.
    ///
    /// # Errors
    ///
    /// As [`dispatch`](Self::dispatch).
    pub fn collect(&self, y: &Tensor, y_offsets: &Tensor, x: Option<(&Tensor, &Tensor)>) -> Result<()> {
        let call = self.call("nncuda_comm_collect");
        let all = Exchange::new(&call, self.ranks(), x, y, y_offsets)?;
        let [rows, slot_rows, row_bytes, ranks, own] = all.sizes();
        // SAFETY: as in `dispatch`.
        let code = unsafe {
            (call.functions().nncuda_comm_collect)(
                call.handle(),
                self.pointer(),
                all.y.pointer(),
                all.y_offsets.pointer().cast(),
                pointer(&all.x),
                pointer(&all.offsets).cast(),
                rows,
                slot_rows,
                row_bytes,
                ranks,
                own,
            )
        };
        self.finish(call, code, &all.tensors())
    }

    /// [`dispatch`](Self::dispatch) beside what the context does from now on: the slot of this rank is there, for any other
    /// [`dispatch_end`](Self::dispatch_end) waits.
    ///
    /// Of those, the rank one before this one comes first, then the one before that. With `known` `y_offsets` are those of an
    /// earlier dispatch with the same offsets on all ranks. Until [`collect_end`](Self::collect_end), x and y belong to what
    /// travels, and nothing else is done on this communicator.
    ///
    /// # Errors
    ///
    /// As [`dispatch`](Self::dispatch), and when rows are under way already, unless the offsets are known.
    pub fn dispatch_begin(
        &self,
        x: Option<(&Tensor, &Tensor)>,
        y: &Tensor,
        y_offsets: &Tensor,
        known: bool,
    ) -> Result<()> {
        let call = self.call("nncuda_comm_dispatch_begin");
        let all = Exchange::new(&call, self.ranks(), x, y, y_offsets)?;
        let [rows, slot_rows, row_bytes, ranks, own] = all.sizes();
        // SAFETY: as in `dispatch`. The communicator keeps the tensors while rows travel.
        let code = unsafe {
            (call.functions().nncuda_comm_dispatch_begin)(
                call.handle(),
                self.pointer(),
                pointer(&all.x),
                pointer(&all.offsets).cast(),
                all.y.pointer(),
                all.y_offsets.pointer().cast(),
                rows,
                slot_rows,
                row_bytes,
                ranks,
                own,
                i32::from(known),
            )
        };
        self.finish(call, code, &all.tensors())?;
        self.keep(&all.y, tensor(&all.x));
        Ok(())
    }

    /// Keeps what travels to or from y.
    fn keep(&self, y: &Operand<'_, 3>, x: Option<&Tensor>) {
        let tensors = [Some(y.tensor), x].into_iter().flatten().cloned().collect();
        self.travelling().push_back((y.pointer().addr(), tensors));
    }

    /// Waits for the rows of a rank, and for all that come before them.
    ///
    /// # Errors
    ///
    /// As [`broadcast`](Self::broadcast), and when no rows are under way to `y`.
    pub fn dispatch_end(&self, y: &Tensor, source: usize) -> Result<()> {
        let call = self.call("nncuda_comm_dispatch_end");
        let half = Half::new(&call, self.ranks(), None, y)?;
        let [_, slot_rows, row_bytes, ranks] = half.sizes();
        // SAFETY: context and communicator live, and y, which is of this context, has these sizes.
        let code = unsafe {
            (call.functions().nncuda_comm_dispatch_end)(
                call.handle(),
                self.pointer(),
                half.y.pointer(),
                slot_rows,
                row_bytes,
                ranks,
                number(source),
            )
        };
        self.finish(call, code, &half.tensors())?;
        if source == (self.rank() + 1) % self.ranks() {
            let mut travelling = self.travelling(); // all rows have come, and those of dispatches that began before
            let ended = travelling.iter().position(|(y, _)| *y == half.y.pointer().addr()).map_or(0, |at| at + 1);
            travelling.drain(..ended);
        }
        Ok(())
    }

    /// [`collect`](Self::collect) of the last [`dispatch_begin`](Self::dispatch_begin), rank by rank: what became of the rows
    /// of `source` may go back, beside what the context does from now on. `x` may be what was sent, whose places it takes.
    ///
    /// # Errors
    ///
    /// As [`dispatch_end`](Self::dispatch_end), and when the sizes are not those of the dispatch.
    pub fn collect_begin(&self, y: &Tensor, x: Option<&Tensor>, source: usize) -> Result<()> {
        let call = self.call("nncuda_comm_collect_begin");
        let half = Half::new(&call, self.ranks(), x, y)?;
        let [rows, slot_rows, row_bytes, ranks] = half.sizes();
        // SAFETY: as in `dispatch_begin`.
        let code = unsafe {
            (call.functions().nncuda_comm_collect_begin)(
                call.handle(),
                self.pointer(),
                half.y.pointer(),
                pointer(&half.x),
                rows,
                slot_rows,
                row_bytes,
                ranks,
                number(source),
            )
        };
        self.finish(call, code, &half.tensors())?;
        self.keep(&half.y, x);
        Ok(())
    }

    /// Sends back the rows of all ranks that have not gone yet, and waits for those of `x`.
    ///
    /// # Errors
    ///
    /// As [`collect_begin`](Self::collect_begin).
    pub fn collect_end(&self, y: &Tensor, x: Option<&Tensor>) -> Result<()> {
        let call = self.call("nncuda_comm_collect_end");
        let half = Half::new(&call, self.ranks(), x, y)?;
        let [rows, slot_rows, row_bytes, ranks] = half.sizes();
        // SAFETY: as in `dispatch_end`.
        let code = unsafe {
            (call.functions().nncuda_comm_collect_end)(
                call.handle(),
                self.pointer(),
                half.y.pointer(),
                pointer(&half.x),
                rows,
                slot_rows,
                row_bytes,
                ranks,
            )
        };
        self.finish(call, code, &half.tensors())?;
        self.travelling().clear();
        Ok(())
    }
}

/// What becomes of the gradients of a rank's experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpertEvent {
    /// Those of a micro-batch of rank `source` of the group become those of a slot, or are added to them.
    Run {
        /// The round in which the rank runs it.
        round: usize,
        /// The rank, within the group.
        source: usize,
        /// Which of the update.
        micro_batch: usize,
        /// Where its gradients go.
        slot: usize,
        /// Whether they are added to what is there.
        accumulate: bool,
    },
    /// Those of the slot `other`, which is then free, are added to those of `slot`.
    Add {
        /// The round of which this is part.
        round: usize,
        /// The slot that has the sum.
        slot: usize,
        /// The slot that is added.
        other: usize,
    },
    /// A slot has the sum over a node of the tree below its root, which is rounded where the job rounds what it sends.
    Round {
        /// The round of which this is part.
        round: usize,
        /// The slot.
        slot: usize,
    },
    /// Behind the last round: those of the slot `from` move to the slot `to`.
    Copy {
        /// The slot that is copied.
        from: usize,
        /// Where to.
        to: usize,
    },
}

impl ExpertEvent {
    fn of(row: &[i64]) -> Option<Self> {
        let &[round, kind, a, b, c, accumulate] = row else { return None };
        let place = |value| usize::try_from(value).ok();
        let (round, a, b, c) = (place(round)?, place(a)?, place(b)?, place(c)?);
        match i32::try_from(kind).ok()? {
            nn_cuda::NNCUDA_EXPERTS_RUN => {
                Some(Self::Run { round, source: a, micro_batch: b, slot: c, accumulate: accumulate == 1 })
            }
            nn_cuda::NNCUDA_EXPERTS_ADD => Some(Self::Add { round, slot: a, other: b }),
            nn_cuda::NNCUDA_EXPERTS_ROUND => Some(Self::Round { round, slot: a }),
            nn_cuda::NNCUDA_EXPERTS_COPY => Some(Self::Copy { from: a, to: b }),
            _ => None,
        }
    }
}

/// The order in which the experts' owners in the group of ranks first .. first+group-1 add their gradients, and how many
/// slots that takes.
///
/// In round j each rank of the group runs the j-th of its micro-batches, replica by replica; each layer carries out all
/// events of a round in order, in its part of the slots. At the end the sums that are left, which
/// [`Comm::reduce_scatter`] takes, lie in the first slots. With the `position` of a rank in its group the events of a round
/// are in the order in which rows come to it ([`Comm::dispatch_begin`]), its own last, as far as each slot allows; sums are
/// the same.
///
/// # Errors
///
/// [`Status::InvalidValue`](crate::Status::InvalidValue) when there are fewer micro-batches than replicas, fewer replicas
/// than ranks, or no such group.
pub fn expert_schedule(
    replicas: usize,
    ranks: usize,
    first: usize,
    group: usize,
    micro_batches: usize,
    position: Option<usize>,
) -> Result<(Vec<ExpertEvent>, usize)> {
    let library = nn_cuda::library()?;
    let (mut count, mut slots) = (0, 0);
    let mut ask = |events: *mut i64, capacity| {
        // SAFETY: as many events as `capacity` says may be written, and so may both numbers.
        let code = unsafe {
            (library.nncuda_expert_schedule)(
                number(replicas),
                number(ranks),
                number(first),
                number(group),
                number(micro_batches),
                position.map_or(-1, number),
                events,
                capacity,
                &raw mut count,
                &raw mut slots,
            )
        };
        without_context(library, "nncuda_expert_schedule", code).map(|()| (count, slots))
    };
    let (count, slots) = ask(ptr::null_mut(), 0)?;
    let mut rows = vec![0; usize::try_from(count).unwrap_or(0).saturating_mul(6)];
    ask(rows.as_mut_ptr(), count)?;
    let unknown = || Error::Value("the library tells of events that are not known".into());
    let events = rows.chunks_exact(6).map(|row| ExpertEvent::of(row).ok_or_else(unknown)).collect::<Result<_>>()?;
    Ok((events, usize::try_from(slots).unwrap_or(0)))
}
