//! A training run: the loop of steps, evaluations, metrics and checkpoints in one folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::adapter::Saved;
use super::chain::{self, Chain};
use super::checkpoint::{Base, TrainingState, list_checkpoints, prune_checkpoints, save_checkpoint};
use super::config::{LEAST_LOSS_SCALE, TrainConfig};
use super::data::TokenWindows;
use super::digest;
use super::divergence;
use super::extension;
use super::metrics::{MetricsLog, rounded};
use super::origin::Origin;
use super::rank::Rank;
use super::replicas::aborting;
use super::sources::Sources;
use super::trainer::{StepResult, Trainer};
use crate::error::{Error, Result};
use crate::format::{Table, Tokenizer, Value, atomic};
use crate::model::{MoEConfig, MoETransformer, mean};
use crate::tokenizer::CarriedTokenizer;

/// Where a run stands after a step. Losses, in nats per token, and skipped steps are those of the last report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Steps done.
    pub step: usize,
    /// Loss of the training data.
    pub loss: f64,
    /// Loss of the held-out data, once it was measured.
    pub held_out_loss: Option<f64>,
    /// Speed between the last two reports.
    pub tokens_per_second: f64,
    /// Time spent training.
    pub seconds: f64,
    /// Steps skipped since their gradients overflowed.
    pub skipped_steps: usize,
}

