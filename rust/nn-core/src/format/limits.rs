//! How large files from elsewhere may be: bounds far above what exists and far below what would harm the reader.
//!
//! The three languages have the same ones; tests/bounds.json holds each to them, with the reasons.

/// Bytes of config.json, training.json, run.json and their like.
pub const JSON_BYTES: u64 = 4 << 20;
/// Bytes of an index of weights in several files.
pub const INDEX_BYTES: u64 = 32 << 20;
/// Bytes of the header of a safetensors file.
pub const HEADER_BYTES: u64 = 32 << 20;
/// Bytes of a line of a JSONL file.
pub const LINE_BYTES: u64 = 16 << 20;
/// Bytes of the name of a file that an index names.
pub const NAME_BYTES: usize = 255;
/// Bytes of a configuration in TOML.
pub const TOML_BYTES: u64 = 1 << 16;
/// Bytes of one of its lines.
pub const TOML_LINE_BYTES: usize = 1 << 11;
/// Bytes of a SentencePiece model.
pub const TOKENIZER_MODEL_BYTES: u64 = 32 << 20;
/// Bytes of a tokenizer.json.
pub const TOKENIZER_JSON_BYTES: u64 = 64 << 20;
/// Bytes of a chat template in a file of its own.
pub const TEMPLATE_BYTES: u64 = 4 << 20;

/// Brackets, braces, commas and colons of a JSON text outside its strings: what it has more of takes memory for values.
pub const JSON_MARKS: usize = 1 << 21;
/// The same of a tokenizer.json.
pub const TOKENIZER_JSON_MARKS: usize = 1 << 24;
/// Levels of nesting.
pub const JSON_DEPTH: usize = 512;

/// Tensors of a safetensors file.
pub const FILE_TENSORS: usize = 1 << 17;
/// Entries of metadata of a GGUF file, and its tensors: each becomes an object here, larger than the least entry of a file.
pub(super) const GGUF_ENTRIES: u64 = 65536;
/// Bytes of a key of its metadata.
pub(super) const GGUF_KEY_BYTES: u64 = 65535;
/// Bytes of the name of a tensor.
pub(super) const GGUF_NAME_BYTES: u64 = 64;

/// Tensors of a model.
pub const MODEL_TENSORS: u128 = 1 << 16;
/// Parameters of a model.
pub const MODEL_PARAMETERS: u128 = 1 << 50;
/// What kernels count in.
pub const COUNT: usize = (1 << 31) - 1;

/// Characters of a value in a message.
pub(crate) const SHOWN_CHARACTERS: usize = 100;
/// Characters of a whole problem in a message.
pub(crate) const PROBLEM_CHARACTERS: usize = 600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_all_languages() {
        let bounds: serde_json::Value =
            serde_json::from_str(include_str!("../../../../tests/bounds.json")).expect("it is JSON");
        let ours = [
            ("json_bytes", u128::from(JSON_BYTES)),
            ("index_bytes", INDEX_BYTES.into()),
            ("header_bytes", HEADER_BYTES.into()),
            ("line_bytes", LINE_BYTES.into()),
            ("name_bytes", NAME_BYTES as u128),
            ("toml_bytes", TOML_BYTES.into()),
            ("toml_line_bytes", TOML_LINE_BYTES as u128),
            ("tokenizer_model_bytes", TOKENIZER_MODEL_BYTES.into()),
            ("tokenizer_json_bytes", TOKENIZER_JSON_BYTES.into()),
            ("template_bytes", TEMPLATE_BYTES.into()),
            ("json_marks", JSON_MARKS as u128),
            ("tokenizer_json_marks", TOKENIZER_JSON_MARKS as u128),
            ("json_depth", JSON_DEPTH as u128),
            ("file_tensors", FILE_TENSORS as u128),
            ("model_tensors", MODEL_TENSORS),
            ("model_parameters", MODEL_PARAMETERS),
            ("count", COUNT as u128),
        ];
        // That of json_digits holds by itself: serde_json takes no number that is beyond an f64.
        assert_eq!(bounds["limits"].as_object().map(serde_json::Map::len), Some(ours.len() + 1));
        for (name, limit) in ours {
            assert_eq!(bounds["limits"][name]["is"].as_u64().map(u128::from), Some(limit), "{name}");
        }
    }
}
