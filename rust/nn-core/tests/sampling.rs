//! Strategies of drawing tokens, and draws that are replayed.

#[path = "../../nn-ffi/tests/device/mod.rs"]
mod device;

use nn_core::Result;
use nn_core::generate::{DecodingStrategy, Sampler};
use nn_core::replay::Replay;
use nn_ffi::{Context, DType, Tensor, kernels};

const ROWS: usize = 3;
const VOCAB: usize = 50;

fn logits(context: &Context) -> Result<Tensor> {
    let logits = context.empty(&[ROWS, VOCAB], DType::F32)?;
    kernels::normal(&logits, 0.0, 2.0, 11, 0, 0)?;
    Ok(logits)
}

/// Draws some tokens a row, and replays a graph for all but the first two when asked to.
fn tokens(strategy: DecodingStrategy, seed: i64, capture: bool) -> Result<Vec<i32>> {
    let context = device::context();
    let (logits, ids) = (logits(&context)?, context.zeros(&[ROWS], DType::I32)?);
    let sampler = Sampler::new(&context, strategy, seed, ROWS)?;
    let mut replay = Replay::new(&context, capture);
    let mut all = Vec::new();
    for _ in 0..20 {
        replay.run(false, || sampler.draw(&logits, &ids))?;
        all.extend(ids.to_vec::<i32>()?);
    }
    assert_eq!(replay.is_captured(), capture);
    Ok(all)
}

fn strategies() -> [DecodingStrategy; 5] {
    [
        DecodingStrategy::Greedy,
        DecodingStrategy::Sample { temperature: 1.3 },
        DecodingStrategy::TopK { temperature: 1.3, k: 5 },
        DecodingStrategy::TopP { temperature: 1.3, p: 0.7, k: None },
        DecodingStrategy::TopP { temperature: 1.3, p: 0.7, k: Some(3) },
    ]
}

#[test]
fn the_same_seed_gives_the_same_tokens_captured_or_not() -> Result<()> {
    for strategy in strategies() {
        let eager = tokens(strategy, 5, false)?;
        assert_eq!(tokens(strategy, 5, true)?, eager, "{strategy:?}");
        let greedy = strategy == DecodingStrategy::Greedy;
        assert_eq!(tokens(strategy, 6, false)? == eager, greedy, "{strategy:?}: another seed draws other tokens");
        assert_eq!(eager.chunks(ROWS).all(|step| step == &eager[..ROWS]), greedy, "{strategy:?}: each draw is another");
    }
    Ok(())
}

#[test]
fn row_r_draws_as_a_sampler_of_seed_plus_r() -> Result<()> {
    let context = device::context();
    let logits = logits(&context)?;
    let draw = |seed: i64, rows: &Tensor| -> Result<Vec<i32>> {
        let ids = context.zeros(&[rows.shape()[0]], DType::I32)?;
        let sampler = Sampler::new(&context, DecodingStrategy::Sample { temperature: 1.0 }, seed, rows.shape()[0])?;
        sampler.draw(rows, &ids)?;
        sampler.draw(rows, &ids)?;
        Ok(ids.to_vec()?)
    };
    for seed in [0, 41, i64::MAX, -1] {
        let together = draw(seed, &logits)?;
        for row in 0..ROWS {
            let alone = draw(seed.wrapping_add(row as i64), &logits.narrow(0, row, 1)?)?;
            assert_eq!(alone, together[row..=row], "seed {seed}, row {row}");
        }
    }
    Ok(())
}

#[test]
fn numbers_make_strategies() {
    use DecodingStrategy as Strategy;
    let made = |temperature, k, p| Strategy::new(temperature, k, p).map_err(|error| error.to_string());
    assert_eq!(made(0.0, Some(3), Some(0.5)), Ok(Strategy::Greedy));
    assert_eq!(made(1.0, None, None), Ok(Strategy::Sample { temperature: 1.0 }));
    assert_eq!(made(0.7, Some(3), None), Ok(Strategy::TopK { temperature: 0.7, k: 3 }));
    assert_eq!(made(0.7, Some(3), Some(0.9)), Ok(Strategy::TopP { temperature: 0.7, p: 0.9, k: Some(3) }));
    assert_eq!(made(-1.0, None, None), Err("temperature is -1; it must be a finite number, at least 0".to_owned()));
    assert!(made(f64::NAN, None, None).is_err() && made(f64::INFINITY, None, None).is_err());
    assert_eq!(made(1.0, Some(0), None), Err("top_k is 0; it must be at least 1".to_owned()));
    assert!(made(1.0, Some(1 << 31), None).is_err());
    assert_eq!(made(1.0, None, Some(1.5)), Err("top_p is 1.5; it must be above 0, at most 1".to_owned()));
    assert!(made(1.0, None, Some(0.0)).is_err() && made(1.0, None, Some(f64::NAN)).is_err());
}
