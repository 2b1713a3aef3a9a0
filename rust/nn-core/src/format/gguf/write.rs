//! Writing GGUF files: the header with all descriptions, then the bytes of each tensor.

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::super::limits::GGUF_NAME_BYTES;
use super::metadata::DEFAULT_ALIGNMENT;
use super::reader::{MAGIC, MOST_DIMENSIONS};
use super::{MetadataValue, ValueType};
use crate::error::{Error, Result};
use crate::format::value::quoted;
use crate::format::{StoredTensor, Value, atomic};

const VERSION: u32 = 3;

/// Writes a file with these metadata, texts and numbers of f32, and these tensors, both in their order, in one step; it replaces
/// what is there. The same metadata and tensors give the same bytes.
///
/// # Errors
///
/// [`Error::Format`] for what no file can have, before anything is written, and [`Error::Io`].
pub fn write_gguf(path: &Path, metadata: &[(&str, MetadataValue)], tensors: &[StoredTensor]) -> Result<()> {
    let head = header(metadata, tensors).map_err(|error| error.in_file(path))?;
    atomic::write_file_with(path, |file| {
        let failed = |error: io::Error| Error::io(path, error);
        let mut out = BufWriter::new(file);
        out.write_all(&head).map_err(failed)?;
        for tensor in tensors {
            let bytes = tensor.bytes()?;
            out.write_all(&bytes).and_then(|()| out.write_all(&padding(bytes.len()))).map_err(failed)?;
        }
        out.flush().map_err(failed)
    })
}

/// Zeros up to the next place that is aligned.
fn padding(bytes: usize) -> Vec<u8> {
    vec![0; bytes.next_multiple_of(DEFAULT_ALIGNMENT) - bytes]
}

/// What stands before the bytes of the tensors, up to the first of them.
fn header(metadata: &[(&str, MetadataValue)], tensors: &[StoredTensor]) -> Result<Vec<u8>> {
    let mut head = [MAGIC, &VERSION.to_le_bytes()].concat();
    put_size(&mut head, tensors.len());
    put_size(&mut head, metadata.len());
    for (key, value) in metadata {
        put_text(&mut head, key);
        let kind = |kind: ValueType| (kind as u32).to_le_bytes();
        match value {
            MetadataValue::One(ValueType::String, Value::Text(text)) => {
                head.extend(kind(ValueType::String));
                put_text(&mut head, text);
            }
            MetadataValue::One(ValueType::F32, Value::Float(number)) => {
                head.extend(kind(ValueType::F32));
                head.extend((*number as f32).to_le_bytes());
            }
            _ => return Err(Error::value(format!("{key} is neither a text nor a number of f32"))),
        }
    }
    let (mut names, mut offset) = (HashSet::new(), 0);
    for StoredTensor { name, shape, format, .. } in tensors {
        if !names.insert(name) {
            return Err(Error::value(format!("two tensors have the name {}", quoted(name))));
        }
        let (named, sizes) = (1..=GGUF_NAME_BYTES as usize, 1..=MOST_DIMENSIONS as usize);
        if !named.contains(&name.len()) || !sizes.contains(&shape.len()) || shape.contains(&0) {
            let rule = format!("1 to {GGUF_NAME_BYTES} bytes, a shape 1 to {MOST_DIMENSIONS} dimensions of 1 or more");
            return Err(Error::value(format!("tensor {} of shape {shape:?}: a name has {rule}", quoted(name))));
        }
        put_text(&mut head, name);
        head.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|size| put_size(&mut head, *size));
        head.extend(format.gguf_type.to_le_bytes());
        put_size(&mut head, offset);
        let rows: usize = shape.iter().rev().skip(1).product();
        offset += (rows * format.row_bytes(shape[shape.len() - 1])?).next_multiple_of(DEFAULT_ALIGNMENT);
    }
    let padding = padding(head.len());
    head.extend(padding);
    Ok(head)
}

fn put_size(head: &mut Vec<u8>, size: usize) {
    head.extend((size as u64).to_le_bytes());
}

fn put_text(head: &mut Vec<u8>, text: &str) {
    put_size(head, text.len());
    head.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use nn_ffi::HostBytes;

    use super::*;
    use crate::format::Gguf;
    use crate::format::block_formats::BlockFormat;

    fn tensor(name: &str, format: &str, shape: &[usize], bytes: &[u8]) -> StoredTensor {
        let format = BlockFormat::named(format).unwrap();
        let data = HostBytes::joined([bytes]).unwrap();
        StoredTensor { name: name.to_owned(), format, shape: shape.to_vec(), data, made: None }
    }

    #[test]
    fn what_is_written_is_read() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x.gguf");
        let metadata = [
            ("general.type", MetadataValue::One(ValueType::String, "é".into())),
            ("alpha", MetadataValue::One(ValueType::F32, 0.1.into())),
        ];
        let tensors =
            [tensor("b", "bf16", &[3, 1], &[1, 2, 3, 4, 5, 6]), tensor("a", "f32", &[1], &[0, 0, 0x80, 0x3f])];
        write_gguf(&path, &metadata, &tensors).unwrap();
        let file = Gguf::open(&path).unwrap();
        assert_eq!(file.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(file.metadata().plain("general.type"), Some("é".into()));
        assert_eq!(file.metadata().plain("alpha"), Some(f64::from(0.1_f32).into()));
        for tensor in &tensors {
            let found = file.tensor(&tensor.name).unwrap();
            assert_eq!((&found.shape, found.format), (&tensor.shape, tensor.format));
            assert_eq!(found.data[..], tensor.data[..]);
        }
    }

    #[test]
    fn what_no_file_can_have_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x.gguf");
        let one = || tensor("a", "f32", &[1], &[0; 4]);
        for (tensors, problem) in [
            (vec![one(), one()], "two tensors have the name 'a'"),
            (vec![tensor("", "f32", &[1], &[0; 4])], "tensor '' of shape [1]: a name has 1 to 64 bytes"),
            (vec![tensor("a", "f32", &[2, 0], &[])], "tensor 'a' of shape [2, 0]"),
            (vec![tensor("a", "q8_0", &[5], &[])], "a row of 5 elements is not whole blocks of q8_0"),
        ] {
            let refused = write_gguf(&path, &[], &tensors).unwrap_err().to_string();
            assert!(refused.contains(problem), "{refused}");
        }
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
