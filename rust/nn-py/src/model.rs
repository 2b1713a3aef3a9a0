//! `nncuda_rs.Model`, and the tokens that it writes.

use std::path::PathBuf;
use std::sync::mpsc::Sender;

use nn_core::generate::{Sampling, generate};
use nn_core::model::{MoEConfig, MoETransformer, Precision};
use nn_core::train::{Checkpoint, resolve_checkpoint};
use numpy::PyArrayDyn;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::exception;
use crate::shared::{Holding, Items, Place, Shared};
use crate::values::{Ids, Tensors, array, dictionary, table};

/// A decoder-only transformer whose feed-forward networks are mixtures of experts, in Rust.
///
/// Calls from several Python threads wait for one another; while one computes or waits, the others run.
#[pyclass(frozen, module = "nncuda_rs")]
pub(crate) struct Model {
    pub(crate) shared: Shared,
    pub(crate) config: MoEConfig,
}

/// A model's configuration from a dictionary.
pub(crate) fn model_config(py: Python<'_>, config: Option<&Bound<'_, PyDict>>) -> PyResult<MoEConfig> {
    MoEConfig::from_table(&table(config)?).map_err(|error| exception(py, &error))
}

fn holding(model: MoETransformer) -> Holding {
    Holding::Model(Box::new(model))
}

/// What to compute in, by its name.
fn precision(py: Python<'_>, name: &str) -> PyResult<Precision> {
    name.parse().map_err(|error| exception(py, &error))
}

