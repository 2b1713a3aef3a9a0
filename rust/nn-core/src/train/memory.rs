//! What the calls of a training step read and write, for one shape of batch.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::sync::Arc;

use nn_ffi::{DType, ExpertEvent, Tensor, kernels};

use super::data::Batch;
use super::replicas::Replicas;
use crate::error::Result;
use crate::layer::Round;
use crate::model::{ExpertUse, Gradients, MoETransformer, mean};

/// What a step of this shape reads and writes, in memory that stays, so that its calls can be captured and replayed.
///
/// Of several ranks each has the sequences of its own micro-batches; losses and their factors are those of all.
#[derive(Debug)]
pub(super) struct StepMemory {
    /// Sequences that this rank runs, and tokens of each.
    shape: [usize; 2],
    /// Sequences of the batch.
    batch: usize,
    /// Targets of the batch that count.
    tokens: usize,
    /// Those that this rank runs, by their number.
    micro_batches: BTreeMap<usize, MicroBatch>,
    /// Sequences of each micro-batch, i32.
    sizes: Tensor,
    /// 1, f32 `[1]`.
    one: Tensor,
    inputs: Tensor,
    targets: Tensor,
    /// Where the documents of the sequences end; `None` for batches that are none.
    ends: Option<Tensor>,
    loss_factor: Tensor,
    scaled: Option<Scaled>,
    /// Sums of cross-entropies.
    losses: Tensor,
    /// The balancing loss of each micro-batch.
    aux: Tensor,
    /// What is run, in order.
    pieces: Vec<Piece>,
    /// What becomes of sums in rounds where pieces are run without it: the first of each kind, and how many there are.
    sums: Vec<Sum>,
    /// How the last micro-batch used the experts of each layer.
    pub(super) uses: Vec<ExpertUse>,
}

/// What is run: a micro-batch, in a round where ranks share experts out; or a round in which this rank is a guest.
#[derive(Debug)]
struct Piece {
    /// Those of this rank that it stands for, of which the first is run: one, unless only one of each kind is.
    micro_batches: Vec<usize>,
    round: Option<Arc<Round>>,
    /// How many pieces it stands for.
    times: usize,
    /// Whether gradients go to other ranks as its backward pass completes them.
    sends: bool,
}

/// What becomes of a sum in a round, and how often that happens.
type Sum = (Arc<Round>, ExpertEvent, usize);

/// The parts of a step's memory that a micro-batch reads and writes.
#[derive(Debug)]
struct MicroBatch {
    rows: usize,
    inputs: Tensor,
    targets: Tensor,
    ends: Option<Tensor>,
    aux_factor: Tensor,
    losses: Tensor,
    aux: Tensor,
}

/// The factors of both losses times the scale of a step, f32 `[1]`.
#[derive(Debug)]
struct Scaled {
    scale: Tensor,
    loss_factor: Tensor,
    /// One a micro-batch.
    aux_factors: Vec<Tensor>,
}

