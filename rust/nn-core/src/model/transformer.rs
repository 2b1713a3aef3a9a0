//! The MoE transformer: embedding, blocks, norm, language-model head; how one is made, and evaluation.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use nn_ffi::{Comm, Context, DType, Tensor, kernels};

use super::arena::ParameterArena;
use super::arenas::Arenas;
use super::config::MoEConfig;
use super::llama::RopeOptions;
use super::low_rank::LowRankOptions;
use super::mean::mean;
use super::mixtral::Weights;
use super::parameters::ParameterLayout;
use super::partitioned::PartitionedGradients;
use super::precision::Precision;
use super::views::Views;
use crate::error::{Error, Result};
use crate::layer::{AllRows, Embedding, ExpertParallel, Linear, RMSNorm, RopeTables, Rotation, TransformerBlock};
use crate::train::Rank;

/// A target that counts for nothing.
pub const IGNORE_INDEX: i32 = -100;

/// Logits are made and used up in chunks of rows of about this many values, so that they never all exist at once. Sums
/// over tokens are cut here, so the number is part of the promise that every language computes the same bits.
const LOGITS_PER_CHUNK: usize = 1 << 21;
const MIN_CHUNK_ROWS: usize = 256;

impl MoEConfig {
    /// Tokens whose logits are there at once.
    pub(crate) fn logits_rows(&self) -> usize {
        MIN_CHUNK_ROWS.max(LOGITS_PER_CHUNK / self.vocab_size)
    }
}

/// A decoder-only transformer whose feed-forward networks are mixtures of experts.
///
/// It computes with one arena of weights, whose dtype is the model's precision; so is that of its activations.
/// `parameters` is what is trained and saved: the same arena, or, when a model trains in 16 bits, one of f32 that the
/// weights are a rounded copy of. `gradients` is f32 of the same layout, or none for a model that only infers.
/// (Micikevicius et al. 2018, section 3)
#[derive(Debug)]
pub struct MoETransformer {
    pub(super) ctx: Context,
    pub(super) config: MoEConfig,
    pub(super) layout: Arc<ParameterLayout>,
    pub(super) precision: Precision,
    pub(super) parameters: ParameterArena,
    /// All of them, where `parameters` are a part, as they were when the ranks last gathered them.
    pub(super) gathered: Option<ParameterArena>,
    pub(super) gradients: Option<ParameterArena>,
    /// Where a pass puts gradients of which `gradients` are a part.
    pub(super) partitioned: Option<PartitionedGradients>,
    /// Where `parameters` are not what it computes with.
    pub(super) rounded: Option<ParameterArena>,
    /// Where ranks share the experts out.
    pub(super) experts: Option<Arc<ExpertParallel>>,
    /// The ranks of a job that have the rest, where this one holds a part.
    pub(super) job: Option<Comm>,
    pub(super) rope: RopeTables,
    /// The token that ends a document, where documents do not see one another.
    separator: Option<i32>,
    /// For sequences beyond `context`.
    pub(super) stretched: OnceLock<RopeTables>,
    pub(super) embedding: Embedding,
    pub(super) blocks: Vec<TransformerBlock>,
    pub(super) norm: RMSNorm,
    pub(super) head: Linear,
    pub(super) beside: Option<Beside>,
}

/// Of a model with an adapter that is trained beside weights that stay as they are stored.
#[derive(Debug)]
pub(super) struct Beside {
    pub(super) options: LowRankOptions,
    /// Where norms add gradients that nobody wants.
    pub(super) unwanted: Tensor,
}

/// What such a model is made of, beside its factors.
pub(super) struct StoredParts {
    pub(super) rope: RopeTables,
    pub(super) embedding: Embedding,
    pub(super) blocks: Vec<TransformerBlock>,
    pub(super) norm: RMSNorm,
    pub(super) head: Linear,
    pub(super) beside: Beside,
}

impl MoETransformer {
    /// A model whose weights are all zero, to be loaded; with gradients when it is for training.
    pub fn zeros(ctx: &Context, config: MoEConfig, training: bool, precision: Precision) -> Result<Self> {
        Self::zeros_with(ctx.into(), config, training, precision)
    }

