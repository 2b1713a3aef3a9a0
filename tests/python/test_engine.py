"""The engine: the numbers of the reference, and the same bits however a text comes to it."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from constraints import Alternating
from small_models import BITNET, TINY, llama_config, numbers, save_tiny, stored_model

import nncuda
from nncuda.convert.ternary import tern2_bytes
from nncuda.device import INSTRUCTION_SETS
from nncuda.formats import FormatError
from nncuda.formats import ternary as ternary_files
from nncuda.formats.block_formats import FORMATS
from nncuda.formats.mapped import map_file, release
from nncuda.infer import Sampling, generate
from nncuda.infer.batch import DecodeBatch, Row
from nncuda.infer.drawing import Drawing
from nncuda.infer.dump import record
from nncuda.infer.engine import Engine, Part
from nncuda.infer.paged_cache import PAGE, CacheFullError
from nncuda.infer.sampling import GREEDY
from nncuda.infer.scheduler import Request, Scheduler
from nncuda.models import StoredModel
from nncuda.models.llama import Rope
from nncuda.models.rope_scaling import llama3_divisors
from nncuda.reference import bitnet, ternary
from nncuda.reference import llama as reference
from nncuda.reference.arithmetic import Outputs
from nncuda.train import Checkpoint

EXPERTS = {"num_experts": 4, "experts_per_token": 2}


def ids_of(length: int, seed: int = 0, vocab: int = 96) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, vocab, length, dtype=np.int32)


def run(engine: Engine, requests: list[Request], steps: int = 10_000, ahead: bool = False) -> list[list[int]]:
    """The tokens of requests that are all there from the start."""
    scheduler = Scheduler(engine, ahead)
    for request in requests:
        scheduler.add(request)
    for _ in range(steps):
        if scheduler.idle:
            break
        scheduler.step()
    assert scheduler.idle and engine.cache.used == 0
    return [list(request.tokens) for request in requests]


@pytest.fixture
def checkpoint(ctx: nncuda.Context, tmp_path: Path) -> Path:
    return save_tiny(ctx, tmp_path)


# The numbers


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_kv_heads": 4, "qkv_bias": True, "o_bias": True, "tie_embeddings": True},
        {"rope": Rope(base=5e5, layout="interleaved", scaling="linear", factor=4.0)},
        {"rope": Rope(scaling="llama3", factor=8.0, divisors=llama3_divisors(1e4, 32, 8.0, 1.0, 4.0, 64))},
        {"rope": Rope(scaling="ntk", factor=8.0), "extended_context": 4096, "context": 128},
        {**EXPERTS, "num_kv_heads": 1},
        {**EXPERTS, "norm_topk_prob": False, "rope": Rope(layout="interleaved")},
    ],
    ids=["plain", "biases, tied", "interleaved, linear", "llama3", "ntk", "experts", "experts not normalised"],
)
def test_logits_are_those_of_the_reference(ctx: nncuda.Context, changes: dict[str, object]) -> None:
    """At most twice as far from float64 as the same formulas in f32."""
    config = llama_config(**changes)
    stored = stored_model(ctx, config)
    ids = ids_of(150)
    engine = Engine(stored, ctx, context=256, cache_format="f32", piece=64)
    logits = engine.logits(ids)
    exact = numbers(ctx, stored)
    single = {name: array.astype(np.float32) for name, array in exact.items()}
    wanted, plain = (reference.forward(params, config, ids) for params in (exact, single))
    assert np.linalg.norm(logits - wanted) <= 2 * np.linalg.norm(plain - wanted)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation": "silu", "tie_embeddings": True, "rope": Rope(base=5e5)},
        {"sub_norms": False, "hidden_size": 72, "head_dim": 24, "num_kv_heads": 1, "ffn_size": 91},
    ],
    ids=["plain", "silu, tied", "no sub norms, rows that are not whole groups"],
)
def test_logits_of_a_bitnet_are_those_of_the_reference(ctx: nncuda.Context, changes: dict[str, object]) -> None:
    """With the codes that the engine took: at most twice as far from float64 as the same formulas in f32. And those are
    the nearest ones, up to twice the distance of what the two round, where that is in the middle between two."""
    config = llama_config(**{**BITNET, **changes})
    stored = stored_model(ctx, config)
    ids = ids_of(150)
    engine = Engine(stored, ctx, context=256, cache_format="f32", piece=140)
    steps = record(engine, ids.tolist(), range(config.num_layers), "engine").steps
    exact = numbers(ctx, stored)
    single = {name: array.astype(np.float32) for name, array in exact.items()}
    passes = []
    for params in (exact, single):
        unrounded: dict[str, np.ndarray] = {}

        def rounding(name: str, rows: np.ndarray, unrounded: dict[str, np.ndarray] = unrounded) -> Outputs:
            scale = np.maximum(np.abs(rows).max(axis=1), 1e-5) / 127
            unrounded[name] = rows / scale[:, None]
            return {"codes": steps[f"{name}_codes"], "scale": scale}

        passes.append((bitnet.forward(params, config, ids, rounding), unrounded))
    (wanted, units), (plain, plain_units) = passes
    assert len(units) == 4 * config.num_layers
    for name, values in units.items():
        apart = np.abs(values - plain_units[name]).max()
        assert np.abs(steps[f"{name}_codes"] - values).max() <= 0.5 + 2 * apart
    assert np.linalg.norm(steps["logits"] - wanted) <= 2 * np.linalg.norm(plain - wanted)
    alone = bitnet.forward(exact, config, ids)  # takes codes of its own
    assert np.corrcoef(steps["logits"].ravel(), alone.ravel())[0, 1] > 0.999


def test_the_steps_of_a_bitnet_have_the_bits_of_their_definition(ctx: nncuda.Context) -> None:
    config = llama_config(**BITNET)
    stored = stored_model(ctx, config, "q8_0")
    steps = record(Engine(stored, ctx), ids_of(20).tolist(), [1], "engine").steps
    layer = {name.removeprefix("layers.1."): array for name, array in steps.items() if name.startswith("layers.1.")}
    for name in ("attn_norm", "attn_sub_norm", "ffn_norm", "ffn_sub_norm"):
        rounded = ternary.act_quant_i8(layer[name])
        np.testing.assert_array_equal(layer[f"{name}_codes"], rounded["codes"])
        np.testing.assert_array_equal(layer[f"{name}_scale"], rounded["scale"])
    for name, of, part in (
        *((f"{name}", "attn_norm", f"self_attn.{name}_proj") for name in "qkv"),
        ("attn_output", "attn_sub_norm", "self_attn.o_proj"),
        *((name, "ffn_norm", f"mlp.{name}_proj") for name in ("gate", "up")),
        ("ffn", "ffn_sub_norm", "mlp.down_proj"),
    ):
        matrix = stored.ternary(f"model.layers.1.{part}.weight")
        codes, rows = matrix.codes(), layer[f"{of}_codes"]
        w, scales = ternary.ternary_pack(codes)["w"], np.full(len(codes), matrix.scale, np.float32)
        product = ternary.bitlinear(rows, w, len(codes), "f32", layer[f"{of}_scale"], scales)["y"]
        np.testing.assert_array_equal(layer[name].reshape(product.shape), product, err_msg=name)
    inner = np.maximum(layer["gate"], 0).astype(np.float64) ** 2 * layer["up"]
    np.testing.assert_allclose(layer["ffn_inner"], inner, rtol=2**-22)  # two roundings
    np.testing.assert_array_equal(layer["output"], layer["attn_residual"] + layer["ffn"])


@pytest.mark.parametrize("ffn", [96, 84], ids=["whole groups of rows", "parts of groups"])
def test_the_form_of_ternary_weights_changes_no_bit(ctx: nncuda.Context, ffn: int) -> None:
    config, ids = llama_config(**BITNET, ffn_size=ffn), ids_of(20)
    stored = stored_model(ctx, config, "q8_0")
    wanted = Engine(stored, ctx).logits(ids)
    for form in ("tern2", "packed"):
        matrices = {}
        for name, matrix in stored.matrices.items():
            codes = matrix.codes()
            if form == "tern2":
                data, make = tern2_bytes(codes), ternary_files.from_tern2
            else:
                quarters = (codes + 1).view(np.uint8).reshape(4, -1, codes.shape[1])
                data = np.bitwise_or.reduce(quarters << np.array([0, 2, 4, 6], np.uint8)[:, None, None])
                make = ternary_files.from_packed
            matrices[name] = make("in memory", name, matrix.shape, data.reshape(-1), matrix.scale)
        other = StoredModel(stored.path, config, stored.tensors, matrices=matrices)
        np.testing.assert_array_equal(Engine(other, ctx).logits(ids), wanted)
        bad = matrices["model.layers.1.mlp.down_proj.weight"]
        bad.data[5] = 0xFF
        with pytest.raises(FormatError, match=r"layers.1.mlp.down_proj.weight.*two-bit code 3"):
            Engine(other, ctx)


def test_master_weights_must_be_finite(ctx: nncuda.Context) -> None:
    stored = stored_model(ctx, llama_config(**BITNET))
    stored.ternary("model.layers.0.self_attn.k_proj.weight").master[3, 4] = np.nan
    with pytest.raises(FormatError, match=r"layers.0.self_attn.k_proj.weight has values that are not finite"):
        Engine(stored, ctx)


def test_a_mixture_is_the_training_model(ctx: nncuda.Context, checkpoint: Path) -> None:
    """The same weights in both give the same logits but for rounding: sums of the same terms in another order."""
    model = Checkpoint(checkpoint).model(ctx)
    ids = ids_of(30, vocab=TINY.vocab_size)
    theirs = model.forward(ids[None]).numpy()[0]
    engine = Engine(StoredModel.open(checkpoint), ctx, cache_format="f32")
    ours = engine.logits(ids)
    bound = 100 * 2**-24 * np.abs(theirs).max()  # as between prefill and forward of the model itself
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound)
    text = ids[:8].tolist()
    assert run(engine, [Request(ids[:8], 12)])[0] == list(generate(model, text, 12))
    sampling = Sampling(temperature=0.8, top_p=0.9, seed=3)
    assert run(engine, [Request(ids[:8], 12, sampling)])[0] == list(generate(model, text, 12, sampling))


def test_beyond_the_context_a_model_of_our_own_is_stretched(ctx: nncuda.Context, checkpoint: Path) -> None:
    model = Checkpoint(checkpoint).model(ctx)
    ids = ids_of(50, vocab=TINY.vocab_size)
    cache = model.cache(1, 64)
    theirs = model.prefill(ids, cache, 0).numpy()[0]
    ours = Engine(StoredModel.open(checkpoint), ctx, context=64, cache_format="f32").logits(ids)[-1]
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=100 * 2**-24 * np.abs(theirs).max())


def test_watching_changes_no_bit(ctx: nncuda.Context) -> None:
    attention = ["q", "k", "v", "q_rope", "k_rope", "attention"]
    for changes, named in (
        ({}, ["attn_norm", *attention, "attn_output"]),
        (EXPERTS, ["attn_norm", *attention, "attn_output"]),
        (BITNET, ["attn_norm", "attn_norm_codes", "attn_norm_scale", *attention, "attn_sub_norm"]),
    ):
        engine = Engine(stored_model(ctx, llama_config(**changes), "q8_0"), ctx)
        ids, seen = ids_of(20), {}
        watched = engine.logits(ids, lambda name, tensor: seen.update({name: tensor.numpy()}))  # noqa: B023
        np.testing.assert_array_equal(watched, engine.logits(ids))
        names = [name.removeprefix("layers.0.") for name in seen if name.startswith("layers.0.")]
        assert names[: len(named)] == named
        np.testing.assert_array_equal(seen["logits"], watched)
        residual = seen["layers.1.attn_residual"] + seen["layers.1.ffn"]
        np.testing.assert_allclose(residual, seen["layers.1.output"], rtol=1e-6, atol=1e-6)


# The same bits


@pytest.fixture(
    params=[
        "q4_0, f16",
        "q8_0, q8_0",
        "f16, f16",
        "f32, f32",
        "experts, f16",
        "ternary, f16",
        "ternary, q8_0",
        "q4_0, e4m3",
    ]
)
def engine(ctx: nncuda.Context, request: pytest.FixtureRequest) -> Engine:
    weights, cache = request.param.split(", ")
    changes = {"experts": EXPERTS, "ternary": BITNET}.get(weights, {})
    stored = stored_model(ctx, llama_config(**changes), "q8_0" if changes else weights)
    return Engine(stored, ctx, context=512, cache_format=cache, piece=200, max_batch=8, cache_tokens=16 * PAGE)


def decoded(engine: Engine, ids: np.ndarray, split: int) -> np.ndarray:
    """Logits behind ids[split-1:], by prefill of the first ones and decode of the others."""
    sequence = engine.cache.open()
    rows = []
    for start in range(0, split, engine.piece):
        piece = ids[start : min(split, start + engine.piece)]
        logits = engine.prefill([Part(sequence, piece, True)])
        assert logits is not None
    rows.append(logits.numpy()[0])
    inputs = engine.inputs(1, 1)
    inputs.offsets.copy_(np.array([0, 1]))
    for token in ids[split:]:
        engine.cache.extend(sequence, 1)
        for place, value in zip(inputs[:2] + inputs[3:4], (token, sequence.position, sequence.length + 1), strict=True):
            place.copy_(np.array([value]))
        inputs.table.copy_(engine.cache.table_row(sequence)[None])
        rows.append(engine.decode(inputs).numpy()[0])
        engine.cache.advance(sequence, [int(token)])
    engine.cache.close(sequence)
    return np.stack(rows)


def test_prefill_and_decode_are_one_prefill_of_the_whole(engine: Engine) -> None:
    ids = ids_of(2 * PAGE + 12)
    whole = engine.logits(ids)
    for split in (1, 2, 31, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, len(ids) - 1, len(ids)):
        engine.cache.forget()
        np.testing.assert_array_equal(decoded(engine, ids, split), whole[split - 1 :])


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_every_split_of_a_short_text(ctx: nncuda.Context, isa: str) -> None:
    if INSTRUCTION_SETS.index(isa) > INSTRUCTION_SETS.index(ctx.isa):
        pytest.skip(f"this processor has no {isa}")
    ctx.isa = isa
    for weights, changes in (("q4_0", {}), ("f16", EXPERTS), ("q8_0", BITNET)):
        engine = Engine(stored_model(ctx, llama_config(**changes), weights), ctx, context=PAGE)
        ids = ids_of(40)
        whole = engine.logits(ids)
        for split in range(1, len(ids) + 1, 1 if weights == "q4_0" else 13):
            np.testing.assert_array_equal(decoded(engine, ids, split), whole[split - 1 :])


def test_pieces_change_nothing(ctx: nncuda.Context, engine: Engine) -> None:
    ids = ids_of(300)
    whole = engine.logits(ids)
    for piece in (1, 7, 128, 129, 512):
        other = Engine(engine.model, ctx, context=512, cache_format=engine.cache.format.name, piece=piece)
        np.testing.assert_array_equal(other.logits(ids), whole)


def test_ragged_prompts_in_one_call(engine: Engine) -> None:
    lengths = (1, 60, 3, 100, 17)
    texts = [ids_of(n, seed) for seed, n in enumerate(lengths)]
    sequences = [engine.cache.open() for _ in texts]
    parts = [Part(s, text, n != 3) for s, text, n in zip(sequences, texts, lengths, strict=True)]
    logits = engine.prefill(parts).numpy()
    alone = [engine.logits(text)[-1] for text in texts if len(text) != 3]
    np.testing.assert_array_equal(logits, np.stack(alone))


PLAIN = (GREEDY, Sampling(1.3, seed=5), Sampling(0.9, top_k=5, seed=6), Sampling(1.1, top_p=0.7, seed=7))
ADJUSTED = (
    GREEDY,
    Sampling(0.0, presence_penalty=0.8, frequency_penalty=0.3, repetition_penalty=1.3),
    Sampling(1.2, min_p=0.1, frequency_penalty=-0.4, seed=5),
    Sampling(1.1, top_p=0.9, seed=6, logit_bias={3: 4.0, 95: -100.0, 20: 2.5}),
    Sampling(0.9, top_k=40, repetition_penalty=1.1, seed=7, logit_bias={7: 3.0}),
    Sampling(1.0, seed=8),
)


@pytest.mark.parametrize("samplings", [PLAIN, ADJUSTED], ids=["plain", "adjusted"])
def test_tokens_do_not_depend_on_company(engine: Engine, samplings: tuple[Sampling, ...]) -> None:
    """Random schedules: joins, leaves, cancels, shared beginnings; each request's tokens are those it draws alone, and
    so are the log-probabilities that it wants. In the adjusted ones some have log-probabilities, or a constraint."""
    rng = np.random.default_rng(11)
    common = ids_of(2 * PAGE, 99)
    wanted = {}
    scores = {}
    cases = []

    def request_of(number: int) -> Request:
        if samplings is PLAIN:
            return Request(*cases[number])
        return Request(
            *cases[number],
            logprobs=number % 4 * 2 if number % 3 == 0 else None,
            prompt_logprobs=2 if number % 5 == 4 else None,
            constraint=Alternating() if number % 4 == 1 else None,
        )

    for number in range(12):
        begin = common[: rng.integers(0, 2 * PAGE)] if number % 2 else common[:0]
        prompt = np.concatenate([begin, ids_of(int(rng.integers(1, 150)), number)])
        cases.append((prompt, int(rng.integers(1, 40)), samplings[number % len(samplings)]))
        engine.cache.forget()
        alone = request_of(number)
        wanted[number] = run(engine, [alone])[0]
        scores[number] = list(alone.scores), alone.prompt_scores
    for ahead in (False, True, True):
        scheduler = Scheduler(engine, ahead)
        order = rng.permutation(np.repeat(np.arange(len(cases)), 2))
        requests = [(number, request_of(number)) for number in order]
        waiting = list(requests)
        while waiting or not scheduler.idle:
            for _ in range(rng.integers(0, 3)):
                if waiting:
                    scheduler.add(waiting.pop()[1])
            if rng.random() < 0.05:
                scheduler.cancel(requests[rng.integers(len(requests))][1])
            scheduler.step()
        scheduler.close()
        cancelled = 0
        for number, request in requests:
            tokens = list(request.tokens)
            assert tokens == wanted[number][: len(tokens)]
            assert list(request.scores) == scores[number][0][: len(tokens)]
            known = request.prompt_scores
            assert known == scores[number][1][: len(known)] and (not tokens or len(known) == len(scores[number][1]))
            cancelled += request.finish == "cancelled"
            assert request.finish == "cancelled" or len(tokens) == len(wanted[number])
        assert cancelled < len(requests) / 2
        assert engine.cache.used == 0


def test_what_is_shared_is_not_computed_again_and_gives_the_same_bits(engine: Engine) -> None:
    prompt = ids_of(2 * PAGE + 30)
    first = Request(prompt, 20)
    run(engine, [first])
    second = Request(prompt, 20)
    run(engine, [second])
    assert (first.shared, second.shared) == (0, 2 * PAGE + 29)
    assert first.tokens == second.tokens
    # A conversation that goes on: all of the last turn but its last token, which was never run.
    longer = np.concatenate([prompt, first.tokens, ids_of(10, 4)]).astype(np.int32)
    third = Request(longer, 5)
    run(engine, [third])
    assert third.shared == len(prompt) + 19
    engine.cache.forget()
    fourth = Request(longer, 5)
    run(engine, [fourth])
    assert fourth.shared == 0 and fourth.tokens == third.tokens


# Long sequences, full caches


@pytest.mark.parametrize("changes", [{}, BITNET], ids=["llama", "bitnet"])
def test_the_window_goes_on_beyond_the_context(ctx: nncuda.Context, changes: dict[str, object]) -> None:
    """Behind the context the oldest page is out of sight, in prefill as in decode, and in any company."""
    stored = stored_model(ctx, llama_config(**changes), "q8_0")
    engine = Engine(stored, ctx, context=2 * PAGE, cache_tokens=8 * PAGE)
    prompt = ids_of(200)
    (alone,) = run(engine, [Request(prompt, 400)])
    for ahead in (False, True):
        both = run(engine, [Request(ids_of(20, 3), 300), Request(prompt, 400)], ahead=ahead)
        assert both[1] == alone
    wide = Engine(stored, ctx, context=1024)
    (unbounded,) = run(wide, [Request(prompt, 400)])
    # The 57th token is the last to be drawn with all of the text in sight.
    assert alone[:57] == unbounded[:57] and alone != unbounded


def test_long_generations_stay_finite_and_take_no_more_memory(ctx: nncuda.Context) -> None:
    engine = Engine(stored_model(ctx, llama_config(), "q4_0"), ctx, context=512)
    scheduler = Scheduler(engine)
    request = Request(ids_of(5), 2000, Sampling(seed=1))
    scheduler.add(request)
    used = set()
    for step in range(2000):
        scheduler.step()
        if step > 1:
            used.add((ctx.bytes_used, ctx.bytes_arena))
        if step % 100 == 0:
            assert np.isfinite(engine._logits.narrow(0, 0, 1).numpy()).all()
    assert len(request.tokens) == 2000 and request.finish == "length"
    assert len(used) == 1
    assert len(set(request.tokens)) > 48  # it draws from what it knows, not one token for ever


def test_rotary_tables_grow_and_graphs_with_them(ctx: nncuda.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = stored_model(ctx, llama_config(), "q8_0")
    wanted = run(Engine(stored, ctx, context=512), [Request(ids_of(40), 300)])
    monkeypatch.setattr("nncuda.infer.engine._FIRST_POSITIONS", 64)
    engine = Engine(stored, ctx, context=512)
    assert engine.rope.length == 64
    assert run(engine, [Request(ids_of(40), 300)]) == wanted
    assert engine.rope.length == 512  # twice 64, three times
    engine = Engine(stored, ctx, context=512)
    assert run(engine, [Request(ids_of(40), 300)], ahead=True) == wanted and engine.rope.length == 512


def test_a_full_cache_makes_requests_wait(ctx: nncuda.Context) -> None:
    engine = Engine(stored_model(ctx, llama_config()), ctx, context=512, cache_tokens=4 * PAGE)
    scheduler = Scheduler(engine)
    requests = [Request(ids_of(100, seed), 100) for seed in range(5)]
    for request in requests:
        scheduler.check(request.prompt, request.max_new_tokens)
        scheduler.add(request)
    scheduler.step()
    assert sum(bool(request.tokens) for request in requests) == 2
    while not scheduler.idle:
        scheduler.step()
    assert all(request.finish == "length" for request in requests)
    held = engine.cache.open(rows=4 * PAGE)
    scheduler.add(Request(ids_of(100), 2))
    with pytest.raises(CacheFullError, match="0 of the cache's 4 are available"):
        scheduler.step()
    engine.cache.close(held)
    small = Scheduler(Engine(engine.model, ctx, context=512, cache_tokens=2 * PAGE))
    with pytest.raises(CacheFullError, match="needs 3 pages of 128 tokens; the cache has 2"):
        small.check(ids_of(200), 100)


def test_a_batch_runs_ahead_where_the_next_step_is_certain(ctx: nncuda.Context) -> None:
    engine = Engine(stored_model(ctx, llama_config()), ctx, context=256)
    (wanted,) = run(engine, [Request(ids_of(10), 20)])
    scheduler = Scheduler(engine, ahead=True)
    first, second = Request(ids_of(10), 20), Request(ids_of(30, 1), 3)
    scheduler.add(first)
    under_way = []
    for step in range(20):
        if step == 5:
            scheduler.add(second)
        if scheduler.idle:
            break
        scheduler.step()
        under_way.append(len(scheduler.batch._under_way))
    # The first drawn token comes with the prompt. Who joins waits for the step that is under way; the last token of
    # either is no reason to compute another.
    assert under_way == [1] * 5 + [0, 1, 0] + [1] * 10 + [0]
    assert list(first.tokens) == wanted and scheduler.idle
    # A text that ends without notice leaves a step behind, in which no sequence has a part.
    scheduler.add(Request(ids_of(10), 20, end_ids=wanted[3:4]))
    while not scheduler.idle:
        scheduler.step()
    assert len(scheduler.batch._under_way) == 1
    third = Request(ids_of(10), 20)
    scheduler.add(third)
    while not scheduler.idle:
        scheduler.step()
    assert list(third.tokens) == wanted
    scheduler.close()
    assert not scheduler.batch._under_way
    with pytest.raises(ValueError, match="no sequences"):
        scheduler.batch.step()


@pytest.mark.parametrize(("changes", "calls"), [({}, 5), (BITNET, 6)], ids=["llama", "bitnet"])
def test_a_batch_is_captured_once_for_each_size(ctx: nncuda.Context, changes: dict[str, object], calls: int) -> None:
    engine = Engine(stored_model(ctx, llama_config(**changes)), ctx, context=256, max_batch=3)
    batch = DecodeBatch(engine)
    rows = []
    for seed in range(3):
        sequence = engine.cache.open()
        engine.prefill([Part(sequence, ids_of(5, seed), False)])
        rows.append(Row(sequence, Drawing(GREEDY), token=seed))
        batch.join(rows[-1])
        batch.step()
    with pytest.raises(ValueError, match="max_batch is 3"):
        batch.join(Row(engine.cache.open(), Drawing(GREEDY)))
    used = ctx.bytes_used
    batch.step()
    # As many calls as one sequence has: embedding, those of two layers, norm, head, argmax, counting on.
    assert [len(graph) for graph in batch._graphs.values()] == [1 + calls * 2 + 4] * 3
    batch.leave(rows[0])
    batch.step()
    batch.join(rows[0])
    batch.step()
    assert ctx.bytes_used == used and len(batch._graphs) == 3  # graphs own no memory
    batch.close()


def test_the_file_is_used_in_place(ctx: nncuda.Context) -> None:
    stored = stored_model(ctx, llama_config(), "q8_0")
    engine = Engine(stored, ctx, context=256, weights="file")
    assert not engine.weights.in_memory
    for name, tensor in (("lm_head", engine.weights.head), ("model.embed_tokens", engine.weights.embedding)):
        assert tensor.data.ptr == stored.tensors[f"{name}.weight"].data.ctypes.data
        assert tensor.format == FORMATS["q8_0"].code
    matrices = sum(tensor.nbytes for name, tensor in stored.tensors.items() if len(tensor.shape) > 1)
    assert engine.weights.nbytes == matrices
    embedding = engine.weights.embedding.data
    cache_row = 2 * 2 * 2 * 32 * 2  # keys and values, layers, heads, elements, f16
    assert engine.bytes_per_step([10, 5]) == matrices - embedding.nbytes + 2 * embedding.shape[1] + 15 * cache_row


def test_weights_in_memory_are_the_same_and_let_go_of_the_file(ctx: nncuda.Context, checkpoint: Path) -> None:
    stored = StoredModel.open(checkpoint)
    before, ids = ctx.bytes_used, ids_of(20, vocab=48)
    wanted = Engine(stored, ctx, weights="file").logits(ids)
    for place in ("memory", "auto"):  # so small a model always fits
        engine = Engine(stored, ctx, weights=place)
        assert engine.weights.in_memory
        head = stored.tensors["lm_head.weight"].data
        assert engine.weights.head.data.ptr != head.ctypes.data
        np.testing.assert_array_equal(engine.weights.head.data.numpy().ravel(), head)  # read again from the file
        np.testing.assert_array_equal(engine.logits(ids), wanted)
    assert ctx.bytes_used - before > stored.tensors.nbytes


@pytest.mark.parametrize("tied", [False, True])
def test_copies_in_pieces_have_the_same_bits(ctx: nncuda.Context, monkeypatch: pytest.MonkeyPatch, tied: bool) -> None:
    for weights in ("q8_0", "f16"):
        stored, ids = stored_model(ctx, llama_config(tie_embeddings=tied), weights), ids_of(20)
        engines = [Engine(stored, ctx, weights="file"), Engine(stored, ctx, weights="memory")]
        monkeypatch.setattr("nncuda.infer.weight_reader._PIECE", 3000)
        engines.append(Engine(stored, ctx, weights="memory"))
        monkeypatch.undo()
        matrices = sum(tensor.nbytes for name, tensor in stored.tensors.items() if len(tensor.shape) > 1)
        once = matrices - tied * stored.tensors["lm_head.weight"].nbytes
        assert [engine.weights.nbytes for engine in engines] == [once] * 3
        logits = [engine.logits(ids) for engine in engines]
        np.testing.assert_array_equal(logits[1], logits[0])
        np.testing.assert_array_equal(logits[2], logits[0])


def test_pages_of_a_mapping_are_given_back_whole_and_alone(tmp_path: Path) -> None:
    page = mmap.PAGESIZE
    content = np.random.default_rng(0).integers(0, 256, 5 * page, np.uint8)
    (tmp_path / "file").write_bytes(content.tobytes())
    mapped = np.frombuffer(map_file(tmp_path / "file", "file", 1), np.uint8)
    for first, last in ((0, 5 * page), (100, 3 * page + 7), (10, 20), (page, 2 * page)):
        release(mapped[first:last])
        np.testing.assert_array_equal(mapped, content)
    own = np.arange(3 * page, dtype=np.uint8)
    release(own)  # memory of no file stays as it is
    np.testing.assert_array_equal(own, np.arange(3 * page, dtype=np.uint8))


# What it refuses


@pytest.fixture
def small(ctx: nncuda.Context) -> Iterator[Engine]:
    yield Engine(stored_model(ctx, llama_config()), ctx, context=256, piece=16, max_batch=2)


def test_what_the_engine_refuses(ctx: nncuda.Context, small: Engine) -> None:
    for options, problem in (
        ({"context": 0}, "context is 0; this model takes 1 to 1024"),
        ({"context": 1025}, "context is 1025; this model takes 1 to 1024"),
        ({"cache_format": "q5_0"}, "cache_format is 'q5_0'"),
        ({"cache_tokens": 0}, "cache_tokens is 0"),
        ({"max_batch": 0}, "max_batch is 0"),
        ({"piece": 0}, "piece is 0"),
        ({"weights": "disk"}, "weights is 'disk'; it must be one of auto, memory, file"),
    ):
        with pytest.raises(ValueError, match=problem):
            Engine(small.model, ctx, **options)
    with pytest.raises(IndexError, match=r"ids\[2\] is 96; it must be 0 to 95"):
        small.logits([1, 2, 96])
    with pytest.raises(IndexError, match=r"ids\[0\] is -1"):
        small.logits([-1])
    with pytest.raises(TypeError, match="whole numbers"):
        small.logits([1.5])
    with pytest.raises(ValueError, match="at least one"):
        small.logits([])
    with pytest.raises(ValueError, match="257 ids; the context has room for 256"):
        small.logits(ids_of(257))
    sequence = small.cache.open()
    with pytest.raises(ValueError, match="16 tokens in all"):
        small.prefill([Part(sequence, ids_of(17), True)])
    scheduler = Scheduler(small)
    for prompt, tokens, problem in (
        (ids_of(0), 1, "at least one token"),
        (ids_of(257), 1, "257 tokens; the context has room for 256"),
        (ids_of(5), -1, "max_new_tokens is -1"),
    ):
        with pytest.raises(ValueError, match=problem):
            scheduler.check(prompt, tokens)
