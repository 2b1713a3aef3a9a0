"""Families of models: the same logits, tokens, descriptions and refused options in every language."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import engine_scripts
import languages
import pytest
from conftest import find
from family_models import FAMILIES, IN_NO_GGUF, pack_experts
from runs import Workshop

from nncuda import Context
from nncuda.bench.random_model import write_folder
from nncuda.cli.inspect import describe
from nncuda.convert.quantize import quantize_model
from nncuda.formats import FormatError
from nncuda.models.families import FAMILIES as ALL
from nncuda.models.stored import StoredModel

FORMS = ("f32", "q8_0.gguf")


def model(workshop: Workshop, case: str, form: str) -> Path:
    """A folder in f32, or what is made of it: a GGUF file, or the form in which gpt-oss' experts are published."""
    folder = workshop.folder / "families" / case
    workshop.once(f"family-{case}", lambda: write_folder(folder, FAMILIES[case], dtype="f32"))
    if form == "f32":
        return folder
    if form == "mxfp4":
        packed = folder.with_name(f"{case}-mxfp4")
        workshop.once(f"family-{case}-mxfp4", lambda: pack_experts(folder, packed))
        return packed
    path = folder.with_suffix(".gguf")

    def make() -> None:
        with Context("cpu", threads=1) as ctx:
            quantize_model(StoredModel.open(folder), path, "q8_0", ctx)

    workshop.once(f"family-{case}-gguf", make)
    return path


def script(path: Path) -> dict[str, Any]:
    ids = random.Random(7).choices(range(600), k=200)
    requests = [
        {"prompt": ids[:9], "max_new_tokens": 12},
        {"prompt": ids, "max_new_tokens": 8, "temperature": 0.9, "seed": 3, "joins": 2},
    ]
    return {"model": str(path), "logits": ids[:70], "requests": requests}


def files(case: str) -> list[str]:
    forms = [form for form in FORMS if form == "f32" or case not in IN_NO_GGUF]
    if case == "gpt_oss_unbiased":  # what it has besides is in config.json
        return forms[:1]
    return [*forms, "mxfp4"] if case == "gpt_oss" else forms


@pytest.mark.case("families of models: logits and tokens of each")
@pytest.mark.parametrize("name", languages.ENGINES)
@pytest.mark.parametrize(("case", "form"), [(case, form) for case in FAMILIES for form in files(case)])
def test_logits(workshop: Workshop, case: str, form: str, name: str) -> None:
    path = model(workshop, case, form)
    asked = script(path)
    wanted = engine_scripts.run(asked, threads=2)
    found = json.loads(find(name).run("bench", "engine", "--threads", 1, stdin=json.dumps(asked)).stdout)
    assert found == wanted
    # And what stands in the files is told alike.
    described = [json.loads(find(one).run("inspect", path, "--json").stdout) for one in ("python", name)]
    assert described[0] == described[1]


@pytest.mark.case("families of models: scalings of the rotary embedding")
@pytest.mark.parametrize("name", languages.ENGINES)
def test_scalings(workshop: Workshop, name: str) -> None:
    """What frequencies are divided by is computed by each language: the same f32 numbers."""
    draw = random.Random(11)
    for case, kind in [("mistral_yarn", "yarn")] * 30 + [("phi3_long", "longrope")] * 10:
        source = model(workshop, case, "f32")
        folder = workshop.folder / "scaled" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file in ("model.safetensors", "tokenizer.model"):
            (folder / file).unlink(missing_ok=True)
            (folder / file).symlink_to(source / file)
        config = json.loads((source / "config.json").read_text())
        config["rope_theta"] = draw.choice([1e4, 1e6, draw.uniform(2, 1e7)])
        rope: dict[str, Any] = {"rope_type": kind}
        if kind == "yarn":
            slow = draw.uniform(0.1, 4)
            rope |= {"factor": draw.uniform(1, 64), "beta_slow": slow, "beta_fast": slow + draw.uniform(0, 60)}
            rope |= {"original_max_position_embeddings": draw.randrange(16, 9000), "truncate": draw.random() < 0.5}
        else:
            rope |= {key: [draw.uniform(1, 60) for _ in range(6)] for key in ("short_factor", "long_factor")}
            config["original_max_position_embeddings"] = draw.randrange(16, 512)
        config["rope_scaling"] = rope
        (folder / "config.json").write_text(json.dumps(config))
        found = json.loads(find(name).run("inspect", folder, "--json").stdout)
        wanted = json.loads(find("python").run("inspect", folder, "--json").stdout)
        assert found["model"]["rope"] == wanted["model"]["rope"]


