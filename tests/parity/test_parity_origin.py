"""Runs that begin with trained weights: from this library's checkpoints and from folders of Hugging Face, to the same
bits in every language; and what no run begins from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import differences
import languages
import ml_dtypes
import numpy as np
import pytest
from conftest import find
from runs import STEPS, Workshop, metrics_of
from test_parity_runs import USAGE, WRONG_FILE, said
from test_tokenizers import byte_level_folder

from nncuda import Context
from nncuda.convert.quantize import quantize_model
from nncuda.formats import SafetensorsFile
from nncuda.formats.safetensors import write_safetensors, write_safetensors_folder
from nncuda.models import StoredModel
from nncuda.train import list_checkpoints

DONE = 10
USUAL = ["--steps", 6, "--save-every", 1, "--keep-checkpoints", 9, "--batch-size", 4, "--warmup-steps", 1, "--seed", 8]

#: By name: which run of the workshop is cut off after step `DONE`, the data, and the flags.
BEGUN: dict[str, tuple[str, str, list[object]]] = {
    "f32": ("small", "words.tokens", [*USUAL, "--sequence-length", 16]),
    "bf16, micro-batches": (
        "ragged",
        "shards",
        [*USUAL, "--sequence-length", 13, "--precision", "bf16", "--micro-batch-size", 3, "--aux-alpha", 0.2,
         "--capacity-factor", "none"],
    ),
    "dense": ("dense", "wide.tokens", [*USUAL, "--sequence-length", 24, "--precision", "bf16"]),
    "with the optimiser": (
        "ragged",
        "shards",
        [*USUAL, "--sequence-length", 13, "--steps", DONE + 6, "--with-optimizer"],
    ),
    "with moments in 8 bits": (
        "moments in 8 bits",
        "wide.tokens",
        [*USUAL, "--sequence-length", 24, "--steps", DONE + 6, "--with-optimizer"],
    ),
    "with the loss scale of f16": (
        "f16, overflowing",
        "wide.tokens",
        [*USUAL, "--sequence-length", 24, "--steps", DONE + 6, "--with-optimizer"],
    ),
}  # fmt: skip


def origin(workshop: Workshop, name: str) -> Path:
    """The run that a case begins from, as it was after `DONE` steps."""
    cut = f"origin-{name}"
    workshop.once(cut, lambda: workshop.cut(workshop.reference(name), DONE, cut))
    return workshop.folder / "cuts" / cut


def begun(workshop: Workshop, language: str, case: str, threads: int = 1) -> Path:
    """A run of a language that begins there."""
    of, data, flags = BEGUN[case]
    folder, run = origin(workshop, of), workshop.folder / "runs" / f"begun-{language}-{case}-{threads}"
    line = ["--from", folder, "--data", workshop.folder / data, *flags, "--threads", threads]
    workshop.once(run.name, lambda: find(language).run("train", run, *line))
    return run


@pytest.mark.case("training that begins with trained weights")
@pytest.mark.parametrize("case", BEGUN)
def test_begun(workshop: Workshop, language: languages.Language, case: str) -> None:
    """Every tensor and loss; and what run.json says of where it began."""
    expected, run = begun(workshop, "python", case, 2), begun(workshop, language.name, case)
    assert not (difference := differences.of_runs(expected, run)), difference
    records = [json.loads((one / "run.json").read_text())["from"] for one in (expected, run)]
    assert records[0] == records[1]
    assert (records[0]["optimizer_sha256"] is None) == ("with" not in case)
    steps = [record["step"] for record in metrics_of(run)]
    assert steps == list(range(DONE + 1, DONE + 7) if "with" in case else range(1, 7))


def test_it_goes_on_where_that_was(workshop: Workshop) -> None:
    """Its first loss is that of the trained weights, and no other seed or rate changes where it begins."""
    losses = [record["loss"] for record in metrics_of(workshop.reference("small"))]
    assert metrics_of(begun(workshop, "python", "f32", 2))[0]["loss"] < 0.5 * (losses[0] + losses[DONE])
    with_moments, without = (workshop.folder / "runs" / f"moments-{taken}" for taken in ("taken", "new"))
    of, data, flags = BEGUN["with the optimiser"]
    plain = [flag for flag in flags if flag != "--with-optimizer"]
    for run, given in ((with_moments, flags), (without, plain)):
        line = ["--from", origin(workshop, of), "--data", workshop.folder / data]
        find("python").run("train", run, *line, *given, "--steps", DONE + 1, "--warmup-steps", 0)
    first = [metrics_of(run)[0] for run in (with_moments, without)]
    assert first[0]["loss"] == first[1]["loss"] and first[0]["step"] == DONE + 1 and first[1]["step"] == 1
    assert first[0]["learning_rate"] != first[1]["learning_rate"]


@pytest.mark.case("such a run, killed and taken up by the next language")
@pytest.mark.parametrize("case", ["f32", "with the loss scale of f16"])
def test_taken_up(workshop: Workshop, language: languages.Language, case: str) -> None:
    """As if it had been killed after its third step; the folder that it began from may be gone."""
    last = 3 if case == "f32" else DONE + 3
    run = workshop.cut(begun(workshop, language.name, case), last, f"begun-{language.name}-{case}")
    following = languages.NAMES[(languages.NAMES.index(language.name) + 1) % len(languages.NAMES)]
    find(following).run("train", run, "--resume")
    assert not (difference := differences.of_runs(begun(workshop, "python", case, 2), run)), difference


def published(workshop: Workshop, folder: Path, dtype: str) -> Path:
    """The weights of the run "small" as others publish a Mixtral: 16 bits, in several files, with a chat template."""
    source = list_checkpoints(origin(workshop, "small") / "checkpoints")[-1]
    folder.mkdir()
    kind = np.dtype(np.float16) if dtype == "f16" else np.dtype(ml_dtypes.bfloat16)
    tensors = {name: array.astype(kind) for name, array in SafetensorsFile(source / "model.safetensors").items()}
    write_safetensors_folder(folder, tensors, {"format": "pt"}, max_shard_bytes=20000)
    config = json.loads((source / "config.json").read_text())
    del config["nncuda"], config["pad_token_id"]
    config |= {"eos_token_id": [3, 5], "torch_dtype": "bfloat16", "use_cache": True}
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(source / "tokenizer.model", folder)
    described = json.loads((source / "tokenizer_config.json").read_text()) | {"chat_template": "{{ messages }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    (folder / "generation_config.json").write_text('{"temperature": 0.25}')
    (folder / "special_tokens_map.json").write_text('{"bos_token": "<s>"}')
    return folder


@pytest.mark.case("training that begins with a Mixtral of Hugging Face")
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_published(workshop: Workshop, language: languages.Language, dtype: str, tmp_path: Path) -> None:
    """Several files in 16 bits; all that belongs to the tokenizer comes along, through a resumption too."""
    folder = published(workshop, tmp_path / "published", dtype)
    assert len(list(folder.glob("*.safetensors"))) > 2
    runs = []
    for number, name in enumerate(("python", language.name)):
        runs.append(tmp_path / f"{number}")
        flags = [*USUAL, "--sequence-length", 16, "--steps", 2, "--data", workshop.folder / "words.tokens"]
        find(name).run("train", runs[-1], "--from", folder, *flags)
    assert not (difference := differences.of_runs(*runs)), difference
    shutil.rmtree(runs[1] / "checkpoints" / "step-00000002")
    language.run("train", runs[1], "--resume")
    assert not (difference := differences.of_runs(*runs)), difference
    last = list_checkpoints(runs[1] / "checkpoints")[-1]
    for name in ("tokenizer.model", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json"):
        assert (last / name).read_bytes() == (folder / name).read_bytes(), name
    config = json.loads((last / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (2, [3, 5], None)


@pytest.mark.case("training that begins with a Qwen2 of Hugging Face with llama3's angles, and with a Qwen3")
@pytest.mark.parametrize(("kind", "precision"), [("Qwen2", "f32"), ("Qwen3", "bf16")])
def test_published_parts(
    workshop: Workshop, language: languages.Language, kind: str, precision: str, tmp_path: Path
) -> None:
    """Parts that models of this library have only when they come from elsewhere, with values that no new one has."""
    source, folder = list_checkpoints(origin(workshop, "dense") / "checkpoints")[-1], tmp_path / "folder"
    folder.mkdir()
    config = json.loads((source / "config.json").read_text())
    tensors = {name: array.copy() for name, array in SafetensorsFile(source / "model.safetensors").items()}
    rng, dim = np.random.default_rng(3), config["head_dim"]
    heads = dict.fromkeys("kv", config["num_key_value_heads"]) | {"q": config["num_attention_heads"]}
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}.self_attn"
        for part, count in heads.items() if kind == "Qwen2" else ():
            tensors[f"{base}.{part}_proj.bias"] = rng.normal(0, 0.3, count * dim).astype(np.float32)
        for part in "qk" if kind == "Qwen3" else ():
            tensors[f"{base}.{part}_norm.weight"] = rng.normal(1, 0.3, dim).astype(np.float32)
    del config["mlp_bias"]
    config |= {"model_type": kind.lower(), "use_sliding_window": False, "sliding_window": 8}
    if kind == "Qwen2":
        numbers = {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4.0, "original_max_position_embeddings": 12}
        config |= {"tie_word_embeddings": True, "rope_scaling": {"rope_type": "llama3", **numbers}}
        del config["attention_bias"]
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors)
    runs = []
    for number, name in enumerate(("python", language.name)):
        runs.append(tmp_path / f"{number}")
        flags = [*USUAL, "--sequence-length", 24, "--steps", 3, "--data", workshop.folder / "wide.tokens"]
        flags += ["--precision", precision, "--micro-batch-size", 3, "--activation-checkpointing", 2]
        find(name).run("train", runs[-1], "--from", folder, *flags)
    assert not (difference := differences.of_runs(*runs)), difference
    saved = json.loads((list_checkpoints(runs[1] / "checkpoints")[-1] / "config.json").read_text())
    assert saved["architectures"] == [f"{kind}ForCausalLM"] and saved["tie_word_embeddings"] is (kind == "Qwen2")
    assert saved.get("rope_scaling") == config.get("rope_scaling")
    (folder / "config.json").write_text(json.dumps(config | {"use_sliding_window": True}))
    line = ["--from", folder, "--data", workshop.folder / "wide.tokens"]
    refused = said(language.run("train", tmp_path / "windows", *line, code=WRONG_FILE))
    assert f"{folder / 'config.json'}: use_sliding_window is " in refused


@pytest.mark.case("training that begins with a Llama of Hugging Face")
def test_published_llama(workshop: Workshop, language: languages.Language, tmp_path: Path) -> None:
    """In bf16, with what transformers leaves out and what old Llamas store, and without a tokenizer."""
    source, folder = list_checkpoints(origin(workshop, "dense") / "checkpoints")[-1], tmp_path / "llama"
    folder.mkdir()
    stored = SafetensorsFile(source / "model.safetensors")
    tensors = {name: array.astype(ml_dtypes.bfloat16) for name, array in stored.items()}
    tensors["model.layers.2.self_attn.rotary_emb.inv_freq"] = np.ones(4, ml_dtypes.bfloat16)
    write_safetensors_folder(folder, tensors, {"format": "pt"}, max_shard_bytes=20000)
    config = json.loads((source / "config.json").read_text())
    for name in ("nncuda", "attention_bias", "mlp_bias", "head_dim", "initializer_range"):
        del config[name]
    (folder / "config.json").write_text(json.dumps(config | {"pretraining_tp": 1}))
    runs = []
    for number, name in enumerate(("python", language.name)):
        runs.append(tmp_path / f"{number}")
        flags = [*USUAL, "--sequence-length", 24, "--steps", 2, "--data", workshop.folder / "wide.tokens"]
        find(name).run("train", runs[-1], "--from", folder, *flags)
    assert not (difference := differences.of_runs(*runs)), difference
    assert json.loads((runs[0] / "run.json").read_text())["model"]["num_experts"] == 0
    (folder / "config.json").write_text(json.dumps(config | {"attention_bias": True}))
    line = ["--from", folder, "--data", workshop.folder / "wide.tokens"]
    refused = said(language.run("train", tmp_path / "biased", *line, code=WRONG_FILE))
    assert f"{folder / 'config.json'}: attention_bias is " in refused


#: By name: the run whose last checkpoint becomes a file, changes to its config.json, the file's format, the kind of its
#: tokenizer, the data and its sequences.
FILES: dict[str, tuple[str, dict[str, object], str, str, str, int]] = {
    "a Mixtral in f16": ("small", {}, "f16", "sentencepiece", "words.tokens", 16),
    "a Llama 3 in bf16": (
        "dense",
        {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                          "original_max_position_embeddings": 8192}, "nncuda": {}},
        "bf16",
        "none",
        "wide.tokens",
        24,
    ),
    "with Qwen's tokenizer, in f32": ("small", {}, "f32", "qwen2", "words.tokens", 16),
}  # fmt: skip


def file_of(workshop: Workshop, case: str) -> Path:
    of, changes, format, tokenizer, _, _ = FILES[case]
    folder = workshop.folder / "files" / case
    path = folder.with_suffix(".gguf")

    def make() -> None:
        shutil.copytree(list_checkpoints(origin(workshop, of) / "checkpoints")[-1], folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        if tokenizer == "qwen2":
            for name in ("tokenizer.model", "tokenizer_config.json"):
                (folder / name).unlink()
            byte_level_folder(folder, tokenizer, add_bos_token=True, chat_template="{{ messages }}")
        with Context() as ctx:
            quantize_model(StoredModel.open(folder), path, format, ctx)
            if format == "f16":
                quantize_model(StoredModel.open(folder), path.with_suffix(".q8_0"), "q8_0", ctx)

    workshop.once(f"file-{case}", make)
    return path


def begun_file(workshop: Workshop, language: str, case: str, threads: int = 1) -> Path:
    _, _, _, _, data, length = FILES[case]
    path, run = file_of(workshop, case), workshop.folder / "runs" / f"file-{language}-{case}"
    line = ["--from", path, "--data", workshop.folder / data, *USUAL, "--steps", 2, "--sequence-length", length]
    workshop.once(run.name, lambda: find(language).run("train", run, *line, "--threads", threads))
    return run


@pytest.mark.case("training that begins with a GGUF file in f32, f16 or bf16")
@pytest.mark.parametrize("case", FILES)
def test_files(workshop: Workshop, language: languages.Language, case: str) -> None:
    """The tokenizer comes along, as the files of a folder: the same ones."""
    expected, run = begun_file(workshop, "python", case, 2), begun_file(workshop, language.name, case)
    assert not (difference := differences.of_runs(expected, run)), difference
    records = [json.loads((one / "run.json").read_text())["from"] for one in (expected, run)]
    assert records[0] == records[1] and records[0]["folder"].endswith(".gguf")
    last = list_checkpoints(run / "checkpoints")[-1]
    kept = {"sentencepiece": "tokenizer.model", "qwen2": "tokenizer.json"}.get(FILES[case][3])
    assert [name for name in ("tokenizer.model", "tokenizer.json") if (last / name).exists()] == [kept][
        : kept is not None
    ]


MISTRAL = [*USUAL, "--steps", 2]


def mistral(workshop: Workshop) -> Path:
    """In bf16, with a window that is narrower than its context."""
    folder = workshop.folder / "files" / "mistral"

    def make() -> None:
        source = list_checkpoints(origin(workshop, "dense") / "checkpoints")[-1]
        folder.mkdir(parents=True)
        stored = SafetensorsFile(source / "model.safetensors")
        write_safetensors(
            folder / "model.safetensors", {name: one.astype(ml_dtypes.bfloat16) for name, one in stored.items()}
        )
        config = json.loads((source / "config.json").read_text())
        for name in ("nncuda", "attention_bias", "mlp_bias"):
            del config[name]
        (folder / "config.json").write_text(json.dumps(config | {"model_type": "mistral", "sliding_window": 20}))

    workshop.once("mistral", make)
    return folder


def begun_mistral(workshop: Workshop, language: str) -> Path:
    run = workshop.folder / "runs" / f"mistral-{language}"
    line = ["--from", mistral(workshop), "--data", workshop.folder / "wide.tokens", *MISTRAL, "--sequence-length", 20]
    workshop.once(run.name, lambda: find(language).run("train", run, *line))
    return run


@pytest.mark.case("training that begins with a Mistral of Hugging Face")
def test_published_mistral(workshop: Workshop, language: languages.Language) -> None:
    """With sequences that fit into its window, which its checkpoints have as their context."""
    expected, run = (begun_mistral(workshop, name) for name in ("python", language.name))
    assert not (difference := differences.of_runs(expected, run)), difference
    saved = json.loads((list_checkpoints(run / "checkpoints")[-1] / "config.json").read_text())
    assert (saved["model_type"], saved["max_position_embeddings"]) == ("llama", 20)


@pytest.mark.case("files that no run begins with, and sequences beyond a window")
@pytest.mark.parametrize("name", languages.NAMES[1:])
def test_refused_files(workshop: Workshop, name: str, tmp_path: Path) -> None:
    """Python's are in tests/python/test_begun_from_files.py."""
    folder, blocks = mistral(workshop), file_of(workshop, "a Mixtral in f16").with_suffix(".q8_0")
    line = ["--data", workshop.folder / "wide.tokens", *MISTRAL, "--sequence-length", 21]
    for given, words in (
        (["--from", folder], f"sequence_length is 21, but in the model of {folder} a token sees 20 (sliding_window): "),
        (["--from", folder, "--lora-rank", 2], "a token sees 20 (sliding_window): give at most that"),
        (["--from", blocks], "is in q8_0; all weights are trained of files in f32, f16 or bf16: give one of these, or"),
        (["--from", blocks.with_suffix(".gguf"), "--with-optimizer"], "has no optimizer's state to go on with"),
    ):
        assert words in said(find(name).run("train", tmp_path / "no", *line, *given, code=WRONG_FILE))
    assert not (tmp_path / "no").exists()


