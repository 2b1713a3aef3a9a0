"""The engine's thread, and the texts that all connections give it.

The thread alone touches the scheduler: it takes what was submitted and cancelled, runs a step, and hands the new tokens
to the event loop, all those of a step at once. So a text that is cancelled has left the batch before the next step.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..infer import Constraint, Event, LanguageModel, Sampling
from ..infer.continuation import Continuation
from ..infer.grammar import GrammarFailed
from ..infer.sampling import GREEDY
from ..infer.scheduler import CANCELLED, FAILED, Request
from .api import ApiError

_log = logging.getLogger("nncuda.serve")


class Generation:
    """A text that is to be written: what the event loop sees of it. `next` gives its events, in order.

    `tokens` counts those that were drawn, `finish` is that of the last event. `submitted`, `admitted`, `first`, `last`
    and `ended` are seconds of the monotonic clock: when it joined the queue and the batch, had its first and its newest
    token, and ended; None for what did not happen yet.
    """

    def __init__(
        self,
        prompt: np.ndarray,
        max_new_tokens: int,
        sampling: Sampling = GREEDY,
        *,
        end_ids: Sequence[int] = (),
        stop: Sequence[str] = (),
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        embed: bool = False,
        constraint: Constraint | None = None,
        adapter: str | None = None,
    ):
        self.request = Request(
            prompt,
            max_new_tokens,
            sampling,
            end_ids,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            embed=embed,
            constraint=constraint,
            adapter=adapter,
        )
        self.stop = list(stop)
        self.tokens = 0
        self.finish: str | None = None
        self.cancelled = False  # or about to be
        self.submitted = time.monotonic()
        self.admitted: float | None = None
        self.first: float | None = None
        self.last: float | None = None
        self.ended: float | None = None
        self._events: deque[Event] = deque()
        self._failure: ApiError | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def next(self) -> Event:
        """The next event; the one with a `finish` is the last. ApiError when the service failed."""
        while not self._events:
            if self._failure is not None:
                raise self._failure
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._events.popleft()

    def push(self, events: Sequence[Event]) -> None:
        """Adds events, on the event loop's thread."""
        self._events.extend(events)
        self._wake()

    def fail(self, error: ApiError) -> None:
        """Ends it by an error, after the events that are there."""
        self._failure = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Observer:
    """Is told what comes of texts, on the event loop's thread. This one does nothing."""

    def first_token(self, seconds: float) -> None:
        """Seconds from submission."""

    def next_token(self, seconds: float) -> None:
        """Seconds since the one before."""

    def ended(self, generation: Generation) -> None:
        """It has its `finish`."""


@dataclass
class _News:
    """What a step brought for a text."""

    generation: Generation
    events: list[Event]
    admitted: bool
    finish: str | None


