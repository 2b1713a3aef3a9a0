//! Writing adapters, as folders of PEFT and as GGUF files. The same adapter gives the same bytes.

use std::collections::BTreeSet;
use std::path::Path;

use super::adapter::{Adapter, CONFIG, PREFIX, WEIGHTS, adapter_values};
use super::adapter_gguf::{ALPHA, KIND, TYPE, interleaved_order, is_rotated};
use super::families::Family;
use super::gguf_names::gguf_name;
use super::llama::LlamaConfig;
use super::low_rank::LowRankOptions;
use crate::error::{Error, Result};
use crate::format::gguf::{ARCHITECTURE_KEY, MetadataValue, ValueType, write_gguf};
use crate::format::safetensors::{Dtype, Source, write_safetensors};
use crate::format::value::general;
use crate::format::{StoredTensor, Value, atomic};

impl Adapter {
    /// Writes a folder of PEFT, which must not exist, in one step, each factor in its format. `base` is what is said of the model
    /// that it belongs to.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for a scale that such files have no number for, [`Error::Exists`] and [`Error::Io`].
    pub fn write_folder(&self, path: &Path, base: &str) -> Result<()> {
        let alpha = f64::from(self.alpha());
        if alpha.is_infinite() {
            let problem = "the adapter's scale * rank is too large for f32, in which lora_alpha is written";
            return Err(Error::value(problem));
        }
        let modules = || self.factors().iter().map(|(name, pair)| (name.strip_suffix(".weight").unwrap_or(name), pair));
        let targets: BTreeSet<&str> = modules().filter_map(|(module, _)| module.rsplit('.').next()).collect();
        let targets = targets.into_iter().map(str::to_owned).collect();
        let values = adapter_values(&LowRankOptions { rank: self.rank(), alpha, targets }, base);
        let factors = modules().flat_map(|(module, pair)| [(module, "A", &pair.a), (module, "B", &pair.b)]);
        let factors = factors.map(|(module, which, factor)| Source {
            name: format!("{PREFIX}{module}.lora_{which}.weight"),
            shape: factor.shape.clone(),
            dtype: Dtype::of(factor.format.dtype().unwrap_or_default()), // none is in blocks
            parts: vec![(0..factor.elements(), Box::new(move || Ok(factor.bytes()?.to_vec())))],
        });
        let factors: Vec<Source<'_>> = factors.collect();
        atomic::write_folder(path, |folder| {
            let config = folder.join(CONFIG);
            let text = Value::Table(values).to_json_lines();
            std::fs::write(&config, text).map_err(|error| Error::io(config, error))?;
            write_safetensors(&folder.join(WEIGHTS), &factors, Some("pt"))
        })
    }

    /// Writes a GGUF file for llama.cpp, of an adapter of a model with that configuration, in one step, each factor in its format;
    /// a file that is there is replaced.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for a scale that such files have no number for, and [`Error::Io`].
    pub fn write_gguf(&self, path: &Path, config: &LlamaConfig) -> Result<()> {
        let alpha = f64::from(self.alpha());
        if alpha.is_infinite() || alpha == 0.0 {
            let scale = general(self.scale(), 6);
            let problem = format!("the adapter's scale is {scale}; a GGUF file has scale * rank in f32, other than 0");
            return Err(Error::value(problem));
        }
        let Some(family) = Family::named(config.family) else {
            unreachable!("a configuration has one of the families")
        };
        let text = |text: &str| MetadataValue::One(ValueType::String, text.into());
        let metadata = [
            (ARCHITECTURE_KEY, text(family.architectures[0])),
            (TYPE, text("adapter")),
            (KIND, text("lora")),
            (ALPHA, MetadataValue::One(ValueType::F32, alpha.into())),
        ];
        let order = interleaved_order(config.head_dim);
        let mut factors = Vec::new();
        for (name, _) in config.shapes() {
            let Some(pair) = self.factors().get(&name) else { continue };
            let turned = family.interleaved && is_rotated(&name);
            let b = if turned { pair.b.rows_in_order(&order)? } else { pair.b.clone() };
            for (which, factor) in [("a", pair.a.clone()), ("b", b)] {
                factors.push(StoredTensor { name: format!("{}.lora_{which}", gguf_name(&name)), ..factor });
            }
        }
        write_gguf(path, &metadata, &factors)
    }
}
