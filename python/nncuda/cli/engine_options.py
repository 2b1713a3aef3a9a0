"""The options of commands that generate: how tokens are drawn, and how the inference engine runs. Apart from
`arguments`, so that only they load the engine."""

from __future__ import annotations

from collections.abc import Callable

import click

from ..infer.paged_cache import CACHE_FORMATS
from ..infer.weight_reader import PLACES
from .arguments import Command, together
from .options import Seed


def drawing_options(temperature: float, zero: str, top_p: float | None, seed: str) -> Callable[[Command], Command]:
    """`temperature`, `top_k`, `top_p` and `seed`, with a command's own defaults and words for 0 and for the seed."""
    return together(
        click.option(
            "--temperature", type=click.FloatRange(min=0), default=temperature, show_default=True,
            help=f"Sampling temperature; {zero}.",
        ),
        click.option("--top-k", type=click.IntRange(min=1), help="Sample only from the K most likely tokens."),
        click.option(
            "--top-p", type=click.FloatRange(0, 1, min_open=True), default=top_p, show_default=top_p is not None,
            help="Sample only from the most likely tokens that make up this share of the probability.",
        ),
        click.option("--seed", type=Seed(), default=0, show_default=True, help=f"The same seed gives {seed}."),
    )  # fmt: skip


#: `context`, `cache_format` and `weights`, which are those of `Engine`.
engine_options = together(
    click.option(
        "--context", type=click.IntRange(min=1), help="The context length.  [default: the model's, at most 8192]"
    ),
    click.option(
        "--cache-format", type=click.Choice(CACHE_FORMATS), default="f16", show_default=True,
        help="Format of the cached keys and values.",
    ),
    click.option(
        "--weights", type=click.Choice(PLACES), default="auto", show_default=True,
        help="On a CPU: copy the weights into memory, which is faster to read, or use the mapped file; auto: copy if "
        "memory allows.",
    ),
)  # fmt: skip

stats_option = click.option(
    "--stats", is_flag=True, help="Print tokens and bytes per second to standard error at the end."
)
