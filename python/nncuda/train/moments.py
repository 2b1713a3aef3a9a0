"""The moments of AdamW in what they are kept in: f32, bf16, or 8-bit codes with a scale a block of 256 parameters.

In a checkpoint those of f32 and bf16 are tensors by the parameters' names, in that dtype; codes and scales are four
tensors over the whole arena, since a block may begin in one parameter and end in the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .. import kernels
from ..device import Context, Tensor
from ..formats import SafetensorsFile
from ..models import ParameterArena, ParameterLayout
from ..models.parameters import own_parts
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

    def __init__(self, ctx: Context, size: int):
        self.codes = ctx.zeros((size,), "u8")
        self.scales = ctx.zeros((-(-size // BLOCK),))


class MomentShard:
    """What a rank owns of one of the moments: `data` f32 or bf16 [size]."""

    def __init__(self, ctx: Context, size: int, kind: MomentsKind):
        self.data = ctx.zeros((size,), kind)


class Moments:
    """Both moments of the parameters that a rank owns, elements `own` of the layout.

    `first` and `second` are arenas, or, of several ranks, `MomentShard`s; with `kind` f8 they are `CodedMoments`.
    """

    def __init__(self, ctx: Context, layout: ParameterLayout, kind: MomentsKind, own: range):
        self.kind = kind
        self.own = own
        self._layout = layout
        self.first, self.second = (self._zero(ctx) for _ in range(2))

    def _zero(self, ctx: Context) -> ParameterArena | MomentShard | CodedMoments:
        if self.kind == "f8":
            return CodedMoments(ctx, len(self.own))
        if len(self.own) < self._layout.size:
            return MomentShard(ctx, len(self.own), self.kind)
        return ParameterArena(ctx, self._layout, self.kind)

    def parts(self) -> Iterator[tuple[str, int, Tensor]]:
        """What a checkpoint keeps of them: the name of a tensor there, the first of its elements that lies here, and
        the elements from there on."""
        for named, coded, moment in zip(_NAMED, _CODED, (self.first, self.second), strict=True):
            if isinstance(moment, CodedMoments):
                yield f"{coded}.codes", self.own.start, moment.codes
                yield f"{coded}.scales", -(-self.own.start // BLOCK), moment.scales
            else:
                for name, first, part in own_parts(self._layout, self.own, moment.data):
                    yield f"{named}.{name}", first, part

    def load(self, tensors: SafetensorsFile) -> None:
        """Takes what a checkpoint kept, whose dtypes and shapes are those of `moments_shapes`."""
        for name, first, part in self.parts():
            part.copy_(tensors.part(name, first, part.size))

    def step(self, *inputs: Tensor | None, parameters: Tensor, **options: Any) -> None:
        """The form of `adamw_step` for these moments: `inputs` are gradients, rate, step, factor and skip flag."""
        first, second = self.first, self.second
        if isinstance(first, CodedMoments) and isinstance(second, CodedMoments):
            coded = first.codes, first.scales, second.codes, second.scales
            kernels.adamw_step_f8(*inputs, parameters, *coded, first=self.own.start, **options)
        elif not isinstance(first, CodedMoments) and not isinstance(second, CodedMoments):
            plain = first.data, second.data
            if self.kind == "f32":
                kernels.adamw_step(*inputs, parameters, *plain, **options)
            else:
                kernels.adamw_step_bf16(*inputs, parameters, *plain, first=self.own.start, **options)
