"""A new user's path: every command of the README and of the pages, in their order, in a fresh copy of the repository.

    python tests/newcomer/walk.py [--page README.md ...] [--keep FOLDER]

The copy is a clone of what is committed; its commands meet a fresh virtual environment, a fresh home, and nothing of
this checkout. A command that would take hours, needs a GPU or waits for someone to type runs otherwise than it stands
on its page: commands.toml says how, and why; an entry there that no command needs any more is an error.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/docs"))
import fenced  # noqa: E402

# Variables by which a machine's package managers and compilers are set up; all others are left behind.
KEPT = re.compile(
    r"PATH|LANG|LC_.*|TERM|TMPDIR|.*_PROXY|.*_proxy|PIP_.*|UV_.*|GO(PROXY|SUMDB|NOSUMDB|FLAGS|ROOT|TOOLCHAIN)|CARGO_.*|"
    r"RUSTUP_.*|SSL_.*|CCACHE_.*|CMAKE_.*_LAUNCHER|PYENV_ROOT|PYTHON"
)
DROPPED = {"CARGO_TARGET_DIR", "PIP_REQUIRE_VIRTUALENV", "CARGO_MANIFEST_DIR"}


class WalkError(Exception):
    """A page and the list of changes do not agree, or a command failed."""


@dataclass
class Block:
    """One fenced block of a page: the line that it begins in, its language, its commands or its program."""

    page: str
    line: int
    language: str
    text: str

    def commands(self) -> list[tuple[int, str]]:
        """The commands of a shell block, without comments, with the lines that they stand in."""
        found = ((number, re.sub(r"(^|\s+)#\s.*$", "", line)) for number, line in fenced.lines(self.text, self.line))
        return [(number, " ".join(line.split())) for number, line in found if line.strip()]


@dataclass
class Page:
    """What commands.toml says of a page: where its commands run, what must be there, what runs otherwise."""

    path: str
    folder: str = "."
    prepare: str = ""
    languages: list[str] = field(default_factory=lambda: ["sh"])
    change: list[dict[str, str]] = field(default_factory=list)


def blocks(path: Path, name: str) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    return [Block(name, *found) for found in fenced.numbered(path)]


def changed(page: Page, command: str, used: set[str]) -> tuple[str, str]:
    """A command as it runs here, and why it does not run as it stands, if it does not; an empty command is left out."""
    reasons = []
    for change in page.change:
        if change["find"] not in command:
            continue
        used.add(change["find"])
        reasons.append(change["why"])
        if "with" not in change:
            return "", change["why"]
        command = command.replace(change["find"], change["with"])
    return command, "; ".join(reasons)


def script(page: Page, found: list[Block]) -> str:
    """The page's commands as one bash script, which says before each where it stands; checks the changes."""
    used: set[str] = set()
    lines = ["set -e", page.prepare]
    programs: list[str] = []
    for block in found:
        if block.language not in page.languages:
            continue
        if block.language == "python":
            programs.append(block.text)
            continue
        for line, command in block.commands():
            told, why = changed(page, command, used)
            mark = f"{block.page}:{line}: {command}"
            if why:
                mark += f"  [{'as ' + '; '.join(told.split(chr(10))).strip('; ') if told else 'left out'}: {why}]"
            lines.append(f"printf '%s\\n' {quoted(mark)} >&3")
            if told:
                lines.append(told)
    if programs:
        lines.append(f"printf '%s\\n' {quoted(page.path + ': its programs in Python')} >&3")
        lines.append("python - <<'END_OF_PROGRAM'\n" + "\n".join(programs) + "END_OF_PROGRAM")
    if unused := [change["find"] for change in page.change if change["find"] not in used]:
        raise WalkError(f"commands.toml changes what {page.path} does not say: {unused}")
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def environment(copy: Path) -> dict[str, str]:
    """The variables of a new user on this machine, with the virtual environment of the walk in use."""
    kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name) and name not in DROPPED}
    here = str(ROOT)
    paths = [part for part in kept.get("PATH", os.defpath).split(os.pathsep) if not part.startswith(here)]
    home = Path.home()
    kept.setdefault("CARGO_HOME", str(home / ".cargo"))
    kept.setdefault("RUSTUP_HOME", str(home / ".rustup"))
    if (configured := home / ".config/pip/pip.conf").exists() or (configured := home / ".pip/pip.conf").exists():
        kept.setdefault("PIP_CONFIG_FILE", str(configured))
    venv = copy.parent / "venv"
    programs = [venv / "bin", copy / "build/bin"]
    fresh = copy.parent / "home"
    fresh.mkdir(exist_ok=True)
    return kept | {
        "HOME": str(fresh),
        "VIRTUAL_ENV": str(venv),
        "PATH": os.pathsep.join([*map(str, programs), *paths]),
        "COPY": str(copy),
    }


def walk(page: Page, copy: Path) -> list[tuple[str, float]]:
    """Runs a page; gives each command with its seconds. A command that fails is a WalkError with what it printed."""
    text = script(page, blocks(copy / page.path, page.path))
    folder = copy / page.folder
    folder.mkdir(parents=True, exist_ok=True)
    log = copy.parent / (page.path.replace("/", "-") + ".log")
    reader, writer = os.pipe()
    times: list[tuple[str, float]] = []
    with log.open("wb") as output:
        running = subprocess.Popen(
            ["bash", "-c", f"exec 3>&{writer}\n{text}"],
            cwd=folder, env=environment(copy), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            pass_fds=[writer],
        )  # fmt: skip
        os.close(writer)
        begin = time.monotonic()
        with os.fdopen(reader, encoding="utf-8") as marks:
            for mark in marks:
                if times:
                    times[-1] = (times[-1][0], time.monotonic() - begin)
                begin = time.monotonic()
                times.append((mark.rstrip("\n"), 0.0))
                print(f"  {mark}", end="", flush=True)
        code = running.wait()
    if times:
        times[-1] = (times[-1][0], time.monotonic() - begin)
    if code:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:]
        where = times[-1][0] if times else f"{page.path}: its preparation"
        raise WalkError(f"{where}\n  ended with {code}:\n    " + "\n    ".join(last))
    return times


def listed() -> dict[str, Any]:
    with (Path(__file__).parent / "commands.toml").open("rb") as file:
        return tomllib.load(file)


def pages() -> list[Page]:
    """The pages to walk, in their order."""
    return [Page(**entry) for entry in listed()["page"]]


def left_out() -> dict[str, str]:
    """The pages with commands that are not walked, and why."""
    return listed()["left_out"]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run every command of the pages in a fresh copy of the repository.")
    parser.add_argument(
        "--page", action="append", help="this page alone (may be repeated); README.md comes first always"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="walk in this new folder, and leave it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        folder = folder.resolve()
        copy = folder / "nncuda"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(copy)], check=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        failures = []
        for page in pages():
            if options.page and page.path not in {"README.md", *options.page}:
                continue
            print(page.path, flush=True)
            try:
                times = walk(page, copy)
            except WalkError as error:
                failures.append(str(error))
                print(f"FAILED: {error}", flush=True)
                continue
            print(f"  {len(times)} commands, {sum(seconds for _, seconds in times):.0f} s; the longest:")
            for command, seconds in sorted(times, key=lambda entry: -entry[1])[:3]:
                print(f"  {seconds:6.1f} s  {command}")
    print(f"{len(failures)} pages failed" if failures else "every command of the pages ran")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
