"""What a server costs: the same requests to `nncuda serve` of each language, and to llama.cpp's, by guidellm.

    python -m tools.serving_bench MODEL.gguf FOLDER build/bin/nncuda-go build/bin/nncuda-rs --llama-server PATH

MODEL is what all of them serve, FOLDER has its tokenizer as Hugging Face keeps it, of which guidellm makes prompts of
a given number of tokens. All servers run from the beginning to the end, since one that is not asked takes no time; for
each number of clients they take turns. Clients run on the same cores, as much on every side. `make bench-serving`
builds what it needs first.

One client gives a server little to do at a time, and what the machine does beside it counts for more than the language.
There the servers take turns with each request, asked from here, and each of ours is asked again for a text that obeys a
schema: what the masks of its tokens cost.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.progress import track
from rich.table import Table

from nncuda.binding import library
from nncuda.cli.terminal import console

from .language_bench import BETWEEN_COMPILED, PYTHON_BEHIND

PEER = "llama.cpp"
#: Asked of us beside llama.cpp at these numbers of clients: 1.3 times its tokens a second, and no later first token.
TIMES_PEER, BUSY = 1.3, (16, 32)
#: Of the time between two tokens, what a schema may add to it.
MASK_SHARE = 0.05

#: Of texts that do not end before the tokens do: many objects, each with a text of any characters, a number, a choice.
_RECORDS = {
    "type": "array",
    "minItems": 4096,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "state": {"enum": ["new", "open", "closed"]},
        },
        "required": ["name", "age", "state"],
        "additionalProperties": False,
    },
}

_LOAD_SECONDS = 120.0


@dataclass(frozen=True)
class Work:
    """What each client asks, one request after the other, `waves` of them: prompts and answers of so many tokens."""

    prompt: int = 128
    output: int = 64
    waves: int = 2

    def requests(self, clients: int) -> int:
        return max(self.waves * clients, 8)


@dataclass(frozen=True)
class Figures:
    """Of one side with so many clients. `cpu` are seconds of processor time of the server's process for each token
    written, with its share of the prompts; `next_token_masked` is the time between two tokens of texts that obey a
    schema, None where it was not measured."""

    side: str
    clients: int
    tokens_per_second: float
    first_token_p95: float
    next_token_median: float
    cpu: float
    errors: int
    next_token_masked: float | None = None


@dataclass(frozen=True)
class Server:
    name: str
    url: str
    process: int

    def cpu_seconds(self) -> float:
        """Processor time of all its threads so far, user and system (proc(5): fields 14 and 15 of stat)."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serving(name: str, command: Sequence[str], port: int, log: Path) -> Iterator[Server]:
    """A server that is ready. ClickException with what it said when it does not come up."""
    environment = {**os.environ, library.ENVIRONMENT_VARIABLE: os.path.abspath(library.load().path)}
    with log.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said, env=environment) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            patience = time.monotonic() + _LOAD_SECONDS
            while not _is_well(url):
                if process.poll() is not None or time.monotonic() > patience:
                    raise click.ClickException(f"{' '.join(command)} does not serve: {log.read_text()[-2000:]}")
                time.sleep(0.1)
            yield Server(name, url, process.pid)
        finally:
            process.terminate()


