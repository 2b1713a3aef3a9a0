//! Sequences that are decoded together: their state on the device, and the graphs that move all of them on by one token.
//!
//! A row of the batch is one sequence. Rows join and leave between steps; the last one moves to where one left. A graph is
//! captured for each number of rows, when there are so many for the first time, and replayed from then on: capturing costs the
//! host what calling costs, once, and a batch padded to some larger size would cost every step the products of rows that nobody
//! asked for. From step to step only the drawn ids come back; what the host sends is new pages.
//!
//! A step that also gives log-probabilities, or changes logits before tokens are drawn, is another graph. So is one of other
//! adapters, or of other numbers of rows with each: rows with the same adapter are neighbours.
//!
//! A batch may run ahead: as the ids that a step reads are on the device already, it can be started before the host has read
//! them. Then the device never waits for the host, and a row that ends has run one step for nothing. While a row has a mask,
//! which the host makes from the token before, or wants log-probabilities, it does not.

use std::collections::VecDeque;

use nn_ffi::{DType, Device, Graph, Tensor, kernels};

use super::drawing::{Drawing, Kind, RowSampler};
use super::engine::{Engine, Inputs};
use super::low_rank::{Run, runs_of};
use super::paged_cache::CachedSequence;
use super::recent::Recent;
use super::scheduler::RequestId;
use super::scores::{Scores, TokenLogprobs};
use super::transfers::Transfers;
use crate::error::{Error, Result};

/// Graphs that are kept. Without adapters there are as many as numbers of rows, kinds of draws apart; which adapters the rows of
/// a step may have together is without end.
const MOST_GRAPHS: usize = 256;

/// A sequence, whose it is, how its tokens are drawn, and the last one, which has not been run yet.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) owner: RequestId,
    pub(super) sequence: CachedSequence,
    pub(super) drawing: Drawing,
    pub(super) token: i32,
    /// How many of the likeliest tokens come with the log-probability of each that is drawn, if that is wanted.
    pub(super) alternatives: Option<usize>,
    /// Of the last token.
    pub(super) logprobs: Option<TokenLogprobs>,
}

impl Row {
    /// A token was drawn.
    fn take(&mut self, token: i32, logprobs: Option<TokenLogprobs>) {
        (self.token, self.logprobs) = (token, logprobs);
        self.drawing.drawn(token);
    }
}

/// What a graph does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Step {
    rows: usize,
    /// The calls of its draw.
    kind: Kind,
    /// Whether it gives log-probabilities.
    scored: bool,
    /// Which rows have which adapter.
    runs: Vec<Run>,
}

/// A step whose ids were not read: whose the rows are, with their alternatives, and whether it gives log-probabilities.
#[derive(Debug)]
struct UnderWay {
    rows: Vec<(RequestId, Option<usize>)>,
    scored: bool,
}

/// Up to `max_batch` sequences of an engine.
#[derive(Debug)]
pub(super) struct DecodeBatch {
    ahead: bool,
    pub(super) rows: Vec<Row>,
    /// One after the other on the device, so that they travel in one copy: ids, positions, lengths.
    state: Tensor,
    inputs: Inputs,
    moving: Tensor,
    sampler: RowSampler,
    first_sampler: RowSampler,
    /// Once a row wants log-probabilities: their place, and the logits that they are of where drawing changes them.
    scores: Option<(Scores, Tensor)>,
    first_ids: Tensor,
    transfers: Transfers,
    /// At most two.
    under_way: VecDeque<UnderWay>,
    graphs: Recent<Step, Graph>,
    /// Of the sampler, that of the graphs.
    generation: usize,
    /// How far the rotary tables of the graphs reach.
    tables: usize,
    /// Whether the rows on the device are not those of `rows`.
    changed: bool,
}

impl DecodeBatch {
    /// A batch without rows. `ahead` says whether it may run ahead, by default on a GPU. The tokens are the same.
    pub(super) fn new(engine: &Engine, ahead: Option<bool>) -> Result<Self> {
        let (ctx, most) = (engine.ctx(), engine.max_batch());
        let state = ctx.zeros(&[3, most], DType::I32)?;
        let part = |at: usize| state.narrow(0, at, 1)?.view(&[most]);
        let (ids, positions, lengths) = (part(0)?, part(1)?, part(2)?);
        let transfers = Transfers::new(ctx, &ids, ahead.unwrap_or(ctx.device() != Device::Cpu))?;
        let inputs = Inputs { ids, positions, lengths, ..engine.inputs(most, most)? };
        inputs.offsets.copy_from_slice(&(0..=most as i32).collect::<Vec<i32>>())?;
        Ok(Self {
            ahead: matches!(transfers, Transfers::Beside { .. }),
            rows: Vec::new(),
            moving: state.narrow(0, 1, 2)?,
            state,
            inputs,
            sampler: RowSampler::new(ctx, most, engine.config().vocab_size)?,
            first_sampler: RowSampler::new(ctx, most, engine.config().vocab_size)?,
            scores: None,
            generation: 0,
            first_ids: ctx.zeros(&[most], DType::I32)?,
            transfers,
            under_way: VecDeque::new(),
            graphs: Recent::new(MOST_GRAPHS),
            tables: engine.positions(),
            changed: false,
        })
    }

