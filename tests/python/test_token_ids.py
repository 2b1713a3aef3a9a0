"""Ids, targets and prompts, wherever they are given: an id is never wrapped or truncated, and a text is never taken for
ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_models
from small_models import TINY, random_batch

import nncuda
from nncuda import LanguageModel, MoETransformer, TrainConfig, Trainer
from nncuda.formats import write_shard
from nncuda.infer import Sampling, TextGenerator, generate, generate_batch
from nncuda.token_ids import token_ids
from nncuda.tokenizer import Tokenizer

#: What is no prompt of ids, the error, and what it says.
NO_PROMPTS: list[tuple[Any, type[Exception], str]] = [
    ([1, 2**32 + 1], IndexError, r"\[1\] is 4294967297; it must be 0 to "),
    ([2**64, 1], IndexError, r"\[0\] is 18446744073709551616; it must be 0 to "),
    (np.array([1, 2**32 + 1]), IndexError, r"\[1\] is 4294967297"),
    (np.array([2**32 + 1], np.uint64), IndexError, r"\[0\] is 4294967297"),
    ([-1], IndexError, r"\[0\] is -1; it must be 0 to "),
    ([1, 1.7], TypeError, r"\[1\] is 1\.7; token ids are whole numbers"),
    (np.array([1.0, 2.0]), TypeError, r"\[0\] is 1\.0; token ids are whole numbers"),
    (np.array([np.float64(1)], object), TypeError, r"\[0\] is .*1\.0.*; token ids are whole numbers"),
    ([True], TypeError, r"\[0\] is True; token ids are whole numbers"),
    ([1, None], TypeError, r"\[1\] is None; token ids are whole numbers"),
    ([1.5, None], TypeError, r"\[0\] is 1\.5; token ids are whole numbers"),
    (7, ValueError, "one dimension"),
    (np.ones((2, 3), np.int32), ValueError, r"has shape \[2, 3\]; it must have one dimension"),
    ({1, 2}, TypeError, r"is \{1, 2\}; it must be token ids"),
]
TEXT_PROMPTS: list[tuple[Any, type[Exception], str]] = [
    ("text", TypeError, r"'text'; it must be token ids: TextGenerator and LanguageModel take texts, and tokenizer"),
    (["text", "more"], TypeError, r"\[0\] is 'text'; token ids are whole numbers: TextGenerator and Lang"),
    (None, TypeError, "is None; it must be token ids, such as"),
    ([], ValueError, "at least one token"),
    ([[1, 2], [3]], ValueError, "rows of different lengths"),
]


@pytest.fixture
def tiny(ctx: nncuda.Context) -> MoETransformer:
    return MoETransformer(ctx, TINY, seed=0)


@pytest.fixture
def language_model(ctx: nncuda.Context, tokenizer: Tokenizer) -> Iterator[LanguageModel]:
    with small_models.language_model(ctx, tokenizer) as made:
        yield made


@pytest.mark.parametrize(("prompt", "kind", "message"), NO_PROMPTS + TEXT_PROMPTS)
def test_prompts_of_a_model(tiny: MoETransformer, prompt: Any, kind: type[Exception], message: str) -> None:
    """`generate` says so at once, not when the first token is asked for."""
    for call in (
        lambda: generate(tiny, prompt, 3),
        lambda: generate_batch(tiny, [[1], prompt], 3),
        lambda: tiny.prefill(prompt, tiny.cache(1, 8), 0),
    ):
        with pytest.raises(kind, match=message):
            call()


def test_prompts_of_a_batch(tiny: MoETransformer) -> None:
    expected = [list(generate(tiny, ids, 3)) for ids in ([1, 2], [3, 4])]
    for prompts in ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]]), ((1, 2), range(3, 5)), (np.array([1, 2]), [3, 4])):
        assert [list(row) for row in zip(*generate_batch(tiny, prompts, 3), strict=True)] == expected
    on_device = tiny.ctx.tensor([1, 2])
    assert list(generate(tiny, on_device, 3)) == expected[0]
    for prompts, kind, message in (
        ("text", TypeError, "prompts is 'text'; it must be a sequence of prompts"),
        (["text"], TypeError, r"prompts\[0\] is the text 'text'"),
        ([1, 2], ValueError, r"prompts\[0\] has shape \[\]; it must have one dimension"),
        (None, TypeError, "prompts is None"),
        ([], ValueError, "prompts is empty"),
    ):
        with pytest.raises(kind, match=message):
            generate_batch(tiny, prompts, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_new_tokens is -1"):
        generate_batch(tiny, [[1]], -1)


@pytest.mark.parametrize(("prompt", "kind", "message"), NO_PROMPTS)
def test_prompts_of_a_language_model(
    language_model: LanguageModel, prompt: Any, kind: type[Exception], message: str
) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: language_model.generate(prompt, 2),
        lambda: language_model.generate([prompt, "the sea"], 2),
        lambda: language_model.stream(prompt, 2),
        lambda: language_model.complete(prompt, 2),
        lambda: language_model.logits(prompt),
    ]
    for call in calls:
        with pytest.raises(kind, match=message):
            call()
    assert language_model.scheduler.idle


def test_prompts_that_a_language_model_takes(language_model: LanguageModel, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("the sea", begin=True)
    expected = language_model.complete("the sea", 5)
    for prompt in (ids, tuple(ids), np.array(ids), language_model.ctx.tensor(ids)):
        assert language_model.complete(prompt, 5) == expected
        assert language_model.complete([prompt, "the sea"], 5) == [expected] * 2
    for ends in ((ids[-1],), frozenset(ids), np.array(ids), ()):
        language_model.complete("the sea", 2, end_ids=ends)  # type: ignore[arg-type]
    for wrong, kind in (("</s>", TypeError), ([1.5], TypeError), ([2**32 + 1], IndexError)):
        with pytest.raises(kind, match=r"end_ids\[0\] is "):
            language_model.generate("the sea", 2, end_ids=wrong)  # type: ignore[arg-type]
    for wrong, kind in ((None, TypeError), ([], ValueError), ([None], TypeError)):
        with pytest.raises(kind):
            language_model.generate(wrong, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["input_ids", "targets"])
def test_batches(tiny: MoETransformer, name: str) -> None:
    trainer = Trainer(tiny, TrainConfig(sequence_length=8))
    inputs, targets = random_batch(TINY, 2, 8)
    before = tiny.parameters.data.numpy()
    good = {"input_ids": inputs, "targets": targets}

    def changed(value: Any, dtype: Any) -> Any:
        array = good[name].astype(dtype)
        array[1, 3] = value
        return array

    cases: list[tuple[Any, type[Exception], str]] = [
        (changed(2**32 + 1, np.int64), IndexError, rf"{name}\[1, 3\] is 4294967297; it must be 0 to 47"),
        (changed(2**32 + 1, np.uint64).tolist(), IndexError, rf"{name}\[1, 3\] is 4294967297"),
        (changed(1.7, np.float64), TypeError, rf"{name}\[1, 3\] is 1\.7; token ids are whole numbers"),
        (changed("a", object), TypeError, rf"{name}\[1, 3\] is 'a'; token ids"),
        ("text", TypeError, f"{name} is the text 'text'"),
        (None, TypeError, f"{name} is None"),
        ([[1, 2], [3]], ValueError, f"{name} has rows of different lengths"),
    ]
    for value, kind, message in cases:
        for call in (trainer.train_step, tiny.evaluate):
            with pytest.raises(kind, match=message):
                call(**{**good, name: value})
        if name == "input_ids":
            with pytest.raises(kind, match=message):
                tiny.forward(value)
    assert trainer.step == 0 and np.array_equal(before, tiny.parameters.data.numpy())
    with pytest.raises(ValueError, match=r"must have the same shape, \[batch, length\]"):
        trainer.train_step(**{**good, name: good[name][0]})


def test_batches_of_every_kind_give_the_same(ctx: nncuda.Context) -> None:
    inputs, targets = random_batch(TINY, 2, 8)
    targets[0, 0] = -100
    results = []
    for form in (np.asarray, lambda a: a.astype(np.uint8) if a.min() >= 0 else a.astype(np.int16), np.ndarray.tolist,
                 lambda a: a.astype(np.int64), ctx.tensor):  # fmt: skip
        model = MoETransformer(ctx, TINY, seed=0)
        trainer = Trainer(model, TrainConfig(sequence_length=8))
        loss = trainer.train_step(form(inputs), form(targets)).loss
        results.append(
            (loss, model.evaluate(form(inputs), form(targets)), model.forward(form(inputs)).numpy().tobytes())
        )
    assert results == results[:1] * len(results)


def test_texts_are_texts(ctx: nncuda.Context, tokenizer: Tokenizer) -> None:
    model = MoETransformer(ctx, replace(TINY, vocab_size=tokenizer.vocab_size), seed=0)
    generator = TextGenerator(model, tokenizer)
    assert generator.complete("the sea", 3) == "".join(generator.stream("the sea", 3))
    for prompt in ([1, 2], None, b"the sea", ["the sea"]):
        for call in (generator.stream, generator.complete):
            with pytest.raises(TypeError, match=r"it must be a text: generate\(model, ids"):
                call(prompt, 3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="it must be one str"):
            tokenizer.encode(prompt)  # type: ignore[arg-type]


def test_ids_that_are_decoded(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("the sea")
    assert tokenizer.decode(np.array(ids)) == "the sea"  # type: ignore[arg-type]
    for wrong in ([1.7], "12", [None]):
        with pytest.raises(TypeError, match=r"ids\[0\] is .*; it must be a whole number"):
            tokenizer.decode(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"ids\[0\] is 4294967297; it must be 0 to "):
        tokenizer.decode([2**32 + 1])


def test_ids_of_a_shard(tmp_path: Path) -> None:
    for wrong, kind in (([1.7], TypeError), ([2**32 + 1], ValueError), ([2**70], ValueError), ("12", TypeError)):
        with pytest.raises(kind):
            write_shard(tmp_path / "a.tokens", [np.array([1]), wrong], 10)  # type: ignore[list-item]
    assert not list(tmp_path.iterdir())


def test_options_of_sampling_are_whole_numbers() -> None:
    for options in ({"top_k": 1.5}, {"seed": 1.5}, {"seed": "1"}, {"top_k": True}):
        with pytest.raises(ValueError, match="must be a whole number"):
            Sampling(**options)
    assert Sampling(top_k=np.int32(3), seed=np.uint64(2**63)).top_k == 3  # type: ignore[arg-type]


def test_shapes_and_types_of_what_comes_out() -> None:
    for given in ([[1, 2]], np.array([[1, 2]], np.uint16), np.array([[1, 2]], ">i8"), [range(1, 3)]):
        ids = token_ids(given, 10)
        assert ids.dtype == np.int32 and ids.shape == (1, 2) and ids.flags.c_contiguous
    assert token_ids([], 10).shape == (0,) and token_ids(-100, 10, also=-100) == -100
