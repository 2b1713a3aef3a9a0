//! The types of GGUF files for ternary matrices: tq1_0 and tq2_0 of llama.cpp, i2_s of bitnet.cpp.
//!
//! tq1_0, 256 elements in 54 bytes: 48 bytes and 4 bytes of digits base 3, code + 1, the first digit the most significant, as
//! ceil(256/243 times the number), so that multiplying by 3 brings up one digit after the other; then the scale, f16. Digit d
//! of byte b is element 32d + b for the first 32 bytes, 160 + 16d + b for the next 16, 240 + 4d + b for the last four, which
//! have 4 digits in the place of 5. tq2_0, 256 in 66 bytes: 64 bytes with two bits a code, plus 1, then the scale, f16; bits
//! 2i of byte 32h + b are element 128h + 32i + b. (<https://github.com/ggml-org/ggml>, `ggml-common.h`)
//!
//! i2_s: 128 elements in 32 bytes, bits 6 - 2i of byte b being code + 1 of element 32i + b; after the last block one scale,
//! f32, and 28 bytes of padding. (<https://github.com/microsoft/BitNet>, `utils/convert-hf-to-gguf-bitnet.py`)

use std::ops::Range;

use nn_ffi::F16;

use super::block_formats::TernaryFormat;
use super::ternary::{TernaryMatrix, code};
use crate::error::Result;

/// Of a block of tq1_0: bytes of digits, elements before them, digits a byte.
const TQ1_0_PARTS: [(Range<usize>, usize, u32); 3] = [(0..32, 0, 5), (32..48, 160, 5), (48..52, 240, 4)];

/// The codes of a matrix in a format of `TERNARY_FORMATS`, and the scale that its bytes have.
pub(super) fn codes(matrix: &TernaryMatrix, format: &TernaryFormat) -> Result<(Vec<i8>, f32)> {
    let mut codes = vec![0; matrix.shape[0] * matrix.shape[1]];
    let (data, tail) = matrix.data.split_at(matrix.data.len().saturating_sub(format.tail));
    let blocks = data.chunks_exact(format.bytes);
    let targets = codes.chunks_exact_mut(format.elements);
    match format.name {
        "i2_s" => {
            let scale = tail.first_chunk().copied().map_or(f32::NAN, f32::from_le_bytes);
            matrix.checked_scale(scale, "scale")?;
            matrix.check_bits(data)?;
            for (block, target) in blocks.zip(targets) {
                for (at, place) in target.iter_mut().enumerate() {
                    *place = code(block[at % 32], 6 - 2 * (at / 32) as u32);
                }
            }
            return Ok((codes, scale));
        }
        "tq1_0" => {
            for (block, target) in blocks.zip(targets) {
                for (part, first, digits) in TQ1_0_PARTS {
                    let (width, bytes) = (part.len(), &block[part]);
                    for digit in 0..digits {
                        for (at, byte) in bytes.iter().enumerate() {
                            target[first + digit as usize * width + at] = digit_code(*byte, digit);
                        }
                    }
                }
            }
        }
        _ => {
            for (block, target) in blocks.zip(targets) {
                matrix.check_bits(&block[..64])?;
                for (at, place) in target.iter_mut().enumerate() {
                    *place = code(block[at / 128 * 32 + at % 32], 2 * (at / 32 % 4) as u32);
                }
            }
        }
    }
    let scale = shared_scale(matrix, format, &mut codes)?;
    Ok((codes, scale))
}

/// The code in a digit of a byte of tq1_0, 0 the most significant.
fn digit_code(packed: u8, digit: u32) -> i8 {
    let fraction = packed.wrapping_mul(3_u8.pow(digit)); // it wraps: what stood before the point is gone
    ((u16::from(fraction) * 3) >> 8) as i8 - 1
}

