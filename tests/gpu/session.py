"""Runs one call of a session and leaves what it found in one file: tests/gpu/session.sh starts it.

Each part is forked from this process, which imports torch at most once, before anything uses the GPU. After each part
the file is written anew, so that it has the rest when a later part hangs, fails, or takes the machine down.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import session_plan
from session_plan import CALL_SECONDS, ROOT, Batch, Part
from variants import VARIANTS

#: NCCL lets ranks share a GPU from this version on.
NCCL_SHARED = 23000
#: Seconds that importing torch may take; those that a killed process has to be gone; bytes kept of a log's end.
IMPORT_SECONDS, GONE_SECONDS, KEPT_BYTES = 40, 3, 1 << 20


@dataclass
class Running:
    """A part under way. `late` is when it is stopped, on the clock of time.monotonic."""

    part: Part
    pid: int
    began: float
    late: float
    killed: float | None = None


class Session:
    """`folder` receives NAME.tar.gz; `library` is what parts use that name no variant; it has `most` seconds."""

    def __init__(self, name: str, folder: Path, library: Path, most: int = CALL_SECONDS) -> None:
        self.began = time.monotonic()
        self.most = most
        self.packed = folder / f"call-{name}.tar.gz"
        self.library = library
        self.place = Path(tempfile.mkdtemp(prefix="nncuda-session-"))
        self.out, self.scratch = self.place / f"call-{name}", self.place / "scratch"
        self.out.mkdir()
        self.scratch.mkdir()
        self.status = 0
        self.parts: list[dict[str, object]] = []
        self.running: list[Running] = []

    def say(self, text: str) -> None:
        print(text, flush=True)
        with (self.out / "summary.txt").open("a") as file:
            file.write(text + "\n")

    def run(self, batches: list[Batch]) -> None:
        for batch in batches:
            waiting = list(batch.parts)
            while waiting or self.running:
                while waiting and len(self.running) < batch.together:
                    self.start(waiting.pop(0))
                self.running = [each for each in self.running if not self.ended(each)]
                time.sleep(0.02)

    def stop(self) -> None:
        """Ends the parts under way: each is in a session of its own, where no signal to this process's group comes, and
        would share the GPU with the next call."""
        for each in self.running:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError):
                    kill(each.pid, signal.SIGKILL)
        late = time.monotonic() + GONE_SECONDS
        for each in self.running:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(each.pid, os.WNOHANG)[0] == 0 and time.monotonic() < late:
                    time.sleep(0.02)

    def start(self, part: Part) -> None:
        now = time.monotonic()
        left = self.began + self.most - session_plan.OWN_SECONDS / 4 - now
        library = self.library_of(part.variant)
        missing = [reason for need in (*part.needs, str(library)) if (reason := self.missing(need))]
        missing = list(dict.fromkeys(missing))
        if missing or left < 2:
            self.note(part, f"left out: {', '.join(missing) or f'the {self.most} seconds are over'}", now)
            self.status |= not missing
            return
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            self.become(part, library, min(part.seconds, left))
        self.running.append(Running(part, pid, now, now + min(part.seconds, left)))

    def library_of(self, variant: str) -> Path:
        if not variant:
            return self.library
        made = self.scratch / f"libnncuda-{variant}.so"
        return made if made.exists() else ROOT / "lib" / made.name

    def missing(self, need: str) -> str | None:
        """Why what a part needs is not here."""
        if need == "nccl":
            return nccl_missing()
        need = self.words((need,))[0]
        if "/" in need:
            return None if Path(need).exists() else f"there is no {Path(need).name}"
        return None if shutil.which(need) else f"there is no {need}"

    def words(self, command: tuple[str, ...]) -> list[str]:
        places = {"{out}": str(self.out), "{scratch}": str(self.scratch), "{python}": sys.executable}
        words = list(command)
        for name, place in places.items():
            words = [word.replace(name, place) for word in words]
        return words

    def become(self, part: Part, library: Path, seconds: float) -> None:
        """The part's own process from here on."""
        code = 1
        try:
            os.setsid()
            log = os.open(self.out / f"{part.name.replace(' ', '-')}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.environ.update(part.settings, NNCUDA_LIBRARY=str(library), PYTHON=sys.executable)
            program, *words = self.words(part.command)
            if program == "nncuda":
                code = command_line(words, seconds)
            else:
                program = sys.executable if program == "python" else program
                os.execvp(program, [program, *words])
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        finally:
            os._exit(code)

    def ended(self, running: Running) -> bool:
        """Whether a part is over; it is stopped when its time is, with all that it started."""
        part, now = running.part, time.monotonic()
        pid, status = os.waitpid(running.pid, os.WNOHANG)
        seconds = f"{now - running.began:.1f} s"
        if pid == 0:
            if running.killed is None and now >= running.late:
                os.killpg(running.pid, signal.SIGKILL)
                running.killed = now
            if running.killed is None or now < running.killed + GONE_SECONDS:
                return False
            self.note(part, f"STOPPED after {seconds}, and still there", running.began)
        elif running.killed is not None:
            self.note(part, f"STOPPED after {seconds}", running.began)
        elif status == 0:
            self.note(part, f"passed, {seconds}", running.began)
        else:
            code = os.waitstatus_to_exitcode(status)
            how = f"FAILED with {code}" if code > 0 else f"FAILED by signal {-code}"
            self.note(part, f"{how}, {seconds}", running.began)
        if pid:  # what it left behind
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
        self.status |= running.killed is not None or status != 0
        return True

    def note(self, part: Part, how: str, began: float) -> None:
        self.say(f"{part.name}: {how}")
        self.parts.append(
            {"part": part.name, "how": how, "began": began - self.began, "ended": time.monotonic() - self.began,
             "limit": part.seconds, "variant": part.variant}
        )  # fmt: skip
        (self.out / "parts.json").write_text(json.dumps(self.parts, indent=1) + "\n")
        self.pack()

    def pack(self) -> None:
        """Writes what there is so far; of a long log its end."""
        beside = self.packed.with_name(f".{self.packed.name}")
        with tarfile.open(beside, "w:gz") as writer:
            for file in sorted(path for path in self.out.iterdir() if path.is_file()):
                content = file.read_bytes()
                if file.suffix == ".log":  # the head of all else is what makes it readable
                    content = content[-KEPT_BYTES:]
                info = tarfile.TarInfo(f"{self.out.name}/{file.name}")
                info.size, info.mtime = len(content), int(file.stat().st_mtime)
                writer.addfile(info, io.BytesIO(content))
        beside.replace(self.packed)

    @contextlib.contextmanager
    def clocks(self) -> Iterator[None]:
        """Keeps the GPU's clocks, power and temperature, twice a second, beside all that runs."""
        if shutil.which("nvidia-smi") is None:
            self.say("clocks: left out: there is no nvidia-smi")
            yield
            return
        asked = ["nvidia-smi", f"--query-gpu={clock_fields()}", "--format=csv", "-lms", "500"]
        with (self.out / "clocks.csv").open("w") as file:
            watch = subprocess.Popen(asked, stdout=file, stderr=subprocess.STDOUT)
            try:
                yield
            finally:
                watch.kill()
                watch.wait()

    def close(self) -> None:
        """Merges the records of the families, and leaves the packed file alone."""
        families: dict[str, object] = {}
        for file in sorted(self.out.glob("verified-*.json")):
            families |= json.loads(file.read_text())["families"]
            file.unlink()
        if families:
            (self.out / "verified.json").write_text(json.dumps({"families": families}, indent=2) + "\n")
        self.say(f"{time.monotonic() - self.began:.0f} s in all; kept in {self.packed.name}")
        self.pack()
        shutil.rmtree(self.place, ignore_errors=True)


def clock_fields() -> str:
    """What nvidia-smi is asked for. It refuses all when it does not know one, and the last has had two names."""
    always = "timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu"
    for reasons in (",clocks_event_reasons.active", ",clocks_throttle_reasons.active"):
        asked = ["nvidia-smi", f"--query-gpu={always}{reasons}", "--format=csv"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            if subprocess.run(asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=10).returncode == 0:
                return always + reasons
    return always


def command_line(words: list[str], seconds: float) -> int:
    """`nncuda WORDS` in this process; tells where it is when it hangs."""
    faulthandler.dump_traceback_later(max(1.0, seconds - 2), exit=False)
    sys.argv = ["nncuda", *words]
    from nncuda.cli import main

    try:
        main(words)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(bool(error.code))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def import_torch(session: Session) -> None:
    """Once for all parts, which are forked with it. It must not touch the GPU here."""

    def over(*_: object) -> None:
        raise TimeoutError(f"not imported within {IMPORT_SECONDS} s")

    if importlib.util.find_spec("torch") is None:
        session.say("torch: not here, so nothing is measured beside it")
        return
    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(IMPORT_SECONDS)
    try:
        import torch

        session.say(f"torch {torch.__version__}, imported in {time.monotonic() - session.began:.0f} s")
    except Exception as error:  # whatever is wrong with it is told, and the rest goes on
        session.say(f"torch: {type(error).__name__}: {error}")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def find_nccl() -> str | None:
    """What NNCUDA_NCCL names, or that of the packages that come with torch."""
    if named := os.environ.get("NNCUDA_NCCL"):
        return named
    for folder in sys.path:
        found = Path(folder or ".") / "nvidia/nccl/lib/libnccl.so.2"
        if found.exists():
            return str(found)
    return None


def nccl_missing() -> str | None:
    """Why two ranks cannot share a GPU here."""
    path = find_nccl() or "libnccl.so.2"
    asked = "import ctypes as c, sys; n = c.c_int(); c.CDLL(sys.argv[1]).ncclGetVersion(c.byref(n)); print(n.value)"
    try:
        done = subprocess.run([sys.executable, "-c", asked, path], capture_output=True, text=True, timeout=30)
        if done.returncode:
            return "there is no NCCL"
        version = int(done.stdout.splitlines()[-1])  # with NCCL_DEBUG it says more, before
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return "NCCL does not say its version"
    if version < NCCL_SHARED:
        return f"NCCL {version} lets no two ranks share a GPU, {NCCL_SHARED} does"
    os.environ["NNCUDA_NCCL"] = path
    return None


def unpack() -> None:
    """The libraries of a bundle."""
    if (ROOT / "lib.tar.xz").exists() and not (ROOT / "lib/libnncuda.so").exists():
        with tarfile.open(ROOT / "lib.tar.xz") as reader:
            reader.extractall(ROOT)


def same_sources(session: Session) -> None:
    """Ends the call when the library of the bundle is not from the sources that lie beside it: what is verified is
    recorded with their hash."""
    described = ROOT / "bundle.json"
    if not described.exists():
        return
    asked = "import json; from nncuda.golden.verified import source_hashes; print(json.dumps(source_hashes()))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=60)
    if done.returncode or json.loads(done.stdout) != json.loads(described.read_text())["sources"]:
        session.status = 1
        session.say(done.stderr or "The sources are not those that the library was built from: make the bundle anew.")
        sys.exit(1)
    session.say(f"a bundle for {json.loads(described.read_text())['architectures']}")


def chosen(batches: list[Batch]) -> list[Batch]:
    """Those parts whose name matches PARTS, as many at once as TOGETHER says where several are."""
    only, together = re.compile(os.environ.get("PARTS", "")), int(os.environ.get("TOGETHER", "0"))
    return [
        replace(
            batch,
            parts=tuple(part for part in batch.parts if only.search(part.name)),
            together=together or batch.together if batch.together > 1 else 1,
        )
        for batch in batches
    ]


def main(plan: dict[str, list[Batch]] | None = None) -> int:
    rebuild = os.environ.get("REBUILD", "band16")
    if rebuild not in VARIANTS:
        print(f"REBUILD is {rebuild}; there are {', '.join(VARIANTS)}", file=sys.stderr)
        return 2
    plan = plan or session_plan.calls(bool(os.environ.get("QUICK")), rebuild)
    if len(sys.argv) != 3 or sys.argv[1] not in plan:
        print(f"It takes the call, {', '.join(plan)}, and a folder.", file=sys.stderr)
        return 2
    name, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    unpack()
    described = ROOT / "bundle.json"
    here = ".".join(map(str, sys.version_info[:2]))
    if described.exists() and (there := json.loads(described.read_text())["python"]) != here:
        print(
            f"The packages of this bundle are for Python {there}; this is {here}. PYTHON names another.",
            file=sys.stderr,
        )
        return 2
    library = Path(os.environ.get("NNCUDA_LIBRARY") or ROOT / "lib/libnncuda.so").absolute()
    if not library.is_file():
        print(f"There is no {library}: nothing can run.", file=sys.stderr)
        return 1
    for toolkit in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        os.environ["PATH"] += f":{toolkit}/bin" if toolkit else ""
    session = Session(name, folder.absolute(), library, int(os.environ.get("MOST_SECONDS", CALL_SECONDS)))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        same_sources(session)
        if name in ("2", "3", "4"):
            import_torch(session)
        with session.clocks():
            session.run(chosen(plan[name]))
    finally:
        session.stop()
        session.close()
    return session.status


if __name__ == "__main__":
    sys.exit(main())
