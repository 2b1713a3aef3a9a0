"""Rows that are cut into parts, a block each: draws, first tokens and log-probabilities are those that a block finds
alone, whatever the row."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from devices import DTYPES, SameDigests, placed

import nncuda
from nncuda import kernels

#: So many rows that a block takes each (cuda/kernels/decode_workspace.h), on any GPU of today.
MANY = 400

#: temperature, top_k, top_p, min_p. A top_k that is no limit is larger than the vocabulary.
NONE = 2**31 - 1
OPTIONS = [
    (1.0, NONE, 1.0, 0.0),
    (0.0, NONE, 0.5, 0.0),
    (0.7, 50, 1.0, 0.0),
    (1.0, 1, 1.0, 0.0),
    (1.0, 3500, 1.0, 0.0),
    (1.0, NONE, 0.9, 0.0),
    (0.02, NONE, 0.9, 0.0),
    (1.3, NONE, 0.37, 0.01),
    (1.0, NONE, 1e-9, 0.0),
    (1.0, NONE, 0.9999999, 0.0),
    (100.0, NONE, 0.6, 0.0),
    (1.0, 50, 0.95, 0.0),
    (1.0, 2, 0.6, 0.0),
    (0.8, 3000, 0.8, 0.05),
    (0.1, 4000, 0.99, 0.0),
    (1.0, NONE, 1.0, 1.0),
]


def hard_rows(rng: np.random.Generator, vocab: int, dtype: str) -> np.ndarray:
    """As many as OPTIONS: spread, flat and tied logits, some with holes, infinities, nothing to draw. A row of
    few different logits has more of them in a bucket than are sorted.
    """
    x = np.zeros((len(OPTIONS), vocab))
    for i, scale in enumerate((3.0, 1.0, 0.01, 30.0, 4.0, 2.0, 1e-6, 3.0, 6.0, 3.0)):
        x[i] = rng.standard_normal(vocab) * scale
    x[4] = np.round(x[4])
    x[5, rng.random(vocab) < 0.4] = -np.inf
    x[7, rng.random(vocab) < 0.4] = np.nan
    x[8, rng.integers(vocab)] = 80.0  # an outlier that alone weighs anything
    x[9, rng.integers(vocab, size=9)] = np.inf
    x[10] = rng.choice([0.0, -0.0], vocab)
    x[11] = -np.inf
    x[12] = np.where(rng.random(vocab) < 0.5, 1.0, 1.25)
    x[13] = np.sort(rng.standard_normal(vocab))
    x[14, :] = -np.inf
    x[14, vocab - 1] = 2.0
    x[15] = rng.choice([-60000.0, 60000.0], vocab)
    return x.astype(DTYPES[dtype])


def draw(
    ctx: nncuda.Context, x: np.ndarray, chosen: list[tuple[float, int, float, float]], shift: int = 0
) -> np.ndarray:
    """Row i with options i and the seed that belongs to them."""
    temperature, top_k, top_p, min_p = zip(*chosen, strict=True)
    seeds = np.array([OPTIONS.index(o) * 977 - 5 for o in chosen], np.int64)
    args = {"seeds": ctx.tensor(seeds), "steps": ctx.tensor(np.full(len(x), 3, np.int32))}
    options = {
        "temperature": ctx.tensor(np.array(temperature, np.float32)),
        "top_k": ctx.tensor(np.array(top_k, np.int32)),
        "top_p": ctx.tensor(np.array(top_p, np.float32)),
        "min_p": ctx.tensor(np.array(min_p, np.float32)),
    }
    return kernels.minp_sample(placed(ctx, x, shift).view(*x.shape), **options, **args).numpy()


@pytest.mark.parametrize(("dtype", "vocab", "shift"), [("bf16", 4104, 0), ("f32", 4103, 0), ("f16", 4104, 1)])
def test_parts_of_a_row_find_the_token_of_a_block_alone(
    gpu: nncuda.Context, dtype: str, vocab: int, shift: int
) -> None:
    x = hard_rows(np.random.default_rng(vocab), vocab, dtype)
    for turn in range(4):  # each row with four of the options
        chosen = [OPTIONS[(i + 5 * turn) % len(OPTIONS)] for i in range(len(x))]
        alone = np.resize(np.arange(len(x)), MANY)
        expected = draw(gpu, x[alone], [chosen[i] for i in alone])[: len(x)]
        np.testing.assert_array_equal(draw(gpu, x, chosen, shift), expected)
        np.testing.assert_array_equal(draw(gpu, x[4:5], chosen[4:5]), expected[4:5])


@pytest.mark.parametrize("kernel", ["sample", "topk_sample", "topp_sample"])
def test_samplers_without_a_limit_draw_alike(gpu: nncuda.Context, kernel: str) -> None:
    x = hard_rows(np.random.default_rng(7), 9000, "bf16")
    none = [(0.9, NONE, 1.0, 0.0)] * len(x)
    plain = {
        "temperature": gpu.tensor(np.full(len(x), 0.9, np.float32)),
        "seeds": gpu.tensor(np.full(len(x), 11, np.int64)),
        "steps": gpu.tensor(np.zeros(len(x), np.int32)),
    }
    limits = {
        "top_k": gpu.tensor(np.array([o[1] for o in none], np.int32)),
        "top_p": gpu.tensor(np.array([o[2] for o in none], np.float32)),
        "min_p": gpu.tensor(np.array([o[3] for o in none], np.float32)),
    }
    asked = {"sample": (), "topk_sample": ("top_k",), "topp_sample": ("top_k", "top_p")}[kernel]
    logits = gpu.tensor(x)
    got = getattr(kernels, kernel)(logits, **plain, **{name: limits[name] for name in asked}).numpy()
    np.testing.assert_array_equal(got, kernels.minp_sample(logits, **plain, **limits).numpy())


def test_draws_reach_every_part_of_a_row(gpu: nncuda.Context) -> None:
    """Of 17 parts, in each of which two tokens are as likely as the others, and the rest are not."""
    vocab, rows, parts = 68000, 12, 17
    likely = np.array([part * vocab // parts + at for part in range(parts) for at in (1000, 3000)])
    x = np.full(vocab, -3.0, np.float32)
    x[likely] = 8.0
    logits = gpu.tensor(np.tile(x, (rows, 1)))
    temperature, top_p = (gpu.tensor(np.full(rows, value, np.float32)) for value in (1.0, 0.999))
    top_k = gpu.tensor(np.full(rows, len(likely), np.int32))
    drawn: set[int] = set()
    for step in range(12):
        seeds, steps = gpu.tensor(np.arange(rows)), gpu.tensor(np.full(rows, step, np.int32))
        drawn |= set(kernels.topp_sample(logits, temperature, top_k, top_p, seeds, steps).numpy().tolist())
    assert drawn <= set(likely.tolist())
    assert {token * parts // vocab for token in drawn} == set(range(parts))


def test_bad_options_are_reported_once_and_give_token_0(gpu: nncuda.Context) -> None:
    x = gpu.tensor(np.random.default_rng(3).standard_normal((3, 9000), np.float32))
    for name, bad, sentence in (
        ("temperature", -1.0, "finite and at least 0"),
        ("top_k", 0, "at least 1"),
        ("top_p", 1.5, "above 0 and at most 1"),
        ("min_p", np.nan, "0 to 1"),
    ):
        values: dict[str, list[float]] = {
            "temperature": [1.0] * 3,
            "top_k": [9] * 3,
            "top_p": [0.5] * 3,
            "min_p": [0.1] * 3,
        }
        values[name][1] = bad
        options = {
            key: gpu.tensor(np.array(value, np.int32 if key == "top_k" else np.float32))
            for key, value in values.items()
        }
        ids = gpu.tensor(np.full(3, -1, np.int32))
        seeds, steps = gpu.tensor(np.zeros(3, np.int64)), gpu.tensor(np.zeros(3, np.int32))
        kernels.minp_sample(x, **options, seeds=seeds, steps=steps, ids=ids)
        with pytest.raises(nncuda.Error, match=rf"{name}\[1\] is .*; it must be {sentence}"):
            gpu.synchronize()
        assert ids.numpy()[1] == 0


def test_digests(gpu: nncuda.Context, same_digests: SameDigests) -> None:
    """The tokens that another run, with --digests and the same file, drew."""
    found = {}
    for dtype, vocab in (("bf16", 24000), ("f32", 20001)):
        x = hard_rows(np.random.default_rng(vocab), vocab, dtype)
        for turn in range(3):
            chosen = [OPTIONS[(i + 6 * turn) % len(OPTIONS)] for i in range(len(x))]
            found[f"{dtype} {turn}"] = hashlib.sha256(draw(gpu, x, chosen).tobytes()).hexdigest()
    same_digests("-sample", found)


def logprobs(ctx: nncuda.Context, x: np.ndarray, n: int, shift: int = 0) -> list[np.ndarray]:
    """Of a token of each row, and the first n of each."""
    ids = np.arange(len(x), dtype=np.int32) * 37 % x.shape[1]
    given = placed(ctx, x, shift).view(*x.shape), ctx.tensor(ids)
    if n == 0:
        return [kernels.logprobs(*given).numpy()]
    return [made.numpy() for made in kernels.logprobs(*given, n=n, top_ids=True, top_logprobs=True)]


def spread_evenly(vocab: int, parts: int, n: int) -> np.ndarray:
    """A row of whose n first tokens each part has all but one: more are left than a block sorts out."""
    length = vocab // parts
    row = np.full((parts, length), -2.0)
    row[:, : (n - 1) * 32 : 32] = 1.0 + np.arange(parts)[:, None] / 32
    return row.reshape(-1)


@pytest.mark.parametrize(("dtype", "vocab", "shift"), [("bf16", 4104, 0), ("f32", 4103, 0), ("f16", 4104, 1)])
def test_parts_of_a_row_list_the_tokens_of_a_block_alone(
    gpu: nncuda.Context, dtype: str, vocab: int, shift: int
) -> None:
    x = hard_rows(np.random.default_rng(vocab), vocab, dtype)
    alone = np.resize(np.arange(len(x)), MANY)
    ids = kernels.argmax(gpu.tensor(x[alone])).numpy()[: len(x)]
    np.testing.assert_array_equal(kernels.argmax(placed(gpu, x, shift).view(*x.shape)).numpy(), ids)
    np.testing.assert_array_equal(kernels.argmax(gpu.tensor(x[3:4])).numpy(), ids[3:4])
    for n in (0, 5, 128):
        expected = [made[: len(x)] for made in logprobs(gpu, x[alone], n)]
        for one, other in zip(expected, logprobs(gpu, x, n, shift), strict=True):
            assert one.tobytes() == other.tobytes(), n
        for one, other in zip(logprobs(gpu, x[:1], n), expected, strict=True):
            assert one.tobytes() == other[:1].tobytes(), n


@pytest.mark.parametrize("n", [1, 128])
def test_first_tokens_of_many_parts(gpu: nncuda.Context, cpu: nncuda.Context, n: int) -> None:
    parts, vocab = 17, 17 * 4128
    x = np.zeros((4, vocab), np.float32)
    x[0] = spread_evenly(vocab, parts, n)
    x[1] = np.sort(np.random.default_rng(1).standard_normal(vocab))  # all in the last part
    x[2] = np.random.default_rng(2).standard_normal(vocab)  # and x[3], all alike, in the first
    for got, expected in zip(logprobs(gpu, x, n), logprobs(cpu, x, n), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2.0**-22)
    np.testing.assert_array_equal(kernels.argmax(gpu.tensor(x)).numpy(), kernels.argmax(cpu.tensor(x)).numpy())
