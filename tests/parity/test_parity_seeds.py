"""The seeds of tests/fuzz in the other languages: what Python's readers take and refuse, they take and refuse too.

Python itself reads them there (test_fuzz_replay.py), with the sentences that the seeds name; here the commands of Go
and Rust meet them. So a hostile file that is added to the seeds is tested in three languages.
"""

from __future__ import annotations

import re
from pathlib import Path

import languages
import pytest
from conftest import find
from fuzz_files import unpack_folder
from fuzz_seeds import SEEDS
from seeds_gguf import Seed
from seeds_others import config, llama_tensors, weights_file
from test_parity_hostile import MEMORY, SECONDS, run_within_limits

WRONG_FILE = 3
#: The files of a model, of which a seed may be one.
MODEL = {"config.json": config(), "model.safetensors": weights_file(llama_tensors(4), "F32")}
#: By target: the command that meets a file in the folder, and the file's name; without one it is a file of `MODEL`.
FILES = {
    "safetensors": (("inspect", "x.safetensors"), "x.safetensors"),
    "shard": (("inspect", "x.tokens"), "x.tokens"),
    "toml": (("plan", "--available", "1GB", "--config", "x.toml"), "x.toml"),
    "metrics": (("report", "."), "metrics.jsonl"),
    "config": (("inspect", "."), "config.json"),
    "state": (("inspect", "."), "training.json"),
    "tokenizer_model": (("inspect", "."), "tokenizer.model"),
    "folder": (("inspect", "."), ""),
}
#: Those that only a language with an inference engine reads. A model is run: one token after the id 0.
RUN = ("--ids", "--max-tokens", "1", "--prompt", "0", "--threads", "1", "--weights", "file")
ENGINE_FILES = {
    "gguf": (("inspect", "x.gguf"), "x.gguf"),
    "gguf_model": (("generate", *RUN, "x.gguf"), "x.gguf"),
    "bitnet_gguf": (("generate", *RUN, "x.gguf"), "x.gguf"),
    "folder_model": (("generate", *RUN, "."), ""),
    "bitnet_folder": (("generate", *RUN, "."), ""),
}
TARGETS = [(target, name) for target in FILES for name in languages.NAMES[1:]]
TARGETS += [(target, name) for target in ENGINE_FILES for name in languages.ENGINES]
#: Where a language differs: the words of its own sentence, or None where it reads what Python does not.
ELSEWHERE: dict[tuple[str, str], dict[str, str | None]] = {
    ("safetensors", "dimension_beside_a_0"): {"go": "no whole numbers", "rust": "overflows"},  # of 64 bits, unsigned
    ("safetensors", "shape_of_100000_beside_a_0"): {"go": "which none can have", "rust": "overflows"},
    ("safetensors", "dtype_unknown"): {"rust": "has dtype F33"},
    ("shard", "magic"): dict.fromkeys(("go", "rust"), "is not a kind of file"),  # by which `inspect` knows a shard
    ("folder", "path_of_dots"): {"rust": "it is not a regular file"},
    ("folder", "path_with_a_zero"): {"go": "cannot be read"},
    # What normalises text is not read where it is not used: these tokenizers are refused when one asks for it.
    ("tokenizer_model", "piece_not_utf8"): {"go": None},
    ("tokenizer_model", "charsmap_of_long_texts"): {"go": None, "rust": None},
    ("gguf", "nothing"): dict.fromkeys(("go", "rust"), "is not a kind of file"),  # by which `inspect` knows a GGUF file
    ("gguf", "magic"): dict.fromkeys(("go", "rust"), "is not a kind of file"),
    ("gguf_model", "token_byte_twice"): {"go": "has duplicate tokens (1)"},
    ("gguf_model", "token_with_a_zero"): {"go": "a zero byte in it", "rust": "none of them zero"},
    ("gguf_model", "scores_not_finite"): dict.fromkeys(("go", "rust"), "scores has NaN"),
    ("gguf_model", "flag_of_a_number"): dict.fromkeys(("go", "rust"), "add_bos_token is 1; it must be true or false"),
    ("gguf_model", "template_of_a_number"): dict.fromkeys(("go", "rust")),  # `generate` needs no template
    ("folder_model", "base_near_0"): dict.fromkeys(("go", "rust"), "base 5e-324"),  # with what else llama3 says
    # A Llama, which the engine runs.
    ("bitnet_folder", "norm_before"): {"rust": "use_rms_norm is true; it may be false"},
}  # fmt: skip
#: JSON and TOML that another library does not even parse, such as numbers beyond its types.
UNREAD = ("is not JSON (", "is not TOML (")


def common(sentence: str) -> list[str]:
    """The parts of a sentence around a value, which each language spells as its own."""
    return re.split(r"(?<= is ).*?(?=;|$)", sentence, maxsplit=1)


def placed(target: str, seed: Seed, folder: Path, language: str) -> tuple[str, ...]:
    """The arguments of the command, the files written."""
    arguments, name = {**FILES, **ENGINE_FILES}[target]
    if target == "config" and language in languages.ENGINES and not seed.name.startswith("other_model"):
        # Where there is an engine, `inspect` also shows Mixtrals that cannot be trained.
        arguments = ("generate", "--contiguous", *RUN[:-2], ".")
    alone = arguments[-1] != "."
    files = {} if alone or target == "metrics" else dict(MODEL)
    if target == "folder":
        files = {"config.json": MODEL["config.json"], **unpack_folder(seed.data)}
    elif not name:
        files = unpack_folder(seed.data)
    else:
        files[name] = seed.data
    folder.mkdir()
    for file, data in files.items():
        (folder / file).write_bytes(data)
    return *arguments[:-1], str(folder / arguments[-1])


@pytest.mark.case("hostile and valid files of the fuzz seeds", "go", "rust")
@pytest.mark.parametrize(("target", "name"), TARGETS)
def test_seeds(target: str, name: str, tmp_path: Path) -> None:
    language, wrong = find(name), []
    for seed in SEEDS[target]:
        if target == "folder" and seed.expected is None:
            continue  # weights of no model
        expected = ELSEWHERE.get((target, seed.name), {}).get(name, seed.expected)
        code, said, seconds, memory = run_within_limits(language, *placed(target, seed, tmp_path / seed.name, name))
        assert seconds < SECONDS and memory < MEMORY, f"{seed.name}: {seconds} s, {memory >> 20} MiB"
        if expected is None:
            good = code == 0
        else:
            words = all(part in said for part in common(expected)) or any(words in said for words in UNREAD)
            one = said.startswith(f"Error: {tmp_path / seed.name}") and "\n" not in said
            good = code == WRONG_FILE and words and one and len(said) < len(str(tmp_path)) + 700
        if not good:
            wrong.append(f"{seed.name}: exit code {code}, {said[:300]!r}, not {expected!r}")
    assert not wrong, "\n".join(wrong)
