//! The inference engine through its public face: the same tokens alone, beside others, from a shared cache, in a window and
//! run ahead; events for who blocks and for who polls; what ends a continuation, and what is refused. That the bits are
//! Python's is tests/parity/test_parity_engine.py's to say.

mod tiny;

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Polling, Poll, Wake, Waker};
use std::thread::{self, Thread};

use futures_core::Stream;
use nn_core::Error;
use nn_core::format::shards::write_shard;
use nn_core::infer::{
    CacheFormat, CacheSizes, Constraint, Engine, EngineOptions, Event, Finish, GenerateOptions, LanguageModel, PAGE,
    PagedCache, Place, Prompt, Request, Sampling, Scheduler,
};
use nn_core::model::{MoEConfig, StoredModel};
use nn_core::train::{TrainConfig, TrainingRun, list_checkpoints};
use nn_ffi::Context;

/// Pieces of the fixture own_bpe.model.
const VOCABULARY: u64 = 400;

/// A checkpoint of weights that are nearly random, which reaches over several pages, and reads and writes text.
struct Folder {
    root: tempfile::TempDir,
    path: PathBuf,
}

impl Folder {
    fn new(ctx: &Context) -> Self {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data.tokens");
        write_shard(&data, &tiny::ids(400, 1), VOCABULARY, &[0; 32]).unwrap();
        let sizes = MoEConfig { vocab_size: VOCABULARY as usize, context: 600, extended_context: 600, ..tiny::model() };
        let options = TrainConfig {
            steps: 1,
            batch_size: 1,
            sequence_length: 8,
            warmup_steps: Some(0),
            ..TrainConfig::default()
        };
        let run = root.path().join("run");
        TrainingRun::start(&run, ctx, sizes, options, &data, None, None).unwrap().run(|_| Ok(())).unwrap();
        let path = list_checkpoints(&run.join("checkpoints")).unwrap().pop().unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tokenizer");
        std::fs::copy(fixtures.join("own_bpe.model"), path.join("tokenizer.model")).unwrap();
        Self { root, path }
    }

    fn stored(&self) -> StoredModel {
        assert!(self.root.path().is_dir());
        StoredModel::open(&self.path).unwrap()
    }

    fn model(&self, ctx: &Context, options: &EngineOptions) -> LanguageModel {
        LanguageModel::new(self.stored(), ctx, options).unwrap()
    }
}

/// Ids that are the same in every run.
fn ids(count: usize, seed: u64) -> Vec<i32> {
    tiny::ids(count, seed).into_iter().map(|id| id as i32 + 4).collect()
}

fn greedy(tokens: usize) -> GenerateOptions {
    GenerateOptions { max_new_tokens: Some(tokens), end_ids: Some(Vec::new()), ..GenerateOptions::default() }
}

fn drawn(tokens: usize, seed: i64) -> GenerateOptions {
    let sampling = Sampling { temperature: 0.9, top_k: Some(40), top_p: Some(0.95), seed, ..Sampling::default() };
    GenerateOptions { sampling, ..greedy(tokens) }
}

/// The tokens of each prompt.
fn tokens(events: impl IntoIterator<Item = nn_core::Result<Event>>, prompts: usize) -> Vec<Vec<i32>> {
    let mut all = vec![Vec::new(); prompts];
    for event in events {
        let event = event.unwrap();
        all[event.prompt].extend(event.token);
    }
    all
}

fn alone(model: &LanguageModel, prompt: &[i32], options: &GenerateOptions) -> Vec<i32> {
    tokens(model.generate(prompt, options).unwrap(), 1).remove(0)
}

