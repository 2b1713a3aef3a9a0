//! The texts of a request on their way: from their submission to the last byte of the answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use hyper::body::{Body as HttpBody, Frame};
use nn_core::Error;
use nn_core::infer::{Event, EventStream, Finish, Prompt};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;

use super::answers::{Asked, Reply, Writer, Writing};
use super::api::ApiError;
use super::app::{App, Stage};
use super::embeddings::VectorWriter;
use super::exchange::{AnswerNotes, Exchange};
use super::log;
use super::responses::ResponseWriter;
use super::wire::DONE;

/// Parts of an answer that may wait for its client.
const AHEAD: usize = 8;

/// A place among the texts that run and wait, free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<App>);

impl Place {
    pub(super) fn new(app: Arc<App>) -> Self {
        Self(app)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A text that was submitted. Dropping it ends it before the next step.
#[derive(Debug)]
struct Live {
    events: EventStream,
    place: Option<Place>,
    submitted: Instant,
    first: Option<Instant>,
    last: Option<Instant>,
    finish: Option<Finish>,
    /// Whether it must obey something, which may fail.
    constrained: bool,
}

impl Live {
    /// Notes what an event tells.
    fn note(&mut self, app: &App, event: &Event) {
        let now = Instant::now();
        if event.token.is_some() {
            match self.last.replace(now) {
                Some(last) => app.metrics().next_token(now - last),
                None => {
                    self.first = Some(now);
                    app.metrics().first_token(now - self.submitted);
                }
            }
        }
        if let Some(finish) = event.finish {
            self.end(app, finish);
        }
    }

    fn end(&mut self, app: &App, finish: Finish) {
        self.finish = Some(finish);
        self.place = None;
        app.metrics().ended(finish.name(), self.submitted.elapsed());
    }
}

/// The texts of a request and what is written of them.
#[derive(Debug)]
pub(super) struct Answer {
    app: Arc<App>,
    exchange: Arc<Exchange>,
    writer: Box<dyn Writing>,
    texts: Vec<Live>,
    stream: bool,
    user: Option<String>,
    prompt_tokens: usize,
    stage: watch::Receiver<Stage>,
}

impl Answer {
    /// Hands texts to the engine, each in its place.
    pub(super) fn submit(
        app: &Arc<App>,
        asked: Asked,
        places: Vec<Place>,
        exchange: Arc<Exchange>,
        id: u128,
    ) -> Result<Self, ApiError> {
        let name = &asked.model;
        let writer: Box<dyn Writing> = match &asked.reply {
            Reply::Response(repeated) => {
                let calling = asked.calling.clone();
                Box::new(ResponseWriter::new(repeated.as_ref().clone(), calling, name, asked.prompt_tokens, id))
            }
            Reply::Completions => Box::new(Writer::new(&asked, id)),
            Reply::Vectors(encoding) => Box::new(VectorWriter::new(*encoding, name, asked.prompt_tokens)),
        };
        let Asked { stream, user, prompt_tokens, .. } = asked;
        let (app, stage) = (Arc::clone(app), app.stage());
        let mut answer = Self { app, exchange, writer, texts: Vec::new(), stream, user, prompt_tokens, stage };
        for (text, place) in asked.texts.into_iter().zip(places) {
            let submitted = Instant::now();
            let (model, prompt) = (answer.app.model(), Prompt::Ids(text.prompt));
            let constrained = text.constraint.is_some();
            let begun = match text.constraint {
                None => model.generate(prompt, &text.options),
                Some(constraint) => model.generate_constrained(prompt, &text.options, Box::new(constraint)),
            };
            let events = begun.map_err(|error| unexpected(&error))?.into_stream();
            let (place, first, last, finish) = (Some(place), None, None, None);
            answer.texts.push(Live { events, place, submitted, first, last, finish, constrained });
        }
        Ok(answer)
    }

    /// The response: all of it, or what begins it, the rest of which comes as the engine writes it.
    pub(super) async fn respond(mut self) -> Result<Response, ApiError> {
        if !self.stream {
            let whole = self.whole().await?;
            return Ok(([(CONTENT_TYPE, "application/json")], whole).into_response());
        }
        let (parts, mut taken) = mpsc::channel(AHEAD);
        tokio::spawn(self.run(parts));
        match taken.recv().await {
            Some(Ok(first)) => {
                let head = [(CONTENT_TYPE, "text/event-stream; charset=utf-8"), (CACHE_CONTROL, "no-cache")];
                Ok((head, Body::new(Parts { first: Some(first), taken })).into_response())
            }
            Some(Err(error)) => Err(error),
            None => Err(ApiError::new("internal_error", &[])),
        }
    }

    async fn whole(&mut self) -> Result<String, ApiError> {
        let mut texts = Vec::new();
        for index in 0..self.texts.len() {
            let mut events = Vec::new();
            while self.texts[index].finish.is_none() {
                events.push(self.next(index).await?);
            }
            texts.push(events);
        }
        self.writer.whole(texts, self.app.names())
    }

    /// Writes events until all texts have ended or the client leaves.
    async fn run(mut self, parts: mpsc::Sender<Result<String, ApiError>>) {
        let gone = parts.clone();
        tokio::select! {
            biased;
            () = gone.closed() => {}
            () = self.write(&parts) => {}
        }
    }

    async fn write(&mut self, parts: &mpsc::Sender<Result<String, ApiError>>) {
        let mut begun = false;
        while self.texts.iter().any(|text| text.finish.is_none()) {
            for index in 0..self.texts.len() {
                if self.texts[index].finish.is_some() {
                    continue;
                }
                let part = match self.next(index).await {
                    Ok(event) => self.writer.parts(index, event, self.app.names()),
                    Err(error) => {
                        self.give_up(); // at once: a client may take its time to read why
                        if begun {
                            self.exchange.broke(&error);
                            let _ = parts.send(Ok(self.writer.failure(&error))).await;
                        } else {
                            let _ = parts.send(Err(error)).await;
                        }
                        return;
                    }
                };
                if !part.is_empty() {
                    begun = true;
                    // Whether somebody takes it is looked at beside this.
                    let _ = parts.send(Ok(part)).await;
                }
            }
        }
        let _ = parts.send(Ok(self.writer.counts() + DONE)).await;
    }

    /// Ends what is left of the texts.
    fn give_up(&mut self) {
        for text in self.texts.iter_mut().filter(|text| text.finish.is_none()) {
            text.events.canceller().cancel();
            text.place = None;
        }
    }

    /// The next event of a text.
    async fn next(&mut self, index: usize) -> Result<Event, ApiError> {
        let text = &mut self.texts[index];
        let came = tokio::select! {
            biased;
            () = cut(&mut self.stage) => return Err(ApiError::new("draining", &[])),
            () = sleep_until(self.exchange.deadline()) => return Err(self.exchange.late()),
            came = poll_fn(|context| Pin::new(&mut text.events).poll_next(context)) => came,
        };
        match came {
            Some(Ok(event)) => {
                text.note(&self.app, &event);
                Ok(event)
            }
            Some(Err(error @ Error::Step(_))) => Err(self.app.fail(error)),
            Some(Err(error)) => {
                text.end(&self.app, Finish::Failed);
                Err(if text.constrained { too_costly(&error) } else { unexpected(&error) })
            }
            None => Err(self.app.fail(Error::value("the engine's thread has ended"))),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        for text in self.texts.iter().filter(|text| text.finish.is_none()) {
            self.app.metrics().ended(Finish::Cancelled.name(), text.submitted.elapsed());
        }
        let admitted = || self.texts.iter().filter_map(|text| Some((text, text.events.admission(0)?)));
        let first: Option<Duration> = self.texts.iter().filter_map(|text| Some(text.first? - text.submitted)).min();
        self.exchange.set_answer(AnswerNotes {
            id: self.writer.id().to_owned(),
            user: self.user.take(),
            prompt_tokens: self.prompt_tokens,
            shared_tokens: admitted().map(|(_, admission)| admission.shared).sum(),
            tokens: self.writer.tokens(),
            queue: admitted().map(|(text, admission)| admission.at - text.submitted).min(),
            first,
            finishes: self.texts.iter().map(|text| text.finish.unwrap_or(Finish::Cancelled).name()).collect(),
        });
    }
}

/// Waits until all that runs is to end.
async fn cut(stage: &mut watch::Receiver<Stage>) {
    // The sender lives as long as the server.
    let _ = stage.wait_for(|stage| *stage == Stage::Cut).await;
}

/// That a text cannot go on, since a limit of llguidance for one step is reached.
fn too_costly(error: &Error) -> ApiError {
    log::message("warning", &format!("a text ended: {error}"));
    ApiError::new("schema_too_costly", &[])
}

/// What the engine refuses though it was checked.
fn unexpected(error: &Error) -> ApiError {
    log::message("error", &format!("a request failed: {error}"));
    ApiError::new("internal_error", &[])
}

/// The parts of a stream as a body.
struct Parts {
    first: Option<String>,
    taken: mpsc::Receiver<Result<String, ApiError>>,
}

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = ApiError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ApiError>>> {
        let part = match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.taken.poll_recv(context),
        };
        part.map(|part| part.map(|part| part.map(|text| Frame::data(text.into()))))
    }
}
