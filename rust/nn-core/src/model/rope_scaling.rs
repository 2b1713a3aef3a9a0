//! How the rotary embedding of a model is scaled: what its frequencies are divided by, rounded to f32.
//!
//! Python, Go and Rust compute these numbers in f64 and round them once, so that they have the same bits.

use std::borrow::Cow;
use std::f64::consts::PI;

use super::families::says_no;
use crate::error::Result;
use crate::format::{Table, Value};
use crate::options::refuse;

/// What the frequency of a pair that is not rotated is divided by: its angle is too small to change an f32.
pub(super) const UNROTATED: f32 = 3e38;

/// The options of the rotary embedding in a config.json: transformers 5 writes rope_parameters, earlier ones wrote
/// rope_scaling for stretched models, which stands above the former where both are there. None of them: no options.
///
/// Fails where one is no object. What Python takes for false is none: 0, too.
pub(super) fn rope_options<'v>(get: impl Fn(&str) -> Option<Cow<'v, Value>>) -> Result<Table> {
    for name in ["rope_scaling", "rope_parameters"] {
        if let Some(found) = get(name).filter(|value| !says_no(value) && value.as_number() != Some(0.0)) {
            return found.as_table().cloned().ok_or_else(|| refuse(name, &found, "an object"));
        }
    }
    Ok(Table::new())
}

/// What the frequencies of Llama 3.1 are divided by, a number a pair, rounded to f32.
///
/// Waves shorter than original/high stay, those longer than original/low are stretched by `factor`, between them the
/// frequency goes over linearly in original/wavelength. (Dubey et al. 2024, and its reference code;
/// <https://github.com/meta-llama/llama-models>)
pub(super) fn llama3_divisors(
    base: f64,
    head_dim: usize,
    factor: f64,
    [low, high]: [f64; 2],
    original_context: f64,
) -> Vec<f32> {
    let divisor = |pair: usize| {
        let turns = original_context * base.powf(-2.0 * pair as f64 / head_dim as f64) / (2.0 * PI);
        let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        (1.0 / ((1.0 - share) / factor + share)) as f32
    };
    (0..head_dim / 2).map(divisor).collect()
}

/// What YaRN divides the frequencies by, a number a pair, rounded to f32.
///
/// Pairs that turn more than `fast` times in the original context stay, those that turn less than `slow` times are stretched
/// by `factor`, between them the frequency goes over linearly in the pair's number. `truncate` moves both ends to whole
/// numbers. (Peng et al. 2023, "YaRN", 3.2, and its reference code)
pub(super) fn yarn_divisors(
    base: f64,
    head_dim: usize,
    factor: f64,
    [fast, slow]: [f64; 2],
    original_context: f64,
    truncate: bool,
) -> Vec<f32> {
    let end = |turns: f64| head_dim as f64 * (original_context / (turns * 2.0 * PI)).ln() / (2.0 * base.ln());
    let (mut first, mut last) = (end(fast), end(slow));
    if truncate {
        (first, last) = (first.floor(), last.ceil());
    }
    (first, last) = (first.max(0.0), last.min((head_dim - 1) as f64));
    let width = if last == first { 0.001 } else { last - first };
    let divisor = |pair: usize| {
        let stretched = ((pair as f64 - first) / width).clamp(0.0, 1.0);
        (1.0 / (stretched / factor + (1.0 - stretched))) as f32
    };
    (0..head_dim / 2).map(divisor).collect()
}

/// What YaRN multiplies cosines and sines with. (Peng et al. 2023, eq. 22)
pub(super) fn yarn_magnitude(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}

/// What LongRoPE multiplies cosines and sines with, rounded to f32. (Ding et al. 2024, "LongRoPE", and Phi-3's reference
/// code)
pub(super) fn longrope_magnitude(factor: f64, original_context: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { rounded((1.0 + factor.ln() / original_context.ln()).sqrt()) }
}

/// The base with which whole heads have the frequencies of their `part` first elements, rounded to f32.
pub(super) fn base_of_part(base: f64, head_dim: usize, part: usize) -> f64 {
    if part == head_dim { base } else { rounded(base.powf(head_dim as f64 / part as f64)) }
}

/// The nearest f32.
pub(super) fn rounded(value: f64) -> f64 {
    f64::from(value as f32)
}
