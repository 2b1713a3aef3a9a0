"""`LanguageModel`: a stored model that takes text and gives text, for one prompt or many at once."""

from __future__ import annotations

import dataclasses
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union, overload

import numpy as np

from ..device import Comm, Context, DeviceBound, Tensor
from ..models.adapter import Adapter
from ..models.llama import LlamaConfig
from ..models.stored import StoredModel
from ..token_ids import Ids, token_ids
from .constraint import Constraint
from .continuation import Continuation, Event
from .engine import Engine
from .sampling import GREEDY, Sampling
from .scheduler import Request, Scheduler
from .scores import TokenLogprobs, check_alternatives

if TYPE_CHECKING:
    from ..models import MoETransformer
    from ..tokenizer.tokenizer import TextTokenizer

#: Where the answer of a model without a chat template ends: at the next turn.
PLAIN_STOPS = ("\nUser:", "\nAssistant:")

#: A text, or the ids of one.
Prompt: TypeAlias = Union[str, Ids]  # noqa: UP007


class Flag(Protocol):
    """A flag that ends a generation when set, such as a `threading.Event`."""

    def is_set(self) -> bool: ...


class LanguageModel(DeviceBound):
    """A model, its tokenizer and a cache on a device.

    >>> with LanguageModel.load("model.gguf") as model:
    ...     for piece in model.stream("The sea is", max_new_tokens=40):
    ...         print(piece, end="", flush=True)

    `engine` is what runs the model, `scheduler` what serves several prompts at once. Threads may use it at once: they
    take turns, token by token and in order, and their prompts are decoded together.
    """

    _instead = "load another from its file; threads may share one"

    def __init__(self, stored: StoredModel, ctx: Context, **options: Any):
        """A model on a context that stays the caller's; `options` are those of `Engine`."""
        self.stored = stored
        self.ctx = ctx
        self.tokenizer = stored.tokenizer
        self.engine = Engine(stored, ctx, **options)
        self.scheduler = Scheduler(self.engine)
        self._owned: Context | None = None
        self._abandoned: deque[Request] = deque()  # of abandoned iterators, to be cancelled

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: str = "cpu",
        threads: int | None = None,
        nodes: int = 1,
        context: int | None = None,
        cache_format: str = "f16",
        cache_tokens: int | None = None,
        max_batch: int = 32,
        weights: str = "auto",
        adapter: str | os.PathLike[str] | None = None,
        adapters: Mapping[str, str | os.PathLike[str]] | None = None,
        comm: Comm | None = None,
    ) -> LanguageModel:
        """Opens a GGUF file, a Hugging Face folder (Llama, Qwen and others), a checkpoint or a run of this library.

        Weights are copied into memory unless they would take more than half of what is free, and used in the mapped
        file otherwise; `weights` "memory" or "file" insists on one. `adapters` are the PEFT folders, or GGUF files, of
        LoRA adapters by the names under which a prompt asks for them; `adapter` is that of prompts that name none. Each
        is added to what its matrices give. `device`, `threads` and `nodes` are those of `Context`, the other options
        those of `Engine`. With `comm`, of rank 0, the model is on its context, and the other ranks serve the experts
        that they hold (`serve_experts`). Raises FormatError for a file that is none of these or wrong, ValueError for
        an option that does not fit the model, nncuda.Error when the device fails.
        """
        if comm is not None and (device, threads, nodes) != ("cpu", None, 1):
            raise ValueError("with comm the model is on its context: device, threads and nodes are those of that")
        stored = StoredModel.open(path)
        options: dict[str, Any] = {"context": context, "cache_format": cache_format, "cache_tokens": cache_tokens}
        options |= {"max_batch": max_batch, "weights": weights}
        if adapter is not None:
            options["adapter"] = Adapter.open(adapter, stored.config)
        options["adapters"] = {name: Adapter.open(folder, stored.config) for name, folder in (adapters or {}).items()}
        if comm is not None:
            return cls(stored, comm.ctx, comm=comm, **options)
        ctx = Context(device, threads=threads)
        try:
            if nodes != 1:
                ctx.nodes = nodes
            model = cls(stored, ctx, **options)
        except BaseException:
            ctx.close()
            raise
        model._owned = ctx
        return model

    @classmethod
    def of(cls, model: MoETransformer, tokenizer: TextTokenizer | None = None, **options: Any) -> LanguageModel:
        """A model that was made or trained in this program, on its context, with the weights that it has now.

        Those of a model that trains are copied: to go on with later ones, make another. One made with `training` False
        is used in place, but for W1 and W3 of its experts, and must keep its weights. `options` are those of `Engine`;
        `weights` "memory" copies in either case, "file" in neither.
        """
        options.setdefault("weights", "file" if model.gradients is None else "memory")
        return cls(StoredModel.of(model, tokenizer), model.ctx, **options)

    def close(self) -> None:
        """Ends what is being generated and frees the memory. Closing twice is fine."""
        with self.ctx._turns:
            if not self.ctx.closed:
                self.scheduler.close()
                self.engine.close()
            if self._owned is not None:
                self._owned.close()

    def __repr__(self) -> str:
        if self.ctx.closed:
            return f"LanguageModel({str(self.stored.path)!r}, closed)"
        return (
            f"LanguageModel({str(self.stored.path)!r}; {self.stored.num_parameters:,} parameters, context "
            f"{self.context}; {self.ctx.device})"
        )

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(self, *raised: object) -> None:
        error = raised[1]
        if isinstance(error, BaseException) and not isinstance(error, GeneratorExit):
            with self.ctx._turns:
                self.engine.abort(error)
        self.close()

    @property
    def config(self) -> LlamaConfig:
        """Sizes and options of the model."""
        return self.stored.config

    @property
    def context(self) -> int:
        """The context length: how many tokens of a sequence attend to one another."""
        return self.engine.context

    def encode(self, prompt: Prompt) -> np.ndarray:
        """The ids of a prompt as the model reads it, i32: a text with the id that begins one, ids as they are.

        TypeError for what is neither, OutOfRangeError (an IndexError) for an id outside the vocabulary.
        """
        if not isinstance(prompt, str):
            return self.engine.check_ids(prompt)
        tokenizer = self._text_tokenizer()
        with self.ctx._turns:
            ids = tokenizer.encode(prompt, begin=tokenizer.adds_begin)
        return self.engine.check_ids(ids)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        max_new_tokens: int | None = None,
        sampling: Sampling | Sequence[Sampling] = GREEDY,
        *,
        stop: str | Sequence[str] = (),
        end_ids: Sequence[int] | None = None,
        cancel: Flag | None = None,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        constraint: Constraint | Sequence[Constraint | None] | None = None,
        adapter: str | Sequence[str | None] | None = None,
    ) -> Iterator[Event]:
        """Continues one prompt, or several together, and yields every token as it is generated.

        A prompt is a text or a sequence of ids; those of a batch may have any lengths, and there may be more than
        `max_batch`: the others wait. Each ends with an event whose `finish` says why: after `max_new_tokens`
        (by default, when the context is full; with more than that the oldest text is dropped), with one of `end_ids`
        (by default those of the tokenizer), or with one of the strings in `stop`. With one `sampling`, prompt i draws
        with seed + i. When `cancel` is set, all end before the next token. Leaving the loop ends the prompts, too.

        `logprobs`, 0 to 20, asks for the log-probability of each token and of so many of the likeliest ones in its
        place, as the model gave them, before any option of `sampling`; `prompt_logprobs` asks for those of the prompt's
        tokens, which then is run as a whole, even for no new token. `constraint` says which tokens may be next
        (`Constraint`): one for each of several prompts. What it raises is raised here, and ends that prompt alone.
        `adapter` is the name of one of the model's, or one for each prompt, None for those that name none.

        A prompt's tokens are the same bits whatever else is generated, also by other calls: two of these
        iterators may be used in turns.

        Raises TypeError, ValueError, OutOfRangeError or CacheFullError, before anything runs, for what cannot be done
        at all.
        """
        ids = [self.encode(prompt) for prompt in (prompts if _several(prompts) else [prompts])]  # type: ignore
        if isinstance(sampling, Sampling):
            samplings = [dataclasses.replace(sampling, seed=sampling.seed + number) for number in range(len(ids))]
        else:
            samplings = list(sampling)
            if len(samplings) != len(ids):
                raise ValueError(f"there are {len(samplings)} samplings for {len(ids)} prompts")
        for how in samplings:
            how.check_ids(self.config.vocab_size)
        check_alternatives("logprobs", logprobs)
        check_alternatives("prompt_logprobs", prompt_logprobs)
        if constraint is None:
            constraints: list[Constraint | None] = [None] * len(ids)
        else:
            constraints = list(constraint) if isinstance(constraint, Sequence) else [constraint]
        if len(constraints) != len(ids):
            raise ValueError(f"there are {len(constraints)} constraints for {len(ids)} prompts; each needs its own")
        adapters = self._adapters_of(adapter, len(ids))
        stops = [stop] if isinstance(stop, str) else list(stop)
        if stops and self.tokenizer is None:
            raise ValueError("stop strings need a tokenizer, which this model lacks")
        ends: Iterable[int] = ()
        if end_ids is not None:
            ends = token_ids(list(end_ids), self.config.vocab_size, "end_ids").tolist()
        elif self.tokenizer is not None:
            ends = self.tokenizer.end_ids
        lengths = [max_new_tokens if max_new_tokens is not None else self.room(one) for one in ids]
        for one, length in zip(ids, lengths, strict=True):
            self.scheduler.check(one, length)
        requests = [
            Request(
                one, length, how, ends,
                logprobs=logprobs, prompt_logprobs=prompt_logprobs, constraint=rule, adapter=name,
            )
            for one, length, how, rule, name in zip(ids, lengths, samplings, constraints, adapters, strict=True)
        ]  # fmt: skip
        texts = [Continuation(request, self.tokenizer, stops, at) for at, request in enumerate(requests)]
        return self._events(texts, cancel)

    def stream(
        self,
        prompt: Prompt,
        max_new_tokens: int | None = None,
        sampling: Sampling = GREEDY,
        *,
        stop: str | Sequence[str] = (),
        end_ids: Sequence[int] | None = None,
        cancel: Flag | None = None,
        adapter: str | None = None,
    ) -> Iterator[str]:
        """The continuation of one prompt, piece by piece; the options are those of `generate`."""
        self._text_tokenizer()
        options: dict[str, Any] = {"stop": stop, "end_ids": end_ids, "cancel": cancel, "adapter": adapter}
        events = self.generate(prompt, max_new_tokens, sampling, **options)
        return (event.text for event in events if event.text)

    @overload
    def complete(  # type: ignore[overload-overlap]  # a text is a sequence of texts, too
        self,
        prompts: Prompt,
        max_new_tokens: int | None = None,
        sampling: Sampling = GREEDY,
        *,
        stop: str | Sequence[str] = (),
        end_ids: Sequence[int] | None = None,
        cancel: Flag | None = None,
        adapter: str | None = None,
    ) -> str: ...

    @overload
    def complete(
        self,
        prompts: Sequence[Prompt],
        max_new_tokens: int | None = None,
        sampling: Sampling | Sequence[Sampling] = GREEDY,
        *,
        stop: str | Sequence[str] = (),
        end_ids: Sequence[int] | None = None,
        cancel: Flag | None = None,
        adapter: str | Sequence[str | None] | None = None,
    ) -> list[str]: ...

    def complete(
        self,
        prompts: Prompt | Sequence[Prompt],
        max_new_tokens: int | None = None,
        sampling: Sampling | Sequence[Sampling] = GREEDY,
        *,
        stop: str | Sequence[str] = (),
        end_ids: Sequence[int] | None = None,
        cancel: Flag | None = None,
        adapter: str | Sequence[str | None] | None = None,
    ) -> str | list[str]:
        """The continuation as a whole: a text for one prompt, a list of texts for several."""
        self._text_tokenizer()
        several = _several(prompts)
        texts = [""] * (len(prompts) if several else 1)
        options: dict[str, Any] = {"stop": stop, "end_ids": end_ids, "cancel": cancel, "adapter": adapter}
        for event in self.generate(prompts, max_new_tokens, sampling, **options):
            texts[event.prompt] += event.text
        return texts if several else texts[0]

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        max_new_tokens: int | None = None,
        sampling: Sampling = GREEDY,
        *,
        stop: str | Sequence[str] | None = None,
        end_ids: Sequence[int] | None = None,
        cancel: Flag | None = None,
        adapter: str | None = None,
    ) -> Iterator[str]:
        """The answer to a conversation, piece by piece, in the form that the model's chat template gives it.

        Messages are mappings with "role" ("system", "user", "assistant") and "content". The part of the conversation
        that is still in the cache is not computed again. A model without a template sees each turn on a line of its
        own, after its role, and the answer ends where it would begin the next.
        """
        if stop is None:
            stop = PLAIN_STOPS if self.stored.chat_template.plain else ()
        ids = self.chat_ids(messages)
        options: dict[str, Any] = {"stop": stop, "end_ids": end_ids, "cancel": cancel, "adapter": adapter}
        return self.stream(ids, max_new_tokens, sampling, **options)

    def chat_ids(self, messages: Sequence[Mapping[str, str]]) -> np.ndarray:
        """The ids of a conversation up to where the answer begins."""
        for number, message in enumerate(messages):
            if not {"role", "content"} <= set(message):
                raise ValueError(f'messages[{number}] has {sorted(message)}; it must have "role" and "content"')
        with self.ctx._turns:
            ids = self.stored.chat_template.ids(self._text_tokenizer(), messages)
        return self.engine.check_ids(ids)

    def logits(self, ids: Prompt, adapter: str | None = None) -> np.ndarray:
        """The logits after each token of one text, f32 [tokens, vocab]: row t predicts the token after t."""
        checked = self.encode(ids)
        with self.ctx._turns:
            return self.engine.logits(checked, adapter=adapter)

    def logprobs(self, ids: Prompt, alternatives: int = 0, adapter: str | None = None) -> list[TokenLogprobs | None]:
        """The log-probability of each token of one text after those before it, with so many of the likeliest tokens in
        its place, at most 20; None for the first. The bits are those of `prompt_logprobs` of `generate`."""
        check_alternatives("alternatives", alternatives)
        checked = self.encode(ids)
        with self.ctx._turns:
            return self.engine.logprobs(checked, alternatives, adapter)

    def embed(
        self, prompts: Prompt | Sequence[Prompt], adapter: str | Sequence[str | None] | None = None
    ) -> np.ndarray:
        """The vector of one prompt, f32 [hidden_size], or of each of several, f32 [prompts, hidden_size]: the mean of
        the hidden states after the final norm, of all of its tokens, brought to length 1. So the cosine of two prompts
        is the dot product of their vectors.

        The prompts run together, beside what else is generated; none of them is taken from the cache. A vector's bits
        depend on its prompt and adapter alone. `adapter` is that of `generate`, which this raises as.
        """
        several = _several(prompts)
        ids = [self.encode(prompt) for prompt in (prompts if several else [prompts])]  # type: ignore
        for one in ids:
            self.scheduler.check(one, 0)
        names = self._adapters_of(adapter, len(ids))
        requests = [Request(one, 0, embed=True, adapter=name) for one, name in zip(ids, names, strict=True)]
        for _ in self._events([Continuation(request, None, (), at) for at, request in enumerate(requests)], None):
            pass
        vectors = [request.embedding for request in requests if request.embedding is not None]
        if len(vectors) != len(requests):
            raise RuntimeError("the model was closed before the prompts had run")
        return np.stack(vectors) if several else vectors[0]

    def room(self, ids: Sequence[int] | np.ndarray) -> int:
        """How many tokens can be written after a prompt before its beginning drops out of sight."""
        # The last token drawn is never run.
        return max(0, self.context - len(ids) + 1)

    def _adapters_of(self, adapter: str | Sequence[str | None] | None, prompts: int) -> list[str | None]:
        """The name of each prompt's adapter. ValueError for one that there is not."""
        names = [adapter] * prompts if adapter is None or isinstance(adapter, str) else list(adapter)
        if len(names) != prompts:
            raise ValueError(f"there are {len(names)} adapters for {prompts} prompts")
        for name in names:
            self.engine.adapters.number(name)
        return names

    def _events(self, texts: list[Continuation], cancel: Flag | None) -> Iterator[Event]:
        unfinished = list(texts)
        try:
            with self.ctx._turns:
                for text in texts:
                    self.scheduler.add(text.request)
            while unfinished:
                with self.ctx._turns:
                    events = self._next_events(unfinished, cancel)
                yield from events  # while others may take their turns
        finally:
            self._abandon(text.request for text in unfinished)

    def _next_events(self, texts: list[Continuation], cancel: Flag | None) -> list[Event]:
        """What has come of some texts, after a step if nothing has; those that ended are taken out."""
        self._cancel_abandoned()
        if cancel is not None and cancel.is_set():
            for text in texts:
                self.scheduler.cancel(text.request)
        elif not any(text.request.tokens or text.request.finish for text in texts):
            self.scheduler.step()
        events = [event for text in texts for event in text.events(self.scheduler)]
        ended = {event.prompt for event in events if event.finish is not None}
        texts[:] = [text for text in texts if text.prompt not in ended]
        if not events:  # what came before a failure is told first
            for text in texts:
                if text.request.error is not None:
                    raise text.request.error
        return events

    def _abandon(self, requests: Iterable[Request]) -> None:
        """Cancels requests, now or, when somebody else is in the middle of a step, before the next one.

        An iterator that is forgotten ends in whatever thread and moment it is collected: it must not wait.
        """
        self._abandoned.extend(requests)
        turns = self.ctx._turns
        if not turns.mine and turns.acquire(wait=False):
            try:
                self._cancel_abandoned()
            finally:
                turns.release()

    def _cancel_abandoned(self) -> None:
        while self._abandoned:
            self.scheduler.cancel(self._abandoned.popleft())

    def _text_tokenizer(self) -> Any:
        if self.tokenizer is None:
            raise ValueError(f"{self.stored.path} has no tokenizer, so it accepts and returns ids only")
        return self.tokenizer


def _several(prompts: Prompt | Sequence[Prompt]) -> bool:
    """Whether it is a sequence of prompts, rather than one: a text, an array, a sequence of ids."""
    # `Sequence` holds lists and tuples; of arrays and tensors, each is one prompt.
    return (
        isinstance(prompts, Sequence)
        and not isinstance(prompts, str | bytes)
        and any(isinstance(one, Sequence | np.ndarray | Tensor) for one in prompts)
    )