/// What a run reports while it trains.
#[derive(Debug)]
pub enum Event<'a> {
    /// A line of `metrics.jsonl` was written.
    Record(&'a Table),
    /// A step was done, and its evaluation and checkpoint if it had them.
    Step(&'a Progress),
}

/// Trains in a folder: `checkpoints/`, `metrics.jsonl` and `chain.jsonl`.
///
/// The order of the data is a function of seed and position, and a checkpoint holds all that a step depends on, so a
/// run that was stopped anywhere and taken up again passes through the same bits as one that was not.
///
/// The ranks of a communicator make the same run, each with the same folder, and call the same functions; the first of them
/// writes what one rank would. Any number of them may take it up again.
#[derive(Debug)]
pub struct TrainingRun {
    folder: PathBuf,
    trainer: Trainer,
    data: TokenWindows,
    held_out: Option<TokenWindows>,
    tokenizer: Option<CarriedTokenizer>,
    position: u64,
    seconds: f64,
    stop: Arc<AtomicBool>,
    notice: Option<String>,
    origin: Option<Table>,
    /// The model beside which it trains an adapter.
    base: Option<Base>,
}

/// Refuses a run that is to train an adapter beside no model.
fn require_base(train: &TrainConfig) -> Result<()> {
    if train.lora_rank == 0 {
        return Ok(());
    }
    let problem = "but there is no model beside which an adapter is trained: give --from";
    Err(Error::value(format!("lora_rank is {}, {problem}", train.lora_rank)))
}

impl TrainingRun {
    /// A new run. `Error::Exists` when the folder holds checkpoints already, `Error::Value` when the steps end in the
    /// warm-up.
    pub fn start<'a>(
        folder: &Path,
        rank: impl Into<Rank<'a>>,
        model: MoEConfig,
        train: TrainConfig,
        data: &Path,
        held_out: Option<&Path>,
        tokenizer: Option<Tokenizer>,
    ) -> Result<Self> {
        let rank = rank.into();
        let make = |train: TrainConfig| {
            require_base(&train)?;
            let rank = rank.for_run(&model, &train)?;
            let model = MoETransformer::random_with(rank, model, train.seed, true, train.precision)?;
            Trainer::with_comm(model, train, true, rank.comm())
        };
        let tokenizer = tokenizer.as_ref().map(CarriedTokenizer::from);
        aborting(rank.comm(), Self::begin(folder, train, (data, held_out), tokenizer, make))
    }

    /// The same for a run that begins at `origin`, whose tokenizer it takes unless one is given.
    pub fn start_from<'a>(
        folder: &Path,
        rank: impl Into<Rank<'a>>,
        origin: &Origin,
        train: TrainConfig,
        data: &Path,
        held_out: Option<&Path>,
        tokenizer: Option<Tokenizer>,
    ) -> Result<Self> {
        let rank = rank.into();
        let tokenizer = tokenizer.as_ref().map(CarriedTokenizer::from).or_else(|| origin.tokenizer().cloned());
        let make = |train: TrainConfig| {
            if !origin.is_beside() {
                require_base(&train)?;
            }
            origin.trainer(rank, train)
        };
        let begun = Self::begin(folder, train, (data, held_out), tokenizer, make).and_then(|run| {
            let notice = origin.notice().map(str::to_owned);
            Ok(Self { origin: Some(origin.record()?), base: origin.base()?, notice, ..run })
        });
        aborting(rank.comm(), begun)
    }

    fn begin(
        folder: &Path,
        train: TrainConfig,
        sources: (&Path, Option<&Path>),
        tokenizer: Option<CarriedTokenizer>,
        make: impl FnOnce(TrainConfig) -> Result<Trainer>,
    ) -> Result<Self> {
        if !list_checkpoints(&folder.join("checkpoints"))?.is_empty() {
            let folder = folder.display();
            return Err(Error::Exists(format!("{folder} already holds a run: resume it, or choose another folder")));
        }
        train.check_schedule()?;
        let data = TokenWindows::open(sources.0, train.sequence_length)?;
        let held_out = sources.1.map(|path| TokenWindows::open(path, train.sequence_length)).transpose()?;
        Self::new(folder, make(train)?, data, held_out, tokenizer, 0, 0.0)
    }

    /// Resumes a run from its last checkpoint, with the options that it was started with but for `changes`, which may
    /// be of those in `TrainConfig::CHANGEABLE`. `Error::Format` when the data is not what it was started on.
    pub fn resume<'a>(folder: &Path, rank: impl Into<Rank<'a>>, sources: &Sources, changes: &Table) -> Result<Self> {
        Self::resume_admitted(folder, rank, sources, changes, &|_, _| Ok(()))
    }

    /// The same for what `admit` has nothing against: it is given the options when the files have been checked, and may
    /// refuse before memory is taken.
    pub fn resume_admitted<'a>(
        folder: &Path,
        rank: impl Into<Rank<'a>>,
        sources: &Sources,
        changes: &Table,
        admit: &dyn Fn(&MoEConfig, &TrainConfig) -> Result<()>,
    ) -> Result<Self> {
        let rank = rank.into();
        aborting(rank.comm(), Self::reopen(folder, rank, sources, changes, admit, false))
    }

    /// The same for more `steps` than the run has, which may be done: `changes` has them, and may have other values of
    /// the options in `TrainConfig::SCHEDULE`. `run.json` records it; `notice` says what it does to the learning rate.
    pub fn extend<'a>(
        folder: &Path,
        rank: impl Into<Rank<'a>>,
        sources: &Sources,
        changes: &Table,
        admit: &dyn Fn(&MoEConfig, &TrainConfig) -> Result<()>,
    ) -> Result<Self> {
        let rank = rank.into();
        aborting(rank.comm(), Self::reopen(folder, rank, sources, changes, admit, true))
    }

    fn reopen(
        folder: &Path,
        rank: Rank<'_>,
        sources: &Sources,
        changes: &Table,
        admit: &dyn Fn(&MoEConfig, &TrainConfig) -> Result<()>,
        extends: bool,
    ) -> Result<Self> {
        let root = folder.join("checkpoints");
        let Some(last) = list_checkpoints(&root)?.pop() else {
            return Err(Error::missing(root, "holds no checkpoint to resume from"));
        };
        let checkpoint = Saved::open(&last)?;
        let state = checkpoint.state()?;
        let before = extension::extended(folder, state)?;
        let after = if extends { before.extended(changes)? } else { before.changed(changes)? };
        if extends {
            extension::check(&before, &after)?;
        }
        let (position, seconds, length) = (state.data_position, state.seconds, state.train.sequence_length);
        let windows = TokenWindows::open(&sources.data, length)?;
        if windows.windows() != state.data_windows {
            let (data, found, wanted) = (sources.data.display(), windows.windows(), state.data_windows);
            return Err(Error::value(format!(
                "{data} holds {found} windows; this run was started on data with {wanted}"
            )));
        }
        sources.check_data(&windows)?;
        let held_out = sources.held_out.as_ref().map(|path| TokenWindows::open(path, length)).transpose()?;
        held_out.as_ref().map_or(Ok(()), |held_out| sources.check_held_out(held_out))?;
        let unchanged = after == state.train;
        let admitted = admit(checkpoint.config(), &after);
        admitted.map_err(|error| if unchanged { error.in_file(last.join("training.json")) } else { error })?;
        let trainer = checkpoint.trainer_of(rank, after.clone())?;
        let notice = if extends { Some(extension::text(rank.context(), state, &before, &after)?) } else { None };
        let step = state.step;
        let of_model = matches!(checkpoint, Saved::Model(_));
        let tokenizer = of_model.then(|| CarriedTokenizer::of(&last)).transpose()?;
        let base = state.base.clone();
        let mut run = Self::new(folder, trainer, windows, held_out, tokenizer, position, seconds)?;
        run.base = base;
        if extends {
            if run.is_first() {
                extension::record(folder, step, &after)?;
            }
            run.notice = notice;
        }
        Ok(run)
    }

    fn new(
        folder: &Path,
        trainer: Trainer,
        data: TokenWindows,
        held_out: Option<TokenWindows>,
        tokenizer: Option<CarriedTokenizer>,
        position: u64,
        seconds: f64,
    ) -> Result<Self> {
        let vocab = trainer.model().config().vocab_size;
        for (windows, name) in [(Some(&data), "training"), (held_out.as_ref(), "held-out")] {
            if let Some(found) = windows.map(TokenWindows::vocab_size).filter(|found| *found != vocab as u64) {
                let problem = format!("the {name} data has a vocabulary of {found}, the model one of {vocab}");
                return Err(Error::value(problem));
            }
            let mask = trainer.config().document_mask;
            if let (Some(mask), true) = (mask, windows.is_some_and(TokenWindows::has_documents)) {
                let knows = format!("the {name} data knows where its documents end");
                return Err(Error::value(format!("document_mask is {mask}, but {knows}: leave it out")));
            }
        }
        let stop = Arc::default();
        let folder = folder.to_owned();
        let (notice, origin, base) = (None, None, None);
        Ok(Self { folder, trainer, data, held_out, tokenizer, position, seconds, stop, notice, origin, base })
    }

    /// Whether this rank writes the files of the run: the first one does.
    pub fn is_first(&self) -> bool {
        self.trainer.replicas().is_first()
    }

    /// When this is set, on any rank, the loop ends after the step that it is in, with a checkpoint. A signal handler may do it.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// What an extension does to the schedule, in words.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Where it began, as `run.json` has it; `None` with random weights.
    pub(super) fn origin(&self) -> Option<&Table> {
        self.origin.as_ref()
    }

    /// The trainer.
    pub fn trainer(&self) -> &Trainer {
        &self.trainer
    }

    /// The training data.
    pub fn data(&self) -> &TokenWindows {
        &self.data
    }

    /// The held-out data.
    pub fn held_out(&self) -> Option<&TokenWindows> {
        self.held_out.as_ref()
    }

    /// Where the checkpoints are.
    pub fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    /// Trains until all steps are done or, after one step at least, the stop flag is set; returns the last progress,
    /// `None` if nothing was left. An error of `report` ends it at once.
    ///
    /// `Error::Diverged` when a loss or gradients are not finite, or a reported loss is above `max_loss`; it says where
    /// that began. It is looked for whenever the run reports, evaluates or saves, so that no checkpoint is of a step
    /// behind it.
    pub fn run(&mut self, report: impl FnMut(Event) -> Result<()>) -> Result<Option<Progress>> {
        let done = self.agree().and_then(|()| self.steps(report));
        self.trainer.replicas().aborting(done)
    }

    /// Fails when ranks go on from another place, or on other data.
    fn agree(&self) -> Result<()> {
        let Some(comm) = self.trainer.replicas().comm() else { return Ok(()) };
        let sources = [Some(&self.data), self.held_out.as_ref()].into_iter().flatten();
        let texts = sources.map(|windows| Ok(format!("{} {}", windows.windows(), windows.sha256()?)));
        comm.agree("training data", texts.collect::<Result<Vec<_>>>()?.join(" "))?;
        Ok(comm.agree("step", self.trainer.step().to_string())?)
    }

    /// The metrics, for the rank that writes them; also makes the folder ready.
    fn log(&self) -> Result<Option<MetricsLog>> {
        if !self.is_first() {
            return Ok(None);
        }
        let root = self.checkpoints();
        std::fs::create_dir_all(&root).map_err(|error| Error::io(&root, error))?;
        atomic::remove_leftovers(&root)?;
        MetricsLog::open(&self.folder, self.trainer.step()).map(Some)
    }

    /// The chain, for the rank that writes it; all ranks call it, once the metrics are open.
    fn chain(&self) -> Result<Option<Chain>> {
        let trainer = &self.trainer;
        let digests = (trainer.config().hash_every > 0).then(|| digest::of(trainer)).transpose()?;
        if !self.is_first() || (digests.is_none() && !chain::present(&self.folder)) {
            return Ok(None);
        }
        let names = digest::names(trainer.model().layout(), trainer.config());
        let mut chain = Chain::open(&self.folder, trainer.step(), &self.data, trainer.config(), &names)?;
        if let Some(digests) = digests {
            chain.begin(&names, &digests, self.position)?;
        }
        Ok(Some(chain))
    }

    /// Saves a checkpoint, and enters it in the chain with the digests of the state, which it takes if need be.
    fn save_chained(&self, chain: Option<&mut Chain>, loss: Option<f64>, digests: Option<String>) -> Result<()> {
        let digests = match digests {
            None if self.trainer.config().hash_every > 0 => Some(digest::of(&self.trainer)?),
            digests => digests,
        };
        let folder = self.save(loss)?;
        match (chain, digests) {
            (Some(chain), Some(digests)) => chain.add_files(self.trainer.step(), &digests, Some(&folder)),
            _ => Ok(()),
        }
    }

    fn steps(&mut self, mut report: impl FnMut(Event) -> Result<()>) -> Result<Option<Progress>> {
        let mut log = self.log()?;
        let mut chain = self.chain()?;
        let mut reporter = |record: &Table, report: &mut dyn FnMut(Event) -> Result<()>| {
            let Some(log) = &mut log else { return Ok(()) };
            log.write(record)?;
            report(Event::Record(record))
        };
        let config = self.trainer.config().clone();
        let every = |interval: usize, step: usize| interval > 0 && step.is_multiple_of(interval);
        let mut progress = Progress {
            step: 0,
            loss: f64::NAN,
            held_out_loss: None,
            tokens_per_second: 0.0,
            seconds: self.seconds,
            skipped_steps: 0,
        };
        let mut timed = (0u64, 0.0);
        let (mut saved, mut any, mut stopped) = (true, false, false);
        while self.trainer.step() < config.steps && !stopped {
            let began = Instant::now();
            let ctx = self.trainer.model().context();
            let order = self.data.order(ctx, config.seed, self.position, config.batch_size)?;
            let batch = self.data.take(&self.trainer.rows().map(|row| order[row]).collect::<Vec<_>>())?;
            let result = self.trainer.train_step(&batch)?;
            self.position += config.batch_size as u64;
            let step = result.step;
            let last = step == config.steps;
            let reported = last || step.is_multiple_of(config.log_every);
            let evaluated = self.held_out.is_some() && (last || every(config.eval_every, step));
            saved = last || every(config.save_every, step);
            let measures = reported.then(|| Measures::of(&result)).transpose()?;
            let digests = every(config.hash_every, step).then(|| digest::of(&self.trainer)).transpose()?;
            let spent = began.elapsed().as_secs_f64();
            self.seconds += spent;
            timed = (timed.0 + 1, timed.1 + spent);
            let link = match (&mut chain, &digests) {
                (Some(chain), Some(digests)) => Some(chain.add(step, self.position, digests)?),
                _ => None,
            };
            if let Some(measures) = measures {
                let tokens = timed.0 as f64 * config.batch_size as f64 * config.sequence_length as f64;
                progress.tokens_per_second = tokens / timed.1;
                progress.loss = measures.loss;
                progress.skipped_steps = measures.skipped_steps;
                timed = (0, 0.0);
                let tokens = self.position * config.sequence_length as u64;
                let bytes = self.trainer.model().context().bytes_peak()?;
                let mut record = measures.record(step, tokens, progress.tokens_per_second, self.seconds, bytes);
                if let Some(link) = link {
                    record.set("hash", link);
                }
                reporter(&record, &mut report)?;
            }
            if reported || evaluated || saved {
                self.check_convergence()?;
            }
            let mut measured = None;
            if evaluated {
                let loss = self.evaluate(config.eval_batches)?;
                (measured, progress.held_out_loss) = (Some(loss), Some(loss));
                reporter(&Table::from([("step", step.into()), ("held_out_loss", loss.into())]), &mut report)?;
            }
            if saved {
                self.save_chained(chain.as_mut(), measured, digests)?;
            }
            (progress.step, progress.seconds, any) = (step, self.seconds, true);
            report(Event::Step(&progress))?;
            let asked = usize::from(self.stop.load(Ordering::Relaxed));
            stopped = self.trainer.replicas().count(asked)? > 0;
        }
        if !saved {
            self.check_convergence()?;
            self.save_chained(chain.as_mut(), None, None)?;
        }
        Ok(any.then_some(progress))
    }

    /// `Error::Diverged` when gradients or the loss of the last step, or gradients of one before it, are not finite, or that
    /// loss is above the limit.
    ///
    /// A step in f16 that overflowed is none of these: it was skipped, and a lower loss scale can still help.
    fn check_convergence(&mut self) -> Result<()> {
        let (step, config) = (self.trainer.step(), self.trainer.config());
        let scale = self.trainer.last_loss_scale()?;
        if scale.is_some() && self.trainer.last_skipped()? {
            if scale == Some(LEAST_LOSS_SCALE) {
                return Err(Error::Diverged(format!(
                    "the gradients overflow at step {step} with the least loss scale there is; the last checkpoint is \
                    from before that. A lower learning rate or another precision usually helps"
                )));
            }
            return Ok(());
        }
        let loss = self.trainer.last_loss()?;
        let bad = self.trainer.diverged_at()?.or_else(|| (!loss.is_finite()).then_some(step));
        if let Some(bad) = bad {
            let ctx = self.trainer.model().context();
            let position = self.position - ((step - bad + 1) * config.batch_size) as u64;
            let batch = self.data.batch(ctx, config.seed, position, config.batch_size);
            return Err(divergence::not_finite(&mut self.trainer, batch, bad, loss));
        }
        let limit = config.loss_limit(self.trainer.model().config().vocab_size);
        if loss > limit {
            return Err(divergence::too_large(&self.trainer, loss, step, limit)?);
        }
        Ok(())
    }

    /// Mean cross-entropy over the held-out data, all of it or so many batches, in nats per token. Ranks share the batches
    /// out, and all get it.
    pub fn evaluate(&self, batches: usize) -> Result<f64> {
        self.trainer.replicas().aborting(self.held_out_loss(batches))
    }

    fn held_out_loss(&self, batches: usize) -> Result<f64> {
        let Some(held_out) = &self.held_out else {
            return Err(Error::value("this run has no held-out data"));
        };
        let (config, model, replicas) = (self.trainer.config(), self.trainer.model(), self.trainer.replicas());
        let (rank, ranks) = replicas.comm().map_or((0, 1), |comm| (comm.rank(), comm.ranks()));
        let (mut sums, mut count) = (Vec::new(), 0);
        let size = config.micro_batch_size.unwrap_or(config.batch_size);
        let mut parts = held_out.spread(size, batches);
        loop {
            let round: Vec<_> = parts.by_ref().take(ranks).collect();
            if round.is_empty() {
                model.end_evaluation();
                break;
            }
            let number = sums.len() + rank;
            sums.resize(sums.len() + round.len(), 0f32);
            model.begin_evaluation(size * held_out.length(), |rank| rank < round.len());
            let Some(chosen) = round.get(rank) else {
                model.serve_evaluation()?;
                continue;
            };
            let batch = held_out.take(chosen)?;
            let shape = [batch.rows, batch.length];
            let ctx = model.context();
            let ends = batch.document_ends.map(|ends| ctx.tensor(&ends, &shape)).transpose()?;
            let (ids, targets) = (ctx.tensor(&batch.inputs, &shape)?, ctx.tensor(&batch.targets, &shape)?);
            let (part, tokens) = model.evaluate_documents(&ids, &targets, ends.as_ref())?;
            sums[number] = part as f32; // which it is
            count += tokens;
        }
        let sums = model.context().tensor(&sums, &[sums.len()])?;
        replicas.share(&sums)?;
        mean(&sums, None, replicas.count(count as usize)? as u64)
    }

    /// Writes a checkpoint of this moment and removes those that are not to be kept; returns its folder.
    pub fn save(&self, held_out_loss: Option<f64>) -> Result<PathBuf> {
        let config = self.trainer.config();
        let state = TrainingState {
            step: self.trainer.step(),
            data_position: self.position,
            data_windows: self.data.windows(),
            seconds: self.seconds,
            train: config.clone(),
            held_out_loss,
            loss_scaling: self.trainer.loss_scaling()?,
            base: self.base.clone(),
        };
        let root = self.checkpoints();
        let folder = save_checkpoint(&root, &self.trainer, &state, self.tokenizer.as_ref())?;
        if self.is_first() {
            prune_checkpoints(&root, config.keep_checkpoints)?;
        }
        Ok(folder)
    }
}

