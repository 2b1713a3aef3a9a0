"""The moments of AdamW in what they are kept in: f32, bf16, or 8-bit codes with a scale a block of 256 parameters.

In a checkpoint those of f32 and bf16 are tensors by the parameters' names, in that dtype; codes and scales are four
tensors over the whole arena, since a block may begin in one parameter and end in the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from .. import kernels
from ..device import Context, Tensor
from ..formats import SafetensorsFile
from ..models import ParameterArena
from ..models.parameters import Layout, own_parts
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


def moments_shapes(layout: Layout, kind: MomentsKind) -> dict[str, tuple[str, tuple[int, ...]]]:
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
    """What a rank owns of one of the moments, range after range: `data` f32 or bf16 [size]."""

    def __init__(self, ctx: Context, size: int, kind: MomentsKind):
        self.data = ctx.zeros((size,), kind)


class Moments:
    """Both moments of the parameters that a rank owns, elements `own` of the layout: ranges in ascending order, each
    from a multiple of BLOCK on.

    `first` and `second` are arenas, or, of several ranks, `MomentShard`s; with `kind` f8 they are `CodedMoments`. They
    have range after range.
    """

    def __init__(self, ctx: Context, layout: Layout, kind: MomentsKind, own: Sequence[range]):
        self.kind = kind
        self.own = own
        #: How many parameters these are.
        self.size = sum(map(len, own))
        self._layout = layout
        self._places = list(accumulate(map(len, own), initial=0))  # where each range begins here
        self.first, self.second = (self._zero(ctx) for _ in range(2))

    def _zero(self, ctx: Context) -> ParameterArena | MomentShard | CodedMoments:
        if self.kind == "f8":
            return CodedMoments(ctx, self.size)
        if self.size < self._layout.size:
            return MomentShard(ctx, self.size, self.kind)
        return ParameterArena(ctx, self._layout, self.kind)

    def _blocks(self, scales: Tensor, number: int) -> Tensor:
        """The scales of a range."""
        return scales.narrow(0, self._places[number] // BLOCK, -(-len(self.own[number]) // BLOCK))

    def _elements(self, x: Tensor, number: int) -> Tensor:
        """Of values or codes, one an element, those of a range."""
        return x.narrow(0, self._places[number], len(self.own[number]))

    def parts(self) -> Iterator[tuple[str, int, Tensor]]:
        """What a checkpoint keeps of them: the name of a tensor there, the first of its elements that lies here, and
        the elements from there on."""
        for named, coded, moment in zip(_NAMED, _CODED, (self.first, self.second), strict=True):
            for number, own in enumerate(self.own):
                if isinstance(moment, CodedMoments):
                    yield f"{coded}.codes", own.start, self._elements(moment.codes, number)
                    yield f"{coded}.scales", own.start // BLOCK, self._blocks(moment.scales, number)
                else:
                    for name, first, part in own_parts(self._layout, own, self._elements(moment.data, number)):
                        yield f"{named}.{name}", first, part

    def load(self, tensors: SafetensorsFile) -> None:
        """Takes what a checkpoint kept, whose dtypes and shapes are those of `moments_shapes`."""
        for name, first, part in self.parts():
            part.copy_(tensors.part(name, first, part.size))

    def step(self, number: int, *inputs: Tensor | None, parameters: Tensor, **options: Any) -> None:
        """The form of `adamw_step` for these moments, of the range with this number: `inputs` are its gradients, and
        rate, step, factor and skip flag."""
        first, second = self.first, self.second
        if isinstance(first, CodedMoments) and isinstance(second, CodedMoments):
            coded = [
                part
                for one in (first, second)
                for part in (self._elements(one.codes, number), self._blocks(one.scales, number))
            ]
            kernels.adamw_step_f8(*inputs, parameters, *coded, first=self.own[number].start, **options)
        elif not isinstance(first, CodedMoments) and not isinstance(second, CodedMoments):
            plain = self._elements(first.data, number), self._elements(second.data, number)
            if self.kind == "f32":
                kernels.adamw_step(*inputs, parameters, *plain, **options)
            else:
                kernels.adamw_step_bf16(*inputs, parameters, *plain, first=self.own[number].start, **options)
