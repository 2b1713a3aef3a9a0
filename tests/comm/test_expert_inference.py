"""Ranks that divide the experts of a stored model among them: the tokens and logits of one rank, to the bit."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import job, outcomes
from small_models import TINY, llama_config, save_tiny, stored_model
from test_mpi import MPIEXEC, environment, started
from test_mpi_runs import ranks_of

import nncuda
from nncuda import LanguageModel, Sampling
from nncuda.infer import serve_experts
from nncuda.models import MoETransformer
from nncuda.models.stored import StoredModel

NNCUDA = Path(sys.prefix) / "bin/nncuda"
CONFIG = llama_config(num_experts=8, experts_per_token=3)
LENGTHS = (1, 7, 300, 41, 130)
SAMPLINGS = [Sampling(temperature, seed=seed) for seed, temperature in enumerate((0.0, 1.0, 0.7, 0.0, 1.0))]


@pytest.fixture
def ctx() -> Iterator[nncuda.Context]:
    with nncuda.Context(threads=1) as made:
        yield made


def prompts() -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, CONFIG.vocab_size, length).tolist() for length in LENGTHS]


def said(model: LanguageModel) -> tuple[list[list[int]], bytes]:
    """The tokens of prompts of different lengths, more than are decoded at once, and the logits of one."""
    tokens: list[list[int]] = [[] for _ in LENGTHS]
    for event in model.generate(prompts(), 20, SAMPLINGS):
        tokens[event.prompt].append(event.token)
    return tokens, model.logits(prompts()[3]).tobytes()


OPTIONS: dict[str, Any] = {"context": 512, "cache_format": "f32", "max_batch": 3, "piece": 200}


@pytest.mark.parametrize("weights", ["memory", "file"])
@pytest.mark.parametrize("format", ["f32", "bf16", "q8_0", "q4_0"])
def test_tokens_and_logits_of_one_rank(ctx: nncuda.Context, format: str, weights: str) -> None:
    """Decoding replays captured steps; the others go call by call."""
    with LanguageModel(stored_model(ctx, CONFIG, format), ctx, weights=weights, **OPTIONS) as alone:
        wanted = said(alone)
    assert len({tuple(tokens) for tokens in wanted[0]}) == len(LENGTHS)

    def work(comm: nncuda.Comm) -> Any:
        stored = stored_model(comm.ctx, CONFIG, format)
        if comm.rank:
            return serve_experts(stored, comm, weights=weights)
        with LanguageModel(stored, comm.ctx, comm=comm, weights=weights, **OPTIONS) as model:
            found = said(model)
            assert model.scheduler.batch._graphs  # it has replayed some
            return found

    for ranks in (2, 4):
        found, *others = job(ranks, work)
        assert found == wanted
        assert others == [None] * (ranks - 1)


def test_a_trace_may_look_at_all_values() -> None:
    """Slots of ranks that send nothing, too."""

    def work(comm: nncuda.Comm) -> Any:
        stored = stored_model(comm.ctx, CONFIG)
        if comm.rank:
            return serve_experts(stored, comm)
        with LanguageModel(stored, comm.ctx, comm=comm, **OPTIONS) as model:
            with comm.ctx.trace(values=1) as trace:
                model.logits(prompts()[3])
            return [line for line in trace.lines if "comm_dispatch" in line]

    assert job(2, work)[0]


def test_a_checkpoint_has_a_tensor_for_each_expert(ctx: nncuda.Context, tmp_path: Path) -> None:
    folder = save_tiny(ctx, tmp_path)
    prompt = [5, 9, 2]
    with LanguageModel.load(folder) as alone:
        wanted = [event.token for event in alone.generate(prompt, 12)], alone.logits(prompt).tobytes()

    def work(comm: nncuda.Comm) -> Any:
        if comm.rank:
            return nncuda.serve_experts(folder, comm)
        with LanguageModel.load(folder, comm=comm) as model:
            return [event.token for event in model.generate(prompt, 12)], model.logits(prompt).tobytes()

    assert job(4, work)[0] == wanted


def test_memory_is_that_of_the_part() -> None:
    """Of rank 0 all but the experts of others; of another its experts, room for the rows of a call, and little more."""
    config = llama_config(num_experts=8, experts_per_token=2, ffn_size=1024)
    options: dict[str, Any] = {"context": 128, "max_batch": 1, "piece": 64}
    rows = 64 * config.experts_per_token * (4 * config.hidden_size + config.ffn_size) * 4

    def work(comm: nncuda.Comm) -> tuple[int, int]:
        stored = stored_model(comm.ctx, config)
        comm.ctx.trim()
        before, experts = comm.ctx.bytes_used, 8 * 3 * config.num_layers * config.ffn_size * config.hidden_size * 4
        if comm.rank:
            used: list[int] = []
            serve = comm.dispatch  # the first call of the first layer
            comm.dispatch = lambda *given: (used.append(comm.ctx.bytes_used - before), serve(*given))  # type: ignore
            serve_experts(stored, comm, weights="memory")
            return max(used), experts
        with LanguageModel(stored, comm.ctx, comm=comm, weights="memory", **options) as model:
            list(model.generate([1, 2, 3], 4))
            return model.engine.weights.nbytes, experts

    (first, experts), *others = job(4, work)
    dense = sum(t.nbytes for name, t in stored_sizes(config).items() if ".block_sparse_moe.w" not in name)
    assert first == experts // 4 + dense
    for used, _ in others:
        assert experts // 4 + rows <= used < experts // 4 + rows + 20_000


def stored_sizes(config: Any) -> Any:
    """The matrices of a model."""
    with nncuda.Context(threads=1) as ctx:
        return {name: t for name, t in stored_model(ctx, config).tensors.items() if len(t.shape) > 1}


def test_only_the_own_experts_are_read(ctx: nncuda.Context, tmp_path: Path) -> None:
    """Where one tensor has them all, and where each has its own: views of the file, of these alone."""
    for stored in (stored_model(ctx, CONFIG), StoredModel.open(save_tiny(ctx, tmp_path))):
        experts = stored.config.num_experts
        own = range(experts // 2, experts // 2 + 2)
        alone, part = stored.of_experts(own, others=False), stored.of_experts(own)
        assert list(part.tensors) == list(stored.tensors)
        assert list(alone.tensors) == [name for name in stored.tensors if ".block_sparse_moe.w" in name]
        for name, whole in stored.tensors.items():
            if name not in alone.tensors:
                assert part.tensors[name] is whole
                continue
            wanted, pieces = whole.numbers()[own.start : own.stop], alone.tensors.parts(name)
            np.testing.assert_array_equal(alone.tensors[name].numbers(), wanted)
            assert sum(piece.nbytes for piece in pieces) == wanted.nbytes
            for piece in pieces:
                assert any(np.shares_memory(piece.data, one.data) for one in stored.tensors.parts(name))


def told(found: list[Any]) -> list[str]:
    return [f"{type(one).__name__} {one}" if isinstance(one, Exception) else "" for one in found]


@pytest.mark.parametrize("moment", ["between calls", "amid a call"])
def test_an_error_on_rank_0_ends_the_others(moment: str) -> None:
    def work(comm: nncuda.Comm) -> None:
        stored = stored_model(comm.ctx, CONFIG)
        if comm.rank:
            return serve_experts(stored, comm)
        with LanguageModel(stored, comm.ctx, comm=comm, **OPTIONS) as model:
            model.logits([1, 2, 3])
            if moment == "between calls":
                raise RuntimeError("the disk is full")

            def watch(name: str, _: nncuda.Tensor) -> None:
                if name == "layers.1.attention":
                    raise RuntimeError("the disk is full")

            model.engine.logits([1, 2, 3], watch)

    first, *others = told(outcomes(4, work))
    assert first == "RuntimeError the disk is full"
    assert all(one.startswith("PeerError") and "rank 0: the disk is full" in one for one in others), others


def test_an_error_of_a_serving_rank_is_told() -> None:
    def work(comm: nncuda.Comm) -> Any:
        with comm:
            stored = stored_model(comm.ctx, CONFIG)
            if comm.rank == 2:
                comm.collect = None  # type: ignore  # in the middle of a call
            if comm.rank:
                return serve_experts(stored, comm)
            with LanguageModel(stored, comm.ctx, comm=comm, **OPTIONS) as model:
                return said(model)

    found = told(outcomes(4, work))
    assert found[2].startswith("TypeError")
    assert all(found[rank].startswith("PeerError") and "rank 2: TypeError" in found[rank] for rank in (0, 1, 3)), found


def test_what_cannot_be_divided_so(ctx: nncuda.Context) -> None:
    def work(config: Any) -> Any:
        def of_rank(comm: nncuda.Comm) -> None:
            with comm:
                stored = stored_model(comm.ctx, config)
                if comm.rank:
                    return serve_experts(stored, comm)
                LanguageModel(stored, comm.ctx, comm=comm, **OPTIONS)

        return of_rank

    found = told(outcomes(3, work(CONFIG)))
    assert all("expert_parallel is 3; it must divide the 3 ranks and the 8 experts" in one for one in found), found
    found = told(outcomes(2, work(llama_config())))
    assert all("in memory has no experts, which ranks could divide among them" in one for one in found), found

    def unlike(comm: nncuda.Comm) -> None:
        with comm:
            config = llama_config(num_experts=8, experts_per_token=2, num_layers=2 + comm.rank)
            work(config)(comm)

    found = told(outcomes(2, unlike))
    assert all("the model of rank 1 (3 layers of 8 experts" in one for one in found), found
    with nncuda.Comm(ctx, "self") as comm:
        with pytest.raises(ValueError, match="rank 0 runs the model"):
            serve_experts(stored_model(ctx, CONFIG), comm)
        LanguageModel(stored_model(ctx, CONFIG), ctx, comm=comm, **OPTIONS).close()  # a rank alone
        with pytest.raises(ValueError, match="device, threads and nodes are those of that"):
            LanguageModel.load("model", threads=2, comm=comm)


# The command


def command(ranks: int, *arguments: object) -> list[str]:
    return list(map(str, [MPIEXEC, "-n", ranks, NNCUDA, "generate", "--threads", 1, *arguments]))


def generate(ranks: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    line = command(ranks, *arguments)[0 if ranks else 3 :]
    return subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=60)


@started
def test_the_command(ctx: nncuda.Context, tmp_path: Path) -> None:
    folder = save_tiny(ctx, tmp_path)
    given = (folder, "--ids", "--prompt", "5 9 2", "--prompt", "7", "--max-tokens", 15, "--seed", 4)
    alone = generate(0, *given)
    assert alone.returncode == 0 and len(alone.stdout.split()) == 31
    for ranks in (2, 4):
        done = generate(ranks, *given, "--expert-parallel", ranks)
        assert (done.returncode, done.stdout, done.stderr) == (0, alone.stdout, "")


@started
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--expert-parallel", 4), "--expert-parallel is 4, and of this command mpiexec has started 2 ranks; start 4"),
        (("--expert-parallel", 2, "--prompt", "5 x"), "rank 0: PROMPT has 'x'"),
        (("--expert-parallel", 2, "--contiguous"), "--contiguous takes one prompt, and none of"),
    ],
)
def test_a_command_that_cannot_go_on(
    ctx: nncuda.Context, tmp_path: Path, flags: tuple[object, ...], sentence: str
) -> None:
    done = generate(2, save_tiny(ctx, tmp_path), "--ids", "5", *flags)
    assert done.returncode != 0 and done.stdout == "" and sentence in done.stderr


@started
@pytest.mark.parametrize("rank", [None, 0, 1])
def test_an_interrupt_ends_all(ctx: nncuda.Context, tmp_path: Path, rank: int | None) -> None:
    """Of the launcher, and of any rank."""
    MoETransformer(ctx, dataclasses.replace(TINY, context=256, extended_context=256)).save(tmp_path / "model")
    line = command(2, tmp_path / "model", "--ids", "5", "--max-tokens", 10**7, "--expert-parallel", 2)
    with subprocess.Popen(
        line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None and running.stdout.read(20)
        os.kill(running.pid if rank is None else ranks_of(running.pid)[rank], signal.SIGINT)
        _, told = running.communicate(timeout=30)
    assert running.returncode != 0
    if rank is not None:
        assert "interrupted" in told and f"rank {rank}: KeyboardInterrupt" in told
