//! Requests that come and go while others are decoded.
//!
//! A step admits requests that wait, as far as rows and pages allow, runs the next piece of their prompts, and moves every
//! sequence on by one token. A request is admitted only with a promise of all the pages that it may come to need, so that none
//! has to be thrown out half-way. (Yu et al. 2022, "Orca", section 3: iteration-level scheduling)

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::batch::{DecodeBatch, Row};
use super::constraint::{Constraint, whole_mask};
use super::drawing::Drawing;
use super::engine::{Engine, Part};
use super::events::{Admission, Finish};
use super::paged_cache::{LEAST_COPIED, PAGE, PagedCache, common_prefix};
use super::pooling::Pool;
use super::sampling::Sampling;
use super::scores::{TokenLogprobs, check_alternatives};
use crate::error::{Error, Result};

/// Tokens of a prompt that are run between two steps of sequences which wait for their next token. A short piece keeps them
/// from waiting long; a long one makes better use of the machine, and is taken when no other request waits.
const PIECE_BESIDE_DECODING: usize = 128;

/// A prompt, and how it is continued.
#[derive(Debug, Default)]
pub struct Request {
    /// Its ids.
    pub prompt: Vec<i32>,
    /// Most tokens to draw.
    pub max_new_tokens: usize,
    /// How they are drawn.
    pub sampling: Sampling,
    /// Ids that end it.
    pub end_ids: Vec<i32>,
    /// How many alternatives come with the log-probability of each token, at most 20, if that is wanted.
    pub logprobs: Option<usize>,
    /// The same of the tokens of the prompt, which then is run as a whole: none of it is taken from the cache.
    pub prompt_logprobs: Option<usize>,
    /// Whether the prompt's vector is wanted ([`Engine::embed`]), and no new token: then, too, it is run as a whole.
    pub embed: bool,
    /// Which tokens may be drawn.
    pub constraint: Option<Box<dyn Constraint>>,
    /// The name of one of the engine's adapters.
    pub adapter: Option<String>,
}

impl Request {
    /// Rows of the cache that it may come to need: the last token drawn is never run.
    fn rows(&self) -> usize {
        self.prompt.len() + self.max_new_tokens.max(1) - 1
    }

    /// Whether all of the prompt is run, whatever the cache has: pages hold neither logits nor hidden states.
    fn whole(&self) -> bool {
        self.embed || self.prompt_logprobs.is_some()
    }
}

/// Which request of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(u64);

/// What a scheduler has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Tokens of the prompts that were admitted.
    pub prompt_tokens: usize,
    /// Those of them that were in the cache already.
    pub shared_tokens: usize,
    /// Tokens run in pieces of prompts.
    pub prefill_tokens: usize,
    /// What that took.
    pub prefill_time: Duration,
    /// Tokens drawn in steps of the batch.
    pub decode_tokens: usize,
    /// Steps of the batch.
    pub decode_steps: usize,
    /// What they took.
    pub decode_time: Duration,
    /// Bytes that they read at least.
    pub decode_bytes: usize,
}

/// What a scheduler is doing now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Requests that have a place in the batch.
    pub running: usize,
    /// Requests that wait for one.
    pub waiting: usize,
    /// Pages of the cache that requests hold.
    pub used_pages: usize,
    /// Pages of the cache, each of [`PAGE`] tokens.
    pub pages: usize,
}

/// What has come of a request since this was asked last.
#[derive(Debug, Default)]
pub struct Progress {
    /// The tokens that were drawn.
    pub tokens: Vec<i32>,
    /// Of each, where they were asked for.
    pub logprobs: Vec<Option<TokenLogprobs>>,
    /// Those of the prompt's tokens, once, where they were asked for and it has been run; none for the first token.
    pub prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
    /// The prompt's vector, where it was asked for and the prompt has been run.
    pub embedding: Option<Vec<f32>>,
    /// Why it ended, if it has.
    pub finish: Option<Finish>,
    /// What its constraint failed with, which ended it.
    pub error: Option<Error>,
    /// When it was admitted, and what of its prompt was found in the cache then; told every time.
    pub admission: Option<Admission>,
}

/// A request on its way.
#[derive(Debug)]
struct Entry {
    request: Request,
    /// The number of its adapter.
    adapter: usize,
    drawn: usize,
    /// While it waits.
    drawing: Option<Drawing>,
    /// As far as the prompt has been run, if they are wanted.
    prompt_scores: Vec<Option<TokenLogprobs>>,
    /// Once some of a prompt has been run that is embedded.
    pool: Option<Pool>,
    progress: Progress,
}

