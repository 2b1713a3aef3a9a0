//! What comes of prompts: events, one after the other, for whoever waits by blocking or asynchronously.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

use futures_core::Stream;
use futures_core::stream::FusedStream;

use super::language_model::{LanguageModel, ended};
use super::scores::TokenLogprobs;
use crate::error::Result;

/// Why a continuation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended the text: the token is not part of it.
    End,
    /// A stop string came up, and the text ends before it; or its constraint allows no token more.
    Stop,
    /// As many tokens as were asked for.
    Length,
    /// Somebody cancelled it.
    Cancelled,
    /// Its constraint failed.
    Failed,
}

impl Finish {
    /// In one word: "end", "stop", "length", "cancelled" or "failed".
    pub fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// One token of one prompt's continuation.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Which prompt it belongs to, from 0.
    pub prompt: usize,
    /// Its id; `None` of a last event without a token.
    pub token: Option<i32>,
    /// What it adds to the final text: a character that more tokens complete, or words that may be the beginning of a stop
    /// string, come with a later event.
    pub text: String,
    /// Why this is the prompt's last event, if it is.
    pub finish: Option<Finish>,
    /// The token's log-probability and those of alternatives, where they were asked for.
    pub logprobs: Option<TokenLogprobs>,
    /// In the first event of a prompt: those of the prompt's tokens, where they were asked for; none for the first one.
    pub prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
    /// In the one event of a prompt that is embedded: its vector, unless it was cancelled.
    pub embedding: Option<Vec<f32>>,
}

/// When a prompt left the queue, and how many of its tokens the cache had then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// When it got a place in the batch.
    pub at: Instant,
    /// Tokens of the prompt that were in the cache.
    pub shared: usize,
}

/// What a generation's two sides share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Result<Event>>,
    /// Of each prompt that has left the queue.
    admissions: BTreeMap<usize, Admission>,
    /// Whether no more events come.
    ended: bool,
    /// Whether all prompts are to end before their next tokens.
    cancelled: bool,
    waker: Option<Waker>,
}

impl Shared {
    /// Nothing panics while it is held.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel(&self) {
        self.lock().cancelled = true;
    }
}

/// The side that makes the events. When it is gone no more come.
#[derive(Debug)]
pub(super) struct Outbox(Arc<Shared>);

impl Outbox {
    /// Both sides of a generation.
    pub(super) fn pair(model: &LanguageModel) -> (Self, Generation) {
        let shared = Arc::new(Shared::default());
        (Self(Arc::clone(&shared)), Generation { shared, _model: model.clone() })
    }

    pub(super) fn send(&self, event: Result<Event>) {
        self.update(|state| state.events.push_back(event));
    }

    /// Tells that a prompt has left the queue; once is enough.
    pub(super) fn admit(&self, prompt: usize, admission: Admission) {
        self.0.lock().admissions.insert(prompt, admission);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.0.lock().cancelled
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        self.0.arrived.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let panicked = thread::panicking();
        self.update(|state| {
            state.events.extend(panicked.then(|| Err(ended())));
            state.ended = true;
        });
    }
}

/// What comes of some prompts: an iterator that waits for each event, or with [`into_stream`](Self::into_stream) a stream.
/// Dropping it ends what was not generated yet.
#[derive(Debug)]
#[must_use = "dropping it ends the generation"]
pub struct Generation {
    shared: Arc<Shared>,
    /// The engine runs as long as somebody has a handle.
    _model: LanguageModel,
}

impl Generation {
    /// Ends all prompts before their next tokens, from whatever thread: each has a last event that says so.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    /// The same for somebody else, such as a signal handler's thread.
    pub fn canceller(&self) -> Canceller {
        Canceller(Arc::clone(&self.shared))
    }

    /// When a prompt left the queue, if it has; which one as in [`Event::prompt`].
    pub fn admission(&self, prompt: usize) -> Option<Admission> {
        self.shared.lock().admissions.get(&prompt).copied()
    }

    /// The events as a stream, for asynchronous programs. It needs no runtime of its own.
    pub fn into_stream(self) -> EventStream {
        EventStream(self)
    }
}

impl Iterator for Generation {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut state = self.shared.lock();
        loop {
            if let Some(event) = state.events.pop_front() {
                return Some(event);
            }
            if state.ended {
                return None;
            }
            state = self.shared.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl std::iter::FusedIterator for Generation {}

impl Drop for Generation {
    fn drop(&mut self) {
        self.shared.cancel();
    }
}

/// Ends a generation before the next tokens of its prompts.
#[derive(Clone, Debug)]
pub struct Canceller(Arc<Shared>);

impl Canceller {
    /// Does so. Twice is fine, as is after its end.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

/// The events of a [`Generation`] as a stream.
#[derive(Debug)]
#[must_use = "dropping it ends the generation"]
pub struct EventStream(Generation);

impl EventStream {
    /// As [`Generation::canceller`].
    pub fn canceller(&self) -> Canceller {
        self.0.canceller()
    }

    /// As [`Generation::admission`].
    pub fn admission(&self, prompt: usize) -> Option<Admission> {
        self.0.admission(prompt)
    }
}

impl Stream for EventStream {
    type Item = Result<Event>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.0.shared.lock();
        match state.events.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None if state.ended => Poll::Ready(None),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl FusedStream for EventStream {
    fn is_terminated(&self) -> bool {
        let state = self.0.shared.lock();
        state.ended && state.events.is_empty()
    }
}
