"""Mistakes in configuration files: the file, the line, and what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from nncuda.cli.options import build_configs, read_config
from nncuda.formats import FormatError
from nncuda.nearest import nearest
from nncuda.train import TrainConfig

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


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[train]\nsteps", "is not TOML (Expected '=' after a key in a key/value pair (at line 2, the end))"),
        ("[models]\nx = 1", "line 1: has 'models'; it may have the tables [model], [train] and [data]"),
        ("[model]\n# layers\nlayers = 3", "line 3: there is no model option 'layers'; did you mean num_layers?"),
        ("[train]\ncolour = 3", "line 2: there is no training option 'colour'; `train --help` lists them"),
        ("[train]\nhead_dim = 8", "line 2: there is no training option 'head_dim'; it belongs under [model]"),
        ("[model]\nsteps = 8", "line 2: there is no model option 'steps'; it belongs under [train]"),
        ("[train]\n\n  steps = 'many'", "line 3: steps is 'many'; it must be a whole number, from 1 to 2147483647"),
        ("[train]\nsteps = 1\n[model]\n'num_heads'=0", "line 4: num_heads is 0; it must be a whole number, from 1"),
        ("[ 'train' ]\nbeta1 = 2", "line 2: beta1 is 2; it must be a number, from 0 to 0.999999"),
        ("model.num_heads = 0", "line 1: num_heads is 0; it must be"),
        ("\nmodel = { num_heads = 0 }", "line 2: num_heads is 0; it must be"),
        ("\n[model.num_heads]\nx = 0", "line 2: num_heads is {'x': 0}; it must be"),
        ("[model]\nnum_heads.x = 0", "line 2: num_heads is {'x': 0}; it must be"),
        ("[model]\npreset = 'smal'", "line 2: there is no preset 'smal'; there are "),
    ],
)
def test_the_line_of_a_mistake(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        build_configs(read_config(path), None, {}, 320)
    assert str(caught.value).startswith(f"{path}: {problem}") and len(caught.value.problem) < 150


def test_a_flag_is_not_of_the_file(tmp_path: Path) -> None:
    """Over a value of the file stands that of a flag, and what is wrong with it is not the file's."""
    path = tmp_path / "x.toml"
    path.write_text("[train]\nbeta1 = 0.5\nbeta2 = 2\n")
    with pytest.raises(ValueError, match=r"^beta1 is 3; it must be") as caught:
        build_configs(read_config(path), None, {"beta1": 3, "beta2": 0.5}, 320)
    assert not isinstance(caught.value, FormatError)
    with pytest.raises(FormatError, match=r"x\.toml: line 3: beta2 is 2"):
        build_configs(read_config(path), None, {"beta1": 0.25}, 320)


def test_messages_do_not_list_all_options() -> None:
    with pytest.raises(ValueError) as caught:
        TrainConfig.from_dict({"dropout": 0.5})
    assert str(caught.value) == "there is no training option 'dropout'; `train --help` lists them"
