//! Where a run begins that does not begin with random weights: a checkpoint, or a model from elsewhere.

use std::path::Path;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use super::adapter;
use super::checkpoint::{Base, Checkpoint, TrainingState, resolve_checkpoint};
use super::config::TrainConfig;
use super::moments;
use super::rank::Rank;
use super::sha256;
use super::trainer::Trainer;
use crate::error::{Error, Result};
use crate::format::safetensors::SafetensorsFile;
use crate::format::{Table, Value, open_regular};
use crate::model::{FrozenBase, MoEConfig, MoETransformer, ModelFile, ParameterLayout, Precision, Weights};
use crate::tokenizer::CarriedTokenizer;

/// Options of a model that its weights do not depend on: they decide how it is trained, and may be others.
const OF_TRAINING: [&str; 2] = ["capacity_factor", "aux_alpha"];

/// The folder or file that a run begins from, opened and checked to the last value: what is not finite is refused.
///
/// It is a checkpoint of this library, a run, of which the last one is taken, a Mixtral, Llama or the like of Hugging Face, or a
/// GGUF file of one in f32, f16 or bf16.
///
/// Or it is a stored model, a folder or a GGUF file, beside which the run trains an adapter.
#[derive(Debug)]
pub struct Origin {
    source: Source,
    /// The model's options, with those of training as a run is to have them.
    config: MoEConfig,
    tokenizer: Option<CarriedTokenizer>,
    notice: Option<String>,
    /// Of the weights that a run begins with, once these are read.
    weights_sha256: OnceLock<String>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Source {
    Trained { checkpoint: Checkpoint, moments: Option<SafetensorsFile>, moments_sha256: Option<String> },
    File(Box<ModelFile>),
    Beside(Box<FrozenBase>),
}

impl Origin {
    /// Opens a folder or file. With `optimizer` the moments, the step and, in f16, the loss scale go on as the checkpoint has them.
    pub fn open(path: &Path, optimizer: bool) -> Result<Self> {
        let mut origin = Self::open_unread(path, optimizer)?;
        origin.weights_sha256()?;
        if let Source::Trained { moments: Some(file), moments_sha256, .. } = &mut origin.source {
            for (name, entry) in file.iter().filter(|(_, entry)| entry.dtype.floating) {
                let values = file.read_f32(name, 0, entry.count())?;
                require_finite(name, &entry.shape, &values).map_err(|error| error.in_file(file.path()))?;
            }
            *moments_sha256 = Some(digest_of_file(file.path())?);
        }
        Ok(origin)
    }

    /// Opens a folder or file as [`open`](Self::open) does; its weights are read no sooner than a run begins there.
    pub fn described(path: &Path) -> Result<Self> {
        Self::open_unread(path, false)
    }

    fn open_unread(path: &Path, optimizer: bool) -> Result<Self> {
        if path.is_file() { Self::open_file(path, optimizer) } else { Self::open_folder(path, optimizer) }
    }

    fn open_file(path: &Path, optimizer: bool) -> Result<Self> {
        let file = Box::new(ModelFile::open(path)?);
        if optimizer {
            return Err(Error::format(path, "is a GGUF file, which has no optimizer's state to go on with"));
        }
        let (tokenizer, notice) = match file.tokenizer() {
            Ok(tokenizer) => (tokenizer, None),
            // Of a kind that this program does not have, as a rule.
            Err(error) => (CarriedTokenizer::none(), Some(format!("the tokenizer does not come along: {error}"))),
        };
        let config = file.config().clone();
        let (source, tokenizer) = (Source::File(file), Some(tokenizer));
        Ok(Self { source, config, tokenizer, notice, weights_sha256: OnceLock::new() })
    }

    fn open_folder(folder: &Path, optimizer: bool) -> Result<Self> {
        let checkpoint = Checkpoint::open(&resolve_checkpoint(folder, false)?)?;
        let tokenizer = Some(CarriedTokenizer::of(&checkpoint.folder)?);
        let moments = if optimizer { Some(checkpoint.to_train()?.1) } else { None };
        let config = checkpoint.config.clone();
        let source = Source::Trained { checkpoint, moments, moments_sha256: None };
        Ok(Self { source, config, tokenizer, notice: None, weights_sha256: OnceLock::new() })
    }

    /// Opens the model beside which a run trains an adapter, a folder or a GGUF file, and reads all of it. Its tokenizer stays
    /// with it.
    pub fn beside(path: &Path) -> Result<Self> {
        let base = FrozenBase::open(path)?;
        base.sha256()?;
        let config = base.config().clone();
        let source = Source::Beside(Box::new(base));
        Ok(Self { source, config, tokenizer: None, notice: None, weights_sha256: OnceLock::new() })
    }

