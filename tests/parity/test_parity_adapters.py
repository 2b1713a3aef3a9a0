"""Runs that train an adapter beside stored weights: the same bits in every language, taken up by another; refusals.
What `merge` and `adapter` make of adapters: the same bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import differences
import languages
import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from conftest import find
from family_models import FAMILIES
from runs import Workshop
from test_parity_runs import USAGE, WRONG_FILE, said

from nncuda import Context
from nncuda.bench.random_model import SHAPES, write_folder
from nncuda.cli import main
from nncuda.convert.model import convert_model
from nncuda.convert.quantize import quantize_model
from nncuda.formats import write_shard
from nncuda.models import MoEConfig, MoETransformer, StoredModel
from nncuda.models.adapter import save_adapter

CONFIG = {
    "vocab_size": 48, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16,
    "num_experts": 0, "experts_per_token": 0, "ffn_size": 64, "context": 32, "extended_context": 32, "init_std": 0.2,
}  # fmt: skip
#: The parts of a model, and the format of its GGUF file, or the form that a BitNet is converted to; a folder without.
BASES: dict[str, tuple[dict[str, object], str]] = {
    "Llama in q8_0": ({}, "q8_0"),
    "Qwen2": ({"qkv_bias": True, "tie_embeddings": True}, ""),
    "BitNet, packed": ({"ternary": True, "squared_relu": True, "tie_embeddings": True}, "hf-packed"),
    "BitNet in i2_s, with SiLU": ({"ternary": True, "hidden_size": 128, "num_heads": 8, "ffn_size": 128}, "i2_s"),
}
FLAGS = [
    "--steps", 4, "--save-every", 2, "--keep-checkpoints", 9, "--batch-size", 4, "--micro-batch-size", 2,
    "--warmup-steps", 1, "--seed", 8, "--sequence-length", 16, "--hash-every", 1, "--eval-every", 2,
    "--lora-rank", 3, "--lora-alpha", 5,
]  # fmt: skip
#: More flags, by the base.
MORE: dict[str, list[object]] = {
    "Qwen2": ["--lora-targets", "q_proj,v_proj,o_proj", "--activation-checkpointing", 1, "--document-mask", 3,
              "--moments", "f8"],
    "BitNet in i2_s, with SiLU": ["--lora-targets", "q_proj,v_proj,up_proj", "--recompute-experts"],
}  # fmt: skip


def base(workshop: Workshop, name: str) -> Path:
    changes, format = BASES[name]
    folder = workshop.folder / "adapters" / name
    path = folder / "model" if not format else folder / format if format == "hf-packed" else folder / f"{format}.gguf"

    def make() -> None:
        folder.mkdir(parents=True)
        with Context() as ctx:
            MoETransformer(ctx, MoEConfig(**{**CONFIG, **changes}), seed=3).save(folder / "model")  # type: ignore[arg-type]
            if "ternary" in changes:
                convert_model(StoredModel.open(folder / "model"), path, format, ctx)
            elif format:
                quantize_model(StoredModel.open(folder / "model"), path, format, ctx)

    workshop.once(f"base-{name}", make)
    return path


def data(workshop: Workshop) -> Path:
    path = workshop.folder / "adapters.tokens"
    workshop.once(path.name, lambda: write_shard(path, [np.random.default_rng(5).integers(0, 48, 400)], 48))
    return path


def trained(workshop: Workshop, language: str, name: str, threads: int = 1) -> Path:
    run = workshop.folder / "runs" / f"adapter-{language}-{name}"
    line = ["--from", base(workshop, name), "--data", data(workshop), "--held-out", data(workshop), *FLAGS]
    line += [*MORE.get(name, []), "--threads", threads]
    workshop.once(run.name, lambda: find(language).run("train", run, *line))
    return run


@pytest.mark.case("training of an adapter beside stored weights")
@pytest.mark.parametrize("name", BASES)
def test_adapters(workshop: Workshop, language: languages.Language, name: str) -> None:
    """Every factor and moment, losses and hashes; and the adapter's own file to the byte, by any number of threads."""
    expected, run = trained(workshop, "python", name, 2), trained(workshop, language.name, name)
    assert not (difference := differences.of_runs(expected, run)), difference
    last = "checkpoints/step-00000004"
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        assert (expected / last / file).read_bytes() == (run / last / file).read_bytes(), file
    records = [json.loads((one / "run.json").read_text())["from"] for one in (expected, run)]
    assert records[0] == records[1] and len(records[0]["weights_sha256"]) == 64


