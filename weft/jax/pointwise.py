"""Rows of functions of each element by itself.

Integers go as in XLA: a division by zero gives -1, a remainder the dividend, a shift by all bits 0.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from weft.jax.library import WIDER
from weft.jax.rows import ROWS, Out, is_float, row

Tensor = torch.Tensor

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in """exp exp2 log log1p expm1 sin cos tan tanh sinh cosh asin acos atan asinh
        acosh atanh sqrt rsqrt floor ceil abs neg erf erfc lgamma digamma isfinite real imag
        square""".split()
    },
    "logistic": torch.sigmoid,
    "erf_inv": torch.erfinv,
    "bessel_i0e": torch.special.i0e,
    "bessel_i1e": torch.special.i1e,
    "is_finite": torch.isfinite,
    "stop_gradient": torch.detach,
    "not": torch.bitwise_not,
    "conj": lambda x: torch.conj(x).resolve_conj(),
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "add_any": torch.add,
    "sub": torch.sub,
    "max": torch.maximum,
    "min": torch.minimum,
    "atan2": torch.atan2,
    "nextafter": torch.nextafter,
    "igamma": torch.special.gammainc,
    "igammac": torch.special.gammaincc,
    "polygamma": lambda n, x: torch.special.zeta(n + 1, x),
    "zeta": torch.special.zeta,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "complex": torch.complex,
}


def _plain(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args, **_: fn(*args)


ROWS.update({name: _plain(fn) for name, fn in {**UNARY, **BINARY}.items()})


@row("mul")
def mul(x: Tensor, y: Tensor, *, out: Out, **_: Any) -> Tensor:
    wide = x.dtype is not out.dtype and x.dtype.is_floating_point
    return torch.mul(x.to(out.dtype), y.to(out.dtype)) if wide else torch.mul(x, y)


def _minus(y: Tensor) -> Tensor:
    """Where an integer is -1, which none without a sign is."""
    return y == -1 if y.dtype.is_signed else torch.zeros_like(y, dtype=torch.bool)


def _divisor(y: Tensor) -> Tensor:
    """A divisor that no processor faults on: 1 for 0 and for -1."""
    return torch.where((y == 0) | _minus(y), torch.ones_like(y), y)


@row("div")
def div(x: Tensor, y: Tensor, **_: Any) -> Tensor:
    if is_float(x):
        return torch.div(x, y)
    found = torch.div(x, _divisor(y), rounding_mode="trunc")
    found = torch.where(_minus(y), -x, found)
    return torch.where(y == 0, torch.full_like(x, -1), found)


@row("rem")
def rem(x: Tensor, y: Tensor, **_: Any) -> Tensor:
    if is_float(x):
        return torch.fmod(x, y)
    return torch.where(y == 0, x, torch.fmod(x, _divisor(y)))


@row("pow")
def power(x: Tensor, y: Tensor, **_: Any) -> Tensor:
    return torch.pow(x, y)


@row("integer_pow")
def integer_pow(x: Tensor, *, y: int, **_: Any) -> Tensor:
    """By squares, as JAX multiplies: the same rounding, and integers wrap around."""
    if y == 0:
        return torch.ones_like(x)
    found, square, n = None, x, abs(y)
    while n:
        if n & 1:
            found = square if found is None else found * square
        n >>= 1
        square = square * square if n else square
    assert found is not None
    return found if y > 0 else div(torch.ones_like(x), found)


@row("sign")
def sign(x: Tensor, **_: Any) -> Tensor:
    """NaN and zeros are their own signs."""
    if x.is_complex():
        return torch.sgn(x)
    return torch.where((x == 0) | (x != x), x, torch.sign(x)) if is_float(x) else torch.sign(x)


@row("round")
def rounded(x: Tensor, *, rounding_method: Any, **_: Any) -> Tensor:
    if int(rounding_method) == 1:
        return torch.round(x)
    whole = torch.trunc(x)
    return torch.where((x - whole).abs() >= 0.5, whole + torch.sign(x), whole)


@row("cbrt")
def cbrt(x: Tensor, **_: Any) -> Tensor:
    """By a power, and a step of Newton's method."""
    a = x.abs()
    r = torch.pow(a, 1 / 3)
    near = r - (r * r * r - a) / (3 * r * r)
    return torch.copysign(torch.where((a == 0) | torch.isinf(a), a, near), x)


@row("select_n")
def select_n(which: Tensor, *cases: Tensor, **_: Any) -> Tensor:
    found = cases[-1]
    if which.dtype is torch.bool:
        return torch.where(which, found, cases[0])
    for i in reversed(range(len(cases) - 1)):
        found = torch.where(which == i, cases[i], found)
    return found


@row("clamp")
def clamp(low: Tensor, x: Tensor, high: Tensor, **_: Any) -> Tensor:
    return torch.minimum(torch.maximum(x, low), high)


# --- bits -----------------------------------------------------------------------------------------


def bits_of(name: str) -> int:
    """The width of JAX's integers of that name."""
    return int("".join(c for c in name if c.isdigit()))