/// How long prompts and continuations may be: the most rows of a sequence, and the pages of the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    context: usize,
    pages: usize,
}

impl Limits {
    pub(super) fn of(cache: &PagedCache) -> Self {
        Self { context: cache.context(), pages: cache.num_pages() }
    }

    /// `Error::Value` when a prompt is empty or longer than the context, `Error::CacheFull` when the cache has not as many pages
    /// as its continuation may come to need.
    pub(super) fn check(&self, prompt: usize, max_new_tokens: usize) -> Result<()> {
        let Self { context, pages } = *self;
        if prompt == 0 {
            return Err(Error::value("a prompt must have at least one token; the one that begins a text is enough"));
        }
        if prompt > context {
            return Err(Error::value(format!("the prompt has {prompt} tokens; the context has room for {context}")));
        }
        let length = prompt.saturating_add(max_new_tokens.max(1) - 1);
        if length > context && context < PAGE {
            // There is no whole page to drop.
            return Err(Error::value(format!(
                "the prompt has {prompt} tokens, {length} with the new ones; the context has room for {context}"
            )));
        }
        let needed = length.min(context).div_ceil(PAGE);
        if needed > pages {
            return Err(Error::CacheFull(format!(
                "a prompt of {prompt} tokens with {max_new_tokens} new ones needs {needed} pages of {PAGE} tokens; the cache \
                 has {pages}: write fewer tokens, or make it larger (cache_tokens is {})",
                pages * PAGE
            )));
        }
        Ok(())
    }
}

/// Serves requests on an engine, first come, first served. Its statistics count on from its beginning.
#[derive(Debug)]
pub struct Scheduler {
    engine: Engine,
    batch: DecodeBatch,
    statistics: Statistics,
    requests: HashMap<RequestId, Entry>,
    waiting: VecDeque<RequestId>,
    /// Of the requests whose prompts are under way.
    prefilling: VecDeque<Row>,
    last_id: u64,
}

impl Scheduler {
    /// A scheduler without requests; `ahead` is that of the engine's options.
    ///
    /// # Errors
    ///
    /// As [`nn_ffi::Context::empty`].
    pub fn new(engine: Engine, ahead: Option<bool>) -> Result<Self> {
        let batch = DecodeBatch::new(&engine, ahead)?;
        Ok(Self {
            engine,
            batch,
            statistics: Statistics::default(),
            requests: HashMap::new(),
            waiting: VecDeque::new(),
            prefilling: VecDeque::new(),
            last_id: 0,
        })
    }

    /// The engine. While requests are under way it has their sequences.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The logits after each of the ids; see [`Engine::logits`].
    ///
    /// # Errors
    ///
    /// As that.
    pub fn logits(&mut self, ids: &[i32], adapter: Option<&str>) -> Result<Vec<f32>> {
        self.engine.logits(ids, adapter)
    }

    /// The log-probability of each of the ids after those before it; see [`Engine::logprobs`].
    ///
    /// # Errors
    ///
    /// As that.
    pub fn logprobs(
        &mut self,
        ids: &[i32],
        alternatives: usize,
        adapter: Option<&str>,
    ) -> Result<Vec<Option<TokenLogprobs>>> {
        self.engine.logprobs(ids, alternatives, adapter)
    }

    /// What was done so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// What it is doing now.
    pub fn occupancy(&self) -> Occupancy {
        let cache = self.engine.cache();
        let running = self.prefilling.len() + self.batch.rows.len();
        Occupancy { running, waiting: self.waiting.len(), used_pages: cache.used(), pages: cache.num_pages() }
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.prefilling.is_empty() && self.batch.rows.is_empty()
    }

