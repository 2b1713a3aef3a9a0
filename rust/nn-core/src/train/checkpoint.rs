//! Checkpoints: folders that transformers opens as a Mixtral and from which training continues, bit for bit.
//!
//! ```text
//! RUN/checkpoints/step-00000300/
//!     config.json              the model, as transformers' Mixtral
//!     model.safetensors        its weights, f32, in the order of the arena (or shards with their index)
//!     tokenizer.model          SentencePiece
//!     tokenizer_config.json    the same tokenizer for transformers
//!     generation_config.json   its begin, end and padding, likewise
//!     optimizer.safetensors    first_moment.NAME and second_moment.NAME of each parameter, f32 or bf16; or, of moments
//!                              in 8 bits, first.codes, first.scales, second.codes and second.scales
//!     training.json            step, data position, options, held-out loss, loss scale
//! ```
//!
//! A folder appears under its name in one step, when all of it is on the disk: what has the name is whole, so "the
//! last" is simply the highest number, and "the best" the one with the lowest held-out loss. No pointer can go stale.

use std::path::{Path, PathBuf};

use nn_ffi::Context;

use super::config::{LARGEST_LOSS_SCALE, LEAST_LOSS_SCALE, TrainConfig};
use super::moments;
use super::rank::Rank;
use super::scaling::LossScalingState;
use super::trainer::Trainer;
use crate::error::{Error, Result};
use crate::format::limits::COUNT;
use crate::format::safetensors::{
    DEFAULT_SHARD_BYTES, SafetensorsFile, SafetensorsFolder, fill_safetensors, fill_safetensors_folder,
    lay_out_safetensors, lay_out_safetensors_folder,
};
use crate::format::{Table, Tokenizer, Value, atomic, present, read_json};
use crate::model::{
    ADAPTER_CONFIG, ADAPTER_WEIGHTS, FACTOR_PREFIX, MixtralWeights, MoEConfig, MoETransformer, ParameterLayout,
    Precision, adapter_values, check_no_adapter, config_from_mixtral, config_to_mixtral, window_from_mixtral,
};
use crate::options::Bounds;
use crate::tokenizer::CarriedTokenizer;

const FORMAT: &str = "nncuda training state";
const VERSION: i128 = 1;
const MOMENTS: &str = "optimizer.safetensors";
// What the numbers of a state must be; tests/bounds.json has the reasons.
const SECONDS: Bounds = ("seconds", 0.0, 1e12, "a number, from 0 to 1e+12");
const HELD_OUT_LOSS: Bounds = ("held_out_loss", -1.0, 1e38, "a number, from -1 to 1e+38");

/// What a run needs beside weights and moments to continue.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingState {
    /// Steps done, those that were skipped included.
    pub step: usize,
    /// Windows visited.
    pub data_position: u64,
    /// Windows that the data had.
    pub data_windows: u64,
    /// Time spent training.
    pub seconds: f64,
    /// The options.
    pub train: TrainConfig,
    /// Mean cross-entropy of the held-out data at this step, where it was measured.
    pub held_out_loss: Option<f64>,
    /// There when the precision is f16, and only then.
    pub loss_scaling: Option<LossScalingState>,
    /// The model beside which an adapter is trained, where one is.
    pub base: Option<Base>,
}

/// The model beside which an adapter is trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Its folder or file.
    pub folder: String,
    /// Of its weights, as of [`FrozenBase`](crate::model::FrozenBase).
    pub weights_sha256: String,
}

impl TrainingState {
    /// All of it by name, in the order of the file; without `loss_scaling` where there is none.
    pub fn to_table(&self) -> Table {
        let mut values = Table::from([
            ("step", self.step.into()),
            ("data_position", self.data_position.into()),
            ("data_windows", self.data_windows.into()),
            ("seconds", self.seconds.into()),
            ("train", self.train.to_table().into()),
            ("held_out_loss", self.held_out_loss.into()),
        ]);
        if let Some(Base { folder, weights_sha256 }) = &self.base {
            let base = [("folder", folder.clone().into()), ("weights_sha256", weights_sha256.clone().into())];
            values.set("base", Table::from(base));
        }
        if let Some(LossScalingState { scale, good_steps, skipped }) = self.loss_scaling {
            let state = [("scale", scale.into()), ("good_steps", good_steps.into()), ("skipped", skipped.into())];
            values.set("loss_scaling", Table::from(state));
        }
        values
    }
}

