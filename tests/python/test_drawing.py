"""What is done to logits before tokens are drawn, log-probabilities, and constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from constraints import Alternating, Brackets, Failing, mask_of
from small_models import TINY, llama_config, stored_model

import nncuda
from nncuda import LanguageModel, Sampling
from nncuda.infer import TokenLogprobs, generate_batch
from nncuda.infer.batch import DecodeBatch, Row
from nncuda.infer.constraint import checked_mask
from nncuda.infer.drawing import Drawing
from nncuda.infer.engine import Engine, Part
from nncuda.infer.paged_cache import PAGE
from nncuda.infer.scheduler import Request, Scheduler
from nncuda.models import MoETransformer, StoredModel
from nncuda.reference import decode as reference

PENALTIES = {"presence_penalty": 0.7, "frequency_penalty": 0.45, "repetition_penalty": 1.35}
#: Logits that are nearer to each other than this may change places by rounding.
NEAR = 1e-3


def ids_of(length: int, seed: int = 0, vocab: int = 96) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, vocab, length, dtype=np.int32)


@pytest.fixture
def model(ctx: nncuda.Context) -> Iterator[LanguageModel]:
    with LanguageModel(stored_model(ctx, llama_config(), "q8_0"), ctx, context=512, max_batch=4) as made:
        yield made


def log_softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


def tokens_of(model: LanguageModel, prompt: Sequence[int], length: int, sampling: Sampling) -> list[int]:
    return [event.token for event in model.generate(prompt, length, sampling)]


# Penalties, biases, min_p


@pytest.mark.parametrize(
    "options",
    [
        PENALTIES,
        {"presence_penalty": -1.5},
        {"frequency_penalty": 0.9},
        {"repetition_penalty": 0.8},
        {"logit_bias": {5: 3.0, 90: -50.0, 11: 2.0}},
        {**PENALTIES, "logit_bias": {5: 3.0, 90: -50.0, 11: 2.0}},
    ],
    ids=str,
)
def test_greedy_tokens_are_those_of_the_definition(model: LanguageModel, options: dict[str, object]) -> None:
    """Over a whole continuation: the logits after the text so far, changed as the reference does."""
    sampling = Sampling(0.0, **options)  # type: ignore[arg-type]
    prompt = ids_of(30, 2)
    tokens = tokens_of(model, prompt.tolist(), 60, sampling)
    raw = model.logits([*prompt.tolist(), *tokens])[len(prompt) - 1 : -1].astype(np.float64)
    decided = 0
    for at, token in enumerate(tokens):
        x = raw[at]
        for other in range(96):
            if sampling.repetition_penalty != 1 and other in {*prompt.tolist(), *tokens[:at]}:
                x[other] *= sampling.repetition_penalty if x[other] <= 0 else 1 / sampling.repetition_penalty
            count = tokens[:at].count(other)
            x[other] -= sampling.frequency_penalty * count + sampling.presence_penalty * (count > 0)
            x[other] += sampling.logit_bias.get(other, 0.0)
        first, second = np.sort(x)[:-3:-1]
        if first - second > NEAR:
            assert token == x.argmax()
            decided += 1
    assert decided > 50
    assert tokens != tokens_of(model, prompt.tolist(), 60, Sampling(0.0))


def test_a_bias_forbids_and_forces(model: LanguageModel) -> None:
    plain = tokens_of(model, [1, 2, 3], 30, Sampling(seed=4))
    without = tokens_of(model, [1, 2, 3], 30, Sampling(seed=4, logit_bias=dict.fromkeys(plain, -1e9)))
    assert not set(without) & set(plain)
    assert tokens_of(model, [1, 2, 3], 5, Sampling(seed=4, logit_bias={17: 1e9})) == [17] * 5


def test_min_p_keeps_what_is_likely(model: LanguageModel) -> None:
    prompt = [4, 9]
    share = np.exp(log_softmax(model.logits(prompt)[-1] / 4))
    for min_p in (0.05, 0.3, 1.0):
        drawn = {tokens_of(model, prompt, 1, Sampling(4.0, min_p=min_p, seed=seed))[0] for seed in range(60)}
        assert drawn <= set(np.flatnonzero(share >= 0.999 * min_p * share.max()).tolist())
        assert len(drawn) == 1 if min_p == 1 else len(drawn) > 1
    for options in ({}, {"top_k": 9}, {"top_p": 0.8}):
        wanted = tokens_of(model, prompt, 20, Sampling(seed=3, **options))
        assert tokens_of(model, prompt, 20, Sampling(seed=3, min_p=0.0, **options)) == wanted


def test_options_that_are_refused(model: LanguageModel) -> None:
    for options, problem in (
        ({"min_p": 1.5}, "min_p is 1.5; it must be 0 to 1"),
        ({"min_p": float("nan")}, "min_p is nan"),
        ({"presence_penalty": float("inf")}, "presence_penalty is inf; it must be a finite number"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty is nan"),
        ({"frequency_penalty": 1e39}, "frequency_penalty is 1e.39"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0; it must be a finite number above 0"),
        ({"repetition_penalty": -1.0}, "repetition_penalty is -1.0"),
        ({"logit_bias": {"a": 1.0}}, "logit_bias has the key 'a'; it must be a token id"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias has the key -1"),
        ({"logit_bias": {3: float("nan")}}, "logit_bias of token 3 is nan; it must be a finite number"),
    ):
        with pytest.raises(ValueError, match=problem):
            Sampling(**options)  # type: ignore[arg-type]
    with pytest.raises(nncuda.OutOfRangeError, match=r"logit_bias\[1\] is 96; it must be 0 to 95"):
        model.generate([1], 1, Sampling(logit_bias={3: 1.0, 96: 1.0}))
    for name in ("logprobs", "prompt_logprobs"):
        for count in (-1, 21):
            with pytest.raises(ValueError, match=f"{name} is {count}; it must be 0 to 20, or None"):
                model.generate([1], 1, **{name: count})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="alternatives is 21"):
        model.logprobs([1, 2], 21)
    with pytest.raises(ValueError, match="there are 1 constraints for 2 prompts; each needs its own"):
        model.generate([[1], [2]], 1, constraint=Alternating())
    assert hash(Sampling(logit_bias={1: 2.0})) == hash(Sampling())


def test_the_layers_that_train_draw_the_same(ctx: nncuda.Context) -> None:
    """Over a contiguous cache, too: options are options."""
    made = MoETransformer(ctx, TINY, seed=4, training=False)
    options = Sampling(0.9, seed=3, min_p=0.05, logit_bias={5: 2.0}, **PENALTIES)  # type: ignore[arg-type]
    prompts = [ids_of(8, 1, 48), ids_of(5, 2, 48)]
    steps = list(generate_batch(made, prompts, 15, options))
    engine = Engine(StoredModel.of(made), ctx, cache_format="f32", weights="file")
    scheduler = Scheduler(engine)
    requests = [Request(prompts[0], 15, options)]
    scheduler.add(requests[0])
    while not scheduler.idle:
        scheduler.step()
    assert [step[0] for step in steps] == list(requests[0].tokens)
    plain = [step[0] for step in generate_batch(made, prompts, 15, Sampling(0.9, seed=3))]
    assert plain != [step[0] for step in steps]
    with pytest.raises(nncuda.OutOfRangeError, match="logit_bias"):
        generate_batch(made, prompts, 3, Sampling(logit_bias={48: 1.0}))


# What it costs


def joined(engine: Engine, *drawings: Drawing, alternatives: int | None = None) -> DecodeBatch:
    batch = DecodeBatch(engine)
    for seed, drawing in enumerate(drawings):
        sequence = engine.cache.open()
        engine.prefill([Part(sequence, ids_of(5, seed), False)])
        batch.join(Row(sequence, drawing, token=seed, alternatives=alternatives))
    batch.step()
    return batch


def test_calls_are_made_for_what_is_used_alone(ctx: nncuda.Context) -> None:
    """One graph holds a step; what rows ask for adds its calls, and nothing else does."""
    engine = Engine(stored_model(ctx, llama_config()), ctx, context=256, max_batch=3)
    prompt = ids_of(5)

    def calls(sampling: Sampling, alternatives: int | None = None, mask: np.ndarray | None = None) -> int:
        drawing = Drawing.of(sampling, prompt, 10)
        drawing.mask = mask
        batch = joined(engine, drawing, Drawing(Sampling(0.0)), alternatives=alternatives)
        (graph,) = batch._graphs.values()
        batch.step()
        assert len(batch._graphs) == 1
        count = len(graph)
        batch.close()
        engine.cache = type(engine.cache)(ctx, layers=2, kv_heads=2, head_dim=32, pages=8, context=256)
        return count

    greedy = calls(Sampling(0.0))
    sampled = calls(Sampling(1.0))
    assert sampled == greedy + 1  # counting the draws
    assert calls(Sampling(1.0, min_p=0.1)) == sampled
    assert calls(Sampling(0.0, presence_penalty=1.0)) == greedy + 2  # and counting the tokens
    assert calls(Sampling(0.0, logit_bias={1: 1.0})) == greedy + 1
    assert calls(Sampling(0.0), mask=checked_mask(mask_of([1, 2, 3]), 96)) == greedy + 1
    assert calls(Sampling(0.0), alternatives=3) == greedy + 1
    assert calls(Sampling(0.0, logit_bias={1: 1.0}), alternatives=3) == greedy + 3  # and a copy of the logits


def test_memory_is_taken_when_it_is_used_and_stays(ctx: nncuda.Context, model: LanguageModel) -> None:
    sampler = model.scheduler.batch._sampler
    tokens_of(model, [1, 2], 40, Sampling(seed=1, min_p=0.2))
    assert sampler._penalties is sampler._biases is sampler._masks is model.scheduler.batch._scores is None
    assert sampler.generation == 0
    used = set()
    for event in model.generate([1, 2], 300, Sampling(seed=1, **PENALTIES), end_ids=()):  # type: ignore[arg-type]
        if event.finish is None:
            used.add(ctx.bytes_used)
    assert len(used) <= 2  # before the first step of the batch, and from then on
    assert sampler.generation == 1 and sampler._penalties is not None and sampler._penalties.capacity == 96
    more = dict.fromkeys(range(50), 0.1)
    tokens_of(model, [1, 2], 3, Sampling(logit_bias={1: 0.1}))
    tokens_of(model, [1, 2], 3, Sampling(logit_bias=more))
    assert sampler.generation == 3 and sampler._biases is not None and sampler._biases.capacity == 64


def test_lists_hold_what_was_drawn(ctx: nncuda.Context) -> None:
    """The device counts as the host does, and with rows that count nothing between."""
    engine = Engine(stored_model(ctx, llama_config()), ctx, context=256, max_batch=4)
    prompt = ids_of(20)
    some = Sampling(1.5, seed=3, **PENALTIES)  # type: ignore[arg-type]
    drawings = [
        Drawing.of(some, prompt, 60),
        Drawing(Sampling(seed=2)),
        Drawing.of(Sampling(frequency_penalty=1.0), prompt, 60),
    ]
    batch = joined(engine, *drawings)
    for _ in range(40):
        batch.step()
    penalties = batch._sampler._penalties
    assert penalties is not None
    lengths = penalties._lengths.numpy()[:3].tolist()
    assert lengths == [len(drawings[0].seen or ()), -1, len(drawings[2].seen or ())]
    for at in (0, 2):
        ids, counts = (tensor.numpy()[at, : lengths[at]].tolist() for tensor in (penalties._ids, penalties._counts))
        assert dict(zip(ids, counts, strict=True)) == drawings[at].seen and ids == sorted(ids)
    assert sum((drawings[2].seen or {}).values()) == 41 and set(prompt.tolist()) <= set(drawings[0].seen or ())
    batch.close()


# Log-probabilities


def check_scores(found: TokenLogprobs, token: int, exact: np.ndarray, alternatives: int) -> None:
    tolerance = 1e-5
    assert abs(found.logprob - exact[token]) < tolerance
    assert len(found.top) == alternatives
    order = np.argsort(-exact, kind="stable")[:alternatives]
    for (other, logprob), place in zip(found.top, order, strict=True):
        assert abs(logprob - exact[place]) < tolerance and abs(exact[other] - exact[place]) < tolerance
    assert [logprob for _, logprob in found.top] == sorted((logprob for _, logprob in found.top), reverse=True)


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.3, "min_p": 0.2, "logit_bias": {3: 5.0}, **PENALTIES}], ids=str
)
def test_logprobs_are_those_of_the_models_own_logits(model: LanguageModel, options: dict[str, object]) -> None:
    prompt = ids_of(20).tolist()
    sampling = Sampling(seed=8, **options)  # type: ignore[arg-type]
    plain = tokens_of(model, prompt, 20, sampling)
    events = list(model.generate(prompt, 20, sampling, logprobs=5))
    assert [event.token for event in events] == plain
    exact = log_softmax(model.logits([*prompt, *plain]))[len(prompt) - 1 :]
    for at, event in enumerate(events):
        assert event.logprobs is not None and event.prompt_logprobs is None
        check_scores(event.logprobs, event.token, exact[at], 5)
    alone = [event.logprobs for event in model.generate(prompt, 20, sampling, logprobs=0)]
    assert [one and one.logprob for one in alone] == [event.logprobs and event.logprobs.logprob for event in events]
    assert all(one is not None and one.top == () for one in alone)


@pytest.mark.parametrize("length", [1, 2, 65, 300])
def test_logprobs_of_a_prompt(model: LanguageModel, length: int) -> None:
    prompt = ids_of(length, 3).tolist()
    whole = model.logprobs(prompt, 3)
    exact = log_softmax(model.logits(prompt))
    assert len(whole) == length and whole[0] is None
    for at, one in enumerate(whole[1:]):
        assert one is not None
        check_scores(one, prompt[at + 1], exact[at], 3)
    plain = tokens_of(model, prompt, 3, Sampling(seed=1))
    for _ in range(2):  # with the prompt in the cache, too
        events = list(model.generate(prompt, 3, Sampling(seed=1), logprobs=1, prompt_logprobs=3))
        assert events[0].prompt_logprobs == tuple(whole)
        assert [event.prompt_logprobs for event in events[1:]] == [None, None]
        assert [event.token for event in events] == plain
        (event,) = model.generate(prompt, 0, prompt_logprobs=3)
        assert (event.token, event.text, event.finish, event.prompt_logprobs) == (-1, "", "length", tuple(whole))
    assert model.engine.cache.used == 0


def test_logprobs_of_several_prompts_in_pieces(ctx: nncuda.Context) -> None:
    stored = stored_model(ctx, llama_config(), "q8_0")
    prompts = [ids_of(length, length).tolist() for length in (1, 90, 3, 200, 33)]
    with LanguageModel(stored, ctx, context=512, cache_tokens=8 * PAGE) as one:
        wanted = [tuple(one.logprobs(prompt, 2)) for prompt in prompts]
    for piece in (7, 64, 150):
        with LanguageModel(stored, ctx, context=512, piece=piece, max_batch=2, cache_tokens=8 * PAGE) as small:
            assert [tuple(small.logprobs(prompt, 2)) for prompt in prompts] == wanted
            found = {}
            for event in small.generate(prompts, 2, prompt_logprobs=2):
                if event.prompt_logprobs is not None:
                    found[event.prompt] = event.prompt_logprobs
            assert [found[number] for number in range(len(prompts))] == wanted


def test_equal_logits_are_listed_by_id() -> None:
    """As the reference does, and so the kernels: the lower id first."""
    found = reference.logprobs(np.zeros((1, 5)), np.array([3]), 3)
    assert found["top_ids"].tolist() == [[0, 1, 2]]


# Constraints


def test_a_constraint_says_what_may_be_next(model: LanguageModel) -> None:
    free = tokens_of(model, [1, 2], 30, Sampling(seed=1))
    for sampling in (Sampling(0.0), Sampling(seed=1), Sampling(1.4, top_k=3, min_p=0.1, seed=2, **PENALTIES)):  # type: ignore[arg-type]
        tokens = [event.token for event in model.generate([1, 2], 30, sampling, constraint=Alternating())]
        assert [token % 2 for token in tokens] == [0, 1] * 15
    assert [token % 2 for token in free] != [0, 1] * 15
    # Beside others that have none, or another one.
    together: dict[int, list[int]] = {0: [], 1: [], 2: []}
    rules = [None, Alternating(), Brackets(40, 41, 3, 9)]
    for event in model.generate([[1, 2]] * 3, 30, [Sampling(seed=1)] * 3, constraint=rules):
        together[event.prompt].append(event.token)
    assert together[0] == free
    assert together[1] == [
        event.token for event in model.generate([1, 2], 30, Sampling(seed=1), constraint=Alternating())
    ]
    assert together[2].count(40) == together[2].count(41) == 9 and len(together[2]) == 18


def test_a_constraint_ends_the_text(model: LanguageModel) -> None:
    events = list(model.generate([5], 100, Sampling(seed=1), constraint=Brackets(10, 70, 2, 4)))
    depth = 0
    for event in events:
        depth += 1 if event.token == 10 else -1
        assert 0 <= depth <= 2
    assert len(events) == 8 and depth == 0 and events[-1].finish == "stop"
    (event,) = model.generate([5], 100, constraint=Brackets(10, 70, 2, 0))
    assert (event.token, event.finish) == (-1, "stop")
    assert model.engine.cache.used == 0 and model.scheduler.idle


def test_logprobs_beside_a_constraint(model: LanguageModel) -> None:
    """Those of the model, not those of what is allowed."""
    events = list(model.generate([1, 2], 6, Sampling(0.0), constraint=Alternating(), logprobs=2))
    exact = log_softmax(model.logits([1, 2, *(event.token for event in events)]))[1:]
    for at, event in enumerate(events):
        assert event.logprobs is not None
        check_scores(event.logprobs, event.token, exact[at], 2)


def test_a_constraint_that_fails_ends_its_own_request(model: LanguageModel) -> None:
    wanted = tokens_of(model, [3, 4], 12, Sampling(seed=5))
    other = model.generate([3, 4], 12, Sampling(seed=5))
    first = next(other)
    failing = model.generate([1], 12, constraint=Failing(3))
    tokens = []
    with pytest.raises(LookupError, match="the grammar is lost"):
        for event in failing:
            tokens.append(event.token)
            assert event.finish is None
    assert len(tokens) == 3  # that which it was told last was drawn
    assert [first.token, *(event.token for event in other)] == wanted
    with pytest.raises(TypeError, match=r"the mask is float64 of shape \(3,\); it must be int32 or uint32 \[words\]"):
        list(model.generate([1], 2, constraint=Wrong()))
    assert model.engine.cache.used == 0 and model.scheduler.idle


class Wrong:
    def mask(self) -> np.ndarray:
        return np.ones(3)

    def accept(self, token: int) -> None:
        raise AssertionError


def test_masks_end_with_the_vocabulary() -> None:
    assert checked_mask(np.full(5, -1, np.int32), 70).view(np.uint32).tolist() == [2**32 - 1, 2**32 - 1, 63]
    assert checked_mask(np.array([5], np.uint32), 70).tolist() == [5, 0, 0]
    assert checked_mask(np.full(2, -1, np.int32), 64).tolist() == [-1, -1]
    assert not checked_mask(np.array([0, 0, 64], np.int32), 70).any()  # a bit of no token


def test_steps_are_not_run_ahead_of_the_host_where_it_has_a_say(ctx: nncuda.Context) -> None:
    engine = Engine(stored_model(ctx, llama_config()), ctx, context=256)
    for options, ahead in (({}, 1), ({"logprobs": 1}, 0), ({"constraint": Alternating()}, 0)):
        scheduler = Scheduler(engine, ahead=True)
        scheduler.add(Request(ids_of(10), 20, Sampling(seed=1, **PENALTIES), **options))  # type: ignore[arg-type]
        for _ in range(5):
            scheduler.step()
        assert len(scheduler.batch._under_way) == ahead
        scheduler.close()
