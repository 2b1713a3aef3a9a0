"""The seeds of each target: small files made by hand, valid ones and hostile ones with what refuses them.

    python tests/fuzz/fuzz_seeds.py FOLDER

writes them as files, a folder a target. They are made anew in every run, the same bytes each time.
"""

from __future__ import annotations

import sys
from pathlib import Path

import seeds_adapters
import seeds_gguf
import seeds_others
import seeds_records
import seeds_runs
import seeds_ternary
import seeds_tokenizers
from seeds_gguf import Seed

SEEDS: dict[str, list[Seed]] = {
    "gguf": [*seeds_gguf.valid(), *seeds_gguf.hostile()],
    "gguf_model": seeds_gguf.models(),
    "safetensors": seeds_others.safetensors_files(),
    "folder": seeds_others.folders(),
    "folder_model": seeds_others.folder_models(),
    "bitnet_gguf": seeds_ternary.ggufs(),
    "bitnet_folder": seeds_ternary.folders(),
    "adapter": seeds_adapters.adapters(),
    "config": seeds_others.configs(),
    "state": seeds_runs.states(),
    "metrics": seeds_runs.metrics(),
    "toml": seeds_runs.configurations(),
    "tokenizer_model": seeds_tokenizers.tokenizer_models(),
    "tokenizer_json": seeds_tokenizers.tokenizer_jsons(),
    "template": seeds_tokenizers.templates(),
    "shard": seeds_others.shards(),
    "records": seeds_records.records(),
}


def write_seeds(folder: Path) -> None:
    """All seeds as files."""
    for target, seeds in SEEDS.items():
        (folder / target).mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            (folder / target / seed.name).write_bytes(seed.data)


if __name__ == "__main__":
    write_seeds(Path(sys.argv[1]))