/// A checkpoint folder, opened: all of it checked except the values of the tensors, nothing loaded yet.
///
/// A folder from elsewhere with a Mixtral in it opens too; its `tokenizer` and `training` may be missing.
#[derive(Debug)]
pub struct Checkpoint {
    /// The folder.
    pub folder: PathBuf,
    /// The model's sizes and options.
    pub config: MoEConfig,
    /// The model's weights, not yet read.
    pub weights: MixtralWeights,
    /// The tokenizer.
    pub tokenizer: Option<Tokenizer>,
    /// Where the training stands.
    pub training: Option<TrainingState>,
    /// The most tokens that one sees in the folder's model where it does not see all of the context; 0 where it does.
    pub(super) window: usize,
}

impl Checkpoint {
    /// Opens a folder. `Error::Format` names what is wrong with it.
    pub fn open(folder: &Path) -> Result<Self> {
        if !folder.is_dir() {
            let problem = "is not a folder";
            return Err(if folder.exists() { Error::format(folder, problem) } else { Error::missing(folder, problem) });
        }
        check_no_adapter(folder)?;
        let path = folder.join("config.json");
        let values = read_json(&path)?;
        let config = config_from_mixtral(&values).map_err(|error| error.in_file(&path))?;
        let window = window_from_mixtral(&values).map_err(|error| error.in_file(&path))?;
        let files = SafetensorsFolder::open(folder)?;
        let weights = MixtralWeights::new(files, &config).map_err(|error| error.in_file(folder))?;
        let path = folder.join("tokenizer.model");
        let tokenizer = present(&path).then(|| Tokenizer::load(&path)).transpose()?;
        let path = folder.join("training.json");
        let training = present(&path).then(|| read_training_state(&path)).transpose()?;
        Ok(Self { folder: folder.to_owned(), config, weights, tokenizer, training, window })
    }

    /// The model with these weights, to compute in `precision`; with gradients when it is for training.
    pub fn model(&self, ctx: &Context, training: bool, precision: Precision) -> Result<MoETransformer> {
        self.model_with(ctx.into(), training, precision)
    }

    fn model_with(&self, rank: Rank<'_>, training: bool, precision: Precision) -> Result<MoETransformer> {
        // What does not fit the ranks is no fault of the folder.
        rank.experts(self.config.num_experts)?;
        MoETransformer::load_with(rank, self.config.clone(), &self.weights, training, precision)
            .map_err(|error| error.in_file(&self.folder))
    }

    /// Model, moments and step as they were saved, by whichever number of ranks.
    pub fn trainer<'a>(&self, rank: impl Into<Rank<'a>>) -> Result<Trainer> {
        self.trainer_with(rank, &Table::new())
    }

    /// The same, with other values of some options: those of `TrainConfig::CHANGEABLE`.
    pub fn trainer_with<'a>(&self, rank: impl Into<Rank<'a>>, changes: &Table) -> Result<Trainer> {
        let (state, _) = self.to_train()?;
        self.trainer_of(rank.into(), state.train.changed(changes)?)
    }

    /// The same, with options that are nearly those that were saved.
    pub(super) fn trainer_of(&self, rank: Rank<'_>, options: TrainConfig) -> Result<Trainer> {
        let (state, file) = self.to_train()?;
        let model = self.model_with(rank.for_run(&self.config, &options)?, true, state.train.precision)?;
        let in_state = |error: Error| error.in_file(self.folder.join("training.json"));
        // What the trainer refuses is the fault of the file, unless options were changed.
        let unchanged = options == state.train;
        let in_options = |error: Error| if unchanged { in_state(error) } else { error };
        let mut trainer = Trainer::with_comm(model, options, true, rank.comm()).map_err(in_options)?;
        moments::load(&trainer, &file, &ParameterLayout::new(&self.config)?)?;
        trainer.restore(state.step, state.loss_scaling).map_err(in_state)?;
        Ok(trainer)
    }

    /// Where the training stands, and the file of the moments, checked.
    pub(super) fn to_train(&self) -> Result<(&TrainingState, SafetensorsFile)> {
        let Some(state) = &self.training else {
            return Err(Error::missing(&self.folder, "has no training.json: it can be run, but not trained further"));
        };
        let layout = ParameterLayout::new(&self.config)?;
        Ok((state, open_moments(&self.folder, &layout, state)?))
    }
}

