"""The moments of AdamW in what they are kept in: f32, bf16, or 8-bit codes with a scale a block of 256 parameters.

In a checkpoint those of f32 and bf16 are tensors by the parameters' names, in that dtype; codes and scales are four
tensors over the whole arena, since a block may begin in one parameter and end in the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import kernels
from ..device import Context, Tensor
from ..models import ParameterArena, ParameterLayout
from .config import MomentsKind

#: Parameters that share a scale, as in bindings.h.
BLOCK = 256
_NAMED = ("first_moment", "second_moment")
_CODED = ("first", "second")


def moments_bytes(count: int, kind: MomentsKind) -> list[int]:
    """Bytes of each piece of memory that the moments of `count` parameters take."""
    if kind == "f8":
        return [count, 4 * -(-count // BLOCK)] * 2
    return [(4 if kind == "f32" else 2) * count] * 2


def moments_shapes(layout: ParameterLayout, kind: MomentsKind) -> dict[str, tuple[str, tuple[int, ...]]]:
    """dtype and shape of each tensor of a checkpoint's moments by name."""
    if kind == "f8":
        parts = {"codes": ("u8", (layout.size,)), "scales": ("f32", (-(-layout.size // BLOCK),))}
        return {f"{moment}.{name}": part for moment in _CODED for name, part in parts.items()}
    shapes = layout.shapes()
    return {f"{moment}.{name}": (kind, shape) for moment in _NAMED for name, shape in shapes.items()}


def check_moments(tensors: Mapping[str, Any], kind: MomentsKind) -> None:
    """ValueError when what was read cannot be moments: a scale is the largest magnitude of its block."""
    for moment in _CODED if kind == "f8" else ():
        scales = tensors[f"{moment}.scales"]
        wrong = np.flatnonzero(~(np.isfinite(scales) & (scales >= 0)))
        if len(wrong):
            at = int(wrong[0])
            raise ValueError(
                f"element {at} of tensor {moment}.scales is {scales[at]:g}; a scale is finite and at least 0"
            )


class CodedMoments:
    """One of the moments in 8 bits: codes u8 [size], scales f32 [ceil(size / 256)]. All zero is a moment of zero."""

    def __init__(self, ctx: Context, layout: ParameterLayout):
        self.codes = ctx.zeros((layout.size,), "u8")
        self.scales = ctx.zeros((-(-layout.size // BLOCK),))


class Moments:
    """Both moments of all parameters. `first` and `second` are arenas, or `CodedMoments` with `kind` f8."""

    def __init__(self, ctx: Context, layout: ParameterLayout, kind: MomentsKind):
        self.kind = kind
        self._ctx, self._layout = ctx, layout
        self.first, self.second = (
            CodedMoments(ctx, layout) if kind == "f8" else ParameterArena(ctx, layout, kind) for _ in range(2)
        )

    def tensors(self) -> dict[str, np.ndarray]:
        """What a checkpoint keeps, by name: views of this memory on the CPU, copies of it on a GPU."""
        found: dict[str, np.ndarray] = {}
        for named, coded, moment in zip(_NAMED, _CODED, (self.first, self.second), strict=True):
            if isinstance(moment, CodedMoments):
                for name, tensor in (("codes", moment.codes), ("scales", moment.scales)):
                    found[f"{coded}.{name}"] = np.asarray(tensor) if self._ctx.device == "cpu" else tensor.numpy()
            else:
                found |= {f"{named}.{name}": array for name, array in moment.arrays().items()}
        return found

    def load(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Takes what a checkpoint kept, whose dtypes and shapes are those of `moments_shapes`."""
        for named, coded, moment in zip(_NAMED, _CODED, (self.first, self.second), strict=True):
            if isinstance(moment, CodedMoments):
                moment.codes.copy_(tensors[f"{coded}.codes"])
                moment.scales.copy_(tensors[f"{coded}.scales"])
            else:
                for name in self._layout.shapes():
                    moment[name].copy_(tensors[f"{named}.{name}"])

    def step(self, *inputs: Tensor | None, parameters: Tensor, **options: Any) -> None:
        """The form of `adamw_step` for these moments: `inputs` are gradients, rate, step, factor and skip flag."""
        first, second = self.first, self.second
        if isinstance(first, CodedMoments) and isinstance(second, CodedMoments):
            coded = first.codes, first.scales, second.codes, second.scales
            kernels.adamw_step_f8(*inputs, parameters, *coded, **options)
        elif isinstance(first, ParameterArena) and isinstance(second, ParameterArena):
            step = kernels.adamw_step if self.kind == "f32" else kernels.adamw_step_bf16
            step(*inputs, parameters, first.data, second.data, **options)