@pytest.mark.case("such a run, killed and taken up by the next language, and its adapter beside the model")
@pytest.mark.parametrize("name", ["Llama in q8_0", "BitNet, packed"])
def test_taken_up(workshop: Workshop, language: languages.Language, name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained(workshop, language.name, name), run)
    shutil.rmtree(run / "checkpoints" / "step-00000004")
    following = languages.NAMES[(languages.NAMES.index(language.name) + 1) % len(languages.NAMES)]
    find(following).run("train", run, "--resume")
    assert not (difference := differences.of_runs(trained(workshop, "python", name, 2), run)), difference
    shown = workshop.folder / "adapters" / f"shown {name}.json"
    workshop.once(shown.name, lambda: shown.write_text(json.dumps(told(workshop, "python", name))))
    expected = json.loads(shown.read_text())
    found = expected if language.name == "python" else told(workshop, language.name, name)
    assert not (difference := differences.of_values("told", expected, found)), difference


def told(workshop: Workshop, language: str, name: str) -> list[object]:
    """What a language generates with its adapter, and says of it."""
    one, run = find(language), trained(workshop, language, name)
    prompt = ["--ids", "1 2 3", "--max-tokens", 6, "--temperature", 0, "--adapter", run]
    kind = json.loads(one.run("inspect", run, "--json").stdout)
    assert kind.pop("path").startswith(str(run))
    return [one.run("engine", base(workshop, name), *prompt).stdout.split(), kind]


@pytest.mark.case("refusals of adapters that are trained")
@pytest.mark.parametrize("name", languages.NAMES[1:])
def test_refused(workshop: Workshop, name: str, tmp_path: Path) -> None:
    """Python's are in tests/python/test_low_rank.py."""
    language, folder, run = find(name), base(workshop, "Qwen2"), tmp_path / "run"
    beside = ["--from", folder, "--data", data(workshop), "--sequence-length", 16]
    adapter = trained(workshop, "python", "Qwen2", 2)
    for line, code, words in (
        (["--data", data(workshop), "--lora-rank", 2], USAGE, "--lora-rank needs --from, the model beside which"),
        ([*beside, "--lora-rank", 2, "--lora-targets", "norm"], WRONG_FILE, "lora_targets is 'norm'; it must be all"),
        ([*beside, "--lora-rank", 2, "--precision", "bf16"], WRONG_FILE, "precision is bf16, but lora_rank is 2; ad"),
        ([*beside, "--lora-rank", 2, "--num-layers", 3], WRONG_FILE, "num_layers is 3, but the model of"),
        (["--from", adapter, *beside[2:]], WRONG_FILE, "holds an adapter alone; give the model that it is of"),
    ):  # fmt: skip
        done = language.run("train", run, *line, code=None)
        assert words in said(done), said(done)
        assert done.returncode == code, (line, done.returncode)
    assert not run.exists()
    moved = tmp_path / "moved"
    shutil.copytree(adapter, moved)
    state = moved / "checkpoints" / "step-00000004" / "training.json"
    whole = json.loads(state.read_text())
    for told, words in (
        ({"folder": str(tmp_path / "gone"), "weights_sha256": "0"}, "gone', which is not there: put it back"),
        ({"folder": str(folder), "weights_sha256": "0" * 64}, "has other weights than when this adapter was begun"),
    ):  # fmt: skip
        state.write_text(json.dumps({**whole, "base": told}))
        done = language.run("train", moved, "--resume", code=None)
        assert words in said(done) and done.returncode == WRONG_FILE, said(done)


#: The dtypes of small models with tokenizers, and of an adapter of each.
SMALL: dict[str, Any] = {"f16": ml_dtypes.bfloat16, "bf16": np.float16}


def small(workshop: Workshop, dtype: str) -> Path:
    """A folder with a Llama, `model`, whose GGUF files have another order of rows, and an adapter of it, `peft`."""
    folder = workshop.folder / "adapters" / f"small {dtype}"

    def make() -> None:
        write_folder(folder / "model", SHAPES["tiny"], seed=3, dtype=dtype)
        shapes, random = StoredModel.open(folder / "model").config.shapes(), np.random.default_rng(7)
        factors = {
            name: tuple((0.3 * random.standard_normal(size)).astype(SMALL[dtype]) for size in ((3, columns), (rows, 3)))
            for name, rows, columns in (
                (f"model.layers.0.{module}.weight", *shapes[f"model.layers.0.{module}.weight"])
                for module in ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")
            )
        }
        save_adapter(folder / "peft", factors, alpha=2.5)  # type: ignore[arg-type]

    workshop.once(folder.name, make)
    return folder


def written(path: Path) -> dict[str, bytes]:
    """A file, or the files of a folder, by name."""
    return {entry.name: entry.read_bytes() for entry in ([path] if path.is_file() else path.iterdir())}


def pythons(line: list[object]) -> Any:
    return CliRunner().invoke(main, list(map(str, line)))