    /// The same on a rank of a job.
    fn zeros_with(rank: Rank<'_>, config: MoEConfig, training: bool, precision: Precision) -> Result<Self> {
        config.validate()?;
        if config.ternary && precision != Precision::F32 {
            let name = precision.name();
            let problem = "a model with ternary weights, which come of f32, trains in f32";
            return Err(Error::value(format!("precision is {name}; {problem}")));
        }
        let (ctx, experts) = (rank.context(), rank.experts(config.num_experts)?);
        let layout = Arc::new(ParameterLayout::new(&config)?);
        if config.tie_embeddings && rank.partitions_gradients() {
            let problem = "gradients of a tied head, which are complete with the last layer's, are not partitioned";
            return Err(Error::value(problem));
        }
        let arenas = Arenas::zeros(rank, &layout, training, precision, experts.as_ref())?;
        let rows = Arc::new(AllRows::new(ctx));
        let views = Views { arenas: &arenas, precision, experts: experts.as_ref(), rows: &rows };
        let rope = rope_tables(ctx, &config, 1.0)?;
        let embedding = Embedding::new(views.weight("model.embed_tokens.weight")?);
        let blocks = (0..config.num_layers).map(|layer| views.block(&config, layer)).collect::<Result<_>>()?;
        let norm = RMSNorm::new(views.weight("model.norm.weight")?, config.norm_eps);
        let head = if config.tie_embeddings { "model.embed_tokens.weight" } else { "lm_head.weight" };
        let head = Linear::new(views.weight(head)?);
        let Arenas { parameters, gradients, partitioned, rounded, job } = arenas;
        Ok(Self {
            ctx: ctx.clone(),
            config,
            layout,
            precision,
            parameters,
            gathered: None,
            gradients,
            partitioned,
            rounded,
            experts,
            job,
            rope,
            separator: None,
            stretched: OnceLock::new(),
            embedding,
            blocks,
            norm,
            head,
            beside: None,
        })
    }

    /// A model of stored parts, whose parameters are the factors beside them.
    pub(super) fn of_stored(
        ctx: &Context,
        config: MoEConfig,
        layout: Arc<ParameterLayout>,
        [parameters, gradients]: [ParameterArena; 2],
        parts: StoredParts,
    ) -> Self {
        let StoredParts { rope, embedding, blocks, norm, head, beside } = parts;
        Self {
            ctx: ctx.clone(),
            config,
            layout,
            precision: Precision::F32,
            parameters,
            gathered: None,
            gradients: Some(gradients),
            partitioned: None,
            rounded: None,
            experts: None,
            job: None,
            rope,
            separator: None,
            stretched: OnceLock::new(),
            embedding,
            blocks,
            norm,
            head,
            beside: Some(beside),
        }
    }

    /// The adapter that is trained beside weights that stay as they are stored; `None` where these are trained.
    pub fn low_rank(&self) -> Option<&LowRankOptions> {
        self.beside.as_ref().map(|beside| &beside.options)
    }

    /// A model with random weights from `seed`, for training in f32.
    pub fn random(ctx: &Context, config: MoEConfig, seed: i64) -> Result<Self> {
        Self::random_in(ctx, config, seed, true, Precision::F32)
    }

    /// A model with random weights from `seed`, to compute in `precision`; with gradients when it is for training.
    pub fn random_in(
        ctx: &Context,
        config: MoEConfig,
        seed: i64,
        training: bool,
        precision: Precision,
    ) -> Result<Self> {
        Self::random_with(ctx, config, seed, training, precision)
    }

