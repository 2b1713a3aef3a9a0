"""The families of models that the engine runs: each a description over the same layers.

A family says how its files name and default what `LlamaConfig` holds, and which parts its blocks have. To add one is
to add an entry here and in its twins in Go and Rust; docs/adding-a-model.md has the steps, docs/models.md the table
that is made of this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Switch:
    """Whether a part is there: `usual`, unless config.json says otherwise under `key`; None where it cannot."""

    usual: bool
    key: str | None = None


NO, YES = Switch(False), Switch(True)


@dataclass(frozen=True)
class Experts:
    """What config.json calls the sizes of a mixture of experts.

    count, usual        how many there are, and how many transformers takes
    usual_chosen        of num_experts_per_tok
    ffn                 their inner width
    norm                whether a token's weights are divided by their sum
    shared, usual_shared
                        the inner width of the expert that every token goes to; None without one
    shared_gate         whether a sigmoid of its own weighs that one
    biased              whether they and their router have biases, and their gates are clipped
    also                another name of the count, which newer releases of transformers write
    """

    count: str
    usual: int
    usual_chosen: int
    ffn: str
    norm: Switch
    shared: str | None = None
    usual_shared: int = 0
    shared_gate: bool = False
    biased: bool = False
    also: str | None = None


@dataclass(frozen=True)
class Gemma:
    """What Gemma's families have in common, and what transformers takes where config.json does not say.

    Folders have the gains of norms less 1, embeddings are multiplied by sqrt(hidden_size), and what attention and the
    feed-forward network give has a norm before it is added to the residual stream.

    query_scalar        query_pre_attn_scalar
    scores_cap, logits_cap
                        attn_logit_softcapping and final_logit_softcapping; 0 for none
    largest             layers of the model whose GGUF files have hidden_size / heads for query_scalar; in those of all
                        others it is head_dim (llama.cpp's rule: files have no key for it)
    local_base          base of the rotary embedding in layers with a window, where rope_local_base_freq does not say; 0
                        where all layers have the same
    """

    query_scalar: float
    scores_cap: float
    logits_cap: float
    largest: int
    local_base: float = 0.0


@dataclass(frozen=True)
class Family:
    """A family of models.

    name            model_type in config.json
    title           the models that people know it by
    architectures   general.architecture in GGUF files; what we write is the first
    interleaved     whether GGUF files order the rows of queries and keys for interleaved pairs
    rope_base, norm_eps, context, kv_heads, head_dim, window
                    what transformers takes where config.json does not say: None must be there; 0 heads are as many as
                    query heads, a head_dim of 0 is hidden_size / num_heads, a window of None is none
    window_flag     the option without which sliding_window means nothing
    window_period   which layers have a window that is narrower than the context: None for a family of which none may,
                    0 for all of them, n for all but each n-th
    tied            whether the head is the table of embeddings where config.json does not say
    qkv_bias, o_bias
                    biases of the products around attention
    qk_norm         norms of queries and keys before they are rotated: "none"; "head", each head by itself; "whole"
    activations     hidden_act may be one of these; the first is the usual one
    activation_key  another option with the same values, which stands above that one
    ternary         weights and norms of a BitNet
    experts         the mixture in place of the feed-forward network, or None
    scaled          whether config.json has Granite's four factors
    gemma           what Gemma's families have, or None
    partial_rotary  whether a part of each head may stay unrotated
    original_context
                    the usual original_max_position_embeddings of families that have it beside the rotary embedding's
                    own options; 0 of others
    sinks           whether each head has a score without a key
    rope            options of the rotary embedding where config.json has neither rope_parameters nor rope_scaling
    whole_turns     whether YaRN's stretched part has whole numbers for its ends in GGUF files, which have no key for it
    fixed           options of config.json that may have one value alone, which is what the engine computes
    """

    name: str
    title: str
    architectures: tuple[str, ...]
    interleaved: bool = False
    rope_base: float = 1e4
    norm_eps: float = 1e-6
    context: int | None = None
    kv_heads: int | None = 0
    head_dim: int = 0
    window: int | None = None
    window_flag: str | None = None
    window_period: int | None = None
    tied: bool = False
    qkv_bias: Switch = NO
    o_bias: Switch = NO
    qk_norm: str = "none"
    activations: tuple[str, ...] = ("silu",)
    activation_key: str = "hidden_act"
    ternary: bool = False
    experts: Experts | None = None
    scaled: bool = False
    gemma: Gemma | None = None
    partial_rotary: bool = False
    original_context: int = 0
    sinks: bool = False
    rope: tuple[tuple[str, Any], ...] = ()
    whole_turns: bool = True
    fixed: tuple[tuple[str, Any], ...] = ()


_BIASED = Switch(False, "attention_bias")
#: A mixture in each layer.
_SPARSE = (("decoder_sparse_step", 1), ("mlp_only_layers", []))

FAMILIES = {
    family.name: family
    for family in (
        Family(
            "llama",
            "Llama 2, Llama 3.x, TinyLlama",
            ("llama",),
            interleaved=True,
            context=2048,
            qkv_bias=_BIASED,
            o_bias=_BIASED,
            fixed=(("mlp_bias", False),),
        ),
        Family(
            "mixtral",
            "Mixtral, this library's own models",
            ("llama",),
            interleaved=True,
            rope_base=1e6,
            norm_eps=1e-5,
            kv_heads=8,
            experts=Experts("num_local_experts", 8, 2, "intermediate_size", YES),
        ),
        Family(
            "bitnet",
            "BitNet b1.58",
            ("bitnet-b1.58", "bitnet-25", "bitnet"),
            rope_base=5e5,
            norm_eps=1e-5,
            context=2048,
            kv_heads=5,
            activations=("relu2", "silu"),
            ternary=True,
        ),
        Family(
            "mistral",
            "Mistral 7B, Mistral Nemo, Ministral, Mistral Small",
            ("llama",),
            interleaved=True,
            context=131072,
            kv_heads=8,
            window=4096,
            window_period=0,
        ),
        Family(
            "qwen2",
            "Qwen2, Qwen2.5",
            ("qwen2",),
            context=32768,
            kv_heads=32,
            window_flag="use_sliding_window",
            qkv_bias=YES,
        ),
        Family(
            "qwen3",
            "Qwen3",
            ("qwen3",),
            context=32768,
            kv_heads=32,
            head_dim=128,
            window_flag="use_sliding_window",
            qkv_bias=_BIASED,
            o_bias=_BIASED,
            qk_norm="head",
        ),
        Family(
            "qwen3_moe",
            "Qwen3 30B-A3B and 235B-A22B",
            ("qwen3moe",),
            context=32768,
            kv_heads=4,
            window_flag="use_sliding_window",
            qkv_bias=_BIASED,
            o_bias=_BIASED,
            qk_norm="head",
            experts=Experts(
                "num_experts",
                128,
                8,
                "moe_intermediate_size",
                Switch(False, "norm_topk_prob"),
                also="num_local_experts",
            ),
            fixed=_SPARSE,
        ),
        Family(
            "olmoe",
            "OLMoE 1B-7B",
            ("olmoe",),
            norm_eps=1e-5,
            context=4096,
            qkv_bias=_BIASED,
            o_bias=_BIASED,
            qk_norm="whole",
            experts=Experts("num_experts", 64, 8, "intermediate_size", Switch(False, "norm_topk_prob")),
            fixed=(("clip_qkv", None),),
        ),
        Family(
            "granite",
            "Granite 3.x dense",
            ("granite",),
            interleaved=True,
            context=2048,
            qkv_bias=_BIASED,
            o_bias=_BIASED,
            scaled=True,
            fixed=(("mlp_bias", False),),
        ),
        Family(
            "granitemoe",
            "Granite 3.x MoE",
            ("granitemoe",),
            interleaved=True,
            context=2048,
            qkv_bias=_BIASED,
            o_bias=_BIASED,
            experts=Experts("num_local_experts", 8, 2, "intermediate_size", YES),
            scaled=True,
        ),
        Family(
            "granitemoeshared",
            "Granite 3.x MoE with a shared expert",
            ("granitemoe",),
            interleaved=True,
            context=2048,
            qkv_bias=_BIASED,
            o_bias=_BIASED,
            experts=Experts("num_local_experts", 8, 2, "intermediate_size", YES, "shared_intermediate_size"),
            scaled=True,
        ),
        Family(
            "qwen2_moe",
            "Qwen1.5-MoE, Qwen2 57B-A14B",
            ("qwen2moe",),
            context=32768,
            kv_heads=16,
            window_flag="use_sliding_window",
            qkv_bias=Switch(True, "qkv_bias"),
            experts=Experts(
                "num_experts",
                60,
                4,
                "moe_intermediate_size",
                Switch(False, "norm_topk_prob"),
                "shared_expert_intermediate_size",
                5632,
                shared_gate=True,
            ),
            fixed=_SPARSE,
        ),
        Family(
            "phi3",
            "Phi-3 mini and medium, Phi-3.5 mini, Phi-4, Phi-4-mini",
            ("phi3",),
            norm_eps=1e-5,
            context=4096,
            window_period=0,
            partial_rotary=True,
            original_context=4096,
        ),
        Family(
            "gemma2",
            "Gemma 2 2B, 9B and 27B",
            ("gemma2",),
            context=8192,
            kv_heads=4,
            head_dim=256,
            window=4096,
            window_period=2,
            tied=True,
            qkv_bias=_BIASED,
            o_bias=_BIASED,
            activations=("gelu_pytorch_tanh",),
            activation_key="hidden_activation",
            gemma=Gemma(query_scalar=256.0, scores_cap=50.0, logits_cap=30.0, largest=46),
        ),
        Family(
            "gemma3_text",
            "Gemma 3 270M and 1B; of GGUF files the text of 4B, 12B and 27B",
            ("gemma3",),
            rope_base=1e6,
            context=131072,
            kv_heads=4,
            head_dim=256,
            window=4096,
            window_period=6,
            tied=True,
            qkv_bias=_BIASED,
            o_bias=_BIASED,
            qk_norm="head",
            activations=("gelu_pytorch_tanh",),
            activation_key="hidden_activation",
            gemma=Gemma(query_scalar=256.0, scores_cap=0.0, logits_cap=0.0, largest=62, local_base=1e4),
        ),
        Family(
            "gpt_oss",
            "gpt-oss 20b and 120b",
            ("gpt-oss",),
            rope_base=150000.0,
            norm_eps=1e-5,
            context=131072,
            kv_heads=8,
            head_dim=64,
            window=128,
            window_period=2,
            qkv_bias=Switch(True, "attention_bias"),
            o_bias=Switch(True, "attention_bias"),
            experts=Experts("num_local_experts", 128, 4, "intermediate_size", YES, biased=True),
            sinks=True,
            rope=(
                ("rope_type", "yarn"),
                ("factor", 32.0),
                ("truncate", False),
                ("original_max_position_embeddings", 4096),
            ),
            whole_turns=False,
            fixed=(("swiglu_alpha", 1.702), ("swiglu_limit", 7.0)),
        ),
    )
}

#: Options of config.json that all families have.
COMMON_OPTIONS = frozenset(
    """model_type vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads
    head_dim max_position_embeddings rms_norm_eps hidden_act tie_word_embeddings rope_theta rope_parameters rope_scaling
    sliding_window layer_types partial_rotary_factor nncuda""".split()
)

#: Those that change nothing of what a model computes: what made it, how it is trained, how it writes.
NEUTRAL_OPTIONS = frozenset(
    """architectures torch_dtype dtype transformers_version name_or_path auto_map unsloth_version unsloth_fixed
    bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id cls_token_id mask_token_id decoder_start_token_id
    forced_bos_token_id forced_eos_token_id tokenizer_class model_max_length initializer_range use_cache pretraining_tp
    attention_dropout hidden_dropout resid_pdrop embd_pdrop router_aux_loss_coef router_jitter_noise
    output_router_logits output_attentions output_hidden_states return_dict use_return_dict gradient_checkpointing
    id2label label2id problem_type task_specific_params finetuning_task chunk_size_feed_forward max_window_layers
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
    typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences suppress_tokens begin_suppress_tokens remove_invalid_values exponential_decay_length_penalty
    prefix tf_legacy_loss use_bfloat16 torchscript cross_attention_hidden_size cache_implementation""".split()
)

#: Keys of a GGUF file behind its architecture's name that all families have, or that change nothing.
GGUF_OPTIONS = frozenset(
    """vocab_size context_length embedding_length block_count feed_forward_length attention.head_count
    attention.head_count_kv attention.key_length attention.value_length attention.layer_norm_rms_epsilon
    attention.layer_norm_epsilon attention.sliding_window rope.dimension_count rope.freq_base rope.scale_linear
    rope.scaling.type rope.scaling.factor rope.scaling.original_context_length rope.scaling.finetuned expert_count
    expert_used_count expert_feed_forward_length expert_shared_feed_forward_length expert_shared_count
    expert_weights_norm nncuda.extended_context nncuda.ntk_alpha""".split()
)


#: Of families with Granite's factors, with the field of `LlamaConfig` and the key of a GGUF file.
SCALES = (
    ("embedding_multiplier", "embedding_scale", "embedding_scale"),
    ("residual_multiplier", "residual_scale", "residual_scale"),
    ("attention_multiplier", "attention_scale", "attention.scale"),
    ("logits_scaling", "logits_scaling", "logit_scale"),
)


#: Of Gemma's families, as `SCALES`, with the field of `Gemma` that has what transformers takes without the option. A
#: cap of null is none.
CAPS = (
    ("attn_logit_softcapping", "scores_cap", "attn_logit_softcapping"),
    ("final_logit_softcapping", "logits_cap", "final_logit_softcapping"),
)


def family_of_architecture(architecture: object, *, experts: bool, shared: bool) -> Family | None:
    """The family of a GGUF file. Where several share an architecture's name, what the file's blocks have decides."""
    if type(architecture) is not str:
        return None
    if architecture == "llama":
        return FAMILIES["mixtral" if experts else "llama"]
    if architecture == "granitemoe":
        return FAMILIES["granitemoeshared" if shared else "granitemoe"]
    return next((family for family in FAMILIES.values() if architecture in family.architectures), None)
