//! The experts of gpt-oss as its folders have them: gate and up in alternate rows, in one of two forms.
//!
//! What transformers writes is transposed, `[experts, inputs, outputs]` in f32, f16 or bf16. What is published has blocks of 32
//! elements in 4 bits, `[experts, outputs, inputs/32, 16]` bytes with element 2j in the low half of byte j and 2j+1 in the high
//! half, and beside them a byte for the scale of each block, its power of two plus 127 (Open Compute Project 2023, "OCP
//! Microscaling Formats (MX) Specification", 5.4). GGUF files have the same blocks behind their scale, elements j and j+16 in
//! byte j. From both a tensor for each expert is made when it is read.

use std::io;
use std::path::Path;

use nn_ffi::HostBytes;

use super::gguf_names::layer_number;
use super::llama::LlamaConfig;
use super::tensor_names::{Named, check_shape};
use crate::error::{Error, Result};
use crate::format::block_formats::{BlockFormat, Made};
use crate::format::value::quoted;
use crate::format::{SafetensorsFolder, StoredTensor};

/// Elements of a block of mxfp4, and bytes of it without its scale.
const BLOCK: usize = 32;
const PACKED: usize = BLOCK / 2;

/// A matrix of ours in a tensor of a folder: its rows from the first given on, each so-manyth.
#[derive(Clone, Copy, Debug)]
struct Cut {
    own: &'static str,
    first: usize,
    step: usize,
}

const OF_GATE_UP: &[Cut] = &[Cut { own: "w1", first: 0, step: 2 }, Cut { own: "w3", first: 1, step: 2 }];
const OF_DOWN: &[Cut] = &[Cut { own: "w2", first: 0, step: 1 }];

/// The matrices in a tensor of a folder, outputs and inputs of the whole.
fn cuts(config: &LlamaConfig, name: &str) -> Option<(&'static [Cut], usize, usize)> {
    match name {
        "gate_up" => Some((OF_GATE_UP, 2 * config.ffn_size, config.hidden_size)),
        "down" => Some((OF_DOWN, config.hidden_size, config.ffn_size)),
        _ => None,
    }
}

/// The tensors of `LlamaConfig::shapes` that are made of one that transformers writes, `part` of a block; `None` where it is not
/// one of the experts'.
///
/// # Errors
///
/// [`Error::Format`] for a shape that is not the configuration's.
pub(super) fn experts_of_gpt_oss(
    path: &Path,
    config: &LlamaConfig,
    block: &str,
    part: &str,
    tensor: &StoredTensor,
) -> Result<Option<Named>> {
    let split = part.strip_prefix("mlp.experts.").and_then(|rest| rest.split_once("_proj"));
    let Some((name, bias)) = split.filter(|(_, bias)| ["", "_bias"].contains(bias)) else { return Ok(None) };
    let Some((cuts, rows, columns)) = cuts(config, name) else { return Ok(None) };
    let experts = config.num_experts;
    let right = if bias.is_empty() { vec![experts, columns, rows] } else { vec![experts, rows] };
    check_shape(path, tensor, &right)?;
    let cut_short = || Error::format(path, format!("tensor {} is cut", tensor.name));
    let mut found = Vec::new();
    for cut in cuts {
        let mixture = format!("{block}.block_sparse_moe.{}", cut.own);
        if !bias.is_empty() {
            found.push((format!("{mixture}.bias"), vec![every(tensor, [experts, rows], *cut).ok_or_else(cut_short)?]));
            continue;
        }
        let size = tensor.data.len() / experts;
        let one = |expert: usize| {
            let data = tensor.data.slice(expert * size..(expert + 1) * size)?;
            turned(tensor, data, [rows, columns], *cut)
        };
        let parts = (0..experts).map(one).collect::<Option<Vec<_>>>().ok_or_else(cut_short)?;
        found.push((format!("{mixture}.weight"), parts));
    }
    Ok(Some(found))
}

