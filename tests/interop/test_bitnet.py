"""Our engine against transformers' BitNetForCausalLM, from what `make interop` recorded of it.

`recorded/bitnet.safetensors` holds of each case of bitnet_cases.py the token that transformers finds likeliest behind
each position, how far it is ahead of the next, and the logits of some positions; the models are made anew here.

Activations are rounded to 8 bits in front of every product. A value near the middle between two codes goes up or down
as the sums before it were rounded, which moves one term of a product by 1/127 of the row's largest magnitude, and
through it the values behind: two programs in f32 agree to the rounding of the codes, not to that of f32. How much that
is, transformers itself tells: its loaders compute the same function of the same codes, one with exact integers that are
scaled in the end, the others with rounded fractions. The largest difference of their logits is the noise; two likeliest
tokens that are further apart than twice as much must come in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from bitnet_cases import CASES, FORMS, JUDGED, KEPT_EVERY, POSITIONS, RECORDED, SHAPES, folder, prompt
from safetensors import safe_open
from safetensors.numpy import load_file

from nncuda.infer.language_model import LanguageModel

RECORD = RECORDED / "bitnet.safetensors"

Record = Mapping[str, np.ndarray]


def kept(logits: np.ndarray) -> dict[str, np.ndarray]:
    """What is recorded of logits [positions, vocabulary]."""
    best = np.partition(logits, -2)[:, -2:]
    return {
        "tokens": logits.argmax(-1).astype(np.int32),
        "margins": (best[:, 1] - best[:, 0]).astype(np.float32),
        "logits": logits[::KEPT_EVERY].copy(),
    }


def check_logits(ours: np.ndarray, theirs: Record, noise: np.ndarray, what: str) -> None:
    """`noise`: largest, and largest root mean square, of the differences between transformers' own loaders."""
    largest, typical = noise
    mine = ours[::KEPT_EVERY]
    alike = np.corrcoef(mine.ravel(), theirs["logits"].ravel())[0, 1]
    apart = np.sqrt(np.square(mine - theirs["logits"]).mean())
    sure = theirs["margins"] > 2 * largest
    same = ours.argmax(-1) == theirs["tokens"]
    print(
        f"{what}: correlation {alike:.7f}, root mean square of the difference {apart:.4f} (between transformers' own "
        f"loaders {typical:.4f}, at most {largest:.4f}); {sure.sum()} of {len(sure)} positions have a margin above "
        f"{2 * largest:.4f}, and {same[sure].sum()} of them the same token; of the others {same[~sure].sum()} have"
    )
    print(f"  not judged: {np.flatnonzero(~sure).tolist()}; of them differ {np.flatnonzero(~sure & ~same).tolist()}")
    assert alike > 0.999
    # What differs from all loaders by more than they do from one another is not one more way of rounding.
    assert apart < 2 * typical
    assert sure.sum() >= JUDGED, "too few positions have a margin beyond the noise"
    assert same[sure].all()


def check_folder(path: Path, shape: str, theirs: Record, noise: np.ndarray, what: str) -> None:
    with LanguageModel.load(path, threads=1, cache_format="f32") as model:
        check_logits(model.logits(prompt(SHAPES[shape])), theirs, noise, what)


@pytest.mark.parametrize(("shape", "form"), CASES)
def test_transformers(tmp_path: Path, shape: str, form: str) -> None:
    record = load_file(RECORD)
    theirs = {name: record[f"{shape}.{form}.{name}"] for name in ("tokens", "margins", "logits")}
    assert len(set(theirs["tokens"].tolist())) > 50 or SHAPES[shape].tied
    check_folder(folder(tmp_path, shape, form), shape, theirs, record[f"{shape}.noise"], f"{shape}, {form}")


def test_what_is_recorded() -> None:
    with safe_open(RECORD, "np") as file:
        assert set(file.metadata()) == {"torch", "transformers"}
        names = set(file.keys())
    of_cases = {f"{shape}.{form}.{name}" for shape, form in CASES for name in ("tokens", "margins", "logits")}
    assert names == of_cases | {f"{shape}.noise" for shape in SHAPES}
    assert POSITIONS == 1000 and {form for _, form in CASES} == set(FORMS)