    /// Puts a request into the queue.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] when the prompt is empty or longer than the context, or is embedded and has new tokens, and for an
    /// adapter that there is not, [`Error::OutOfRange`] for an id outside the vocabulary, [`Error::CacheFull`] when the cache has
    /// not as many pages as the continuation may come to need.
    pub fn add(&mut self, request: Request) -> Result<RequestId> {
        Limits::of(self.engine.cache()).check(request.prompt.len(), request.max_new_tokens)?;
        self.engine.check_ids(&request.prompt)?;
        request.sampling.check()?;
        request.sampling.check_ids(self.engine.config().vocab_size)?;
        check_alternatives("logprobs", request.logprobs)?;
        check_alternatives("prompt_logprobs", request.prompt_logprobs)?;
        check_embedded(&request)?;
        let adapter = self.engine.adapter_number(request.adapter.as_deref())?;
        self.last_id += 1;
        let id = RequestId(self.last_id);
        let none = request.max_new_tokens == 0 && !request.whole();
        let constrained = request.constraint.is_some() && !none;
        let drawing = Drawing::new(request.sampling.clone(), &request.prompt, request.max_new_tokens);
        let progress = Progress { finish: none.then_some(Finish::Length), ..Progress::default() };
        let prompt_scores = request.prompt_logprobs.map(|_| None).into_iter().collect();
        let (drawing, pool) = (Some(drawing), None);
        self.requests.insert(id, Entry { request, adapter, drawn: 0, drawing, prompt_scores, pool, progress });
        if !none {
            self.waiting.push_back(id);
        }
        if constrained {
            self.constrain(id, None);
        }
        Ok(id)
    }

    /// Ends a request now, wherever it is. One that has ended stays as it is.
    pub fn cancel(&mut self, id: RequestId) {
        if self.requests.get(&id).is_some_and(|entry| entry.progress.finish.is_none()) {
            self.end(id, Finish::Cancelled);
        }
    }

    /// What has come of a request since this was asked last; one that has ended is forgotten then.
    pub fn take(&mut self, id: RequestId) -> Progress {
        let Some(entry) = self.requests.get_mut(&id) else { return Progress::default() };
        if entry.progress.finish.is_some() {
            return self.requests.remove(&id).map(|entry| entry.progress).unwrap_or_default();
        }
        let admission = entry.progress.admission;
        std::mem::replace(&mut entry.progress, Progress { admission, ..Progress::default() })
    }

    /// One piece of prompts, if there are any, and one token for every sequence after its prompt.
    ///
    /// # Errors
    ///
    /// [`Error::CacheFull`] when requests wait for pages that none of the others holds; else what the device met. All requests
    /// that are under way have to be cancelled then.
    pub fn step(&mut self) -> Result<()> {
        let pieces = self.next_pieces()?;
        if !pieces.is_empty() {
            self.prefill(&pieces)?;
        }
        if !self.batch.rows.is_empty() {
            self.decode()?;
        }
        Ok(())
    }

    /// Cancels everything after a step that failed.
    pub(super) fn abandon(&mut self) {
        self.batch.abandon();
        let open: Vec<RequestId> = self.requests.keys().copied().collect();
        for id in open {
            self.cancel(id);
        }
    }

    /// The next piece: how many ids of each of the first prompts under way, among them those that can be admitted now.
    fn next_pieces(&mut self) -> Result<Vec<usize>> {
        let whole = self.engine.piece();
        let mut room = if self.batch.rows.is_empty() { whole } else { PIECE_BESIDE_DECODING.min(whole) };
        let mut pieces = Vec::new();
        while room > 0 {
            if pieces.len() == self.prefilling.len() && !self.admit()? {
                break;
            }
            let row = &self.prefilling[pieces.len()];
            let left = self.requests[&row.owner].request.prompt.len() - row.sequence.length();
            pieces.push(left.min(room));
            room -= left.min(room);
        }
        Ok(pieces)
    }

    /// Moves the request that has waited longest to the prompts under way, if there is room for it.
    fn admit(&mut self) -> Result<bool> {
        let under_way = self.prefilling.len() + self.batch.rows.len();
        let Some(id) = self.waiting.front().copied().filter(|_| under_way < self.engine.max_batch()) else {
            return Ok(false);
        };
        let Entry { request, adapter, .. } = &self.requests[&id];
        let known = if request.whole() { &[] } else { &request.prompt[..] };
        if self.comes(known, *adapter) {
            return Ok(false);
        }
        let open: Vec<_> = self.batch.rows.iter().chain(&self.prefilling).map(|row| &row.sequence).collect();
        let sequence = match self.engine.cache.open_beside(known, request.rows(), &open, *adapter) {
            Ok(sequence) => sequence,
            // A request that ends makes room.
            Err(Error::CacheFull(_)) if under_way > 0 => return Ok(false),
            Err(error) => return Err(error),
        };
        self.waiting.pop_front();
        self.statistics.prompt_tokens += request.prompt.len();
        self.statistics.shared_tokens += sequence.shared();
        if let Some(entry) = self.requests.get_mut(&id)
            && let Some(drawing) = entry.drawing.take()
        {
            entry.progress.admission = Some(Admission { at: Instant::now(), shared: sequence.shared() });
            let alternatives = entry.request.logprobs;
            self.prefilling.push_back(Row { owner: id, sequence, drawing, token: -1, alternatives, logprobs: None });
        }
        Ok(true)
    }

