//! What a tokenizer is made of in the metadata of a GGUF file.
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, "Tokenizer")

/// A value of metadata, by its type.
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataValue<'a> {
    /// A truth value.
    Bool(bool),
    /// A whole number of any width, with a sign or without.
    Whole(i128),
    /// A floating-point number.
    Float(f64),
    /// A string.
    Text(&'a str),
    /// An array of strings.
    Texts(Vec<&'a str>),
    /// An array of whole numbers of any width.
    Wholes(Vec<i128>),
    /// An array of floating-point numbers; those of 64 bits rounded.
    Floats(Vec<f32>),
    /// An array of anything else.
    Other,
}

/// The metadata of a file, as its reader gives them to the tokenizer.
pub trait Metadata {
    /// The value of a key; none when the file does not have it.
    fn value(&self, key: &str) -> Option<MetadataValue<'_>>;
}