/// The file of the moments of a checkpoint, checked.
pub(super) fn open_moments(folder: &Path, layout: &ParameterLayout, state: &TrainingState) -> Result<SafetensorsFile> {
    let path = folder.join(MOMENTS);
    let file = SafetensorsFile::open(&path)?;
    moments::check(&file, layout, state.train.moments).map_err(|error| error.in_file(&path))?;
    Ok(file)
}

/// Writes `root`/step-NNNNNNNN, in one step, and returns it. Of several ranks all call it, and each writes what it has.
pub fn save_checkpoint(
    root: &Path,
    trainer: &Trainer,
    state: &TrainingState,
    tokenizer: Option<&CarriedTokenizer>,
) -> Result<PathBuf> {
    let folder = root.join(format!("step-{:08}", state.step));
    trainer.replicas().aborting(write_checkpoint(&folder, trainer, state, tokenizer))?;
    Ok(folder)
}

fn write_checkpoint(
    folder: &Path,
    trainer: &Trainer,
    state: &TrainingState,
    tokenizer: Option<&CarriedTokenizer>,
) -> Result<()> {
    let (model, replicas) = (trainer.model(), trainer.replicas());
    model.context().synchronize()?;
    let mut weights = model.parameters().sources(trainer.device_moments().own());
    let adapter = model.low_rank();
    if adapter.is_some() {
        weights.iter_mut().for_each(|factor| factor.name.insert_str(0, FACTOR_PREFIX));
    }
    let moments = moments::sources(trainer)?;
    let make = |temporary: &Path| {
        let write = |name: &str, data: &[u8]| {
            let path = temporary.join(name);
            std::fs::write(&path, data).map_err(|error| Error::io(path, error))
        };
        let json = |table: Table| Value::Table(table).to_json_lines().into_bytes();
        let training = || {
            lay_out_safetensors(&temporary.join(MOMENTS), &moments, None)?;
            let mut values = Table::from([("format", FORMAT.into()), ("version", Value::Integer(VERSION))]);
            for (name, value) in state.to_table().iter() {
                values.set(name, value.clone());
            }
            write("training.json", &json(values))
        };
        if let Some(options) = adapter {
            let missing = || Error::value("the state of an adapter that is trained has a base");
            let base = &state.base.as_ref().ok_or_else(missing)?.folder;
            write(ADAPTER_CONFIG, &json(adapter_values(options, base)))?;
            lay_out_safetensors(&temporary.join(ADAPTER_WEIGHTS), &weights, Some("pt"))?;
            return training();
        }
        let mut config = config_to_mixtral(model.config());
        if let Some(tokenizer) = tokenizer {
            for (name, id) in tokenizer.special_ids().iter() {
                config.set(name, id.clone());
            }
            tokenizer.files().try_for_each(|(name, content)| write(name, content))?;
        }
        write("config.json", &json(config))?;
        lay_out_safetensors_folder(temporary, &weights, DEFAULT_SHARD_BYTES)?;
        training()
    };
    let fill = |temporary: &Path| {
        if adapter.is_some() {
            fill_safetensors(&temporary.join(ADAPTER_WEIGHTS), &weights, Some("pt"))?;
        } else {
            fill_safetensors_folder(temporary, &weights, DEFAULT_SHARD_BYTES)?;
        }
        fill_safetensors(&temporary.join(MOMENTS), &moments, None)
    };
    if replicas.is_first() {
        atomic::write_folder(folder, |temporary| {
            replicas.count(std::process::id() as usize)?; // so that all know the folder
            replicas.together(make(temporary))?;
            replicas.together(fill(temporary))
        })?;
    } else {
        let temporary = atomic::temporary(folder, replicas.count(0)? as u32, "");
        replicas.together(Ok(()))?;
        replicas.together(fill(&temporary))?;
    }
    replicas.comm().map_or(Ok(()), |comm| Ok(comm.barrier()?))
}

