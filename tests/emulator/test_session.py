"""tests/gpu/session.sh and sanitize.sh, which run where a GPU is, tried out on an emulated one."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import bundle
import pytest
import session
import session_plan
import speeds
import variants
import wheels

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = sorted((ROOT / "build/emulated").glob("libnncuda_emu*.so"))
#: Then the fourth call tries to build, with flags that this bundle lacks.
NVCC = shutil.which("nvcc") or Path("/usr/local/cuda/bin/nvcc").exists()
emulated = pytest.mark.skipif(
    not LIBRARIES or os.environ.get("NNCUDA_EMULATED") != "all",
    reason="takes minutes: `make emulated-90`, which needs a C++ compiler",
)


def run(script: str | Path, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    # Nothing of an installed toolkit may be found, nor one that a make fetched.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA", "NNCUDA"))}
    return subprocess.run(
        ["bash", str(ROOT / "tests/gpu" / script), *map(str, arguments)],
        env={**environment, "PYTHON": sys.executable, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )


#: Does not know the newer name of a field.
OLD_NVIDIA_SMI = """case $* in *event_reasons*) echo 'That is not a valid field to query.'; exit 2 ;; esac
echo timestamp
case $* in *-lms*) while :; do echo 1980 MHz; sleep 1; done ;; esac"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What travels, the emulated library in place of the GPU's and of its variants, and tools that do what they can."""
    made = tmp_path_factory.mktemp("session") / "gpu-bundle"
    bundle.copy_sources(made)
    (made / "lib").mkdir()
    for name in ("libnncuda.so", *(f"libnncuda-{name}.so" for name in variants.BUNDLED)):
        (made / "lib" / name).symlink_to(LIBRARIES[-1])
    python = ".".join(map(str, sys.version_info[:2]))
    described = {"architectures": "emulated", "python": python, "flags": [], "sources": bundle.source_hashes(ROOT)}
    (made / "bundle.json").write_text(json.dumps(described))
    tools = made / "tools"
    tools.mkdir()
    for name, does in (
        ("nvidia-smi", OLD_NVIDIA_SMI),
        ("compute-sanitizer", 'echo "ran $*"'),
        ("ncu", f'while [ "$1" != {sys.executable} ]; do shift; done; exec "$@"'),
    ):
        (tools / name).write_text(f"#!/bin/bash\n{does}\n")
        (tools / name).chmod(0o755)
    return made


def call(folder: Path, out: Path, number: str) -> tuple[str, dict[str, bytes]]:
    """One call of that folder: what it told, and the files that it left in its one."""
    path = f"{folder}/tools:{os.environ['PATH']}"
    done = run(folder / "tests/gpu/session.sh", number, out, QUICK="1", PATH=path, NNCUDA_NCCL=str(LIBRARIES[-1]))
    assert [each.name for each in out.iterdir()] == [f"call-{number}.tar.gz"], done.stdout
    return done.stdout, unpacked(out / f"call-{number}.tar.gz")


def unpacked(packed: Path) -> dict[str, bytes]:
    found = {}
    with tarfile.open(packed) as reader:
        for member in reader.getmembers():
            stream = reader.extractfile(member)
            assert stream is not None
            found[Path(member.name).name] = stream.read()
    return found


