"""The inference engine: logits and tokens equal to Python's in every bit, whatever the model, its format, the schedule
and what the cache holds; and the command that runs on it."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import engine_scripts
import languages
import pytest
from conftest import find
from runs import VOCABULARY, Workshop
from small_models import write_adapter

from nncuda import Context, LanguageModel
from nncuda.bench.random_model import Shape, write_folder
from nncuda.binding import library
from nncuda.convert.model import FOLDERS, convert_model
from nncuda.convert.quantize import quantize_model
from nncuda.models.adapter import Adapter
from nncuda.models.adapter_gguf import write_adapter_gguf
from nncuda.models.stored import StoredModel
from nncuda.train import resolve_checkpoint

USAGE, WRONG_FILE = 2, 3
SMALL = Shape(layers=2, hidden=256, ffn=512, heads=4, kv_heads=2, vocabulary=600, context=512)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SHAPES = {
    "llama": SMALL,
    "tied": replace(SMALL, biases=True, tied=True, head_dim=32),
    "llama3": replace(SMALL, rope_scaling={**LLAMA3, "original_max_position_embeddings": 128}),
    "linear": replace(SMALL, rope_scaling={"rope_type": "linear", "factor": 2.5}),
    "mixtral": replace(SMALL, experts=5, experts_per_token=3, ffn=256),
    "bitnet": replace(SMALL, bitnet=True, tied=True),
    "silu": replace(SMALL, bitnet=True, silu=True),
}
FOLDER_DTYPES = {"llama": ("f32", "f16", "bf16"), "mixtral": ("f32", "bf16"), "bitnet": ("bf16",)}
BLOCKS = ("f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")
GGUF = {
    "llama": (*BLOCKS, "q2_k", "q3_k"),
    "mixtral": BLOCKS,
    "tied": ("f32", "q8_0", "q6_k"),
    "llama3": ("q4_0",),
    "linear": ("q8_0",),
}
TERNARY = {"bitnet": ("i2_s", "tq1_0", "tq2_0", "hf", "hf-packed", "packed"), "silu": ("tq2_0",)}

FOLDERS_OF_MODELS = [f"{kind}-{dtype}" for kind in SHAPES for dtype in FOLDER_DTYPES.get(kind, ("f32",))]
FILES = [f"{kind}-{form}.gguf" for kind, forms in GGUF.items() for form in forms]
TERNARY_MODELS = [f"{kind}+{form}" for kind, forms in TERNARY.items() for form in forms]
MODELS = [*FOLDERS_OF_MODELS, *FILES, *TERNARY_MODELS, "checkpoint"]

#: Options of an engine, each with another way through the scheduler and the cache.
SCHEDULES: dict[str, dict[str, Any]] = {
    "usual": {},
    "two at a time, in the file, in q8_0": {"max_batch": 2, "weights": "file", "cache_format": "q8_0", "piece": 48},
    "two at a time, in e4m3": {"max_batch": 2, "cache_format": "e4m3", "piece": 100},
    "a window, in f32": {"context": 256, "cache_tokens": 1024, "cache_format": "f32", "max_batch": 3},
    "a small cache, in bf16": {"cache_tokens": 640, "cache_format": "bf16", "piece": 200},
}


def model(workshop: Workshop, name: str) -> Path:
    """The folder or file of a model, made by the first who asks for it."""
    path = workshop.folder / "models" / name
    if name == "checkpoint":
        workshop.once(name, lambda: copy_checkpoint(resolve_checkpoint(workshop.reference("accumulated")), path))
        return path

    def make(write: Callable[[StoredModel, Context], None]) -> None:
        path.parent.mkdir(exist_ok=True)
        source = model(workshop, f"{kind}-{FOLDER_DTYPES.get(kind, ('f32',))[0]}")
        with Context("cpu", threads=1) as ctx:
            write(StoredModel.open(source), ctx)

    kind, form = name.removesuffix(".gguf").replace("+", "-").split("-", 1)
    if name in FOLDERS_OF_MODELS:
        workshop.once(name, lambda: write_folder(path, SHAPES[kind], dtype=form))
    elif name in FILES:
        workshop.once(name, lambda: make(lambda stored, ctx: quantize_model(stored, path, form, ctx)))
    else:
        path = path.with_name(name if form in FOLDERS else f"{name}.gguf")
        head = "q8_0" if form in ("packed", "tq2_0") else None
        workshop.once(name, lambda: make(lambda stored, ctx: convert_model(stored, path, form, ctx, head=head)))
    return path


def copy_checkpoint(source: Path, folder: Path) -> None:
    """A checkpoint whose rotary embedding may be stretched over several pages of the cache."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    config["nncuda"]["extended_context"] = 512
    (folder / "config.json").write_text(json.dumps(config))


