"""What the server counts, in the text format of Prometheus: the metrics of api.json, each also by its aliases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from .api import API
from .service import Generation, Observer, Service

#: What a response of /metrics is.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_KINDS = {"gauge": Gauge, "counter": Counter, "histogram": Histogram}


class _Together:
    """A metric by all of its names."""

    def __init__(self, entry: dict[str, Any], registry: CollectorRegistry, model: str):
        options = {"buckets": entry["buckets"]} if "buckets" in entry else {}
        labels = ["model_name", *entry.get("labels", ())]
        kind = _KINDS[entry["kind"]]
        self._metrics = [
            kind(name, entry["about"], labels, registry=registry, **options)
            for name in (entry["name"], *entry["aliases"])
        ]
        self._model = model
        if len(labels) == 1:
            self._metrics = [metric.labels(model) for metric in self._metrics]

    def observe(self, value: float) -> None:
        for metric in self._metrics:
            metric.observe(value)

    def set(self, value: float) -> None:
        for metric in self._metrics:
            metric.set(value)

    def add(self, amount: float, *labels: str) -> None:
        for metric in self._metrics:
            (metric.labels(self._model, *labels) if labels else metric).inc(amount)


class Metrics(Observer):
    """The metrics of a server whose model is called `model`."""

    def __init__(self, model: str):
        disable_created_metrics()  # type: ignore[no-untyped-call]  # when a series began is of no use
        self._registry = CollectorRegistry()
        self._all = {entry["name"]: _Together(entry, self._registry, model) for entry in API["metrics"]}
        self._counted = {"nncuda_prompt_tokens": 0, "nncuda_prefix_queries": 0, "nncuda_prefix_hits": 0}

    def first_token(self, seconds: float) -> None:
        self._all["nncuda_time_to_first_token_seconds"].observe(seconds)
        self._all["nncuda_generated_tokens"].add(1)

    def next_token(self, seconds: float) -> None:
        self._all["nncuda_inter_token_seconds"].observe(seconds)
        self._all["nncuda_generated_tokens"].add(1)

    def ended(self, generation: Generation) -> None:
        assert generation.finish is not None and generation.ended is not None
        self._all["nncuda_texts"].add(1, generation.finish)
        self._all["nncuda_text_seconds"].observe(generation.ended - generation.submitted)

    def answered(self, route: str, status: str) -> None:
        """A request got a response, or "none" where the client left. `route` is one of the server's, so that strangers
        make no new series."""
        self._all["nncuda_http_requests"].add(1, route, status)

    def text(self, service: Service) -> bytes:
        """All of them, as they are now."""
        cache, done = service.model.engine.cache, service.model.scheduler.statistics
        self._all["nncuda_requests_running"].set(service.running)
        self._all["nncuda_requests_waiting"].set(service.waiting)
        self._all["nncuda_cache_usage_ratio"].set(cache.used / cache.num_pages)
        self._count("nncuda_prompt_tokens", done.prefill_tokens)
        self._count("nncuda_prefix_queries", done.prompt_tokens)
        self._count("nncuda_prefix_hits", done.shared_tokens)
        return generate_latest(self._registry)

    def _count(self, name: str, total: int) -> None:
        """Brings a counter up to what another one counted."""
        self._all[name].add(total - self._counted[name])
        self._counted[name] = total


def series(metrics: Iterable[dict[str, Any]]) -> Iterable[str]:
    """The names that a scrape shows, in the order of api.json."""
    for entry in metrics:
        end = "_total" if entry["kind"] == "counter" else ""
        yield from (name + end for name in (entry["name"], *entry["aliases"]))