#[test]
fn tokens_do_not_depend_on_company_cache_or_options() {
    let ctx = tiny::context();
    let folder = Folder::new(&ctx);
    let shared = ids(300, 1);
    let prompts = [shared[..290].to_vec(), ids(3, 2), [&shared[..200], &ids(40, 3)].concat(), ids(150, 4)];
    let of_prompt = |number: usize| if number.is_multiple_of(2) { drawn(30, 5) } else { greedy(40) };
    let reference = folder.model(&ctx, &EngineOptions { max_batch: 1, piece: 600, ..EngineOptions::default() });
    let wanted: Vec<Vec<i32>> =
        prompts.iter().enumerate().map(|(number, prompt)| alone(&reference, prompt, &of_prompt(number))).collect();
    assert!(wanted.iter().all(|tokens| tokens.len() >= 30) && wanted[0] != wanted[2]);
    for options in [
        EngineOptions::default(),
        EngineOptions { max_batch: 2, piece: 37, weights: Place::File, ..EngineOptions::default() },
        EngineOptions { ahead: Some(true), max_batch: 3, ..EngineOptions::default() },
        EngineOptions { cache_tokens: Some(5 * PAGE), weights: Place::Memory, ..EngineOptions::default() },
    ] {
        let model = folder.model(&ctx, &options);
        for round in 0..2 {
            // The second finds the beginnings in the cache.
            let each = prompts.iter().enumerate().map(|(number, ids)| (Prompt::from(&ids[..]), of_prompt(number)));
            let found = tokens(model.generate_each(each.collect()).unwrap(), prompts.len());
            assert_eq!(found, wanted, "{options:?}, round {round}");
        }
        let (done, weights, cache) = model.statistics().unwrap();
        assert!(done.shared_tokens >= 128 && done.prompt_tokens == 2 * prompts.iter().map(Vec::len).sum::<usize>());
        assert!(done.decode_steps > 0 && weights > 0 && cache > 0);
    }
}

#[test]
fn a_window_moves_on_and_runs_ahead() {
    let ctx = tiny::context();
    let folder = Folder::new(&ctx);
    let run = |ahead, cache_tokens| {
        let options = EngineOptions { context: Some(256), ahead, cache_tokens, ..EngineOptions::default() };
        let model = folder.model(&ctx, &options);
        let prompts = [ids(250, 7), ids(9, 8)];
        tokens(model.generate_all(prompts, &drawn(700, 2)).unwrap(), 2)
    };
    let wanted = run(Some(false), None);
    assert_eq!(wanted.iter().map(Vec::len).collect::<Vec<_>>(), [700, 700]);
    assert_eq!(run(Some(true), None), wanted);
    assert_eq!(run(None, Some(512)), wanted);
}

#[test]
fn threads_share_a_model() {
    let ctx = tiny::context();
    let model = Folder::new(&ctx).model(&ctx, &EngineOptions::default());
    let wanted: Vec<Vec<i32>> = (0..6).map(|seed| alone(&model, &ids(20, seed), &drawn(25, 3))).collect();
    thread::scope(|scope| {
        let run = |seed: u64| {
            let model = model.clone();
            scope.spawn(move || {
                let logits = model.logits(&ids(9, seed)[..], None).unwrap();
                assert_eq!(logits.len(), 9 * model.config().vocab_size);
                alone(&model, &ids(20, seed), &drawn(25, 3))
            })
        };
        let threads: Vec<_> = (0..6).map(run).collect();
        let found: Vec<Vec<i32>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(found, wanted);
    });
}

