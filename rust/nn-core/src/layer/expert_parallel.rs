//! Experts that are shared out over ranks: each has some of every layer, and sends the others the rows for theirs.
//!
//! Ranks stand in groups, each of which has all experts; the ranks with the same ones are their owners. A group goes
//! through its micro-batches in rounds, in step, so that a layer's rows are exchanged by all of it at once. A rank that has
//! no micro-batch in a round is a guest: it serves the others with its experts.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nn_ffi::{Comm, DType, ExpertEvent, Tensor, kernels};

use super::expert_products::{Inside, SwiGLU};
use super::sizes;
use crate::error::{Error, Result};

/// Which experts of a model a rank has, and the ranks that it shares them out with.
///
/// `comm` has P ranks, of which X = `ranks` neighbours are a group. Rank r has, of every layer, the experts of its position
/// r mod X: those from position * E / X on.
#[derive(Debug)]
pub struct ExpertParallel {
    comm: Comm,
    ranks: usize,
    experts: usize,
    parts: OnceLock<Parts>,
    round: Mutex<Option<Arc<Round>>>,
}

/// The ranks that have all experts together, and those that have the same ones, where there are several.
#[derive(Debug)]
struct Parts {
    group: Comm,
    owners: Option<Comm>,
}

impl ExpertParallel {
    /// That of a rank of a communicator, in groups of `ranks` that have `experts` in all. `Error::Value` unless `ranks`
    /// divides both the ranks that there are and the experts.
    pub fn new(comm: &Comm, ranks: usize, experts: usize) -> Result<Self> {
        check_expert_parallel(ranks, comm.ranks(), experts)?;
        Ok(Self { comm: comm.clone(), ranks, experts, parts: OnceLock::new(), round: Mutex::new(None) })
    }

    /// Meets the ranks of the group and the owners, who must have been asked whether they mean the same.
    pub(crate) fn join(&self) -> Result<()> {
        if self.parts.get().is_some() {
            return Ok(());
        }
        let all = self.comm.ranks();
        let group = self.comm.part(self.first(), 1, self.ranks)?;
        let owners = (self.ranks < all).then(|| self.comm.part(self.position(), self.ranks, all / self.ranks));
        let parts = Parts { group, owners: owners.transpose()? };
        self.parts.get_or_init(|| parts);
        Ok(())
    }

    fn parts(&self) -> Result<&Parts> {
        self.parts.get().ok_or_else(|| self.refusal())
    }

    /// All ranks.
    pub fn comm(&self) -> &Comm {
        &self.comm
    }

    /// How many ranks share the experts out: those of a group.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Which of its group this rank is.
    pub fn position(&self) -> usize {
        self.comm.rank() % self.ranks
    }

    /// The first rank of the group.
    pub fn first(&self) -> usize {
        self.comm.rank() - self.position()
    }

    /// The ranks that have the same experts as this one; `None` where there are no others.
    pub(crate) fn owners(&self) -> Result<Option<&Comm>> {
        Ok(self.parts()?.owners.as_ref())
    }

    /// Which of the experts of a layer this rank has.
    pub fn own(&self) -> Range<usize> {
        let each = self.experts / self.ranks;
        self.position() * each..(self.position() + 1) * each
    }

    /// Rows of so many tokens, each of which chooses `k` experts, that go to one rank at most; `capacity` is that of an
    /// expert, 0 for no limit.
    pub fn most_rows(&self, k: usize, tokens: usize, capacity: i64) -> usize {
        match usize::try_from(capacity) {
            Ok(capacity @ 1..) => (k * tokens).min(self.own().len().saturating_mul(capacity)),
            _ => k * tokens,
        }
    }

    /// What keeps this rank from doing alone what takes all experts.
    pub fn refusal(&self) -> Error {
        let (Range { start, end }, all) = (self.own(), self.experts);
        let last = end - 1;
        Error::value(format!(
            "this rank holds experts {start} to {last} of {all} alone; save_checkpoint of its trainer writes all"
        ))
    }

