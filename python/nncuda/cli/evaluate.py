"""`nncuda eval`: the tasks of lm-evaluation-harness, on a model in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from ..extras import left_out
from ..formats.atomic import replace_file, write_file
from ..formats.errors import FormatError
from ..infer import LanguageModel
from .arguments import device_options
from .engine_options import adapter_option, engine_options
from .options import Seed
from .outputs import require_room
from .terminal import console


@click.command("eval")
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--task",
    "tasks",
    multiple=True,
    required=True,
    metavar="NAME|FILE",
    help="A task: a YAML file, whose folder is searched for what it includes, or the name of one that comes with "
    "lm-eval, whose data it then fetches; may be repeated.",
)
@click.option("--few-shot", type=click.IntRange(min=0), help="Examples before each question.  [default: the task's]")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N questions of each task, for a try.")
@click.option("--chat", is_flag=True, help="Ask through the model's chat template.")
@click.option("--seed", type=Seed(), default=0, show_default=True, help="The same seed gives the same sampled texts.")
@click.option("--max-batch", type=click.IntRange(min=1), default=32, show_default=True, help="Texts that run at once.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all scores here.")
@click.option(
    "--samples",
    "samples_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write each question, what the model said and its scores here, a JSON object a line.",
)
@click.option("--force", is_flag=True, help="Replace the files of --json and --samples.")
@engine_options
@adapter_option
@device_options
def evaluate(
    model: Path,
    tasks: tuple[str, ...],
    few_shot: int | None,
    limit: int | None,
    chat: bool,
    seed: int,
    max_batch: int,
    json_path: Path | None,
    samples_path: Path | None,
    force: bool,
    device: str,
    threads: int | None,
    **engine: Any,
) -> None:
    """Score MODEL on tasks of lm-evaluation-harness: a GGUF file, a Hugging Face folder, a checkpoint or a run.

    The engine computes the scores in this process, as it serves the model: --cache-format f32 keeps keys and values
    whole, as transformers does in f32. Needs lm-eval, which `pip install 'nncuda[eval]'` adds.
    """
    if (missing := left_out("eval", "the harness")) is not None:
        raise click.ClickException(missing)
    for path in (json_path, samples_path):
        if path is not None:
            require_room(path, force)
    from ..infer.harness import HarnessModel  # after the options are checked: the harness takes seconds to load

    manager, names = _tasks(tasks)
    with LanguageModel.load(model, device=device, threads=threads, max_batch=max_batch, **engine) as loaded:
        import lm_eval

        found = lm_eval.simple_evaluate(
            model=HarnessModel(loaded, seed=seed), tasks=names, task_manager=manager, num_fewshot=few_shot,
            limit=limit, apply_chat_template=chat, log_samples=samples_path is not None,
        )  # fmt: skip
    assert found is not None  # as on every process but others than the first
    if json_path is not None:
        kept = {
            name: found[name]
            for name in ("results", "groups", "versions", "n-shot", "higher_is_better")
            if name in found
        }
        write_file(json_path, json.dumps(kept, indent=2, default=str) + "\n")
    if samples_path is not None:
        with replace_file(samples_path) as file:
            for task, samples in found["samples"].items():
                file.writelines(
                    json.dumps({"task": task, **sample}, default=str).encode() + b"\n" for sample in samples
                )
    console().print(_table(found["results"]))


def _tasks(given: Sequence[str]) -> tuple[Any, list[str]]:
    """The harness's manager of tasks, and the names that it knows those of the command by."""
    from lm_eval.tasks import TaskManager

    files = {name: Path(name).resolve() for name in given if name.endswith((".yaml", ".yml"))}
    for name, path in files.items():
        if not path.is_file():
            raise click.UsageError(f"--task: there is no file {name}")
    manager = TaskManager(
        include_path=sorted({str(path.parent) for path in files.values()}), include_defaults=len(files) < len(given)
    )
    names = []
    for name in given:
        if name in files:
            inside = [known for known, entry in manager.task_index.items() if _is(entry.yaml_path, files[name])]
            if not inside:
                raise FormatError(files[name], "is no task of lm-evaluation-harness: it needs at least `task: NAME`")
            names += inside
        elif name in manager.task_index:
            names.append(name)
        else:
            raise click.UsageError(f"--task: lm-eval has no task {name}; a file's name ends in .yaml")
    return manager, names


def _is(path: Path | None, file: Path) -> bool:
    return path is not None and Path(path).resolve() == file


def _table(results: Mapping[str, Mapping[str, Any]]) -> Table:
    """A line a metric: the harness names it "metric,filter", and its standard error "metric_stderr,filter"."""
    table = Table("task", "metric", "filter", "value", "± standard error")
    for task, metrics in results.items():
        for name, value in metrics.items():
            metric, comma, kind = name.partition(",")
            if not comma or metric.endswith("_stderr"):
                continue
            error = metrics.get(f"{metric}_stderr,{kind}")
            shown = f"{error:.4f}" if isinstance(error, float) else ""
            table.add_row(task, metric, "" if kind == "none" else kind, f"{value:.4f}", shown)
    return table