def _is_well(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def commands(
    model: Path, programs: Sequence[str], llama_server: str | None, threads: int, places: int, work: Work
) -> dict[str, tuple[list[str], int]]:
    """By name, how each server is started, and its port: as many places, threads and tokens of context for each."""
    length = -(-(work.prompt + work.output + 64) // 128) * 128
    found = {}
    for name, program in {
        "Python": [sys.executable, "-m", "nncuda"],
        **{_name(one): [one] for one in programs},
    }.items():
        port = _free_port()
        cache = ["--context", str(length), "--cache-tokens", str(places * length), "--max-batch", str(places)]
        started = [*program, "serve", str(model), "--port", str(port), "--threads", str(threads), *cache]
        found[name] = started, port
    if llama_server is not None:
        port = _free_port()
        slots = ["--parallel", str(places), "--ctx-size", str(places * length), "--threads", str(threads)]
        found[PEER] = [llama_server, "--model", str(model), "--port", str(port), *slots], port
    return found


def _name(program: str) -> str:
    ending = Path(program).name.rpartition("-")[2]
    return {"go": "Go", "rs": "Rust"}.get(ending, ending)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def ask(guidellm: str, server: Server, clients: int, tokenizer: Path, work: Work, seed: int, folder: Path) -> Figures:
    """One run of guidellm. ClickException with its words when it fails."""
    report = folder / "report.json"
    length = f"prompt_tokens={work.prompt},output_tokens={work.output}"
    command = [guidellm, "run", "--disable-console"]
    command += ["--backend", f"kind=openai_http,target={server.url},request_format=/v1/completions"]
    command += ["--profile", f"kind=concurrent,streams={clients}"]
    command += ["--constraint", f"kind=max_requests,count={work.requests(clients)}"]
    command += ["--tokenizer", f"kind=hf_auto,model={tokenizer}"]
    command += ["--data", f"kind=synthetic_text,{length}", "--seed", f"kind=static,value={seed}"]
    command += ["--output", f"kind=json,path={report}"]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    before = server.cpu_seconds()
    done = subprocess.run(command, capture_output=True, text=True, env=offline)
    used = server.cpu_seconds() - before
    if done.returncode:
        raise click.ClickException(f"{guidellm} exited with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return read_report(report, server.name, clients, used)


@dataclass(frozen=True)
class _Times:
    """Of one request: seconds to its first token, between two tokens, and to its end; of the processor."""

    first: float
    following: float
    end: float
    cpu: float


def ask_in_turns(servers: Sequence[Server], work: Work, requests: int, seed: int) -> list[Figures]:
    """Of one client: the same prompt to each server, one after the other, so many times, beginning with another each
    time. ClickException when a server refuses, or writes less than it was asked for."""
    with urllib.request.urlopen(f"{servers[0].url}/tokenizer_info") as answer:
        vocabulary = json.load(answer)["vocab_size"]
    draw = random.Random(seed)
    times: dict[str, list[_Times]] = {server.name: [] for server in servers}
    masked: dict[str, list[_Times]] = {server.name: [] for server in servers if server.name != PEER}
    for number in range(requests + 1):
        prompt = [draw.randrange(vocabulary // 2, vocabulary) for _ in range(work.prompt)]
        first = number % len(servers)
        for server in (*servers[first:], *servers[:first]):
            found = _ask_once(server, prompt, work.output)
            if number:  # the first request finds pools and caches empty
                times[server.name].append(found)
            if server.name in masked:
                found = _ask_once(server, prompt, work.output, _RECORDS)
                if number:  # and hands the vocabulary over
                    masked[server.name].append(found)
    return [_of_turns(name, work, some, masked.get(name)) for name, some in times.items()]


def _ask_once(server: Server, prompt: list[int], output: int, schema: Mapping[str, object] | None = None) -> _Times:
    asked: dict[str, object] = {"prompt": prompt, "max_tokens": output, "ignore_eos": True, "stream": True}
    if schema is not None:
        asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "records", "schema": schema}}
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=_LOAD_SECONDS)
    with contextlib.closing(connection):
        used, start = server.cpu_seconds(), time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(asked), {"content-type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            said = answer.read(2000).decode(errors="replace")
            raise click.ClickException(f"{server.name} answers {answer.status}: {said}")
        came = [time.perf_counter() - start for line in answer if line.startswith(b"data: {")]
        end = time.perf_counter() - start
        if len(came) < 2:
            raise click.ClickException(f"{server.name} wrote {len(came)} events for {output} tokens")
        return _Times(came[0], (came[-1] - came[0]) / (output - 1), end, server.cpu_seconds() - used)


def _of_turns(side: str, work: Work, some: Sequence[_Times], masked: Sequence[_Times] | None) -> Figures:
    firsts = sorted(one.first for one in some)
    return Figures(
        side=side,
        clients=1,
        tokens_per_second=work.output / statistics.median(one.end for one in some),
        first_token_p95=firsts[int(0.95 * len(firsts))],
        next_token_median=statistics.median(one.following for one in some),
        cpu=sum(one.cpu for one in some) / (work.output * len(some)),
        errors=0,
        next_token_masked=statistics.median(one.following for one in masked) if masked else None,
    )


def read_report(report: Path, side: str, clients: int, cpu_seconds: float) -> Figures:
    """The figures in a report of guidellm (version 2 of its format) with one benchmark."""
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    state, metrics = benchmark["scheduler_state"], benchmark["metrics"]
    if not state["successful_requests"]:
        raise click.ClickException(f"{side} answered none of {state['created_requests']} requests")
    written = metrics["output_token_count"]["successful"]["total_sum"]
    return Figures(
        side=side,
        clients=clients,
        tokens_per_second=written / benchmark["duration"],
        first_token_p95=metrics["time_to_first_token_ms"]["successful"]["percentiles"]["p95"] / 1000,
        next_token_median=metrics["inter_token_latency_ms"]["successful"]["median"] / 1000,
        cpu=cpu_seconds / written,
        errors=state["errored_requests"],
    )


def medians(rounds: Sequence[Figures]) -> list[Figures]:
    """One of each side and number of clients, in the order in which they came."""
    groups: dict[tuple[str, int], list[Figures]] = {}
    for one in rounds:
        groups.setdefault((one.side, one.clients), []).append(one)
    keys = "tokens_per_second", "first_token_p95", "next_token_median", "cpu"
    return [
        Figures(
            side, clients, **{key: statistics.median(getattr(one, key) for one in some) for key in keys},
            errors=sum(one.errors for one in some), next_token_masked=some[0].next_token_masked,
        )
        for (side, clients), some in groups.items()
    ]  # fmt: skip


def shortfalls(found: Sequence[Figures]) -> list[str]:
    """What is less than asked, in words."""
    said = [f"{one.side}, {one.clients} clients: {one.errors} errors" for one in found if one.errors]
    for one in found:
        if (
            one.next_token_masked is not None
            and (share := one.next_token_masked / one.next_token_median - 1) > MASK_SHARE
        ):
            said.append(f"{one.side}: a schema adds {share:.1%} to a token, asked are at most {MASK_SHARE:.0%}")
    by_clients: dict[int, dict[str, Figures]] = {}
    for one in found:
        by_clients.setdefault(one.clients, {})[one.side] = one
    for clients, sides in by_clients.items():
        peer = sides.pop(PEER, None)
        compiled = [one.tokens_per_second for side, one in sides.items() if side != "Python"]
        for side, one in sides.items():
            allowed = PYTHON_BEHIND if side == "Python" else BETWEEN_COMPILED
            behind = 1 - one.tokens_per_second / max(compiled) if compiled else 0.0
            if behind > allowed:
                said.append(f"{side}, {clients} clients: {behind:.1%} behind, asked are at most {allowed:.0%}")
            if peer is None or clients not in BUSY:
                continue
            times = one.tokens_per_second / peer.tokens_per_second
            if times < TIMES_PEER:
                said.append(f"{side}, {clients} clients: {times:.2f} x {PEER}, asked are {TIMES_PEER} x")
            if one.first_token_p95 > peer.first_token_p95:
                late = one.first_token_p95 / peer.first_token_p95
                said.append(f"{side}, {clients} clients: first tokens (p95) take {late:.2f} x {PEER}'s time")
    return said


def _table(found: Sequence[Figures], model: Path, work: Work) -> Table:
    title = f"{model.name}, prompts of {work.prompt} tokens, {work.output} written"
    table = Table("clients", "server", title=title, title_justify="left")
    for heading in (
        "tokens/s",
        f"x {PEER}",
        "first token, p95",
        "next token",
        "with a schema",
        "CPU a token",
        "errors",
    ):
        table.add_column(heading, justify="right")
    peers = {one.clients: one.tokens_per_second for one in found if one.side == PEER}
    for one in found:
        peer = peers.get(one.clients)
        table.add_row(
            str(one.clients),
            one.side,
            f"{one.tokens_per_second:,.1f}",
            "" if peer is None or one.side == PEER else f"{one.tokens_per_second / peer:.2f}",
            f"{one.first_token_p95:.2f} s",
            f"{one.next_token_median * 1000:,.1f} ms",
            "" if one.next_token_masked is None else f"{one.next_token_masked / one.next_token_median - 1:+.1%}",
            f"{one.cpu * 1000:,.3f} ms",
            str(one.errors),
        )
    return table


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.argument("tokenizer", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("programs", nargs=-1)
@click.option("--llama-server", type=click.Path(exists=True, dir_okay=False), help="llama.cpp's server, built here.")
@click.option("--guidellm", default=".venv-load/bin/guidellm", show_default=True, help="The program that asks.")
@click.option("--clients", default="1,4,16,32,64", show_default=True, help="How many ask at a time, in turn.")
@click.option(
    "--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="Medians of so many are shown."
)
@click.option(
    "--turns", type=click.IntRange(min=1), default=16, show_default=True, help="Requests of one client to each server."
)
@click.option(
    "--prompt", type=click.IntRange(min=1), default=Work.prompt, show_default=True, help="Tokens of a prompt."
)
@click.option(
    "--output", type=click.IntRange(min=2), default=Work.output, show_default=True, help="Tokens of an answer."
)
@click.option("--places", type=click.IntRange(min=1), default=32, show_default=True, help="Texts written at once.")
@click.option(
    "--threads", type=click.IntRange(1, 256), default=os.cpu_count, help="Of each server; default: all cores."
)
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures here, too.")
def main(
    model: Path, tokenizer: Path, programs: tuple[str, ...], llama_server: str | None, guidellm: str, clients: str,
    rounds: int, turns: int, prompt: int, output: int, places: int, threads: int, path: Path | None,
) -> None:  # fmt: skip
    """Measure the server of Python beside PROGRAMS, those of other languages, with MODEL and its TOKENIZER."""
    numbers = [int(one) for one in clients.split(",") if one.strip().isdigit() and int(one)]
    if len(numbers) != len(clients.split(",")):
        raise click.BadParameter(f"is {clients!r}; it must be numbers from 1, as in 1,4,16", param_hint="--clients")
    work = Work(prompt, output)
    started = commands(model, programs, llama_server, threads, places, work)
    terminal = console()
    found = []
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as running:
        folder = Path(name)
        servers = [
            running.enter_context(serving(side, command, port, folder / f"{number}.log"))
            for number, (side, (command, port)) in enumerate(started.items())
        ]
        order = [(number, server) for number in range(rounds) for server in servers]
        for count in numbers:
            if count == 1:
                found += ask_in_turns(servers, work, turns, seed=1000)
                continue
            for number, server in track(order, f"{count} clients", console=terminal, transient=True):
                # Each has prompts of its own, so that no round finds those of another in a cache.
                found.append(ask(guidellm, server, count, tokenizer.resolve(), work, 1000 * count + number, folder))
    shown = medians(found)
    terminal.print(_table(shown, model, work))
    for sentence in shortfalls(shown):
        terminal.print(sentence, highlight=False)
    if path is not None:
        content = {
            "model": model.name,
            "work": asdict(work),
            "rounds": rounds,
            "figures": [asdict(one) for one in shown],
        }
        path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
