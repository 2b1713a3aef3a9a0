"""The kernels: one function for each ``cuda_<kernel>`` of ``bindings.h``, made from the header at import.

Positional arguments are the input tensors, in the header's order. Options, flags, sizes that the shapes do not tell,
and outputs go by keyword. Outputs are allocated when not given and returned; an optional one only when it is asked for
with ``name=True`` or a tensor.

>>> y = kernels.gemm(x, w, trans_b=True)
>>> y, rstd = kernels.rmsnorm(x, weight, eps=1e-6, rstd=True)
>>> kernels.silu(x, y=x)                                  # in place, where the header allows the alias
>>> noise = kernels.normal(ctx=ctx, n=(4, 8), seed=1)

``help(kernels.rmsnorm)`` shows formula, source, shapes, dtypes and errors; a gradient that the header calls ``acc`` is
added to, in place.
"""

from __future__ import annotations

from .binding import generate as _generate
from .binding import header as _header

_contract = _header.parse()
__all__ = list(_contract.kernels)

for _function in _contract.kernels.values():
    globals()[_function.kernel] = _generate.function_of(_function, _contract, __name__)
    for _param in _function.params:
        # The values of options, such as ROPE_HALF, for those who prefer numbers to names.
        for _constant in _param.constants:
            globals()[_constant.removeprefix("NNCUDA_")] = _contract.constants[_constant]
