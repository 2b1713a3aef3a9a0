//! `nncuda-rs bench engine`: a script of requests on the inference engine, for the comparison of languages.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use nn_core::infer::{
    Constraint, Engine, EngineOptions, Progress, Request, RequestId, Sampling, Scheduler, TokenLogprobs,
};
use nn_core::model::{Adapter, StoredModel};
use nn_core::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::flags::DeviceFlags;

/// Run a script of requests on the inference engine, for the comparison of languages.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    device: DeviceFlags,
}

/// What is read: a model, the options of its engine, and what to run on it.
#[derive(Debug, Deserialize)]
struct Script {
    model: PathBuf,
    adapter: Option<PathBuf>,
    /// By their names.
    #[serde(default)]
    adapters: BTreeMap<String, PathBuf>,
    context: Option<usize>,
    cache_format: Option<String>,
    cache_tokens: Option<usize>,
    max_batch: Option<usize>,
    piece: Option<usize>,
    weights: Option<String>,
    isa: Option<String>,
    ahead: Option<bool>,
    /// Ids whose logits are wanted.
    #[serde(default)]
    logits: Vec<i32>,
    #[serde(default)]
    requests: Vec<ScriptedRequest>,
}

/// A request that joins before a step of the scheduler, and is cancelled before another, 0 for never.
#[derive(Debug, Deserialize)]
struct ScriptedRequest {
    prompt: Vec<i32>,
    max_new_tokens: usize,
    #[serde(default)]
    end_ids: Vec<i32>,
    #[serde(default)]
    temperature: f64,
    top_k: Option<i32>,
    top_p: Option<f64>,
    #[serde(default)]
    seed: i64,
    min_p: Option<f64>,
    #[serde(default)]
    presence_penalty: f64,
    #[serde(default)]
    frequency_penalty: f64,
    #[serde(default = "one")]
    repetition_penalty: f64,
    #[serde(default)]
    logit_bias: BTreeMap<i32, f64>,
    logprobs: Option<usize>,
    prompt_logprobs: Option<usize>,
    /// The name of one of the engine's.
    adapter: Option<String>,
    #[serde(default)]
    embed: bool,
    /// The ids that may be next, after each token; then none.
    allowed: Option<Vec<Vec<i32>>>,
    #[serde(default)]
    joins: usize,
    #[serde(default)]
    cancelled: usize,
}

fn one() -> f64 {
    1.0
}

/// What is written.
#[derive(Debug, Serialize)]
struct Found {
    /// SHA-256 of their bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    logits: Option<String>,
    requests: Vec<FoundRequest>,
    /// What the scheduler counted.
    tokens: Counted,
}

#[derive(Debug, Serialize)]
struct FoundRequest {
    tokens: Option<Vec<i32>>,
    finish: Option<&'static str>,
    shared: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<Option<Pairs>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<Vec<Option<Pairs>>>,
    /// SHA-256 of its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    embedding: Option<String>,
}

/// A token's log-probability, and ids and log-probabilities of the likeliest in its place: all of an f32's digits.
type Pairs = (f64, Vec<(i32, f64)>);

/// A constraint of lists of ids, one a token.
#[derive(Debug)]
struct Allowed {
    left: std::vec::IntoIter<Vec<i32>>,
}

impl Constraint for Allowed {
    fn mask(&mut self) -> Result<Vec<u32>> {
        let ids = self.left.as_slice().first().map_or(&[][..], |ids| ids);
        let words = ids.iter().max().map_or(0, |last| *last as usize / 32 + 1);
        let mut mask = vec![0; words];
        ids.iter().for_each(|id| mask[*id as usize / 32] |= 1 << (id % 32));
        Ok(mask)
    }

    fn accept(&mut self, _token: i32) -> Result<()> {
        self.left.next();
        Ok(())
    }
}

#[derive(Debug, Serialize)]
struct Counted {
    prompt: usize,
    shared: usize,
    prefill: usize,
    decode: usize,
    steps: usize,
}