    /// Draws the token after each prompt, from the logits that prefill gave, into the rows.
    pub(super) fn first_tokens(&mut self, engine: &Engine, logits: &Tensor, rows: &mut [Row]) -> Result<()> {
        self.first_sampler.assign(&drawings(rows))?;
        let ids = self.first_ids.narrow(0, 0, rows.len())?;
        let scored = self.scored(engine, rows)?;
        self.draw(&self.first_sampler, logits, &ids, scored)?;
        let alternatives: Vec<Option<usize>> = rows.iter().map(|row| row.alternatives).collect();
        let logprobs = self.read_scores(&alternatives, scored)?;
        for ((row, token), logprobs) in rows.iter_mut().zip(ids.to_vec::<i32>()?).zip(logprobs) {
            row.take(token, logprobs);
        }
        Ok(())
    }

    /// Adds a row after the others, for which the engine's `max_batch` has room.
    pub(super) fn join(&mut self, row: Row) {
        self.rows.push(row);
        self.changed = true;
    }

    /// Takes a row out; the last one moves to its place.
    pub(super) fn leave(&mut self, owner: RequestId) -> Option<Row> {
        let at = self.rows.iter().position(|row| row.owner == owner)?;
        self.changed = true;
        Some(self.rows.swap_remove(at))
    }