/// The scale that all blocks share but those of scale 0, whose codes become 0.
fn shared_scale(matrix: &TernaryMatrix, format: &TernaryFormat, codes: &mut [i8]) -> Result<f32> {
    let (mut used, mut most): (Vec<f32>, f32) = (Vec::new(), 0.0);
    for (block, codes) in matrix.data.chunks_exact(format.bytes).zip(codes.chunks_exact_mut(format.elements)) {
        let bits = u16::from_le_bytes([block[format.bytes - 2], block[format.bytes - 1]]);
        let scale = f32::from(F16(bits));
        if !(scale.is_finite() && scale >= 0.0) {
            return Err(matrix.wrong("has a block whose scale is not finite, or below 0"));
        }
        most = most.max(scale);
        if scale == 0.0 {
            codes.fill(0);
        } else if !used.contains(&scale) && codes.iter().any(|code| *code != 0) {
            used.push(scale);
            if used.len() > MOST_SCALES {
                break;
            }
        }
    }
    used.sort_unstable_by(f32::total_cmp);
    match used[..] {
        [] if most > 0.0 => Ok(most),
        [] => Ok(1.0),
        [scale] => Ok(scale),
        [first, .., last] => {
            let count =
                if used.len() > MOST_SCALES { format!("more than {MOST_SCALES}") } else { used.len().to_string() };
            let scales = format!("has blocks of {count} scales, {first} to {last}");
            Err(matrix.wrong(&format!("{scales}; a matrix is multiplied with one scale here")))
        }
    }
}

/// Different scales that are looked at before a matrix is refused for having more than one.
const MOST_SCALES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block_formats::{TERNARY_FORMATS, TernaryFormat};
    use crate::format::ternary::Form;
    use nn_ffi::HostBytes;
    use std::path::Path;

    /// A matrix of one block with the bytes of a format: codes that count -1, 0, 1 in the order of elements.
    fn block(name: &str) -> (Vec<u8>, Vec<i8>, &'static TernaryFormat) {
        let format = TernaryFormat::named(name).unwrap();
        let codes: Vec<i8> = (0..format.elements).map(|at| (at % 3) as i8 - 1).collect();
        let mut bytes = vec![0_u8; format.bytes + format.tail];
        let digit = |at: usize| (codes[at] + 1) as u8;
        match name {
            "i2_s" => {
                for at in 0..128 {
                    bytes[at % 32] |= digit(at) << (6 - 2 * (at / 32));
                }
                bytes[32..36].copy_from_slice(&0.5_f32.to_le_bytes());
            }
            "tq2_0" => {
                for at in 0..256 {
                    bytes[at / 128 * 32 + at % 32] |= digit(at) << (2 * (at / 32 % 4));
                }
                bytes[64..].copy_from_slice(&[0, 0x38]);
            }
            _ => {
                for (part, first, digits) in TQ1_0_PARTS {
                    for (at, byte) in part.clone().enumerate() {
                        let number = (0..5_u32).fold(0_u32, |number, place| {
                            let digit =
                                if place < digits { digit(first + place as usize * part.len() + at) } else { 0 };
                            number * 3 + u32::from(digit)
                        });
                        bytes[byte] = (number * 256).div_ceil(243) as u8;
                    }
                }
                bytes[52..].copy_from_slice(&[0, 0x38]);
            }
        }
        (bytes, codes, format)
    }

    #[test]
    fn blocks_come_back() {
        for format in &TERNARY_FORMATS {
            let (bytes, codes, format) = block(format.name);
            let data = HostBytes::joined([&bytes[..]]).unwrap();
            let form = Form::Blocks { format, factor: 4.0 };
            let matrix = TernaryMatrix::new(Path::new("x"), "w", [1, format.elements], data, form);
            assert_eq!(matrix.codes().unwrap().unwrap(), (codes, 2.0), "{}", format.name);
        }
    }

    #[test]
    fn blocks_of_several_scales_are_refused() {
        let (bytes, codes, format) = block("tq2_0");
        let mut other = bytes.clone();
        let mut read = |scale: [u8; 2]| {
            other[64..].copy_from_slice(&scale);
            let data = HostBytes::joined([&bytes[..], &other[..]]).unwrap();
            let form = Form::Blocks { format, factor: 1.0 };
            TernaryMatrix::new(Path::new("x"), "w", [2, 256], data, form).codes()
        };
        let (found, scale) = read([0, 0]).unwrap().unwrap(); // scale 0: its codes do not matter
        assert_eq!((&found[..256], &found[256..], scale), (&codes[..], &[0; 256][..], 0.5));
        assert!(read([0, 0x3c]).unwrap_err().to_string().contains("has blocks of 2 scales, 0.5 to 1"));
        assert!(read([0, 0x7c]).unwrap_err().to_string().contains("not finite"));
    }
}