def script(path: Path, schedule: dict[str, Any]) -> dict[str, Any]:
    """Requests of every kind: greedy and drawn, long and short, with beginnings in common, joining, ending and
    cancelled at different steps, and logits of a text of several pieces."""
    config = StoredModel.open(path).config
    draw = random.Random(str(path.name))
    context = schedule.get("context", 512)
    ids = [draw.randrange(config.vocab_size) for _ in range(400)]
    long = min(context - 40, 330)
    requests = [
        {"prompt": ids[:7], "max_new_tokens": 25},
        {"prompt": ids[:long], "max_new_tokens": 12, "temperature": 0.9, "seed": 3, "joins": 2},
        {"prompt": ids[: long - 30] + ids[5:20], "max_new_tokens": 9, "temperature": 1.1, "top_k": 20, "top_p": 0.9,
         "seed": -(2**63), "joins": 8},
        {"prompt": ids[40:80], "max_new_tokens": context, "joins": 1, "cancelled": 15},
        {"prompt": ids[:long], "max_new_tokens": 39, "temperature": 1.0, "joins": 20,
         "end_ids": list(range(0, config.vocab_size, 3))},
        {"prompt": ids[:130], "max_new_tokens": context, "temperature": 0.7, "top_p": 0.8, "seed": 2**63 - 1,
         "joins": 22},
        {"prompt": ids[:1], "max_new_tokens": 1, "joins": 23},
    ]  # fmt: skip
    if context < 512:  # beyond it, by several pages
        requests[0]["max_new_tokens"] = 3 * context
    if schedule.get("cache_tokens", 10**6) < 2 * context:
        requests = [one for one in requests if len(one["prompt"]) + one["max_new_tokens"] <= 400]
    return {"model": str(path), "logits": ids[: min(150, context)], "requests": requests, **schedule}


_found: dict[tuple[str, str], dict[str, Any]] = {}


def expected(path: Path, schedule: str) -> dict[str, Any]:
    """What Python's engine makes of the script."""
    key = str(path), schedule
    if key not in _found:
        _found[key] = engine_scripts.run(script(path, fitting(path, schedule)), threads=2)
    return _found[key]


def fitting(path: Path, schedule: str) -> dict[str, Any]:
    """A schedule's options, as far as the model allows them."""
    options, config = dict(SCHEDULES[schedule]), StoredModel.open(path).config
    if config.head_dim % 32 and options.get("cache_format") == "q8_0":
        options["cache_format"] = "f16"
    if config.extended_context > config.context:
        options.setdefault("context", config.extended_context)
    return options


def ran(name: str, path: Path, options: dict[str, Any], *flags: object) -> dict[str, Any]:
    """What another language's engine makes of it."""
    found: dict[str, Any] = json.loads(
        find(name).run("bench", "engine", *flags, stdin=json.dumps(script(path, options))).stdout
    )
    return found


@pytest.mark.case("the engine: logits and tokens of every kind of model and format")
@pytest.mark.parametrize("name", languages.ENGINES)
@pytest.mark.parametrize("stored", MODELS)
def test_models(workshop: Workshop, stored: str, name: str) -> None:
    path = model(workshop, stored)
    found = expected(path, "usual")
    assert ran(name, path, fitting(path, "usual"), "--threads", 1) == found
    assert {one["finish"] for one in found["requests"]} >= {"length", "cancelled"}
    assert found["tokens"]["shared"] > 0