_SLIDING, _FULL = "sliding_attention", "full_attention"
#: Changes of a Gemma's config.json, some of which are refused.
OF_GEMMA: tuple[dict[str, Any], ...] = (
    *(
        {"layer_types": [*kinds]}
        for kinds in ([_SLIDING] * 4, [_FULL] * 4, [_SLIDING, _FULL] * 2, [_FULL, _SLIDING] * 2)
    ),
    *({"layer_types": value} for value in ([_SLIDING, _SLIDING, _SLIDING, _FULL], [_FULL], [1] * 4, [], "x", None)),
    *({"sliding_window_pattern": value} for value in (0, 1, 6, None, True, 2.0)),
    *({"sliding_window": value} for value in (None, 0, 1, 4096, True, 16.0, 1 << 40, "x")),
    *({"attn_logit_softcapping": value} for value in (None, 0, 5, 2.5, 1e7, -1, True, "x")),
    *({"final_logit_softcapping": value} for value in (None, 0.0, 20)),
    *({"query_pre_attn_scalar": value} for value in (None, 0, 17.5, 1e-300, "x")),
    *({"hidden_activation": value} for value in (None, "silu", 1)),
    *({"hidden_act": value} for value in (None, "silu")),
    *({"rope_local_base_freq": value} for value in (None, 0, 0.5, 3e4, "x")),
    *({"rope_parameters": value} for value in (None, [], "x", {}, {"rope_theta": 1e4}, {_FULL: 1}, {_FULL: {"a": 1}})),
    *({"rope_parameters": {_SLIDING: value}} for value in (None, {}, {"rope_theta": 7.0}, {"factor": 2.0}, [1])),
    {"rope_parameters": {_FULL: {"rope_theta": 3e4}, _SLIDING: {"rope_type": "default", "rope_theta": None}}},
    {"rope_parameters": {_FULL: {"rope_type": "linear", "factor": 2.0}}, "rope_scaling": {"factor": 3.0}},
    {"rope_parameters": {_FULL: {"rope_theta": 3e4}}, "rope_scaling": "x"},
    {"tie_word_embeddings": None},
    {"cache_implementation": "hybrid"},
)


@pytest.mark.case("families of models: options of Gemma")
@pytest.mark.parametrize("name", languages.ENGINES)
@pytest.mark.parametrize("case", ["gemma2", "gemma3"])
def test_options_of_gemma(workshop: Workshop, case: str, name: str) -> None:
    """Each is read alike, or refused by all."""
    source = model(workshop, case, "f32")
    config = json.loads((source / "config.json").read_text())
    folder = workshop.folder / "options" / f"{case}-{name}"
    folder.mkdir(parents=True)
    for file in ("model.safetensors", "tokenizer.model"):
        (folder / file).symlink_to(source / file)
    for change in OF_GEMMA:
        (folder / "config.json").write_text(json.dumps(config | change))
        try:
            wanted = json.loads(json.dumps(StoredModel.open(folder).config.to_dict()))
        except FormatError:
            wanted = None
        result = find(name).run("inspect", folder, "--json", code=None)
        assert (result.returncode != 0) == (wanted is None), (change, result.stderr)
        if wanted is not None:
            assert json.loads(result.stdout)["model"] == wanted, change


#: Values that an option may be set to; each language must take or refuse the same.
VALUES = (True, False, None, 0, 1, 0.5, "x", [], [1], {"a": 1})


def opens(folder: Path) -> bool:
    """Whether Python's `inspect` shows a folder."""
    try:
        describe(folder)
    except FormatError:
        return False
    return True


@pytest.mark.case("families of models: options that are refused")
@pytest.mark.parametrize("name", languages.ENGINES)
@pytest.mark.parametrize("family", sorted(set(ALL) - {"llama", "mixtral", "bitnet"}))
def test_refusals(workshop: Workshop, family: str, name: str) -> None:
    """Options of this family and of others, and one that nobody has."""
    case = next(case for case, shape in FAMILIES.items() if shape.family == family)
    source = model(workshop, case, "f32")
    config = json.loads((source / "config.json").read_text())
    folder = workshop.folder / "refused" / f"{family}-{name}"
    folder.mkdir(parents=True)
    for file in ("model.safetensors", "tokenizer.model"):
        (folder / file).symlink_to(source / file)
    draw = random.Random(int.from_bytes(hashlib.sha256(family.encode()).digest()[:4], "little"))
    names = {*config, "clip_qkv", "mlp_bias", "embedding_multiplier", "attention_bias", "decoder_sparse_step", "alibi"}
    some = draw.sample(sorted(names - {"architectures", "torch_dtype"}), 12)
    rope = {"rope_theta": 2e4}
    for change in (
        *({key: draw.choice(VALUES)} for key in some),
        {"num_local_experts": config.get("num_experts", 8)},
        {"attention_multiplier": 0.0},
        {"rope_parameters": rope, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"rope_parameters": rope, "rope_scaling": 3},
    ):
        (folder / "config.json").write_text(json.dumps(config | change))
        found = find(name).run("inspect", folder, "--json", code=None).returncode == 0
        assert found == opens(folder), (change, {key: config.get(key) for key in change}, found)
