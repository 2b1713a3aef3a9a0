//! Generation: the same tokens whatever the path to them, and what is refused.

mod tiny;

use nn_core::Error;
use nn_core::generate::{Sampling, generate, generate_batch, room};
use nn_core::model::MoETransformer;
use nn_ffi::{Context, Status};

fn model(ctx: &Context) -> MoETransformer {
    MoETransformer::random(ctx, tiny::model(), 3).unwrap()
}

fn samplings() -> [Sampling; 7] {
    let usual = |temperature| Sampling { temperature, seed: -5, ..Sampling::default() };
    [
        usual(0.0),
        usual(0.9),
        Sampling { top_k: Some(5), ..usual(1.0) },
        Sampling { top_k: Some(30), top_p: Some(0.8), ..usual(1.2) },
        Sampling { min_p: Some(0.2), ..usual(1.4) },
        Sampling { presence_penalty: 0.5, frequency_penalty: 0.25, repetition_penalty: 1.3, ..usual(0.0) },
        Sampling { logit_bias: [(7, 1.5), (9, -100.0)].into(), ..usual(0.8) },
    ]
}

#[test]
fn a_captured_token_is_the_token() {
    let ctx = tiny::context();
    let model = model(&ctx);
    let prompts = [vec![1, 2, 3], vec![4], vec![5, 6, 7, 8, 9]];
    let mut seen = Vec::new();
    for sampling in samplings() {
        let tokens = |capture| -> Vec<Vec<Option<i32>>> {
            let steps = generate_batch(&model, &prompts, 20, &sampling, None, capture).unwrap();
            steps.collect::<Result<_, _>>().unwrap()
        };
        let captured = tokens(true);
        assert_eq!(captured, tokens(false));
        assert_eq!((captured.len(), captured[0].len()), (20, 3));
        assert!(!seen.contains(&captured), "two samplings give the same tokens");
        seen.push(captured);
    }
}

#[test]
fn sequences_end_at_their_end_id() {
    let ctx = tiny::context();
    let model = model(&ctx);
    let greedy = Sampling::default();
    let all: Vec<i32> = generate(&model, &[7], 16, &greedy, None).unwrap().collect::<Result<_, _>>().unwrap();
    let end = all[5];
    let first = all.iter().position(|token| *token == end).unwrap();
    let ended = generate(&model, &[7], 16, &greedy, Some(end)).unwrap();
    assert_eq!(ended.collect::<Result<Vec<_>, _>>().unwrap(), all[..=first]);
    let batch = generate_batch(&model, &[vec![7], vec![8]], 16, &greedy, Some(end), true).unwrap();
    let batch: Vec<Vec<Option<i32>>> = batch.collect::<Result<_, _>>().unwrap();
    assert!(batch.iter().skip(first + 1).all(|tokens| tokens[0].is_none()));
    assert_eq!(generate(&model, &[7], 0, &greedy, None).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_continued_is_refused() {
    let ctx = tiny::context();
    let model = model(&ctx);
    let refused = |prompt: &[i32], most| generate(&model, prompt, most, &Sampling::default(), None).err().unwrap();
    assert_eq!(
        refused(&[], 4).to_string(),
        "a prompt must have at least one token; the one that begins a text is enough"
    );
    assert_eq!(refused(&[1], 65).to_string(), "65 tokens are more than this model takes (64)");
    assert_eq!(refused(&[1], usize::MAX).exit_code(), 3);
    let Error::Device(error) = refused(&[1, 48], 4) else { panic!("the device finds ids that are no tokens") };
    assert_eq!(error.status(), Some(Status::OutOfRange));
    assert_eq!([room(&model, 1), room(&model, 64), room(&model, 90)], [64, 1, 0]);
    let tokens = generate(&model, &[1], room(&model, 1), &Sampling::default(), None).unwrap();
    assert_eq!(tokens.collect::<Result<Vec<_>, _>>().unwrap().len(), 64);
    let wrong = |sampling: Sampling| generate(&model, &[1], 4, &sampling, None).err().unwrap().to_string();
    assert_eq!(
        wrong(Sampling { temperature: -1.0, ..Sampling::default() }),
        "temperature is -1.0; it must be a finite number, at least 0"
    );
    let bias = Sampling { logit_bias: [(48, 1.0)].into(), ..Sampling::default() };
    assert_eq!(wrong(bias), "logit_bias[0] is 48; it must be 0 to 47");
}

#[test]
fn each_draw_is_another_and_row_r_draws_with_seed_plus_r() {
    let ctx = tiny::context();
    let model = model(&ctx);
    for seed in [0, 41, i64::MAX, -1] {
        let sampling = |seed| Sampling { temperature: 3.0, seed, ..Sampling::default() };
        let prompts = vec![vec![4, 5]; 3];
        let together =
            generate_batch(&model, &prompts, 1, &sampling(seed), None, true).unwrap().next().unwrap().unwrap();
        for (row, token) in together.into_iter().enumerate() {
            let alone = sampling(seed.wrapping_add(row as i64));
            let alone = generate(&model, &prompts[row], 1, &alone, None).unwrap().next().unwrap().unwrap();
            assert_eq!(Some(alone), token, "seed {seed}, row {row}");
        }
    }
}

#[test]
fn tensors_of_other_shapes_are_refused() {
    let ctx = tiny::context();
    let model = model(&ctx);
    let zeros = |shape: &[usize]| ctx.zeros(shape, nn_ffi::DType::I32).unwrap();
    let refused = |shape: &[usize]| model.forward(&zeros(shape)).unwrap_err().to_string();
    assert_eq!(refused(&[4]), "ids have shape [4]; they must be [batch, length]");
    assert_eq!(refused(&[0, 4]), "ids have shape [0, 4]; they must hold at least one token");
    assert!(model.evaluate(&zeros(&[2, 4]), &zeros(&[1, 4])).is_err());
    let mut cache = model.cache(2, 8).unwrap();
    let logits = ctx.zeros(&[1, 48], nn_ffi::DType::F32).unwrap();
    assert_eq!(
        model.prefill(&[1], &mut cache, 2, &logits).unwrap_err().to_string(),
        "sequence 2 of a cache for 2 sequences"
    );
    assert!(model.prefill(&[], &mut cache, 0, &logits).unwrap_err().to_string().contains("at least one token"));
    model.prefill(&[1, 2, 3], &mut cache, 0, &logits).unwrap();
    assert_eq!(
        model.prefill(&[1], &mut cache, 0, &logits).unwrap_err().to_string(),
        "sequence 0 has 3 tokens; a prompt needs an empty one"
    );
    assert_eq!(
        model.prefill(&[1; 9], &mut cache, 1, &logits).unwrap_err().to_string(),
        "sequence 1 would have 9 tokens; the cache has room for 8"
    );
}
