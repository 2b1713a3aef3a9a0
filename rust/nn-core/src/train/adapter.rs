//! Runs that train an adapter beside a model that stays as it is stored. A checkpoint of one is a folder of PEFT with two files
//! more:
//!
//! ```text
//! RUN/checkpoints/step-00000300/
//!     adapter_config.json        the adapter, as a folder of PEFT
//!     adapter_model.safetensors  its factors, f32
//!     optimizer.safetensors      the moments of these, as in other checkpoints
//!     training.json              as in other checkpoints, and `base`
//! ```
//!
//! The model itself stays where it is, with its tokenizer. A run goes on beside the same weights alone.

use std::path::{Path, PathBuf};

use nn_ffi::Comm;

use super::checkpoint::{Base, Checkpoint, TrainingState, open_moments, read_training_state};
use super::config::TrainConfig;
use super::moments;
use super::rank::Rank;
use super::trainer::Trainer;
use crate::error::{Error, Result};
use crate::format::present;
use crate::format::safetensors::SafetensorsFile;
use crate::model::{ADAPTER_CONFIG, Adapter, FrozenBase, LowRankOptions, MoEConfig, MoETransformer, is_adapter};

/// What checkpoints say of a base. `Error::Format` for weights that are not finite.
pub(super) fn base_of(base: &FrozenBase) -> Result<Base> {
    let path = base.stored().path();
    let folder = path.canonicalize().map_err(|error| Error::io(path, error))?;
    Ok(Base { folder: folder.to_string_lossy().into_owned(), weights_sha256: base.sha256()?.to_owned() })
}

/// Refuses several ranks, which train no adapter.
fn require_one_rank(rank: Rank<'_>) -> Result<()> {
    let ranks = rank.comm().map_or(1, Comm::ranks);
    if ranks > 1 || rank.expert_parallel() > 1 {
        return Err(Error::value(format!("an adapter is trained by one rank; there are {ranks}")));
    }
    Ok(())
}

/// The adapter's options of a run that trains one.
fn options_of(train: &TrainConfig) -> Result<LowRankOptions> {
    train.low_rank().ok_or_else(|| Error::value("lora_rank is 0; a run that trains an adapter has more"))
}

/// A trainer of a new adapter.
pub(super) fn new_trainer(base: &FrozenBase, rank: Rank<'_>, train: TrainConfig) -> Result<Trainer> {
    require_one_rank(rank)?;
    let model = MoETransformer::low_rank_random(rank.context(), base, options_of(&train)?, train.seed)?;
    Trainer::new(model, train, true)
}

/// A checkpoint of a run, opened, whatever it trains.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(super) enum Saved {
    Model(Checkpoint),
    Adapter(AdapterCheckpoint),
}

impl Saved {
    pub(super) fn open(folder: &Path) -> Result<Self> {
        if is_adapter(folder) {
            return Ok(Self::Adapter(AdapterCheckpoint::open(folder)?));
        }
        Ok(Self::Model(Checkpoint::open(folder)?))
    }

    /// Where the training stands; the file of the moments is checked.
    pub(super) fn state(&self) -> Result<&TrainingState> {
        match self {
            Self::Model(checkpoint) => Ok(checkpoint.to_train()?.0),
            Self::Adapter(checkpoint) => checkpoint.moments().map(|_| &checkpoint.state),
        }
    }

    /// The model's options.
    pub(super) fn config(&self) -> &MoEConfig {
        match self {
            Self::Model(checkpoint) => &checkpoint.config,
            Self::Adapter(checkpoint) => checkpoint.base.config(),
        }
    }

    /// A trainer that goes on from there, with options that are nearly those that were saved.
    pub(super) fn trainer_of(&self, rank: Rank<'_>, options: TrainConfig) -> Result<Trainer> {
        match self {
            Self::Model(checkpoint) => checkpoint.trainer_of(rank, options),
            Self::Adapter(checkpoint) => checkpoint.trainer_of(rank, options),
        }
    }
}

/// That of a run that trains an adapter: all of it is checked but the weights of the model.
#[derive(Debug)]
pub(super) struct AdapterCheckpoint {
    folder: PathBuf,
    base: FrozenBase,
    state: TrainingState,
    options: LowRankOptions,
    adapter: Adapter,
}

