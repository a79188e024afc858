"""Element types and the types of values: tensors, scalars, vectors.

TensorType(f32, (16, 64))          prints f32[16,64]
TensorType(f32, (16, 64), (1, 16)) prints f32[16,64]{1,16}   (element strides, when not row-major)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type; `bits` is its size in memory.

    `kind` is float, int, uint, bool, pair (two bf16) or foreign (only library calls use it).
    """

    name: str
    kind: str
    bits: int
    numpy: np.dtype = field(repr=False, compare=False)

    @property
    def bytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def compute(self) -> DType:
        """The dtype of arithmetic: f32 for floats of fewer bits, which are only stored as such."""
        return f32 if self.is_float and self.bits < 32 else self

    @property
    def word(self) -> DType:
        """The dtype of its values in C and torch, which hold a pair as an i32."""
        return i32 if self.kind == "pair" else self

    @property
    def python(self) -> type[int | float | bool]:
        """The Python type of its values."""
        return float if self.is_float else bool if self.kind == "bool" else int

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return dtype_named, (self.name,)  # one object, as it is compared by `is`


f16 = DType("f16", "float", 16, np.dtype(np.float16))
bf16 = DType("bf16", "float", 16, np.dtype(ml_dtypes.bfloat16))
f8e4m3fn = DType("f8e4m3fn", "float", 8, np.dtype(ml_dtypes.float8_e4m3fn))  # no infinity
f8e5m2 = DType("f8e5m2", "float", 8, np.dtype(ml_dtypes.float8_e5m2))
f32 = DType("f32", "float", 32, np.dtype(np.float32))
f64 = DType("f64", "float", 64, np.dtype(np.float64))
i8 = DType("i8", "int", 8, np.dtype(np.int8))
i16 = DType("i16", "int", 16, np.dtype(np.int16))
i32 = DType("i32", "int", 32, np.dtype(np.int32))
i64 = DType("i64", "int", 64, np.dtype(np.int64))
u8 = DType("u8", "uint", 8, np.dtype(np.uint8))
boolean = DType("bool", "bool", 8, np.dtype(np.bool_))
bf16pair = DType("bf16pair", "pair", 32, np.dtype(np.complex64))  # (low half, high half)

FLOATS = (f16, bf16, f8e4m3fn, f8e5m2, f32, f64)
DTYPES = {d.name: d for d in (*FLOATS, i8, i16, i32, i64, u8, boolean, bf16pair)}


# Element types that only library calls use, by torch's name, with the NumPy dtype that stores them.
NUMPYS = ("complex64", "complex128", "uint16", "uint32", "uint64")
HELD = {"complex32": np.dtype("uint32"), **{name: np.dtype(name) for name in NUMPYS}}
FOREIGN = {name: DType(name, "foreign", 8 * d.itemsize, d) for name, d in HELD.items()}


def dtype_named(name: str) -> DType:
    return DTYPES.get(name) or FOREIGN[name]


def dtype_of_literal(value: int | float | bool) -> DType:
    """The dtype of a literal without one: an int is i64, a float f32, a bool bool."""
    return boolean if isinstance(value, bool) else f32 if isinstance(value, float) else i64


class Symbolic:
    """A size that is no number, where shapes and strides have an int.

    `term` computes it. scalar/sizes.py has its arithmetic, which is that of ints.
    """

    term: Any

    def at_least(self, other: int) -> int:
        """The greater one of both."""
        raise NotImplementedError


def at_least(least: int, extent: Any) -> Any:
    return extent.at_least(least) if isinstance(extent, Symbolic) else max(extent, least)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of a contiguous tensor, last axis fastest."""
    sizes = (at_least(1, extent) for extent in reversed(shape))
    return tuple(accumulate(sizes, mul, initial=1))[-2::-1]


@dataclass(frozen=True)
class TensorType:
    """The type of a whole tensor. `strides` count elements; None is row-major."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.bytes

    @cached_property
    def layout(self) -> tuple[int, ...]:
        """The strides in elements, also of a row-major tensor."""
        return row_major(self.shape) if self.strides is None else self.strides

    @cached_property
    def span(self) -> int:
        """Elements of memory from the first to the last: f32[2,3]{8,1} spans 11."""
        if self.size == 0:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.layout, strict=True))

    def __str__(self) -> str:
        text = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        if self.strides is not None and self.strides != row_major(self.shape):
            text += "{" + ",".join(map(str, self.strides)) + "}"
        return text


@dataclass(frozen=True)
class TupleType:
    """The type of a library call with several results; the op `part` selects one of them."""

    parts: tuple[TensorType, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parts))})"


@dataclass(frozen=True)
class ScalarType:
    """The type of one value, or of a vector of `lanes` values."""

    dtype: DType
    lanes: int = 1

    def __str__(self) -> str:
        return str(self.dtype) if self.lanes == 1 else f"{self.dtype}x{self.lanes}"


Type = TensorType | ScalarType
