//! Gradients of which a rank keeps those alone that it updates: stage 2 of ZeRO.

use std::ops::Range;

use nn_ffi::{Context, DType, Tensor};

use super::parameters::ParameterLayout;
use crate::error::Result;

/// Where a backward pass puts gradients on a rank that runs one micro-batch of an update, and needs those of a layer only until
/// the ranks that update its parameters have them: layers share a few buffers.
///
/// The model's arena has the elements that this rank updates, and the gains', to which layers add during the whole pass. A piece
/// of [`ParameterLayout::backward_pieces`] has its buffer until, [`Self::BUFFERS`] pieces later, another gets it.
/// (Rajbhandari et al. 2020, "ZeRO", section 5.2)
#[derive(Debug)]
pub(crate) struct PartitionedGradients {
    /// All but the gains'.
    pieces: Vec<Range<usize>>,
    /// f32, each with room for the largest piece.
    buffers: Vec<Tensor>,
}

impl PartitionedGradients {
    /// Pieces that are there at a time.
    pub(crate) const BUFFERS: usize = 3;

    /// Whether that is less memory on so many ranks: not for few layers.
    pub(crate) fn saves(layout: &ParameterLayout, ranks: usize) -> bool {
        Self::BUFFERS * largest(&in_buffers(layout)) + layout.size() / ranks < layout.size()
    }

    /// Buffers for the gradients of a layout.
    pub(super) fn new(ctx: &Context, layout: &ParameterLayout) -> Result<Self> {
        let pieces = in_buffers(layout);
        let size = largest(&pieces);
        let buffers = (0..Self::BUFFERS).map(|_| ctx.empty(&[size], DType::F32)).collect::<nn_ffi::Result<_>>()?;
        Ok(Self { pieces, buffers })
    }

    /// Memory of the buffers.
    pub(super) fn bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.len() * buffer.dtype().size()).sum()
    }

    /// The gradients of a piece, f32 of its length; `None` for the gains', which are in the arena.
    pub(crate) fn buffer(&self, number: usize) -> Result<Option<Tensor>> {
        let part = |piece: &Range<usize>| self.part(number, 0, piece.len());
        self.pieces.get(number).map(part).transpose()
    }

    /// Where a backward pass puts the gradients of so many elements of a layout, from `start` on; `None` for gains.
    pub(super) fn in_pass(&self, start: usize, count: usize) -> Result<Option<Tensor>> {
        let found = self.pieces.iter().enumerate().find(|(_, piece)| piece.contains(&start));
        found.map(|(number, piece)| self.part(number, start - piece.start, count)).transpose()
    }

    fn part(&self, number: usize, start: usize, count: usize) -> Result<Tensor> {
        Ok(self.buffers[number % Self::BUFFERS].narrow(0, start, count)?)
    }
}

/// The pieces of a backward pass without the last, which is the gains'.
fn in_buffers(layout: &ParameterLayout) -> Vec<Range<usize>> {
    let mut pieces = layout.backward_pieces();
    pieces.pop();
    pieces
}

fn largest(pieces: &[Range<usize>]) -> usize {
    pieces.iter().map(Range::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use nn_ffi::Machine;

    use super::*;
    use crate::model::MoEConfig;

    #[test]
    fn neighbours_never_share_a_buffer() {
        let ctx = Context::measuring(Machine::Cpu { isa: None, threads: Some(1) }).unwrap();
        let layout = ParameterLayout::new(&MoEConfig::preset("demo").unwrap()).unwrap();
        let gradients = PartitionedGradients::new(&ctx, &layout).unwrap();
        let pieces = layout.backward_pieces();
        let found: Vec<_> = (0..pieces.len()).map(|number| gradients.buffer(number).unwrap()).collect();
        let (gains, found) = found.split_last().unwrap();
        assert!(gains.is_none());
        let found: Vec<_> = found.iter().map(|buffer| buffer.as_ref().unwrap()).collect();
        for (buffer, piece) in found.iter().zip(&pieces) {
            assert_eq!(buffer.shape(), [piece.len()]);
            let last = gradients.in_pass(piece.end - 1, 1).unwrap().unwrap();
            assert_eq!(last.pointer() as usize, buffer.pointer() as usize + 4 * (piece.len() - 1));
        }
        for three in found.windows(3) {
            assert!((1..3).all(|other| three[0].pointer() != three[other].pointer()));
        }
        assert!(gradients.in_pass(layout.num_decayed(), 1).unwrap().is_none());
    }

    #[test]
    fn few_layers_need_no_less() {
        let layout = |layers| {
            let config = MoEConfig { num_layers: layers, ..MoEConfig::preset("demo").unwrap() };
            ParameterLayout::new(&config).unwrap()
        };
        assert!(!PartitionedGradients::saves(&layout(2), 8));
        assert!(PartitionedGradients::saves(&layout(9), 8));
    }
}
