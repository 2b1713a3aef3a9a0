"""The chain of hashes that a run leaves, and `verify-run`, which finds what was changed since, or went wrong in it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from small_models import TINY

import nncuda
from nncuda.cli import main
from nncuda.formats import FormatError, write_shard
from nncuda.train import TrainConfig, TrainingRun, read_metrics
from nncuda.train.chain import CHAIN_FILE, seal_of
from nncuda.train.origin import Origin

OPTIONS = {
    "steps": 9,
    "batch_size": 4,
    "micro_batch_size": 2,
    "replicas": 2,
    "sequence_length": 16,
    "warmup_steps": 2,
    "learning_rate": 0.01,
    "eval_every": 6,
    "save_every": 3,
    "keep_checkpoints": 9,
    "hash_every": 2,
    "seed": 7,
}


def write_data(folder: Path) -> tuple[Path, Path]:
    ids = np.random.default_rng(1).integers(4, TINY.vocab_size, 900)
    paths = folder / "train.tokens", folder / "held-out.tokens"
    write_shard(paths[0], [ids[:700]], TINY.vocab_size)
    write_shard(paths[1], [ids[700:]], TINY.vocab_size)
    return paths


def start(folder: Path, ctx: nncuda.Context, data: tuple[Path, Path], **changes: object) -> TrainingRun:
    return TrainingRun.start(folder, ctx, TINY, TrainConfig.from_dict({**OPTIONS, **changes}), *data)


def links(run: Path) -> list[str]:
    return [line["hash"] for line in map(json.loads, open(run / CHAIN_FILE)) if "hash" in line]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a run of 9 steps, `run`, and its data."""
    folder = tmp_path_factory.mktemp("chain")
    with nncuda.Context("cpu", threads=2) as ctx:
        start(folder / "run", ctx, write_data(folder)).run()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """The same to change."""
    shutil.copytree(trained / "run", tmp_path / "run")
    return tmp_path / "run"


def verify(run: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["verify-run", str(run), *options])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_hashes_are_those_of_any_threads_and_stops(tmp_path: Path, trained: Path, ctx: nncuda.Context) -> None:
    """A run that was stopped and taken up again with other threads has the chain of one that was not."""
    data = trained / "train.tokens", trained / "held-out.tokens"
    stopped = start(tmp_path / "run", ctx, data)
    for progress in stopped.steps():
        if progress.step == 5:
            stopped.stop()
    with nncuda.Context("cpu", threads=3) as other:
        TrainingRun.resume(tmp_path / "run", other, *data).run()
    assert links(tmp_path / "run") == links(trained / "run")
    assert len(links(trained / "run")) == 5  # steps 0, 2, 4, 6, 8
    metrics = [line for line in read_metrics(trained / "run" / "metrics.jsonl") if "loss" in line]
    assert [line.get("hash") for line in metrics] == [
        link for one in links(trained / "run")[1:] for link in (None, one)
    ] + [None]
    assert verify(tmp_path / "run")[0] == 0
    start(tmp_path / "other", ctx, data, seed=8).run()
    assert not set(links(tmp_path / "other")) & set(links(trained / "run"))
    start(tmp_path / "none", ctx, data, hash_every=0).run()
    assert not (tmp_path / "none" / CHAIN_FILE).exists()


@pytest.mark.parametrize("precision, moments", [("bf16", "bf16"), ("f16", "f8"), ("f32", "f8")])
def test_states_of_every_format(
    tmp_path: Path, trained: Path, ctx: nncuda.Context, precision: str, moments: str
) -> None:
    data = trained / "train.tokens", trained / "held-out.tokens"
    start(tmp_path / "run", ctx, data, precision=precision, moments=moments, steps=4).run()
    code, said = verify(tmp_path / "run", "--from", "0", "--threads", "1")
    assert code == 0, said
    assert "steps 0 to 4, computed again from the initial weights: all 4 recorded states" in said


def test_a_stretch_is_computed_again(run: Path) -> None:
    code, said = verify(run, "--from", "4", "--to", "7")
    assert code == 0, said
    folder = run / "checkpoints" / "step-00000003"
    assert f"steps 3 to 7, computed again from {folder}: all 3 recorded states there are the same" in said  # 3, 4, 6
    assert "6 recorded states" not in said and verify(run, "--files-only")[0] == 0
    assert verify(run, "--from", "8", "--to", "7")[0] == 2


