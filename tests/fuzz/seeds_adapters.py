"""Small folders of adapters of the Llama of `seeds_others`, valid and hostile, as PEFT writes them."""

from __future__ import annotations

import json
import struct

from fuzz_files import pack_folder
from seeds_gguf import Seed
from seeds_others import weights_file

OPTIONS = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "r": 4,
    "lora_alpha": 8,
    "bias": "none",
    "target_modules": ["q_proj", "down_proj"],
    "lora_dropout": 0.05,
    "use_rslora": False,
}
_Q, _DOWN = (f"base_model.model.model.layers.0.{module}" for module in ("self_attn.q_proj", "mlp.down_proj"))
FACTORS = {
    f"{_Q}.lora_A.weight": [4, 32],
    f"{_Q}.lora_B.weight": [32, 4],
    f"{_DOWN}.lora_A.weight": [4, 64],
    f"{_DOWN}.lora_B.weight": [32, 4],
}


def adapter(factors: dict[str, list[int]] | None = None, dtype: str = "F32", **change: object) -> bytes:
    """A folder with changes of its options."""
    content = json.dumps({**OPTIONS, **change}).encode()
    weights = weights_file(FACTORS if factors is None else factors, dtype)
    return pack_folder({"adapter_config.json": content, "adapter_model.safetensors": weights})


def with_last(number: float) -> bytes:
    """A folder whose last factor ends with a number that is not zero."""
    whole = adapter()
    return whole[:-4] + struct.pack("<f", number)


def adapters() -> list[Seed]:
    without = dict(FACTORS)
    del without[f"{_Q}.lora_B.weight"]
    content = json.dumps(OPTIONS).encode()
    return [
        Seed("valid", adapter(), None),
        Seed("valid_bf16", adapter(dtype="BF16"), None),
        Seed("valid_rslora", adapter(use_rslora=True), None),
        Seed("valid_scale_of_0", adapter(lora_alpha=0), None),
        Seed("nothing", b"", "adapter_config.json"),
        Seed("no_weights", pack_folder({"adapter_config.json": content}), "holds no adapter_model.safetensors"),
        Seed(
            "a_pickle",
            pack_folder({"adapter_config.json": content, "adapter_model.bin": b"\x80\x04."}),
            "is a pickle, which can run anything",
        ),
        Seed("a_list", pack_folder({"adapter_config.json": b"[]"}), "is not a JSON object"),
        Seed("kind_of_others", adapter(peft_type="IA3"), "peft_type is 'IA3'; this program reads 'LORA'"),
        Seed("kind_of_a_list", adapter(peft_type=["LORA"]), "peft_type is ['LORA']; this program reads"),
        Seed("task_of_others", adapter(task_type="SEQ_CLS"), "task_type is 'SEQ_CLS'"),
        Seed("biases", adapter(bias="all"), "bias is 'all'; this program reads adapters without biases"),
        Seed(
            "beginning_that_changes_the_base", adapter(init_lora_weights="pissa"), "may change the base's own weights"
        ),
        Seed("option_of_nobody", adapter(**{"x" * 9999: 1}), "this program does not know that option"),
        Seed("dora", adapter(use_dora=True), "'use_dora' is True"),
        Seed("rank_0", adapter(r=0), "r is 0; it must be a whole number, from 1"),
        Seed("rank_beyond_64_bits", adapter(r=2**70), "r is 1180591620717411303424"),
        Seed("rank_of_text", adapter(r="4"), "r is '4'"),
        Seed("rank_of_a_float", adapter(r=4.0), "r is 4.0"),
        Seed("rank_of_another_file", adapter(r=2), "with r 2 the model makes it [2, 64]"),
        Seed("alpha_of_text", adapter(lora_alpha="8"), "lora_alpha is '8'"),
        Seed("alpha_not_a_number", adapter(lora_alpha=float("nan")), "lora_alpha is nan"),
        Seed("alpha_beyond_f32", adapter(lora_alpha=1e300), "divided by the rank it must fit f32"),
        Seed("alpha_of_400_digits", adapter(lora_alpha=10**400), "lora_alpha is 1000"),
        Seed("rslora_of_text", adapter(use_rslora="yes"), "use_rslora is 'yes'"),
        Seed("nothing_adapted", adapter({}), "adapts nothing"),
        Seed("b_missing", adapter(without), "has lora_A of model.layers.0.self_attn.q_proj alone"),
        Seed("a_tensor_more", adapter({**FACTORS, "x": [4]}), "has the tensor 'x', which is no factor"),
        Seed(
            "layer_that_is_not_there",
            adapter({**FACTORS, f"{_Q.replace('.0.', '.7.')}.lora_A.weight": [4, 32]}),
            "adapts 'model.layers.7.self_attn.q_proj'",
        ),
        Seed("norm", adapter({**FACTORS, "base_model.model.model.norm.lora_A.weight": [4, 32]}), "adapts 'model.norm'"),
        Seed("shape_turned", adapter({**FACTORS, f"{_Q}.lora_A.weight": [32, 4]}), "has shape [32, 4]; with r 4"),
        Seed("whole_numbers", adapter(dtype="I8"), "weights are f32, f16 or bf16"),
        Seed("not_finite", with_last(float("nan")), "has values that are not finite"),
        Seed("infinite", with_last(float("-inf")), "has values that are not finite"),
    ]