/// Wakes a thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// All that a stream gives, on this thread.
fn polled<S: Stream + Unpin>(mut stream: S) -> Vec<S::Item> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut polling, mut items) = (Polling::from_waker(&waker), Vec::new());
    loop {
        match Pin::new(&mut stream).poll_next(&mut polling) {
            Poll::Ready(Some(item)) => items.push(item),
            Poll::Ready(None) => return items,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn a_stream_gives_the_same_events() {
    let ctx = tiny::context();
    let model = Folder::new(&ctx).model(&ctx, &EngineOptions::default());
    let generation = || model.generate_all(["the quick", "brown"], &drawn(12, 1)).unwrap();
    let mut blocking: Vec<Event> = generation().map(Result::unwrap).collect();
    let mut streamed: Vec<Event> = polled(generation().into_stream()).into_iter().map(Result::unwrap).collect();
    for events in [&mut blocking, &mut streamed] {
        events.sort_by_key(|event| event.prompt); // of each they come in order
    }
    assert_eq!(streamed, blocking);
    assert_eq!(blocking.iter().filter(|event| event.finish == Some(Finish::Length)).count(), 2);
}

#[test]
fn text_ends_where_it_should() {
    let ctx = tiny::context();
    let model = Folder::new(&ctx).model(&ctx, &EngineOptions::default());
    let whole = model.complete("the quick", &drawn(40, 4)).unwrap();
    let events: Vec<Event> = model.generate("the quick", &drawn(40, 4)).unwrap().map(Result::unwrap).collect();
    assert_eq!(events.iter().map(|event| event.text.as_str()).collect::<String>(), whole);
    // Before the first stop string, one that begins inside a piece among them.
    let start = whole.char_indices().nth(whole.chars().count() / 2).unwrap().0;
    let stop: String = whole[start..].chars().take(3).collect();
    let options = GenerateOptions { stop: vec!["not in there".into(), stop.clone()], ..drawn(40, 4) };
    assert_eq!(model.complete("the quick", &options).unwrap(), whole[..whole.find(&stop).unwrap()]);
    let last = model.generate("the quick", &options).unwrap().last().unwrap().unwrap();
    assert_eq!(last.finish, Some(Finish::Stop));
    // With an id that ends it, whose own text is not part of it.
    let token = events[9].token.unwrap();
    let at = events.iter().position(|event| event.token == Some(token)).unwrap();
    let options = GenerateOptions { end_ids: Some(vec![token]), ..drawn(40, 4) };
    let ended: Vec<Event> = model.generate("the quick", &options).unwrap().map(Result::unwrap).collect();
    assert_eq!((ended.len(), ended[at].finish), (at + 1, Some(Finish::End)));
    // After no token at all.
    let none: Vec<Event> = model.generate("the", &greedy(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(
        none.iter().map(|event| (event.token, event.finish)).collect::<Vec<_>>(),
        [(None, Some(Finish::Length))]
    );
}

#[test]
fn cancelling_ends_soon_and_frees_pages() {
    let ctx = tiny::context();
    let folder = Folder::new(&ctx);
    let options = EngineOptions { context: Some(128), cache_tokens: Some(256), ..EngineOptions::default() };
    let model = folder.model(&ctx, &options);
    let mut generation = model.generate_all([ids(5, 1), ids(6, 2)], &greedy(1 << 30)).unwrap();
    assert!(generation.next().unwrap().unwrap().token.is_some());
    generation.canceller().cancel();
    let last: Vec<Event> = generation.map(Result::unwrap).filter(|event| event.finish.is_some()).collect();
    assert!(last.len() == 2 && last.iter().all(|event| event.finish == Some(Finish::Cancelled)), "{last:?}");
    // Who forgets a generation ends it, too; else these could not have the pages.
    for seed in 0..4 {
        drop(model.generate(ids(5, seed), &greedy(1 << 30)).unwrap());
    }
    let found = tokens(model.generate_all([ids(100, 3), ids(100, 4)], &greedy(28)).unwrap(), 2);
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [28, 28]);
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_runs() {
    let ctx = tiny::context();
    let folder = Folder::new(&ctx);
    let model = folder.model(&ctx, &EngineOptions { cache_tokens: Some(256), ..EngineOptions::default() });
    let refused = |prompt: Vec<i32>, options: &GenerateOptions| model.generate(prompt, options).unwrap_err();
    assert!(refused(vec![], &greedy(1)).to_string().contains("at least one token"));
    assert!(refused(ids(601, 1), &greedy(1)).to_string().contains("the context has room for 600"));
    assert!(matches!(refused(vec![1, 400], &greedy(1)), Error::OutOfRange(text) if text.contains("ids[1] is 400")));
    assert!(matches!(refused(ids(200, 1), &greedy(200)), Error::CacheFull(text) if text.contains("needs 4 pages")));
    let stop = GenerateOptions { stop: vec![String::new()], ..greedy(1) };
    assert!(refused(ids(2, 1), &stop).to_string().contains("a stop string is empty"));
    let ends = GenerateOptions { end_ids: Some(vec![-1]), ..greedy(1) };
    assert!(refused(ids(2, 1), &ends).to_string().contains("end_ids[0] is -1"));
    assert!(model.logits(Vec::new(), None).unwrap_err().to_string().contains("ids is empty"));
    for (options, words) in [
        (EngineOptions { context: Some(601), ..EngineOptions::default() }, "this model takes 1 to 600 tokens"),
        (EngineOptions { max_batch: 0, ..EngineOptions::default() }, "max_batch is 0"),
        (EngineOptions { cache_tokens: Some(0), ..EngineOptions::default() }, "cache_tokens is 0"),
        (EngineOptions { cache_format: CacheFormat::Q80, ..EngineOptions::default() }, "choose f16"),
    ] {
        let error = LanguageModel::new(folder.stored(), &ctx, &options).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn logits_have_the_same_bits_in_any_pieces() {
    let ctx = tiny::context();
    let folder = Folder::new(&ctx);
    let logits = |piece, weights| {
        let options = EngineOptions { piece, weights, ..EngineOptions::default() };
        let model = folder.model(&ctx, &options);
        model.logits(ids(140, 5), None).unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let wanted = logits(512, Place::Memory);
    assert_eq!(wanted.len(), 140 * 400);
    assert_eq!(logits(33, Place::File), wanted);
}

#[test]
fn vectors_have_the_same_bits_however_a_text_comes() {
    let ctx = tiny::context();
    let folder = Folder::new(&ctx);
    let prompts = [ids(3, 1), ids(300, 2), ids(150, 3)];
    let bits = |vector: &[f32]| vector.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
    let engine = Engine::new(&folder.stored(), &ctx, &EngineOptions::default());
    let mut engine = engine.unwrap();
    let wanted: Vec<_> = prompts.iter().map(|prompt| bits(&engine.embed(prompt, None).unwrap())).collect();
    let length: f64 = engine.embed(&prompts[1], None).unwrap().iter().map(|number| f64::from(*number).powi(2)).sum();
    assert!((length - 1.0).abs() < 1e-6 && wanted[1] != wanted[2]);
    for options in [
        EngineOptions { piece: 37, max_batch: 2, ..EngineOptions::default() },
        EngineOptions { ahead: Some(true), ..EngineOptions::default() },
    ] {
        let model = folder.model(&ctx, &options);
        // Beside a text that is written, and again with a warm cache, from which nothing is taken.
        for _ in 0..2 {
            let beside = model.generate(&prompts[1][..], &drawn(40, 1)).unwrap();
            let found = model.embed_all(prompts.iter().map(|prompt| &prompt[..])).unwrap();
            assert_eq!(found.iter().map(|vector| bits(vector)).collect::<Vec<_>>(), wanted);
            assert_eq!(bits(&model.embed(&prompts[2][..]).unwrap()), wanted[2]);
            drop(beside);
        }
        let embed = GenerateOptions { embed: true, max_new_tokens: Some(1), ..GenerateOptions::default() };
        let refused = model.generate(ids(3, 1), &embed).unwrap_err().to_string();
        assert!(refused.contains("max_new_tokens is 1; where a prompt is embedded it must be 0"), "{refused}");
    }
    assert!(engine.embed(&[], None).unwrap_err().to_string().contains("ids is empty"));
    assert!(engine.embed(&ids(601, 1), None).unwrap_err().to_string().contains("the context has room for 600"));
}

#[test]
fn an_embedded_prompt_that_is_cancelled_leaves_nothing() {
    let ctx = tiny::context();
    let engine = Engine::new(&Folder::new(&ctx).stored(), &ctx, &EngineOptions { piece: 64, ..Default::default() });
    let mut scheduler = Scheduler::new(engine.unwrap(), None).unwrap();
    let id = scheduler.add(Request { prompt: ids(300, 1), embed: true, ..Request::default() }).unwrap();
    scheduler.step().unwrap();
    assert!(scheduler.engine().cache().used() > 0);
    scheduler.cancel(id);
    let progress = scheduler.take(id);
    assert!(progress.finish == Some(Finish::Cancelled) && progress.embedding.is_none());
    assert!(scheduler.is_idle() && scheduler.engine().cache().used() == 0);
}

#[test]
fn a_scheduler_serves_requests_in_order() {
    let ctx = tiny::context();
    let engine = Engine::new(&Folder::new(&ctx).stored(), &ctx, &EngineOptions { max_batch: 1, ..Default::default() });
    let mut scheduler = Scheduler::new(engine.unwrap(), None).unwrap();
    let request = |prompt, max_new_tokens| Request { prompt, max_new_tokens, ..Request::default() };
    let first = scheduler.add(request(ids(300, 1), 3)).unwrap();
    let second = scheduler.add(request([ids(260, 1), ids(9, 2)].concat(), 2)).unwrap();
    let third = scheduler.add(request(ids(4, 3), 5)).unwrap();
    scheduler.step().unwrap();
    scheduler.cancel(third);
    assert_eq!(scheduler.take(third).finish, Some(Finish::Cancelled));
    while !scheduler.is_idle() {
        scheduler.step().unwrap();
    }
    let [first, second] = [first, second].map(|id| scheduler.take(id));
    assert_eq!((first.tokens.len(), first.finish, first.admission.unwrap().shared), (3, Some(Finish::Length), 0));
    // Two whole pages, and a copy of the beginning of the third.
    assert_eq!((second.tokens.len(), second.finish, second.admission.unwrap().shared), (2, Some(Finish::Length), 256));
    assert_eq!(scheduler.engine().cache().used(), 0);
}

#[test]
fn logits_are_changed_before_tokens_are_drawn() {
    let ctx = tiny::context();
    let model = Folder::new(&ctx).model(&ctx, &EngineOptions::default());
    let with = |sampling| GenerateOptions { sampling, ..greedy(40) };
    let bias = Sampling { logit_bias: [(7, 1000.0)].into(), ..Sampling::default() };
    assert_eq!(alone(&model, &[1, 2], &with(bias)), [7; 40]);
    let plain = alone(&model, &[1, 2], &greedy(40));
    let distinct = |tokens: &[i32]| tokens.iter().collect::<std::collections::BTreeSet<_>>().len();
    assert!(distinct(&plain) < 40, "the model repeats itself, or the next lines say nothing");
    let penalty = Sampling { presence_penalty: 1e4, ..Sampling::default() };
    assert_eq!(distinct(&alone(&model, &[1, 2], &with(penalty))), 40);
    // All tokens but the likeliest are below a min_p of 1.
    let min_p = Sampling { temperature: 1.5, min_p: Some(1.0), seed: 3, ..Sampling::default() };
    assert_eq!(alone(&model, &[1, 2], &with(min_p)), plain);
    for (wrong, words) in [
        (Sampling { min_p: Some(1.5), ..Sampling::default() }, "min_p is 1.5"),
        (Sampling { repetition_penalty: 0.0, ..Sampling::default() }, "repetition_penalty is 0.0"),
        (Sampling { frequency_penalty: f64::NAN, ..Sampling::default() }, "frequency_penalty is NaN"),
        (Sampling { logit_bias: [(400, 1.0)].into(), ..Sampling::default() }, "logit_bias[0] is 400"),
        (Sampling { top_k: Some(0), ..Sampling::default() }, "top_k is 0"),
    ] {
        let error = model.generate(vec![1], &with(wrong)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn log_probabilities_are_those_of_the_model() {
    let ctx = tiny::context();
    let model = Folder::new(&ctx).model(&ctx, &EngineOptions { piece: 30, ..EngineOptions::default() });
    let prompt = ids(100, 6);
    let penalty = Sampling { presence_penalty: 2.0, ..Sampling::default() };
    let options = GenerateOptions { logprobs: Some(20), prompt_logprobs: Some(2), sampling: penalty, ..greedy(8) };
    let events: Vec<Event> = model.generate(&prompt[..], &options).unwrap().map(Result::unwrap).collect();
    let of_prompt = events[0].prompt_logprobs.clone().unwrap();
    assert_eq!((of_prompt.len(), of_prompt[0].is_none()), (100, true));
    assert!(events[1..].iter().all(|event| event.prompt_logprobs.is_none()));
    // The same text, read as a prompt: the same numbers, since penalties come after them.
    let text: Vec<i32> = prompt.iter().copied().chain(events.iter().filter_map(|event| event.token)).collect();
    let all = model.logprobs(&text[..], 20, None).unwrap();
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event.logprobs, all[100 + at], "{at}");
        assert_eq!(event.logprobs.as_ref().unwrap().top.len(), 20);
    }
    for (at, one) in of_prompt.iter().enumerate().skip(1) {
        let (one, other) = (one.as_ref().unwrap(), all[at].as_ref().unwrap());
        assert_eq!((one.logprob.to_bits(), &one.top[..]), (other.logprob.to_bits(), &other.top[..2]));
    }
    let options = GenerateOptions { prompt_logprobs: Some(0), ..greedy(0) };
    let events: Vec<Event> = model.generate(&prompt[..], &options).unwrap().map(Result::unwrap).collect();
    assert_eq!((events.len(), events[0].prompt_logprobs.as_ref().map(Vec::len)), (1, Some(100)));
    let too_many = GenerateOptions { logprobs: Some(21), ..greedy(1) };
    assert!(model.generate(vec![1], &too_many).unwrap_err().to_string().contains("logprobs is 21"));
}

/// Allows multiples of five, a few of them, then does as it is told.
#[derive(Debug)]
struct Fives {
    left: usize,
    fails: bool,
}

impl Constraint for Fives {
    fn mask(&mut self) -> nn_core::Result<Vec<u32>> {
        let word = |first: u32| (0..32).filter(|bit| (first + bit).is_multiple_of(5)).map(|bit| 1 << bit).sum();
        match (self.left, self.fails) {
            (0, true) => Err(Error::value("no such word")),
            (0, false) => Ok(Vec::new()),
            _ => Ok((0..20).map(|at| word(32 * at)).collect()),
        }
    }

    fn accept(&mut self, token: i32) -> nn_core::Result<()> {
        assert_eq!(token % 5, 0);
        self.left -= 1;
        Ok(())
    }
}

#[test]
fn tokens_obey_a_constraint() {
    let ctx = tiny::context();
    let model = Folder::new(&ctx).model(&ctx, &EngineOptions { ahead: Some(true), ..EngineOptions::default() });
    let beside = model.generate(ids(9, 2), &drawn(60, 1)).unwrap();
    let run = |left, fails| {
        let events = model.generate_constrained(ids(20, 1), &drawn(30, 2), Box::new(Fives { left, fails })).unwrap();
        events.collect::<Vec<nn_core::Result<Event>>>()
    };
    let all = run(99, false);
    assert!(all.len() == 30 && all.iter().all(|event| event.as_ref().unwrap().token.unwrap() % 5 == 0));
    let some = run(4, false);
    assert_eq!((some.len(), some[3].as_ref().unwrap().finish), (4, Some(Finish::Stop)));
    let none = run(0, false);
    let only = none[0].as_ref().unwrap();
    assert_eq!((none.len(), only.token, only.finish), (1, None, Some(Finish::Stop)));
    let failed = run(2, true);
    assert_eq!(failed.len(), 3);
    assert_eq!(failed[2].as_ref().unwrap_err().to_string(), "no such word");
    // Who is generated beside it has what it would have alone.
    assert_eq!(tokens(beside, 1)[0], alone(&model, &ids(9, 2), &drawn(60, 1)));
}

/// A cache of as many pages, whose rows nobody writes.
fn cache(ctx: &Context, pages: usize, context: usize) -> PagedCache {
    let sizes = CacheSizes { layers: 1, kv_heads: 1, head_dim: 8, pages, context };
    PagedCache::new(ctx, sizes, CacheFormat::F32).unwrap()
}

#[test]
fn every_format_of_caches_has_rows_of_its_size() {
    let ctx = tiny::context();
    let sizes = CacheSizes { layers: 2, kv_heads: 2, head_dim: 32, pages: 3, context: PAGE };
    for (name, row) in CacheFormat::NAMES.into_iter().zip([64, 128, 64, 34, 32]) {
        let cache = PagedCache::new(&ctx, sizes, name.parse().unwrap()).unwrap();
        assert_eq!((cache.page_bytes(), cache.bytes()), (2 * PAGE * row, 2 * 2 * 3 * 2 * PAGE * row), "{name}");
    }
}

#[test]
fn pages_are_shared_copied_and_given_back() {
    let ctx = tiny::context();
    let mut cache = cache(&ctx, 6, 4 * PAGE);
    let text = ids(3 * PAGE, 1);
    let mut first = cache.open(&text, text.len()).unwrap();
    assert_eq!((first.length(), cache.available()), (0, 3));
    cache.extend(&mut first, 300).unwrap();
    cache.advance(&mut first, &text[..300]);
    // Two whole pages are used by both while the first is open.
    let second = cache.open(&text[..290], 290).unwrap();
    assert_eq!((second.shared(), &second.pages()[..2]), (256, &first.pages()[..2]));
    cache.close(first);
    cache.close(second);
    assert_eq!((cache.used(), cache.available()), (0, 6));
    // Of the page that was left incomplete a copy: all but the last id, which somebody wants the logits of.
    let third = cache.open(&text[..299], 299).unwrap();
    assert_eq!((third.shared(), third.position(), third.pages().len()), (298, 298, 3));
    // Another text shares nothing, and fewer than 16 ids are not worth a copy.
    let other = cache.open(&ids(200, 9), 200).unwrap();
    assert_eq!(other.shared(), 0);
    assert!(matches!(cache.open(&ids(300, 8), 300), Err(Error::CacheFull(_))));
    cache.close(other);
    let short = cache.open(&[&text[..2 * PAGE + 15], &ids(9, 7)].concat(), 290).unwrap();
    assert_eq!(short.shared(), 256);
    cache.close(short);
    cache.close(third);
    cache.forget();
    let again = cache.open(&text, 0).unwrap();
    assert_eq!((again.shared(), cache.available()), (0, 6));
    cache.close(again);
}

#[test]
fn the_text_that_waited_longest_makes_room() {
    let ctx = tiny::context();
    let mut cache = cache(&ctx, 2, 2 * PAGE);
    let [old, new, newest] = [1, 2, 3].map(|seed| ids(PAGE + 1, seed));
    let fill = |cache: &mut PagedCache, text: &[i32]| {
        let mut sequence = cache.open(text, PAGE).unwrap();
        let shared = sequence.shared();
        if shared < PAGE {
            cache.extend(&mut sequence, PAGE - shared).unwrap();
            cache.advance(&mut sequence, &text[shared..PAGE]);
        }
        cache.close(sequence);
        shared
    };
    assert_eq!([fill(&mut cache, &old), fill(&mut cache, &new)], [0, 0]);
    assert_eq!(fill(&mut cache, &old), PAGE); // used again, and so the younger
    assert_eq!(fill(&mut cache, &newest), 0);
    assert_eq!([fill(&mut cache, &old), fill(&mut cache, &new)], [PAGE, 0]);
}

#[test]
fn a_sequence_beyond_the_context_shares_nothing() {
    let ctx = tiny::context();
    let mut cache = cache(&ctx, 3, 2 * PAGE);
    let text = ids(3 * PAGE, 1);
    let mut long = cache.open(&text[..100], 5 * PAGE).unwrap();
    cache.extend(&mut long, 2 * PAGE).unwrap();
    cache.advance(&mut long, &text[..2 * PAGE]);
    assert!(cache.extend(&mut long, 1).is_err());
    assert!(cache.make_room(&mut long) && !cache.make_room(&mut long));
    assert_eq!((long.length(), long.position()), (PAGE, 2 * PAGE));
    assert!(cache.extend(&mut long, 1).unwrap());
    cache.close(long);
    let other = cache.open(&text, PAGE).unwrap();
    assert_eq!((other.shared(), cache.used()), (0, 0));
    cache.close(other);
}
