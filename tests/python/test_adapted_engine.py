"""Adapters on the engine: against the reference of the merged weights, and with the same bits in any company."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from family_models import FAMILIES
from safetensors.numpy import load_file
from small_models import ALPHA, BITNET, RANK, llama_config, numbers, stored_model, write_adapter

from nncuda import Context
from nncuda.bench.random_model import SHAPES, Shape, write_folder
from nncuda.cli import main
from nncuda.convert.quantize import quantize_model
from nncuda.infer import LanguageModel, Sampling, batch
from nncuda.infer.dump import record
from nncuda.infer.engine import Engine
from nncuda.infer.scheduler import Request, Scheduler
from nncuda.models.adapter import Adapter
from nncuda.models.adapter_gguf import write_adapter_gguf
from nncuda.models.stored import StoredModel
from nncuda.reference import bitnet
from nncuda.reference import llama as reference
from nncuda.reference.arithmetic import Outputs

IDS = np.random.default_rng(3).integers(0, 600, 24).astype(np.int32)
ALL = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
       "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")  # fmt: skip
#: Models, and which of their matrices are adapted: all, some of those of a fused call, attention beside experts.
CASES: dict[str, tuple[Shape, tuple[str, ...]]] = {
    "llama": (SHAPES["tiny"], ALL),
    "llama_v_down": (SHAPES["tiny"], ("self_attn.v_proj", "mlp.down_proj")),
    "llama_gate": (SHAPES["tiny"], ("mlp.gate_proj",)),
    "qwen2": (FAMILIES["qwen2"], ALL),
    "qwen3": (FAMILIES["qwen3"], ALL),
    "granite": (FAMILIES["granite"], ALL),
    "olmoe": (FAMILIES["olmoe"], ALL[:4]),
    "phi3_partial": (FAMILIES["phi3_partial"], ALL),
}


@pytest.fixture(scope="module")
def ctx() -> Iterator[Context]:
    with Context(threads=1) as made:
        yield made


def made(place: Path, case: str) -> tuple[StoredModel, Adapter]:
    shape, targets = CASES[case]
    write_folder(place / "base", shape, seed=2, dtype="f32")
    model = StoredModel.open(place / "base")
    write_adapter(place / "adapter", model.config, targets)
    return model, Adapter.open(place / "adapter", model.config)


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_merged_weights(case: str, tmp_path: Path, ctx: Context) -> None:
    model, adapter = made(tmp_path, case)
    params = {name: tensor.f32().astype(np.float64) for name, tensor in model.tensors.items()}
    plain = reference.forward(params, model.config, IDS)
    for name, (a, b) in adapter.factors.items():
        params[name] = params[name] + ALPHA / RANK * (b.f32().astype(np.float64) @ a.f32().astype(np.float64))
    wanted = reference.forward(params, model.config, IDS)
    found = Engine(model, ctx, cache_format="f32", context=64, adapter=adapter).logits(IDS)
    assert np.abs(found - wanted).max() < 1e-4  # the bound that test_families has of these models without an adapter
    assert np.abs(plain - wanted).max() > 0.05


@pytest.mark.parametrize("case", ["llama", "granite"])
def test_rows_of_a_gguf_file_are_in_another_order(case: str, tmp_path: Path, ctx: Context) -> None:
    model, adapter = made(tmp_path, case)
    quantize_model(model, tmp_path / "base.gguf", "f32", ctx)
    other = StoredModel.open(tmp_path / "base.gguf")
    assert other.config.rope.layout == "interleaved"
    wanted = Engine(model, ctx, cache_format="f32", context=64, adapter=adapter).logits(IDS)
    adapted = Adapter.open(tmp_path / "adapter", other.config)
    found = Engine(other, ctx, cache_format="f32", context=64, adapter=adapted).logits(IDS)
    assert np.abs(found - wanted).max() < 1e-4


def test_an_adapter_in_a_gguf_file_has_the_bits_of_the_folder(
    several: tuple[StoredModel, dict[str, Adapter]], tmp_path: Path, ctx: Context
) -> None:
    stored, adapters = several
    folder = StoredModel.open(stored.path.parent / "base")
    for base in (stored, folder):
        write_adapter_gguf(tmp_path / "a.gguf", adapters["all"], base.config)
        files = {"file": Adapter.open(tmp_path / "a.gguf", base.config), "folder": adapters["all"]}
        engine = Engine(base, ctx, context=64, adapters=files)
        found = [engine.logits(IDS, adapter=name) for name in files]
        np.testing.assert_array_equal(*found)
        assert not np.array_equal(found[0], engine.logits(IDS))


@pytest.mark.parametrize("format_name", ["q8_0", "q4_0", "bf16"])
def test_a_sequence_has_its_bits_in_any_company(format_name: str, tmp_path: Path, ctx: Context) -> None:
    """Whatever pieces its prompt is cut into, and whoever is decoded beside it, over weights as they are stored."""
    model, _ = made(tmp_path, "llama")
    quantize_model(model, tmp_path / "base.gguf", format_name, ctx)
    stored = StoredModel.open(tmp_path / "base.gguf")
    adapter = Adapter.open(tmp_path / "adapter", stored.config)
    whole = Engine(stored, ctx, context=64, adapter=adapter).logits(IDS)
    pieces = Engine(stored, ctx, context=64, adapter=adapter, piece=5).logits(IDS)
    np.testing.assert_array_equal(whole, pieces)
    with LanguageModel(stored, ctx, context=64, adapter=adapter) as engine:
        prompts = [IDS[:7].tolist(), IDS[3:20].tolist(), IDS[:1].tolist()]

        def texts(some: list[list[int]]) -> list[list[tuple[int, float]]]:
            drawn: list[list[tuple[int, float]]] = [[] for _ in some]
            for event in engine.generate(some, 12, end_ids=(), logprobs=0):
                if event.token >= 0 and event.logprobs is not None:
                    drawn[event.prompt].append((event.token, event.logprobs.logprob))
            return drawn

        together = texts(prompts)
        assert all(len(drawn) == 12 for drawn in together)
        assert together == [texts([prompt])[0] for prompt in prompts]


#: Adapters by name: which matrices, seed, rank. The third adapts none that the second does.
SEVERAL = {
    "all": (ALL, 1, 3),
    "some": (("self_attn.v_proj", "mlp.down_proj"), 2, 8),
    "gate": (("mlp.gate_proj",), 3, 1),
}
TEXT = np.random.default_rng(5).integers(0, 600, 300).tolist()
#: Prompts that begin alike, beyond a page, and the adapters that they ask for.
ASKED: list[tuple[list[int], str | None]] = [
    (TEXT[:200], "all"), (TEXT[:200], None), (TEXT[:200], "some"), (TEXT[:150], "gate"), (TEXT[:170], "all"),
    (TEXT[:9], None), (TEXT[:180], None), (TEXT[:180], "some"), (TEXT[3:30], "all"),
]  # fmt: skip

Drawn = list[list[tuple[int, float]]]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory, ctx: Context) -> tuple[StoredModel, dict[str, Adapter]]:
    place = tmp_path_factory.mktemp("several")
    write_folder(place / "base", replace(SHAPES["tiny"], context=512), seed=2, dtype="f32")
    quantize_model(StoredModel.open(place / "base"), place / "base.gguf", "q8_0", ctx)
    model = StoredModel.open(place / "base.gguf")
    for name, (targets, seed, rank) in SEVERAL.items():
        write_adapter(place / name, model.config, targets, seed, rank)
    return model, {name: Adapter.open(place / name, model.config) for name in SEVERAL}


def drawn(model: LanguageModel, asked: list[tuple[list[int], str | None]]) -> Drawn:
    """Tokens and log-probabilities of prompts that run together."""
    found: Drawn = [[] for _ in asked]
    prompts, names = [prompt for prompt, _ in asked], [name for _, name in asked]
    sampling = [Sampling(temperature=1.0, seed=7)] * len(asked)
    for event in model.generate(prompts, 9, sampling, end_ids=range(40), logprobs=0, adapter=names):
        if event.logprobs is not None:
            found[event.prompt].append((event.token, event.logprobs.logprob))
    return found


@pytest.fixture(scope="module")
def alone(several: tuple[StoredModel, dict[str, Adapter]], ctx: Context) -> Drawn:
    """What each gives of a model that has its adapter, or none, for all prompts."""
    stored, adapters = several
    found = []
    for prompt, name in ASKED:
        with LanguageModel(stored, ctx, context=512, adapter=adapters.get(name or "")) as model:
            found += drawn(model, [(prompt, None)])
    return found


@pytest.mark.parametrize(
    ("max_batch", "piece", "ahead"), [(32, 512, False), (3, 512, False), (2, 37, False), (4, 512, True)]
)
def test_adapters_in_one_batch_have_the_bits_of_each_alone(
    max_batch: int, piece: int, ahead: bool, several: tuple[StoredModel, dict[str, Adapter]], alone: Drawn, ctx: Context
) -> None:
    stored, adapters = several
    assert len({str(drawn) for drawn in alone}) == len(ASKED)
    with LanguageModel(
        stored, ctx, context=512, adapters=adapters, max_batch=max_batch, piece=piece, cache_tokens=8192
    ) as model:
        model.scheduler.batch.close()
        model.scheduler = Scheduler(model.engine, ahead)
        assert drawn(model, ASKED) == alone
        shared = model.scheduler.statistics.shared_tokens
        assert drawn(model, ASKED) == alone  # now that pages of all of them are there
        assert model.scheduler.statistics.shared_tokens > shared
        for (prompt, name), wanted in zip(ASKED, alone, strict=True):
            assert drawn(model, [(prompt, name)]) == [wanted]


def test_what_one_adapter_has_computed_is_no_others(
    several: tuple[StoredModel, dict[str, Adapter]], ctx: Context
) -> None:
    stored, adapters = several
    engine = Engine(stored, ctx, context=512, adapters=adapters)
    scheduler = Scheduler(engine)

    def run(name: str | None, length: int = 200) -> int:
        request = Request(np.array(TEXT[:length], np.int32), 2, adapter=name)
        scheduler.add(request)
        while not scheduler.idle:
            scheduler.step()
        return request.shared

    for name in (None, *SEVERAL):
        assert run(name) == 0 and run(name) == 199 and run(name, 160) == 159
    # Beside one that is open, whose last page is not full, and while another waits.
    engine.cache.forget()
    together = [Request(np.array(TEXT[:length], np.int32), 40, adapter=name) for length, name in
                ((200, "all"), (200, "some"), (190, "all"), (190, None))]  # fmt: skip
    for request in together:
        scheduler.add(request)
    for _ in range(3):
        scheduler.step()
    assert [request.shared for request in together] == [0, 0, 189, 0]
    scheduler.close()


def test_what_is_asked_of_a_text_as_a_whole_has_its_adapter(
    several: tuple[StoredModel, dict[str, Adapter]], ctx: Context
) -> None:
    stored, adapters = several
    prompts = [TEXT[:40], TEXT[:40], TEXT[5:30]]
    names = [None, "all", "some"]
    with LanguageModel(stored, ctx, context=512, adapters=adapters) as model:
        vectors = model.embed(prompts, adapter=names)
        for prompt, name, vector in zip(prompts, names, vectors, strict=True):
            with LanguageModel(stored, ctx, context=512, adapter=adapters.get(name or "")) as one:
                np.testing.assert_array_equal(one.embed(prompt), vector)
                np.testing.assert_array_equal(one.logits(prompt), model.logits(prompt, adapter=name))
                assert one.logprobs(prompt, 1) == model.logprobs(prompt, 1, adapter=name)
        assert not np.array_equal(vectors[0], vectors[1])


def test_an_adapter_for_those_that_name_none(several: tuple[StoredModel, dict[str, Adapter]], ctx: Context) -> None:
    stored, adapters = several
    with LanguageModel(stored, ctx, context=512, adapter=adapters["all"], adapters={"s": adapters["some"]}) as model:
        found = drawn(model, [(TEXT[:50], None), (TEXT[:50], "s")])
    with LanguageModel(stored, ctx, context=512, adapters=adapters) as model:
        assert found == drawn(model, [(TEXT[:50], "all"), (TEXT[:50], "some")])


def test_graphs_of_other_adapters_make_room(
    several: tuple[StoredModel, dict[str, Adapter]], alone: Drawn, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, adapters = several
    monkeypatch.setattr(batch, "_MOST_GRAPHS", 2)
    with LanguageModel(stored, ctx, context=512, adapters=adapters, max_batch=3) as model:
        assert drawn(model, ASKED) == alone
        assert len(model.scheduler.batch._graphs) == 2


def test_names_that_there_are_not(several: tuple[StoredModel, dict[str, Adapter]], ctx: Context) -> None:
    stored, adapters = several
    with LanguageModel(stored, ctx, context=64, adapters=adapters) as model:
        with pytest.raises(
            ValueError, match="adapter is 'no'; of those with names the model has 'all', 'some', 'gate'"
        ):
            model.generate([IDS[:4], IDS[:5]], 2, adapter=["all", "no"])
        with pytest.raises(ValueError, match="there are 1 adapters for 2 prompts"):
            model.generate([IDS[:4], IDS[:5]], 2, adapter=["all"])
        for call in (model.logits, model.embed, model.logprobs):
            with pytest.raises(ValueError, match="adapter is 'no'"):
                call(IDS[:4].tolist(), adapter="no")  # type: ignore[operator]
        with pytest.raises(ValueError, match="adapter is 'no'"):
            model.scheduler.add(Request(IDS, 3, adapter="no"))
        assert model.scheduler.idle
    with LanguageModel(stored, ctx, context=64) as model, pytest.raises(ValueError, match="the model has none"):
        model.generate(IDS, 2, adapter="all")


def test_logits_beside_ternary_weights_are_those_of_the_reference(
    tmp_path: Path, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the codes that the engine took: at most twice as far from float64 as the same formulas in f32. The ids are
    more than the feed-forward network takes at a time."""
    config = llama_config(**BITNET)
    stored, ids = stored_model(ctx, config), np.random.default_rng(3).integers(0, config.vocab_size, 150)
    write_adapter(tmp_path / "adapter", config, ALL)
    adapter = Adapter.open(tmp_path / "adapter", config)
    engine = Engine(stored, ctx, context=256, cache_format="f32", piece=140, adapter=adapter)
    steps = record(engine, ids.tolist(), range(config.num_layers), "engine").steps
    exact = numbers(ctx, stored)
    single = {name: array.astype(np.float32) for name, array in exact.items()}
    names = {id(array): name for params in (exact, single) for name, array in params.items()}
    product = bitnet.product

    def rounding(name: str, rows: np.ndarray) -> Outputs:
        scale = np.maximum(np.abs(rows).max(axis=1), 1e-5) / 127
        return {"codes": steps[f"{name}_codes"], "scale": scale, "rows": rows}

    def adapted(rows: Outputs, weight: np.ndarray) -> np.ndarray:
        a, b = (part.f32().astype(weight.dtype) for part in adapter.factors[names[id(weight)]])
        return product(rows, weight) + weight.dtype.type(adapter.scale) * (rows["rows"] @ a.T @ b.T)

    unadapted = bitnet.forward(exact, config, ids, rounding)
    monkeypatch.setattr(bitnet, "product", adapted)
    wanted, plain = (bitnet.forward(params, config, ids, rounding) for params in (exact, single))
    assert np.linalg.norm(steps["logits"] - wanted) <= 2 * np.linalg.norm(plain - wanted)
    assert np.linalg.norm(unadapted - wanted) > 0.1 * np.linalg.norm(wanted)