/// The same of a tensor of blocks, with its scales; none of the scales themselves; `None` where it is neither.
///
/// # Errors
///
/// [`Error::Format`] where either is missing, or has another dtype or shape than the configuration makes it.
pub(super) fn experts_in_blocks(
    folder: &Path,
    config: &LlamaConfig,
    name: &str,
    files: &SafetensorsFolder,
) -> Result<Option<Named>> {
    let in_layer = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once(".mlp.experts."));
    let Some((layer, part)) = in_layer.filter(|(number, _)| layer_number(number).is_some()) else { return Ok(None) };
    let Some((matrix, kind)) = part.split_once("_proj_").filter(|(_, kind)| ["blocks", "scales"].contains(kind)) else {
        return Ok(None);
    };
    let Some((cuts, rows, columns)) = cuts(config, matrix) else { return Ok(None) };
    if columns % BLOCK != 0 {
        let problem = format!("has blocks of {BLOCK}, of which {columns} inputs are not a whole number");
        return Err(Error::format(folder, format!("tensor {} {problem}", quoted(name))));
    }
    let (experts, wide) = (config.num_experts, columns / BLOCK);
    let prefix = &name[..name.len() - kind.len()];
    let part = |kind: &str, right: &[usize]| {
        let name = format!("{prefix}{kind}");
        let Some(entry) = files.get(&name) else {
            return Err(Error::format(folder, format!("lacks the tensor {name} of shape {right:?}")));
        };
        if entry.dtype.name != "uint8" {
            let problem = format!("has dtype {}; it must be uint8", entry.dtype.name);
            return Err(Error::format(folder, format!("tensor {name} {problem}")));
        }
        if entry.shape != right {
            let problem = format!("has shape {:?}; the configuration makes it {right:?}", entry.shape);
            return Err(Error::format(folder, format!("tensor {name} {problem}")));
        }
        files.mapped(&name)
    };
    let blocks = part("blocks", &[experts, rows, wide, PACKED])?;
    let scales = part("scales", &[experts, rows, wide])?;
    let Some(format) = BlockFormat::named("mxfp4").filter(|_| kind == "blocks") else { return Ok(Some(Vec::new())) };
    let cut_short = || Error::format(folder, format!("tensor {} is cut", quoted(name)));
    let mut found = Vec::new();
    for cut in cuts {
        let one = |expert: usize| {
            let scales = scales.slice(expert * rows * wide..(expert + 1) * rows * wide)?;
            let blocks = blocks.slice(expert * rows * wide * PACKED..(expert + 1) * rows * wide * PACKED)?;
            let data = blocks.slice(cut.first * wide * PACKED..blocks.len())?;
            let made = Made::new(move || {
                let bytes = repacked(&blocks, &scales, wide, *cut);
                blocks.release();
                HostBytes::joined([&bytes[..]])
            });
            let shape = vec![rows / cut.step, columns];
            Some(StoredTensor { name: name.to_owned(), format, shape, data, made: Some(made) })
        };
        let parts = (0..experts).map(one).collect::<Option<Vec<_>>>().ok_or_else(cut_short)?;
        found.push((format!("model.layers.{layer}.block_sparse_moe.{}.weight", cut.own), parts));
    }
    Ok(Some(found))
}

/// Each so-manyth element of `rows` for each expert.
fn every(tensor: &StoredTensor, [experts, rows]: [usize; 2], cut: Cut) -> Option<StoredTensor> {
    if cut.step == 1 {
        return Some(tensor.clone());
    }
    let (size, whole) = (tensor.format.bytes, tensor.data.clone());
    let data = whole.slice(cut.first * size..whole.len())?;
    let made = Made::new(move || {
        HostBytes::joined((cut.first..experts * rows).step_by(cut.step).map(|at| &whole[at * size..(at + 1) * size]))
    });
    Some(StoredTensor { shape: vec![experts, rows / cut.step], data, made: Some(made), ..tensor.clone() })
}

/// The transpose of one expert's matrix `[columns, rows]`, of it each so-manyth row.
fn turned(tensor: &StoredTensor, whole: HostBytes, [rows, columns]: [usize; 2], cut: Cut) -> Option<StoredTensor> {
    let size = tensor.format.bytes;
    let data = whole.slice(cut.first * size..whole.len())?;
    let made = Made::new(move || {
        let bytes = match size {
            4 => transposed::<4>(&whole, [rows, columns], cut),
            _ => transposed::<2>(&whole, [rows, columns], cut),
        };
        whole.release();
        bytes
    });
    Some(StoredTensor { shape: vec![rows / cut.step, columns], data, made: Some(made), ..tensor.clone() })
}

fn transposed<const SIZE: usize>(whole: &[u8], [rows, columns]: [usize; 2], cut: Cut) -> io::Result<HostBytes> {
    let elements = whole.as_chunks::<SIZE>().0;
    let mut bytes = vec![0; columns * (rows / cut.step) * SIZE];
    let places = bytes.as_chunks_mut::<SIZE>().0;
    for (column, line) in elements.chunks_exact(rows).enumerate() {
        for (row, element) in line.iter().skip(cut.first).step_by(cut.step).enumerate() {
            places[row * columns + column] = *element;
        }
    }
    HostBytes::joined([&bytes[..]])
}

/// One expert's blocks as GGUF files have them, of rows of so many blocks each.
fn repacked(blocks: &[u8], scales: &[u8], wide: usize, cut: Cut) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(scales.len() / cut.step * (1 + PACKED));
    let rows = blocks.chunks_exact(wide * PACKED).zip(scales.chunks_exact(wide));
    for (blocks, scales) in rows.skip(cut.first).step_by(cut.step) {
        for (pairs, scale) in blocks.chunks_exact(PACKED).zip(scales) {
            let (left, right) = pairs.split_at(PACKED / 2);
            bytes.push(*scale);
            for (left, right) in left.iter().zip(right) {
                bytes.extend([left & 15 | right << 4, left >> 4 | right & 240]);
            }
        }
    }
    bytes
}
