"""Element types: their names here, their codes in the ABI and their counterparts in NumPy.

A dtype is a string: "f32", "f16", "bf16", "i32", "i8" are those that kernels compute with; "i64" and "u8" only hold
seeds and bytes. Wherever a dtype is asked for, NumPy's types and names ("float32", numpy.float32, ml_dtypes.bfloat16)
are taken as well. To a type checker the names are `DTypeName`, and all that is taken is `DTypeLike`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union, cast

if TYPE_CHECKING:
    import numpy as np

DTypeName: TypeAlias = Literal["f32", "f16", "bf16", "i32", "i8", "i64", "u8"]
_NumpyName: TypeAlias = Literal["float32", "float16", "bfloat16", "int32", "int8", "int64", "uint8"]
# NumPy's own classes in quotes: they are not imported before a value is converted.
DTypeLike: TypeAlias = Union[DTypeName, _NumpyName, "np.dtype[Any]", "type[np.generic]"]
#: Where only floating point will do.
FloatLike: TypeAlias = Union[
    Literal["f32", "f16", "bf16", "float32", "float16", "bfloat16"], "np.dtype[Any]", "type[np.generic]"
]


@dataclass(frozen=True)
class DType:
    name: DTypeName
    code: int  # NNCUDA_F32 ...; -1 for those that no dtype parameter takes
    itemsize: int  # bytes
    numpy_name: str
    dlpack: tuple[int, int]  # type code and bits of DLPack
    buffer_format: str  # of the buffer protocol; empty where it has none


DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("f32", 0, 4, "float32", (2, 32), "f"),
        DType("f16", 1, 2, "float16", (2, 16), "e"),
        DType("bf16", 2, 2, "bfloat16", (4, 16), ""),
        DType("i32", 3, 4, "int32", (0, 32), "i"),
        DType("i8", 4, 1, "int8", (0, 8), "b"),
        DType("i64", -1, 8, "int64", (0, 64), "q"),
        DType("u8", -1, 1, "uint8", (1, 8), "B"),
    )
}
_BY_NUMPY_NAME = {dtype.numpy_name: dtype.name for dtype in DTYPES.values()}
_BY_DLPACK = {dtype.dlpack: dtype.name for dtype in DTYPES.values()}


def name_of(dtype: object) -> DTypeName:
    """The name of a dtype given in any of the accepted forms. TypeError for anything else."""
    if isinstance(dtype, str):
        if dtype in DTYPES:
            return cast(DTypeName, dtype)
        if dtype in _BY_NUMPY_NAME:
            return _BY_NUMPY_NAME[dtype]
    else:
        import numpy as np

        try:
            numpy_name = np.dtype(cast(Any, dtype)).name
        except TypeError:
            numpy_name = ""
        if numpy_name in _BY_NUMPY_NAME and dtype is not None:
            return _BY_NUMPY_NAME[numpy_name]
    raise TypeError(f"dtype is {dtype!r}; it must be one of {', '.join(DTYPES)}")


def convert(array: np.ndarray, name: str) -> np.ndarray:
    """A NumPy array as one of a dtype that is C-contiguous, itself when it is one already.

    Numbers are rounded to floating point, but never to integers: TypeError for fractions, texts and objects where
    whole numbers belong, OverflowError for whole numbers that do not fit.
    """
    import numpy as np

    target, kind = to_numpy(name), array.dtype.kind
    if array.dtype != target and array.size:
        if kind == "O" and all(isinstance(value, int) for value in array.flat):
            raise OverflowError(f"values up to {max(array.flat, key=abs)} do not fit into {name}")
        if kind not in ("biu" if target.kind in "iu" else "biufV"):
            hint = "; round them first: array.round().astype(numpy.int32)" if kind == "f" else ""
            raise TypeError(f"values of dtype {array.dtype} cannot become {name}{hint}")
        if target.kind in "iu" and kind != "b":
            least, most, limits = array.min(), array.max(), np.iinfo(target)
            if least < limits.min or most > limits.max:
                raise OverflowError(f"values {least} .. {most} do not fit into {name}")
    return np.ascontiguousarray(array, target).reshape(array.shape)


def to_numpy(name: str) -> np.dtype[Any]:
    """The NumPy dtype. bf16 needs the ml_dtypes package, since NumPy has no such type of its own."""
    import numpy as np

    if name == "bf16":
        try:
            import ml_dtypes
        except ImportError:
            raise ImportError("NumPy needs the ml_dtypes package to hold bf16: pip install ml_dtypes") from None
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(DTYPES[name].numpy_name)


def from_dlpack(code: int, bits: int, lanes: int) -> DTypeName:
    """The dtype of a DLPack type. TypeError when there is none."""
    name = _BY_DLPACK.get((code, bits)) if lanes == 1 else None
    if name is None:
        raise TypeError(
            f"the array's element type (DLPack code {code}, {bits} bits, {lanes} lanes) has no counterpart; "
            f"nncuda holds {', '.join(DTYPES)}"
        )
    return name
