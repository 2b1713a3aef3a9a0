//! `nncuda_rs.Trainer`, and what a step of it did.

use std::path::PathBuf;

use nn_core::format::Table;
use nn_core::model::MoETransformer;
use nn_core::tokenizer::{CarriedTokenizer, Tokenizer};
use nn_core::train::{self, Batch, TrainConfig, TrainingState};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::exception;
use crate::model::{Model, model_config, open};
use crate::shared::{Holding, Place, Shared};
use crate::values::{Ids, Tensors, dictionary, table};

/// Trains a model with AdamW, in Rust.
#[pyclass(frozen, module = "nncuda_rs")]
pub(crate) struct Trainer {
    model: Py<Model>,
    shared: Shared,
    config: TrainConfig,
}

#[pymethods]
impl Trainer {
    /// A trainer at step 0 of a model with random weights from `seed`.
    ///
    /// `model_config` holds options of `nncuda.MoEConfig`, `train_config` those of `nncuda.TrainConfig`; the others have
    /// their defaults. With `capture`, steps of one shape of batch are captured as a graph and replayed: the same bits,
    /// sooner. Raises ValueError for an option that there is not, or a value that it may not have.
    #[new]
    #[pyo3(signature = (
        model_config=None, train_config=None, *, seed=0, capture=true, device="cpu", threads=None, isa=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        model_config: Option<&Bound<'_, PyDict>>,
        train_config: Option<&Bound<'_, PyDict>>,
        seed: i64,
        capture: bool,
        device: &str,
        threads: Option<usize>,
        isa: Option<&str>,
    ) -> PyResult<Self> {
        let wrong = |error: nn_core::Error| exception(py, &error);
        let place = Place::new(device, threads, isa).map_err(wrong)?;
        let sizes = self::model_config(py, model_config)?;
        let config = TrainConfig::from_table(&table(train_config)?).map_err(wrong)?;
        let (model, options) = (sizes.clone(), config.clone());
        let shared = Shared::new(py, place, move |ctx| {
            let model = MoETransformer::random_in(ctx, model, seed, true, options.precision)?;
            Ok(Holding::Trainer(Box::new(train::Trainer::new(model, options, capture)?)))
        })?;
        Self::with(py, shared, sizes, config)
    }

    /// The trainer of a checkpoint, or of the last (or `best`) checkpoint of a run: weights, moments, step and options
    /// as they were saved, from any of the three languages. `changes` are other values of the options that a run may go
    /// on with. Raises FormatError when a file is not what it should be, ValueError for a change that may not be.
    #[staticmethod]
    #[pyo3(signature = (path, *, changes=None, best=false, device="cpu", threads=None, isa=None))]
    fn load(
        py: Python<'_>,
        path: PathBuf,
        changes: Option<&Bound<'_, PyDict>>,
        best: bool,
        device: &str,
        threads: Option<usize>,
        isa: Option<&str>,
    ) -> PyResult<Self> {
        let place = Place::new(device, threads, isa).map_err(|error| exception(py, &error))?;
        let checkpoint = open(py, path, best)?;
        let sizes = checkpoint.config.clone();
        let changes = table(changes)?;
        let shared =
            Shared::new(py, place, move |ctx| Ok(Holding::Trainer(Box::new(checkpoint.trainer_with(ctx, &changes)?))))?;
        let config = shared.call(py, |holding| Ok(holding.trainer()?.config().clone()))?;
        Self::with(py, shared, sizes, config)
    }

    /// The model that is trained, as it is now; it changes with every step.
    #[getter]
    fn model(&self, py: Python<'_>) -> Py<Model> {
        self.model.clone_ref(py)
    }

    /// All options by name.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dictionary(py, &self.config.to_table())
    }

    /// Steps done, those that were skipped included.
    #[getter]
    fn step(&self, py: Python<'_>) -> PyResult<usize> {
        self.shared.call(py, |holding| Ok(holding.trainer()?.step()))
    }

    /// Why the last step ran call by call; None when it was replayed, or there was none yet.
    #[getter]
    fn eager_reason(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.shared.call(py, |holding| Ok(holding.trainer()?.eager_reason().map(str::to_owned)))
    }

    /// The first step since this trainer began whose gradients were not finite, from which on nothing was updated; None
    /// when there was none, and in f16, where such steps are skipped and training continues.
    #[getter]
    fn diverged_at(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        self.shared.call(py, |holding| holding.trainer()?.diverged_at())
    }

    /// What the next step's loss scaling depends on: scale, good_steps, skipped; None in another precision than f16.
    #[getter]
    fn loss_scaling<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let state = self.shared.call(py, |holding| holding.trainer()?.loss_scaling())?;
        let values = state.map(|state| {
            let (scale, good_steps, skipped) = (state.scale.into(), state.good_steps.into(), state.skipped.into());
            Table::from([("scale", scale), ("good_steps", good_steps), ("skipped", skipped)])
        });
        values.map(|values| dictionary(py, &values)).transpose()
    }

    /// One update from ids and targets int32 [batch, length]; targets of -100 are ignored.
    ///
    /// The gradient is that of the mean cross-entropy over all targets of the batch, however it is cut into
    /// micro-batches, plus that of the load-balancing loss. Raises ValueError when no target counts, and OutOfRangeError
    /// when an id is not a token; the parameters then stay.
    fn train_step(
        &self,
        py: Python<'_>,
        input_ids: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
    ) -> PyResult<StepResult> {
        let (ids, wanted) = Ids::pair(input_ids, targets)?;
        self.shared.call(py, move |holding| {
            let Ids { rows, length, values: inputs } = ids;
            let result = holding.trainer()?.train_step(&Batch {
                rows,
                length,
                inputs,
                targets: wanted.values,
                document_ends: None,
            })?;
            Ok(StepResult {
                step: result.step,
                tokens: result.tokens,
                loss: result.loss()?,
                aux_loss: result.aux_loss()?,
                grad_norm: result.grad_norm()?,
                learning_rate: result.learning_rate()?,
                loss_scale: result.loss_scale()?,
                skipped: result.skipped()?,
                skipped_steps: result.skipped_steps()?,
            })
        })
    }

    /// Copies of the first and of the second moments by parameter, float32 arrays.
    fn moments<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        let [first, second] = self.shared.call(py, |holding| {
            let moments = holding.trainer()?.moments();
            let codes = "the moments are codes of 8 bits; save_checkpoint writes them with their scales";
            let [first, second] = moments.ok_or_else(|| nn_core::Error::value(codes))?;
            Ok([Tensors::of(first)?, Tensors::of(second)?])
        })?;
        Ok((first.arrays(py)?, second.arrays(py)?))
    }

    /// Writes `root`/step-NNNNNNNN in one step and returns its path; any of the three languages continues from it.
    ///
    /// `data_position` counts the windows of data visited, `data_windows` how many there are, `seconds` the time spent
    /// training. `tokenizer` is a SentencePiece model to put beside the weights.
    #[pyo3(signature = (root, *, data_position=0, data_windows=1, seconds=0.0, held_out_loss=None, tokenizer=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn save_checkpoint(
        &self,
        py: Python<'_>,
        root: PathBuf,
        data_position: u64,
        data_windows: u64,
        seconds: f64,
        held_out_loss: Option<f64>,
        tokenizer: Option<PathBuf>,
    ) -> PyResult<PathBuf> {
        self.shared.call(py, move |holding| {
            let tokenizer = tokenizer.map(Tokenizer::load).transpose()?.as_ref().map(CarriedTokenizer::from);
            let trainer = holding.trainer()?;
            let (step, train) = (trainer.step(), trainer.config().clone());
            let loss_scaling = trainer.loss_scaling()?;
            let state = TrainingState {
                step,
                data_position,
                data_windows,
                seconds,
                train,
                held_out_loss,
                loss_scaling,
                base: None,
            };
            train::save_checkpoint(&root, trainer, &state, tokenizer.as_ref())
        })
    }
}

impl Trainer {
    fn with(py: Python<'_>, shared: Shared, sizes: nn_core::model::MoEConfig, config: TrainConfig) -> PyResult<Self> {
        let model = Py::new(py, Model { shared: shared.clone(), config: sizes })?;
        Ok(Self { model, shared, config })
    }
}

/// What a step did.
#[pyclass(frozen, get_all, module = "nncuda_rs")]
pub(crate) struct StepResult {
    /// Steps done, this one included.
    step: usize,
    /// Targets that counted.
    tokens: usize,
    /// Mean cross-entropy over the targets of the whole batch, in nats.
    loss: f64,
    /// Load-balancing loss, the mean over the micro-batches by their tokens.
    aux_loss: f64,
    /// Global norm of the gradients before clipping, the loss scale divided out; not finite in a skipped step.
    grad_norm: f64,
    /// Rate of this update; NaN in a skipped step, which makes none.
    learning_rate: f64,
    /// What the losses of this step were multiplied by; None in another precision than f16.
    loss_scale: Option<f64>,
    /// Whether the gradients were not finite, so that nothing was updated.
    skipped: bool,
    /// Steps skipped so far, this one included.
    skipped_steps: usize,
}
