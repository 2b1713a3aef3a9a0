//! Several adapters on one engine: each text has the bits that it has alone, in any company, and pages that one adapter has
//! computed are shared with its own texts only. That the bits are Python's is tests/parity/test_parity_engine.py's to say.

mod tiny;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nn_core::Error;
use nn_core::convert::merge_adapter;
use nn_core::format::shards::write_shard;
use nn_core::infer::{Engine, EngineOptions, GenerateOptions, LanguageModel, Prompt, Request, Sampling, Scheduler};
use nn_core::model::{Adapter, MoEConfig, StoredModel};
use nn_core::train::{TrainConfig, TrainingRun, list_checkpoints};
use nn_ffi::Context;

const VOCABULARY: usize = 60;

/// A projection that is adapted, its outputs and its inputs.
type Matrix = (&'static str, usize, usize);

/// An adapter by its name: what it adapts, and its rank.
type Made = (&'static str, &'static [Matrix], usize);

type Named = (String, Arc<Adapter>);

/// Adapters by name: which of the attention's matrices, with their sizes, and the rank.
const ADAPTERS: [Made; 3] = [
    ("all", &[("q_proj", 32, 24), ("k_proj", 16, 24), ("v_proj", 16, 24), ("o_proj", 24, 32)], 3),
    ("one", &[("o_proj", 24, 32)], 5),
    ("two", &[("q_proj", 32, 24), ("v_proj", 16, 24)], 1),
];

/// A checkpoint of weights that are nearly random, which reaches over several pages.
fn checkpoint(root: &Path, ctx: &Context) -> PathBuf {
    let data = root.join("data.tokens");
    write_shard(&data, &tiny::ids(400, 1), VOCABULARY as u64, &[0; 32]).unwrap();
    let sizes = MoEConfig { vocab_size: VOCABULARY, context: 300, extended_context: 300, ..tiny::model() };
    let options =
        TrainConfig { steps: 1, batch_size: 1, sequence_length: 8, warmup_steps: Some(0), ..TrainConfig::default() };
    let run = root.join("run");
    TrainingRun::start(&run, ctx, sizes, options, &data, None, None).unwrap().run(|_| Ok(())).unwrap();
    list_checkpoints(&run.join("checkpoints")).unwrap().pop().unwrap()
}

/// A folder of PEFT with factors about as large as the weights that they are beside.
fn write_adapter(folder: &Path, matrices: &[Matrix], rank: usize) {
    let (mut data, mut header, mut state) = (Vec::<u8>::new(), serde_json::Map::new(), rank as u64);
    let mut factor = |name: String, shape: [usize; 2]| {
        let first = data.len();
        for _ in 0..shape[0] * shape[1] {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            data.extend((((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * 0.5).to_le_bytes());
        }
        let place = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [first, data.len()]});
        header.insert(name, place);
    };
    for layer in 0..2 {
        for (name, rows, columns) in matrices {
            let module = format!("base_model.model.model.layers.{layer}.self_attn.{name}");
            factor(format!("{module}.lora_A.weight"), [rank, *columns]);
            factor(format!("{module}.lora_B.weight"), [*rows, rank]);
        }
    }
    let header = serde_json::to_vec(&header).unwrap();
    let file = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
    std::fs::create_dir(folder).unwrap();
    std::fs::write(folder.join("adapter_model.safetensors"), file).unwrap();
    let config = serde_json::json!({"peft_type": "LORA", "r": rank, "lora_alpha": 8});
    std::fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
}

fn opened(ctx: &Context) -> (tempfile::TempDir, StoredModel, Vec<Named>) {
    let root = tempfile::tempdir().unwrap();
    let stored = StoredModel::open(&checkpoint(root.path(), ctx)).unwrap();
    let open = |(name, matrices, rank): Made| {
        let folder = root.path().join(name);
        write_adapter(&folder, matrices, rank);
        (name.to_owned(), Arc::new(Adapter::open(&folder, stored.config()).unwrap()))
    };
    let adapters = ADAPTERS.into_iter().map(open).collect();
    (root, stored, adapters)
}

fn ids(count: usize) -> Vec<i32> {
    tiny::ids(count, 3).into_iter().map(|id| id as i32).collect()
}

/// Tokens, and the bits of their log-probabilities, of prompts that run together.
fn drawn(model: &LanguageModel, asked: &[(Vec<i32>, Option<&str>)]) -> Vec<Vec<(i32, u32)>> {
    let options = |name: &Option<&str>| GenerateOptions {
        max_new_tokens: Some(8),
        sampling: Sampling { temperature: 1.0, seed: 7, ..Sampling::default() },
        logprobs: Some(0),
        adapter: name.map(str::to_owned),
        ..GenerateOptions::default()
    };
    let each = asked.iter().map(|(prompt, name)| (Prompt::from(&prompt[..]), options(name))).collect();
    let mut found = vec![Vec::new(); asked.len()];
    for event in model.generate_each(each).unwrap() {
        let event = event.unwrap();
        found[event.prompt].extend(event.token.zip(event.logprobs.map(|one| one.logprob.to_bits())));
    }
    found
}

#[test]
fn texts_have_the_bits_that_they_have_alone() {
    let ctx = tiny::context();
    let (_root, stored, adapters) = opened(&ctx);
    let text = ids(200);
    let asked: Vec<(Vec<i32>, Option<&str>)> =
        [(150, Some("all")), (150, None), (150, Some("one")), (9, Some("two")), (140, Some("all")), (5, None)]
            .map(|(length, name)| (text[..length].to_vec(), name))
            .to_vec();
    let of = |options| LanguageModel::load(stored.path(), &ctx, &options).unwrap();
    let adapter = |name| adapters.iter().find(|(one, _)| Some(one.as_str()) == name).map(|(_, one)| Arc::clone(one));
    let single = |name| of(EngineOptions { adapter: adapter(name), ..EngineOptions::default() });
    let alone: Vec<_> =
        asked.iter().map(|(prompt, name)| drawn(&single(*name), &[(prompt.clone(), None)]).pop().unwrap()).collect();
    assert!((1..alone.len()).all(|at| alone[at].len() == 8 && !alone[..at].contains(&alone[at])));
    for (max_batch, piece, ahead) in [(6, 512, None), (3, 37, Some(true))] {
        let options = EngineOptions { max_batch, piece, ahead, adapters: adapters.clone(), ..EngineOptions::default() };
        let model = of(EngineOptions { cache_tokens: Some(2048), ..options });
        for round in 0..2 {
            assert_eq!(drawn(&model, &asked), alone, "{max_batch} at a time, round {round}");
        }
        assert_eq!(model.adapters(), ["all", "one", "two"]);
        for name in [None, Some("all")] {
            let (found, wanted) = (model.logits(&text[..20], name), single(name).logits(&text[..20], None));
            assert!(found.unwrap().iter().map(|x| x.to_bits()).eq(wanted.unwrap().iter().map(|x| x.to_bits())));
        }
        let refused = model.generate(&text[..3], &GenerateOptions { adapter: Some("no".into()), ..Default::default() });
        let words = "adapter is 'no'; of those with names the model has 'all', 'one', 'two'";
        assert_eq!(refused.unwrap_err().to_string(), words);
        assert_eq!(model.logprobs(&text[..3], 0, Some("no")).unwrap_err().to_string(), words);
    }
    let twice = EngineOptions { adapters: vec![adapters[0].clone(), adapters[0].clone()], ..Default::default() };
    let refused = Engine::new(&stored, &ctx, &twice).unwrap_err().to_string();
    assert_eq!(refused, "'all' is the name of two adapters");
}

#[test]
fn what_one_adapter_has_computed_is_no_others() {
    let ctx = tiny::context();
    let (_root, stored, adapters) = opened(&ctx);
    let engine = Engine::new(&stored, &ctx, &EngineOptions { adapters, ..EngineOptions::default() }).unwrap();
    let mut scheduler = Scheduler::new(engine, None).unwrap();
    let text = ids(200);
    let mut shared = |name: Option<&str>, length: usize| {
        let prompt = text[..length].to_vec();
        let request = Request { prompt, max_new_tokens: 2, adapter: name.map(str::to_owned), ..Request::default() };
        let id = scheduler.add(request).unwrap();
        while !scheduler.is_idle() {
            scheduler.step().unwrap();
        }
        scheduler.take(id).admission.unwrap().shared
    };
    for name in [None, Some("all"), Some("one"), Some("two")] {
        assert_eq!([shared(name, 200), shared(name, 200), shared(name, 160)], [0, 199, 159], "{name:?}");
    }
    let unknown = Request { prompt: text.clone(), adapter: Some("no".into()), ..Request::default() };
    assert!(scheduler.add(unknown).unwrap_err().to_string().starts_with("adapter is 'no'"));
}

/// That the bits of sums are Python's is tests/parity/test_parity_adapters.py's to say.
#[test]
fn merging_ends_without_a_trace_where_it_is_stopped() {
    let ctx = tiny::context();
    let (root, stored, adapters) = opened(&ctx);
    let (_, adapter) = &adapters[1];
    let room = root.path().join("room");
    std::fs::create_dir(&room).unwrap();
    let path = room.join("sum");
    let done = std::cell::Cell::new(0);
    let some = || {
        done.set(done.get() + 1);
        if done.get() < 5 { Ok(()) } else { Err(Error::value("enough")) }
    };
    let stopped = merge_adapter(&stored, adapter, &path, &ctx, &some).unwrap_err();
    assert_eq!((stopped.to_string(), done.get()), ("enough".to_owned(), 5));
    assert_eq!(std::fs::read_dir(&room).unwrap().count(), 0);
    merge_adapter(&stored, adapter, &path, &ctx, &|| Ok(())).unwrap();
    let sum = StoredModel::open(&path).unwrap();
    for (name, _) in stored.config().shapes() {
        let [before, after] = [&stored, &sum].map(|model| model.tensors().whole(&name).unwrap().f32().unwrap());
        assert_eq!(before != after, adapter.factors().contains_key(&name), "{name}");
    }
    let twice = merge_adapter(&stored, adapter, &path, &ctx, &|| Ok(()));
    assert!(matches!(twice, Err(Error::Exists(_))));
}