/// Reads and checks a `training.json`.
pub fn read_training_state(path: &Path) -> Result<TrainingState> {
    let mut values = read_json(path)?;
    let wrong = |problem: String| Err(Error::format(path, problem));
    if values.remove("format").as_ref().and_then(Value::as_text) != Some(FORMAT) {
        return wrong("is not a training state of nncuda".into());
    }
    let version = values.remove("version").unwrap_or(Value::None);
    if version != Value::Integer(VERSION) {
        let version = version.shown();
        return wrong(format!("is a training state of version {version}; this program reads version {VERSION}"));
    }
    let scaling = values.remove("loss_scaling").filter(|scaling| *scaling != Value::None);
    let base = values.remove("base").filter(|base| *base != Value::None);
    let mut names: Vec<_> = values.names().collect();
    names.sort_unstable();
    if names != ["data_position", "data_windows", "held_out_loss", "seconds", "step", "train"] {
        return wrong(format!("has the entries {}; some are missing, or should not be there", names.join(", ")));
    }
    let given = |name: &str| values.get(name).unwrap_or(&Value::None);
    let whole = |name: &str, least: u64, most: u64| {
        let value = given(name);
        value.as_integer().filter(|number| (least..=most).contains(number)).ok_or_else(|| {
            let value = value.shown();
            Error::format(path, format!("{name} is {value}; it must be a whole number, from {least} to {most}"))
        })
    };
    let number = |(name, least, most, rule): Bounds| {
        let value = given(name);
        let found = value.as_number().filter(|number| (least..=most).contains(number));
        found.ok_or_else(|| Error::format(path, format!("{name} is {}; it must be {rule}", value.shown())))
    };
    const MOST_WINDOWS: u64 = (1 << 62) - 1;
    let step = whole("step", 0, COUNT as u64)?;
    let (data_position, data_windows) =
        (whole("data_position", 0, MOST_WINDOWS)?, whole("data_windows", 1, MOST_WINDOWS)?);
    let seconds = number(SECONDS)?;
    let held_out_loss = match given("held_out_loss") {
        Value::None => None,
        Value::Text(word) if matches!(&**word, "NaN" | "Infinity") => None, // of a run of an older version
        _ => Some(number(HELD_OUT_LOSS)?),
    };
    let Value::Table(train) = given("train") else { return wrong("train is not an object".into()) };
    let train = TrainConfig::from_table(train).map_err(|error| error.in_file(path))?;
    let precision = train.precision;
    let loss_scaling = match scaling {
        Some(scaling) if precision == Precision::F16 => Some(loss_scaling(path, &scaling, step)?),
        None if precision != Precision::F16 => None,
        scaling => {
            let article = if scaling.is_none() { "no" } else { "a" };
            return wrong(format!("has {article} loss_scaling; its precision is {precision}"));
        }
    };
    let base = base_of(path, base.as_ref(), train.lora_rank)?;
    let step = step as usize;
    Ok(TrainingState { step, data_position, data_windows, seconds, train, held_out_loss, loss_scaling, base })
}

/// The base of a state, where an adapter is trained.
fn base_of(path: &Path, value: Option<&Value>, rank: usize) -> Result<Option<Base>> {
    let Some(value) = value.filter(|_| rank > 0) else {
        if (value.is_some(), rank) == (false, 0) {
            return Ok(None);
        }
        let article = if value.is_none() { "no" } else { "a" };
        return Err(Error::format(path, format!("has {article} base; its lora_rank is {rank}")));
    };
    let text = |name: &str| value.as_table().and_then(|table| table.get(name)).and_then(Value::as_text);
    match (text("folder"), text("weights_sha256"), value.as_table().map(|table| table.names().count())) {
        (Some(folder), Some(sum), Some(2)) => {
            Ok(Some(Base { folder: folder.to_owned(), weights_sha256: sum.to_owned() }))
        }
        _ => {
            let problem = format!("base is {}; it must have folder and weights_sha256, as text", value.shown());
            Err(Error::format(path, problem))
        }
    }
}

