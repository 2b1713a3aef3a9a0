"""Command-line flags and TOML files for the options of models and training.

The dataclasses are the one list of options: names and types come from their fields, help texts from their docstrings.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click

from ..formats import FormatError
from ..formats.errors import shown
from ..formats.limits import TOML_BYTES, TOML_LINE_BYTES
from ..formats.regular import read_regular
from ..models import PRESETS, USUAL_PRESET, MoEConfig
from ..models.config import Precision
from ..nearest import unknown_option
from ..train import FrozenOrigin, Origin, TrainConfig
from ..train.config import FINE_TUNING, MomentsKind, ReduceDtype
from ..train.config import PRESETS as TRAIN_PRESETS
from ..train.origin import OF_TRAINING
from .config_file import ConfigFile

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TABLES: dict[str, type] = {"model": MoEConfig, "train": TrainConfig}
_PRESETS = {"model": PRESETS, "train": TRAIN_PRESETS}

preset_option = click.option(
    "--preset",
    type=click.Choice(sorted(PRESETS)),
    help=f"Preset to start from: sizes, and training options that fit them.  [default: {USUAL_PRESET}]",
)


class _OrNone(click.ParamType):
    """A number, or "none"."""

    def __init__(self, number: type):
        self.number = number
        self.name = "number|none" if number is float else "integer|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str):
            if value.lower() == "none":
                return "none"
            try:
                return self.number(value)
            except ValueError:
                self.fail(f"{value!r} is neither a number nor 'none'", param, ctx)
        return value


class Seed(click.ParamType):
    """A whole number of 64 bits. Click's own ranges would show its limits in the help."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if not -(2**63) <= number < 2**63:
            self.fail(f"{number} is not a whole number of 64 bits", param, ctx)
        return number


def config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds a flag for every option of `MoEConfig` and `TrainConfig`, none of them with a default of its own."""
    for table, options in reversed(_TABLES.items()):
        described = _descriptions(options)
        for field in reversed(dataclasses.fields(options)):
            flag = field.name.replace("_", "-")
            text = f"[{table}] {described[field.name]}  [default: {_default_text(table, field.name)}]"
            if field.type == "bool":
                option = click.option(f"--{flag}/--no-{flag}", field.name, default=None, help=text)
            else:
                kinds = {
                    "int": int,
                    "float": float,
                    "int | None": _OrNone(int),
                    "float | None": _OrNone(float),
                    "Precision": click.Choice(get_args(Precision)),
                    "MomentsKind": click.Choice(get_args(MomentsKind)),
                    "ReduceDtype": click.Choice(get_args(ReduceDtype)),
                    "str": str,
                }
                option = click.option(f"--{flag}", field.name, type=kinds[field.type], help=text)
            command = option(command)
    return command


def _default_text(table: str, name: str) -> str:
    """What an option is without its flag, as the help says it."""
    if name == "vocab_size":
        return "that of the data, else the preset's"
    value = getattr(_TABLES[table].preset(USUAL_PRESET), name)  # type: ignore[attr-defined]
    own = any(name in preset for preset in _PRESETS[table].values())
    if name == "warmup_steps":
        value = None  # which the dataclass has as what it comes to
    text = ("on" if value else "off") if isinstance(value, bool) else "none" if value is None else str(value)
    return f"the preset's; {USUAL_PRESET}: {text}" if own else text


def _descriptions(options: type) -> dict[str, str]:
    """Help texts from the table in the class's docstring; one line may describe several options ("a, b  what")."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in (inspect.getdoc(options) or "").splitlines():
        match = re.fullmatch(r"((?:\w+, )*\w+) {2,}(\S.*)", line)
        if match:
            names = match[1].split(", ")
            found.update(dict.fromkeys(names, match[2]))
        elif names and re.match(r" {8,}\S", line):
            for name in names:
                found[name] += " " + line.strip()
        else:
            names = []
    return found


def read_config(path: Path) -> ConfigFile:
    """A TOML file with the tables [model] (with `preset` if wanted), [train] and [data]; the string "none" is none."""
    content = read_regular(path, TOML_BYTES)
    for number, line in enumerate(content.splitlines(), 1):
        if len(line) > TOML_LINE_BYTES:
            raise FormatError(path, f"line {number} has {len(line)} bytes; a line may have at most {TOML_LINE_BYTES}")
    try:
        text = content.decode("utf-8")
        file = ConfigFile(path, text, tomllib.loads(text))
    except RecursionError as error:
        raise FormatError(path, "is not TOML (it is nested too deeply)") from error
    except ValueError as error:  # of TOML, of UTF-8, and of a whole number of more than 4300 digits
        last = content.count(b"\n") + 1
        problem = str(error).replace("at end of document", f"at line {last}, the end")
        raise FormatError(path, f"is not TOML ({problem})") from error
    for name, table in file.items():
        if name not in ("model", "train", "data") or not isinstance(table, dict):
            raise file.wrong(f"has {shown(name)}; it may have the tables [model], [train] and [data]", name)
    return file


