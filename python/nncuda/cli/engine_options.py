"""The options of commands that generate: how tokens are drawn, and how the inference engine runs. Apart from
`arguments`, so that only they load the engine."""

from __future__ import annotations

import dataclasses
import functools
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import click

from ..infer import Sampling
from ..infer.paged_cache import CACHE_FORMATS
from ..infer.weight_reader import PLACES
from .arguments import Command, together
from .options import Seed


class _Bias(click.ParamType):
    """ID=BIAS, as a pair."""

    name = "bias"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, float]:
        token, _, bias = str(value).partition("=")
        if not (token.isascii() and token.isdigit()):
            self.fail(f"{value!r} is not ID=BIAS, such as 42=-100", param, ctx)
        return int(token), click.FLOAT.convert(bias, param, ctx)


class _NamedPath(click.ParamType):
    """NAME=PATH, as a pair."""

    name = "named path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        name, _, path = str(value).partition("=")
        if not (0 < len(name) <= 256 and path) or any(unicodedata.category(sign) in ("Cc", "Cs") for sign in name):
            self.fail(f"{value!r} is not NAME=PATH, such as sql=adapters/sql", param, ctx)
        return name, _PRESENT.convert(path, param, ctx)


_PRESENT = click.Path(exists=True, path_type=Path)


def _by_name(ctx: click.Context, param: click.Parameter, value: tuple[tuple[str, Path], ...]) -> dict[str, Path]:
    names = [name for name, _ in value]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"{name!r} is the name of two adapters", ctx, param)
    return dict(value)


#: `adapter`, which is that of `LanguageModel.load`.
adapter_option = click.option(
    "--adapter", type=_PRESENT,
    help="A LoRA adapter of MODEL: a folder of PEFT, or a GGUF file; the model's weights stay as they are stored.",
)  # fmt: skip

#: `adapters`: folders and files by name.
adapters_option = click.option(
    "--adapter", "adapters", type=_NamedPath(), multiple=True, callback=_by_name, metavar="NAME=PATH",
    help="A LoRA adapter of MODEL, a folder of PEFT or a GGUF file, and the name that requests have for the model with "
    "it; repeatable.",
)  # fmt: skip


def drawing_options(temperature: float, zero: str, top_p: float | None, seed: str) -> Callable[[Command], Command]:
    """The options of `Sampling`, which a command gets as `sampling`, with its own defaults and words for 0 and for the
    seed."""
    options = together(
        click.option(
            "--temperature", type=click.FloatRange(min=0), default=temperature, show_default=True,
            help=f"Sampling temperature; {zero}.",
        ),
        click.option("--top-k", type=click.IntRange(min=1), help="Sample only from the K most likely tokens."),
        click.option(
            "--top-p", type=click.FloatRange(0, 1, min_open=True), default=top_p, show_default=top_p is not None,
            help="Sample only from the most likely tokens that make up this share of the probability.",
        ),
        click.option(
            "--min-p", type=click.FloatRange(0, 1),
            help="Sample only from tokens at least this many times as likely as the most likely one.",
        ),
        click.option(
            "--presence-penalty", type=float, default=0.0, metavar="X",
            help="Subtract X from the logit of a token that was written before.",
        ),
        click.option(
            "--frequency-penalty", type=float, default=0.0, metavar="X",
            help="Subtract X from the logit of a token for each time that it was written.",
        ),
        click.option(
            "--repetition-penalty", type=float, default=1.0, metavar="X",
            help="Make tokens of the prompt and of what was written less likely: X above 1, such as 1.1, divides their "
            "logits.",
        ),
        click.option(
            "--logit-bias", type=_Bias(), multiple=True, metavar="ID=BIAS",
            help="Add BIAS to the logit of the token ID; may be repeated.",
        ),
        click.option("--seed", type=Seed(), default=0, show_default=True, help=f"The same seed gives {seed}."),
    )  # fmt: skip

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def with_sampling(*args: Any, logit_bias: tuple[tuple[int, float], ...], **given: Any) -> Any:
            own = {name: given.pop(name) for name in _OWN}
            try:
                sampling = Sampling(**own, logit_bias=dict(logit_bias))
            except ValueError as error:
                raise click.UsageError(str(error)) from None
            return command(*args, sampling=sampling, **given)

        return options(cast(Command, with_sampling))

    return add


_OWN = [field.name for field in dataclasses.fields(Sampling) if field.name != "logit_bias"]

#: `context`, `cache_format` and `weights`, which are those of `Engine`.
engine_options = together(
    click.option(
        "--context", type=click.IntRange(min=1), help="The context length.  [default: the model's, at most 8192]"
    ),
    click.option(
        "--cache-format", type=click.Choice(list(CACHE_FORMATS)), default="f16", show_default=True,
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
