"""Packages of the lock files, unpacked into a folder for another Python than this one, so that PYTHONPATH is enough."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from packaging.requirements import Requirement

#: What `python -m nncuda` and tests/gpu import beyond NumPy and PyTorch, with what these packages import.
NEEDED = (
    "cffi click exceptiongroup iniconfig jinja2 markdown-it-py markupsafe mdurl ml-dtypes packaging pluggy protobuf "
    "pycparser pygments pytest rich safetensors sentencepiece tensorboardx tokenizers tomli typing-extensions"
).split()
#: Wheels name the oldest system that they run on; pip compares each name by itself.
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)] + [
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
]


def locked(text: str, python: str, needed: Collection[str] = NEEDED, processor: str = "x86_64") -> str:
    """The entries of a lock file that are `needed` and that Python `python` on a `processor` takes, without conditions.

    Raises ValueError when one that this Python takes is in the file more than once.
    """
    machine = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": processor,
    }
    found: dict[str, str] = {}
    for entry in text.replace("\\\n", " ").splitlines():
        if not entry or entry[0] in "# -":
            continue
        line, _, hashes = entry.partition("--hash")
        requirement = Requirement(line.strip())
        name = requirement.name.lower()
        if name not in needed or (requirement.marker and not requirement.marker.evaluate(machine)):
            continue
        if name in found:
            raise ValueError(f"{name} is locked twice for Python {python}")
        found[name] = f"{requirement.name}{requirement.specifier} --hash{hashes}"
    return "\n".join(found.values()) + "\n"


def unpack(lock: Path, python: str, target: Path) -> None:
    """Fetches what `locked` gives from PyPI, checked by hash, and unpacks it into `target`, a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text(locked(lock.read_text(), python))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--require-hashes"]
        command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
        command += [word for platform in _PLATFORMS for word in ("--platform", platform)]
        subprocess.run([*command, "--target", str(target), "-r", str(file)], check=True)
    for unused in ("bin", "share"):  # programs and manuals
        shutil.rmtree(target / unused, ignore_errors=True)
