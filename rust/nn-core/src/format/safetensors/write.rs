//! Writing safetensors files: the header by the `safetensors` crate, then each tensor in its place, so that several ranks may
//! write one file together.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use safetensors::tensor::{Metadata, TensorInfo};

use super::Dtype;
use crate::error::{Error, Result};
use crate::format::{Table, Value, atomic};

/// Weights are cut into several files from this size on.
pub const DEFAULT_SHARD_BYTES: u64 = 5_000_000_000;

/// Headers are as long as a multiple of this.
const ALIGNMENT: usize = 8;

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
    /// Which of its elements are written here, row-major, and what gives them; other ranks have the rest.
    pub parts: Vec<(Range<usize>, ReadBytes<'a>)>,
}

impl Source<'_> {
    fn bytes(&self) -> u64 {
        self.shape.iter().product::<usize>() as u64 * self.dtype.size
    }

    fn code(&self) -> safetensors::Dtype {
        match self.dtype.code {
            "F16" => safetensors::Dtype::F16,
            "BF16" => safetensors::Dtype::BF16,
            "U8" => safetensors::Dtype::U8,
            _ => safetensors::Dtype::F32, // no other is made, see Dtype::of
        }
    }
}

/// A file of tensors, as they will lie in it: the same for all ranks.
struct Layout<'a> {
    /// What stands before the tensors.
    header: Vec<u8>,
    /// Each with the place of its first byte.
    tensors: Vec<(&'a Source<'a>, u64)>,
    bytes: u64,
}

impl<'a> Layout<'a> {
    /// Tensors in the order of the crate's own files: the widest dtypes first, then by name.
    fn new(path: &Path, tensors: &'a [Source<'a>], format: Option<&str>) -> Result<Self> {
        let wrong = |problem: &dyn std::fmt::Display| Error::format(path, format!("cannot be written: {problem}"));
        let mut sorted: Vec<_> = tensors.iter().collect();
        sorted.sort_by(|left, right| right.code().cmp(&left.code()).then_with(|| left.name.cmp(&right.name)));
        let (mut end, mut entries) = (0, Vec::with_capacity(sorted.len()));
        for source in &sorted {
            let begin = end;
            end += source.bytes() as usize;
            let shape = source.shape.clone();
            let info = TensorInfo { dtype: source.code(), shape, data_offsets: (begin, end) };
            entries.push((source.name.clone(), info));
        }
        let begins: Vec<_> = entries.iter().map(|(_, info)| info.data_offsets.0).collect();
        let metadata = format.map(|format| HashMap::from([("format".to_owned(), format.to_owned())]));
        let metadata = Metadata::new(metadata, entries).map_err(|error| wrong(&error))?;
        let mut text = serde_json::to_vec(&metadata).map_err(|error| wrong(&error))?;
        text.resize(text.len().next_multiple_of(ALIGNMENT), b' ');
        let header = [&(text.len() as u64).to_le_bytes()[..], &text].concat();
        let first = header.len();
        let tensors = sorted.into_iter().zip(begins).map(|(source, begin)| (source, (first + begin) as u64)).collect();
        Ok(Self { header, tensors, bytes: (first + end) as u64 })
    }
}