impl StepMemory {
    /// Memory for steps of `[batch, length]` ids, of documents where it `has_documents`, in micro-batches of at most `micro`
    /// sequences, which belong to `replicas`. With `scale`, f32 `[1]`, the gradients are those of the losses times it. With
    /// `each_kind`, of micro-batches and rounds that make the same calls only the first is run, for a plan.
    pub(super) fn new(
        model: &MoETransformer,
        [batch, length, micro]: [usize; 3],
        has_documents: bool,
        scale: Option<&Tensor>,
        replicas: &Replicas,
        each_kind: bool,
    ) -> Result<Self> {
        let ctx = model.context();
        let sizes: Vec<usize> = (0..batch).step_by(micro).map(|start| micro.min(batch - start)).collect();
        let own = || (0..sizes.len()).filter(|number| replicas.runs(*number));
        let shape = [own().map(|number| sizes[number]).sum(), length];
        let pieces: Vec<usize> = sizes.iter().map(|size| model.loss_pieces(size * length)).collect();
        let counts: Vec<i32> = sizes.iter().map(|size| i32::try_from(*size).unwrap_or(i32::MAX)).collect();
        let (one, counts) = (ctx.tensor(&[1f32], &[1])?, ctx.tensor(&counts, &[sizes.len()])?);
        let (inputs, targets) = (ctx.empty(&shape, DType::I32)?, ctx.empty(&shape, DType::I32)?);
        let ends = has_documents.then(|| ctx.empty(&shape, DType::I32)).transpose()?;
        let aux_factors = ctx.empty(&[sizes.len()], DType::F32)?;
        let scaled = scale.map(|scale| -> Result<_> {
            let aux_factors = ctx.empty(&[sizes.len()], DType::F32)?;
            Ok(Scaled {
                scale: scale.clone(),
                loss_factor: ctx.empty(&[1], DType::F32)?,
                aux_factors: (0..sizes.len()).map(|at| aux_factors.narrow(0, at, 1)).collect::<nn_ffi::Result<_>>()?,
            })
        });
        let scaled = scaled.transpose()?;
        let losses = ctx.empty(&[pieces.iter().sum()], DType::F32)?;
        let aux = ctx.empty(&[sizes.len()], DType::F32)?;
        let (mut start, mut micro_batches) = (0, BTreeMap::new());
        for number in own() {
            let (rows, aux_factor) = (sizes[number], aux_factors.narrow(0, number, 1)?);
            kernels::weighted_mean(&one, Some(&counts.narrow(0, number, 1)?), &aux_factor, batch as i64)?;
            let made = MicroBatch {
                rows,
                inputs: inputs.narrow(0, start, rows)?,
                targets: targets.narrow(0, start, rows)?,
                ends: ends.as_ref().map(|ends| ends.narrow(0, start, rows)).transpose()?,
                aux_factor,
                losses: losses.narrow(0, pieces[..number].iter().sum(), pieces[number])?,
                aux: aux.narrow(0, number, 1)?,
            };
            micro_batches.insert(number, made);
            start += rows;
        }
        let piece = |(own, round): (Option<usize>, _)| Piece {
            micro_batches: Vec::from_iter(own),
            round,
            times: 1,
            sends: false,
        };
        let mut pieces: Vec<Piece> = match replicas.experts() {
            None => replicas.micro_batches(sizes.len()).map(|number| piece((Some(number), None))).collect(),
            Some(experts) => {
                let rounds = experts.rounds(|number| sizes[number] * length);
                rounds.into_iter().map(|(own, round)| piece((own, Some(round)))).collect()
            }
        };
        if let Some(last) = pieces.last_mut() {
            last.sends = replicas.sends();
        }
        let (pieces, sums) =
            if each_kind { of_each_kind(pieces, &micro_batches, replicas) } else { (pieces, Vec::new()) };
        Ok(Self {
            shape,
            batch,
            tokens: 0,
            micro_batches,
            sizes: counts,
            one,
            inputs,
            targets,
            ends,
            loss_factor: ctx.empty(&[1], DType::F32)?,
            scaled,
            losses,
            aux,
            pieces,
            sums,
            uses: Vec::new(),
        })
    }

    /// Whether it is for batches of documents.
    pub(super) fn has_documents(&self) -> bool {
        self.ends.is_some()
    }

    /// Whether it is for batches of this shape, of documents if that is one.
    pub(super) fn fits(&self, batch: &Batch) -> bool {
        self.shape == [batch.rows, batch.length] && self.has_documents() == batch.document_ends.is_some()
    }

    /// Takes a batch of this shape, `tokens` of whose targets count.
    pub(super) fn fill(&mut self, model: &MoETransformer, batch: &Batch, tokens: usize) -> Result<()> {
        self.tokens = tokens;
        self.inputs.copy_from_slice(&batch.inputs)?;
        self.targets.copy_from_slice(&batch.targets)?;
        if let (Some(ends), Some(given)) = (&mut self.ends, &batch.document_ends) {
            ends.copy_from_slice(given)?;
        }
        kernels::weighted_mean(&self.one, None, &self.loss_factor, tokens as i64)?;
        // Others may have run since, of other lengths: what is made once must not be made inside a graph.
        let most = self.micro_batches.values().map(|micro| micro.rows).max().unwrap_or(0);
        model.prepare(most, batch.length)
    }

    /// Mean cross-entropy over the targets of the last batch that count.
    pub(super) fn loss(&self) -> Result<f64> {
        mean(&self.losses, None, self.tokens as u64)
    }

    /// The load-balancing loss of the last batch, the mean over the micro-batches by their tokens.
    pub(super) fn aux_loss(&self) -> Result<f64> {
        mean(&self.aux, Some(&self.sizes), self.batch as u64)
    }

