"""Pointwise operators. Arithmetic and comparisons also of Python numbers, which shapes are.

Add(x, y)                          # torch.add
Add((2, 3), 1)                     # (3, 4)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from weft.onnx.table import op
from weft.onnx.types import number, refuse

LOWEST = -(2**63)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)

UNARY: dict[str, Callable[..., Any]] = {
    "Acos": torch.acos, "Acosh": torch.acosh, "Asin": torch.asin, "Asinh": torch.asinh,
    "Atan": torch.atan, "Atanh": torch.atanh, "Ceil": torch.ceil, "Cos": torch.cos,
    "Cosh": torch.cosh, "Exp": torch.exp, "Floor": torch.floor,
    "IsNaN": torch.isnan, "Log": torch.log, "Mish": F.mish, "HardSwish": F.hardswish,
    "Reciprocal": torch.reciprocal, "Relu": torch.relu, "Round": torch.round,
    "Sigmoid": torch.sigmoid, "Sin": torch.sin, "Sinh": torch.sinh, "Softsign": F.softsign,
    "Sqrt": torch.sqrt, "Tan": torch.tan, "Tanh": torch.tanh,
}  # fmt: skip
for name, function in UNARY.items():
    op(name)(lambda x, function=function: function(x))
op("Erf")(lambda x: torch.erf(x if x.is_floating_point() else x.double()).to(x.dtype))


# Numbers: ints and bools, or tuples of them, which broadcast as tensors of rank 0 and 1 do.


def lifted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of each element of its arguments, as a row's `numbers`."""

    def over(*inputs: Any, **_: Any) -> Any:
        lengths = [len(x) for x in inputs if isinstance(x, tuple)]
        if not lengths:
            return function(*inputs)
        count = max(lengths) if 0 not in lengths else 0
        columns = [spread(x, count) for x in inputs]
        return tuple([function(*row) for row in zip(*columns, strict=True)])

    return over


def spread(x: Any, count: int) -> tuple[Any, ...]:
    if not isinstance(x, tuple):
        return (x,) * count
    if len(x) not in (1, count):
        refuse(f"values of {len(x)} and {count} elements do not broadcast")
    return x * count if len(x) == 1 else x


def quotient(a: Any, b: Any) -> Any:
    """Integer division rounds towards zero."""
    if b == 0:
        raise ZeroDivisionError("an integer is divided by zero")
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


op("Abs", numbers=lifted(abs))(lambda x: x if is_unsigned(x) else torch.abs(x))
op("Sign", numbers=lifted(lambda a: (a > 0) - (a < 0)))(lambda x: unsigned(torch.sign, x))
op("Neg", numbers=lifted(operator.neg))(lambda x: torch.neg(x))
op("Not", numbers=lifted(operator.not_))(lambda x: torch.logical_not(x))
op("Identity", numbers=lambda x: x)(lambda x: x)
op("BitwiseNot")(lambda x: unsigned(torch.bitwise_not, x))