/// The state of loss scaling at a step, as no more can have been skipped.
fn loss_scaling(path: &Path, values: &Value, step: u64) -> Result<LossScalingState> {
    let wrong = |problem: String| Error::format(path, problem);
    let table = values.as_table().filter(|table| {
        let mut names: Vec<_> = table.names().collect();
        names.sort_unstable();
        names == ["good_steps", "scale", "skipped"]
    });
    let Some(table) = table else {
        return Err(wrong(format!("loss_scaling is {}; it must have scale, good_steps and skipped", values.shown())));
    };
    let given = |name: &str| table.get(name).unwrap_or(&Value::None);
    let scale = given("scale");
    let in_range = |scale: &f64| (LEAST_LOSS_SCALE..=LARGEST_LOSS_SCALE).contains(scale);
    let scale = scale.as_number().filter(in_range).ok_or_else(|| {
        wrong(format!("the scale of loss_scaling is {}; it must be a number, 2^-24 to 2^24", scale.shown()))
    })?;
    let counter = |name: &str, most: i32| {
        let value = given(name);
        value.as_integer::<i32>().filter(|count| (0..=most).contains(count)).ok_or_else(|| {
            wrong(format!("{name} of loss_scaling is {}; it must be a whole number, 0 to {most}", value.shown()))
        })
    };
    let good_steps = counter("good_steps", i32::MAX)?;
    let skipped = counter("skipped", i32::try_from(step).unwrap_or(i32::MAX))?;
    Ok(LossScalingState { scale, good_steps, skipped })
}

/// The checkpoints of a run, oldest first.
pub fn list_checkpoints(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::unreadable(root, error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| Error::unreadable(root, error))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let digits = name.strip_prefix("step-").unwrap_or_default();
        if digits.len() >= 8 && digits.bytes().all(|digit| digit.is_ascii_digit()) && path.is_dir() {
            // Longer numbers without their zeros are higher ones, of any length.
            let number = digits.trim_start_matches('0').to_owned();
            found.push((number.len(), number, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, _, path)| path).collect())
}

/// The checkpoint with the lowest held-out loss; `None` when none has one.
pub fn best_checkpoint(root: &Path) -> Result<Option<PathBuf>> {
    let mut best: Option<(f64, PathBuf)> = None;
    for folder in list_checkpoints(root)? {
        let loss = read_training_state(&folder.join("training.json"))?.held_out_loss;
        let loss = loss.filter(|loss| loss.is_finite());
        if let Some(loss) = loss.filter(|loss| best.as_ref().is_none_or(|(lowest, _)| loss < lowest)) {
            best = Some((loss, folder));
        }
    }
    Ok(best.map(|(_, folder)| folder))
}

/// Removes all but the `keep` newest checkpoints and the best.
pub fn prune_checkpoints(root: &Path, keep: usize) -> Result<()> {
    let best = best_checkpoint(root)?;
    let found = list_checkpoints(root)?;
    for folder in &found[..found.len().saturating_sub(keep)] {
        if best.as_ref() != Some(folder) {
            atomic::remove_folder(folder)?;
        }
    }
    Ok(())
}

/// A checkpoint folder from the path of one, or of a run, of which the last or, with `best`, the best is taken.
pub fn resolve_checkpoint(path: &Path, best: bool) -> Result<PathBuf> {
    let root = path.join("checkpoints");
    if !root.is_dir() {
        return Ok(path.to_owned());
    }
    let (found, problem) = if best {
        (best_checkpoint(&root)?, "holds no evaluated checkpoint yet")
    } else {
        (list_checkpoints(&root)?.pop(), "holds no checkpoint yet")
    };
    found.ok_or_else(|| Error::missing(&root, problem))
}