pub(crate) fn run(arguments: &Arguments) -> std::result::Result<(), Failure> {
    let script = serde_json::from_reader(io::stdin().lock())
        .map_err(|error| Error::value(format!("the script is no JSON of one: {error}")))?;
    let found = run_script(&script, arguments)?;
    let text = serde_json::to_string(&found).map_err(io::Error::from)?;
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

fn run_script(script: &Script, arguments: &Arguments) -> Result<Found> {
    let usual = EngineOptions::default();
    let stored = StoredModel::open(&script.model)?;
    let adapter = script.adapter.as_deref().map(|path| Adapter::open(path, stored.config())).transpose()?;
    let adapters = script
        .adapters
        .iter()
        .map(|(name, path)| Ok::<_, Error>((name.clone(), Arc::new(Adapter::open(path, stored.config())?))));
    let options = EngineOptions {
        context: script.context,
        cache_format: script.cache_format.as_deref().map_or(Ok(usual.cache_format), str::parse)?,
        cache_tokens: script.cache_tokens,
        max_batch: script.max_batch.unwrap_or(usual.max_batch),
        piece: script.piece.unwrap_or(usual.piece),
        weights: script.weights.as_deref().map_or(Ok(usual.weights), str::parse)?,
        ahead: script.ahead,
        adapter: adapter.map(Arc::new),
        adapters: adapters.collect::<Result<_>>()?,
    };
    let ctx = arguments.device.open()?;
    script.isa.as_deref().map_or(Ok(()), |isa| ctx.set_isa(isa.parse()?))?;
    let engine = Engine::new(&stored, &ctx, &options)?;
    let mut scheduler = Scheduler::new(engine, options.ahead)?;
    let logits = if script.logits.is_empty() { None } else { Some(digest(&scheduler.logits(&script.logits, None)?)) };
    let served = serve(&script.requests, &mut scheduler)?;
    let requests = served.into_iter().zip(&script.requests).map(|(progress, one)| FoundRequest {
        tokens: Some(progress.tokens).filter(|tokens| !tokens.is_empty()),
        finish: progress.finish.map(nn_core::infer::Finish::name),
        shared: progress.admission.map_or(0, |admission| admission.shared),
        logprobs: one.logprobs.map(|_| pairs(progress.logprobs)),
        prompt_logprobs: progress.prompt_logprobs.map(pairs),
        embedding: progress.embedding.as_deref().map(digest),
    });
    let (requests, done) = (requests.collect(), scheduler.statistics());
    let tokens = Counted {
        prompt: done.prompt_tokens,
        shared: done.shared_tokens,
        prefill: done.prefill_tokens,
        decode: done.decode_tokens,
        steps: done.decode_steps,
    };
    Ok(Found { logits, requests, tokens })
}

fn digest(values: &[f32]) -> String {
    let mut hash = Sha256::new();
    for value in values {
        hash.update(value.to_le_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pairs(logprobs: Vec<Option<TokenLogprobs>>) -> Vec<Option<Pairs>> {
    let pair = |one: TokenLogprobs| {
        let top = one.top.into_iter().map(|(id, logprob)| (id, f64::from(logprob))).collect();
        (f64::from(one.logprob), top)
    };
    logprobs.into_iter().map(|one| one.map(pair)).collect()
}

/// Runs the requests, each from its step on.
fn serve(scripted: &[ScriptedRequest], scheduler: &mut Scheduler) -> Result<Vec<Progress>> {
    let mut ids: Vec<Option<RequestId>> = vec![None; scripted.len()];
    let mut step = 0;
    while ids.iter().any(Option::is_none) || !scheduler.is_idle() {
        for (one, id) in scripted.iter().zip(&mut ids) {
            if one.joins == step {
                *id = Some(scheduler.add(Request {
                    prompt: one.prompt.clone(),
                    max_new_tokens: one.max_new_tokens,
                    sampling: Sampling {
                        temperature: one.temperature,
                        top_k: one.top_k,
                        top_p: one.top_p,
                        min_p: one.min_p,
                        seed: one.seed,
                        repetition_penalty: one.repetition_penalty,
                        frequency_penalty: one.frequency_penalty,
                        presence_penalty: one.presence_penalty,
                        logit_bias: one.logit_bias.clone(),
                    },
                    end_ids: one.end_ids.clone(),
                    logprobs: one.logprobs,
                    prompt_logprobs: one.prompt_logprobs,
                    embed: one.embed,
                    adapter: one.adapter.clone(),
                    constraint: one.allowed.clone().map(|lists| Box::new(Allowed { left: lists.into_iter() }) as _),
                })?);
            }
            if let Some(id) = id.filter(|_| step > 0 && one.cancelled == step) {
                scheduler.cancel(id);
            }
        }
        if !scheduler.is_idle() {
            scheduler.step()?;
        }
        step += 1;
    }
    Ok(ids.into_iter().flatten().map(|id| scheduler.take(id)).collect())
}