def preset_vocabulary(file: ConfigFile, preset: str | None) -> int:
    """The vocabulary of the preset that is named, or that a file names; the usual one's for what is not a preset, which
    `build_configs` refuses."""
    name = preset or file.get("model", {}).get("preset")
    known = PRESETS[name if isinstance(name, str) and name in PRESETS else USUAL_PRESET]
    return known.get("vocab_size", MoEConfig.vocab_size)  # type: ignore[return-value]


def build_configs(
    file: ConfigFile, preset: str | None, flags: dict[str, Any], vocab_size: int
) -> tuple[MoEConfig, TrainConfig]:
    """Options from a preset with the data's `vocab_size`, over them a file's, over them the flags that were given."""
    of_file, tables = _given(file, flags)
    preset = preset or of_file or USUAL_PRESET
    if not isinstance(preset, str) or preset not in PRESETS:
        problem = f"there is no preset {shown(preset)}; there are {', '.join(sorted(PRESETS))}"
        raise file.wrong(problem, "model", "preset") if preset == of_file else ValueError(problem)
    model = {**PRESETS[preset], "vocab_size": vocab_size, **tables["model"]}
    train = {**TRAIN_PRESETS[preset], **tables["train"]}
    return _made(MoEConfig, model, file, "model", flags), _made(TrainConfig, train, file, "train", flags)


def begun_configs(
    file: ConfigFile, flags: dict[str, Any], origin: Origin | FrozenOrigin
) -> tuple[MoEConfig, TrainConfig]:
    """Options of a run that begins at `origin`: the model's from there, those of training from a file, over them the
    flags that were given. What contradicts the origin is refused by name."""
    preset, tables = _given(file, flags)
    if preset is not None:
        raise file.wrong(f"preset is {shown(preset)}, but --from gives the sizes of the model", "model", "preset")
    for name, value in tables["model"].items():
        if name not in OF_TRAINING and value != getattr(origin.config, name):
            raise _told(ValueError(origin.contradiction(name, value)), file, "model", flags)
    model = _made(MoEConfig, {**origin.config.to_dict(), **tables["model"]}, file, "model", flags)
    train = _made(TrainConfig, {**FINE_TUNING, **origin.options(), **tables["train"]}, file, "train", flags)
    try:
        origin.check(model, train)
    except ValueError as error:
        raise _told(error, file, "train", flags) from error
    return model, train


def trains_adapter(file: ConfigFile, flags: dict[str, Any]) -> bool:
    """Whether the options say so: they are checked later."""
    rank = flags.get("lora_rank")
    return (file.get("train", {}).get("lora_rank", 0) if rank is None else rank) != 0


def _given(file: ConfigFile, flags: dict[str, Any]) -> tuple[Any, dict[str, dict[str, Any]]]:
    """The preset of a file, and by table the options of the file and, over them, of the flags."""
    tables = {name: dict(file.get(name, {})) for name in _TABLES}
    preset = tables["model"].pop("preset", None)
    for table in tables:
        _check_names(file, table, tables[table])
    for name, options in _TABLES.items():
        for field in dataclasses.fields(options):
            if flags.get(field.name) is not None:
                tables[name][field.name] = flags[field.name]
        tables[name] = {key: None if value == "none" else value for key, value in tables[name].items()}
    return preset, tables


def _check_names(file: ConfigFile, table: str, options: dict[str, Any]) -> None:
    """Refuses what is not an option of the table, with the line and with what was meant."""
    known = {name: [field.name for field in dataclasses.fields(of)] for name, of in _TABLES.items()}
    (other,) = _TABLES.keys() - {table}
    for name in options:
        if name not in known[table]:
            kind = "model" if table == "model" else "training"
            problem = unknown_option(kind, name, known[table])
            if name in known[other]:
                problem = f"there is no {kind} option {shown(name)}; it belongs under [{other}]"
            raise file.wrong(problem, table, name)


def _made(options: type[Any], values: dict[str, Any], file: ConfigFile, table: str, flags: dict[str, Any]) -> Any:
    """The options; a wrong value is told with its line where it is the file's."""
    try:
        return options.from_dict(values)
    except ValueError as error:
        raise _told(error, file, table, flags) from error


def _told(error: ValueError, file: ConfigFile, table: str, flags: dict[str, Any]) -> ValueError:
    """The same error, with the line of the option that it begins with where the file's value is the one in use."""
    name = str(error).partition(" ")[0]
    if name not in file.get(table, {}) or flags.get(name) is not None:
        return error
    return file.wrong(str(error), table, name)
