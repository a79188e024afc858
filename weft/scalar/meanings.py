"""What pointwise functions mean, on NumPy: where it has none of that name, or torch differs.

A word is several narrow numbers, the first one lowest.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.errors import DivisionByZero, IndexOutOfRange
from weft.core.types import DType, boolean

Evaluate = Callable[..., Any]


def each(one: Callable[[float], float], x: Any) -> Any:
    """Apply a function of one number to every element, in f64."""
    found = np.vectorize(one, otypes=[np.float64])(np.asarray(x, np.float64))
    return found.astype(np.asarray(x).dtype)


def lgamma(v: float) -> float:
    if abs(v) > 1e305:  # beyond, Python raises
        return math.inf
    return math.inf if v <= 0 and v == math.floor(v) else math.lgamma(v)


def floormod(x: Any, y: Any) -> Any:
    if np.asarray(x).dtype.kind in "iu":
        return np.where(y == 0, 0, np.mod(x, np.where(y == 0, 1, y)))
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def floordiv(x: Any, y: Any) -> Any:
    whole = np.floor_divide(x, np.where(y == 0, 1, y))
    return np.where(y == 0, 0, whole).astype(np.asarray(x).dtype)


def truncdiv(x: Any, y: Any) -> Any:
    safe = np.where(y == 0, 1, y)
    exact = (x - np.fmod(x, safe)) // safe
    return np.where(y == 0, 0, exact).astype(np.asarray(x).dtype)


def checked_index(i: Any, n: Any) -> Any:
    if np.any((i < 0) | (i >= n)):
        raise IndexOutOfRange
    return np.asarray(i)


def checked_divisor(x: Any) -> Any:
    if np.any(np.equal(x, 0)):
        raise DivisionByZero
    return np.asarray(x)


def narrow(x: Any, d: DType) -> Any:
    """A float as d, which saturates where d has no infinity, as torch has it."""
    if d.bits == 8:  # by f32, as everywhere in weft
        x = np.asarray(x, np.float32)
        x = np.clip(x, -448, 448) if d.name == "f8e4m3fn" else x
    return np.asarray(x).astype(d.numpy)


def round_to(d: DType) -> Evaluate:
    return lambda x: narrow(x, d).astype(np.float32)


def cast_to(d: DType) -> Evaluate:
    def cast(x: Any) -> Any:
        x = np.asarray(x)
        if d.is_integer and x.dtype.kind not in "iub":  # C truncation of a finite value
            x = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0))
            return x.astype(np.int64).astype(d.numpy)
        return (x != 0) if d is boolean else narrow(x, d) if d.is_float else x.astype(d.numpy)

    return cast


def fma(x: Any, y: Any, z: Any) -> Any:
    """x y + z in f64, which holds a product of f32 exactly, then in the dtype of the operands."""
    return (np.asarray(x, np.float64) * y + z).astype(np.result_type(x, y, z))


def bits(x: Any) -> Any:
    x = np.asarray(x)
    return x.view(f"i{x.itemsize}")


def philox(seed: Any, counter: Any) -> Any:
    """Philox4x32-10 (Salmon et al. 2011), the first two words; see library/philox.py."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    seed, counter = (np.asarray(x).astype(np.uint64) for x in (seed, counter))
    c0, c1, c2, c3 = counter & low, counter >> half, counter & np.uint64(0), np.uint64(0)
    k0, k1 = seed & low, seed >> half
    for _ in range(10):
        first, second = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1 = (second >> half) ^ c1 ^ k0, second & low
        c2, c3 = (first >> half) ^ c3 ^ k1, first & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return (c0 | c1 << half).astype(np.int64)


def pack_bf16(low: Any, high: Any) -> Any:
    both = np.stack(np.broadcast_arrays(low, high), -1)  # f64: complex128, else complex64
    wide = both.astype(np.result_type(both.dtype, np.float32))
    return wide.view(np.result_type(wide.dtype, np.complex64))[..., 0]


def dot_bf16(x: Any, y: Any) -> Any:
    """a c + b d, of (a, b) and (c, d)."""
    return x.real * y.real + x.imag * y.imag


def pack_bytes(*parts: Any) -> Any:
    """Four bytes as an i32, the first one lowest."""
    whole = np.stack(np.broadcast_arrays(*parts), -1).view("u1").astype("u4")
    return np.bitwise_or.reduce(whole << np.arange(0, 32, 8, dtype="u4"), -1).view("i4")


def dot_bytes(x: Any, y: Any) -> Any:
    """The sum of four products, of bytes of x without a sign and bytes of y with one."""
    shifts = np.arange(0, 32, 8, dtype="i4")
    x, y = (np.asarray(v, "i4")[..., None] >> shifts for v in (x, y))
    return np.sum((x & 255) * y.astype("i1").astype("i4"), -1, dtype="i4")


def dot_turned(x: Any, y: Any) -> Any:
    return dot_bytes(y, x)