/// Makes a file for tensors, with its header and as long as it will be.
pub fn lay_out_safetensors(path: &Path, tensors: &[Source<'_>], format: Option<&str>) -> Result<()> {
    let layout = Layout::new(path, tensors, format)?;
    let make = || {
        let mut file = File::create(path)?;
        file.write_all(&layout.header)?;
        file.set_len(layout.bytes)
    };
    make().map_err(|error| Error::io(path, error))
}

/// Writes what is to be written here of tensors into the file that was made for them, and syncs it.
pub fn fill_safetensors(path: &Path, tensors: &[Source<'_>], format: Option<&str>) -> Result<()> {
    let failed = |error| Error::io(path, error);
    let file = File::options().write(true).open(path).map_err(failed)?;
    for (source, begin) in Layout::new(path, tensors, format)?.tensors {
        for (elements, read) in &source.parts {
            let place = begin + elements.start as u64 * source.dtype.size;
            file.write_all_at(&read()?, place).map_err(failed)?;
        }
    }
    file.sync_all().map_err(failed)
}

/// Writes tensors of f32, f16, bf16 and u8: the same tensors give the same bytes. The caller sees to atomicity.
///
/// `format` is the one entry of metadata that may be given.
pub fn write_safetensors(path: &Path, tensors: &[Source<'_>], format: Option<&str>) -> Result<()> {
    lay_out_safetensors(path, tensors, format)?;
    fill_safetensors(path, tensors, format)
}

/// `format` of a folder's files.
const FORMAT: Option<&str> = Some("pt");

/// The files of a folder: one, or shards of at most `most_bytes` when that would be larger. A tensor that is larger than a
/// shard gets a shard of its own.
fn files<'a, 's>(tensors: &'a [Source<'s>], most_bytes: u64) -> Vec<(String, &'a [Source<'s>])> {
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
    let count = shards.len();
    let name = |number: usize| match count {
        1 => "model.safetensors".into(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
    };
    shards.into_iter().enumerate().map(|(number, shard)| (name(number), shard)).collect()
}

/// Makes `model.safetensors`, or shards of at most `most_bytes` with their index when one would be larger, as
/// [`lay_out_safetensors`] does.
pub fn lay_out_safetensors_folder(folder: &Path, tensors: &[Source<'_>], most_bytes: u64) -> Result<()> {
    let files = files(tensors, most_bytes);
    for (name, shard) in &files {
        lay_out_safetensors(&folder.join(name), shard, FORMAT)?;
    }
    if files.len() == 1 {
        return Ok(());
    }
    let homes = files
        .iter()
        .flat_map(|(name, shard)| shard.iter().map(move |tensor| (tensor.name.clone(), Value::from(name.as_str()))));
    let total: u64 = tensors.iter().map(Source::bytes).sum();
    let index = Value::Table(Table::from([
        ("metadata", Value::Table(Table::from([("total_size", total.into())]))),
        ("weight_map", Value::Table(homes.collect())),
    ]));
    let path = folder.join("model.safetensors.index.json");
    atomic::write_file(&path, index.to_json_lines().as_bytes())
}

/// Fills these, as [`fill_safetensors`] does.
pub fn fill_safetensors_folder(folder: &Path, tensors: &[Source<'_>], most_bytes: u64) -> Result<()> {
    files(tensors, most_bytes).iter().try_for_each(|(name, shard)| fill_safetensors(&folder.join(name), shard, FORMAT))
}

#[cfg(test)]
mod tests {
    use super::super::{BF16, F16, F32, U8};
    use super::*;

    /// The file of the crate, and of the ranks that share its elements out, are one.
    #[test]
    fn parts_together_are_the_file_of_the_crate() {
        let tensors = [
            ("b", F32, vec![5, 2]),
            ("codes", U8, vec![7]),
            ("a", F32, vec![]),
            ("half", BF16, vec![3]),
            ("f16", F16, vec![5]),
            ("none", F32, vec![0]),
        ];
        let bytes =
            |name: &str, count: usize| -> Vec<u8> { (0..count).map(|at| name.len() as u8 * 31 + at as u8).collect() };
        // Of four pieces each rank has some.
        let sources = |own: &[usize]| -> Vec<Source<'_>> {
            let source = |(name, dtype, shape): &(&str, Dtype, Vec<usize>)| {
                let count: usize = shape.iter().product();
                let part = |piece: &usize| {
                    let (own, size) = (count * piece / 4..count * (piece + 1) / 4, dtype.size as usize);
                    let read = bytes(name, count * size)[own.start * size..own.end * size].to_vec();
                    let read: ReadBytes<'_> = Box::new(move || Ok(read.clone()));
                    (own, read)
                };
                let parts = own.iter().map(part).collect();
                Source { name: (*name).to_owned(), shape: shape.clone(), dtype: *dtype, parts }
            };
            tensors.iter().map(source).collect()
        };
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("together");
        let own: [&[usize]; 3] = [&[0, 2], &[], &[1, 3]];
        lay_out_safetensors(&path, &sources(own[0]), Some("pt")).unwrap();
        own.iter().for_each(|own| fill_safetensors(&path, &sources(own), Some("pt")).unwrap());
        let whole: Vec<_> = sources(&[0, 1, 2, 3])
            .into_iter()
            .map(|source| {
                let bytes = source.parts.iter().flat_map(|(_, read)| read().unwrap()).collect::<Vec<_>>();
                (source.name.clone(), source.code(), source.shape.clone(), bytes)
            })
            .collect();
        let views = whole.iter().map(|(name, dtype, shape, bytes)| {
            (name, safetensors::tensor::TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        assert_eq!(std::fs::read(&path).unwrap(), safetensors::serialize(views, Some(metadata)).unwrap());
    }
}
