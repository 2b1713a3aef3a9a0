"""What a case is: a kernel, a dtype, and a recipe for its arguments from a stream of numbers.

A recipe returns a dict of arguments by the header's names: arrays in the shapes of the header for the pointers that are
read (float64; they are rounded to their dtype later), scalars for options and flags, and those sizes that do not follow
from the arrays. dtype parameters are names ("bf16"). Leading dimensions default to dense. None is a null pointer; an
optional output is asked for unless it is None.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from nncuda.reference import random
from nncuda.reference.arithmetic import Array
from nncuda.reference.judge import Arguments
from nncuda.reference.rounding import rounded

FLOATS = ("f32", "f16", "bf16")
#: Sizes around the widths of vectors and of two tiles.
TAILS = (1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)
#: Kernels without a floating-point argument, and what the names of their cases begin with.
WHOLE_NUMBERS = {
    **dict.fromkeys(("moe_plan", "random_bits", "increment", "count_tokens", "document_starts"), "i32"),
    **dict.fromkeys(("ternary_pack", "ternary_unpack"), "i8"),
    **dict.fromkeys(("interleave_rows", "digest"), "u8"),
}


class Draw:
    """A stream of numbers that is the same on every machine: Philox words and exact arithmetic on them."""

    def __init__(self, key: str, number: int) -> None:
        self._seed = zlib.crc32(key.encode())
        self._stream = number
        self._block = 0

    def _words(self, n: int) -> Array:
        words = random.words(n, self._seed, self._stream, self._block)
        self._block += -(-n // 4)
        return words

    def uniform(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Array:
        fraction = self._words(int(np.prod(shape))).astype(np.float64) * 2.0**-32
        return (low + (high - low) * fraction).reshape(shape)

    def bell(self, *shape: int, scale: float = 1.0) -> Array:
        """Near to normal, standard deviation ``scale``, within 3.5 of it: the sum of four uniform numbers."""
        n = int(np.prod(shape))
        parts = self._words(4 * n).reshape(4, n).astype(np.float64) * 2.0**-32
        return (scale * 1.75 * (parts[0] + parts[1] + parts[2] + parts[3] - 2)).reshape(shape)

    def integers(self, *shape: int, low: int = 0, high: int) -> Array:
        """Whole numbers low .. high-1."""
        return (
            (low + (self._words(int(np.prod(shape))) % np.uint64(high - low)).astype(np.int64))
            .astype(np.int32)
            .reshape(shape)
        )

    def permutation(self, n: int) -> Array:
        return np.argsort(self._words(n), kind="stable").astype(np.int32)


@dataclass(frozen=True)
class Case:
    """One call of a kernel. ``name`` begins with the dtype, so that cases sort and select by it."""

    kernel: str
    name: str
    recipe: Callable[[Draw], Arguments]
    dtypes: Arguments = field(default_factory=dict)

    def arguments(self, number: int = 0) -> Arguments:
        """The arguments for draw ``number``; the fixture holds number 0."""
        return {**self.dtypes, **self.recipe(Draw(f"{self.kernel}/{self.name}", number))}


def case(
    kernel: str, label: str, recipe: Callable[..., Arguments], dtype: str = "", *sizes: object, **dtypes: str
) -> Case:
    """A case of one dtype; ``dtypes`` names further dtype parameters. The recipe takes ``sizes`` behind the draw."""
    named = {"dtype": dtype, **dtypes} if dtype else dict(dtypes)
    kinds = dict.fromkeys(named.values()) or (WHOLE_NUMBERS.get(kernel, "f32"),)
    return Case(kernel, f"{'-'.join(kinds)}.{label}", lambda d: recipe(d, *sizes), named)


def each(
    kernel: str, recipes: dict[str, Callable[[Draw, str], Arguments]], dtypes: Sequence[str] = FLOATS
) -> Iterator[Case]:
    """Every recipe in every dtype; a recipe gets the dtype, so that it can round what a forward call would have."""
    for dtype in dtypes:
        for label, recipe in recipes.items():
            yield case(kernel, label, lambda d, recipe=recipe, dtype=dtype: recipe(d, dtype), dtype)


def stored(x: Array, dtype: str = "f32") -> Array:
    """An intermediate result as the forward call would have left it."""
    return rounded(x, dtype)


def nan(*shape: int) -> Array:
    """What must not be read."""
    return np.full(shape, np.nan)