    /// Whether a prompt under way has yet to run what `known` begins with, too, and by the same adapter, so that it is better to
    /// wait for it: texts of one prompt run it once.
    fn comes(&self, known: &[i32], adapter: usize) -> bool {
        let Some((_, known)) = known.split_last() else { return false };
        self.prefilling.iter().any(|row| {
            let request = &self.requests[&row.owner].request;
            // Those of more rows keep their pages to themselves.
            row.sequence.adapter() == adapter
                && request.rows() <= self.engine.cache.context()
                && common_prefix(&request.prompt, known) >= row.sequence.length() + LEAST_COPIED
        })
    }

    fn prefill(&mut self, pieces: &[usize]) -> Result<()> {
        let start = Instant::now();
        let requests = &self.requests;
        let mut parts: Vec<Part<'_>> = Vec::new();
        for (row, count) in self.prefilling.iter_mut().zip(pieces) {
            let (request, first) = (&requests[&row.owner].request, row.sequence.length());
            let (prompt, last) = (&request.prompt, first + count);
            let wanted = last == prompt.len() && request.max_new_tokens > 0;
            parts.push(Part { sequence: &mut row.sequence, ids: &prompt[first..last], wanted });
        }
        let logits = self.engine.prefill(&mut parts)?;
        // Whose prompts are whole now are some of the first, in their order.
        let wanted: Vec<bool> = parts.iter().map(|part| part.wanted).collect();
        let run: Vec<(RequestId, usize)> =
            self.prefilling.iter().zip(pieces).map(|(row, count)| (row.owner, row.sequence.length() - count)).collect();
        let (mut done, mut others) = (Vec::new(), VecDeque::new());
        for (at, row) in std::mem::take(&mut self.prefilling).into_iter().enumerate() {
            if wanted.get(at) == Some(&true) {
                done.push(row);
            } else {
                others.push_back(row);
            }
        }
        self.prefilling = others;
        let drawn = logits.map_or(Ok(()), |logits| self.batch.first_tokens(&self.engine, &logits, &mut done));
        let drawn = drawn.and_then(|()| self.score_prompts(&run, pieces));
        let drawn = drawn.and_then(|()| self.embed_prompts(&run, pieces));
        self.statistics.prefill_tokens += pieces.iter().sum::<usize>();
        self.statistics.prefill_time += start.elapsed();
        for row in done {
            let (owner, token) = (row.owner, row.token);
            self.batch.join(row);
            if drawn.is_ok() {
                self.drawn(owner, token);
            }
        }
        let scored = |(id, start): &(RequestId, usize), count: usize| {
            let request = &self.requests.get(id)?.request;
            (request.max_new_tokens == 0 && start + count == request.prompt.len()).then_some(*id)
        };
        let scored: Vec<RequestId> = run.iter().zip(pieces).filter_map(|(one, count)| scored(one, *count)).collect();
        scored.into_iter().for_each(|id| self.end(id, Finish::Length));
        drawn
    }

    /// The log-probabilities of the tokens that follow those which were just run, from `run` on in each prompt, of the requests
    /// that want them.
    fn score_prompts(&mut self, run: &[(RequestId, usize)], pieces: &[usize]) -> Result<()> {
        let mut first = 0;
        for ((id, start), count) in run.iter().zip(pieces) {
            if let Some(entry) = self.requests.get_mut(id)
                && let Some(alternatives) = entry.request.prompt_logprobs
            {
                let prompt = &entry.request.prompt;
                let following = &prompt[start + 1..(start + 1 + count).min(prompt.len())];
                let found = self.engine.scores(first, following, alternatives)?;
                entry.prompt_scores.extend(found.into_iter().map(Some));
                if entry.prompt_scores.len() == prompt.len() {
                    entry.progress.prompt_logprobs = Some(std::mem::take(&mut entry.prompt_scores));
                }
            }
            first += count;
        }
        Ok(())
    }

