//! Sums of gradients over the ranks that travel while the backward pass goes on.

use std::ops::Range;

use nn_ffi::{Comm, DType, Shard, Tensor};

use crate::error::Result;
use crate::model::{ParameterLayout, Updates};

/// Pieces that travel at a time: one arrives while the next is sent.
const UNDER_WAY: usize = 2;

/// Brings what each rank updates of the gradients to it, piece by piece, as a backward pass completes them.
///
/// That of the last micro-batch of a rank's last replica sends them; what is under way at its end is waited for in the update.
/// Of the sums over all replicas not a bit depends on when they are made.
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

/// Gradients that are complete at a time, and the rank of each.
#[derive(Debug)]
struct Piece {
    elements: Vec<Range<usize>>,
    shards: Vec<Shard>,
}

impl BackwardSums {
    /// Those of gradients f32 `[parameters]` and the `partials` that lie aside; makes room for what arrives.
    pub(super) fn new(
        comm: &Comm,
        layout: &ParameterLayout,
        updates: &Updates,
        partials: Option<Tensor>,
        gradients: &Tensor,
        replicas: usize,
        wire: DType,
    ) -> Result<Self> {
        let comm = comm.part(0, 1, comm.ranks())?;
        let piece = |elements: Vec<Range<usize>>| {
            let shards = elements.iter().flat_map(|range| updates.within(range)).collect();
            Piece { elements, shards }
        };
        let pieces: Vec<_> = layout.backward_pieces().into_iter().map(piece).collect();
        let mut most = 0;
        for Piece { shards, .. } in &pieces {
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

    /// The elements of a piece.
    pub(super) fn elements(&self, number: usize) -> &[Range<usize>] {
        &self.pieces[number].elements
    }

    /// Sends this piece, behind all before it; those before the last one have then ended.
    pub(super) fn send(&self, number: usize, gradients: &Tensor) -> Result<()> {
        if let Some(oldest) = number.checked_sub(UNDER_WAY) {
            self.end(oldest, gradients)?;
        }
        let (shards, room) = (&self.pieces[number].shards, &self.rooms[number % UNDER_WAY]);
        let partials = self.partials.as_ref();
        Ok(self.comm.reduce_scatter_begin(partials, gradients, self.replicas, shards, self.wire, room)?)
    }

    /// Waits for what is under way when all pieces have been sent: now all gradients that this rank updates are sums over
    /// all replicas.
    pub(super) fn finish(&self, gradients: &Tensor) -> Result<()> {
        let count = self.pieces.len();
        (count.saturating_sub(UNDER_WAY)..count).try_for_each(|number| self.end(number, gradients))
    }

    fn end(&self, number: usize, gradients: &Tensor) -> Result<()> {
        let (shards, room) = (&self.pieces[number].shards, &self.rooms[number % UNDER_WAY]);
        let partials = self.partials.as_ref();
        Ok(self.comm.reduce_scatter_end(partials, gradients, self.replicas, shards, self.wire, room)?)
    }
}
