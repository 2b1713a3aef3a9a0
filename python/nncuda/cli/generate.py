"""`nncuda generate`: text, or token ids, from a trained model, as they come."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from ..device import Comm, Context
from ..formats import FormatError
from ..formats.json_values import read_json
from ..formats.regular import present
from ..infer import LanguageModel, Sampling, TextGenerator, room, serve_experts
from ..infer import generate as generate_tokens
from ..infer.engine import USUAL_CONTEXT
from ..models import MoETransformer
from ..models.adapter import Adapter
from ..models.config import Precision
from ..models.stored import StoredModel
from ..train import Checkpoint, resolve_checkpoint
from ..train.aborting import aborting
from .arguments import device_options
from .engine_options import adapter_option, drawing_options, engine_options, stats_option
from .ranks import RankCommand, before_joining
from .terminal import bytes_text, spoken

if TYPE_CHECKING:
    from ..tokenizer.tokenizer import TextTokenizer

_USUAL_TOKENS = 128


@click.command(cls=RankCommand)
@click.argument("arguments", nargs=-1, metavar="[MODEL] [PROMPT]...")
@click.option("--model", "model_option", metavar="PATH", help="The model; all arguments are then prompts.")
@click.option(
    "--prompt", "prompts", multiple=True, metavar="TEXT", help="A prompt; may be repeated, and all run together."
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=0),
    help="Maximum number of tokens to write.  [default: 128, or less if the model's context leaves less]",
)
@click.option("--greedy", is_flag=True, help="Always pick the most likely token.")
@drawing_options(1.0, "0 is the same as --greedy", None, "the same text. Of several prompts, prompt i uses seed + i")
@click.option("--ids", "as_ids", is_flag=True, help="PROMPT and output are token ids; no tokenizer is needed.")
@engine_options
@adapter_option
@stats_option
@click.option(
    "--contiguous",
    is_flag=True,
    help="Run a checkpoint by the layers that train, over a contiguous cache: the same tokens as from Go and Rust.",
)
@click.option(
    "--precision",
    type=click.Choice(get_args(Precision)),
    help="With --contiguous: the precision to compute in; weights and cache take half the memory in bf16 and f16.  "
    "[default: f32]",
)
@click.option(
    "--best", is_flag=True, help="For a run, use the checkpoint with the lowest held-out loss instead of the last."
)
@click.option(
    "--expert-parallel",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="The ranks that mpiexec has started, which divide the experts among them.",
)
@device_options
def generate(
    arguments: tuple[str, ...],
    model_option: str | None,
    prompts: tuple[str, ...],
    max_tokens: int | None,
    greedy: bool,
    sampling: Sampling,
    as_ids: bool,
    adapter: Path | None,
    stats: bool,
    contiguous: bool,
    precision: Precision | None,
    best: bool,
    expert_parallel: int,
    device: str,
    threads: int | None,
    **engine: Any,
) -> None:
    """Continue PROMPT ("-" reads it from standard input) with MODEL, and write the text as it is generated.

    MODEL is a GGUF file, a Hugging Face folder (Llama, Qwen, Phi and others), a checkpoint, or the folder of a run.

    Several prompts run together; their texts are written in order, separated by a line "---".

    With --ids, PROMPT is token ids separated by spaces or commas, which the model reads unchanged, and the output is
    the ids that follow, on one line, separated by spaces; no id ends it early.

    A mixture of experts that is too large for one machine: `mpiexec -n 4 nncuda generate MODEL PROMPT
    --expert-parallel 4`. Each rank holds some of the experts, the first one the rest of the model, too; it reads the
    prompts and writes. The text is that of one rank alone.
    """
    if greedy:
        sampling = dataclasses.replace(sampling, temperature=0.0)
    with contextlib.ExitStack() as stack:
        comm = stack.enter_context(_joined(expert_parallel, device, threads)) if expert_parallel > 1 else None
        path, texts = _model_and_prompts(model_option, arguments, prompts)
        context = engine["context"]
        if contiguous:
            usual = {"context": None, "cache_format": "f16", "weights": "auto"}
            if engine != usual or adapter is not None or stats or comm is not None or len(texts) > 1:
                raise click.UsageError(
                    "--contiguous takes one prompt, and none of --context, --cache-format, --weights, --adapter, "
                    "--stats and --expert-parallel"
                )
            if not _is_trained(path):
                raise click.UsageError("--contiguous is for checkpoints, folders of runs and Mixtral folders")
            with Context(device, threads=threads) as ctx:
                checkpoint = Checkpoint(resolve_checkpoint(path, "best" if best else "last"))
                load = partial(checkpoint.model, ctx, precision=precision or "f32")
                for piece in _contiguous_pieces(checkpoint, load, _prompt(texts[0]), max_tokens, sampling, as_ids):
                    _write(piece)
            click.echo()
            return
        if precision is not None:
            raise click.UsageError("--precision needs --contiguous; the inference engine computes in f32")
        if path.is_dir():
            path = resolve_checkpoint(path, "best" if best else "last")
        start = time.perf_counter()
        stored = StoredModel.open(path)
        if comm is not None and comm.rank > 0:
            serve_experts(stored, comm, weights=engine["weights"])
            return
        engine["adapter"] = None if adapter is None else Adapter.open(adapter, stored.config)
        texts = [_prompt(text) for text in texts]
        vocab, tokenizer = stored.config.vocab_size, stored.tokenizer
        given = [prompt_ids(text, as_ids, vocab, tokenizer, stored.path) for text in texts]
        length, config = max(map(len, given)), stored.config
        if max_tokens is None:
            reach = max(min(config.context, USUAL_CONTEXT), config.extended_context) if context is None else context
            max_tokens = max(0, min(_USUAL_TOKENS, reach - length + 1))
        if context is None and config.extended_context > config.context:
            # As over a contiguous cache: the rotary embedding is stretched where a text needs it.
            engine["context"] = min(max(config.context, length + max_tokens - 1), config.extended_context)
        rows = min(len(texts), 32)
        ctx = stack.enter_context(Context(device, threads=threads)) if comm is None else comm.ctx
        model = stack.enter_context(LanguageModel(stored, ctx, max_batch=rows, comm=comm, **engine))
        seconds = time.perf_counter() - start
        first = _write_events(model, given, max_tokens, sampling, as_ids)
        if stats:
            write_statistics(model, seconds, first)


@contextlib.contextmanager
def _joined(ranks: int, device: str, threads: int | None) -> Iterator[Comm]:
    """The ranks that divide the experts; of what ends one of them the others are told."""
    with before_joining():
        ctx = Context(device, threads=threads)
    with ctx:
        comm = Comm(ctx, "auto")
        with aborting(comm):
            if comm.ranks != ranks:
                count = "1 rank" if comm.ranks == 1 else f"{comm.ranks} ranks"
                raise click.UsageError(
                    f"--expert-parallel is {ranks}, and of this command mpiexec has started {count}; start {ranks}"
                )
            yield comm


def _prompt(text: str) -> str:
    return sys.stdin.read() if text == "-" else text


def prompt_ids(prompt: str, as_ids: bool, vocab: int, tokenizer: TextTokenizer | None, path: Path) -> list[int]:
    """The ids of a prompt as the model in `path` reads it."""
    if as_ids:
        return _parse_ids(prompt, vocab)
    if tokenizer is None:
        raise FormatError(path, "holds no tokenizer, so it cannot read text; --ids takes token ids")
    return tokenizer.encode(prompt, begin=tokenizer.adds_begin)


def _model_and_prompts(model: str | None, arguments: Sequence[str], prompts: Sequence[str]) -> tuple[Path, list[str]]:
    given = list(arguments)
    if model is None:
        if not given:
            raise click.UsageError("there is no MODEL: name one as the first argument or with --model")
        model = given.pop(0)
    texts = [*prompts, *given]
    if not texts:
        raise click.UsageError("there is no PROMPT: give one as an argument or with --prompt")
    path = Path(model)
    if not path.exists():
        raise click.UsageError(f"MODEL {model!r} does not exist")
    return path, texts


def _is_trained(path: Path) -> bool:
    """Whether a path may be a model that `MoETransformer` is."""
    if path.is_file():
        return False
    try:
        folder = resolve_checkpoint(path)
        return present(folder / "training.json") or read_json(folder / "config.json").get("model_type") == "mixtral"
    except FormatError:
        return True  # what is wrong is for the reader to say


def _write_events(
    model: LanguageModel,
    prompts: list[list[int]],
    max_tokens: int,
    sampling: Sampling,
    as_ids: bool,
) -> float:
    """Writes the continuations in the order of the prompts; seconds until the first token."""
    ends = () if as_ids else None
    parts: list[list[str]] = [[] for _ in prompts]
    ended = [False] * len(prompts)
    now, start, first = 0, time.perf_counter(), 0.0
    for event in model.generate(prompts, max_tokens, sampling, end_ids=ends):
        first = first or time.perf_counter() - start
        if not as_ids:
            parts[event.prompt].append(event.text)
        elif event.token >= 0:
            parts[event.prompt].append(f" {event.token}" if parts[event.prompt] else str(event.token))
        ended[event.prompt] = event.finish is not None
        if event.prompt == now and not as_ids:
            _write(event.text)
        elif event.prompt == now and event.token >= 0:
            _write(parts[now][-1])
        while now < len(prompts) and ended[now]:
            click.echo()
            now += 1
            if now < len(prompts):
                click.echo("---")
                _write("".join(parts[now]))
    return first


def write_statistics(model: LanguageModel, load_seconds: float, first_token: float) -> None:
    """What it took, on the standard error."""
    done = model.scheduler.statistics
    click.echo(
        f"loaded in {load_seconds:.2f} s; first token after {first_token:.3f} s\n"
        f"prompt: {done.prompt_tokens} tokens, {done.shared_tokens} of them in the cache; {done.prefill_tokens} run in "
        f"{done.prefill_seconds:.3f} s: {_rate(done.prefill_tokens, done.prefill_seconds)} tokens/s\n"
        f"decode: {done.decode_tokens} tokens in {done.decode_steps} steps, {done.decode_seconds:.3f} s: "
        f"{_rate(done.decode_tokens, done.decode_seconds)} tokens/s, "
        f"{_rate(done.decode_bytes / 1e9, done.decode_seconds)} GB/s\n"
        f"memory: weights {bytes_text(model.engine.weights.nbytes)}, cache {bytes_text(model.engine.cache.nbytes)}, "
        f"all tensors and scratch at most {bytes_text(model.ctx.bytes_peak)}",
        err=True,
    )


def _rate(amount: float, seconds: float) -> str:
    return f"{amount / seconds:.1f}" if seconds else "-"


def _write(text: str) -> None:
    click.echo(spoken(text), nl=False)
    sys.stdout.flush()


def _contiguous_pieces(
    checkpoint: Checkpoint,
    load: Callable[[], MoETransformer],
    prompt: str,
    max_tokens: int | None,
    sampling: Sampling,
    as_ids: bool,
) -> Iterator[str]:
    """The continuation by the layers that train; a wrong prompt is refused before the model is loaded."""
    tokenizer = checkpoint.tokenizer
    ids = prompt_ids(prompt, as_ids, checkpoint.config.vocab_size, tokenizer, checkpoint.path)
    model = load()
    if max_tokens is None:
        max_tokens = min(_USUAL_TOKENS, room(model, len(ids)))
    if not as_ids and tokenizer is not None:
        yield from TextGenerator(model, tokenizer).stream(prompt, max_tokens, sampling)
        return
    for number, token in enumerate(generate_tokens(model, ids, max_tokens, sampling)):
        yield f" {token}" if number else str(token)


def _parse_ids(text: str, vocab: int) -> list[int]:
    """The ids of a PROMPT with --ids."""
    ids: list[int] = []
    for word in text.replace(",", " ").split():
        if not word.isascii() or not word.isdigit():
            raise click.UsageError(
                f"PROMPT has {word!r}; with --ids it must be token ids, separated by spaces or commas"
            )
        if int(word) >= vocab:
            raise ValueError(f"PROMPT[{len(ids)}] is {int(word)}; it must be 0 to {vocab - 1}")
        ids.append(int(word))
    return ids
