"""Pointwise rows of the ATen table over their whole domain, compiled: as near float64 as eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

import weft
from tests.runtime.test_functions import samples
from weft.core.types import DTYPES
from weft.frontend.aten.pointwise import ROWS
from weft.library.calls import operator

Op = Callable[..., torch.Tensor]
DTYPE = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
DTYPE |= {"i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}
DTYPE |= {"u8": torch.uint8, "bool": torch.bool}
OTHERS = (
    "copy",
    "_to_copy",
    "clone",
    "alias",
    "detach",
    "lift",
    "dropout",
    "fill",
    "where",
    "frexp",
)
# tests/runtime/test_special.py holds these to mpmath: torch's float64 is off by up to 1e-5 near
# zeros of the first ones and without phase far out, and eager takes a step for each degree or term.
ELSEWHERE = ("bessel_j", "bessel_y", "airy", "polynomial", "zeta", "igamma")
ATENS = {("aten.nextafter.default", "f16")}  # left to ATen
ULPS = 8  # of what is within them nothing is asked


def calls() -> Iterator[tuple[str, Op, int]]:
    """Rows that take one or two tensors, and nothing else that has no default."""
    for name in ROWS:
        op = operator(name)
        given = [a for a in op._schema.arguments if not a.has_default_value()]
        tensors = all(str(a.type) == "Tensor" for a in given)
        if tensors and len(given) <= 2 and not any(part in name for part in OTHERS + ELSEWHERE):
            yield name, op, len(given)


def values(name: str) -> torch.Tensor:
    if name in ("f16", "bf16"):
        return torch.from_numpy(samples(DTYPES["f32"])).to(DTYPE[name])
    return torch.from_numpy(samples(DTYPES[name]))


def arguments(name: str, arity: int) -> list[torch.Tensor]:
    x = values(name)
    if arity == 1:
        return [x]
    return [v.reshape(-1) for v in torch.meshgrid(x, x, indexing="ij")]


def safe(name: str, args: list[torch.Tensor]) -> list[torch.Tensor]:
    """Arguments of which eager says something: an integer is not divided by zero."""
    if any(part in name for part in ("remainder", "fmod")):
        x, y = args
        if y.dtype is torch.float64:  # eager's is NaN where the quotient is too large
            return [x, torch.where(x.isfinite() & (y != 0) & (x / y).isinf(), 1, y)]
        return args if y.is_floating_point() else [x, torch.where(y == 0, 1, y).to(y.dtype)]
    if "shift" in name and not args[0].is_floating_point():
        return [args[0], args[1] & 7]
    if "bessel_k1" in name and args[0].dtype is torch.float64:  # eager's is NaN at 2^-1074: 0 / 2
        return [torch.where(args[0] == 5e-324, 1e-323, args[0])]
    if "signbit" in name:  # a NaN has none to speak of
        return [args[0].nan_to_num(0.0)]
    return args


def wrong(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Elements that are not eager's, and farther from float64 than eager's or a few units."""
    if not eager.is_floating_point():
        return got != eager
    a, b, e = got.double(), eager.double(), exact.double()
    info = torch.finfo(eager.dtype)  # of subnormal f64 there is no better reference than eager
    least = info.smallest_normal * (1 if eager.dtype is torch.float64 else info.eps)
    unit = torch.clamp(e.abs() * info.eps, min=least)
    beyond = torch.where(e.abs() > info.max, torch.copysign(torch.tensor(torch.inf), e), e)
    near = (a - e).abs() <= torch.maximum(2 * (b - e).abs().nan_to_num(0, 0, 0), ULPS * unit)
    same = [(a == v) | (a.isnan() & v.isnan()) for v in (b, beyond)]
    return ~(near | same[0] | same[1])


@pytest.mark.parametrize("name", DTYPE)
@pytest.mark.parametrize("arity", [1, 2])
def test_every_element(name: str, arity: int) -> None:
    program: dict[str, Op] = {}
    args: dict[str, list[torch.Tensor]] = {}
    eager: dict[str, torch.Tensor] = {}
    for row, op, count in calls():
        if count == arity and (row, name) not in ATENS:
            given = safe(row, arguments(name, arity))
            try:
                eager[row] = op(*given)
                op(*(a.to("meta") for a in given))
            except (RuntimeError, NotImplementedError):
                continue
            program[row], args[row] = op, given

    def every(args: dict[str, list[torch.Tensor]]) -> dict[str, torch.Tensor]:
        return {row: op(*args[row]) for row, op in program.items()}

    assert len(program) > 10
    failures: list[str] = []
    for row, got in weft.compile(every, fallback="error")(args).items():
        real = eager[row].is_floating_point()
        wide = [a.double() if real or a.is_floating_point() else a for a in args[row]]
        exact = program[row](*wide)
        assert got.dtype == eager[row].dtype
        for i in torch.nonzero(wrong(got, eager[row], exact)).flatten()[:5].tolist():
            given = ", ".join(str(a[i].item()) for a in args[row])
            told = f"{got[i].item()}, eager {eager[row][i].item()}, float64 {exact[i].item()}"
            failures.append(f"{row}({given}) = {told}")
    assert not failures, "\n".join(failures)