impl AdapterCheckpoint {
    fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("training.json");
        if !present(&path) {
            return Err(Error::missing(folder, "has no training.json: it can be run, but not trained further"));
        }
        let state = read_training_state(&path)?;
        let Some(told) = &state.base else {
            return Err(Error::format(path, "has no base, beside which an adapter is trained"));
        };
        let (where_, options) = (Path::new(&told.folder), options_of(&state.train)?);
        if !present(where_) {
            let shown = crate::format::Value::from(told.folder.as_str()).shown();
            return Err(Error::format(folder, format!("is an adapter of {shown}, which is not there: put it back")));
        }
        let base = FrozenBase::open(where_)?;
        let adapter = Adapter::open(folder, base.stored().config())?;
        let opened = Self { folder: folder.to_owned(), base, state, options, adapter };
        opened.check()?;
        Ok(opened)
    }

    /// Refuses factors and options of PEFT that are not those of `training.json`.
    fn check(&self) -> Result<()> {
        let (rank, scale) = (self.adapter.rank(), self.adapter.scale());
        if (rank, scale) != (self.options.rank, self.options.scale()) {
            let (ours, shown) = (self.options.rank, short(self.options.scale()));
            let problem =
                format!("has r {rank} and a scale of {}; training.json makes them {ours} and {shown}", short(scale));
            return Err(Error::format(self.folder.join(ADAPTER_CONFIG), problem));
        }
        let pairs = self.options.factors(self.base.config())?;
        let found = self.adapter.factors();
        let missing = pairs.iter().map(|(name, _)| name).filter(|name| !found.contains_key(*name));
        let more = found.keys().filter(|name| !pairs.iter().any(|(known, _)| known == *name));
        if let Some(name) = missing.chain(more).min() {
            let problem = format!("its options and its factors differ: one of them alone has {name}");
            return Err(Error::format(&self.folder, problem));
        }
        for (matrix, names) in &pairs {
            let pair = &found[matrix];
            for (name, part) in names.iter().zip([&pair.a, &pair.b]) {
                if part.format.name != "f32" {
                    let problem = format!("tensor {name} is in {}; what is trained is in f32", part.format.name);
                    return Err(Error::format(&self.folder, problem));
                }
            }
        }
        Ok(())
    }

    fn moments(&self) -> Result<SafetensorsFile> {
        open_moments(&self.folder, &self.options.layout(self.base.config())?, &self.state)
    }

    fn trainer_of(&self, rank: Rank<'_>, options: TrainConfig) -> Result<Trainer> {
        require_one_rank(rank)?;
        let moments = self.moments()?;
        let (found, recorded) = (self.base.sha256()?, self.state.base.as_ref().map_or("", |base| &base.weights_sha256));
        if found != recorded {
            let cut = |sum: &str| sum.chars().take(12).collect::<String>();
            let problem = format!(
                "has other weights than when this adapter was begun (SHA-256 {}… then, {}… now)",
                cut(recorded),
                cut(found)
            );
            return Err(Error::format(self.base.stored().path(), problem));
        }
        let model = MoETransformer::low_rank_zeros(rank.context(), &self.base, self.options.clone())?;
        for (matrix, [a, b]) in self.options.factors(self.base.config())? {
            let pair = &self.adapter.factors()[&matrix];
            model.parameters().set(&a, &pair.a.f32()?)?;
            model.parameters().set(&b, &pair.b.f32()?)?;
        }
        let in_state = |error: Error| error.in_file(self.folder.join("training.json"));
        let unchanged = options == self.state.train;
        let in_options = |error: Error| if unchanged { in_state(error) } else { error };
        let mut trainer = Trainer::new(model, options, true).map_err(in_options)?;
        moments::load(&trainer, &moments, &self.options.layout(self.base.config())?)?;
        trainer.restore(self.state.step, self.state.loss_scaling).map_err(in_state)?;
        Ok(trainer)
    }
}

/// A number of six digits.
fn short(number: f64) -> String {
    let shown: f64 = format!("{number:.5e}").parse().unwrap_or(number);
    shown.to_string()
}