class Service:
    """Runs the texts of many connections on one model, which it leaves open.

    `max_queue` texts may wait beside the `max_batch` that run. All methods are for the event loop's thread.
    `on_failure` is called there when the device fails: then nothing more can be served.
    """

    def __init__(
        self,
        model: LanguageModel,
        max_queue: int,
        observer: Observer | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ):
        self.model = model
        self.places = model.engine.max_batch + max_queue
        self._observer = observer or Observer()
        self._on_failure = on_failure
        self._open: set[Generation] = set()  # submitted, and not known to have ended
        self._running = 0
        self._closed: ApiError | None = None  # why nothing is taken any more
        self._loop: asyncio.AbstractEventLoop | None = None
        # What the event loop asks of the thread: a text to add, or to cancel, or None to end.
        self._asked: deque[tuple[str, Generation] | None] = deque()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nncuda-engine", daemon=True)

    @property
    def failed(self) -> bool:
        """Whether the device failed."""
        return self._closed is not None and self._closed.code == "engine_failed"

    @property
    def running(self) -> int:
        """Texts that have a place in the batch."""
        return self._running

    @property
    def waiting(self) -> int:
        """Texts that wait for one."""
        return len(self._open) - self._running

    def start(self) -> None:
        """Starts the thread; the running event loop is the one that is told."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def check_places(self, count: int) -> None:
        """ApiError when so many texts could not be submitted now."""
        if self._closed is not None:
            raise self._closed
        if len(self._open) + count > self.places:
            raise ApiError("queue_full", places=self.places, seconds=1, headers={"retry-after": "1"})

    def submit(self, generations: Sequence[Generation]) -> None:
        """Takes all of these texts, or raises ApiError when there are not places for all."""
        self.check_places(len(generations))
        now = time.monotonic()
        for generation in generations:
            generation.submitted = now
            self._open.add(generation)
            self._asked.append(("add", generation))
        self._wake.set()

    def cancel(self, generations: Sequence[Generation]) -> None:
        """Ends those of the texts that have not ended; before the next step their places are free."""
        for generation in generations:
            if generation in self._open and not generation.cancelled:
                generation.cancelled = True
                self._asked.append(("cancel", generation))
        self._wake.set()

    def cut(self, error: ApiError) -> None:
        """Ends all texts with an error, and takes no others."""
        self._closed = self._closed or error
        generations = list(self._open)
        self.cancel(generations)
        for generation in generations:
            generation.fail(error)

    async def stop(self) -> None:
        """Ends all texts and the thread, and waits for it."""
        self._asked.append(None)
        self._wake.set()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    # On the engine's thread

    def _run(self) -> None:
        scheduler, turns = self.model.scheduler, self.model.ctx._turns
        texts: dict[Generation, Continuation] = {}
        admitted: set[Generation] = set()
        try:
            while True:
                self._wake.clear()
                with turns:
                    if not self._take(texts):
                        return
                    self._tell(texts, admitted)  # of those that were cancelled, rather than after the next step
                    idle = scheduler.idle
                    if not idle:
                        begun = time.monotonic()
                        scheduler.step()
                        self._tell(texts, admitted, begun)
                if idle and not self._asked:
                    self._wake.wait()
        except BaseException as error:
            _log.exception("the engine failed")
            self._call(self._fail, error)

    def _take(self, texts: dict[Generation, Continuation]) -> bool:
        """Does what was asked since the last time; False when that is to end."""
        scheduler = self.model.scheduler
        while self._asked:
            asked = self._asked.popleft()
            if asked is None:
                for generation in texts:
                    scheduler.cancel(generation.request)
                return False
            what, generation = asked
            if what == "add":
                texts[generation] = Continuation(generation.request, self.model.tokenizer, generation.stop)
                scheduler.add(generation.request)
            elif generation in texts:
                scheduler.cancel(generation.request)
                generation.request.tokens.clear()
        return True

    def _tell(
        self, texts: dict[Generation, Continuation], admitted: set[Generation], begun: float | None = None
    ) -> None:
        """Tells the event loop what is new; `begun` is when the step began, if one did."""
        news = self._news(texts, admitted)
        if news:
            self._call(self._hand_over, news, begun, time.monotonic())

    def _news(self, texts: dict[Generation, Continuation], admitted: set[Generation]) -> list[_News]:
        """What a step brought; texts that ended leave both collections."""
        news = []
        for generation, text in list(texts.items()):
            request = generation.request
            events = list(text.events(self.model.scheduler))
            began = generation not in admitted and (bool(events) or request.admitted)
            failed = request.error is not None
            if not events and not began and not failed:
                continue
            finish = FAILED if failed else events[-1].finish if events else None
            began |= failed and generation not in admitted
            admitted.add(generation)
            if finish is not None:
                del texts[generation]
                admitted.discard(generation)
            news.append(_News(generation, events, began, finish))
        return news

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop has ended, and nobody is left who could be told
            _log.debug("the event loop ended before the engine")

    # On the event loop's thread again

    def _hand_over(self, news: list[_News], begun: float | None, now: float) -> None:
        for new in news:
            generation = new.generation
            if new.admitted:
                self._running += 1
                if new.finish != CANCELLED:
                    generation.admitted = begun
            for event in new.events:
                if event.token < 0:
                    continue
                generation.tokens += 1
                if generation.last is None:
                    generation.first = now
                    self._observer.first_token(now - generation.submitted)
                else:
                    self._observer.next_token(now - generation.last)
                generation.last = now
            if new.finish is not None:
                generation.finish, generation.ended = new.finish, now
                self._open.discard(generation)
                self._running -= 1
                self._observer.ended(generation)
            generation.push(new.events)
            if new.finish == FAILED:
                generation.fail(_failure(generation.request.error))

    def _fail(self, error: BaseException) -> None:
        self._closed = ApiError("engine_failed")
        failed, self._open, self._running = self._open, set(), 0
        for generation in failed:
            generation.fail(self._closed)
        if self._on_failure is not None:
            self._on_failure(error)


def _failure(error: Exception | None) -> ApiError:
    """What a client is told of a text whose constraint failed."""
    if isinstance(error, GrammarFailed):
        _log.warning("a text ended: %s", error)
        return ApiError("schema_too_costly")
    _log.error("a constraint failed", exc_info=error)
    return ApiError("internal_error")
