"""`nncuda serve`: a model over HTTP."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import click

from ..extras import left_out
from ..formats.regular import read_regular
from ..infer import LanguageModel
from ..infer.paged_cache import PAGE
from ..serve.access_log import FORMATS
from .arguments import device_options
from .engine_options import adapters_option, engine_options
from .terminal import bytes_text

_KEY_FILE_BYTES = 1 << 16


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="The port; 0 takes a free one."
)
@click.option("--api-key", "api_keys", multiple=True, metavar="KEY", help="A key that requests must have; repeatable.")
@click.option(
    "--api-key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of such keys, one a line; # begins a comment.",
)
@click.option("--no-auth", is_flag=True, help="Serve on an address that others can reach, without a key.")
@click.option("--model-name", help="The name that requests have for the model.  [default: that of its file]")
@adapters_option
@click.option(
    "--max-batch", type=click.IntRange(1, 4096), default=32, show_default=True, help="Texts that are written at once."
)
@click.option(
    "--max-queue",
    type=click.IntRange(0, 1 << 20),
    default=256,
    show_default=True,
    help="Texts that may wait beside them; a further one is refused (429).",
)
@click.option(
    "--cache-tokens",
    type=click.IntRange(min=1),
    help="Room of the cache for all texts together, at least the context.  [default: four times the context]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="The longest that a request may take.",
)
@click.option(
    "--drain-seconds",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long running requests may go on after SIGTERM.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="How the line that each request has in the log (standard error) is written.",
)
@click.option("--no-page", is_flag=True, help="Show no page with a chat at /.")
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Memory nodes (NUMA) over which threads, and the weights that they read, are spread.",
)
@engine_options
@device_options
def serve(
    model: Path,
    host: str,
    port: int,
    api_keys: tuple[str, ...],
    api_key_file: Path | None,
    no_auth: bool,
    model_name: str | None,
    adapters: dict[str, Path],
    max_batch: int,
    max_queue: int,
    cache_tokens: int | None,
    timeout: float,
    drain_seconds: float,
    log_format: str,
    no_page: bool,
    nodes: int,
    device: str,
    threads: int | None,
    **engine: Any,
) -> None:
    """Serve MODEL over HTTP, in the words of OpenAI's API: a GGUF file, a Hugging Face folder (Llama, Qwen,
    Phi and others), a checkpoint or a run.

    With --adapter, requests choose by their model: NAME is MODEL with that adapter, and all are decoded together.

    Requests of many clients are decoded together, and each gets the bytes that it would get alone. SIGTERM ends the
    server when running requests have ended. Without an API key it answers on this machine only, unless --no-auth.
    """
    missing = left_out("serve", "the server")
    if missing is not None:
        raise click.ClickException(missing)
    from ..serve.guard import is_loopback
    from ..serve.server import ServeOptions, Server, bound

    keys = [*api_keys, *(_keys_of(api_key_file) if api_key_file else ())]
    for key in keys:
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise click.UsageError("an API key must be of visible ASCII characters, at least one")
    if no_auth and keys:
        raise click.UsageError("--no-auth and API keys exclude each other")
    if not keys and not no_auth and not is_loopback(host):
        raise click.UsageError(
            f"others can reach {host}: give an --api-key or --api-key-file, or --no-auth to serve them without"
        )
    name = model_name or model.resolve().stem or "model"
    if name in adapters:
        raise click.UsageError(f"--adapter {name} has the name of the model; choose another, or a --model-name")
    with bound(host, port) as listener:
        start = time.perf_counter()
        click.echo(f"loading {model}", err=True)
        engine |= {"max_batch": max_batch, "cache_tokens": cache_tokens, "adapters": adapters}
        with LanguageModel.load(model, device=device, threads=threads, nodes=nodes, **engine) as loaded:
            cache = loaded.engine.cache
            size = f"{loaded.stored.num_parameters:,} parameters, context {loaded.context}"
            room = f"cache {bytes_text(cache.nbytes)} for {cache.num_pages * PAGE} tokens"
            seconds = time.perf_counter() - start
            click.echo(f"loaded in {seconds:.1f} s: {size}, {room}, {loaded.ctx.device}", err=True)
            at = listener.getsockname()
            shown = f"[{at[0]}]" if ":" in at[0] else at[0]
            options = ServeOptions(name, keys, no_auth, max_queue, timeout, drain_seconds, log_format, not no_page)
            server = Server(loaded, listener, options)
            asyncio.run(server.run(lambda: click.echo(f"serving {name} on http://{shown}:{at[1]}", err=True)))


def _keys_of(path: Path) -> list[str]:
    """The keys of a file."""
    try:
        lines = read_regular(path, _KEY_FILE_BYTES).decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise click.UsageError(f"{path} must hold API keys in ASCII, one a line") from None
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise click.UsageError(f"{path} holds no API key")
    return keys
