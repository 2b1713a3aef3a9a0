"""Weights that a model may have, opened and not loaded yet, wherever they lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..device import Comm, Context
from ..formats.errors import told_of
from ..layers import ExpertParallel
from .config import MoEConfig, Precision
from .moe import MoETransformer


class ModelWeights:
    """Where weights lie, the model that they are of, and the arrays by the names of `ParameterLayout`.

    `window` is the most tokens that one sees in what was opened, itself the last of them, where that is fewer than its
    context, of which `config` then has no more; 0 where a token sees all.
    """

    path: Path
    config: MoEConfig
    tensors: Mapping[str, np.ndarray]
    window = 0

    def model(
        self,
        ctx: Context,
        *,
        training: bool = False,
        precision: Precision = "f32",
        experts: ExpertParallel | None = None,
        comm: Comm | None = None,
        partition_gradients: bool = False,
    ) -> MoETransformer:
        """The model with these weights, to compute in `precision`; of `experts`, and of what the ranks of `comm` train,
        what this rank is to hold."""
        with told_of(self.path):
            return MoETransformer.from_arrays(
                ctx,
                self.config,
                self.tensors,
                training=training,
                precision=precision,
                experts=experts,
                comm=comm,
                partition_gradients=partition_gradients,
            )