def unsigned(x: Tensor, bits: int) -> Tensor:
    """An integer's bits as a number of no sign, in 64 bits."""
    return x.long() if bits == 64 else x.long() & ((1 << bits) - 1)


@row("shift_left")
def shift_left(x: Tensor, y: Tensor, *, out: Out, **_: Any) -> Tensor:
    bits = bits_of(out.name)
    by = unsigned(y, bits)
    wide = x.long() << by.clamp(0, bits - 1)
    return torch.where(by < bits, wide, torch.zeros_like(wide)).to(out.dtype)


@row("shift_right_logical")
def shift_right_logical(x: Tensor, y: Tensor, *, out: Out, **_: Any) -> Tensor:
    bits = bits_of(out.name)
    by = unsigned(y, bits)
    wide = unsigned(x, bits) >> by.clamp(0, bits - 1)
    return torch.where(by < bits, wide, torch.zeros_like(wide)).to(out.dtype)


@row("shift_right_arithmetic")
def shift_right_arithmetic(x: Tensor, y: Tensor, *, out: Out, **_: Any) -> Tensor:
    bits = bits_of(out.name)
    top = bits - 1
    if out.name.startswith("u"):  # its uppermost bit is the sign
        x = x.long() - ((x.long() >> top) << bits)
    return x.long() >> unsigned(y, bits).clamp(0, top)


@row("population_count")
def population_count(x: Tensor, *, out: Out, **_: Any) -> Tensor:
    """Sums of neighbouring bits, then of pairs, and so on."""
    n = unsigned(x, bits_of(out.name))
    for shift, mask in ((1, 0x55), (2, 0x33), (4, 0x0F)):
        whole = int.from_bytes(bytes([mask]) * 8, "big", signed=True)
        n = (n & whole) + ((n >> shift) & whole)
    for shift in (8, 16, 32):
        n = n + (n >> shift)
    return n & 0x7F


@row("clz")
def leading_zeros(x: Tensor, *, out: Out, **_: Any) -> Tensor:
    bits = bits_of(out.name)
    n, found = unsigned(x, bits), torch.full_like(x, bits, dtype=torch.int64)
    for at in range(bits):
        found = torch.where((n >> at) & 1 == 1, torch.full_like(found, bits - 1 - at), found)
    return found


# --- conversions ----------------------------------------------------------------------------------


@row("convert_element_type")
def convert(x: Tensor, *, out: Out, **_: Any) -> Tensor:
    """A float becomes the nearest integer towards zero that there is, NaN 0."""
    if x.is_complex() and not out.dtype.is_complex:
        x = x.real
    if out.dtype is torch.bool:
        return x != 0
    if not x.is_floating_point() or is_float(torch.empty(0, dtype=out.dtype)):
        return x.to(out.dtype)
    limits = torch.iinfo(out.dtype)
    low, high = (0, WIDER[out.name][1]) if out.name in WIDER else (limits.min, limits.max)
    wide = torch.where(x == x, x.double(), 0.0)
    whole = wide.clamp(float(low), float(high)).to(torch.int64)
    if high == (1 << 63) - 1:  # which no float is
        whole = torch.where(wide >= 2.0**63, torch.full_like(whole, high), whole)
    return whole.to(out.dtype)


NARROW = {"uint16": torch.int16, "uint32": torch.int32}  # as wide as they are in memory


@row("bitcast_convert_type")
def bitcast(x: Tensor, *, names: Sequence[str], out: Out, **_: Any) -> Tensor:
    """Of another width there is an axis more, or one fewer."""
    if x.dtype is torch.bool or out.dtype is torch.bool:
        return x.to(out.dtype)
    own, target = x.to(NARROW.get(names[0], x.dtype)), NARROW.get(out.name, out.dtype)
    sizes = own.element_size(), torch.empty(0, dtype=target).element_size()
    if sizes[0] > sizes[1]:
        own = own.unsqueeze(-1)
    found = own.contiguous().view(target)
    return found.squeeze(-1) if sizes[0] < sizes[1] else found


@row("reduce_precision")
def reduce_precision(x: Tensor, *, exponent_bits: int, mantissa_bits: int, **_: Any) -> Tensor:
    """To nearest even in fewer bits; what is too large is infinite, too small a zero."""
    kept, wide = x.dtype, x.dtype is torch.float64
    bits = x.view(torch.int64) if wide else x.float().contiguous().view(torch.int32)
    drop = (52 if wide else 23) - mantissa_bits
    if drop > 0:
        odd = (bits >> drop) & 1
        bits = (bits + ((1 << (drop - 1)) - 1) + odd) & ~((1 << drop) - 1)
    found = bits.view(torch.float64 if wide else torch.float32)
    if exponent_bits < (11 if wide else 8):
        bias = (1 << (exponent_bits - 1)) - 1
        least, most = 2.0 ** (1 - bias), math.ldexp(2 - 2.0**-mantissa_bits, bias)
        zero, infinite = torch.zeros_like(found), torch.full_like(found, math.inf)
        found = torch.where(found.abs() < least, torch.copysign(zero, found), found)
        found = torch.where(found.abs() > most, torch.copysign(infinite, found), found)
    return torch.where(x != x, x, found.to(kept))