def is_unsigned(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype in (torch.uint8, *UNSIGNED)


def unsigned(function: Callable[..., Any], *inputs: Any, ordered: bool = False) -> Any:
    """A function of integers, also of unsigned ones, for which torch has few kernels.

    They are taken as i64 and the result as its lowest bits. That is exact but for u64 where the
    order of values counts: `ordered` moves these by 2^63, which keeps their order.
    """
    dtype = inputs[0].dtype if isinstance(inputs[0], Tensor) else None
    if dtype not in UNSIGNED:
        return function(*inputs)
    if dtype is not torch.uint64:
        found = function(*[x.to(torch.int64) for x in inputs])
    elif not ordered:
        found = function(*[x.view(torch.int64) for x in inputs])
    else:
        found = function(*[x.view(torch.int64) ^ LOWEST for x in inputs])
        found = found if found.dtype is torch.bool else found ^ LOWEST
    if found.dtype is torch.bool:
        return found
    return found.view(dtype) if dtype is torch.uint64 else found.to(dtype)


def aligned(a: Any, b: Any, broadcast: int, axis: int | None) -> Any:
    """The second operand of opset 1 to 6, whose sizes begin at an axis of the first."""
    if not broadcast or axis is None or b.dim() == 0:
        return b
    return b.reshape(*b.shape, *(1,) * (a.dim() - axis % a.dim() - b.dim()))


def binary(
    name: str, function: Callable[..., Any], numbers: Any = None, ordered: bool = False
) -> None:
    def row(a: Any, b: Any, *, broadcast: int = 0, axis: int | None = None) -> Any:
        return unsigned(function, a, aligned(a, b, broadcast, axis), ordered=ordered)

    op(name, numbers=lifted(numbers) if numbers else None)(row)


binary("Add", torch.add, operator.add)
binary("Sub", torch.sub, operator.sub)
binary("Mul", torch.mul, operator.mul)
binary("And", torch.logical_and, lambda a, b: bool(a and b))
binary("Or", torch.logical_or, lambda a, b: bool(a or b))
binary("Xor", torch.logical_xor, operator.ne)
binary("BitwiseAnd", torch.bitwise_and, operator.and_)
binary("BitwiseOr", torch.bitwise_or, operator.or_)
binary("BitwiseXor", torch.bitwise_xor, operator.xor)
binary("Greater", torch.gt, operator.gt, ordered=True)
binary("Less", torch.lt, operator.lt, ordered=True)
binary("GreaterOrEqual", torch.ge, operator.ge, ordered=True)
binary("LessOrEqual", torch.le, operator.le, ordered=True)


def equal(a: Any, b: Any) -> Any:
    return torch.from_numpy(np.equal(a, b).astype(bool)) if is_text(a) else torch.eq(a, b)


def is_text(value: Any) -> bool:
    return isinstance(value, np.ndarray)


binary("Equal", equal, operator.eq)


def unsigned_quotient(a: Tensor, b: Tensor) -> Tensor:
    """a / b of u64 in i64: half of a is divided, and doubled; a b of 2^63 or more fits once."""
    half = (a >> 1) & (2**63 - 1)
    large = b < 0
    twice = torch.div(half, torch.where(large, 1, b), rounding_mode="floor") << 1
    found = torch.where(large, 0, twice)
    rest = a - found * b
    return found + ((rest ^ LOWEST) >= (b ^ LOWEST))


def divide(a: Tensor, b: Tensor) -> Tensor:
    if a.is_floating_point() or a.is_complex():
        return torch.div(a, b)
    if a.dtype is torch.uint64:
        return unsigned(unsigned_quotient, a, b)
    return unsigned(lambda p, q: torch.div(p, q, rounding_mode="trunc"), a, b)


def remainder(a: Tensor, b: Tensor, fmod: int) -> Tensor:
    if a.dtype is torch.uint64:
        return unsigned(lambda p, q: p - unsigned_quotient(p, q) * q, a, b)
    return unsigned(torch.fmod if fmod else torch.remainder, a, b)


@op("Div", numbers=lifted(quotient))
def div(a: Tensor, b: Tensor, *, broadcast: int = 0, axis: int | None = None) -> Tensor:
    return divide(a, aligned(a, b, broadcast, axis))


def number_remainder(a: Any, b: Any, *, fmod: int = 0) -> Any:
    return lifted(lambda p, q: p - quotient(p, q) * q if fmod else p % q)(a, b)


@op("Mod", numbers=number_remainder)
def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    return remainder(a, b, fmod)


@op("Pow")
def power(a: Tensor, b: Tensor, *, broadcast: int = 0, axis: int | None = None) -> Tensor:
    """Of the type of the base: integers to integer powers are exact, where these are not < 0."""
    b = aligned(a, b, broadcast, axis)
    if a.is_floating_point():
        kind = torch.promote_types(a.dtype, b.dtype) if b.is_floating_point() else a.dtype
        return torch.pow(a.to(kind), b.to(kind)).to(a.dtype)
    if b.is_floating_point():
        return torch.pow(a.double(), b.double()).to(a.dtype)
    return torch.pow(a.to(torch.int64), b.to(torch.int64)).to(a.dtype)


@op("BitShift")
def shift(a: Tensor, b: Tensor, *, direction: str) -> Tensor:
    """By as many bits as the type has, or more: all bits are 0, or what the sign brings in."""
    bits = 8 * a.element_size()
    wide = a.dtype is torch.uint64
    values = a.view(torch.int64) if wide else a.to(torch.int64)
    counts = b.view(torch.int64) if b.dtype is torch.uint64 else b.to(torch.int64)
    over = (counts >= bits) | (counts < 0)
    counts = counts.masked_fill(over, 0)
    if direction == "LEFT":
        found = (values << counts).masked_fill(over, 0)
    else:
        found = torch.where(over, torch.where(values < 0, -1, 0), values >> counts)
        if wide:  # the bits that the sign of i64 brings in are cleared
            low = torch.full_like(counts, -1) << (bits - counts).clamp(max=bits - 1)
            found = (found & ~low.masked_fill(counts == 0, 0)).masked_fill(over, 0)
    return found.view(a.dtype) if wide else found.to(a.dtype)


def number_where(condition: Any, a: Any, b: Any) -> Any:
    return lifted(lambda c, p, q: p if c else q)(condition, a, b)


@op("Where", numbers=number_where)
def where(condition: Tensor, a: Any, b: Any) -> Any:
    if is_text(a):
        return np.where(condition.numpy(), a, b).astype(object)
    if a.dtype in UNSIGNED:
        return unsigned(lambda p, q: torch.where(condition, p, q), a, b)
    return torch.where(condition, a, b)


def folded(function: Callable[..., Any], ordered: bool) -> Callable[..., Any]:
    def row(first: Tensor, *others: Tensor) -> Tensor:
        for other in others:
            first = unsigned(function, first, other, ordered=ordered)
        return first

    return row


op("Max", numbers=lifted(lambda *values: max(values)))(folded(torch.maximum, ordered=True))
op("Min", numbers=lifted(lambda *values: min(values)))(folded(torch.minimum, ordered=True))
op("Sum", numbers=lifted(lambda *values: sum(values)))(folded(torch.add, ordered=False))
add_all = folded(torch.add, ordered=False)


@op("Mean")
def mean(*inputs: Tensor) -> Tensor:
    return add_all(*inputs) / len(inputs)


# Activations


@op("Clip", literals=(1, 2), either=(1, 2))
def clip(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Where the bounds cross, all elements are the upper one, as in torch."""
    low, high = number(min), number(max)
    if x.dtype in UNSIGNED or isinstance(low, Tensor) != isinstance(high, Tensor):
        low, high = (x.new_tensor(v) if isinstance(v, int | float) else v for v in (low, high))
    if x.dtype in UNSIGNED:
        x = x if low is None else unsigned(torch.maximum, x, low, ordered=True)
        return x if high is None else unsigned(torch.minimum, x, high, ordered=True)
    return x if low is None and high is None else torch.clamp(x, low, high)


op("Elu")(lambda x, *, alpha=1.0: F.elu(x, alpha))
op("Celu")(lambda x, *, alpha=1.0: F.celu(x, alpha))
op("LeakyRelu")(lambda x, *, alpha=0.01: F.leaky_relu(x, alpha))
op("ThresholdedRelu")(lambda x, *, alpha=1.0: torch.where(x > alpha, x, 0))
op("HardSigmoid")(lambda x, *, alpha=0.2, beta=0.5: torch.clamp(alpha * x + beta, 0, 1))
op("Gelu")(lambda x, *, approximate="none": F.gelu(x, approximate=approximate))
op("Softplus")(lambda x: softplus(x))
op("Swish")(lambda x, *, alpha=1.0: x * torch.sigmoid(alpha * x))
op("SwiGLU")(lambda a, b, *, alpha=1.0: a * torch.sigmoid(alpha * a) * b)
op("Shrink")(lambda x, *, bias=0.0, lambd=0.5: shrink(x, bias, lambd))


def softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros((), dtype=x.dtype, device=x.device))


def shrink(x: Tensor, bias: float, lambd: float) -> Tensor:
    zero = torch.zeros_like(x)
    moved = torch.where(x > lambd, (x - bias).to(x.dtype), zero)
    return torch.where(x < -lambd, (x + bias).to(x.dtype), moved)


@op("Selu", since=6)
def selu(
    x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Tensor:
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(x))


op("Selu")(lambda x, *, alpha=1.6732, gamma=1.0507: selu(x, alpha=alpha, gamma=gamma))


@op("PRelu", since=7)
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    return x if is_unsigned(x) else torch.where(x < 0, slope * x, x)


@op("PRelu")
def prelu_1(x: Tensor, slope: Tensor) -> Tensor:
    """Before opset 7 slopes are of channels."""
    return prelu(x, slope.reshape(-1, *(1,) * (x.dim() - 2)))


@op("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    infinite = torch.isinf(x)
    infinite = infinite if detect_negative else infinite & (x > 0)
    return infinite if detect_positive else infinite & (x < 0)