#[pymethods]
impl Model {
    /// A model with random weights from `seed`. `config` holds options of `nncuda.MoEConfig`, the others have their
    /// defaults; with `training` it has gradients. `precision` is what it computes in: "f32", "bf16", "f16" or "fp8".
    /// Raises ValueError for an option that there is not.
    #[new]
    #[pyo3(signature = (
        config=None, *, seed=0, training=true, precision="f32", device="cpu", threads=None, isa=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        config: Option<&Bound<'_, PyDict>>,
        seed: i64,
        training: bool,
        precision: &str,
        device: &str,
        threads: Option<usize>,
        isa: Option<&str>,
    ) -> PyResult<Self> {
        let place = Place::new(device, threads, isa).map_err(|error| exception(py, &error))?;
        let (config, precision) = (model_config(py, config)?, self::precision(py, precision)?);
        let sizes = config.clone();
        let shared = Shared::new(py, place, move |ctx| {
            MoETransformer::random_in(ctx, sizes, seed, training, precision).map(holding)
        })?;
        Ok(Self { shared, config })
    }

    /// The model of a checkpoint, of the last (or `best`) checkpoint of a run, or of a Mixtral folder from elsewhere, to
    /// compute in `precision`. Raises FormatError when a file is not what it should be.
    #[staticmethod]
    #[pyo3(signature = (
        path, *, best=false, training=false, precision="f32", device="cpu", threads=None, isa=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn load(
        py: Python<'_>,
        path: PathBuf,
        best: bool,
        training: bool,
        precision: &str,
        device: &str,
        threads: Option<usize>,
        isa: Option<&str>,
    ) -> PyResult<Self> {
        let place = Place::new(device, threads, isa).map_err(|error| exception(py, &error))?;
        let precision = self::precision(py, precision)?;
        let checkpoint = open(py, path, best)?;
        let config = checkpoint.config.clone();
        let shared = Shared::new(py, place, move |ctx| checkpoint.model(ctx, training, precision).map(holding))?;
        Ok(Self { shared, config })
    }

    /// All options by name.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dictionary(py, &self.config.to_table())
    }

    /// A copy of each parameter by name, float32 arrays in the order of the arena, whatever the precision.
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.shared.call(py, |holding| Tensors::of(holding.model().parameters()))?.arrays(py)
    }

    /// A copy of each parameter's gradient by name, as the last step left them. Raises ValueError for a model that was
    /// made for inference.
    fn gradients<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.shared.call(py, |holding| Tensors::of(holding.model().gradients()?))?.arrays(py)
    }

    /// Logits float32 [batch, length, vocab] of all positions of ids int32 [batch, length].
    fn logits<'py>(&self, py: Python<'py>, input_ids: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let ids = Ids::new("input_ids", input_ids)?;
        let shape = [ids.rows, ids.length, self.config.vocab_size];
        let logits = self.shared.call(py, move |holding| {
            let model = holding.model();
            let ids = model.context().tensor(&ids.values, &[ids.rows, ids.length])?;
            Ok(model.forward(&ids)?.to_vec::<f32>()?)
        })?;
        array(py, &logits, &shape)
    }

    /// Sum of the cross-entropy, in nats, over the targets int32 [batch, length] that are not -100, and their number.
    fn evaluate(
        &self,
        py: Python<'_>,
        input_ids: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
    ) -> PyResult<(f64, u64)> {
        let (ids, wanted) = Ids::pair(input_ids, targets)?;
        self.shared.call(py, move |holding| {
            let model = holding.model();
            let shape = [ids.rows, ids.length];
            let ids = model.context().tensor(&ids.values, &shape)?;
            model.evaluate(&ids, &model.context().tensor(&wanted.values, &shape)?)
        })
    }

    /// Continues a prompt of token ids, token by token, up to and including `end_id`.
    ///
    /// The tokens are computed ahead of who takes them, in a thread; other calls of the model wait until all
    /// are there or the iterator is dropped. Raises ValueError when the prompt is empty or the model does not reach that
    /// far, and OutOfRangeError when an id is not a token.
    #[pyo3(signature = (prompt, max_new_tokens, *, temperature=0.0, top_k=None, top_p=None, seed=0, end_id=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn generate(
        &self,
        py: Python<'_>,
        prompt: Vec<i32>,
        max_new_tokens: usize,
        temperature: f64,
        top_k: Option<i64>,
        top_p: Option<f64>,
        seed: i128,
        end_id: Option<i32>,
    ) -> PyResult<Generation> {
        // Seeds count modulo 2^64. The largest top_k is more than any vocabulary has.
        let top_k = top_k.map(|k| k.clamp(0, i32::MAX.into()) as i32);
        let sampling = Sampling { temperature, top_k, top_p, seed: seed as i64, ..Sampling::default() };
        sampling.check().map_err(|error| exception(py, &error))?;
        let tokens = self.shared.stream(py, move |holding, tokens| {
            write(holding.model(), &prompt, max_new_tokens, &sampling, end_id, tokens);
        })?;
        Ok(Generation { tokens })
    }
}

/// Opens a checkpoint folder, or that of a run.
pub(crate) fn open(py: Python<'_>, path: PathBuf, best: bool) -> PyResult<Checkpoint> {
    let opened = py.detach(|| Checkpoint::open(&resolve_checkpoint(&path, best)?));
    opened.map_err(|error| exception(py, &error))
}

/// Sends tokens until there are no more, or nobody takes them.
fn write(
    model: &MoETransformer,
    prompt: &[i32],
    max_new_tokens: usize,
    sampling: &Sampling,
    end_id: Option<i32>,
    tokens: &Sender<nn_core::Result<i32>>,
) {
    match generate(model, prompt, max_new_tokens, sampling, end_id) {
        Ok(generation) => {
            for token in generation {
                if tokens.send(token).is_err() {
                    break;
                }
            }
        }
        Err(error) => drop(tokens.send(Err(error))),
    }
}

/// The tokens of a continuation, an iterator of int.
#[pyclass(frozen, module = "nncuda_rs")]
pub(crate) struct Generation {
    tokens: Items<nn_core::Result<i32>>,
}

#[pymethods]
impl Generation {
    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        self.tokens.next(py)?.transpose().map_err(|error| exception(py, &error))
    }
}
