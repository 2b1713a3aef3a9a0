"""What of a file of locked requirements a Python for AArch64 needs to run the kernels, by the entries for its version
(pip would take those for its own Python): `python pinned_wheels.py REQUIREMENTS VERSION` prints them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))
import wheels

NEEDED = (
    "numpy cffi pycparser click rich markdown-it-py mdurl pygments safetensors ml-dtypes tokenizers sentencepiece "
    "jinja2 markupsafe"
).split()


def main() -> None:
    print(wheels.locked(Path(sys.argv[1]).read_text(), sys.argv[2], NEEDED, "aarch64"), end="")


if __name__ == "__main__":
    main()