    /// Bytes that this rank gave the transport for the exchange of rows and the sums of its experts' gradients so far.
    pub fn bytes_sent(&self) -> Result<u64> {
        let Parts { group, owners } = self.parts()?;
        Ok(group.bytes_sent()? + owners.as_ref().map_or(Ok(0), Comm::bytes_sent)?)
    }

    /// Begins a round: what layers do from here on is part of it. `None` ends the last one.
    pub(crate) fn begin(&self, round: Option<&Arc<Round>>) {
        *self.round.lock().unwrap_or_else(PoisonError::into_inner) = round.cloned();
    }

    /// The round, in which this rank has rows of its own or is a guest.
    fn round(&self, guest: bool) -> Result<Arc<Round>> {
        let round = self.round.lock().unwrap_or_else(PoisonError::into_inner).clone();
        round.filter(|round| round.sources[self.position()] != guest).ok_or_else(|| self.refusal())
    }
}

/// Refuses groups that do not divide the ranks and the experts.
pub(crate) fn check_expert_parallel(expert_parallel: usize, ranks: usize, experts: usize) -> Result<()> {
    if expert_parallel > 1 && experts == 0 {
        return Err(Error::value(format!(
            "expert_parallel is {expert_parallel}; a dense model, whose num_experts is 0, has none to share out"
        )));
    }
    if expert_parallel > 0 && ranks.is_multiple_of(expert_parallel) && experts.is_multiple_of(expert_parallel) {
        return Ok(());
    }
    Err(Error::value(format!(
        "expert_parallel is {expert_parallel}; it must divide the {ranks} ranks and the {experts} experts"
    )))
}

/// What the ranks of a group do together.
#[derive(Debug)]
pub(crate) struct Round {
    /// Rows that a rank sends at most.
    rows: usize,
    /// Which ranks of the group have rows.
    sources: Vec<bool>,
    /// What becomes of the gradients, in order.
    events: Vec<ExpertEvent>,
    /// f32 `[slots, parameters of the own experts]`, layer by layer.
    gradients: Option<Tensor>,
    /// What sums of them are rounded to.
    wire: DType,
}

impl Round {
    /// A round of a step, in a group of `ranks`.
    pub(crate) fn new(rows: usize, ranks: usize, events: &[ExpertEvent], gradients: &Tensor, wire: DType) -> Self {
        let mut sources = vec![false; ranks];
        for event in events {
            if let ExpertEvent::Run { source, .. } = *event {
                sources[source] = true;
            }
        }
        Self { rows, sources, events: events.to_vec(), gradients: Some(gradients.clone()), wire }
    }

    /// What decides the calls that it makes, but for sums: rows, and of each micro-batch whether its gradients are added.
    pub(crate) fn kind(&self) -> (usize, Vec<bool>) {
        let added = self.events.iter().filter_map(|event| match *event {
            ExpertEvent::Run { accumulate, .. } => Some(accumulate),
            _ => None,
        });
        (self.rows, added.collect())
    }

    /// The same round without what becomes of sums, and that.
    pub(crate) fn without_sums(&self) -> (Self, Vec<ExpertEvent>) {
        let (events, sums) = self.events.iter().partition(|event| matches!(event, ExpertEvent::Run { .. }));
        (Self { events, sources: self.sources.clone(), gradients: self.gradients.clone(), ..*self }, sums)
    }

    /// A round without backward.
    pub(crate) fn forward(rows: usize, sources: Vec<bool>) -> Self {
        Self { rows, sources, events: Vec::new(), gradients: None, wire: DType::F32 }
    }

    /// The gradients in a slot of `count` parameters from `first` on.
    fn gradients(&self, slot: usize, first: usize, count: usize) -> Result<Tensor> {
        let missing = || Error::value("this round has no backward");
        let slots = self.gradients.as_ref().ok_or_else(missing)?;
        let [_, own] = sizes("the gradients", slots)?;
        Ok(slots.narrow(0, slot, 1)?.view(&[own])?.narrow(0, first, count)?)
    }
}

