"""The `nncuda` command. Each subcommand is imported when it is called, so that `nncuda --help` is quick.

Exit codes: 0 success; 1 a check failed, or training diverged; 2 wrong use of the command; 3 a file or its content is
wrong; 4 the library, the device or its memory fails; 130 interrupted.
"""

from __future__ import annotations

import importlib

import click

from .. import __version__
from .failures import FailureGroup

_COMMANDS = {
    "adapter": "nncuda.cli.adapter:adapter",
    "bench": "nncuda.bench.command:bench",
    "chat": "nncuda.cli.chat:chat",
    "convert": "nncuda.cli.convert:convert",
    "data": "nncuda.cli.data:data",
    "demo": "nncuda.cli.demo:demo",
    "doctor": "nncuda.cli.doctor:doctor",
    "dump": "nncuda.cli.dump:dump",
    "eval": "nncuda.cli.evaluate:evaluate",
    "generate": "nncuda.cli.generate:generate",
    "inspect": "nncuda.cli.inspect:inspect",
    "merge": "nncuda.cli.merge:merge",
    "plan": "nncuda.cli.plan:plan",
    "quantize": "nncuda.cli.quantize:quantize",
    "report": "nncuda.cli.report:report",
    "serve": "nncuda.cli.serve:serve",
    "shadow": "nncuda.cli.shadow:shadow",
    "tokenizer": "nncuda.cli.tokenizer:tokenizer",
    "train": "nncuda.cli.train:train",
    "verify": "nncuda.cli.verify:verify",
    "verify-run": "nncuda.cli.verify_run:verify_run",
}


class _LazyGroup(FailureGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[name].split(":")
        return getattr(importlib.import_module(module), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from ..nearest import nearest  # what it stands on takes a while to load

            near = nearest(args[0], sorted(_COMMANDS))
            raise click.UsageError(f"{error.message} Did you mean {near}?", ctx) if near else error from None


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="nncuda")
def main() -> None:
    """Train and run mixture-of-experts language models on the CPU or a GPU.

    A first run: `nncuda tokenizer train`, `nncuda data encode`, `nncuda train`, `nncuda generate`.
    """
