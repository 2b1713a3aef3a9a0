"""What of a file of locked requirements a Python for AArch64 needs to run the kernels, by the entries for its version,
since pip would take those for the Python that it runs in: `python pinned_wheels.py REQUIREMENTS VERSION` prints them."""

from __future__ import annotations

import sys
from pathlib import Path

from packaging.requirements import Requirement

NEEDED = {
    "numpy", "cffi", "pycparser", "click", "rich", "markdown-it-py", "mdurl", "pygments", "safetensors", "ml-dtypes",
    "tokenizers", "sentencepiece", "jinja2", "markupsafe",
}  # fmt: skip


def entries(text: str) -> list[list[str]]:
    """The lines of each requirement: its name with version and marker, then its hashes."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if line and not line.startswith((" ", "#")):
            found.append([line])
        elif line.strip().startswith("--hash"):
            found[-1].append(line)
    return found


def main() -> None:
    file, version = Path(sys.argv[1]), sys.argv[2]
    environment = {
        "python_version": version, "python_full_version": f"{version}.0", "implementation_name": "cpython",
        "platform_machine": "aarch64", "sys_platform": "linux", "platform_system": "Linux",
    }  # fmt: skip
    for first, *hashes in entries(file.read_text()):
        requirement = Requirement(first.rstrip(" \\"))
        wanted = requirement.marker is None or requirement.marker.evaluate(environment)
        if requirement.name in NEEDED and wanted:
            print(f"{requirement.name}{requirement.specifier} \\", *hashes, sep="\n")


if __name__ == "__main__":
    main()
