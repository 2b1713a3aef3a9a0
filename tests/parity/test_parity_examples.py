"""The complete examples, on tiny models: trained in one language, used in another."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import languages
import pytest
from conftest import find
from runs import Workshop
from servers import SHAPE

from nncuda.bench.random_model import write_folder

EXAMPLES = languages.ROOT / "examples"
PROMPT = "line 3 of 7: the quick"


@pytest.mark.case("train in Rust, evaluate in Python", "python", "rust")
def test_train_rust_evaluate_python(workshop: Workshop, tmp_path: Path) -> None:
    """Python finds the loss that Rust printed, in the checkpoint that Rust wrote."""
    find("rust")
    folder = EXAMPLES / "train-rust-evaluate-python"
    held_out, run = workshop.folder / "held-out.tokens", tmp_path / "run"
    program = [rust_program("train-rust"), workshop.folder / "wide.tokens", held_out, run, "40"]
    trained = printed(folder, program)
    evaluated = printed(folder, [sys.executable, "evaluate.py", run, held_out])
    (loss,) = re.findall(r"^held-out loss ([0-9.]+), checkpoints in ", trained, re.MULTILINE)
    assert f"loss {loss} nats per token" in evaluated
    assert "step 40: loss" in trained and "layer 1: experts take" in evaluated


def rust_program(name: str) -> str:
    """An example as `make rust` builds it, with the whole workspace; by itself it would need other features of each
    crate, which takes minutes."""
    build = ["cargo", "build", "--quiet", "--locked", "--workspace", "--exclude", "nn-py", "--message-format", "json"]
    made = subprocess.run(
        build, cwd=languages.ROOT / "rust", env=languages.environment(), capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    lines = [json.loads(line) for line in made.stdout.splitlines()]
    (found,) = (line["executable"] for line in lines if line.get("executable") and line["target"]["name"] == name)
    return found


def printed(folder: Path, command: list[object]) -> str:
    done = subprocess.run(command, cwd=folder, env=languages.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def server(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of examples/serve-go with a model that Python trained. It ends well when it is interrupted."""
    find("go")
    binary = tmp_path_factory.mktemp("serve") / "serve"
    subprocess.run(["go", "build", "-o", binary, "."], cwd=EXAMPLES / "serve-go", check=True)
    command = [binary, "-model", workshop.reference("small"), "-listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=languages.environment()) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip().rpartition("http://")[2]
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


def ask(server: str, **body: object) -> tuple[int, str]:
    connection = http.client.HTTPConnection(server, timeout=60)
    connection.request("POST", "/generate", json.dumps(body))
    response = connection.getresponse()
    return response.status, response.read().decode()


@pytest.mark.case("train in Python, serve in Go", "python", "go")
def test_serve_go(workshop: Workshop, server: str) -> None:
    """Text and ids are those of `nncuda generate`, with the same options."""
    run = workshop.reference("small")
    flags = ["--max-tokens", 20, "--top-p", 0.9, "--temperature", 0.7, "--seed", 5]
    options = {"max_tokens": 20, "top_p": 0.9, "temperature": 0.7, "seed": 5}
    text = find("python").run("generate", run, PROMPT, *flags).stdout
    assert ask(server, prompt=PROMPT, **options) == (200, text.removesuffix("\n"))
    ids = find("python").run("generate", run, "2 50 60", "--ids", *flags).stdout
    assert ask(server, ids=[2, 50, 60], **options) == (200, ids.removesuffix("\n"))
    greedy = find("python").run("generate", run, PROMPT, "--greedy").stdout
    assert ask(server, prompt=PROMPT, temperature=0) == (200, greedy.removesuffix("\n"))


def test_serve_go_describes_itself(server: str) -> None:
    connection = http.client.HTTPConnection(server, timeout=60)
    connection.request("GET", "/model")
    said = json.loads(connection.getresponse().read())
    assert said["vocabulary"] == 320 and said["context"] == 64 and said["text"] is True


def test_serve_go_refuses(server: str) -> None:
    for body, words in (
        ({}, "either"),
        ({"prompt": "a", "ids": [1]}, "either"),
        ({"ids": [320]}, "320"),
        ({"ids": []}, "at least one token"),
        ({"ids": [1], "max_tokens": 99}, "64"),
        ({"ids": [1], "temperature": -1}, "temperature"),
        ({"prompt": "a", "volume": 3}, "volume"),
        ({"prompt": 3}, "prompt"),
    ):
        status, answer = ask(server, **body)  # type: ignore[arg-type]
        assert status == 400 and words in json.loads(answer)["error"], (body, answer)


def test_serve_go_survives_clients_that_leave(server: str) -> None:
    """Their turn ends, and the next request is answered."""
    for _ in range(3):
        connection = http.client.HTTPConnection(server, timeout=60)
        connection.request("POST", "/generate", json.dumps({"ids": [1], "seed": 1}))
        connection.close()
    assert ask(server, ids=[1], max_tokens=2, temperature=0)[0] == 200


def embedded(language: str, folder: Path, model: Path) -> list[object]:
    """The command of an example that embeds the engine, with a model."""
    find(language)
    if language == "go":
        subprocess.run(["go", "build", "-o", folder / "embed", "."], cwd=EXAMPLES / "embed-go", check=True)
        return [folder / "embed", "-model", model]
    return [rust_program("embed-rust"), model]


@pytest.mark.case("the engine in a program without HTTP")
@pytest.mark.parametrize("language", languages.ENGINES)
def test_embedded(tmp_path: Path, language: str) -> None:
    """Texts of many requests at once are those of `nncuda generate`; one is cancelled, others are refused."""
    model = tmp_path / "model"
    write_folder(model, SHAPE)
    wanted = {}
    lines: list[str | dict[str, object]] = []
    for number in range(6):
        prompt = PROMPT[: 8 + 2 * number]
        options = {"max_tokens": 12 + number, "temperature": 0.5 * number, "top_p": 0.9, "seed": number}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        wanted[f"{number}"] = find("python").run("engine", model, prompt, *flags).stdout.removesuffix("\n")
        lines.append({"id": f"{number}", "prompt": prompt, **options})
    lines += [
        {"id": "long", "prompt": "the", "max_tokens": 10**6},
        {"id": "long", "prompt": "the"},
        {"id": "long", "cancel": True},
        {"id": "hot", "prompt": "the", "temperature": -1},
        {"id": "odd", "prompt": "the", "volume": 3},
        "no JSON",
    ]
    asked = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    done = subprocess.run(
        embedded(language, tmp_path, model), input=asked, capture_output=True, text=True, env=languages.environment()
    )
    assert done.returncode == 0, done.stderr
    texts: dict[str, str] = {}
    ends: list[tuple[str, str]] = []
    for answer in map(json.loads, done.stdout.splitlines()):
        texts[answer["id"]] = texts.get(answer["id"], "") + answer["text"]
        if "finish" in answer or "error" in answer:
            ends.append((answer["id"], answer.get("finish") or answer["error"]))
    assert {name: texts[name] for name in wanted} == wanted
    said = dict(ends)
    assert {said[name] for name in wanted} <= {"end", "length"}
    assert ("long", "cancelled") in ends and ("long", "another request of this id is under way") in ends
    assert said["hot"].startswith("temperature is -1") and said[""].startswith("the line is no request: ")
    assert len(ends) == len(wanted) + 5
