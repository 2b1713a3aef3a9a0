//! What a step or a token computes and moves, as the profiler of a context that measures counts it.

use nn_ffi::{Context, DType, Machine, Profile};

use super::{Cut, Gpu, Seat, model, sized, trainer, zeros};
use crate::error::{Error, Result};
use crate::format::{Value, parse_json};
use crate::model::{ExpertParallel, MoEConfig, Precision};
use crate::train::TrainConfig;

/// Operations and bytes that the calls of each kernel come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    kernels: Vec<Kernel>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kernel {
    name: String,
    calls: i128,
    flops: i128,
    bytes: i128,
}

impl Work {
    /// What was profiled.
    fn of(profile: &Profile) -> Result<Self> {
        let read = parse_json(profile.json.as_bytes()).map_err(Error::value)?;
        let rows = match read.as_table().and_then(|table| table.get("kernels")) {
            Some(Value::List(rows)) => &rows[..],
            _ => &[],
        };
        let kernels = rows.iter().filter_map(Value::as_table).filter_map(|row| {
            let number = |name| row.get(name).and_then(Value::as_number).map(|number| number as i128);
            let name = row.get("kernel")?.as_text()?.to_owned();
            Some(Kernel { name, calls: number("calls")?, flops: number("flops")?, bytes: number("bytes")? })
        });
        Ok(Self { kernels: kernels.collect() })
    }

    /// Adds other work so many times.
    fn add(&mut self, other: &Self, times: usize) {
        for more in &other.kernels {
            let place = self.kernels.iter().position(|one| one.name == more.name).unwrap_or_else(|| {
                self.kernels.push(Kernel { name: more.name.clone(), ..Kernel::default() });
                self.kernels.len() - 1
            });
            let (one, times) = (&mut self.kernels[place], times as i128);
            one.calls += times * more.calls;
            one.flops += times * more.flops;
            one.bytes += times * more.bytes;
        }
    }

    /// Makes the work of a rank with some of the experts, which are equally wanted, that of the rows that come: its products
    /// have room for the most that may, and leave alone what is not filled of it. A micro-batch has so many tokens.
    fn fill(&mut self, experts: &ExpertParallel, config: &MoEConfig, precision: Precision, tokens: usize) {
        let (k, hidden, ffn) = (config.experts_per_token, config.hidden_size as i128, config.ffn_size as i128);
        let rows = experts.most_rows(k, tokens, config.capacity(tokens));
        let empty = 1.0 - (k * tokens) as f64 / (experts.ranks() * rows) as f64;
        let element = if precision == Precision::F32 { 4 } else { 2 };
        for one in &mut self.kernels {
            if matches!(&*one.name, "cuda_grouped_gemm" | "cuda_grouped_gemm_wgrad") {
                let rows = rows as i128;
                let with_w13 = one.flops / (2 * rows * hidden * ffn) - one.calls; // twice the operations of those with w2
                let width = with_w13 * (hidden + 2 * ffn) + (one.calls - with_w13) * (hidden + ffn);
                one.bytes -= (empty * (rows * width * element) as f64) as i128;
                one.flops -= (empty * one.flops as f64) as i128;
            }
        }
    }

    /// Operations in all.
    pub fn flops(&self) -> i128 {
        self.kernels.iter().map(|one| one.flops).sum()
    }

    /// Bytes in all.
    pub fn bytes(&self) -> i128 {
        self.kernels.iter().map(|one| one.bytes).sum()
    }

    /// The least time on a device: of each kernel, its operations at the peak or its bytes at the bandwidth.
    pub fn seconds(&self, gpu: &Gpu, precision: Precision) -> f64 {
        let peak = if precision == Precision::F32 { gpu.flops_f32 } else { gpu.flops_16 };
        let least = |flops: i128, bytes: i128| (flops as f64 / peak).max(bytes as f64 / gpu.bandwidth);
        self.kernels.iter().map(|one| least(one.flops, one.bytes)).sum()
    }

    fn get(&self, kernel: &str) -> (i128, i128) {
        let found = self.kernels.iter().find(|one| one.name == kernel);
        found.map_or((0, 0), |one| (one.flops, one.bytes))
    }
}

/// What one step computes and moves.
pub fn training_work(config: &MoEConfig, train: &TrainConfig, machine: Machine) -> Result<Work> {
    Ok(work_of_rank(config, train, machine, Seat::ALONE)?.0)
}

/// The same of a rank, with the bytes that it sends in a step.
pub fn work_of_rank(config: &MoEConfig, train: &TrainConfig, machine: Machine, seat: Seat) -> Result<(Work, u64)> {
    let cut = Cut::of(train, seat)?;
    let step = |batch_size: usize| -> Result<(Work, u64)> {
        let ctx = Context::measuring(machine)?;
        let mut trainer = trainer(&ctx, config, train, batch_size, seat, false)?;
        let batch = zeros(trainer.rows().count(), train.sequence_length);
        trainer.train_step(&batch)?; // makes what is made once
        let before = trainer.bytes_sent()?;
        let ((), profile) = ctx.profile(|| trainer.train_step(&batch).map(|_| ()))?;
        let (mut work, mut sent) = (Work::of(&profile)?, trainer.bytes_sent()? - before);
        trainer.left_out(|times, calls| {
            if times > 0 {
                let before = trainer.bytes_sent()?;
                let ((), profile) = ctx.profile(calls)?;
                work.add(&Work::of(&profile)?, times);
                sent += times as u64 * (trainer.bytes_sent()? - before);
            }
            Ok(())
        })?;
        if let Some(experts) = trainer.model().experts() {
            work.fill(experts, config, train.precision, cut.micro * train.sequence_length);
        }
        Ok((work, sent))
    };
    sized(|| {
        let (mut work, sent) = step(cut.measured)?;
        if cut.skipped == 0 {
            return Ok((work, sent));
        }
        // Those left out are whole rounds of the replicas: each comes to what the second of two does.
        let round = train.replicas * cut.micro;
        let rounds = cut.skipped / round;
        let (one, two) = (step(round)?, step(2 * round)?);
        for kernel in &mut work.kernels {
            let (times, one, two) = (rounds as i128, one.0.get(&kernel.name), two.0.get(&kernel.name));
            kernel.flops += times * (two.0 - one.0);
            kernel.bytes += times * (two.1 - one.1);
        }
        Ok((work, sent + rounds as u64 * (two.1 - one.1)))
    })
}

/// What the next token of `batch` sequences computes and moves, each with a cache of `capacity` tokens.
pub fn inference_work(
    config: &MoEConfig,
    precision: Precision,
    machine: Machine,
    batch: usize,
    capacity: usize,
) -> Result<Work> {
    sized(|| {
        let ctx = Context::measuring(machine)?;
        let model = model((&ctx).into(), config, precision, false)?;
        let (mut cache, ids) = (model.cache(batch, capacity)?, ctx.zeros(&[batch], DType::I32)?);
        let logits = ctx.empty(&[batch, config.vocab_size], DType::F32)?;
        let ((), profile) = ctx.profile(|| model.decode(&ids, &mut cache, &logits))?;
        Work::of(&profile)
    })
}
