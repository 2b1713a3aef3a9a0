"""Every option of config.json that transformers knows of, for every family: it is run right, or refused by its name.

A small random model is made by transformers from a configuration in which one option has another value than usual, and
saved as transformers saves it. Our engine either has the same logits, or raises a ValueError. So no option can be one
that is read by them and passed over by us, those included that a later release brings.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_cases import TOKENIZER

from nncuda.infer.language_model import LanguageModel
from nncuda.models.families import FAMILIES
from nncuda.models.llama_folder import config_from_folder

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs the other programs", allow_module_level=True)

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

#: Longer than the windows below, so that they show, and than LongRoPE's shorter context.
IDS = np.random.default_rng(3).integers(259, 600, 40).tolist()
#: In logits that spread by 1; of larger ones so many times as much, as roundings are.
CLOSE = 1e-3

_SIZES: dict[str, Any] = {
    "vocab_size": 600,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.2,  # so that what an option changes is no rounding
}
_MIXTURE = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 48, "shared_intermediate_size": 48}  # fmt: skip
_WINDOW = {"sliding_window": 16, "query_pre_attn_scalar": 24}
#: What transformers cannot begin with otherwise, or has to be another for the family's own parts to show.
_OWN: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},
    "mixtral": {"sliding_window": None},
    "phi3": {"sliding_window": None, "original_max_position_embeddings": 128},
    "qwen2": {"use_sliding_window": False},
    "gpt_oss": {"initial_context_length": 64},
}
_ROPES: tuple[dict[str, Any], ...] = (
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 4.0, "truncate": False},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "mscale": 0.7, "mscale_all_dim": 1.3},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 0.5},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 32},
    {"rope_type": "longrope", "short_factor": [1.5] * 8, "long_factor": [4.0] * 8,
     "original_max_position_embeddings": 32, "factor": 4.0},
    {"rope_type": "proportional"},
    {"rope_type": "default", "partial_rotary_factor": 0.5},
)  # fmt: skip
#: Other values of options that are none, by what such options are in transformers' families.
_OF_NOTHING: tuple[Any, ...] = (True, 1, 16, 0.5)


def _others(name: str, usual: Any) -> Iterator[Any]:
    """Values that an option may have in place of the usual one."""
    if name in ("rope_parameters", "rope_scaling"):
        yield from ({"rope_theta": 5e4, **rope} for rope in _ROPES)
        yield {"rope_theta": 50.0, "rope_type": "default"}
    elif name == "layer_types":
        for kinds in itertools.product(("full_attention", "sliding_attention"), repeat=3):
            yield list(kinds)
        yield ["chunked_attention"] * 3
        yield ["linear_attention"] * 3
    elif name.endswith(("_act", "_activation")):
        yield from ("silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2", "quick_gelu", "tanh")
    elif isinstance(usual, bool):
        yield not usual
    elif isinstance(usual, int):
        yield from (0, 1, usual + 1, 2 * usual)
    elif isinstance(usual, float):
        yield from (0.0, 1.0, usual / 4, 2 * usual + 0.125)
    elif usual is None:
        yield from _OF_NOTHING
    elif isinstance(usual, list):
        yield from ([], [0], [1, 2])
    elif isinstance(usual, dict):
        yield {"one": 1}


def _usual(name: str) -> dict[str, Any]:
    """The options of a small model of a family, as transformers' configuration has them, and no others."""
    known = CONFIG_MAPPING[name]().to_dict()
    wanted = {**_SIZES, **_MIXTURE, **_WINDOW, **_OWN.get(name, {})}
    chosen = {option: value for option, value in wanted.items() if option in known}
    return {option: value for option, value in CONFIG_MAPPING[name](**chosen).to_dict().items() if option in known}


def _written(path: Path, name: str, options: Mapping[str, Any]) -> np.ndarray | None:
    """transformers' logits of a model with these options, which it has saved; None where it has no such model."""
    torch.manual_seed(5)
    try:
        config = CONFIG_MAPPING[name](**{key: value for key, value in options.items() if key != "model_type"})
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:  # gains and biases, which begin with ones and zeros, where nothing would show
                    parameter.add_(0.3 * torch.randn_like(parameter))
            logits = model(input_ids=torch.tensor([IDS])).logits[0].numpy()
        model.save_pretrained(path)
    except Exception:  # whatever it says of values that it does not take
        return None
    if not np.isfinite(logits).all():
        return None
    (path / "tokenizer.model").write_bytes(TOKENIZER.read_bytes())
    return logits


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "bitnet"])  # ternary: test_bitnet_live.py
def test_right_or_refused(tmp_path: Path, name: str) -> None:
    usual = _usual(name)
    wrong, right, refused = [], [], []
    cases: list[tuple[str, Any]] = [("", None)]
    cases += [(option, other) for option, value in usual.items() for other in _others(option, value)]
    for number, (option, other) in enumerate(cases):
        options = {**usual, option: other} if option else usual
        logits = _written(tmp_path / str(number), name, options)
        if logits is None:
            continue
        try:
            with LanguageModel.load(tmp_path / str(number), threads=1, cache_format="f32", context=64) as model:
                apart = np.abs(model.logits(IDS) - logits).max()
        except ValueError as error:
            refused.append(f"{option} = {other}: {error}")
            continue
        (right if apart < CLOSE * max(1.0, logits.std()) else wrong).append(
            f"{option} = {other}: logits are {apart:.1e} apart"
        )
    assert not wrong, "\n".join(wrong)
    assert right and right[0].startswith(" = None"), refused  # the family itself
    assert len(right) >= 10
    print(f"\n{name}: {len(right)} right, {len(refused)} refused")


@pytest.mark.parametrize("name", sorted(set(CONFIG_MAPPING) - set(FAMILIES)))
def test_other_families_are_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        config_from_folder({**_SIZES, "model_type": name})
