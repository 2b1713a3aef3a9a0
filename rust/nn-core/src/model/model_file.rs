//! A GGUF file in f32, f16 or bf16 as weights of which all are trained.

use std::ops::Range;
use std::path::Path;

use super::config::MoEConfig;
use super::mixtral::Weights;
use super::stored::StoredModel;
use super::trainable::{config_of_all, half_split};
use crate::error::{Error, Result};
use crate::format::StoredTensor;
use crate::tokenizer::CarriedTokenizer;

/// A GGUF file, opened: all of it checked except the values of the tensors, nothing loaded yet. Heads of queries and keys whose
/// pairs lie side by side are read with half-split pairs, the order of folders.
#[derive(Debug)]
pub struct ModelFile {
    stored: StoredModel,
    config: MoEConfig,
}

impl ModelFile {
    /// Opens a file. `Error::Format` when it is of a model that does not train, or has weights in blocks, of which nothing knows
    /// what they were rounded from.
    pub fn open(path: &Path) -> Result<Self> {
        let stored = StoredModel::open(path)?;
        let config = config_of_all(stored.config()).map_err(|error| error.in_file(path))?;
        for (name, _) in stored.config().shapes() {
            let part = &stored.tensors().parts(&name)?[0];
            if part.format.dtype().is_none() {
                let (name, format) = (&part.name, part.format.name);
                return Err(Error::format(
                    path,
                    format!(
                        "tensor {name} is in {format}; all weights are trained of files in f32, f16 or bf16: give one of these, \
                         or --lora-rank for an adapter beside this one"
                    ),
                ));
            }
        }
        Ok(Self { stored, config })
    }

    /// The model as the file has it.
    pub fn stored(&self) -> &StoredModel {
        &self.stored
    }

    /// The model's options as of one that trains.
    pub fn config(&self) -> &MoEConfig {
        &self.config
    }

    /// The tokenizer of the file, as folders have one. `Error::Format` when it is wrong.
    pub fn tokenizer(&self) -> Result<CarriedTokenizer> {
        match (self.stored.tokenizer()?, self.stored.file()) {
            (Some(tokenizer), Some(file)) => CarriedTokenizer::of_gguf(&tokenizer, file.metadata(), self.stored.path()),
            _ => Ok(CarriedTokenizer::none()),
        }
    }

    /// A parameter by its name in the layout.
    fn part(&self, name: &str) -> Result<StoredTensor> {
        let tensors = self.stored.tensors();
        let of_expert = name.split_once(".experts.").and_then(|(mixture, rest)| {
            let (number, matrix) = rest.split_once('.')?;
            Some((format!("{mixture}.{matrix}"), number.parse::<usize>().ok()?))
        });
        let Some((whole, number)) = of_expert else {
            return half_split(self.stored.config(), name, &tensors.parts(name)?[0]);
        };
        let [one] = tensors.parts(&whole)? else {
            return Ok(tensors.parts(&whole)?[number].clone());
        };
        let size = one.byte_count() / one.shape[0];
        let data = one.bytes()?.slice(number * size..(number + 1) * size).ok_or_else(|| missing(name))?;
        Ok(StoredTensor { shape: one.shape[1..].to_vec(), data, made: None, ..one.clone() })
    }
}

fn missing(name: &str) -> Error {
    Error::value(format!("there is no tensor {name}"))
}

impl Weights for ModelFile {
    fn check_dtypes(&self) -> Result<()> {
        Ok(()) // since it was opened
    }

    fn read_part(&self, name: &str, part: Range<usize>) -> Result<Vec<f32>> {
        let whole = self.part(name)?;
        let size = whole.format.bytes;
        let data = whole.bytes()?.slice(part.start * size..part.end * size).ok_or_else(|| missing(name))?;
        StoredTensor { data, made: None, ..whole }.f32()
    }

    fn read_bytes(&self, name: &str) -> Result<Vec<u8>> {
        Ok(self.part(name)?.bytes()?.to_vec())
    }
}