def test_a_run_from_weights_is_computed_again(tmp_path: Path, trained: Path, ctx: nncuda.Context) -> None:
    """From the folder that it began with, while that is what it was."""
    data, folder = (trained / "train.tokens", trained / "held-out.tokens"), tmp_path / "weights"
    shutil.copytree(trained / "run" / "checkpoints" / "step-00000003", folder)
    train = TrainConfig.from_dict({**OPTIONS, "keep_checkpoints": 1})
    TrainingRun.start(tmp_path / "run", ctx, TINY, train, *data, origin=Origin(folder)).run()
    code, said = verify(tmp_path / "run", "--from", "0", "--to", "4")
    assert code == 0 and "where it began" in said, said
    shutil.rmtree(folder)
    code, said = verify(tmp_path / "run", "--from", "0", "--to", "4")
    assert code == 3 and "which is not there: put it back" in said, said
    shutil.copytree(trained / "run" / "checkpoints" / "step-00000006", folder)
    code, said = verify(tmp_path / "run", "--from", "0", "--to", "4")
    assert code == 1 and "is not what the run began from: its weights_sha256 is" in said, said


def test_a_run_that_began_later_is_computed_again_from_there(
    tmp_path: Path, trained: Path, ctx: nncuda.Context
) -> None:
    """With the optimiser of step 3, whose step it goes on from."""
    data, folder = (trained / "train.tokens", trained / "held-out.tokens"), tmp_path / "weights"
    shutil.copytree(trained / "run" / "checkpoints" / "step-00000003", folder)
    train = TrainConfig.from_dict(OPTIONS)
    TrainingRun.start(tmp_path / "run", ctx, TINY, train, *data, origin=Origin(folder, optimizer=True)).run()
    code, said = verify(tmp_path / "run")
    assert code == 0 and "steps 3 to 9, computed again" in said and "where it began" in said, said
    code, said = verify(tmp_path / "run", "--from", "2")
    assert code == 3 and "began at step 3: there is no state at step 2 or before" in said, said


def test_every_flipped_bit_in_a_file_is_found(run: Path) -> None:
    """One bit of each file of the run: of tensors the checkpoint is named, of anything else the file."""
    generator = np.random.default_rng(3)
    files = [path for path in sorted(run.rglob("*")) if path.is_file() and "tensorboard" not in path.parts]
    assert {path.name for path in files} == {"run.json", "metrics.jsonl", "chain.jsonl", "config.json",
                                             "model.safetensors", "optimizer.safetensors", "training.json"}  # fmt: skip
    for path in files:
        good = path.read_bytes()
        for at in [0, len(good) - 1, *generator.integers(len(good), size=3).tolist()]:
            changed = bytearray(good)
            changed[at] ^= 1 << int(generator.integers(8))
            path.write_bytes(changed)
            code, said = verify(run, "--files-only")
            assert code in (1, 3), (path, at, said)
            assert path.name in said or (path.suffix == ".safetensors" and path.parent.name in said), (path, at, said)
        path.write_bytes(good)
    assert verify(run, "--files-only")[0] == 0


def test_the_tensor_of_a_flipped_bit_is_named(run: Path, ctx: nncuda.Context, trained: Path) -> None:
    checkpoint = run / "checkpoints" / "step-00000009"
    for file, name in (("model.safetensors", "norm.weight"), ("optimizer.safetensors", "second_moment.")):
        path = checkpoint / file
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        code, said = verify(run, "--files-only")
        assert code == 1 and f"{checkpoint}: " in said and name in said and "at step 9" in said, said
        with pytest.raises(
            FormatError, match=r"the state at step 9 is not the one that this run had there: \S+ differs"
        ):
            TrainingRun.resume(run, ctx, trained / "train.tokens", trained / "held-out.tokens").run()
        path.write_bytes(good)


def test_other_data_is_found(run: Path, trained: Path, tmp_path: Path) -> None:
    data = tmp_path / "train.tokens"
    shutil.copy(trained / "train.tokens", data)
    good = data.read_bytes()
    data.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    code, said = verify(run, "--data", str(data))
    assert code == 3 and "train.tokens: holds different tokens" in said, said


