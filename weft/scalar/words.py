"""What the functions of words mean, on NumPy: several narrow numbers, the first one lowest."""

from typing import Any

import numpy as np


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
