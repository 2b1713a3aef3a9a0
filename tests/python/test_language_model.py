"""LanguageModel: text in, text out, for one prompt and for many at once."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from small_models import TINY, language_model, llama_config, save_tiny, stored_model

import nncuda
from nncuda import LanguageModel, Sampling
from nncuda.formats import FormatError
from nncuda.infer import CacheFullError
from nncuda.infer.text import StopStrings
from nncuda.models import MoETransformer
from nncuda.models.config import Precision
from nncuda.models.stored import StoredModel
from nncuda.tokenizer import Tokenizer

PROMPTS = ["the sea", "a small ship sails", "waves"]


@pytest.fixture
def model(ctx: nncuda.Context, tokenizer: Tokenizer) -> Iterator[LanguageModel]:
    with language_model(ctx, tokenizer) as made:
        yield made


EXPERTS = "model.layers.0.block_sparse_moe.experts"


def texts_of(model: LanguageModel, prompts: list[str], **options: object) -> list[str]:
    found = [""] * len(prompts)
    for event in model.generate(prompts, **options):
        found[event.prompt] += event.text
    return found


def test_events_tell_every_token(model: LanguageModel, tokenizer: Tokenizer) -> None:
    events = list(model.generate(PROMPTS, 12, end_ids=()))  # more prompts than the batch holds
    for number, prompt in enumerate(PROMPTS):
        mine = [event for event in events if event.prompt == number]
        assert [event.finish for event in mine] == [None] * 11 + ["length"]
        ids = tokenizer.encode(prompt, begin=True)
        alone = list(model.generate(ids, 12, end_ids=()))
        assert [event.token for event in alone] == [event.token for event in mine]
        assert "".join(event.text for event in mine) == "".join(event.text for event in alone)
        logits = model.logits(ids + [event.token for event in mine])
        assert logits.shape == (len(ids) + 12, model.config.vocab_size) and logits.dtype == np.float32
        assert [int(row.argmax()) for row in logits[len(ids) - 1 : -1]] == [event.token for event in mine]


def test_streams_and_whole_texts(model: LanguageModel) -> None:
    whole = model.complete(PROMPTS, 10)
    assert whole == texts_of(model, PROMPTS, max_new_tokens=10)
    for prompt, text in zip(PROMPTS, whole, strict=True):
        assert "".join(model.stream(prompt, 10)) == model.complete(prompt, 10) == text


def test_seeds(model: LanguageModel) -> None:
    """Prompt i of a batch draws with seed + i, unless each has a seed of its own."""
    together = model.complete(["the sea"] * 3, 20, Sampling(seed=5))
    assert len(set(together)) == 3
    for number, text in enumerate(together):
        assert model.complete("the sea", 20, Sampling(seed=5 + number)) == text
    each = [Sampling(seed=7), Sampling(temperature=0.0), Sampling(seed=7)]
    first, greedy, third = model.complete(["the sea"] * 3, 20, each)
    assert first == third == together[2] and greedy == model.complete("the sea", 20)
    with pytest.raises(ValueError, match="2 samplings for 3 prompts"):
        model.generate(PROMPTS, 3, each[:2])


def test_two_generations_in_turns(model: LanguageModel) -> None:
    wanted = [model.complete(prompt, 15) for prompt in PROMPTS[:2]]
    first, second = (model.stream(prompt, 15) for prompt in PROMPTS[:2])
    texts = ["", ""]
    left = {0: first, 1: second}
    while left:
        for number, pieces in list(left.items()):
            piece = next(pieces, None)
            if piece is None:
                del left[number]
            else:
                texts[number] += piece
    assert texts == wanted


def test_it_ends_at_end_ids_and_stop_strings(model: LanguageModel) -> None:
    free = list(model.generate(PROMPTS[0], 30, Sampling(seed=1), end_ids=()))
    token = free[8].token
    first = next(number for number, event in enumerate(free) if event.token == token)
    ended = list(model.generate(PROMPTS[0], 30, Sampling(seed=1), end_ids=[token]))
    assert [event.token for event in ended] == [event.token for event in free[: first + 1]]
    assert ended[-1].finish == "end"
    assert "".join(event.text for event in ended) == model.tokenizer.decode([e.token for e in free[:first]])
    text = "".join(event.text for event in free)
    stop = text[5:9]
    events = list(model.generate(PROMPTS[0], 30, Sampling(seed=1), end_ids=(), stop=["no such text", stop]))
    assert "".join(event.text for event in events) == text[: text.index(stop)]
    assert events[-1].finish == "stop" and len(events) < len(free)
    assert model.engine.cache.used == 0 and model.scheduler.idle


def test_stop_strings_hold_back_what_may_be_one() -> None:
    for text in ("abcabd and more", "ababab", "xabab", "abdab"):
        for cut in range(len(text)):
            stops = StopStrings(["abab", "bd"])
            found, stopped = stops.push(text[:cut])
            assert not stopped or any(stop in text[:cut] for stop in ("abab", "bd"))
            if not stopped:
                more, stopped = stops.push(text[cut:])
                found += more
            if not stopped:
                found += stops.flush()
            ends = [text.find(stop) for stop in ("abab", "bd") if stop in text]
            assert found == (text[: min(ends)] if ends else text)
            assert stopped == bool(ends)
    assert StopStrings([]).push("anything") == ("anything", False)
    with pytest.raises(ValueError, match="empty"):
        StopStrings(["a", ""])


def test_leaving_the_loop_frees_the_places(model: LanguageModel) -> None:
    for event in model.generate(PROMPTS, 50):
        if event.prompt == 1:
            break
    del event
    model.scheduler.step()  # nothing is left to do
    assert model.scheduler.idle and model.engine.cache.used == 0


def test_cancel(model: LanguageModel) -> None:
    flag = threading.Event()
    events = []
    for event in model.generate(PROMPTS, 50, end_ids=(), cancel=flag):
        events.append(event)
        if len(events) == 20:
            flag.set()
    last = {event.prompt: event for event in events}
    assert [last[number].finish for number in range(3)] == ["cancelled"] * 3
    assert [last[number].token for number in range(3)] == [-1] * 3
    assert model.scheduler.idle and model.engine.cache.used == 0


def test_without_a_number_it_fills_the_context(model: LanguageModel) -> None:
    ids = model.encode("the sea")
    assert len(list(model.generate("the sea", end_ids=()))) == model.room(ids) == 256 - len(ids) + 1
    assert len(list(model.generate("the sea", 0))) == 1
    assert [(event.token, event.text, event.finish) for event in model.generate("the sea", 0)] == [(-1, "", "length")]


def test_a_conversation_costs_its_new_tokens_alone(model: LanguageModel) -> None:
    messages = [{"role": "system", "content": "you sail"}, {"role": "user", "content": "the sea " * 12}]
    answer = "".join(model.chat(messages, 30, end_ids=(), stop=()))
    assert answer == model.complete(model.chat_ids(messages), 30, end_ids=())
    longer = [*messages, {"role": "assistant", "content": answer}, {"role": "user", "content": "and?"}]
    before, after = model.chat_ids(messages), model.chat_ids(longer)
    assert after[: len(before)].tolist() == before.tolist()
    shared = model.scheduler.statistics.shared_tokens
    list(model.chat(longer, 1, stop=()))
    assert model.scheduler.statistics.shared_tokens - shared >= len(before)
    with pytest.raises(ValueError, match=r'messages\[0\] has \[\'content\'\]; it must have "role" and "content"'):
        model.chat([{"content": "hello"}])


def test_what_it_refuses_before_anything_runs(model: LanguageModel) -> None:
    for prompts, options, error, problem in (
        ([[], [1]], {}, ValueError, "at least one token"),
        ([], {}, ValueError, "at least one token"),
        ([1, 300], {}, IndexError, r"ids\[1\] is 300"),
        ("the sea " * 300, {}, ValueError, "the context has room for 256"),
        ("sea", {"max_new_tokens": -1}, ValueError, "max_new_tokens is -1"),
        ("sea", {"stop": ""}, ValueError, "a stop string is empty"),
    ):
        with pytest.raises(error, match=problem):
            model.generate(prompts, **options)
    assert model.scheduler.idle


def test_more_than_the_cache_holds(ctx: nncuda.Context) -> None:
    model = LanguageModel(stored_model(ctx, llama_config()), ctx, context=512, cache_tokens=256)
    with pytest.raises(CacheFullError, match="cache_tokens is 256"):
        model.generate([1, 2, 3], 400)
    with pytest.raises(ValueError, match="in memory has no tokenizer, so it accepts and returns ids only"):
        model.generate("text", 4)
    with pytest.raises(ValueError, match="stop strings need a tokenizer"):
        model.generate([1], 4, stop="x")
    assert [event.text for event in model.generate([1, 2, 3], 5)] == [""] * 5


def test_load(ctx: nncuda.Context, tmp_path: Path) -> None:
    checkpoint_folder = save_tiny(ctx, tmp_path)
    with LanguageModel.load(checkpoint_folder, threads=2, context=32) as model:
        assert model.context == 32 and model.config.num_experts == 4
        assert len(list(model.generate([1, 2, 3], 5, end_ids=()))) == 5
        ctx = model.ctx
    assert ctx.closed
    model.close()
    with pytest.raises(FormatError, match=r"none\.gguf"):
        LanguageModel.load(tmp_path / "none.gguf")
    with pytest.raises(ValueError, match="context is 1000; this model takes 1 to 64"):
        LanguageModel.load(checkpoint_folder, context=1000)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_model_in_memory(ctx: nncuda.Context, tmp_path: Path, tokenizer: Tokenizer, precision: Precision) -> None:
    """It runs as what it saves does, to the bit, and goes on training or generating by itself."""
    config = dataclasses.replace(TINY, vocab_size=tokenizer.vocab_size)
    trained = MoETransformer(ctx, config, seed=4, precision=precision, training=False)
    with LanguageModel.of(trained, tokenizer, cache_format="f32") as model:
        texts, logits = model.complete(PROMPTS, 10, Sampling(seed=2)), model.logits(PROMPTS[0])
        assert model.complete("the", 4) and "MoETransformer" in repr(model)
    trained.save(tmp_path / "saved", tokenizer)
    with LanguageModel(StoredModel.open(tmp_path / "saved"), ctx, cache_format="f32") as model:
        assert model.complete(PROMPTS, 10, Sampling(seed=2)) == texts
        np.testing.assert_array_equal(model.logits(PROMPTS[0]), logits)
    assert len(list(nncuda.generate(trained, [1, 2], 3))) == 3
    with LanguageModel.of(trained) as model:
        weights, first = model.engine.weights, model.engine.weights.layers[0]
        assert weights.head.data.ptr == trained.weights["lm_head.weight"].ptr  # in place
        assert first.ffn.experts.w2.data.ptr == trained.weights[f"{EXPERTS}.0.w2.weight"].ptr
        assert first.ffn.experts.w1.data.ptr != trained.weights[f"{EXPERTS}.0.w1.weight"].ptr
        assert len(list(model.generate([1, 2], 3, end_ids=()))) == 3
        with pytest.raises(ValueError, match="MoETransformer has no tokenizer"):
            model.complete("the", 4)
    with pytest.raises(ValueError, match="the tokenizer has 280 tokens, the model 48"):
        LanguageModel.of(MoETransformer(ctx, TINY), tokenizer)


def test_a_model_that_trains_is_copied(ctx: nncuda.Context) -> None:
    trained = MoETransformer(ctx, TINY, seed=4)
    with LanguageModel.of(trained) as model:
        logits = model.logits([1, 2, 3])
        trained.parameters.data.zero_()
        np.testing.assert_array_equal(model.logits([1, 2, 3]), logits)
    with LanguageModel.of(trained) as model:
        assert not model.logits([1, 2, 3]).any()