    /// The same on a rank of a job, for a [`Trainer::with_comm`](crate::train::Trainer::with_comm) of the same ranks. It holds
    /// what it needs: some of the experts where ranks share them out, and of f32 parameters behind weights of 16 bits what
    /// it updates.
    pub fn random_with<'a>(
        rank: impl Into<Rank<'a>>,
        config: MoEConfig,
        seed: i64,
        training: bool,
        precision: Precision,
    ) -> Result<Self> {
        let model = Self::zeros_with(rank.into(), config, training, precision)?;
        model.parameters.initialize(&model.config, seed)?;
        match &model.rounded {
            Some(rounded) if model.parameters.is_whole() => rounded.round(&model.parameters)?,
            Some(rounded) => rounded.initialize(&model.config, seed)?,
            None => {}
        }
        Ok(model)
    }

    /// A model with the weights of a folder or file; with gradients when it is for training.
    pub fn load(
        ctx: &Context,
        config: MoEConfig,
        weights: &dyn Weights,
        training: bool,
        precision: Precision,
    ) -> Result<Self> {
        Self::load_with(ctx, config, weights, training, precision)
    }

    /// The same on a rank of a job, as in [`random_with`](Self::random_with). It reads no more than it holds.
    pub fn load_with<'a>(
        rank: impl Into<Rank<'a>>,
        config: MoEConfig,
        weights: &dyn Weights,
        training: bool,
        precision: Precision,
    ) -> Result<Self> {
        weights.check_dtypes()?;
        let model = Self::zeros_with(rank.into(), config, training, precision)?;
        let fill = |arena: &ParameterArena| {
            model
                .layout
                .specs()
                .iter()
                .try_for_each(|spec| arena.load(spec, |part| weights.read_part(&spec.name, part)))
        };
        fill(&model.parameters)?;
        match &model.rounded {
            Some(rounded) if model.parameters.is_whole() => rounded.round(&model.parameters)?,
            Some(rounded) => fill(rounded)?,
            None => {}
        }
        Ok(model)
    }

    /// Makes the weights of `parameters`, where they are not one: whenever something else than an update set these. Refused
    /// where ranks share the experts out, or the f32 parameters, until they are gathered.
    pub fn round_weights(&self) -> Result<()> {
        self.require_all()?;
        self.rounded.as_ref().map_or(Ok(()), |rounded| rounded.round(self.parameters()))
    }

    /// What this rank shares out with others; `None` where it has all experts.
    pub fn experts(&self) -> Option<&Arc<ExpertParallel>> {
        self.experts.as_ref()
    }

    /// The device.
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// Its sizes and options.
    pub fn config(&self) -> &MoEConfig {
        &self.config
    }

    /// Where each parameter lies in the arenas.
    pub fn layout(&self) -> &Arc<ParameterLayout> {
        &self.layout
    }

    /// What it computes in.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// What it computes with, of the dtype of its precision.
    pub fn weights(&self) -> &ParameterArena {
        self.rounded.as_ref().unwrap_or(&self.parameters)
    }

    /// What is trained and saved. Where several ranks train in 16 bits, this one has those that it updates, until
    /// [`Trainer::gather_parameters`](crate::train::Trainer::gather_parameters) brings all.
    pub fn parameters(&self) -> &ParameterArena {
        self.gathered.as_ref().unwrap_or(&self.parameters)
    }

    /// Their gradients, of which a rank that partitions them keeps those alone that it updates, and the gains'. `Error::Value`
    /// when the model was made for inference.
    pub fn gradients(&self) -> Result<&ParameterArena> {
        let missing = || Error::value("this model was made for inference: it has no gradients");
        self.gradients.as_ref().ok_or_else(missing)
    }

    /// Makes the tables that a call on `batch` sequences of `length` tokens needs, unless they are there: what is made
    /// once must not be made inside a captured graph.
    pub fn prepare(&self, batch: usize, length: usize) -> Result<()> {
        self.rope.rotation(batch, length).map(|_| ())
    }

    /// Logits f32 `[batch, length, vocab]` of all positions of ids i32 `[batch, length]`. No expert drops a token.
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.require_all()?;
        let (ids, batch, length) = flat(ids)?;
        let x = self.stream(&ids, batch, None)?;
        self.label("lm_head")?;
        Ok(self.head.forward_f32(&x)?.view(&[batch, length, self.config.vocab_size])?)
    }

    /// Sum of the cross-entropy over the targets that are not `IGNORE_INDEX`, and their number, for ids and targets
    /// i32 `[batch, length]`. No expert drops a token.
    pub fn evaluate(&self, ids: &Tensor, targets: &Tensor) -> Result<(f64, u64)> {
        self.evaluate_documents(ids, targets, None)
    }

    /// The same of packed documents; `ends` as of [`Gradients`](super::Gradients).
    pub fn evaluate_documents(&self, ids: &Tensor, targets: &Tensor, ends: Option<&Tensor>) -> Result<(f64, u64)> {
        let (ids, batch, _) = flat(ids)?;
        let (targets, _, _) = flat(targets)?;
        let x = self.stream(&ids, batch, ends)?;
        self.label("lm_head")?;
        let sums = self.ctx.empty(&[self.loss_pieces(ids.len())], DType::F32)?;
        let (mut count, valid) = (0, self.ctx.empty(&[1], DType::I32)?);
        for (piece, Range { start, end }) in self.chunks(ids.len()).enumerate() {
            let logits = self.head.forward_f32(&x.narrow(0, start, end - start)?)?;
            let wanted = targets.narrow(0, start, end - start)?;
            let lse = self.ctx.empty(&[end - start], DType::F32)?;
            kernels::cross_entropy_forward(
                &logits,
                &wanted,
                None,
                &lse,
                &sums.narrow(0, piece, 1)?,
                &valid,
                IGNORE_INDEX,
            )?;
            count += u64::try_from(valid.item::<i32>()?).unwrap_or(0);
        }
        Ok((mean(&sums, None, 1)?, count))
    }

    /// From now on the documents of a sequence, each of which ends with the token `separator`, do not see one another in
    /// `forward`, `evaluate` and `forward_backward`, and each begins at position 0. None ends that. `Error::Value` for a
    /// token that is none.
    pub fn mask_documents(&mut self, separator: Option<usize>) -> Result<()> {
        let vocab = self.config.vocab_size;
        if let Some(separator) = separator.filter(|separator| *separator >= vocab) {
            let problem = format!("document_mask is {separator}; this model has a vocabulary of {vocab}");
            return Err(Error::value(problem));
        }
        self.separator = separator.and_then(|separator| i32::try_from(separator).ok());
        Ok(())
    }

    /// How `batch` sequences, ids i32 `[batch*length]`, are rotated, and what their tokens see: of packed documents by
    /// their `ends`, where these are given.
    pub(super) fn rotation(&self, ids: &Tensor, batch: usize, ends: Option<&Tensor>) -> Result<Rotation> {
        match (ends, self.separator) {
            (Some(ends), _) if ends.len() != ids.len() => {
                Err(Error::value(format!("{} ends of documents for {} ids", ends.len(), ids.len())))
            }
            (Some(ends), _) => self.rope.of_documents(ends, batch, 1),
            (None, Some(separator)) => self.rope.of_documents(ids, batch, separator),
            (None, None) => self.rope.rotation(batch, ids.len() / batch),
        }
    }

    /// How many partial sums of the loss `forward_backward` gives for so many tokens.
    pub fn loss_pieces(&self, tokens: usize) -> usize {
        self.chunks(tokens).count()
    }

    /// Labels the calls from here on as those of a part of the model; "" ends the label.
    pub(super) fn label(&self, part: &str) -> Result<()> {
        Ok(self.ctx.label(|| part.to_owned())?)
    }

    pub(super) fn embed(&self, ids: &Tensor) -> Result<Tensor> {
        self.label("model.embed_tokens")?;
        self.embedding.forward(ids)
    }

    /// The normed stream after the last block.
    fn stream(&self, ids: &Tensor, batch: usize, ends: Option<&Tensor>) -> Result<Tensor> {
        let rotation = self.rotation(ids, batch, ends)?;
        let mut x = self.embed(ids)?;
        for block in &self.blocks {
            x = block.forward(&x, batch, &rotation)?;
        }
        self.label("model.norm")?;
        self.norm.forward(&x)
    }

    pub(super) fn chunks(&self, tokens: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let rows = self.config.logits_rows();
        (0..tokens).step_by(rows).map(move |start| start..tokens.min(start + rows))
    }
}

/// Tables of the rotary embedding, with an NTK-aware factor of its base, 1 for none.
pub(super) fn rope_tables(ctx: &Context, config: &MoEConfig, ntk_alpha: f64) -> Result<RopeTables> {
    let options = RopeOptions { base: config.rope_base, ntk_alpha, scale: 1.0 };
    RopeTables::scaled(ctx, config.head_dim, options, &config.rope_divisors(), (1.0, config.head_dim))
}

/// ids `[batch, length]` as `[batch * length]`, and the two sizes.
pub(super) fn flat(ids: &Tensor) -> Result<(Tensor, usize, usize)> {
    let [batch, length] = *ids.shape() else {
        return Err(Error::value(format!("ids have shape {:?}; they must be [batch, length]", ids.shape())));
    };
    if ids.is_empty() {
        return Err(Error::value(format!("ids have shape {:?}; they must hold at least one token", ids.shape())));
    }
    Ok((ids.view(&[batch * length])?, batch, length))
}
