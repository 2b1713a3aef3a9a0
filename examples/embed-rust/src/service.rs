//! What lines ask for, and the lines that answer them.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use nn_core::infer::{Canceller, GenerateOptions, Generation, LanguageModel, Sampling};
use serde::{Deserialize, Serialize};

/// Requests that are answered at once.
const MOST_OPEN: usize = 256;
const USUAL_TOKENS: usize = 128;

/// A line of the input: a prompt to continue, or the end of an earlier request.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Request {
    id: String,
    cancel: bool,
    prompt: String,
    max_tokens: Option<usize>,
    temperature: f64,
    top_p: Option<f64>,
    seed: i64,
    stop: Vec<String>,
}

/// A line of the output. The last of a request has a finish or an error.
#[derive(Debug, Default, Serialize)]
struct Answer<'a> {
    id: &'a str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Begun {
    id: String,
    generation: Generation,
}

/// Answers requests, whose texts the model decodes together.
#[derive(Debug)]
pub(crate) struct Service<W> {
    model: LanguageModel,
    open: Mutex<HashMap<String, Canceller>>,
    out: Mutex<W>,
}

impl<W: Write> Service<W> {
    pub(crate) fn new(model: LanguageModel, out: W) -> Self {
        Self { model, open: Mutex::default(), out: Mutex::new(out) }
    }

    /// Does what a line asks for; what it begins is to be answered.
    pub(crate) fn take(&self, line: &str) -> Option<Begun> {
        let asked: Request = match serde_json::from_str(line) {
            Ok(asked) => asked,
            Err(error) => {
                self.fail("", &format!("the line is no request: {error}"));
                return None;
            }
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.cancel {
            // What has ended meanwhile needs no answer.
            if let Some(canceller) = open.get(&asked.id) {
                canceller.cancel();
            }
            return None;
        }
        if open.contains_key(&asked.id) {
            self.fail(&asked.id, "another request of this id is under way");
            return None;
        }
        if open.len() == MOST_OPEN {
            self.fail(&asked.id, &format!("{MOST_OPEN} requests are under way; wait for one of them"));
            return None;
        }
        let Request { id, prompt, max_tokens, temperature, top_p, seed, stop, .. } = asked;
        let options = GenerateOptions {
            max_new_tokens: Some(max_tokens.unwrap_or(USUAL_TOKENS)),
            sampling: Sampling { temperature, top_p, seed, ..Sampling::default() },
            stop,
            ..GenerateOptions::default()
        };
        match self.model.generate(&prompt[..], &options) {
            Ok(generation) => {
                open.insert(id.clone(), generation.canceller());
                Some(Begun { id, generation })
            }
            Err(error) => {
                self.fail(&id, &error.to_string());
                None
            }
        }
    }

    /// Writes what comes of a request.
    pub(crate) fn answer(&self, begun: Begun) {
        let id = &begun.id[..];
        for event in begun.generation {
            let (text, finish, error) = match &event {
                Ok(event) => (&event.text[..], event.finish.map(|finish| finish.name()), None),
                Err(error) => ("", None, Some(error.to_string())),
            };
            let last = finish.is_some() || error.is_some();
            if last {
                // First: who has read the last line may use the id again.
                self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
            }
            if last || !text.is_empty() {
                self.write(&Answer { id, text, finish, error });
            }
            if last {
                return;
            }
        }
    }

    fn fail(&self, id: &str, problem: &str) {
        self.write(&Answer { id, error: Some(problem.to_owned()), ..Answer::default() });
    }

    fn write(&self, answer: &Answer<'_>) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // Who does not read any more wants no answer.
        if serde_json::to_writer(&mut *out, answer).is_ok() {
            let _ = out.write_all(b"\n").and_then(|()| out.flush());
        }
    }
}
