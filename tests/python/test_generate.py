"""Generation: over the cache as over the whole text, reproducible, and the same alone and in company."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from small_models import TINY, reference_config

import nncuda
from nncuda import kernels
from nncuda.infer import Sampling, TextGenerator, generate, generate_batch
from nncuda.infer.sampling import GREEDY
from nncuda.models import MoETransformer
from nncuda.reference import model as reference
from nncuda.tokenizer import Tokenizer, train_tokenizer

PROMPTS = [[5], [7, 8, 9, 10, 11, 12, 13], [3, 40, 2]]


@pytest.fixture
def model(ctx: nncuda.Context) -> MoETransformer:
    return MoETransformer(ctx, TINY, seed=4, training=False)


def test_logits_are_those_of_the_reference(model: MoETransformer) -> None:
    ids = np.random.default_rng(0).integers(0, TINY.vocab_size, (3, 11), dtype=np.int32)
    logits = model.forward(ids).numpy().reshape(-1, TINY.vocab_size)
    exact, plain = (
        reference.forward(
            {name: array.astype(dtype) for name, array in model.parameters.arrays().items()},
            reference_config(TINY),
            ids,
        )[0]
        for dtype in (np.float64, np.float32)
    )
    assert np.linalg.norm(logits - exact) <= 2 * np.linalg.norm(plain - exact)


def test_prefill_and_decode_are_the_whole_forward(model: MoETransformer) -> None:
    """Each step over the cache gives the logits that the whole text gives at that position."""
    ids = np.random.default_rng(1).integers(0, TINY.vocab_size, 20, dtype=np.int32)
    whole = model.forward(ids[None]).numpy()[0]
    # Sums of other lengths in another order: 2^-24 a rounding, some hundred deep, of values up to the largest.
    bound = 100 * 2**-24 * np.abs(whole).max()
    for split in (1, 6, 19):
        cache = model.cache(2, 20)
        rows = [model.prefill(ids[:split], cache, row).numpy()[0] for row in range(2)]
        np.testing.assert_allclose(rows, [whole[split - 1]] * 2, rtol=0, atol=bound)
        for position in range(split, 20):
            logits = model.decode(model.ctx.tensor(np.full(2, ids[position])), cache).numpy()
            np.testing.assert_allclose(logits, [whole[position]] * 2, rtol=0, atol=bound)


def test_greedy_is_the_argmax_of_the_whole_forward(model: MoETransformer) -> None:
    for prompt in PROMPTS:
        text = list(prompt)
        for token in generate(model, prompt, 15):
            logits = model.forward(np.array([text], np.int32)).numpy()[0, -1]
            best, second = np.sort(logits)[[-1, -2]]
            assert best - second > 1e-4, "a near tie: choose another seed, or the two paths may rightly differ"
            assert token == int(logits.argmax())
            text.append(token)


def test_a_batch_gives_what_each_prompt_gives_alone(model: MoETransformer) -> None:
    for sampling in (GREEDY, Sampling(temperature=1.3, seed=9)):
        together = list(zip(*generate_batch(model, PROMPTS, 12, sampling), strict=True))
        for row, prompt in enumerate(PROMPTS):
            alone = list(generate(model, prompt, 12, dataclasses.replace(sampling, seed=sampling.seed + row)))
            assert list(together[row]) == alone


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(top_k=5), Sampling(top_p=0.8), Sampling(top_k=20, top_p=0.9, temperature=0.7)],
    ids=["plain", "top-k", "top-p", "both"],
)
def test_seeds_reproduce(model: MoETransformer, sampling: Sampling) -> None:
    def draw(seed: int) -> list[int]:
        return list(generate(model, PROMPTS[1], 24, dataclasses.replace(sampling, seed=seed)))

    assert draw(1) == draw(1)
    assert len({tuple(draw(seed)) for seed in range(8)}) == 8
    assert draw(-1) == draw(2**64 - 1)  # seeds are keys of 64 bits


def test_top_k_and_top_p_bound_the_choice(model: MoETransformer) -> None:
    logits = model.forward(np.array([PROMPTS[1]], np.int32)).numpy()[0, -1]
    order = np.argsort(-logits, kind="stable")
    probabilities = np.exp(logits[order] - logits.max()).astype(np.float64)
    probabilities /= probabilities.sum()
    nucleus = int(np.searchsorted(np.cumsum(probabilities), 0.6)) + 1

    def drawn(**options: object) -> set[int]:
        return {next(generate(model, PROMPTS[1], 1, Sampling(seed=seed, **options))) for seed in range(200)}

    assert drawn(top_k=1) == drawn(temperature=0.0) == {int(order[0])}
    assert drawn(top_k=4) <= set(order[:4].tolist()) and len(drawn(top_k=4)) > 1
    assert drawn(top_p=0.6) <= set(order[:nucleus].tolist()) and len(drawn(top_p=0.6)) > 1
    assert drawn(top_p=1e-6) == {int(order[0])}


def test_it_ends_at_the_end_id(model: MoETransformer) -> None:
    free = list(generate(model, PROMPTS[0], 12))
    end = free[4]
    assert list(generate(model, PROMPTS[0], 12, end_id=end)) == free[: free.index(end) + 1]
    rows = list(zip(*generate_batch(model, [PROMPTS[0], PROMPTS[1]], 12, end_id=end), strict=True))
    other = list(generate(model, PROMPTS[1], 12, end_id=end))
    assert [token for token in rows[0] if token is not None] == free[: free.index(end) + 1]
    assert [token for token in rows[1] if token is not None] == other


def test_what_generation_refuses(model: MoETransformer) -> None:
    assert list(generate(model, [1], 0)) == []
    with pytest.raises(ValueError, match="at least one token"):
        list(generate(model, [], 3))
    with pytest.raises(ValueError, match="65 tokens are more than this model takes"):
        list(generate(model, [1], 65))
    with pytest.raises(nncuda.OutOfRangeError, match=r"prompt\[0\] is 48; it must be 0 to 47"):
        generate(model, [TINY.vocab_size], 1)
    for options, problem in (
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
    ):
        with pytest.raises(ValueError, match=problem):
            Sampling(**options)


def test_beyond_the_context_the_rotary_base_is_stretched(ctx: nncuda.Context, model: MoETransformer) -> None:
    """Within `context` the tables are the trained ones; one token beyond, those of ntk_alpha, for the prompt too."""
    assert len(list(generate(model, [1, 2, 3], 31))) == 31
    for capacity, alpha in ((32, 1.0), (33, TINY.ntk_alpha), (64, TINY.ntk_alpha), (20, 1.0)):
        cache = model.cache(1, capacity)
        tables = kernels.rope_freqs(ctx=ctx, positions=capacity, head_dim=TINY.head_dim, ntk_alpha=alpha)
        for made, expected in zip((cache.cosine, cache.sine), tables, strict=True):
            np.testing.assert_array_equal(made.narrow(0, 0, capacity).numpy(), expected.numpy())
    with pytest.raises(ValueError, match="65 tokens are more than this model takes"):
        model.cache(1, 65)


SAMPLINGS = [GREEDY, Sampling(seed=3), Sampling(top_k=5, seed=4), Sampling(top_p=0.8, seed=5)]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "plain", "top-k", "top-p"])
def test_captured_is_eager(ctx: nncuda.Context, sampling: Sampling) -> None:
    """For counts around the first launches, and where the sequences end at different times."""
    model = MoETransformer(ctx, dataclasses.replace(TINY, init_std=0.5), seed=4, training=False)
    for count in (1, 2, 3, 4, 25):
        eager = list(generate_batch(model, PROMPTS, count, sampling, capture=False))
        assert list(generate_batch(model, PROMPTS, count, sampling)) == eager
    end = eager[9][1]
    assert end is not None
    ending = [list(generate_batch(model, PROMPTS, 25, sampling, end, capture=capture)) for capture in (True, False)]
    assert ending[0] == ending[1] and any(None in tokens for tokens in ending[0])


def test_logits_of_a_replayed_step_are_those_of_its_calls(model: MoETransformer) -> None:
    """Also when the cache fills up, which the host notices."""
    ids = model.ctx.tensor(np.array([3, 5], np.int32))
    runs = []
    for capture in (False, True):
        cache, logits = model.cache(2, 12), model.ctx.empty((2, TINY.vocab_size))
        for row in range(2):
            model.prefill(np.array([1, 2, 3, 4][: 2 + 2 * row]), cache, row)
        if capture:
            with model.ctx.capture() as graph:
                model.decode(ids, cache, logits)
            cache.count(-1)  # nothing ran
        runs.append([])
        for _ in range(8):
            if capture:
                graph.launch()
                cache.count(1)
            else:
                model.decode(ids, cache, logits)
            runs[-1].append(logits.numpy().view(np.int32))
        assert cache.used == cache.starts.tolist() == [10, 12] and cache.lengths.tolist() == [11, 13]
        with pytest.raises(ValueError, match="sequence 1 would have 13 tokens; the cache has room for 12"):
            model.decode(ids, cache)
        with pytest.raises(ValueError, match="sequence 0 has 10 tokens; a prompt needs an empty one"):
            model.prefill(np.array([1]), cache, 0)
        with pytest.raises(ValueError, match="room for 12"):
            model.prefill(np.ones(13, np.int32), model.cache(1, 12), 0)
        assert cache.used == cache.starts.tolist() == [10, 12]
    np.testing.assert_array_equal(runs[0], runs[1])


def test_a_refused_token_leaves_the_cache_as_it_was(model: MoETransformer) -> None:
    cache = model.cache(1, 4)
    with pytest.raises(nncuda.OutOfRangeError):
        model.prefill(np.array([1, TINY.vocab_size]), cache, 0)
    expected = model.prefill(np.array([1, 2]), cache, 0).numpy()
    with pytest.raises(nncuda.OutOfRangeError):
        model.decode(model.ctx.tensor(np.array([-1], np.int32)), cache)
    assert cache.used == cache.starts.tolist() == [2] and np.isfinite(expected).all()


def test_generators_take_turns(model: MoETransformer) -> None:
    """One model, several texts at once, one of them beyond the context: each as if it were alone."""
    jobs = [(PROMPTS[:1], 12, GREEDY), (PROMPTS, 30, Sampling(seed=2)), (PROMPTS[1:], 20, Sampling(top_p=0.9))]
    alone = [list(generate_batch(model, *job)) for job in jobs]
    running = [generate_batch(model, *job) for job in jobs]
    together: list[list[list[int | None]]] = [[] for _ in jobs]
    for _ in range(30):
        for texts, tokens in zip(together, running, strict=True):
            texts.extend([drawn] if (drawn := next(tokens, None)) is not None else [])
        model.forward(np.ones((2, 9), np.int32))  # and other work between them
    assert together == alone


def test_only_ids_come_back(model: MoETransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing goes to the device, once the prompts are there."""
    copies: list[tuple[str, int]] = []
    original = nncuda.Context._copy

    def counted(self: nncuda.Context, target: object, source: object, nbytes: int, kind: str) -> None:
        copies.append((kind, nbytes))
        original(self, target, source, nbytes, kind)

    monkeypatch.setattr(nncuda.Context, "_copy", counted)
    tokens = generate_batch(model, PROMPTS, 12, Sampling(top_k=5))
    next(tokens)
    assert [nbytes for kind, nbytes in copies if kind == "device_to_host"] == [4 * len(PROMPTS)]
    copies.clear()
    assert len(list(tokens)) == 11
    assert copies == [("device_to_host", 4 * len(PROMPTS))] * 11