    /// The calls that give the gradients and losses of this rank. Gives how the last micro-batch used the experts.
    pub(super) fn calls(&self, model: &MoETransformer, replicas: &Replicas) -> Result<Vec<ExpertUse>> {
        self.aux.zero()?;
        if replicas.comm().is_some() {
            self.losses.zero()?;
        }
        if let Some(Scaled { scale, loss_factor, aux_factors }) = &self.scaled {
            kernels::mul(&self.loss_factor, scale, loss_factor)?;
            for (number, micro) in &self.micro_batches {
                kernels::mul(&micro.aux_factor, scale, &aux_factors[*number])?;
            }
        }
        let (mut uses, gradients) = (Vec::new(), model.gradients()?.data());
        for piece in &self.pieces {
            uses = self.run(model, replicas, piece)?.unwrap_or(uses);
            for number in &piece.micro_batches {
                replicas.add(*number, self.sizes.len(), gradients)?;
            }
        }
        if let Some(experts) = replicas.experts() {
            experts.begin(None);
        }
        self.sums.iter().try_for_each(|(round, event, _)| model.add_up(round, event))?;
        Ok(uses)
    }

    /// Gives how the experts were used where this rank is no guest.
    fn run(&self, model: &MoETransformer, replicas: &Replicas, piece: &Piece) -> Result<Option<Vec<ExpertUse>>> {
        if let Some(experts) = replicas.experts() {
            experts.begin(piece.round.as_ref());
        }
        let completed = |number| if piece.sends { replicas.send(number) } else { Ok(()) };
        let Some(number) = piece.micro_batches.first() else { return model.serve(completed).map(|()| None) };
        let micro = &self.micro_batches[number];
        let call = Gradients {
            ids: &micro.inputs,
            targets: &micro.targets,
            document_ends: micro.ends.as_ref(),
            loss_factor: self.scaled.as_ref().map_or(&self.loss_factor, |scaled| &scaled.loss_factor),
            aux_factor: self.scaled.as_ref().map_or(&micro.aux_factor, |scaled| &scaled.aux_factors[*number]),
            losses: &micro.losses,
            aux: &micro.aux,
            accumulate: replicas.accumulates(*number),
        };
        model.forward_backward_with(&call, completed).map(Some)
    }

    /// Where one of each kind is run, gives `count` calls of a step, and how many times more than they were made the step
    /// makes them.
    pub(super) fn left_out(
        &self,
        model: &MoETransformer,
        replicas: &Replicas,
        mut count: impl FnMut(usize, &dyn Fn() -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        for piece in &self.pieces {
            count(piece.times - 1, &|| self.run(model, replicas, piece).map(|_| ()))?;
        }
        self.sums.iter().try_for_each(|(round, event, times)| count(times - 1, &|| model.add_up(round, event)))
    }

    /// Tells all ranks the losses of each.
    pub(super) fn share(&self, replicas: &Replicas) -> Result<()> {
        replicas.share(&self.losses)?;
        replicas.share(&self.aux)
    }
}

/// The first piece of each kind, of so many micro-batches in all, which stands for all of it, and, apart, what becomes of
/// sums in rounds. The kind of the last piece, which leaves something behind, stays the last.
fn of_each_kind(
    pieces: Vec<Piece>,
    micro_batches: &BTreeMap<usize, MicroBatch>,
    replicas: &Replicas,
) -> (Vec<Piece>, Vec<Sum>) {
    let (mut found, mut sums) = (Vec::<(_, Piece)>::new(), Vec::<Sum>::new());
    for mut piece in pieces {
        let first = piece.micro_batches.first();
        let own = first.map(|number| (micro_batches[number].rows, replicas.accumulates(*number)));
        let kind = (own, piece.round.as_ref().map(|round| round.kind()), piece.sends);
        if let Some(round) = &mut piece.round {
            let (runs, events) = round.without_sums();
            for event in events {
                match sums.iter_mut().find(|(_, other, _)| discriminant(other) == discriminant(&event)) {
                    Some((_, _, times)) => *times += 1,
                    None => sums.push((Arc::clone(round), event, 1)),
                }
            }
            *round = Arc::new(runs);
        }
        if let Some(place) = found.iter().position(|(other, _)| *other == kind) {
            let (_, mut first) = found.remove(place);
            first.micro_batches.append(&mut piece.micro_batches);
            first.times += 1;
            piece = first;
        }
        found.push((kind, piece));
    }
    (found.into_iter().map(|(_, piece)| piece).collect(), sums)
}
