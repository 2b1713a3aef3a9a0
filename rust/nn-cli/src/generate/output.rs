//! What generation writes: continuations, and figures.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use nn_core::infer::{Generation, LanguageModel};

use crate::failure::Failure;
use crate::terminal::bytes_text;

/// Writes what a model wrote, as it comes: to a terminal without escape sequences, which would be orders to it; to a file or
/// pipe as it is.
pub(crate) fn speak(text: &str) -> io::Result<()> {
    let mut output = io::stdout();
    if output.is_terminal() {
        for letter in text.chars() {
            if letter.is_control() && !matches!(letter, '\n' | '\t') {
                write!(output, "{}", letter.escape_default())?;
            } else {
                write!(output, "{letter}")?;
            }
        }
    } else {
        output.write_all(text.as_bytes())?;
    }
    output.flush()
}

/// Writes the continuations in the order of the prompts, each on its line; the time until the first token.
pub(super) fn write(events: Generation, prompts: usize, ids: bool) -> Result<Duration, Failure> {
    let (start, mut first) = (Instant::now(), None);
    let (mut parts, mut ended) = (vec![String::new(); prompts], vec![false; prompts]);
    let mut now = 0;
    for event in events {
        let event = event?;
        first.get_or_insert_with(|| start.elapsed());
        let part = &mut parts[event.prompt];
        let text = match event.token {
            _ if !ids => event.text,
            Some(token) if part.is_empty() => token.to_string(),
            Some(token) => format!(" {token}"),
            None => String::new(),
        };
        part.push_str(&text);
        ended[event.prompt] = event.finish.is_some();
        if event.prompt == now {
            speak(&text)?;
        }
        while now < prompts && ended[now] {
            now += 1;
            match parts.get(now) {
                Some(next) => speak(&format!("\n---\n{next}"))?,
                None => speak("\n")?,
            }
        }
    }
    Ok(first.unwrap_or_default())
}

/// What it took, on the standard error.
pub(crate) fn write_statistics(model: &LanguageModel, loaded: Duration, first: Duration) -> Result<(), Failure> {
    let (done, weights, cache) = model.statistics()?;
    let rate = |amount: f64, time: Duration| {
        if time.is_zero() { "-".to_owned() } else { format!("{:.1}", amount / time.as_secs_f64()) }
    };
    let (prefill, decode) = (done.prefill_time, done.decode_time);
    let peak = model.ctx().bytes_peak()?;
    let lines = [
        format!("loaded in {:.2} s; first token after {:.3} s", loaded.as_secs_f64(), first.as_secs_f64()),
        format!(
            "prompt: {} tokens, {} of them in the cache; {} run in {:.3} s: {} tokens/s",
            done.prompt_tokens,
            done.shared_tokens,
            done.prefill_tokens,
            prefill.as_secs_f64(),
            rate(done.prefill_tokens as f64, prefill)
        ),
        format!(
            "decode: {} tokens in {} steps, {:.3} s: {} tokens/s, {} GB/s",
            done.decode_tokens,
            done.decode_steps,
            decode.as_secs_f64(),
            rate(done.decode_tokens as f64, decode),
            rate(done.decode_bytes as f64 / 1e9, decode)
        ),
        format!(
            "memory: weights {}, cache {}, all tensors and scratch at most {}",
            bytes_text(weights as u64),
            bytes_text(cache as u64),
            bytes_text(peak as u64)
        ),
    ];
    writeln!(io::stderr(), "{}", lines.join("\n"))?;
    Ok(())
}