@pytest.mark.case("training that begins with a BitNet of Hugging Face, in bf16")
def test_published_bitnet(workshop: Workshop, language: languages.Language, tmp_path: Path) -> None:
    """Master weights in bf16, with what transformers leaves out; what is ternary already, and another precision, are
    refused, and nothing is written."""
    source, folder = list_checkpoints(workshop.reference("ternary") / "checkpoints")[-1], tmp_path / "folder"
    folder.mkdir()
    stored = SafetensorsFile(source / "model.safetensors")
    write_safetensors(
        folder / "model.safetensors", {name: one.astype(ml_dtypes.bfloat16) for name, one in stored.items()}
    )
    config = json.loads((source / "config.json").read_text())
    for name in ("nncuda", "attention_bias", "hidden_act", "initializer_range"):
        del config[name]
    (folder / "config.json").write_text(json.dumps(config))
    runs = []
    for number, name in enumerate(("python", language.name)):
        runs.append(tmp_path / f"{number}")
        flags = [*USUAL, "--sequence-length", 24, "--steps", 3, "--data", workshop.folder / "wide.tokens"]
        find(name).run("train", runs[-1], "--from", folder, *flags)
    assert not (difference := differences.of_runs(*runs)), difference
    saved = json.loads((list_checkpoints(runs[1] / "checkpoints")[-1] / "config.json").read_text())
    assert (saved["model_type"], saved["hidden_act"]) == ("bitnet", "relu2")
    assert saved["quantization_config"] == config["quantization_config"]
    line = ["--from", folder, "--data", workshop.folder / "wide.tokens"]
    refused = said(language.run("train", tmp_path / "no", *line, "--precision", "bf16", code=WRONG_FILE))
    assert "precision is bf16; a model with ternary weights, which come of f32, trains in f32" in refused
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "bitnet"}}))
    refused = said(language.run("train", tmp_path / "no", *line, code=WRONG_FILE))
    assert (
        f"{folder / 'config.json'}: quantization_config says that the weights are ternary already; training " in refused
    )
    assert not (tmp_path / "no").exists()


