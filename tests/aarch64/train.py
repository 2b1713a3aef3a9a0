"""The run of a configuration on one instruction set: python train.py RUN CONFIG DATA ISA."""

from __future__ import annotations

import sys
from pathlib import Path

from nncuda import Context
from nncuda.cli.options import build_configs, read_config
from nncuda.train import TrainingRun
from nncuda.train.data import open_shards


def main() -> None:
    run, config, data, isa = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    model, options = build_configs(read_config(config), None, {}, open_shards(data)[0].vocab_size)
    with Context("cpu", isa=isa) as ctx:
        TrainingRun.start(run, ctx, model, options, data).run()


if __name__ == "__main__":
    main()
