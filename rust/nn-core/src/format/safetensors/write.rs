//! Writing safetensors files, by the `safetensors` crate.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;

use super::Dtype;
use crate::error::{Error, Result};
use crate::format::{Table, Value, atomic};

/// Weights are cut into several files from this size on.
pub const DEFAULT_SHARD_BYTES: u64 = 5_000_000_000;

/// Reads the bytes of a tensor that is to be written, little-endian.
pub type ReadBytes<'a> = Box<dyn Fn() -> Result<Vec<u8>> + 'a>;

/// A tensor to write: its values are asked for when its turn comes, so that they never all lie on the host.
pub struct Source<'a> {
    /// Name in the file.
    pub name: String,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Element type.
    pub dtype: Dtype,
    /// Gives its elements, row-major.
    pub read: ReadBytes<'a>,
}

impl Source<'_> {
    fn bytes(&self) -> u64 {
        self.shape.iter().product::<usize>() as u64 * self.dtype.size
    }
}

struct Written<'a> {
    source: &'a Source<'a>,
    failure: &'a RefCell<Option<Error>>,
}

impl safetensors::View for Written<'_> {
    fn dtype(&self) -> safetensors::Dtype {
        match self.source.dtype.code {
            "BF16" => safetensors::Dtype::BF16,
            "U8" => safetensors::Dtype::U8,
            _ => safetensors::Dtype::F32, // no other is made, see Dtype::of
        }
    }

    fn shape(&self) -> &[usize] {
        &self.source.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned((self.source.read)().unwrap_or_else(|error| {
            self.failure.replace(Some(error));
            Vec::new()
        }))
    }

    fn data_len(&self) -> usize {
        self.source.bytes() as usize
    }
}

/// Writes tensors of f32, bf16 and u8: the same tensors give the same bytes. The caller sees to atomicity.
///
/// `format` is the one entry of metadata that may be given.
pub fn write_safetensors(path: &Path, tensors: &[Source<'_>], format: Option<&str>) -> Result<()> {
    let failure = RefCell::new(None);
    let views = tensors.iter().map(|source| (source.name.as_str(), Written { source, failure: &failure }));
    let metadata = format.map(|format| HashMap::from([("format".to_owned(), format.to_owned())]));
    let failed = |error| Error::io(path, error);
    // The crate puts a file of its own, which its owner alone may read, in this one's place.
    let made = File::options().append(true).create(true).open(path).map_err(failed)?;
    let permissions = made.metadata().map_err(failed)?.permissions();
    let written = safetensors::serialize_to_file(views, metadata, path);
    if let Some(error) = failure.take() {
        return Err(error);
    }
    written.map_err(|error| match error {
        safetensors::SafeTensorError::IoError(error) => failed(error),
        other => Error::format(path, format!("cannot be written: {other}")),
    })?;
    fs::set_permissions(path, permissions).map_err(failed)
}

/// Writes `model.safetensors`, or shards of at most `most_bytes` with their index when one would be larger.
///
/// A tensor that is larger than a shard gets a shard of its own.
pub fn write_safetensors_folder(folder: &Path, tensors: &[Source<'_>], most_bytes: u64) -> Result<()> {
    let mut shards: Vec<&[Source<'_>]> = Vec::new();
    let (mut first, mut filled) = (0, 0);
    for (at, tensor) in tensors.iter().enumerate() {
        if at > first && filled + tensor.bytes() > most_bytes {
            shards.push(&tensors[first..at]);
            (first, filled) = (at, 0);
        }
        filled += tensor.bytes();
    }
    shards.push(&tensors[first..]);
    if let [all] = shards[..] {
        return write_safetensors(&folder.join("model.safetensors"), all, Some("pt"));
    }
    let mut weight_map = Vec::new();
    for (number, shard) in shards.iter().enumerate() {
        let file_name = format!("model-{:05}-of-{:05}.safetensors", number + 1, shards.len());
        write_safetensors(&folder.join(&file_name), shard, Some("pt"))?;
        weight_map.extend(shard.iter().map(|tensor| (tensor.name.clone(), Value::from(file_name.as_str()))));
    }
    let total: u64 = tensors.iter().map(Source::bytes).sum();
    let index = Value::Table(Table::from([
        ("metadata", Value::Table(Table::from([("total_size", total.into())]))),
        ("weight_map", Value::Table(weight_map.into_iter().collect())),
    ]));
    let path = folder.join("model.safetensors.index.json");
    atomic::write_file(&path, index.to_json_lines().as_bytes())
}