/// A layer's exchange of rows between the ranks of a group.
#[derive(Clone, Debug)]
pub struct ExpertExchange {
    parallel: Arc<ExpertParallel>,
    layer: usize,
}

/// What a rank's experts of a layer were sent in a round, and what they make of it.
#[derive(Debug)]
pub struct Served {
    exchange: ExpertExchange,
    round: Arc<Round>,
    /// `[ranks, rows, hidden]`.
    rows: Tensor,
    /// i32 `[ranks, own experts + 1]`.
    offsets: Tensor,
    /// Of each rank, unless that is found again.
    inside: Vec<Option<Inside>>,
    /// Whether rows are, for all of which nobody has waited.
    under_way: bool,
}

/// Rows of this rank, sorted by expert, and the first of each expert; a guest has none.
pub(super) type Rows<'a> = Option<(&'a Tensor, &'a Tensor)>;

impl ExpertExchange {
    /// That of the layer of this number.
    pub fn new(parallel: &Arc<ExpertParallel>, layer: usize) -> Self {
        Self { parallel: Arc::clone(parallel), layer }
    }

    /// Sends rows to the ranks that have their experts; those for `experts`, which this rank has, are on the way.
    pub(super) fn arrive(&self, experts: &SwiGLU, rows: Rows<'_>) -> Result<Served> {
        let round = self.parallel.round(rows.is_none())?;
        let (ctx, weights, ranks) = (self.parallel.comm.context(), &experts.w13.value, round.sources.len());
        let [own, _, hidden] = sizes("w13", weights)?;
        let received = ctx.empty(&[ranks, round.rows, hidden], weights.dtype())?;
        let offsets = ctx.empty(&[ranks, own + 1], DType::I32)?;
        self.group()?.dispatch_begin(rows, &received, &offsets, false)?;
        let inside = round.sources.iter().map(|_| None).collect();
        Ok(Served { exchange: self.clone(), round, rows: received, offsets, inside, under_way: true })
    }

    /// The outputs of the experts for rows of this rank, where it has some, in their place, and those for the rows of all
    /// others. With `keep` what `backward` needs.
    ///
    /// While rows travel this rank's own are multiplied, then those of one rank after the other as they come, whose outputs go
    /// back meanwhile; the last product of the own rows runs while the last of these do.
    pub(super) fn outputs(&self, experts: &SwiGLU, home: Rows<'_>, keep: bool) -> Result<Option<Served>> {
        let mut served = self.arrive(experts, home)?;
        let (group, own, x) = (self.group()?, self.parallel.position(), home.map(|(rows, _)| rows));
        let rows = &served.rows;
        let out = if keep { rows.context().empty(rows.shape(), rows.dtype())? } else { rows.clone() };
        let mut own_inside = None;
        for source in self.sources(&served.round) {
            let offsets = part(&served.offsets, source)?;
            if source == own {
                own_inside = Some(experts.inside(part(&served.rows, source)?, &offsets)?);
                continue;
            }
            group.dispatch_end(&served.rows, source)?;
            let inside = experts.inside(part(&served.rows, source)?, &offsets)?;
            experts.outputs(&inside, &offsets, &part(&out, source)?)?;
            group.collect_begin(&out, x, source)?;
            served.inside[source] = keep.then_some(inside);
        }
        if let Some(inside) = own_inside {
            experts.outputs(&inside, &part(&served.offsets, own)?, &part(&out, own)?)?;
            served.inside[own] = keep.then_some(inside);
        }
        group.collect_end(&out, x)?;
        served.under_way = false;
        Ok(keep.then_some(served))
    }

    fn group(&self) -> Result<&Comm> {
        Ok(&self.parallel.parts()?.group)
    }