    /// The row of a request, once it decodes.
    pub(super) fn row_of(&mut self, owner: RequestId) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.owner == owner)
    }

    /// Runs the last token of each row and draws the next one: gives whose each is with it.
    ///
    /// With `go_on`, a batch that runs ahead starts the step after this one, too: every row has room for its token, but for
    /// what the next tokens say, each is wanted, and none joins before. `Error::Value` without rows.
    pub(super) fn step(&mut self, engine: &mut Engine, go_on: bool) -> Result<Vec<(RequestId, i32)>> {
        if self.rows.is_empty() {
            return Err(Error::value("the batch has no sequences"));
        }
        // A step of rows that all have left since gives nothing.
        loop {
            if self.under_way.is_empty() {
                self.start(engine)?;
            }
            if go_on && self.ahead && self.can_run_ahead(engine) {
                self.start(engine)?;
            }
            let drawn = self.collect(engine)?;
            if !drawn.is_empty() {
                return Ok(drawn);
            }
        }
    }

    /// Forgets what is under way, after a step that failed.
    pub(super) fn abandon(&mut self) {
        while self.under_way.pop_front().is_some() {
            // What has failed with its device arrives no more.
            let _ = self.transfers.ids();
        }
        self.changed = true;
    }

    /// Whether the step after that under way needs nothing but pages: the same rows, none at the context's end or with a mask
    /// for its next token, and rotary tables that reach far enough.
    fn can_run_ahead(&self, engine: &Engine) -> bool {
        let waits = self.sampler.kind.masked || self.rows.iter().any(|row| row.alternatives.is_some());
        if self.changed || self.under_way.len() > 1 || waits {
            return false;
        }
        let (context, positions) = (engine.context(), engine.positions());
        let fits = |row: &Row| row.sequence.length() + 2 <= context && row.sequence.position() + 1 < positions;
        self.rows.iter().all(fits)
    }

    /// Gives the next step of all rows to the device.
    fn start(&mut self, engine: &mut Engine) -> Result<()> {
        let before = self.under_way.len();
        for (at, row) in self.rows.iter_mut().enumerate() {
            if before == 0 {
                self.changed |= engine.cache.make_room(&mut row.sequence);
            }
            if engine.cache.extend(&mut row.sequence, 1 + before)? && !self.changed {
                let pages = row.sequence.pages();
                let place = self.inputs.table.narrow(0, at, 1)?.narrow(1, pages.len() - 1, 1)?;
                place.copy_from_slice(&[pages[pages.len() - 1] as i32])?;
            }
        }
        if self.changed {
            self.send(engine)?;
        } else if self.sampler.kind.masked {
            self.sampler.renew_masks(&drawings(&self.rows))?;
        }
        let last = self.rows.iter().map(|row| row.sequence.position()).max().unwrap_or(0);
        engine.reach(last + before)?;
        if engine.positions() != self.tables || self.sampler.generation != self.generation {
            (self.tables, self.generation) = (engine.positions(), self.sampler.generation);
            self.graphs.clear();
        }
        let scored = self.rows.iter().any(|row| row.alternatives.is_some());
        if scored {
            self.make_scores(engine)?;
        }
        let runs = runs_of(self.rows.iter().map(|row| (row.sequence.adapter(), 1)));
        self.launch(engine, Step { rows: self.rows.len(), kind: self.sampler.kind, scored, runs })?;
        self.transfers.end()?;
        let rows = self.rows.iter().map(|row| (row.owner, row.alternatives)).collect();
        self.under_way.push_back(UnderWay { rows, scored });
        Ok(())
    }

    /// Launches the graph of a step, which is captured where there is none.
    fn launch(&mut self, engine: &mut Engine, step: Step) -> Result<()> {
        if let Some(graph) = self.graphs.find(&step) {
            return Ok(graph.launch()?);
        }
        self.graphs.make_room();
        let graph = self.capture(engine, &step)?;
        graph.launch()?;
        self.graphs.insert(step, graph);
        Ok(())
    }

    /// Reads what the oldest step under way has drawn, for the rows that have not left since.
    fn collect(&mut self, engine: &mut Engine) -> Result<Vec<(RequestId, i32)>> {
        let Some(UnderWay { rows, scored }) = self.under_way.pop_front() else { return Ok(Vec::new()) };
        let tokens = self.transfers.ids()?[..rows.len()].to_vec();
        let alternatives: Vec<Option<usize>> = rows.iter().map(|(_, alternatives)| *alternatives).collect();
        let logprobs = self.read_scores(&alternatives, scored)?;
        let mut drawn = Vec::new();
        for (((owner, _), token), logprobs) in rows.into_iter().zip(tokens).zip(logprobs) {
            if let Some(row) = self.row_of(owner) {
                engine.cache.advance(&mut row.sequence, &[row.token]);
                row.take(token, logprobs);
                drawn.push((owner, token));
            }
        }
        Ok(drawn)
    }

    /// What the last step has given of log-probabilities, of the rows that want some.
    fn read_scores(&self, alternatives: &[Option<usize>], scored: bool) -> Result<Vec<Option<TokenLogprobs>>> {
        let Some((scores, _)) = self.scores.as_ref().filter(|_| scored) else {
            return Ok(vec![None; alternatives.len()]);
        };
        let counts: Vec<usize> = alternatives.iter().map(|count| count.unwrap_or(0)).collect();
        let found = scores.read(&counts)?.into_iter().zip(alternatives);
        Ok(found.map(|(one, wanted)| wanted.is_some().then_some(one)).collect())
    }

    /// Whether a step of these rows gives log-probabilities; then there is a place for them.
    fn scored(&mut self, engine: &Engine, rows: &[Row]) -> Result<bool> {
        let scored = rows.iter().any(|row| row.alternatives.is_some());
        if scored {
            self.make_scores(engine)?;
        }
        Ok(scored)
    }

    fn make_scores(&mut self, engine: &Engine) -> Result<()> {
        if self.scores.is_none() {
            let (ctx, most) = (engine.ctx(), engine.max_batch());
            let given = ctx.zeros(&[most, engine.config().vocab_size], DType::F32)?;
            self.scores = Some((Scores::new(ctx, most)?, given));
        }
        Ok(())
    }

    fn draw(&self, sampler: &RowSampler, logits: &Tensor, ids: &Tensor, scored: bool) -> Result<()> {
        let Some((scores, given)) = self.scores.as_ref().filter(|_| scored) else {
            return sampler.draw(logits, ids);
        };
        if !sampler.kind.adjusts() {
            sampler.draw(logits, ids)?;
            return scores.take(logits, ids);
        }
        let given = given.narrow(0, 0, logits.shape()[0])?;
        given.copy_from(logits)?;
        sampler.draw(logits, ids)?;
        scores.take(&given, ids)
    }

    fn send(&mut self, engine: &Engine) -> Result<()> {
        self.rows.sort_by_key(|row| row.sequence.adapter()); // neighbours stay in their order
        let (rows, most) = (&self.rows, engine.max_batch());
        let mut state = vec![0; 3 * most];
        for (at, row) in rows.iter().enumerate() {
            state[at] = row.token;
            state[most + at] = row.sequence.position() as i32;
            state[2 * most + at] = row.sequence.length() as i32 + 1;
        }
        self.state.copy_from_slice(&state)?;
        let table: Vec<i32> = rows.iter().flat_map(|row| engine.cache.table_row(&row.sequence)).collect();
        self.inputs.table.narrow(0, 0, rows.len())?.copy_from_slice(&table)?;
        self.sampler.assign(&drawings(rows))?;
        self.changed = false;
        Ok(())
    }

    fn capture(&self, engine: &mut Engine, step: &Step) -> Result<Graph> {
        let inputs = self.inputs.first(step.rows, step.rows)?;
        engine.ctx().clone().capture(|| {
            self.draw(&self.sampler, &engine.decode(&inputs, &step.runs)?, &inputs.ids, step.scored)?;
            // All rows, used or not: those of rows that join are set then.
            Ok(kernels::increment(&self.moving, 1)?)
        })
    }
}

/// How the tokens of rows are drawn.
fn drawings(rows: &[Row]) -> Vec<&Drawing> {
    rows.iter().map(|row| &row.drawing).collect()
}