@pytest.mark.case("an adapter added to its model, and in its other form, to the byte")
@pytest.mark.parametrize("name", languages.NAMES[1:])
def test_other_forms(workshop: Workshop, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    f16, bf16, run = small(workshop, "f16"), small(workshop, "bf16"), trained(workshop, "python", "Qwen2", 2)
    bitnet = "BitNet in i2_s, with SiLU"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "é").symlink_to(f16)
    ours, theirs = Path("ours"), Path("theirs")
    ours.mkdir()
    theirs.mkdir()
    value = "model.layers.0.self_attn.v_proj.weight"
    rows, columns = StoredModel.open(f16 / "model").config.shapes()[value]
    save_adapter("faint", {value: (np.ones((1, columns), np.float32), np.ones((rows, 1), np.float32))}, alpha=2e-5)
    for command, model, adapter, out in (
        ("merge", f16 / "model", f16 / "peft", "sum"),
        ("merge", bf16 / "model", bf16 / "peft", "narrower"),
        ("merge", base(workshop, "Qwen2"), run, "of a run"),
        ("adapter", f16 / "model", f16 / "peft", "a.gguf"),
        ("adapter", "./theirs/../é/.//model/", ours / "a.gguf", "back"),
        ("adapter", "é/model", "faint", "fainter"),
        ("adapter", base(workshop, "Qwen2"), run, "run"),
        ("adapter", base(workshop, bitnet), trained(workshop, "python", bitnet, 2), "ternary.gguf"),
    ):  # fmt: skip
        threads = ["--threads", 2] if command == "merge" else []
        expected = pythons([command, model, adapter, ours / out])
        assert expected.exit_code == 0, expected.output
        found = find(name).run(command, model, adapter, theirs / out, *threads)
        assert found.stdout.replace("theirs/", "ours/") == expected.output
        assert written(ours / out) == written(theirs / out), (command, out)
    config = json.loads((theirs / "back" / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["lora_alpha"]) == ("theirs/../é/model", 2.5)
    assert written(theirs / "sum").keys() > {"config.json", "tokenizer.model", "model.safetensors"}


@pytest.mark.case("refusals of adapters that are added, or written in another form")
@pytest.mark.parametrize("name", languages.NAMES[1:])
def test_forms_that_are_refused(workshop: Workshop, name: str, tmp_path: Path) -> None:
    """With Python's sentences, and nothing written."""
    model, peft = (small(workshop, "f16") / part for part in ("model", "peft"))
    out, file, fused = tmp_path / "out", tmp_path / "out.gguf", workshop.folder / "adapters" / "fused"
    packed, blocks = (
        [base(workshop, of), trained(workshop, "python", of, 2)] for of in ("BitNet, packed", "Llama in q8_0")
    )
    workshop.once(fused.name, lambda: write_folder(fused, FAMILIES["phi3"], seed=2, dtype="f32"))
    query = "model.layers.0.self_attn.q_proj.weight"
    for folder, of, alpha, rank in (
        ("of fused", fused, 1.0, 2), ("large", model, 1e7, 2), ("nothing", model, 0.0, 2), ("beyond", model, 3e38, 9),
    ):  # fmt: skip
        rows, columns = StoredModel.open(of).config.shapes()[query]
        factors = np.ones((rank, columns), np.float32), np.ones((rows, rank), np.float32)
        save_adapter(tmp_path / folder, {query: factors}, alpha=alpha)
    options = tmp_path / "beyond" / "adapter_config.json"
    options.write_text(json.dumps({**json.loads(options.read_text()), "use_rslora": True}))
    before = sorted(tmp_path.iterdir())
    for line, code, words in (
        (["merge", model, peft, peft], USAGE, "exists; a folder is never replaced"),
        (["adapter", model, peft, peft], USAGE, "exists; it is never replaced"),
        (["merge", model, peft, out / "deep"], USAGE, f"would be in {out}, which is no folder; make it first"),
        (["merge", *packed, out], WRONG_FILE, "has ternary weights, and with an adapter added they are not ternary"),
        (["merge", *blocks, out], WRONG_FILE, "is a GGUF file; an adapter is merged into a Hugging Face folder"),
        (["merge", fused, tmp_path / "of fused", out], WRONG_FILE, f"has {query} in one tensor with others"),
        (["merge", model, tmp_path / "large", out], WRONG_FILE, f"tensor {query} and what the adapter adds"),
        (["merge", fused, peft, out], WRONG_FILE, "; with r 3 the model makes it ["),
        (["adapter", model, tmp_path / "nothing", file], WRONG_FILE, "the adapter's scale is 0; a GGUF file"),
        (["adapter", model, tmp_path / "beyond", file], WRONG_FILE, "the adapter's scale is 1e+38; a GGUF"),
        (["adapter", model, tmp_path / "beyond", out], WRONG_FILE, "the adapter's scale * rank is too large for f32"),
    ):  # fmt: skip
        expected, done = pythons(line), find(name).run(*line, code=code)
        assert words in said(done) and expected.exit_code == code, (line, said(done))
        assert said(done).strip() == expected.output[expected.output.index("Error: ") :].strip()
        assert sorted(tmp_path.iterdir()) == before, line
