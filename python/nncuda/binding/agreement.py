"""Which tensors of a kernel must agree in shape beyond their number of elements, from the shapes in the header.

A tensor may have more dimensions than its shape in the header: a shape of one dimension takes any, flattened, and extra
leading dimensions are folded into the first. That must not hide a mistake, so

- tensors that have the same shape in the header must have the same shape: ``add`` refuses (2, 3) with (3, 2), and
  with (6,);
- a dimension that several tensors have must be folded from the same sizes: logits of (batch, tokens, vocab) go with
  targets of (batch, tokens), or with flat ones, but not with (tokens, batch);
- a dimension that is not the first of another tensor cannot be folded: ``[k, n]`` does not take (2, 4, n);
- where the first dimension is a product of as many names as were folded, each must be its name's: ``[tokens*k]`` takes
  (tokens, k), but not (k, tokens).

Python applies the rules to each call (see `call_sizes`); Go and Rust have functions generated with them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from .header import Dim, Function, Param

__all__ = ["Agreement", "Fold", "Inner", "agreement", "factors"]


@dataclass(frozen=True)
class Inner:
    """A tensor that has a dimension after its first one; `when` is the state of its swap flag in which it does, None
    when that does not matter."""

    param: Param
    when: bool | None


@dataclass(frozen=True)
class Fold:
    """The tensors whose first dimension is `dim`: those that have more dimensions than the header folded the same sizes
    into it, and none may where a tensor of `inner` has it. A tensor whose two dimensions are swapped folds nothing."""

    dim: Dim
    tensors: tuple[Param, ...]
    inner: tuple[Inner, ...]


@dataclass(frozen=True)
class Agreement:
    """The rules for one kernel: groups of tensors of the same shape, and every first dimension that could be folded."""

    same: tuple[tuple[Param, ...], ...]
    folds: tuple[Fold, ...]

    def led(self, param: Param) -> bool:
        """Whether a tensor before it, which is always there, has the same shape: what holds for that holds for this."""
        groups = (group[: group.index(param)] for group in self.same if param in group)
        return any(not other.nullable for before in groups for other in before)

    @property
    def further_folds(self) -> tuple[Fold, ...]:
        """What the folds say that the groups do not."""
        folds = (
            Fold(fold.dim, tuple(param for param in fold.tensors if not self.led(param)), fold.inner)
            for fold in self.folds
        )
        return tuple(fold for fold in folds if fold.inner or len(fold.tensors) > 1)


@functools.cache
def agreement(function: Function) -> Agreement:
    """The rules for a kernel. They depend on the header alone."""
    groups: dict[tuple[tuple[Dim, ...], str], list[Param]] = {}
    firsts: dict[str, list[Param]] = {}
    for param in function.pointers:
        if any(dim.names for dim in param.dims):
            groups.setdefault((param.dims, param.swap_flag), []).append(param)
        if param.dims[0].names:
            firsts.setdefault(param.dims[0].text, []).append(param)
    same = tuple(tuple(group) for group in groups.values() if len(group) > 1)
    folds = (
        Fold(tensors[0].dims[0], tuple(tensors), _inner(function, text, tensors)) for text, tensors in firsts.items()
    )
    return Agreement(same, tuple(folds))


def factors(param: Param) -> tuple[str, ...]:
    """The sizes that the tensor's first dimension is the product of; empty unless it is a product of several."""
    first = param.dims[0]
    plain = (first.coefficient, first.divisor, first.offset) == (1, 1, 0)
    return first.names if plain and len(first.names) > 1 else ()


def _inner(function: Function, text: str, folding: list[Param]) -> tuple[Inner, ...]:
    found = []
    for param in function.pointers:
        texts = [dim.text for dim in param.dims]
        unswapped, swapped = text in texts[1:], text in [*texts[:-2], *reversed(texts[-2:])][1:]
        if not param.swap_flag:
            swapped = unswapped
        # A tensor alone is no other tensor: swapped, it folds nothing.
        if (unswapped or swapped) and folding != [param]:
            found.append(Inner(param, None if unswapped == swapped else swapped))
    # A tensor that is always there, and always has it, decides alone.
    always = [inner for inner in found if not inner.param.nullable and inner.when is None]
    return tuple(always[:1] or found)