CUT_OFF = ["--sequence-length", 16, "--batch-size", 2, "--steps", 2]


@pytest.mark.case("what no run begins from")
@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--hidden-size", 64], WRONG_FILE, "hidden_size is 64, but the model of {folder} has 32: leave it out"),
        (["--rope-base", 7], WRONG_FILE, "rope_base is 7.0, but the model of {folder} has 10000.0: leave it out"),
        (["--vocab-size", 8], WRONG_FILE, "vocab_size is 8, but the model of {folder} has 320: leave it out"),
        (["--preset", "demo"], USAGE, "--from gives the sizes of the model; leave out --preset"),
        (["--tokenizer", "{tokenizer}"], USAGE, "comes along; leave out --tokenizer"),
        (["--with-optimizer", "--steps", 10], WRONG_FILE, "steps is 10, but the optimizer of {folder} has done 10"),
        (
            ["--with-optimizer", "--steps", 12, "--moments", "bf16"],
            WRONG_FILE,
            "moments is bf16, but the optimizer of {folder} has f32: leave it out",
        ),
        (
            ["--with-optimizer", "--steps", 12, "--precision", "f16"],
            WRONG_FILE,
            "precision is f16, but the optimizer of {folder} has f32: leave it out",
        ),
        (["--resume"], USAGE, "leave out --from"),
        (["--sequence-length", 33], WRONG_FILE, "sequence_length is 33; this model's context is 32"),
    ],
)
def test_contradicted(
    workshop: Workshop, language: languages.Language, flags: list[object], code: int, words: str, tmp_path: Path
) -> None:
    folder = list_checkpoints(origin(workshop, "small") / "checkpoints")[-1]
    places = {"folder": folder, "tokenizer": workshop.folder / "tokenizer.model"}
    given = [flag.format(**places) if isinstance(flag, str) else flag for flag in flags]
    line = ["--from", folder, "--data", workshop.folder / "words.tokens", *CUT_OFF, *given]
    if "--resume" in flags:
        line = ["--from", folder, "--resume"]
    assert words.format(**places) in said(language.run("train", tmp_path / "run", *line, code=code))
    assert not (tmp_path / "run").exists()


