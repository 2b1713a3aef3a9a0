"""The bounds on options and files are those of tests/bounds.json, which hold in every language."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from nncuda.formats import limits
from nncuda.models import MoEConfig
from nncuda.train import TrainConfig

BOUNDS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "bounds.json").read_text())
KINDS = {"model": MoEConfig, "train": TrainConfig}
OPTIONS = [(kind, name) for kind in KINDS for name in BOUNDS[kind]]


def test_every_number_has_bounds() -> None:
    for kind, options in KINDS.items():
        numbers = {name for name, field in options.__dataclass_fields__.items() if str(field.type).startswith("float")}
        assert numbers == set(BOUNDS[kind])


@pytest.mark.parametrize(("kind", "name"), OPTIONS)
def test_options_within_their_bounds(kind: str, name: str) -> None:
    bounds = BOUNDS[kind][name]
    others: dict[str, Any] = {"precision": "f16"} if name.startswith("loss_scale") else {}
    others |= {"lora_rank": 1} if name == "lora_alpha" else {}
    for value in (bounds["least"], bounds["most"]):
        assert getattr(KINDS[kind].from_dict({name: value, **others}), name) == value
    outside = [math.nextafter(bounds["least"], -math.inf), math.nextafter(bounds["most"], math.inf)]
    for value in (*outside, math.nan, math.inf, -math.inf, "1", True, 10**400):
        with pytest.raises(ValueError) as caught:
            KINDS[kind].from_dict({name: value, **others})
        assert str(caught.value).startswith(f"{name} is ")
        assert str(caught.value).endswith(f"; it must be {bounds['rule']}") and len(str(caught.value)) < 250


def test_counts_within_their_bounds() -> None:
    most = BOUNDS["limits"]["count"]["is"]
    for options in KINDS.values():
        types = {name: str(field.type) for name, field in options.__dataclass_fields__.items()}
        counts = {name for name, kind in types.items() if kind.startswith("int")}
        for name in counts - {"seed"}:
            for value in (-1, most + 1, 2**70, 10**400, 1.0, "1" if "None" in types[name] else None):
                with pytest.raises(
                    ValueError, match=rf"^{name} is .{{1,110}}; it must be a whole number, from [01] to"
                ):
                    options.from_dict({name: value})
    with pytest.raises(ValueError, match="make 300103 tensors; a model may have at most 65536"):
        MoEConfig(num_layers=100, num_experts=998, experts_per_token=1)
    with pytest.raises(ValueError, match="more parameters than any machine holds"):
        MoEConfig(hidden_size=most, ffn_size=most)


def test_limits_of_files() -> None:
    for name, limit in BOUNDS["limits"].items():
        assert getattr(limits, name.upper()) == limit["is"], name
