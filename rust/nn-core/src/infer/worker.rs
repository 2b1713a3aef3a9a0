//! The thread that runs an engine for everybody who has a handle of its model.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use super::events::{Event, Finish, Outbox};
use super::scheduler::{Occupancy, Progress, Request, RequestId, Scheduler, Statistics};
use super::scores::TokenLogprobs;
use super::text::{StopStrings, Text};
use crate::error::{Error, Result};
use crate::tokenizer::TextTokenizer;

/// What a handle asks for.
#[derive(Debug)]
pub(super) enum Command {
    /// Continue prompts, all of which the scheduler takes.
    Generate(Vec<(Request, StopStrings)>, Outbox),
    /// The log-probability of each of the ids after those before it, with so many alternatives, by an adapter of this name.
    Logprobs(Vec<i32>, usize, Option<String>, Sender<Result<Vec<Option<TokenLogprobs>>>>),
    /// The logits after each of the ids, by an adapter of this name.
    Logits(Vec<i32>, Option<String>, Sender<Result<Vec<f32>>>),
    /// What was done so far, and bytes of weights and cache.
    Statistics(Sender<(Statistics, usize, usize)>),
    /// What is under way now.
    Occupancy(Sender<Occupancy>),
}

/// A generation under way: its prompts that have not ended.
struct Open {
    outbox: Outbox,
    prompts: Vec<(usize, RequestId, Text)>,
}

/// Does what comes, as long as there is somebody to ask. Between two steps it looks for new requests and for those that were
/// cancelled.
pub(super) fn run(mut scheduler: Scheduler, tokenizer: Option<&Arc<TextTokenizer>>, commands: &Receiver<Command>) {
    let mut open: Vec<Open> = Vec::new();
    loop {
        if open.is_empty() {
            let Ok(command) = commands.recv() else { return };
            open.extend(take(&mut scheduler, tokenizer, command));
        }
        while let Ok(command) = commands.try_recv() {
            open.extend(take(&mut scheduler, tokenizer, command));
        }
        for generation in open.iter().filter(|generation| generation.outbox.is_cancelled()) {
            generation.prompts.iter().for_each(|(_, id, _)| scheduler.cancel(*id));
        }
        if !scheduler.is_idle()
            && let Err(error) = scheduler.step()
        {
            scheduler.abandon();
            let error = Arc::new(error);
            for generation in open.drain(..) {
                generation.outbox.send(Err(Error::Step(Arc::clone(&error))));
                generation.prompts.iter().for_each(|(_, id, _)| drop(scheduler.take(*id)));
            }
        }
        open.retain_mut(|generation| {
            generation.deliver(&mut scheduler);
            !generation.prompts.is_empty()
        });
    }
}

/// Does what was asked for; a generation goes on for longer.
fn take(scheduler: &mut Scheduler, tokenizer: Option<&Arc<TextTokenizer>>, command: Command) -> Option<Open> {
    match command {
        Command::Generate(requests, outbox) => {
            let mut generation = Open { outbox, prompts: Vec::new() };
            for (number, (request, stops)) in requests.into_iter().enumerate() {
                let begun = Text::new(tokenizer, stops).and_then(|text| Ok((scheduler.add(request)?, text)));
                match begun {
                    Ok((id, text)) => generation.prompts.push((number, id, text)),
                    Err(error) => {
                        generation.prompts.iter().for_each(|(_, id, _)| scheduler.cancel(*id));
                        generation.outbox.send(Err(error));
                        return None;
                    }
                }
            }
            return Some(generation);
        }
        // Who does not wait for an answer any more needs none.
        Command::Logprobs(ids, alternatives, adapter, reply) => {
            let _ = reply.send(scheduler.logprobs(&ids, alternatives, adapter.as_deref()));
        }
        Command::Logits(ids, adapter, reply) => {
            let _ = reply.send(scheduler.logits(&ids, adapter.as_deref()));
        }
        Command::Statistics(reply) => {
            let (weights, cache) = (scheduler.engine().weights().bytes(), scheduler.engine().cache().bytes());
            let _ = reply.send((scheduler.statistics(), weights, cache));
        }
        Command::Occupancy(reply) => {
            let _ = reply.send(scheduler.occupancy());
        }
    }
    None
}

impl Open {
    /// Sends what has come of the prompts since the last time; those that ended are taken out.
    fn deliver(&mut self, scheduler: &mut Scheduler) {
        let outbox = &self.outbox;
        let mut failed = None;
        self.prompts.retain_mut(|(number, id, text)| match deliver(scheduler, outbox, *number, *id, text) {
            Ok(ended) => !ended,
            Err(error) => {
                failed.get_or_insert(error);
                true
            }
        });
        if let Some(error) = failed {
            for (_, id, _) in self.prompts.drain(..) {
                scheduler.cancel(id);
                drop(scheduler.take(id));
            }
            outbox.send(Err(error));
        }
    }
}

/// Sends what has come of one prompt; whether it has ended.
fn deliver(scheduler: &mut Scheduler, outbox: &Outbox, prompt: usize, id: RequestId, text: &mut Text) -> Result<bool> {
    let Progress { tokens, logprobs, mut prompt_logprobs, mut embedding, finish, error, admission } =
        scheduler.take(id);
    if let Some(admission) = admission {
        outbox.admit(prompt, admission);
    }
    let count = tokens.len();
    let mut send = |token, text, finish, logprobs| {
        let (prompt_logprobs, embedding) = (prompt_logprobs.take(), embedding.take());
        outbox.send(Ok(Event { prompt, token, text, finish, logprobs, prompt_logprobs, embedding }));
    };
    for (at, (token, logprobs)) in tokens.into_iter().zip(logprobs).enumerate() {
        let finish = finish.filter(|_| at + 1 == count && error.is_none());
        if finish == Some(Finish::End) {
            send(Some(token), text.rest()?, finish, logprobs);
            return Ok(true);
        }
        let (mut piece, stopped) = text.push(token)?;
        if stopped {
            scheduler.cancel(id);
            drop(scheduler.take(id));
            send(Some(token), piece, Some(Finish::Stop), logprobs);
            return Ok(true);
        }
        if finish.is_some() {
            piece.push_str(&text.rest()?);
        }
        send(Some(token), piece, finish, logprobs);
        if finish.is_some() {
            return Ok(true);
        }
    }
    if let Some(error) = error {
        outbox.send(Err(error)); // what came before is told first
    } else if finish.is_some() {
        // Without a token: it was cancelled, or none was asked for.
        send(None, text.rest()?, finish, None);
    }
    Ok(finish.is_some())
}
