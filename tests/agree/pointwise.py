"""Pointwise programs of every dtype: arithmetic, comparisons, casts, logic, special values."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from tests.agree.inputs import (
    SPECIALS,
    Case,
    bf16,
    boolean,
    cases,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    tensor,
    u8,
)

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)


def arithmetic(x, y):
    return x + y, x - y, x * y, -x, abs(x), torch.maximum(x, y), torch.minimum(x, y), x * 3 + 1


def compared(x, y):
    return x == y, x != y, x < y, x <= y, x > y, x >= y, torch.where(x < y, x, y)


def divided(x, y):
    return x // y, x % y, torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y), x / y


def integer(x, y):
    return x & y, x | y, x ^ y, ~x, torch.clamp(x, 3, 70), torch.relu(x), torch.sign(x), x**2


def shifted(x, y):
    return x << y, x >> y


def of_bool(x, y):
    return (
        *(x & y, x | y, x ^ y, ~x, x == y, x != y, x < y, x >= y),
        *(x + y, x * y, torch.maximum(x, y), torch.minimum(x, y), torch.where(x, y, ~y)),
        *(x.float(), x.long(), x + 1, x * 0.5, torch.logical_not(x)),
    )


def smooth(x):
    return (
        *(x.exp(), x.sigmoid(), x.tanh(), x.sin(), x.cos(), x.erf(), x.expm1(), x.atan()),
        *(abs(x).log(), abs(x).sqrt(), abs(x).rsqrt(), abs(x).log1p(), x.exp2(), abs(x).log2()),
    )


def activations(x):
    return (
        *(F.relu(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.softplus(x)),
        *(F.leaky_relu(x, 0.1), F.elu(x), F.hardswish(x), F.mish(x), F.hardtanh(x), F.relu6(x)),
    )


def powers(x):
    return x**2, x**3, abs(x) ** 0.5, abs(x) ** -0.5, x**-1, x**0, abs(x) ** 2.5, 2.0**x


def rounded(x):
    return x.floor(), x.ceil(), x.round(), x.trunc(), x.frac(), x.sign(), torch.signbit(x)


def of_specials(x):
    y = x.flip(0)
    return (
        *(x + y, x * y, x / y, torch.maximum(x, y), torch.minimum(x, y), x < y, x == y, x != x),
        *(x.relu(), x.exp(), x.sigmoid(), x.tanh(), x.clamp(-1, 2), x.isnan(), x.isinf()),
        *(x.floor(), x.round(), x.sign(), abs(x), torch.where(x > 0, x, y), x.reciprocal()),
        *(torch.fmax(x, y), torch.fmin(x, y), torch.atan2(x, y), torch.nan_to_num(x), x.half()),
    )


def to_all(x):
    return tuple(x.to(d) for d in DTYPES if d is not x.dtype)


def small(x):
    """Casts of floats that fit every integer type."""
    return to_all((x * 10).clamp(0, 100))


def chain(x):
    for i in range(300):
        x = x * 0.99 + 0.01 * (i % 3)
    return x


def by_dtype() -> list[Case]:
    made = []
    for d in DTYPES:
        name = str(d).removeprefix("torch.")
        x, y = tensor(d, 5, 37), tensor(d, 5, 37)
        if d is not torch.bool:
            made.append(Case(f"arithmetic_{name}", arithmetic, (x, y)))
            made.append(
                Case(f"compared_{name}", compared, (tensor(d, 70, below=4), tensor(d, 70, below=4)))
            )
        made.append(
            Case(f"to_all_{name}", small if d.is_floating_point else to_all, (tensor(d, 77),))
        )
        if d in INTEGERS:
            made.append(Case(f"integer_{name}", integer, (x, y)))
            positive = tensor(d, 5, 37).then("bitwise_and", 63).then("bitwise_or", 1)
            made.append(Case(f"divided_{name}", divided, (x, positive)))
            made.append(Case(f"shifted_{name}", shifted, (x, tensor(d, 37, below=6))))
        if d in FLOATS:
            made.append(Case(f"smooth_{name}", smooth, (tensor(d, 3, 41),)))
            made.append(Case(f"activations_{name}", activations, (tensor(d, 3, 41),)))
    return made


POINTWISE = by_dtype() + cases(
    of_bool=(of_bool, boolean(3, 37), boolean(3, 37)),
    divided_floats=(divided, f32(5, 37), f32(5, 37)),
    divided_negative=(divided, i32(5, 37), i32(5, 37).clamp(-50, -1)),
    powers=(powers, f32(5, 37)),
    powers_f64=(powers, f64(5, 37)),
    rounded=(rounded, f32(5, 37)),
    rounded_f16=(rounded, f16(5, 37)),
    specials=(of_specials, f32(41, of=SPECIALS)),
    specials_f64=(of_specials, f64(41, of=SPECIALS)),
    specials_bf16=(of_specials, bf16(41, of=SPECIALS)),
    mixed_dtypes=(
        lambda h, b, i, d: (h + b, h * i, i + d, b * 2, i / 3),
        f16(37),
        bf16(37),
        i64(37),
        f64(37),
    ),
    mixed_ints=(lambda a, b, c: (a + b, b * c, a + c, a.where(c > 50, b)), i8(37), i16(37), u8(37)),
    index_and_float=(lambda x: x * torch.arange(37) + torch.arange(5)[:, None], f32(5, 37)),
    mask_of_positions=(
        lambda x: x.masked_fill(torch.arange(37) > torch.arange(5)[:, None], -1e9),
        f32(5, 37),
    ),
    bool_times_float=(lambda x, m: x * m + m, f32(5, 37), boolean(5, 37)),
    where_mixed=(lambda m, x, i: torch.where(m, x, i), boolean(5, 37), f32(5, 37), i64(5, 37)),
    where_bool=(
        lambda m, x, i: torch.where(m, x, i > 0),
        boolean(5, 37),
        boolean(5, 37),
        i64(5, 37),
    ),
    broadcast=(lambda x, y, z: x * y + z, f32(4, 1, 37), f32(3, 1), f32(1)),
    rank_0=(lambda x, y: x * y + 1, f32(), f32()),
    rank_0_with_rank_2=(lambda x, y: x * y, f32(), f32(3, 5)),
    scalars=(lambda x, a, b: x * a + b, f32(37), 3, 0.25),
    empty=(lambda x: (x + 1, x.exp().sum(), x.sum(1)), f32(0, 5)),
    one=(lambda x: x.exp() + x, f32(1)),
    chain=(chain, f32(37)),
    clamp_tensors=(lambda x, a, b: x.clamp(a, b), f32(5, 37), f32(37), f32(5, 1)),
    lerp=(lambda x, y: torch.lerp(x, y, 0.3) + torch.addcmul(x, y, y, value=2), f32(37), f32(37)),
    transposed=(lambda x, y: x + y, f32(37, 5).t(), f32(5, 37)),
    strided=(lambda x: x * 2, f32(10, 74)[::2, 1::3]),
    expanded=(lambda x, y: x * y, f32(5, 1).expand(5, 37), f32(5, 37)),
    offset=(lambda x: x * 2, f32(100)[7:50]),
    channels_last=(lambda x: x.relu(), f32(2, 5, 7, 3).permute(0, 3, 1, 2)),
    several_outputs=(lambda x: (x + 1, [x * 2, {"a": x.exp()}], None, 3), f32(37)),
    same_output_twice=(lambda x: (x + 1, x + 1), f32(37)),
    output_is_input=(lambda x: (x, x + 1, x[2:]), f32(37)),
    constant_output=(lambda x: (torch.zeros(3, 4), torch.full((2,), 7), x), f32(2)),
    in_place=(lambda x, y: x.add_(y).mul_(2), f32(5, 37), f32(37)),
    in_place_row=(lambda x: (x[1].zero_(), x + 1)[1], f32(5, 37)),
    in_place_twice=(lambda x, y: (x.copy_(y), y.add_(x))[0], f32(5, 37), f32(5, 37)),
    argument_names=(
        lambda a0, acc0, v0, in0: a0 * acc0 + v0 - in0,
        f32(5, 37),
        f32(37),
        f32(37),
        f32(),
    ),
    keywords=(
        lambda int_, double, k_0, p: int_ + double * k_0 - p,
        f32(37),
        f32(37),
        f32(37),
        f32(37),
    ),
    names_of_headers=(
        lambda exp_f32, weft_for, linux, f32x16: exp_f32.exp() * weft_for + linux - f32x16,
        f32(37),
        f32(37),
        f32(37),
        f32(37),
    ),
    not_ascii=(lambda α, ñ: α * ñ, f32(37), f32(37)),
)