@emulated
@pytest.mark.parametrize("number", ["1", "2", "3", "4"])
def test_a_call_of_the_session(folder: Path, tmp_path: Path, number: str) -> None:
    told, files = call(folder, tmp_path / "out", number)
    batches = session_plan.calls(quick=True)[number]
    how = {part["part"]: part["how"] for part in json.loads(files["parts.json"])}
    assert list(how) and sorted(how) == sorted(part.name for batch in batches for part in batch.parts), told
    assert files["clocks.csv"].startswith(b"timestamp")
    for name, text in how.items():
        if number == "4" and ("band16" in name or name == "rebuild"):
            assert text.startswith("left out: there is no") or NVCC, told
        elif name in ("verify random", "verify rope"):  # with a record, which is for real GPUs
            assert text.startswith("FAILED with 2"), told
        else:
            assert text.startswith("passed"), told + files[f"{name.replace(' ', '-')}.log"].decode()
    if number != "1":
        assert "nothing is measured beside it" in told or "imported" in told
    if number == "2":
        assert json.loads(files["variant-gemm-of-alone.json"])["rows"]
        table = speeds.table(speeds.read(tmp_path / "out"))
        assert "| variant-gemm-of-alone | products bf16, " in table
        assert "| grouped products | 437 TFLOP/s | " in table and "| short |" in table
    if number == "3":
        told_by_ranks = files["ranks.log"].decode()
        assert told_by_ranks.count("as it should be") == 4 and "rank 1 ended without a word" in told_by_ranks
        assert json.loads(files["decode-tinyllama-q4_0.json"])["sides"][0]["batched"]["2"] > 0
        assert json.loads(files["fixed-order.json"])["profile"]


PLANTED = """
import os
import sys
import session
from session_plan import Batch, Part, one

hangs = "import subprocess, time; subprocess.Popen(['sleep', '300.75']); print('began', flush=True); time.sleep(300)"
sys.exit(session.main({"1": [
    one("fails", 20, "python", "-c", "print('so far'); raise SystemExit(3)"),
    one("hangs", 3, "python", "-c", hangs),
    one("crashes", 20, "python", "-c", "import os; os.kill(os.getpid(), 11)"),
    Batch(tuple(Part(f"together {n}", 20, ("python", "-c", "import time; time.sleep(1)")) for n in range(3)), 3),
    one("lacks", 20, "no-such-program", needs=("no-such-program",)),
    one("follows", 20, "nncuda", "--version"),
    *([one("waits", 60, "python", "-c", "import time; time.sleep(60.25)")] if "WAIT" in os.environ else []),
]}))
"""


def planted(out: Path, **more: str) -> subprocess.Popen[str]:
    program = out.parent / "planted.py"
    program.write_text(PLANTED)
    paths = os.pathsep.join(map(str, (ROOT / "python", ROOT / "tests/gpu")))
    environment = {**os.environ, "PYTHONPATH": paths, "NNCUDA_LIBRARY": str(LIBRARIES[-1]), **more}
    return subprocess.Popen(
        [sys.executable, str(program), "1", str(out)], env=environment, stdout=subprocess.PIPE, text=True
    )


def runs(command: str) -> bool:
    return subprocess.run(["pgrep", "-f", command], stdout=subprocess.DEVNULL).returncode == 0


@emulated
def test_the_rest_is_kept_when_a_part_fails_or_hangs(tmp_path: Path) -> None:
    process = planted(tmp_path / "out")
    told = process.communicate(timeout=120)[0]
    assert process.returncode == 1, told
    files = unpacked(tmp_path / "out/call-1.tar.gz")
    lines = files["summary.txt"].decode()
    for line in ("fails: FAILED with 3", "hangs: STOPPED after 3", "crashes: FAILED by signal 11", "together 2: passed",
                 "lacks: left out: there is no no-such-program", "follows: passed"):  # fmt: skip
        assert line in lines and line in told, told
    assert b"so far" in files["fails.log"] and b"began" in files["hangs.log"] and b"nncuda" in files["follows.log"]
    assert not runs("sleep 300.75")
    began = [part["began"] for part in json.loads(files["parts.json"]) if part["part"].startswith("together")]
    assert max(began) - min(began) < 1


@emulated
def test_what_is_done_is_kept_when_the_call_is_ended_from_outside(tmp_path: Path) -> None:
    process = planted(tmp_path / "out", WAIT="1")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("follows: passed"):
            break
    late = time.monotonic() + 20
    while not runs("time.sleep.60.25") and time.monotonic() < late:
        time.sleep(0.05)
    assert runs("time.sleep.60.25")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert not runs("time.sleep.60.25"), "a part goes on, on the GPU of the next call"
    assert "follows: passed" in unpacked(tmp_path / "out/call-1.tar.gz")["summary.txt"].decode()


