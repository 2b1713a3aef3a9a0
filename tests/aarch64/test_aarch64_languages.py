"""The inference engine and a run of training from Python, Go and Rust on AArch64, under qemu-user, with the bits that
Python has on this processor by AVX2. `make aarch64` asks for Python's, `make aarch64-go` and `make aarch64-rust` for
theirs.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import differences
import emulation
import numpy as np
import pytest
from emulation import HERE, PROGRAM, PYTHON, output

from nncuda import Context
from nncuda.bench.random_model import Shape, write_folder
from nncuda.convert.model import convert_model
from nncuda.convert.quantize import quantize_model
from nncuda.formats import write_shard
from nncuda.models.stored import StoredModel

ENGINE = HERE.parent / "parity" / "engine_scripts.py"
#: Where `make` says that each language's command is.
BINARIES = {"go": "NNCUDA_AARCH64_GO", "rust": "NNCUDA_AARCH64_RUST"}

SMALL = Shape(layers=2, hidden=256, ffn=512, heads=8, kv_heads=2, vocabulary=600, context=256)
#: Each format of weights with one of the cache's: the shape, the format, the cache.
MODELS = {
    "f32": (SMALL, "f32", "f32"),
    "f16": (SMALL, "f16", "f16"),
    "bf16": (SMALL, "bf16", "bf16"),
    "q4_0": (SMALL, "q4_0", "q8_0"),
    "q4_1": (SMALL, "q4_1", "e4m3"),
    "q5_0": (SMALL, "q5_0", "f16"),
    "q5_1": (SMALL, "q5_1", "bf16"),
    "q8_0": (SMALL, "q8_0", "f32"),
    "q4_k": (SMALL, "q4_k", "q8_0"),
    "q5_k": (SMALL, "q5_k", "f16"),
    "q6_k": (SMALL, "q6_k", "e4m3"),
    "mixtral": (replace(SMALL, experts=4, experts_per_token=2, ffn=256), "q4_0", "f16"),
    "bitnet": (replace(SMALL, bitnet=True, tied=True), "tq2_0", "q8_0"),
}
CONFIG = """
[model]
hidden_size = 40
num_layers = 2
num_heads = 3
head_dim = 16
num_experts = 4
experts_per_token = 2
ffn_size = 48
context = 24
[train]
steps = 4
save_every = 1
keep_checkpoints = 4
batch_size = 6
micro_batch_size = 3
sequence_length = 24
warmup_steps = 1
learning_rate = 0.01
clip_norm = 0.05
precision = "PRECISION"
"""

pytestmark = pytest.mark.skipif("NNCUDA_AARCH64" not in os.environ, reason="`make aarch64` runs these")


def binary(language: str) -> str:
    """The command of Go or Rust; the test is skipped where it is not built."""
    if BINARIES[language] not in os.environ:
        pytest.skip(f"`make aarch64-{language}` builds the command and runs this")
    return os.environ[BINARIES[language]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("aarch64")


def script(folder: Path, name: str) -> dict[str, Any]:
    """Prompts of one token, of many and of several pieces, two at a time, and the logits of a text."""
    shape, form, cache = MODELS[name]
    source, file = folder / f"{name}-folder", folder / f"{name}.gguf"
    if not file.exists():
        write_folder(source, shape, dtype="f32")
        with Context("cpu", threads=1) as ctx:
            stored = StoredModel.open(source)
            (convert_model if shape.bitnet else quantize_model)(stored, file, form, ctx)
    draw = random.Random(name)
    ids = [draw.randrange(shape.vocabulary) for _ in range(150)]
    requests = [
        {"prompt": ids[:1], "max_new_tokens": 6},
        {"prompt": ids[:37], "max_new_tokens": 9, "temperature": 0.9, "seed": 3, "logprobs": 3},
        {"prompt": ids[:143], "max_new_tokens": 4, "joins": 2},
    ]
    options = {"cache_format": cache, "max_batch": 3, "piece": 64}
    return {"model": str(file), "logits": ids[:70], "requests": requests, **options}


@cache
def scripted(folder: Path, name: str) -> tuple[dict[str, Any], Any]:
    """A script, and what this processor makes of it."""
    wanted = script(folder, name)
    command = (emulation.native("avx2"), ENGINE, "--device", "cpu")
    return wanted, output(*command, stdin=json.dumps(wanted | {"isa": "avx2"}))


@pytest.mark.parametrize("language", ["python", "go", "rust"])
@pytest.mark.parametrize("name", MODELS)
def test_the_engine_has_the_bits_of_avx2(name: str, language: str, folder: Path):
    command = (
        (PYTHON, ENGINE, "--device", "cpu") if language == "python" else (PROGRAM, binary(language), "bench", "engine")
    )
    wanted, expected = scripted(folder, name)
    for isa in ("neon", "i8mm"):
        found = output(*command, stdin=json.dumps(wanted | {"isa": isa}))
        assert differences.of_values(isa, expected, found) == ""


@pytest.mark.parametrize("language", ["python", "go", "rust"])
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_run_has_the_bits_of_avx2(precision: str, language: str, folder: Path):
    config, data, reference = folder / f"{precision}.toml", folder / "data.tokens", folder / f"{precision}-avx2"
    program = [PYTHON, HERE / "train.py"] if language == "python" else [PROGRAM, binary(language), "train"]
    if not reference.exists():
        config.write_text(CONFIG.replace("PRECISION", precision))
        write_shard(data, [np.random.default_rng(0).integers(0, 97, 2000)], 97)
        subprocess.run([emulation.native("avx2"), HERE / "train.py", reference, config, data, "avx2"], check=True)
    run = folder / f"{precision}-{language}"
    # Go and Rust train on the widest instruction set that the processor has.
    arguments = [config, data, "neon"] if language == "python" else ["--config", config, "--data", data]
    subprocess.run([*program, run, *arguments], env=os.environ | {"QEMU_CPU": "cortex-a72"}, check=True)
    assert differences.of_runs(reference, run) == ""
