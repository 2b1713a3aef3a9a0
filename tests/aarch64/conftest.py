"""For the comparison of runs: what tests/parity has for it, found last."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "parity"))
