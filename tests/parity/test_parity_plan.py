"""The plan: `plan --json` has the same values in every language, and `train` refuses a run with the same facts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import differences
import languages
import numpy as np
import pytest
from conftest import find
from runs import Workshop

from nncuda.formats import SafetensorsFile
from nncuda.formats.safetensors import write_safetensors
from nncuda.train import list_checkpoints

SMALL = "--preset small --threads 2 --available 300MiB"
PLANS = {
    "as it is": SMALL,
    "recomputed": f"{SMALL} --activation-checkpointing 3 --micro-batch-size 1 --precision bf16",
    "dropped slots": f"{SMALL} --capacity-factor 1.25",
    "large vocabulary": f"{SMALL} --vocab-size 32000",
    "many threads": "--preset small --threads 5 --available 24GiB --precision bf16 --micro-batch-size 3",
    "odd sizes": "--preset 6.9b --threads 2 --available 24GiB --precision f16 --sequence-length 1000 --batch-size 3"
    " --recompute-experts --activation-checkpointing 0",
    "on a GPU": "--preset demo --available 100MB --device cuda --precision bf16",
    "6.9b on a GPU": "--preset 6.9b --device cuda:3 --available 141GB --precision bf16 --activation-checkpointing 1"
    " --micro-batch-size 1 --sequence-length 4096",
    "nothing fits": "--preset 6.9b --available 1e3 --device cuda",
    "6.9b as it is": "--preset 6.9b --device cuda --available 141GB",
    "no preset": "--threads 2 --available 24GiB",
    "generation": f"{SMALL} --inference",
    "generation of a batch": f"{SMALL} --inference --prompt 9 --context 512 --batch-size 4 --precision bf16",
    "generation of 200000 tokens": "--preset 6.9b"
    " --threads 2 --available 24GiB --inference --precision bf16 --context 200000",
    "a GPU by its name": "--preset 6.9b --device h200",
    "ranks": f"{SMALL} --batch-size 19 --micro-batch-size 2 --replicas 7 --ranks 3",
    "ranks that divide the experts": f"{SMALL} --batch-size 19 --micro-batch-size 2 --replicas 7 --ranks 4"
    " --expert-parallel 2 --capacity-factor 1.25 --precision bf16 --growth",
    "ranks that partition gradients": "--preset demo --num-layers 9 --threads 2 --available 24GiB --batch-size 6"
    " --micro-batch-size 1 --replicas 6 --ranks 6 --reduce-dtype bf16",
    "ranks that send 16 bits": f"{SMALL} --batch-size 23 --micro-batch-size 1 --replicas 9 --ranks 6"
    " --expert-parallel 2 --precision bf16 --moments f8 --reduce-dtype bf16 --growth",
    "ranks with fewer before them, and a link": "--preset demo --device h200 --micro-batch-size 1"
    " --replicas 6 --ranks 6 --link 50GB --growth",
    "ranks with a link": "--preset 6.9b --device h200 --micro-batch-size 1 --replicas 8 --ranks 8 --link 50GB",
}
REFUSALS = {
    "--available much": (2, "'much' is not a number of bytes, such as 141GB or 24GiB"),
    "--available 1e99": (2, "'1e99' is not a number of bytes, such as 141GB or 24GiB"),
    "--prompt 3": (2, "--prompt is for --inference"),
    "--inference --prompt 0": (2, "prompt"),
    "--ranks 0": (2, "ranks"),
    "--inference --ranks 2": (2, "--ranks is for training, not for --inference"),
    "--growth": (2, "--growth is for --ranks"),
    "--ranks 2 --link 50GB": (2, "--link is for --ranks and a GPU by its name"),
    "--device h200 --link 50GB": (2, "--link is for --ranks and a GPU by its name"),
    "--device h200 --ranks 2 --link 0": (2, "--link is 0; it must be at least 1"),
    "--preset small --ranks 3 --micro-batch-size 1 --replicas 2": (
        3,
        "Error: 3 ranks share out replicas: replicas must be at least 3, and is 2",
    ),
    "--preset small --ranks 4 --micro-batch-size 1 --replicas 4 --expert-parallel 3": (
        3,
        "Error: expert_parallel is 3; it must divide the 4 ranks and the 8 experts",
    ),
    "--inference --context 0": (3, "Error: context is 0; it must be a whole number, at least 1"),
    "--inference --prompt 5 --context 3": (3, "Error: a prompt has 5 tokens; it must have 1 to 3"),
    "--preset 6.9b --inference --context 300000": (3, "Error: 300000 tokens are more than this model takes (262144)"),
    "--preset small --activation-checkpointing 9": (3, "Error: activation_checkpointing is 9; this model has 4 blocks"),
    "--preset 6.9b --sequence-length 40000": (3, "Error: sequence_length is 40000; this model's context is 32768"),
    "--preset 6.9b --batch-size 2000000000 --micro-batch-size none --sequence-length 32768": (
        3,
        "Error: the sizes make a run of more memory than any machine has",
    ),
}  # fmt: skip


@pytest.mark.case("plan --json of training and of generation")
@pytest.mark.parametrize("name", PLANS)
def test_plan(language: languages.Language, name: str) -> None:
    require_same(language, *PLANS[name].split())


@pytest.mark.case("plan --json of a run that begins with a model")
@pytest.mark.parametrize("more", ["--batch-size 4 --precision bf16", "--inference --context 24"])
def test_plan_from_a_model(workshop: Workshop, language: languages.Language, more: str, tmp_path: Path) -> None:
    """Whose description alone is read: this one has no weight that is a number."""
    source, folder = list_checkpoints(workshop.reference("small") / "checkpoints")[-1], tmp_path / "folder"
    folder.mkdir()
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    tensors = {
        name: np.full_like(array, np.nan) for name, array in SafetensorsFile(source / "model.safetensors").items()
    }
    write_safetensors(folder / "model.safetensors", tensors)
    line = ["--from", folder, "--threads", 2, "--available", "300MiB", "--sequence-length", 16, *more.split()]
    planned = require_same(language, *line)
    assert planned["parameters"]["total"] == sum(array.size for array in tensors.values()) and planned["fits"]
    said = language.run("plan", *line, "--preset", "small", code=2).stderr
    assert "--from gives the sizes of the model; leave out --preset and --data" in said
    said = language.run("plan", *line, "--num-layers", 9, code=3).stderr
    assert f"num_layers is 9, but the model of {folder} has " in said


def require_same(language: languages.Language, *flags: object) -> dict[str, Any]:
    """The plan of a language, which must be Python's."""
    arguments = ["plan", "--json", *flags]
    own, python = (json.loads(one.run(*arguments).stdout) for one in (language, find("python")))
    for found in (own, python):  # what a language's own program needs, which frees memory at its own times
        found["sizes"] = [found.pop("peak"), found.pop("held"), *(way.pop("bytes") for way in found["ways"])]
        found["sizes"] += [value or 0 for _, value in sorted(found.pop("work").items())]
        for job in [found.get("ranks", {}), *found.get("growth", [])]:
            found["sizes"] += [job.pop(name, None) or 0 for name in ("held", "seconds", "efficiency")]
        for kind in ("fixed", "kept", "transient", "evaluation", "scratch"):
            del found["bytes"][kind]
    assert own.pop("sizes") == pytest.approx(python.pop("sizes"), rel=0.02)
    assert not (difference := differences.of_values("plan", python, own)), difference
    return own


@pytest.mark.case("refusals: plans of what cannot be")
@pytest.mark.parametrize("arguments", REFUSALS)
def test_refused_plan(language: languages.Language, arguments: str) -> None:
    code, words = REFUSALS[arguments]
    assert words in language.run("plan", *arguments.split(), code=code).stderr


@pytest.mark.case("refusals: a run that cannot fit")
def test_run_that_cannot_fit(workshop: Workshop, language: languages.Language, tmp_path: Path) -> None:
    """Whatever the machine has free, this is more. The facts are the same but for bytes: each program needs its own."""
    flags = ["--hidden-size", 1024, "--ffn-size", 2_000_000, "--num-experts", 32, "--threads", 2]
    flags += ["--data", workshop.folder / "words.tokens"]
    said = [
        re.sub(r"has .* free", "has some free", one.run("train", tmp_path / "run", *flags, code=4).stderr)
        for one in (find("python"), language)
    ]
    sizes, names = ([sorted(fact for fact in differences.facts(one) if isinstance(fact, kind)) for one in said]
                    for kind in (float, str))  # fmt: skip
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02) and names[0] == names[1]
    assert said[0].startswith("Error: this run needs ") and "--micro-batch-size" in said[0]
    assert not (tmp_path / "run").exists()