def test_memory_does_not_grow_and_comes_back(ctx: nncuda.Context, model: MoETransformer) -> None:
    list(generate(model, PROMPTS[0], 30))  # the model keeps its rotary tables, and the last tokens' choice of experts
    before = ctx.bytes_used, ctx.bytes_arena
    tokens = generate(model, PROMPTS[0], 30)
    for _ in range(4):
        next(tokens)
    used = ctx.bytes_used, ctx.bytes_arena
    for _ in range(20):
        next(tokens)
        assert (ctx.bytes_used, ctx.bytes_arena) == used
    tokens.close()  # half-way: its cache and its graph go
    assert (ctx.bytes_used, ctx.bytes_arena) == before
    for _ in range(5):
        dropped = generate(model, PROMPTS[0], 30)
        for _ in range(6):
            next(dropped)
        del dropped
    assert (ctx.bytes_used, ctx.bytes_arena) == before


def test_generation_can_be_profiled(model: MoETransformer) -> None:
    with model.ctx.profile() as profile:
        list(generate(model, PROMPTS[1], 10, Sampling(seed=1)))
    calls = {entry["kernel"]: entry["calls"] for entry in profile.json()["kernels"]}
    assert calls["cuda_topp_sample"] == 10 and calls["cuda_attention_decode"] == 9 * TINY.num_layers
    assert calls["cuda_increment"] == 10 + 9 + 2


def test_text(ctx: nncuda.Context) -> None:
    text = "\n".join(f"the quick brown fox {n} jumps over ten lazy dogs" for n in range(40))
    tokenizer = Tokenizer(train_tokenizer([text], vocab_size=320, model_type="bpe", threads=1))
    model = MoETransformer(ctx, dataclasses.replace(TINY, vocab_size=320), seed=0, training=False)
    generator = TextGenerator(model, tokenizer)
    sampling = Sampling(seed=3)
    pieces = list(generator.stream("the quick", 20, sampling))
    ids = list(generate(model, tokenizer.encode("the quick", begin=True), 20, sampling, tokenizer.end_id))
    assert len(pieces) > 1 and "".join(pieces) == generator.complete("the quick", 20, sampling) == tokenizer.decode(ids)
    with pytest.raises(ValueError, match="320 pieces, the model's vocabulary 48"):
        TextGenerator(MoETransformer(ctx, TINY), tokenizer)