@pytest.mark.case("the engine: tokens of every schedule, whatever shares the cache")
@pytest.mark.parametrize("name", languages.ENGINES)
@pytest.mark.parametrize(
    ("stored", "schedule"),
    list(itertools.product(["llama-q4_0.gguf", "mixtral-q8_0.gguf", "bitnet-bf16", "checkpoint"], [*SCHEDULES][1:])),
)
def test_schedules(workshop: Workshop, stored: str, schedule: str, name: str) -> None:
    path = model(workshop, stored)
    assert ran(name, path, fitting(path, schedule), "--threads", 2) == expected(path, schedule)


@pytest.mark.case("the engine: texts of one prompt, which is run once")
@pytest.mark.parametrize("name", languages.ENGINES)
@pytest.mark.parametrize("schedule", [{}, {"max_batch": 3, "piece": 64}])
def test_one_prompt(workshop: Workshop, schedule: dict[str, Any], name: str) -> None:
    """At once, and others that begin alike, one of which is cancelled while the rest waits for it."""
    path = model(workshop, "llama-q4_0.gguf")
    ids = [7 * at % 90 for at in range(300)]
    requests = [
        {"prompt": ids[: 210 if at < 6 else 20 * at], "max_new_tokens": 9 + at, "temperature": 1.0, "seed": at}
        for at in range(11)
    ]
    asked = {"model": str(path), "requests": [{**requests[0], "cancelled": 2}, *requests[1:]], **schedule}
    wanted = engine_scripts.run(asked, threads=2)
    told = find(name).run("bench", "engine", "--threads", 1, stdin=json.dumps(asked)).stdout
    assert json.loads(told) == wanted
    assert wanted["tokens"]["prefill"] < 2 * 230 + 5 * 21


#: Models, and which of their matrices are adapted.
ADAPTED = {
    "llama-f32": ("self_attn.q_proj", "self_attn.k_proj", "mlp.gate_proj"),
    "llama-q4_0.gguf": ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"),
    "mixtral-q8_0.gguf": ("self_attn.k_proj", "self_attn.v_proj"),
    "bitnet+i2_s": ("self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj"),
}


@pytest.mark.case("the engine: a model with an adapter, of a folder and of a GGUF file")
@pytest.mark.parametrize("name", languages.ENGINES)
@pytest.mark.parametrize("stored", ADAPTED)
def test_adapters(workshop: Workshop, stored: str, name: str, tmp_path: Path) -> None:
    path = model(workshop, stored)
    config = StoredModel.open(path).config
    write_adapter(tmp_path / "folder", config, ADAPTED[stored], rank=5)
    write_adapter_gguf(tmp_path / "file.gguf", Adapter.open(tmp_path / "folder", config), config)
    ids = [7 * at % 90 for at in range(60)]
    asked: dict[str, Any] = {"model": str(path), "logits": ids, "max_batch": 2, "piece": 48, "requests": [
        {"prompt": ids[: 20 * at + 1], "max_new_tokens": 6 + at, "temperature": 0.9, "seed": at} for at in range(3)
    ]}  # fmt: skip
    told = []
    for place in ("folder", "file.gguf"):
        script = {**asked, "adapter": str(tmp_path / place)}
        told.append(engine_scripts.run(script, threads=2))
        found = find(name).run("bench", "engine", "--threads", 1, stdin=json.dumps(script)).stdout
        assert json.loads(found) == told[-1]
    assert told[0] == told[1] != engine_scripts.run(asked, threads=2)


