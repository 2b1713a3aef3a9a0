"""What lm-evaluation-harness finds, on tasks made here: of a model behind a URL, or of the same by transformers, or by
the engine in this process.

    python scores.py FOLDER --url http://127.0.0.1:8000/v1/completions --concurrency 32
    python scores.py FOLDER
    python scores.py FOLDER --in-process

FOLDER is the model as Hugging Face keeps it; of one behind a URL its tokenizer is read. Writes one JSON object: of each
task the metrics and what the model said to each request, in their order.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lm_eval
from lm_eval.tasks import TaskManager

WORDS = ("the", "sea", "is", "deep", "and", "wide", "a", "ship", "sails", "north", "with", "men", "grün", "42", "…")
#: Tokens that a model of these tests has room for.
LENGTH = 128


def texts(number: int, least: int, most: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(least, most))) for _ in range(number)]


def tasks(folder: Path) -> list[dict[str, Any]]:
    """One of each kind of request: choices by log-likelihood, texts by windows of it, and texts that are written."""
    few = list(zip(texts(20, 3, 12, 0), texts(20, 1, 4, 1), texts(20, 1, 4, 2), texts(20, 1, 4, 3), strict=True))
    data = {
        "choices": [
            {"text": text, "choices": list(choices), "answer": at % 3} for at, (text, *choices) in enumerate(few)
        ],
        "windows": [{"text": text} for text in texts(8, 5, 120, 4)],
        "written": [{"text": text} for text in texts(12, 3, 12, 5)],
    }
    kinds: dict[str, dict[str, Any]] = {
        "choices": {
            "output_type": "multiple_choice", "doc_to_text": "{{text}}", "doc_to_choice": "{{choices}}",
            "doc_to_target": "answer", "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
        },
        "windows": {
            "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
            "metric_list": [{"metric": "bits_per_byte"}],
        },
        "written": {
            "output_type": "generate_until", "doc_to_text": "{{text}}", "doc_to_target": "{{text}}",
            "generation_kwargs": {"until": ["e", "\n"], "max_gen_toks": 24, "temperature": 0.0, "do_sample": False},
            "metric_list": [{"metric": "exact_match"}],
        },
    }  # fmt: skip
    made = []
    for name, rows in data.items():
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        files = {"data_files": {"test": str(path)}, "cache_dir": str(folder / "cache")}
        made.append(
            {"task": name, "dataset_path": "json", "dataset_kwargs": files, "test_split": "test", **kinds[name]}
        )
    return made


def scores(folder: Path, url: str | None, concurrency: int, in_process: bool) -> dict[str, Any]:
    asked: dict[str, Any] = {}
    model: Any = "hf" if url is None else "local-completions"
    if in_process:
        from nncuda.infer import LanguageModel
        from nncuda.infer.harness import HarnessModel

        model = HarnessModel(LanguageModel.load(folder, threads=1, context=LENGTH - 1, cache_format="f32"))
    elif url is None:
        # Of a model behind a URL the harness makes windows that are two tokens shorter.
        asked = {"pretrained": str(folder), "dtype": "float32", "device": "cpu", "max_length": LENGTH - 2}
    else:
        asked = {"base_url": url, "model": "small", "tokenizer": str(folder), "max_length": LENGTH}
        asked |= {"num_concurrent": concurrency, "max_retries": 1}
    with TemporaryDirectory() as name:
        made = tasks(Path(name))
        found = lm_eval.simple_evaluate(
            model=model,
            model_args=asked,
            tasks=made,
            task_manager=TaskManager(include_defaults=False),
            bootstrap_iters=0,
        )
    assert found is not None
    return {
        task["task"]: {
            "metrics": {key: value for key, value in found["results"][task["task"]].items() if key != "sample_len"},
            "said": [one["resps"] for one in sorted(found["samples"][task["task"]], key=lambda one: one["doc_id"])],
        }
        for task in made
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--url")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--in-process", action="store_true")
    given = parser.parse_args()
    json.dump(scores(given.folder, given.url, given.concurrency, given.in_process), sys.stdout)
