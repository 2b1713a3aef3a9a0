"""`+`, `-`, `*`, `/` and unary minus of tensors, by the kernels of the section elementwise.

Both operands are tensors of one context, shape and dtype (f32, f16, bf16), or one of them is a number; nothing is
broadcast or converted. The result is a new dense tensor on the device; `+=` and its like write into the left one. The
bits are those of the kernels: `a - b` is `add(a, scale(b, alpha=-1))`, which is exact, and `a / 3` is
`scale(a, alpha=1 / 3)`, which may differ from a division in the last bit. A number is added after it was rounded to the
tensor's dtype, and multiplied by in f32.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, Union

if TYPE_CHECKING:
    from .tensor import Tensor

#: What may stand on the other side of an operator.
Operand: TypeAlias = Union["Tensor", float]

_DTYPES = ("f32", "f16", "bf16")
_NO_DIVISION = "no kernel divides by a tensor; on the host: ctx.tensor(a.numpy() / b.numpy())"


class Arithmetic:
    """The operators of `Tensor`."""

    __slots__ = ()

    #: So that NumPy leaves `array + tensor` to the tensor, which refuses it: nothing is copied to the host unasked.
    __array_priority__ = 1000.0

    def __add__(self: Any, other: Operand) -> Tensor:
        return _sum("+", self, other)

    def __radd__(self: Any, other: Operand) -> Tensor:
        return _sum("+", self, other)

    def __iadd__(self: Any, other: Operand) -> Tensor:
        return _sum("+=", self, other, self)

    def __sub__(self: Any, other: Operand) -> Tensor:
        return _difference("-", self, other)

    def __rsub__(self: Any, other: Operand) -> Tensor:
        return _sum("-", -self, other)

    def __isub__(self: Any, other: Operand) -> Tensor:
        return _difference("-=", self, other, self)

    def __mul__(self: Any, other: Operand) -> Tensor:
        return _product("*", self, other)

    def __rmul__(self: Any, other: Operand) -> Tensor:
        return _product("*", self, other)

    def __imul__(self: Any, other: Operand) -> Tensor:
        return _product("*=", self, other, self)

    def __truediv__(self: Any, other: float) -> Tensor:
        return _product("/", self, _reciprocal(other))

    def __rtruediv__(self: Any, other: object) -> NoReturn:
        raise TypeError(_NO_DIVISION)

    def __itruediv__(self: Any, other: float) -> Tensor:
        return _product("/=", self, _reciprocal(other), self)

    def __neg__(self: Any) -> Tensor:
        return _product("-", self, -1.0)


def _sum(operator: str, left: Tensor, right: Any, y: Tensor | None = None) -> Tensor:
    from .. import kernels

    if not _fit(operator, left, right):
        return NotImplemented  # type: ignore[no-any-return]  # Python's error follows
    if isinstance(right, Real):
        right = kernels.fill(ctx=left.ctx, n=left.shape, value=float(right), dtype=left.dtype)
    return kernels.add(_dense(left, y), right.contiguous(), y=y)


def _difference(operator: str, left: Tensor, right: Any, y: Tensor | None = None) -> Tensor:
    if not _fit(operator, left, right):
        return NotImplemented  # type: ignore[no-any-return]  # Python's error follows
    return _sum(operator, left, -right, y)


def _product(operator: str, left: Tensor, right: Any, y: Tensor | None = None) -> Tensor:
    from .. import kernels

    if not _fit(operator, left, right):
        return NotImplemented  # type: ignore[no-any-return]  # Python's error follows
    if isinstance(right, Real):
        return kernels.scale(_dense(left, y), alpha=float(right), y=y)
    return kernels.mul(_dense(left, y), right.contiguous(), y=y)


def _reciprocal(divisor: Any) -> Any:
    """What to multiply by instead of dividing; anything that is not a number stays, to be refused as a factor."""
    if isinstance(divisor, Arithmetic):
        raise TypeError(_NO_DIVISION)
    if not isinstance(divisor, Real):
        return divisor
    value = float(divisor)
    return 1.0 / value if value else math.copysign(math.inf, value)


def _dense(tensor: Tensor, y: Tensor | None) -> Tensor:
    """An operand that the kernel can read: where it is the result, too, it must be dense as it is."""
    return tensor if y is tensor else tensor.contiguous()


def _fit(operator: str, tensor: Tensor, other: Any) -> bool:
    """Whether the operands fit: False where Python's own error will do, TypeError where there is more to say."""
    if not isinstance(other, Real | Arithmetic):
        if hasattr(other, "__array__") or isinstance(other, list | tuple):
            raise TypeError(
                f"{operator} of a tensor and a {type(other).__name__}: Context.tensor(values) makes a tensor of it, "
                "tensor.numpy() makes an array of the tensor"
            )
        return False
    if tensor.dtype not in _DTYPES:
        raise TypeError(
            f"{operator} of a tensor of {tensor.dtype}; it must be f32, f16 or bf16. On the host: tensor.numpy()"
        )
    if isinstance(other, Arithmetic) and other.dtype != tensor.dtype:  # type: ignore[attr-defined]
        raise TypeError(
            f"{operator} of tensors of {tensor.dtype} and {other.dtype}; "  # type: ignore
            f'both must have the same dtype: to("{tensor.dtype}") converts'
        )
    return True
