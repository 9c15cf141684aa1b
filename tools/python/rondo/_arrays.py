"""What callers give as numbers: arrays of numpy, of others by DLPack, and lists, with any strides."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import numpy as np

from ._library import InvalidError, Matrix, c_int32_p

Array = Any  # np.ndarray, what has __dlpack__, or what np.asarray() takes


def as_array(x: Array, name: str) -> "np.ndarray[Any, Any]":
    """The numbers of x, which are not copied where they can be seen as they are."""
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError, ValueError) as e:
            raise TypeError(f"{name}: numpy cannot see this {type(x).__name__} ({e}); expected numbers in the "
                            "machine's own memory, of a type that numpy has, and detached from a graph") from e
    try:
        return np.asarray(x)
    except ValueError as e:
        raise InvalidError(f"{name}: {e}") from e


def shaped(a: "np.ndarray[Any, Any]", axes: Sequence[str], name: str) -> "np.ndarray[Any, Any]":
    """a, which must have these axes."""
    if a.ndim != len(axes):
        raise InvalidError(f"{name}: shape {list(a.shape)}, expected [{', '.join(axes)}]")
    return a


def element_strides(a: "np.ndarray[Any, Any]") -> Optional[list[int]]:
    """Strides in elements; None where the library cannot read the array as it is. An axis of one element has 1."""
    if not (a.flags.aligned and a.dtype.isnative):
        return None
    strides = []
    for count, stride in zip(a.shape, a.strides):
        if count > 1 and (stride == 0 or stride % a.itemsize != 0):
            return None
        strides.append(stride // a.itemsize if count > 1 else 1)
    return strides


def strided(a: "np.ndarray[Any, Any]") -> "tuple[np.ndarray[Any, Any], list[int]]":
    """The array and its strides, copied only if need be."""
    strides = element_strides(a)
    if strides is None:
        a = np.array(a, dtype=a.dtype.newbyteorder("="), order="C")
        strides = element_strides(a)
        assert strides is not None
    return a, strides


def floats(a: "np.ndarray[Any, Any]", name: str) -> "np.ndarray[Any, Any]":
    """a as 32-bit floats."""
    if a.dtype.kind != "f" and a.dtype.name != "bfloat16":
        raise TypeError(f"{name}: dtype {a.dtype}, expected float32 (or another float, which is converted)")
    return a.astype(np.float32, copy=False)


def matrix_of(x: Array, axes: Sequence[str], name: str) -> "tuple[Matrix, np.ndarray[Any, Any]]":
    """A rondo_matrix, and the array that must live as long."""
    a, strides = strided(floats(shaped(as_array(x, name), axes, name), name))
    return Matrix(a.ctypes.data, a.shape[0], a.shape[1], strides[0], strides[1]), a


def integers(x: Array, name: str) -> "np.ndarray[Any, Any]":
    """x as 32-bit integers without gaps."""
    a = as_array(x, name)
    if a.size == 0 and a.dtype.kind == "f":  # an empty list
        a = a.astype(np.int32)
    if a.dtype.kind not in "iu":
        raise TypeError(f"{name}: dtype {a.dtype}, expected int32 or int64")
    limits = np.iinfo(np.int32)
    if a.size > 0 and (a.max() > limits.max or a.min() < limits.min):
        raise InvalidError(f"{name}: {a.min()} to {a.max()}, expected 32-bit integers")
    return np.ascontiguousarray(a, dtype=np.int32)


def int32_pointer(a: "np.ndarray[Any, Any]") -> Any:
    """int32_t* of an array, which must live as long."""
    return a.ctypes.data_as(c_int32_p)