/// The numbers of a step that its line of metrics holds, read from the device.
struct Measures {
    loss: f64,
    aux_loss: f64,
    grad_norm: f64,
    learning_rate: f64,
    expert_shares: Value,
    loss_scale: Option<f64>,
    skipped_steps: usize,
}

impl Measures {
    fn of(result: &StepResult<'_>) -> Result<Self> {
        let shares = |counts: Vec<i32>| {
            let total: f64 = counts.iter().map(|count| f64::from(*count)).sum();
            let share = |count: i32| Value::Float(rounded(f64::from(count) / total, 5));
            Value::List(counts.into_iter().map(share).collect())
        };
        Ok(Self {
            loss: result.loss()?,
            aux_loss: result.aux_loss()?,
            grad_norm: result.grad_norm()?,
            learning_rate: result.learning_rate()?,
            expert_shares: Value::List(result.expert_counts()?.into_iter().map(shares).collect()),
            loss_scale: result.loss_scale()?,
            skipped_steps: result.skipped_steps()?,
        })
    }

    fn record(&self, step: usize, tokens: u64, speed: f64, seconds: f64, bytes_peak: usize) -> Table {
        let mut record = Table::from([
            ("step", step.into()),
            ("loss", finite(self.loss)),
            ("aux_loss", finite(self.aux_loss)),
            ("grad_norm", finite(self.grad_norm)),
            ("learning_rate", finite(self.learning_rate)),
            ("tokens", tokens.into()),
            ("tokens_per_second", rounded(speed, 1).into()),
            ("seconds", rounded(seconds, 3).into()),
            ("bytes_peak", bytes_peak.into()),
        ]);
        if self.expert_shares != Value::List(Vec::new()) {
            record.set("expert_shares", self.expert_shares.clone());
        }
        if let Some(scale) = self.loss_scale {
            record.set("loss_scale", scale);
            record.set("skipped_steps", self.skipped_steps);
        }
        record
    }
}

/// A number of a record; none where it is not finite, which JSON has no word for.
fn finite(value: f64) -> Value {
    if value.is_finite() { value.into() } else { Value::None }
}