    /// SHA-256 of the weights, all of which are read the first time; `Error::Format` names the first that is not finite.
    fn weights_sha256(&self) -> Result<&str> {
        if let Some(found) = self.weights_sha256.get() {
            return Ok(found);
        }
        let made = match &self.source {
            Source::Trained { checkpoint, .. } => digest_of_finite(&checkpoint.weights, &checkpoint.config),
            Source::File(file) => digest_of_finite(&**file, file.config()),
            Source::Beside(base) => return base.sha256(),
        };
        let made = made.map_err(|error| error.in_file(self.path()))?;
        Ok(self.weights_sha256.get_or_init(|| made))
    }

    /// Whether a run that begins here trains an adapter.
    pub(super) fn is_beside(&self) -> bool {
        matches!(self.source, Source::Beside(_))
    }

    /// What checkpoints of a run that trains an adapter say of the model.
    pub(super) fn base(&self) -> Result<Option<Base>> {
        match &self.source {
            Source::Beside(base) => adapter::base_of(base).map(Some),
            Source::Trained { .. } | Source::File(_) => Ok(None),
        }
    }

    fn path(&self) -> &Path {
        match &self.source {
            Source::Trained { checkpoint, .. } => &checkpoint.folder,
            Source::File(file) => file.stored().path(),
            Source::Beside(base) => base.stored().path(),
        }
    }

    /// The most tokens that one sees, itself the last of them, where it does not see all of the context; 0 where it does.
    fn window(&self) -> usize {
        match &self.source {
            Source::Trained { checkpoint, .. } => checkpoint.window,
            Source::File(file) => file.stored().config().window,
            Source::Beside(base) => base.stored().config().window,
        }
    }

    /// The model's options.
    pub fn config(&self) -> &MoEConfig {
        &self.config
    }

    /// What who begins a run here should know, a sentence.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// The tokenizer of the folder or file, which comes along; `None` where it stays with the model.
    pub fn tokenizer(&self) -> Option<&CarriedTokenizer> {
        self.tokenizer.as_ref()
    }

    /// The same with some of the model's options given. `Error::Value` names one that the folder contradicts; those of
    /// training may be others.
    pub fn with_options(mut self, given: &Table) -> Result<Self> {
        let theirs = match &self.source {
            Source::Trained { checkpoint, .. } => checkpoint.config.values(),
            Source::File(file) => file.config().values(),
            Source::Beside(base) => base.config().values(),
        };
        let mut values = self.config.values();
        for (name, value) in given.iter() {
            let found = theirs.get(name).unwrap_or(&Value::None);
            let same = value == found || value.as_number().is_some_and(|number| found.as_number() == Some(number));
            let known = theirs.get(name).is_some(); // else it is refused as such
            if known && !same && (self.is_beside() || !OF_TRAINING.contains(&name)) {
                let (value, found, folder) = (value.shown(), found.shown(), self.path().display());
                let problem = format!("{name} is {value}, but the model of {folder} has {found}: leave it out");
                return Err(Error::value(problem));
            }
            values.set(name, value.clone());
        }
        self.config = MoEConfig::from_table(&values)?;
        Ok(self)
    }

    /// The training options of a run that begins here, where none are given: of one that takes the optimiser's state
    /// along, what that was made with.
    pub fn defaults(&self) -> Table {
        if self.is_beside() {
            return TrainConfig::adapter_tuning();
        }
        let mut values = TrainConfig::fine_tuning();
        if let Some(train) = self.state().map(|state| state.train.values()) {
            for name in ["moments", "precision"] {
                values.set(name, train.get(name).cloned().unwrap_or(Value::None));
            }
        }
        values
    }