    /// The ranks of the group that have rows in a round: this one, where it has, then the others as their rows come.
    fn sources(&self, round: &Round) -> impl Iterator<Item = usize> {
        let (ranks, own) = (round.sources.len(), self.parallel.position());
        let order = (0..ranks).map(move |step| (own + ranks - step) % ranks);
        order.filter(|source| round.sources[*source])
    }

    /// Carries out what becomes, in a round, of sums of the gradients of `experts`.
    pub(super) fn add_up(&self, round: &Round, event: &ExpertEvent, experts: &SwiGLU) -> Result<()> {
        let count = experts.w13.value.len() + experts.w2.value.len();
        let sum = |slot| round.gradients(slot, self.layer * count, count);
        match *event {
            ExpertEvent::Add { slot, other, .. } => Ok(kernels::add(&sum(slot)?, &sum(other)?, &sum(slot)?)?),
            ExpertEvent::Round { slot, .. } => Ok(kernels::round(&sum(slot)?, &sum(slot)?, round.wire)?),
            ExpertEvent::Run { .. } | ExpertEvent::Copy { .. } => Ok(()), // a copy is behind all rounds
        }
    }
}

impl Served {
    /// The gradient of this rank's rows, where it has some, in place of that of its outputs. The gradients of the experts
    /// become part of the round's. What travels does so as in [`ExpertExchange::outputs`].
    pub(super) fn backward(mut self, experts: &SwiGLU, dy: Rows<'_>) -> Result<()> {
        let (exchange, round) = (self.exchange.clone(), Arc::clone(&self.round));
        let (group, own, x) = (exchange.group()?, exchange.parallel.position(), dy.map(|(rows, _)| rows));
        let dout = self.rows.context().empty(self.rows.shape(), self.rows.dtype())?;
        group.dispatch_begin(dy, &dout, &self.offsets, true)?;
        if round.sources[own] {
            self.inner_backward(experts, &dout, own)?;
        }
        if self.under_way {
            group.dispatch_end(&self.rows, (own + 1) % round.sources.len())?; // the last one to come
        }
        let (w13, w2) = (&experts.w13.value, &experts.w2.value);
        let first = exchange.layer * (w13.len() + w2.len());
        for event in &round.events {
            let ExpertEvent::Run { source, slot, accumulate, .. } = *event else {
                exchange.add_up(&round, event, experts)?;
                continue;
            };
            if source != own {
                group.dispatch_end(&dout, source)?;
                self.inner_backward(experts, &dout, source)?;
            }
            let grads = [
                round.gradients(slot, first, w13.len())?.view(w13.shape())?,
                round.gradients(slot, first + w13.len(), w2.len())?.view(w2.shape())?,
            ];
            let (offsets, beta) = (part(&self.offsets, source)?, if accumulate { 1.0 } else { 0.0 });
            if let Some(inside) = self.inside[source].take() {
                experts.outer_backward(&part(&dout, source)?, inside, &offsets, grads.each_ref(), beta)?;
            }
            if source != own {
                group.collect_begin(&self.rows, x, source)?;
            }
        }
        drop(dout);
        Ok(group.collect_end(&self.rows, x)?)
    }

    /// The part of `backward` of the rows of a rank that no sum waits for.
    fn inner_backward(&mut self, experts: &SwiGLU, dout: &Tensor, source: usize) -> Result<()> {
        let (rows, offsets) = (part(&self.rows, source)?, part(&self.offsets, source)?);
        let inside = self.inside[source].take().map_or_else(|| experts.inside(rows, &offsets), Ok)?;
        experts.inner_backward(&part(dout, source)?, &inside, &offsets)?;
        self.inside[source] = Some(inside);
        Ok(())
    }
}

/// What a tensor has of one rank.
fn part(tensor: &Tensor, rank: usize) -> Result<Tensor> {
    Ok(tensor.narrow(0, rank, 1)?.view(&tensor.shape()[1..])?)
}