def test_the_limits_of_a_call_add_up_to_less_than_it_may_take() -> None:
    plan = session_plan.calls()
    assert list(plan) == ["1", "2", "3", "4"]
    for batches in plan.values():
        assert sum(batch.seconds for batch in batches) + session_plan.OWN_SECONDS <= session_plan.CALL_SECONDS == 480
        names = [part.name for batch in batches for part in batch.parts]
        assert len(set(names)) == len(names)
    verified = [part for batch in plan["1"] for part in batch.parts if part.name.startswith("verify")]
    assert all(part.seconds == 20 for part in verified) and len(verified) > 15


def test_a_variant_changes_one_text(tmp_path: Path) -> None:
    for name, variant in variants.VARIANTS.items():
        variants.changed(variant, ROOT, tmp_path / name)
        text = (tmp_path / name / "cuda/kernels" / variant.file).read_text()
        assert variant.new in text and variant.old not in text
        assert all((ROOT / "cuda/kernels" / each).exists() for each in variant.compiled)
    wrong = variants.Variant("gemm.cuh", "GEMM_BAND", "X", (), "gemm", ())
    with pytest.raises(ValueError, match=r"stands \d+ times in gemm\.cuh"):
        variants.changed(wrong, ROOT, tmp_path / "wrong")


def test_packages_are_those_of_the_lock_file() -> None:
    text = (ROOT / "requirements/test.txt").read_text()
    lines = wheels.locked(text, "3.12").splitlines()
    assert {line.partition("==")[0].lower() for line in lines} >= {"cffi", "pycparser", "tensorboardx", "pytest"}
    assert all("==" in line and "--hash=sha256:" in line and ";" not in line for line in lines)
    assert any(line.startswith("tomli") for line in wheels.locked(text, "3.10").splitlines())
    assert not any(line.startswith(("tomli", "numpy")) for line in lines)
    with pytest.raises(ValueError, match="locked twice"):
        wheels.locked("cffi==1 --hash=a\ncffi==2 --hash=b\n", "3.12")


def test_the_table_of_speeds_says_what_was_not_measured() -> None:
    table = speeds.table({})
    assert table.count("| not measured |") == len(speeds.LINES)
    row = {"group": "products bf16", "name": "8192x8192x8192", "seconds": 1e-3, "ratio": 0.97, "flops": 8e14}
    slow = {**row, "name": "8192x768x6144", "ratio": 0.9}
    part = {"name": "6.9 B parameters, bf16", "tokens_per_second": {"nncuda": 1e5}}
    found = {"products.json": {"rows": [row, slow]}, "step-6.9B.json": {"steps": [part]}}
    table = speeds.table(found)
    assert "| 0.95 x | 0.9 x | 8192x768x6144 | short |" in table
    assert "| training step of 6.9 B, of the products' peak | 0.45 | 1." in table and "reached |" in table


def test_the_table_takes_each_line_for_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def left(number: str, **contents: str) -> None:
        with tarfile.open(tmp_path / f"call-{number}.tar.gz", "w:gz") as writer:
            for name, text in contents.items():
                info = tarfile.TarInfo(f"call-{number}/{name.replace('_', '-')}.json")
                info.size = len(text)
                writer.addfile(info, io.BytesIO(text.encode()))

    def lines(*rows: tuple[str, float], group: str = "flash_attention causal bf16, 32 heads x 64") -> str:
        return json.dumps(
            {"rows": [{"group": group, "name": n, "seconds": s, "flops": 1e12 / s, "ratio": None} for n, s in rows]}
        )

    attention = lines(("T 16384 forward", 1 / 500), ("T 16384 forward + backward", 1 / 200))
    product = {name: lines(("4096", s), group="products bf16") for name, s in (("a", 2e-3), ("b", 1e-3), ("c", 5e-4))}
    left("2", attention=attention, products=product["a"], variant_gemm_of_band16=product["b"], torn="[")
    left("4", usual_gemm=product["b"], variant_gemm_of_band16=product["c"])
    table = speeds.table(speeds.read(tmp_path))
    assert "| attention forward, head_dim 64 | 473 TFLOP/s | 500 TFLOP/s | T 16384 forward | reached |" in table
    assert "| 284 TFLOP/s | 200 TFLOP/s | T 16384 forward + backward | short |" in table
    assert "| variant-gemm-of-band16 | products bf16, 4096 | 2.00 |" in table
    assert "| call-4-variant-gemm-of-band16 | products bf16, 4096 | 2.00 |" in table
    assert "torn.json is left out" in capsys.readouterr().err


