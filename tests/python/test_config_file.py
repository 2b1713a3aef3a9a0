"""Mistakes in options: what was meant, and whose they are. Those of files: tests/fuzz/seeds_runs.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from nncuda.cli.options import build_configs, read_config
from nncuda.formats import FormatError
from nncuda.nearest import nearest

KNOWN = ["num_layers", "num_heads", "learning_rate", "eps", "seed"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("layers", "num_layers"),
        ("num_layer", "num_layers"),
        ("Num-Layers", "num_layers"),
        ("learning_rte", "learning_rate"),
        ("head", "num_heads"),
        ("speed", "seed"),
        ("esed", "seed"),
        ("sdee", None),
        ("ep", "eps"),
        ("num", "num_heads"),
        ("the_seed_of_it", "seed"),
        ("colour", None),
        ("", None),
        ("é", None),
        ("n", None),
        ("num_layers_" * 7, None),
    ],
)
def test_the_name_that_was_meant(name: str, meant: str | None) -> None:
    """The cases of Go's and Rust's tests."""
    assert nearest(name, KNOWN) == meant


def test_a_flag_is_not_of_the_file(tmp_path: Path) -> None:
    """Over a value of the file stands that of a flag, and what is wrong with it is not the file's."""
    path = tmp_path / "x.toml"
    path.write_text("[train]\nbeta1 = 0.5\nbeta2 = 2\n")
    with pytest.raises(ValueError, match=r"^beta1 is 3; it must be") as caught:
        build_configs(read_config(path), None, {"beta1": 3, "beta2": 0.5}, 320)
    assert not isinstance(caught.value, FormatError)
    with pytest.raises(FormatError, match=r"x\.toml: line 3: beta2 is 2"):
        build_configs(read_config(path), None, {"beta1": 0.25}, 320)