@pytest.fixture(scope="module", params=["llama-q4_0.gguf", "bitnet+i2_s"])
def several(
    request: pytest.FixtureRequest, workshop: Workshop, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A script of texts that begin alike, beyond a page, with different adapters and without; and what Python makes of
    it, where each has what it has alone in an engine with its adapter for all."""
    place, stored = tmp_path_factory.mktemp("several"), model(workshop, request.param)
    config = StoredModel.open(stored).config
    chosen = {"all": ADAPTED["llama-f32"], "some": ADAPTED["llama-q4_0.gguf"], "wide": ("mlp.down_proj",)}
    for seed, (name, targets) in enumerate(chosen.items()):
        write_adapter(place / name, config, targets, seed, rank=seed + 3)
    ids = [7 * at % 90 for at in range(150)]
    requests: list[dict[str, Any]] = [
        {"prompt": ids[: 150 - at], "max_new_tokens": 5 + at, "temperature": 0.9, "seed": at, "logprobs": 1,
         "joins": at % 3} | ({} if name is None else {"adapter": name})
        for at, name in enumerate(("some", None, "all", "some", "wide", None))
    ]  # fmt: skip
    requests.append({"prompt": ids[:9], "max_new_tokens": 0, "embed": True, "adapter": "all"})
    requests.append({"prompt": ids[:9], "max_new_tokens": 0, "prompt_logprobs": 0, "adapter": "wide"})
    asked = {"model": str(stored), "adapters": {name: str(place / name) for name in chosen}, "requests": requests}
    together = engine_scripts.run(asked, threads=2)
    for said, found in zip(requests, together["requests"], strict=True):
        one = {name: value for name, value in said.items() if name not in ("adapter", "joins")}
        adapter = {"adapter": str(place / said["adapter"])} if "adapter" in said else {}
        (alone,) = engine_scripts.run({"model": str(stored), "requests": [one], **adapter}, threads=1)["requests"]
        assert {**found, "shared": 0} == alone
    assert together["requests"][3]["shared"] > 128 > together["requests"][1]["shared"]
    return asked, together


@pytest.mark.case("the engine: texts with different adapters, and without, in one batch")
@pytest.mark.parametrize("name", languages.ENGINES)
@pytest.mark.parametrize("schedule", [{}, {"max_batch": 3, "piece": 64}], ids=["usual", "three at a time"])
def test_several_adapters(several: tuple[dict[str, Any], dict[str, Any]], schedule: dict[str, Any], name: str) -> None:
    asked, wanted = several
    told = find(name).run("bench", "engine", "--threads", 1, stdin=json.dumps({**asked, **schedule})).stdout
    found = json.loads(told)
    if schedule:  # what is shared and counted is another schedule's
        del found["tokens"]
        wanted = {"requests": [{**one, "shared": 0} for one in wanted["requests"]]}
        found["requests"] = [{**one, "shared": 0} for one in found["requests"]]
    assert found == wanted


@pytest.mark.case("generate: with an adapter, and adapters that are refused")
@pytest.mark.parametrize("name", languages.ENGINES)
def test_generate_with_an_adapter(workshop: Workshop, name: str, tmp_path: Path) -> None:
    path, other = model(workshop, "llama-q4_0.gguf"), find(name)
    config = StoredModel.open(path).config
    write_adapter(tmp_path / "folder", config, ADAPTED["llama-f32"])
    adapter = Adapter.open(tmp_path / "folder", config)
    write_adapter_gguf(tmp_path / "file.gguf", adapter, config)
    line = ["engine", path, "1 2 3", "--ids", "--greedy", "--max-tokens", 12]
    with LanguageModel.load(path, context=64, adapter=tmp_path / "folder") as loaded:
        wanted = [event.token for event in loaded.generate([1, 2, 3], 12, end_ids=()) if event.token >= 0]
    for place in ("folder", "file.gguf"):
        assert other.run(*line, "--adapter", tmp_path / place).stdout.split() == [str(token) for token in wanted]
    options = tmp_path / "folder" / "adapter_config.json"
    whole, file = json.loads(options.read_text()), (tmp_path / "file.gguf").read_bytes()
    for place, problem, written in (
        ("folder", "use_dora", json.dumps({**whole, "use_dora": True}).encode()),
        ("folder", "'of_tomorrow'", json.dumps({**whole, "of_tomorrow": 1}).encode()),
        ("folder", "with r 4 the model makes it", json.dumps({**whole, "r": 4}).encode()),
        ("folder", "lora_alpha", json.dumps({**whole, "lora_alpha": 1e300}).encode()),
        ("file.gguf", "general.type", file.replace(b"adapter", b"adaptor", 1)),
        ("file.gguf", "attn_z", file.replace(b"attn_q.weight.lora_a", b"attn_z.weight.lora_a", 1)),
        ("file.gguf", "alone", file.replace(b"blk.1.attn_q.weight.lora_a", b"blk.0.attn_v.weight.lora_a", 1)),
        ("file.gguf", "the file ends", file[:-32]),
    ):
        (options if place == "folder" else tmp_path / "file.gguf").write_bytes(written)
        error = other.run(*line, "--adapter", tmp_path / place, code=WRONG_FILE).stderr
        assert problem in error and error.count("\n") == 1, error
    contiguous = [*line, "--contiguous", "--adapter", tmp_path / "folder"]
    assert "--adapter" in other.run(*contiguous, code=USAGE).stderr


@pytest.mark.case("the engine: on other instruction sets")
@pytest.mark.parametrize("name", languages.DRAWING)
@pytest.mark.parametrize("isa", ["baseline", "avx2"])
@pytest.mark.parametrize("stored", ["tied-q8_0.gguf", "mixtral-q4_0.gguf", "bitnet+i2_s"])
def test_instruction_sets(workshop: Workshop, stored: str, isa: str, name: str) -> None:
    """Weights lie in another order where products need it."""
    path = model(workshop, stored)
    asked = {**script(path, {}), "isa": isa}
    told = find(name).run("bench", "engine", "--threads", 1, stdin=json.dumps(asked)).stdout
    assert json.loads(told) == engine_scripts.run(asked, threads=2)


EMULATED = languages.ROOT / "build" / "emulated" / "libnncuda_emulated_90.so"


@pytest.mark.case("the engine: on an emulated GPU, which runs ahead")
@pytest.mark.skipif(not EMULATED.exists(), reason="make emulated builds it")
@pytest.mark.parametrize("name", languages.DRAWING)
@pytest.mark.parametrize("kind", ["llama", "mixtral"])
def test_emulated_gpu(kind: str, name: str, tmp_path: Path) -> None:
    shape = Shape(layers=1, hidden=64, ffn=64, heads=2, kv_heads=1, vocabulary=600, context=512)
    shape = replace(shape, experts=2, experts_per_token=1) if kind == "mixtral" else shape
    write_folder(tmp_path / kind, shape, dtype="f32")
    ids = [7 * at % 90 for at in range(40)]
    asked = {"model": str(tmp_path / kind), "context": 256, "max_batch": 3, "piece": 64, "requests": [
        {"prompt": ids[:5], "max_new_tokens": 14}, {"prompt": ids, "max_new_tokens": 9, "temperature": 0.9, "joins": 1},
        {"prompt": ids[:30], "max_new_tokens": 12, "joins": 3, "cancelled": 9, "presence_penalty": 1.0},
        {"prompt": ids[:3], "max_new_tokens": 6, "joins": 6, "logprobs": 2},
        {"prompt": ids * 2, "max_new_tokens": 0, "joins": 2, "embed": True},
    ]}  # fmt: skip
    env = {**languages.environment(), library.ENVIRONMENT_VARIABLE: str(EMULATED)}
    own = [sys.executable, Path(engine_scripts.__file__)]
    told = [
        subprocess.run([*line, "--device", "cuda"], input=json.dumps(asked), capture_output=True, text=True, env=env)
        for line in (own, [*find(name).command, "bench", "engine"])
    ]
    assert [one.returncode for one in told] == [0, 0], told
    assert json.loads(told[0].stdout) == json.loads(told[1].stdout)


def test_the_models_differ(workshop: Workshop) -> None:
    """Each kind and format has logits of its own, or their equality would say nothing."""
    kinds = ["llama-f32", "llama-f16", "tied-f32", "llama3-f32", "linear-f32", "mixtral-f32", "bitnet-bf16", "silu-f32",
             "llama-q4_0.gguf", "llama-q8_0.gguf", "checkpoint"]  # fmt: skip
    found = [expected(model(workshop, name), "usual") for name in kinds]
    assert len({one["logits"] for one in found}) == len(kinds)
    assert {"end", "length", "cancelled"} == {request["finish"] for one in found for request in one["requests"]}


#: What changes logits before a token is drawn, and what is told of them.
DRAWINGS: list[dict[str, Any]] = [
    {"temperature": 1.0, "min_p": 0.05, "seed": 2},
    {"presence_penalty": 1.5, "frequency_penalty": 0.5, "logprobs": 3},
    {"repetition_penalty": 1.3, "temperature": 0.8, "top_k": 30, "seed": 4},
    {"logit_bias": {"5": 100.0, "17": -3.5, "599": 2.25}, "temperature": 1.5, "seed": 5, "logprobs": 20},
    {"allowed": [[7, 300], [1, 2, 3], list(range(64, 96)), [599], [0]], "logprobs": 0, "prompt_logprobs": 4},
    {"prompt_logprobs": 0, "max_new_tokens": 0},
    {"presence_penalty": -0.5, "repetition_penalty": 0.9, "min_p": 0.3, "top_p": 0.9, "temperature": 1.2, "seed": -7,
     "logit_bias": {"1": -100.0}, "allowed": [[*range(1, 500, 2)]] * 40, "logprobs": 1},
    {"temperature": 0.9, "seed": 8},
    {"embed": True, "max_new_tokens": 0},
]  # fmt: skip


def drawing_script(path: Path, together: bool, schedule: dict[str, Any]) -> dict[str, Any]:
    """Requests with each of `DRAWINGS`, beside one another or one after another."""
    draw = random.Random(3)
    shared = [draw.randrange(600) for _ in range(140)]
    requests = [
        {"prompt": shared[: 20 + 17 * at], "max_new_tokens": 30, "joins": at if together else 40 * at, **drawing}
        for at, drawing in enumerate(DRAWINGS)
    ]
    return {"model": str(path), "requests": requests, **schedule}


@pytest.mark.case("the engine: penalties, biases, masks and log-probabilities")
@pytest.mark.parametrize("name", languages.DRAWING)
@pytest.mark.parametrize("schedule", [{}, {"max_batch": 3, "piece": 32}])
@pytest.mark.parametrize("stored", ["llama-q4_0.gguf", "bitnet-bf16"])
def test_drawing(workshop: Workshop, stored: str, schedule: dict[str, Any], name: str) -> None:
    path = model(workshop, stored)
    found = []
    for together in (True, False):
        script = drawing_script(path, together, schedule)
        wanted = engine_scripts.run(script, threads=2)
        told = find(name).run("bench", "engine", "--threads", 1, stdin=json.dumps(script)).stdout
        assert json.loads(told) == wanted
        found.append(
            [
                {key: one.get(key) for key in ("tokens", "logprobs", "prompt_logprobs", "embedding")}
                for one in wanted["requests"]
            ]
        )
    assert found[0] == found[1]
    constrained = found[0][4]
    assert constrained["tokens"][3:] == [599, 0] and len(constrained["prompt_logprobs"]) == 88
    assert len({str(one["tokens"]) for one in found[0]}) == len(DRAWINGS) - 1 and found[0][-1]["embedding"]


@pytest.mark.case("the engine: scalings of Llama 3, of any model")
@pytest.mark.parametrize("name", languages.ENGINES)
def test_llama3_scaling(workshop: Workshop, name: str) -> None:
    """The divisors of the frequencies are computed by each language: the same f32 numbers."""
    source, draw = model(workshop, "llama-f32"), random.Random(5)
    folder = workshop.folder / f"llama3-{name}"
    folder.mkdir()
    for file in ("model.safetensors", "tokenizer.model"):
        (folder / file).symlink_to(source / file)
    config = json.loads((source / "config.json").read_text())
    for _ in range(40):
        low = draw.uniform(0.5, 4)
        config["rope_theta"] = draw.choice([1e4, 5e5, draw.uniform(1, 1e7)])
        config["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": draw.uniform(1, 64),
            "low_freq_factor": low,
            "high_freq_factor": low + draw.uniform(0.1, 8),
            "original_max_position_embeddings": draw.randrange(16, 9000),
        }
        (folder / "config.json").write_text(json.dumps(config))
        found = json.loads(find(name).run("inspect", folder, "--json").stdout)
        rope = StoredModel.open(folder).config.rope
        assert found["model"]["rope"]["divisors"] == list(rope.divisors)


GENERATED = {
    "greedy ids": ["2 50,60, 7", "--ids", "--greedy", "--max-tokens", 12],
    "several prompts": ["1 2", "3", "4 5 6", "--ids", "--seed", 9, "--max-tokens", 30],
    "no tokens": ["1 2", "3", "--ids", "--max-tokens", 0],
    "options": ["--prompt", "1", "--ids", "--context", 130, "--cache-format", "f32", "--weights", "file", "--seed", 1],
    "beyond the context": ["1", "--ids", "--context", 128, "--max-tokens", 300, "--temperature", 0.5, "--top-k", 7],
    "text": ["line 3 of 7: the quick", "--max-tokens", 24, "--top-p", 0.9, "--seed", -3],
    "as long as it can": ["5", "--ids", "--greedy"],
}

#: With options that change logits.
DRAWN = {
    "min_p and biases": [
        "1 2 3",
        "--ids",
        "--min-p",
        0.02,
        "--logit-bias",
        "5=3.5",
        "--logit-bias",
        "6=-9",
        "--seed",
        2,
    ],
    "penalties": [
        *["1 2 3", "--ids", "--presence-penalty", 0.7, "--frequency-penalty", -0.2, "--repetition-penalty", 1.2],
        *["--seed", 3],
    ],
}


@pytest.mark.case("generate on the engine: options that change logits")
@pytest.mark.parametrize("name", languages.DRAWING)
@pytest.mark.parametrize("case", DRAWN)
def test_drawn(workshop: Workshop, case: str, name: str) -> None:
    # And by the layers that train.
    for arguments in (["engine"], ["generate"]):
        line = [*arguments, workshop.reference("small"), *DRAWN[case]]
        wanted = find("python").run(*line, "--threads", 2).stdout
        assert (
            wanted != find("python").run(*arguments, workshop.reference("small"), *DRAWN[case][:2], "--seed", 3).stdout
        )
        assert find(name).run(*line, "--threads", 1).stdout == wanted


@pytest.mark.case("generate on the engine: the same output")
@pytest.mark.parametrize("name", languages.ENGINES)
@pytest.mark.parametrize("case", GENERATED)
@pytest.mark.parametrize("stored", ["llama-q8_0.gguf", "mixtral-f32", "bitnet+hf-packed", "run"])
def test_generate(workshop: Workshop, stored: str, case: str, name: str) -> None:
    path = workshop.reference("small") if stored == "run" else model(workshop, stored)
    arguments = ["engine", path, *GENERATED[case]]
    if stored == "run" and "--context" in arguments:  # heads of 8 elements, at most 64 tokens
        arguments[arguments.index("--context") + 1] = 40
        if "--max-tokens" in arguments:
            arguments[arguments.index("--max-tokens") + 1] = 30
    wanted = find("python").run(*arguments, "--threads", 2).stdout
    assert wanted.strip() or case == "no tokens"
    assert find(name).run(*arguments, "--threads", 1).stdout == wanted


@pytest.mark.case("inspect of GGUF files and of models that only the engine runs")
@pytest.mark.parametrize("name", languages.ENGINES)
@pytest.mark.parametrize("stored", ["llama-q4_k.gguf", "mixtral-q6_k.gguf", "llama3-f32", "bitnet-bf16", "bitnet+i2_s"])
def test_inspect(workshop: Workshop, stored: str, name: str) -> None:
    path = model(workshop, stored)
    found, wanted = (json.loads(find(one).run("inspect", path, "--json").stdout) for one in (name, "python"))
    assert found == wanted


REFUSED = {
    "context beyond the model": (3, ["5", "--ids", "--context", 100000], "context is 100000; this model takes 1 to"),
    "prompt beyond the vocabulary": (3, ["1 99999", "--ids"], "PROMPT[1] is 99999; it must be 0 to"),
    "empty prompt": (3, ["", "--ids"], "at least one token"),
    "precision": (2, ["5", "--precision", "bf16"], "--precision needs --contiguous"),
    "contiguous with options": (2, ["5", "--contiguous", "--stats"], "--contiguous takes one prompt, and none of"),
    "contiguous of two": (2, ["5", "6", "--contiguous"], "--contiguous takes one prompt, and none of"),
    "cache format of nobody": (2, ["5", "--cache-format", "q4_0"], "q4_0"),
    "place of nobody": (2, ["5", "--weights", "disk"], "disk"),
    "context of zero": (2, ["5", "--context", 0], "context"),
}

#: Of the options that change logits.
REFUSED_DRAWINGS = {
    "min_p above 1": (2, ["5", "--min-p", 1.5], "min-p"),
    "bias of nobody": (2, ["5", "--ids", "--logit-bias", "x=1"], "is not ID=BIAS, such as 42=-100"),
    "bias beyond the vocabulary": (
        3,
        ["5", "--ids", "--logit-bias", "320=1"],
        "logit_bias[0] is 320; it must be 0 to 319",
    ),
    "repetition of 0": (2, ["5", "--ids", "--repetition-penalty", 0], "it must be a finite number above 0"),
    "infinite penalty": (2, ["5", "--ids", "--presence-penalty", "inf"], "presence_penalty is"),
}


@pytest.mark.case("generate on the engine: refusals")
@pytest.mark.parametrize("name", ["python", *languages.DRAWING])
@pytest.mark.parametrize("case", REFUSED_DRAWINGS)
def test_refused_drawings(workshop: Workshop, case: str, name: str) -> None:
    code, arguments, words = REFUSED_DRAWINGS[case]
    assert words in find(name).run("engine", workshop.reference("small"), *arguments, code=code).stderr


@pytest.mark.case("generate on the engine: refusals")
@pytest.mark.parametrize("name", ["python", *languages.ENGINES])
@pytest.mark.parametrize("case", REFUSED)
def test_refusals(workshop: Workshop, case: str, name: str) -> None:
    code, arguments, words = REFUSED[case]
    said = find(name).run("engine", workshop.reference("small"), *arguments, code=code).stderr
    assert words in said
    assert VOCABULARY == 320  # the largest id of the second case is above it


@pytest.mark.case("generate on the engine: refusals")
@pytest.mark.parametrize("name", ["python", *languages.ENGINES])
def test_contiguous_is_for_what_trains(workshop: Workshop, name: str) -> None:
    words = "--contiguous is for checkpoints, folders of runs and Mixtral folders"
    for stored in ("llama-q8_0.gguf", "llama-f32"):
        assert words in find(name).run("engine", model(workshop, stored), "x", "--contiguous", code=2).stderr
    assert "reads" not in find(name).run("engine", model(workshop, "mixtral-f32"), "x", "--contiguous").stderr


@pytest.mark.case("generate on the engine: statistics")
@pytest.mark.parametrize("name", languages.ENGINES)
def test_statistics(workshop: Workshop, name: str) -> None:
    """The same counts, and the same words around the times."""
    arguments = ["engine", model(workshop, "llama-q8_0.gguf"), "1 2 3", "4", "--ids", "--stats", "--max-tokens", 9]
    told = [find(one).run(*arguments).stderr.splitlines() for one in ("python", name)]
    for wanted, found in zip(*told, strict=True):
        words = [[part for part in line.split() if not part.replace(".", "").isdigit()] for line in (wanted, found)]
        assert words[0] == words[1] or wanted.startswith("memory")
    assert told[0][2].split(",")[0] == told[1][2].split(",")[0]