    /// `Error::Value` names a training option with which no run can begin here.
    pub fn check(&self, train: &TrainConfig) -> Result<()> {
        let (window, length) = (self.window(), train.sequence_length);
        if window > 0 && length > window {
            return Err(Error::value(format!(
                "sequence_length is {length}, but in the model of {} a token sees {window} (sliding_window): give at most that",
                self.path().display()
            )));
        }
        let Some(state) = self.state() else { return Ok(()) };
        let folder = self.path().display();
        let other = |name: &str, value: &str, theirs: &str| {
            let problem = format!("{name} is {value}, but the optimizer of {folder} has {theirs}: leave it out");
            Err(Error::value(problem))
        };
        let (precision, theirs) = (train.precision, state.train.precision);
        if train.moments != state.train.moments {
            let name = |kind: &TrainConfig| kind.values().get("moments").and_then(Value::as_text).map(str::to_owned);
            let (ours, theirs) = (name(train).unwrap_or_default(), name(&state.train).unwrap_or_default());
            return other("moments", &ours, &theirs);
        }
        if precision != theirs && [precision, theirs].contains(&Precision::F16) {
            return other("precision", precision.name(), theirs.name());
        }
        if train.steps <= state.step {
            let (steps, done) = (train.steps, state.step);
            return Err(Error::value(format!(
                "steps is {steps}, but the optimizer of {folder} has done {done}: give more, of which those are the first"
            )));
        }
        Ok(())
    }

    /// Where the training stands that is taken along.
    fn state(&self) -> Option<&TrainingState> {
        let Source::Trained { checkpoint, moments, .. } = &self.source else { return None };
        checkpoint.training.as_ref().filter(|_| moments.is_some())
    }

    /// A trainer that begins here.
    pub(super) fn trainer(&self, rank: Rank<'_>, train: TrainConfig) -> Result<Trainer> {
        self.check(&train)?;
        let (weights, moments, moments_sha256): (&dyn Weights, _, _) = match &self.source {
            Source::Beside(base) => return adapter::new_trainer(base, rank, train),
            Source::File(file) => (&**file, None, None),
            Source::Trained { checkpoint, moments, moments_sha256 } => {
                (&checkpoint.weights, moments.as_ref(), moments_sha256.as_deref())
            }
        };
        let rank = rank.for_run(&self.config, &train)?;
        // What does not fit the ranks is no fault of the folder.
        rank.experts(self.config.num_experts)?;
        let model = MoETransformer::load_with(rank, self.config.clone(), weights, true, train.precision)
            .map_err(|error| error.in_file(self.path()))?;
        let mut trainer = Trainer::with_comm(model, train, true, rank.comm())?;
        if let Some(comm) = trainer.replicas().comm() {
            let (weights_sha256, of_moments) = (self.weights_sha256()?, moments_sha256.unwrap_or_default());
            comm.agree("initial weights", format!("{weights_sha256} {of_moments}"))?;
        }
        if let (Some(file), Some(state)) = (moments, self.state()) {
            moments::load(&trainer, file, &ParameterLayout::new(&self.config)?)?;
            trainer.restore(state.step, state.loss_scaling)?;
        }
        Ok(trainer)
    }

    /// What `run.json` says of it: the folder or file, and SHA-256 of the parameters' stored bytes, in the order of the layout, and
    /// of the file of the moments, where they were taken along.
    pub(super) fn record(&self) -> Result<Table> {
        let folder = self.path();
        let folder = folder.canonicalize().map_err(|error| Error::io(folder, error))?;
        let moments = match &self.source {
            Source::Trained { moments_sha256, .. } => moments_sha256.clone(),
            Source::File(_) | Source::Beside(_) => None,
        };
        Ok(Table::from([
            ("folder", folder.to_string_lossy().into_owned().into()),
            ("weights_sha256", self.weights_sha256()?.into()),
            ("optimizer_sha256", moments.into()),
        ]))
    }
}

/// SHA-256 of the parameters' stored bytes. `Error::Value` names the first that is not a finite number.
fn digest_of_finite(weights: &dyn Weights, config: &MoEConfig) -> Result<String> {
    let mut digest = Sha256::new();
    weights.check_dtypes()?;
    for spec in ParameterLayout::new(config)?.specs() {
        require_finite(&spec.name, &spec.shape, &weights.read_part(&spec.name, 0..spec.size())?)?;
        digest.update(weights.read_bytes(&spec.name)?);
    }
    Ok(sha256::digits(digest))
}

fn require_finite(name: &str, shape: &[usize], values: &[f32]) -> Result<()> {
    let Some(mut at) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
    let found = if values[at].is_nan() { "nan".to_owned() } else { values[at].to_string() };
    let mut index = vec![0; shape.len()];
    for (place, size) in index.iter_mut().zip(shape).rev() {
        (*place, at) = (at % size, at / size);
    }
    Err(Error::value(format!("tensor {name} is not finite, first at {index:?} ({found})")))
}

fn digest_of_file(path: &Path) -> Result<String> {
    let (file, _) = open_regular(path)?;
    let (_, sum) = sha256::of_all(file).map_err(|error| Error::unreadable(path, error))?;
    Ok(sum)
}
