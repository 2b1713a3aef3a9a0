//! Sums of gradients over the ranks that travel while the backward pass goes on.

use std::iter;
use std::ops::Range;

use nn_ffi::{Comm, DType, Shard, Tensor};

use crate::error::Result;
use crate::model::{MoETransformer, PartitionedGradients, Updates};

/// Pieces that travel at a time: one arrives while the next is sent. The backward pass is at another one.
const UNDER_WAY: usize = PartitionedGradients::BUFFERS - 1;

/// Brings what each rank updates of the gradients to it, piece by piece, as a backward pass completes them.
///
/// That of the last micro-batch of a rank's last replica sends them; where ranks share experts out, that of the last round
/// does, also on a guest, so that what a rank waits for never needs what it has not done itself. What is under way at its
/// end is waited for in the update. Of the sums over all replicas not a bit depends on when they are made.
#[derive(Debug)]
pub(super) struct BackwardSums {
    /// Of the same ranks: theirs is for others meanwhile.
    comm: Comm,
    pieces: Vec<Piece>,
    /// What arrives: of a piece and the one after the next in the same.
    rooms: Vec<Tensor>,
    /// The sums that this rank's replicas leave aside, f32 `[left, parameters]`.
    partials: Option<Tensor>,
    replicas: usize,
    /// What sums travel in.
    wire: DType,
}

/// Gradients that are complete at a time.
#[derive(Debug)]
struct Piece {
    /// f32 of one dimension, which has them.
    gradients: Tensor,
    /// Which of it they are, but for those of experts that ranks share out.
    elements: Vec<Range<usize>>,
    /// Which rank updates what of them.
    shards: Vec<Shard>,
    /// What this rank updates, and where it then belongs; nothing where it already lies there.
    kept: Vec<[Tensor; 2]>,
}

impl Piece {
    /// Those with this number of the gradients of a model on a rank.
    fn new(
        number: usize,
        elements: Range<usize>,
        model: &MoETransformer,
        updates: &Updates,
        dense: &[Range<usize>],
        rank: usize,
    ) -> Result<Self> {
        let data = model.gradients()?.data();
        let buffer = model.partitioned().map(|partitioned| partitioned.buffer(number)).transpose()?.flatten();
        let Some(buffer) = buffer else {
            let cut = |one: &Range<usize>| one.start.max(elements.start)..one.end.min(elements.end);
            let elements = dense.iter().map(cut).filter(|part| !part.is_empty()).collect::<Vec<_>>();
            let shards = elements.iter().flat_map(|part| updates.within(part)).collect();
            return Ok(Self { gradients: data.clone(), elements, shards, kept: Vec::new() });
        };
        let first = elements.start;
        let (mut shards, mut kept) = (Vec::new(), Vec::new());
        for Shard { elements: Range { start, end }, rank: owner } in updates.within(&elements) {
            if owner == rank {
                kept.push([buffer.narrow(0, start - first, end - start)?, data.narrow(0, start, end - start)?]);
            }
            shards.push(Shard { elements: start - first..end - first, rank: owner });
        }
        Ok(Self { gradients: buffer, elements: iter::once(0..elements.len()).collect(), shards, kept })
    }
}

impl BackwardSums {
    /// Those of a model's gradients, as far as they are `dense`, and the `partials` that lie aside; makes room for what
    /// arrives.
    pub(super) fn new(
        comm: &Comm,
        model: &MoETransformer,
        updates: &Updates,
        dense: &[Range<usize>],
        partials: Option<Tensor>,
        replicas: usize,
        wire: DType,
    ) -> Result<Self> {
        let comm = comm.part(0, 1, comm.ranks())?;
        let piece = |(number, elements)| Piece::new(number, elements, model, updates, dense, comm.rank());
        let pieces = model.layout().backward_pieces().into_iter().enumerate().map(piece).collect::<Result<Vec<_>>>()?;
        let mut most = 0;
        for Piece { gradients, shards, .. } in &pieces {
            most = most.max(comm.reduce_scatter_room(partials.as_ref(), gradients, replicas, shards, wire)?);
        }
        let room = |_| comm.context().empty(&[most], DType::F32);
        let rooms = (0..UNDER_WAY).map(room).collect::<nn_ffi::Result<_>>()?;
        Ok(Self { comm, pieces, rooms, partials, replicas, wire })
    }

    /// Memory for what arrives.
    pub(super) fn bytes(&self) -> usize {
        self.rooms.iter().map(|room| room.len() * room.dtype().size()).sum()
    }

    /// Bytes that this rank gave the transport for other ranks so far.
    pub(super) fn bytes_sent(&self) -> Result<u64> {
        Ok(self.comm.bytes_sent()?)
    }

    /// The elements of a piece, and the tensor that has them.
    pub(super) fn piece(&self, number: usize) -> (&[Range<usize>], &Tensor) {
        let Piece { elements, gradients, .. } = &self.pieces[number];
        (elements, gradients)
    }

    /// Sends this piece, behind all before it; those before the last one have then ended.
    pub(super) fn send(&self, number: usize) -> Result<()> {
        if let Some(oldest) = number.checked_sub(UNDER_WAY) {
            self.end(oldest)?;
        }
        let (Piece { gradients, shards, .. }, room) = (&self.pieces[number], &self.rooms[number % UNDER_WAY]);
        let partials = self.partials.as_ref();
        Ok(self.comm.reduce_scatter_begin(partials, gradients, self.replicas, shards, self.wire, room)?)
    }

    /// Waits for what is under way when all pieces have been sent: now all gradients that this rank updates are sums over
    /// all replicas.
    pub(super) fn finish(&self) -> Result<()> {
        let count = self.pieces.len();
        (count.saturating_sub(UNDER_WAY)..count).try_for_each(|number| self.end(number))
    }

    fn end(&self, number: usize) -> Result<()> {
        let (Piece { gradients, shards, kept, .. }, room) = (&self.pieces[number], &self.rooms[number % UNDER_WAY]);
        let partials = self.partials.as_ref();
        self.comm.reduce_scatter_end(partials, gradients, self.replicas, shards, self.wire, room)?;
        kept.iter().try_for_each(|[sums, place]| Ok(place.copy_from(sums)?))
    }
}