@pytest.mark.case("what no run begins from, in a file's line")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[model]\nnum_layers = 3\n", "line 2: num_layers is 3, but the model of "),
        ('[model]\npreset = "demo"\n', "line 2: preset is 'demo', but --from gives the sizes of the model"),
        ('[train]\nmoments = "f8"\n', "line 2: moments is f8, but the optimizer of "),
    ],
)
def test_contradicted_by_a_file(
    workshop: Workshop, language: languages.Language, text: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "options.toml").write_text(text)
    line = ["--from", origin(workshop, "small"), "--with-optimizer", "--config", tmp_path / "options.toml"]
    line += ["--data", workshop.folder / "words.tokens", *CUT_OFF, "--steps", STEPS]
    found = said(language.run("train", tmp_path / "run", *line, code=WRONG_FILE))
    assert words in found and f"{tmp_path / 'options.toml'}: " in found


@pytest.mark.case("weights that no run begins with")
@pytest.mark.parametrize("wrong", ["missing", "too many", "shape", "nan", "infinite", "whole numbers", "moment", "ids"])
def test_hostile(workshop: Workshop, language: languages.Language, wrong: str, tmp_path: Path) -> None:
    """One sentence, with the folder or file, and nothing is written."""
    folder = tmp_path / "folder"
    shutil.copytree(list_checkpoints(origin(workshop, "small") / "checkpoints")[-1], folder)
    file = "optimizer.safetensors" if wrong == "moment" else "model.safetensors"
    tensors = {name: array.copy() for name, array in SafetensorsFile(folder / file).items()}
    name = "model.layers.1.self_attn.o_proj.weight"
    words = {
        "missing": f"{folder}: tensors missing: {name}",
        "too many": f"{folder}: tensors not part of this model: more",
        "shape": f"{folder}: tensor {name} has shape [2, 32]; config.json makes it [32, 32]",
        "nan": f"{folder}: tensor {name} is not finite, first at [3, 7] (nan)",
        "infinite": f"{folder}: tensor {name} is not finite, first at [3, 7] (-inf)",
        "whole numbers": f"tensor {name} has dtype int32; weights are floating-point numbers",
        "moment": f"{folder / file}: tensor second_moment.{name} is not finite, first at [0, 0] (inf)",
        "ids": f"{folder / 'config.json'}: eos_token_id is -7; it must be a whole number, from 0 to",
    }[wrong]
    if wrong == "missing":
        del tensors[name]
    elif wrong == "too many":
        tensors["more"] = np.zeros(3, np.float32)
    elif wrong == "shape":
        tensors[name] = tensors[name][:2]
    elif wrong in ("nan", "infinite"):
        tensors[name][3, 7] = np.nan if wrong == "nan" else -np.inf
        tensors[name][5, 1] = np.inf
    elif wrong == "whole numbers":
        tensors[name] = np.zeros((32, 32), np.int32)
    elif wrong == "moment":
        tensors[f"second_moment.{name}"][0, 0] = np.inf
    else:
        config = json.loads((folder / "config.json").read_text()) | {"eos_token_id": -7}
        (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / file, tensors)
    line = ["--from", folder, "--with-optimizer", "--data", workshop.folder / "words.tokens", *CUT_OFF]
    found = said(language.run("train", tmp_path / "run", *line, "--steps", 12, code=WRONG_FILE))
    assert words in found and found.count("\n") == 1
    assert not (tmp_path / "run").exists()
