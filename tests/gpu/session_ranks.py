"""Two ranks that share this machine's GPU over NCCL: collectives, a graph of them, a rank that ends in the middle, and
training steps, whose bits are compared with those of one rank."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

RANK = Path(__file__).resolve().parents[1] / "comm/rank.py"


def run(scenario: str, ranks: int) -> list[tuple[int, str]]:
    """How each rank ended and what it said."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = str(door.getsockname()[1])
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(RANK), "nccl", scenario, "15"],
            env={**os.environ, **job, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=None,
            text=True,
        )
        for rank in range(ranks)
    ]
    said = [process.communicate()[0].strip() for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


def main() -> int:
    failed = 0
    for scenario in ("collectives", "graph", "vanish", "training"):
        found = run(scenario, 2)
        if scenario == "vanish":
            wanted = [(3, "rank 1 ended without a word"), (9, "")]
        elif scenario == "training":
            wanted = run(scenario, 1) * 2
        else:
            wanted = [(0, text) for _, text in found]
        good = found == wanted and (scenario == "vanish" or found[0][0] == 0)
        print(f"{scenario}: {'as it should be' if good else 'WRONG'}: {found}", flush=True)
        failed |= not good
    return failed


if __name__ == "__main__":
    sys.exit(main())
