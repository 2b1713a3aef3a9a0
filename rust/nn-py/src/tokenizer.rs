//! `nncuda_rs.Tokenizer`.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::errors::exception;

/// A SentencePiece model, unigram or BPE, as the Rust crates read and run it.
#[pyclass(frozen, module = "nncuda_rs")]
pub(crate) struct Tokenizer(nn_core::tokenizer::Tokenizer);

#[pymethods]
impl Tokenizer {
    /// Reads a tokenizer file. Raises FormatError when it is not a whole SentencePiece model.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let loaded = py.detach(|| nn_core::tokenizer::Tokenizer::load(path));
        loaded.map(Self).map_err(|error| exception(py, &error))
    }

    /// How many pieces there are.
    #[getter]
    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    /// The id that begins a text, -1 when this tokenizer has none.
    #[getter]
    fn begin_id(&self) -> i32 {
        self.0.begin_id().unwrap_or(-1)
    }

    /// The id that ends a text, -1 when this tokenizer has none.
    #[getter]
    fn end_id(&self) -> i32 {
        self.0.end_id().unwrap_or(-1)
    }

    /// Ids of a text, after the begin id when asked for.
    #[pyo3(signature = (text, *, begin=false))]
    fn encode(&self, py: Python<'_>, text: &str, begin: bool) -> Vec<i32> {
        py.detach(|| self.0.encode(text, begin))
    }

    /// The text of ids. Raises ValueError when one is outside the vocabulary.
    fn decode(&self, py: Python<'_>, ids: Vec<i32>) -> PyResult<String> {
        py.detach(|| self.0.decode(&ids)).map_err(|error| exception(py, &error))
    }
}