def test_the_end_of_a_log_is_kept_and_all_of_what_is_read_by_programs(tmp_path: Path) -> None:
    made = session.Session("1", tmp_path, tmp_path / "none.so")
    for name in ("long.log", "ncu.csv"):
        (made.out / name).write_bytes(b"head" + bytes(session.KEPT_BYTES))
    (made.out / "folder").mkdir()
    made.close()
    files = unpacked(tmp_path / "call-1.tar.gz")
    assert files["long.log"] == bytes(session.KEPT_BYTES) and files["ncu.csv"].startswith(b"head")


@pytest.mark.parametrize("does", ["echo", "echo NCCL version 2.30.3", "sleep 5"])
def test_an_nccl_that_does_not_say_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    run = subprocess.run
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(subprocess, "run", lambda *words, timeout, **more: run(*words, timeout=timeout / 30, **more))
    assert session.nccl_missing() == "NCCL does not say its version"


def test_counters_are_of_kernels_that_there_are() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "cuda/kernels").glob("*.cu*"))
    for text in session_plan.COUNTED.split("|"):
        assert re.search(rf"\b\w*{text}\w*\(", sources), text
    assert not re.search(session_plan.COUNTED, "fill_kernel normal_kernel")


def test_a_session_says_what_is_missing(tmp_path: Path) -> None:
    assert run("session.sh").returncode == 2 and run("session.sh", "5", tmp_path).returncode == 2
    done = run("session.sh", "1", tmp_path, NNCUDA_LIBRARY=str(tmp_path / "none.so"))
    assert done.returncode == 1 and f"There is no {tmp_path}/none.so" in done.stdout
    done = run("session.sh", "4", tmp_path, REBUILD="wider")
    assert done.returncode == 2 and "REBUILD is wider; there are narrow" in done.stdout
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    done = run("session.sh", "1", tmp_path, PYTHON=str(bare))
    assert done.returncode == 2 and "Missing here: numpy cffi" in done.stdout


@emulated
def test_changed_sources_are_not_verified_in_the_name_of_others(folder: Path, tmp_path: Path) -> None:
    kernel = folder / "cuda/kernels/engine.cu"
    before = kernel.read_text()
    try:
        kernel.write_text(before + "\n")
        done = run(folder / "tests/gpu/session.sh", "1", tmp_path, QUICK="1")
    finally:
        kernel.write_text(before)
    assert done.returncode == 1 and "make the bundle anew" in done.stdout


def test_the_sanitizer_is_run_on_the_golden_tests(tmp_path: Path) -> None:
    assert run("sanitize.sh", "racetrack").returncode == 2
    tool = tmp_path / "compute-sanitizer"
    tool.write_text('#!/bin/sh\necho "ran $*"\ncase $* in *racecheck*) exit 9 ;; esac\n')
    tool.chmod(0o755)
    done = run("sanitize.sh", "memcheck", "racecheck", PATH=f"{tmp_path}:{os.environ['PATH']}", KERNELS="rope_qk gemm")
    assert done.returncode == 1
    assert "memcheck: nothing found" in done.stdout and "racecheck: findings" in done.stdout
    assert done.stdout.count("verify --device cuda --kernel rope_qk --kernel gemm") == 2
    assert run("sanitize.sh", "memcheck", PATH=f"{tmp_path}:{os.environ['PATH']}").returncode == 0
