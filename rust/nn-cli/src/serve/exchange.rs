//! A request and what became of it, for the log and the metrics.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use serde_json::Value;
use tokio::time::Instant as Clock;

use super::api::{ApiError, cut};
use super::app::App;
use super::log;

/// Who asks, and whether the connection is at work on a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    pub(super) address: Option<IpAddr>,
    pub(super) busy: Arc<AtomicBool>,
    /// Whether an answer has come to its end, until somebody takes note.
    pub(super) ended: Arc<AtomicBool>,
    /// Whether its last request was refused, perhaps before all of its body came.
    pub(super) refused: Arc<AtomicBool>,
}

/// A request. When the last that has to do with it is gone its line is written.
#[derive(Debug)]
pub(super) struct Exchange {
    app: Arc<App>,
    method: String,
    path: String,
    peer: Peer,
    begun: Instant,
    timeout: Duration,
    notes: Mutex<Notes>,
}

/// What becomes of it.
#[derive(Debug, Default)]
struct Notes {
    route: &'static str,
    status: Option<u16>,
    error: Option<&'static str>,
    complete: bool,
    answer: Option<AnswerNotes>,
}

/// What became of the texts of an answer.
#[derive(Debug, Default)]
pub(super) struct AnswerNotes {
    pub(super) id: String,
    pub(super) user: Option<String>,
    pub(super) prompt_tokens: usize,
    pub(super) shared_tokens: usize,
    pub(super) tokens: usize,
    pub(super) queue: Option<Duration>,
    pub(super) first: Option<Duration>,
    pub(super) finishes: Vec<&'static str>,
}

impl Exchange {
    pub(super) fn new(app: Arc<App>, request: &Request, peer: Peer, timeout: Duration) -> Self {
        let method = request.method().as_str().chars().take(32).collect();
        let path = cut(&decoded(request.uri().path()));
        let notes = Mutex::new(Notes { route: "other", ..Notes::default() });
        Self { app, method, path, peer, begun: Instant::now(), timeout, notes }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When its time is over.
    pub(super) fn deadline(&self) -> Clock {
        // A timeout beyond the clock's reach is none.
        let far = Duration::from_secs(86400 * 365 * 30);
        Clock::from_std(self.begun) + self.timeout.min(far)
    }

    /// That its time is over.
    pub(super) fn late(&self) -> ApiError {
        ApiError::new("timeout", &[("seconds", &self.timeout.as_secs_f64())])
    }

    pub(super) fn set_route(&self, route: &'static str) {
        self.notes().route = route;
    }

    pub(super) fn route(&self) -> &'static str {
        self.notes().route
    }

    /// It has a response, the head of which is on its way.
    pub(super) fn answered(&self, response: &Response) {
        self.peer.refused.store(response.status().as_u16() >= 400, Ordering::Relaxed);
        let mut notes = self.notes();
        notes.status = Some(response.status().as_u16());
        notes.error = response.extensions().get::<ApiError>().map(|error| error.code);
    }

    /// An answer ended with an error after its beginning.
    pub(super) fn broke(&self, error: &ApiError) {
        self.notes().error = Some(error.code);
    }

    pub(super) fn set_answer(&self, answer: AnswerNotes) {
        self.notes().answer = Some(answer);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let notes = std::mem::take(self.notes.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.app.metrics().answered(notes.route, notes.status);
        let mut values: Vec<(&str, Value)> = vec![
            ("status", notes.status.into()),
            ("method", self.method.as_str().into()),
            ("path", self.path.as_str().into()),
            ("client", self.peer.address.map(|address| address.to_string()).into()),
            ("seconds", seconds(self.begun.elapsed())),
            ("error", notes.error.into()),
            ("gone", (!notes.complete).then_some(true).into()),
        ];
        if let Some(answer) = notes.answer {
            values.extend([
                ("id", Some(answer.id).filter(|id| !id.is_empty()).into()),
                ("user", answer.user.into()),
                ("prompt_tokens", answer.prompt_tokens.into()),
                ("shared_tokens", answer.shared_tokens.into()),
                ("tokens", answer.tokens.into()),
                ("queue_seconds", answer.queue.map_or(Value::Null, seconds)),
                ("first_seconds", answer.first.map_or(Value::Null, seconds)),
                ("finish", counted(&answer.finishes).into()),
            ]);
        }
        log::record(&values);
    }
}

/// A path without its percent signs, as messages show it.
pub(super) fn decoded(path: &str) -> String {
    let mut parts = path.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// In microseconds.
fn seconds(time: Duration) -> Value {
    (time.as_micros() as f64 / 1e6).into()
}

/// Why texts ended: one word where all have one reason, else how often each was it.
fn counted(reasons: &[&str]) -> String {
    let mut counts = BTreeMap::new();
    for reason in reasons {
        *counts.entry(*reason).or_insert(0) += 1;
    }
    if counts.len() == 1 {
        return reasons[0].to_owned();
    }
    counts.into_iter().map(|(reason, count)| format!("{reason}*{count}")).collect::<Vec<_>>().join(",")
}

/// The body of a response, which tells when it is at its end.
#[derive(Debug)]
pub(super) struct Tracked {
    body: Body,
    exchange: Arc<Exchange>,
}

impl Tracked {
    pub(super) fn new(body: Body, exchange: Arc<Exchange>) -> Self {
        let tracked = Self { body, exchange };
        tracked.look();
        tracked
    }

    fn look(&self) {
        if self.body.is_end_stream() {
            self.exchange.notes().complete = true;
        }
    }
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) {
            self.exchange.notes().complete = true;
        }
        self.look();
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.exchange.peer.busy.store(false, Ordering::Relaxed);
        self.exchange.peer.ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{counted, decoded};

    #[test]
    fn paths_are_shown_as_texts() {
        assert_eq!(
            (decoded("/%E2%82%ac/%2"), decoded("/%zz%+1"), decoded("/a")),
            ("/€/%2".into(), "/%zz%+1".into(), "/a".into())
        );
    }

    #[test]
    fn reasons_are_counted() {
        assert_eq!(
            (counted(&["stop", "stop"]), counted(&["stop", "length", "stop"])),
            ("stop".into(), "length*1,stop*2".into())
        );
    }
}