    /// Adds what was just run, from `run` on in each prompt, to the vectors of the requests that want one.
    fn embed_prompts(&mut self, run: &[(RequestId, usize)], pieces: &[usize]) -> Result<()> {
        let mut first = 0;
        for ((id, start), count) in run.iter().zip(pieces) {
            if let Some(entry) = self.requests.get_mut(id)
                && entry.request.embed
            {
                let pool = entry.pool.take().map_or_else(|| self.engine.pool(), Ok)?;
                self.engine.add_to(&pool, first, *count)?;
                if start + count == entry.request.prompt.len() {
                    entry.progress.embedding = Some(pool.vector()?);
                } else {
                    entry.pool = Some(pool);
                }
            }
            first += count;
        }
        Ok(())
    }

    fn decode(&mut self) -> Result<()> {
        let start = Instant::now();
        let lengths: Vec<usize> = self.batch.rows.iter().map(|row| row.sequence.length() + 1).collect();
        let adapters: Vec<usize> = self.batch.rows.iter().map(|row| row.sequence.adapter()).collect();
        self.statistics.decode_bytes += self.engine.bytes_per_step(&lengths, &adapters);
        // Whether all of them want the token after the next one, too, and keep one another's company until then.
        let more = |row: &Row| {
            let entry = &self.requests[&row.owner];
            entry.drawn + 1 < entry.request.max_new_tokens
        };
        let go_on = self.prefilling.is_empty() && self.batch.rows.iter().all(more);
        let tokens = self.batch.step(&mut self.engine, go_on)?;
        self.statistics.decode_time += start.elapsed();
        self.statistics.decode_steps += 1;
        self.statistics.decode_tokens += tokens.len();
        for (owner, token) in tokens {
            self.drawn(owner, token);
        }
        Ok(())
    }

    fn drawn(&mut self, id: RequestId, token: i32) {
        let Some(entry) = self.requests.get_mut(&id) else { return };
        entry.progress.tokens.push(token);
        entry.progress.logprobs.push(self.batch.row_of(id).and_then(|row| row.logprobs.take()));
        entry.drawn += 1;
        if entry.request.end_ids.contains(&token) {
            self.end(id, Finish::End);
        } else if entry.drawn == entry.request.max_new_tokens {
            self.end(id, Finish::Length);
        } else if entry.request.constraint.is_some() {
            self.constrain(id, Some(token));
        }
    }

    /// Has the constraint of a request say which tokens may be next, after one that was drawn.
    fn constrain(&mut self, id: RequestId, token: Option<i32>) {
        let vocab = self.engine.config().vocab_size;
        let Some(entry) = self.requests.get_mut(&id) else { return };
        let Some(constraint) = &mut entry.request.constraint else { return };
        let accepted = token.map_or(Ok(()), |token| constraint.accept(token));
        match accepted.and_then(|()| constraint.mask()) {
            Ok(mask) => {
                let mask = whole_mask(&mask, vocab);
                let none = mask.iter().all(|word| *word == 0);
                let row = self.batch.row_of(id).map(|row| &mut row.drawing);
                if let Some(drawing) = entry.drawing.as_mut().or(row) {
                    drawing.mask = Some(mask);
                }
                if none {
                    self.end(id, Finish::Stop);
                }
            }
            Err(error) => {
                // Of this request alone.
                entry.progress.error = Some(error);
                self.end(id, Finish::Failed);
            }
        }
    }

    fn end(&mut self, id: RequestId, finish: Finish) {
        if let Some(entry) = self.requests.get_mut(&id) {
            entry.progress.finish = Some(finish);
        }
        self.waiting.retain(|waiting| *waiting != id);
        let at = self.prefilling.iter().position(|row| row.owner == id);
        let row = at.and_then(|at| self.prefilling.remove(at)).or_else(|| self.batch.leave(id));
        if let Some(row) = row {
            self.engine.cache.close(row.sequence);
        }
    }
}

/// Refuses new tokens of a prompt that is embedded.
pub(super) fn check_embedded(request: &Request) -> Result<()> {
    let count = request.max_new_tokens;
    if request.embed && count > 0 {
        return Err(Error::value(format!("max_new_tokens is {count}; where a prompt is embedded it must be 0")));
    }
    Ok(())
}