def test_adapters_beside_ternary_weights_in_one_batch_have_the_bits_of_each_alone(tmp_path: Path, ctx: Context) -> None:
    """Those without one too, whatever is packed as one beside them."""
    write_folder(tmp_path / "base", replace(SHAPES["tiny"], context=512, bitnet=True), seed=2, dtype="bf16")
    stored = StoredModel.open(tmp_path / "base")
    for name, (targets, seed, rank) in SEVERAL.items():
        write_adapter(tmp_path / name, stored.config, targets, seed, rank)
    adapters = {name: Adapter.open(tmp_path / name, stored.config) for name in SEVERAL}
    asked, found = ASKED[:5], []
    for prompt, name in asked:
        with LanguageModel(stored, ctx, context=512, adapter=adapters.get(name or "")) as model:
            found += drawn(model, [(prompt, None)])
    assert len({str(one) for one in found}) == len(asked)
    with LanguageModel(stored, ctx, context=512, adapters=adapters, max_batch=3, piece=137) as model:
        assert drawn(model, asked) == found


def test_the_command(tmp_path: Path) -> None:
    model, _ = made(tmp_path, "llama")
    base, adapter = str(model.path), str(tmp_path / "adapter")
    ids = " ".join(map(str, IDS[:6]))

    def run(*more: str) -> str:
        done = CliRunner().invoke(main, ["generate", *more, ids, "--ids", "--greedy", "--max-tokens", "8"])
        assert done.exit_code == 0, done.output
        return done.output

    with LanguageModel.load(base, context=64, adapter=adapter) as loaded:
        wanted = [event.token for event in loaded.generate([IDS[:6].tolist()], 8, end_ids=()) if event.token >= 0]
    assert run(base, "--adapter", adapter).split() == list(map(str, wanted))
    assert run(base).split() != list(map(str, wanted))
    merged = CliRunner().invoke(main, ["merge", base, adapter, str(tmp_path / "merged")])
    assert merged.exit_code == 0, merged.output
    assert set(load_file(tmp_path / "merged" / "model.safetensors")) == set(model.tensors)
    assert run(str(tmp_path / "merged")).split() == list(map(str, wanted))
    both = CliRunner().invoke(main, ["generate", base, ids, "--ids", "--contiguous", "--adapter", adapter])
    assert both.exit_code == 2 and "--adapter" in both.output
