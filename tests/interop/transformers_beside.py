"""What transformers computes of a model in a folder, in f32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers


def logits_and_tokens(path: Path, ids: list[int], count: int, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Logits behind each id, f32 [len(ids), vocabulary], and the tokens that follow greedily, i32 [count]. `options` go
    to `from_pretrained`; what they make of another dtype is widened."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", **options
    ).float()
    given = torch.tensor([ids])
    with torch.no_grad():
        logits = model(input_ids=given).logits[0].numpy()
        written = model.generate(given, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0)
    return logits, written[0, len(ids) :].numpy().astype(np.int32)