@pytest.mark.parametrize("kind", ["parameters", "first_moments", "second_moments"])
def test_a_step_that_went_wrong_is_found(tmp_path: Path, trained: Path, ctx: nncuda.Context, kind: str) -> None:
    """One bit that flips at the end of step 5, as a fault of memory would do it: the run goes on."""
    training = start(tmp_path / "run", ctx, (trained / "train.tokens", trained / "held-out.tokens"), hash_every=1)
    trainer = training.trainer
    arena = trainer.model.parameters if kind == "parameters" else getattr(trainer, kind)
    name = list(trainer.model.layout.shapes())[3]
    step = trainer.train_step

    def wrong(*batch: np.ndarray) -> object:
        result = step(*batch)
        if result.step == 5:
            bits = arena[name].numpy().view(np.int32)
            bits.flat[11] ^= 1
            arena[name].copy_(bits.view(np.float32))
        return result

    trainer.train_step = wrong  # type: ignore[method-assign, assignment]
    training.run()
    assert verify(tmp_path / "run", "--files-only")[0] == 0
    code, said = verify(tmp_path / "run", "--from", "3")
    prefix = "" if kind == "parameters" else f"{kind[:-1]}."
    assert code == 1
    assert f"step 5: {prefix}{name} is not what the run had; at step 4 all was the same" in said
    assert verify(tmp_path / "run", "--from", "6")[0] == 0  # it goes on from what was saved there


def test_a_loss_that_was_another_is_found(run: Path) -> None:
    """Of a step without a hash, the numbers of its line are compared."""
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines()
    line = json.loads(lines[4])
    lines[4] = json.dumps({**line, "loss": line["loss"] + 1e-6})
    path.write_text("\n".join(lines) + "\n")
    assert verify(run)[0] == 1
    seal_again(run)
    assert verify(run, "--files-only")[0] == 0
    code, said = verify(run)
    assert code == 1 and "step 5: loss is " in said and "in metrics.jsonl" in said


@pytest.mark.parametrize(
    "line, changes",
    [
        (0, {"format": "another"}), (0, {"version": 2}), (0, {"tensors": None}), (0, {"seed": "7"}),
        (1, {"step": -1}), (1, {"step": None}), (1, {"inputs": [0]}), (1, {"inputs": ["0", 1]}), (1, {"digests": ...}),
        (2, {"files": []}), (2, {"files": {"../run.json": [1, ""]}}), (2, {"files": {"/etc/passwd": [1, ""]}}),
        (2, {"files": {"run.json": [-1, ""]}}), (2, {"files": {"run.json": 5}}),
    ],
)  # fmt: skip
def test_hostile_lines_are_refused(run: Path, line: int, changes: dict[str, object]) -> None:
    seal_again(run, line, changes)
    code, said = verify(run, "--files-only")
    assert code == 3 and f"chain.jsonl: line {line + 1} is no line of a chain of this version" in said, said


def seal_again(run: Path, changed: int = -1, changes: dict[str, object] | None = None) -> None:
    """Makes the chain fit the files that are there, as one who wants to can; with other entries in a line, of which ...
    stands for none."""
    seal, lines = "", []
    for number, text in enumerate((run / CHAIN_FILE).read_text().splitlines()):
        record = json.loads(text)
        for name, (count, _) in record.get("files", {}).items():
            if (run / name).exists():
                record["files"][name] = [count, hashlib.sha256((run / name).read_bytes()[:count]).hexdigest()]
        if number == changed:
            record = {name: value for name, value in {**record, **(changes or {})}.items() if value is not ...}
        del record["seal"]
        line = json.dumps({**record, "seal": ""})
        seal = seal_of(seal, line.encode())
        lines.append(f'{line[:-3]}"{seal}"}}\n')
    (run / CHAIN_FILE).write_text("".join(lines))


def test_a_chain_that_is_none_is_refused(run: Path) -> None:
    path = run / CHAIN_FILE
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], *lines[3:]]))
    code, said = verify(run)
    assert code == 1 and "chain.jsonl: line 3 is not the one that was written, or one before it is missing" in said
    path.write_text("".join(lines)[:-20])
    assert "is cut off or damaged" in verify(run)[1]
    path.unlink()
    assert verify(run)[0] == 3
