//! Sequences that are decoded together: their state on the device, and the graphs that move all of them on by one token.
//!
//! A row of the batch is one sequence. Rows join and leave between steps; the last one moves to where one left. A graph is
//! captured for each number of rows, when there are so many for the first time, and replayed from then on: capturing costs the
//! host what calling costs, once, and a batch padded to some larger size would cost every step the products of rows that nobody
//! asked for. From step to step only the drawn ids come back; what the host sends is new pages.
//!
//! A batch may run ahead: as the ids that a step reads are on the device already, it can be started before the host has read
//! them. Then the device never waits for the host, and a row that ends has run one step for nothing.

use std::collections::{HashMap, VecDeque};

use nn_ffi::{DType, Device, Graph, Tensor, kernels};

use super::engine::{Engine, Inputs};
use super::paged_cache::CachedSequence;
use super::sampling::RowSampler;
use super::scheduler::RequestId;
use super::transfers::Transfers;
use crate::error::{Error, Result};
use crate::generate::Sampling;

/// A sequence, whose it is, how its tokens are drawn, the last one, which has not been run yet, and how many were drawn.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) owner: RequestId,
    pub(super) sequence: CachedSequence,
    pub(super) sampling: Sampling,
    pub(super) token: i32,
    pub(super) draws: i32,
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
    first_ids: Tensor,
    transfers: Transfers,
    /// Whose the rows are of steps whose ids were not read, at most two.
    under_way: VecDeque<Vec<RequestId>>,
    graphs: HashMap<(usize, bool), Graph>,
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
            sampler: RowSampler::new(ctx, most)?,
            first_sampler: RowSampler::new(ctx, most)?,
            first_ids: ctx.zeros(&[most], DType::I32)?,
            transfers,
            under_way: VecDeque::new(),
            graphs: HashMap::new(),
            tables: engine.positions(),
            changed: false,
        })
    }

    /// Draws the token after each prompt, from the logits that prefill gave, into the rows.
    pub(super) fn first_tokens(&mut self, logits: &Tensor, rows: &mut [Row]) -> Result<()> {
        self.first_sampler.assign(&options(rows))?;
        let ids = self.first_ids.narrow(0, 0, rows.len())?;
        self.first_sampler.draw(logits, &ids)?;
        for (row, token) in rows.iter_mut().zip(ids.to_vec::<i32>()?) {
            row.token = token;
            row.draws += 1;
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

    /// Whether the step after that under way needs nothing but pages: the same rows, none at the context's end, and rotary
    /// tables that reach far enough.
    fn can_run_ahead(&self, engine: &Engine) -> bool {
        if self.changed || self.under_way.len() > 1 {
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
        }
        let last = self.rows.iter().map(|row| row.sequence.position()).max().unwrap_or(0);
        engine.reach(last + before)?;
        if engine.positions() != self.tables {
            self.tables = engine.positions();
            self.graphs.clear();
        }
        let key = (self.rows.len(), self.sampler.greedy());
        if !self.graphs.contains_key(&key) {
            let graph = self.capture(engine)?;
            self.graphs.insert(key, graph);
        }
        self.graphs[&key].launch()?;
        self.transfers.end()?;
        self.under_way.push_back(self.rows.iter().map(|row| row.owner).collect());
        Ok(())
    }

    /// Reads what the oldest step under way has drawn, for the rows that have not left since.
    fn collect(&mut self, engine: &mut Engine) -> Result<Vec<(RequestId, i32)>> {
        let owners = self.under_way.pop_front().unwrap_or_default();
        let mut drawn = Vec::new();
        for (owner, token) in owners.into_iter().zip(self.transfers.ids()?) {
            if let Some(row) = self.rows.iter_mut().find(|row| row.owner == owner) {
                engine.cache.advance(&mut row.sequence, &[row.token]);
                row.token = *token;
                row.draws += 1;
                drawn.push((owner, *token));
            }
        }
        Ok(drawn)
    }

    fn send(&mut self, engine: &Engine) -> Result<()> {
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
        self.sampler.assign(&options(rows))?;
        self.changed = false;
        Ok(())
    }

    fn capture(&self, engine: &Engine) -> Result<Graph> {
        let rows = self.rows.len();
        let inputs = self.inputs.first(rows, rows)?;
        engine.ctx().capture(|| {
            self.sampler.draw(&engine.decode(&inputs)?, &inputs.ids)?;
            // All rows, used or not: those of rows that join are set then.
            Ok(kernels::increment(&self.moving, 1)?)
        })
    }
}

/// How the tokens of rows are drawn, and how many draws each has had.
fn options(rows: &[Row]) -> Vec<(Sampling, i32)> {
    rows.iter().map(|row| (row.sampling, row.draws)).collect()
}
