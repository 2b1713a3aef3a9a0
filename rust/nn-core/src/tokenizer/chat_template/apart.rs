//! Templates in processes of their own, with limits of time and memory: the worst that one can do is then to fail.
//!
//! The program itself is started again, with arguments that make it call [`answer_template`] and nothing else: a request,
//! one JSON object, on its standard input, and an answer on its standard output.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use minijinja::Value as Held;
use minijinja::value::Serde;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::json;

use super::{compile, rendered};
use crate::format::{Value, parse_json};

/// Time for a text.
const SECONDS: u64 = 10;
/// Bytes that a process may map.
const MEMORY: u64 = 1 << 29;
/// Bytes of an answer: the longest text, every character escaped.
const LONGEST_ANSWER: u64 = 1 << 26;

static PROGRAM: OnceLock<(PathBuf, Vec<OsString>)> = OnceLock::new();

/// From now on every chat template renders in a process of its own, which `program` becomes with these arguments; it has
/// to call [`answer_template`]. False when it was said before, which then holds.
///
/// A process takes a few milliseconds to start, 512 MiB of addresses and 10 s at most.
pub fn render_templates_apart(program: PathBuf, arguments: Vec<OsString>) -> bool {
    PROGRAM.set((program, arguments)).is_ok()
}

pub(super) fn program() -> Option<&'static (PathBuf, Vec<OsString>)> {
    PROGRAM.get()
}

/// Answers one request of the standard input on the standard output, within the limits of a process that renders a
/// template; see [`render_templates_apart`]. The error is that of input, output or the system.
pub fn answer_template() -> io::Result<()> {
    let most = |limit: u64| Rlimit { current: Some(limit), maximum: Some(limit) };
    setrlimit(Resource::As, most(MEMORY))?;
    setrlimit(Resource::Core, most(0))?;
    setrlimit(Resource::Cpu, most(2 * SECONDS))?; // where the program that asked is gone
    let mut request = Vec::new();
    io::stdin().lock().read_to_end(&mut request)?;
    let answer = match text_of(&request) {
        Ok(text) => json!({ "text": text }),
        Err(problem) => json!({ "problem": problem }),
    };
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &answer)?;
    out.flush()
}

fn text_of(request: &[u8]) -> Result<String, String> {
    let request = parse_json(request).map_err(|problem| format!("gets values that are too much for it ({problem})"))?;
    let entry = |name: &str| request.as_table().and_then(|table| table.get(name));
    let template = entry("template").and_then(Value::as_text).unwrap_or_default();
    let values = entry("values").and_then(Value::as_table).map(|table| Held::from(Serde(table)));
    rendered(&compile(template)?, values.unwrap_or_default())
}

/// The text that a process makes; the error ends a sentence that begins with the template.
pub(super) fn ask(
    (program, arguments): &(PathBuf, Vec<OsString>),
    template: &str,
    values: &BTreeMap<String, Held>,
) -> Result<String, String> {
    let request = serde_json::to_vec(&json_of(template, values)).map_err(|error| format!("fails: {error}"))?;
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot be rendered: {}: {error}", program.display()));
    let mut process = Ended(started?);
    let (Some(mut input), Some(output)) = (process.0.stdin.take(), process.0.stdout.take()) else {
        return Err("cannot be rendered: its process has no input or output".to_owned());
    };
    // Both threads end with the process, whose end is seen to here.
    thread::spawn(move || input.write_all(&request));
    let (told, hears) = mpsc::channel();
    thread::spawn(move || {
        let mut answer = Vec::new();
        let read = output.take(LONGEST_ANSWER).read_to_end(&mut answer);
        told.send(read.map(|_| answer))
    });
    let answer = match hears.recv_timeout(Duration::from_secs(SECONDS)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(format!("cannot be rendered: {error}")),
        Err(_) => return Err(format!("ran for more than {SECONDS} s")),
    };
    let answer: serde_json::Value = serde_json::from_slice(&answer)
        .map_err(|_| "ended its process, perhaps because it ran out of memory".to_owned())?;
    match answer["text"].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(answer["problem"].as_str().unwrap_or_default().to_owned()),
    }
}

/// What a process is asked, with the entries of objects in their order.
fn json_of<'a>(template: &'a str, values: &'a BTreeMap<String, Held>) -> impl serde::Serialize + 'a {
    #[derive(serde::Serialize)]
    struct Request<'a> {
        template: &'a str,
        values: &'a BTreeMap<String, Held>,
    }
    Request { template, values }
}

/// A process that ends when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}
