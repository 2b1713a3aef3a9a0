//! A run that has diverged: where it began, and the sentence that says so.

use super::data::Batch;
use super::trainer::Trainer;
use crate::error::{Error, Result};
use crate::model::{BadOutput, ParameterSpec, host_values};

const ADVICE: &str = "the last checkpoint is from before that. A lower learning rate or a longer warm-up usually helps";

/// The error of a loss or gradients that are not finite, with where that began: found by running the batch of that step
/// again, call by call. `reported` stands for the loss when the search itself fails.
pub(super) fn not_finite(trainer: &mut Trainer, batch: Result<Batch>, step: usize, reported: f64) -> Error {
    let found = batch.and_then(|batch| Ok((trainer.gradients_again(&batch)?, origin(trainer, &batch)?)));
    let (loss, origin) =
        found.unwrap_or_else(|error| (reported, format!("where it began could not be found ({error:#})")));
    Error::Diverged(format!("the loss is {:?} at step {step}: {origin}; {ADVICE}", loss as f32))
}

/// The error of a reported loss that is finite and above the limit. Looks at the gradients of the last step.
pub(super) fn too_large(trainer: &Trainer, loss: f64, step: usize, limit: f64) -> Result<Error> {
    let largest = largest_gradient(trainer)?;
    let (loss, limit) = (loss as f32, limit as f32); // whose digits are few
    Ok(Error::Diverged(format!("the loss is {loss:?} at step {step}, above max_loss ({limit:?}): {largest}; {ADVICE}")))
}

/// What is not finite first, in the order in which a step makes it: weights, outputs of layers, gradients.
fn origin(trainer: &Trainer, batch: &Batch) -> Result<String> {
    let model = trainer.model();
    for spec in model.layout().specs() {
        if let Some(place) = bad_element(spec, &host_values(&model.weights().get(&spec.name)?)?) {
            return Ok(format!("{} is not finite, first at {place}", spec.name));
        }
    }
    let micro = trainer.config().micro_batch_size.unwrap_or(batch.rows).max(1);
    for (number, ids) in batch.inputs.chunks(micro * batch.length).enumerate() {
        let ids = model.context().tensor(ids, &[ids.len() / batch.length, batch.length])?;
        if let Some(BadOutput { layer, token, channel, value }) = model.find_bad_output(&ids)? {
            let place = layer.map_or("the logits are".into(), |layer| format!("the output of {layer} is"));
            let token = number * micro * batch.length + token;
            return Ok(format!("{place} not finite, first at token {token}, channel {channel} ({value})"));
        }
    }
    for spec in backward_order(model.layout().specs(), model.config().num_layers) {
        if let Some(place) = bad_element(spec, &host_values(&model.gradients()?.get(&spec.name)?)?) {
            return Ok(format!("the gradient of {} is not finite, first at {place}", spec.name));
        }
    }
    largest_gradient(trainer)
}

/// The first element that is not finite, by its place in the parameter's shape and its value.
fn bad_element(spec: &ParameterSpec, values: &[f32]) -> Option<String> {
    let at = values.iter().position(|value| !value.is_finite())?;
    let mut index = Vec::with_capacity(spec.shape.len());
    let mut rest = at;
    for size in spec.shape.iter().rev() {
        index.insert(0, rest % size);
        rest /= size;
    }
    Some(format!("{index:?} ({})", values[at]))
}

/// The parameters in the order in which backward makes their gradients; those of a layer in the order of the arena.
fn backward_order(specs: &[ParameterSpec], layers: usize) -> impl Iterator<Item = &ParameterSpec> {
    let of_layers = (0..layers).rev().map(|layer| format!("model.layers.{layer}."));
    let prefixes = ["lm_head.".into(), "model.norm.".into()].into_iter().chain(of_layers);
    prefixes
        .chain(["model.embed_tokens.".into()])
        .flat_map(move |prefix: String| specs.iter().filter(move |spec| spec.name.starts_with(&prefix)))
}

/// The parameter whose gradient has the largest norm, the loss scale divided out; of equals the first in the arena.
fn largest_gradient(trainer: &Trainer) -> Result<String> {
    let gradients = trainer.model().gradients()?;
    let mut largest: Option<(&str, f64)> = None;
    for spec in trainer.model().layout().specs() {
        let values = host_values(&gradients.get(&spec.name)?)?;
        let norm = values.into_iter().map(|value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt();
        if largest.is_none_or(|(_, most)| norm > most) {
            largest = Some((&spec.name, norm));
        }
    }
    let (name, norm) = largest.unwrap_or_default();
    let norm = norm / trainer.last_loss_scale()?.unwrap_or(1.0);
    Ok(format!("the largest gradient is that of {name} (norm {norm:.1e})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MoEConfig, ParameterLayout};

    #[test]
    fn gradients_are_looked_at_as_backward_makes_them() {
        let config = MoEConfig { num_layers: 11, num_experts: 1, experts_per_token: 1, ..MoEConfig::default() };
        let layout = ParameterLayout::new(&config).unwrap();
        let order: Vec<&str> = backward_order(layout.specs(), 11).map(|spec| spec.name.as_str()).collect();
        let first = ["lm_head.weight", "model.norm.weight", "model.layers.10.self_attn.q_proj.weight"];
        assert_eq!((&order[..3], order.len()), (&first[..], layout.specs().len()));
        assert_eq!(
            order[10..12],
            ["model.layers.10.input_layernorm.weight", "model.layers.10.post_attention_layernorm.weight"]
        );
        assert_eq!(
            order[order.len() - 2..],
            ["model.layers.0.post_attention_layernorm.weight", "model.embed_tokens.weight"]
        );
    }

    #[test]
    fn elements_are_named_by_their_place() {
        let spec = ParameterSpec { name: "a".into(), shape: vec![2, 3], offset: 7 };
        assert_eq!(bad_element(&spec, &[0.0, 1.0, 2.0, 3.0, f32::NEG_INFINITY, f32::NAN]).unwrap(), "[1, 1] (-inf)");
        assert_eq!(bad_element(&spec, &[f32::MAX; 6]), None);
    }
}
