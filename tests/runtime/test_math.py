"""weft_math.h against float64: every 997th float32, at several widths and instruction sets."""

from __future__ import annotations

import ctypes
import math
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

RUNTIME = Path(__file__).parents[2] / "weft" / "runtime"
FLAGS = (
    "-O3 -std=gnu11 -fno-math-errno -fno-trapping-math -ffp-contract=off -Wno-psabi "
    "-shared -fPIC -Wall -Werror"
)
MACHINES = {
    "native": "-march=native",
    "avx2": "-march=native -mno-avx512f",
    "plain": "-mno-avx",
}
BUILDS = [("native", 1), ("native", 8), ("native", 16), ("avx2", 8), ("plain", 16)]

# The bound in ulp of each function, and its reference in float64.
F32 = {
    "exp": (1.1, torch.exp),
    "exp2": (1.5, torch.exp2),
    "expm1": (2, torch.expm1),
    "log": (1.1, torch.log),
    "log2": (2.5, torch.log2),
    "log10": (3, torch.log10),
    "log1p": (1.1, torch.log1p),
    "tanh": (2, torch.tanh),
    "sigmoid": (2, torch.sigmoid),
    "erf": (1.5, torch.erf),
    "erfc": (3, torch.erfc),
    "sin": (2, torch.sin),
    "cos": (2, torch.cos),
    "tan": (4, torch.tan),
    "sinh": (3, torch.sinh),
    "cosh": (3, torch.cosh),
    "asin": (3, torch.asin),
    "acos": (3, torch.acos),
    "atan": (3, torch.atan),
    "lgamma": (0.6, torch.lgamma),
    "erfinv": (2.5, torch.erfinv),
    "i0e": (2.5, torch.special.i0e),
    "i1e": (2.5, lambda x: torch.special.i1e(x).copysign(x)),
}
F64 = {
    "exp": (1.5, np.exp),
    "log": (1.5, np.log),
    "tanh": (2, np.tanh),
    "sigmoid": (2, lambda x: np.where(x < 0, np.exp(-abs(x)), 1) / (1 + np.exp(-abs(x)))),
    "erf": (3, np.vectorize(math.erf)),
    "exp2": (1.5, np.exp2),
    "expm1": (2, np.expm1),
    "sinh": (2.5, np.sinh),
    "cosh": (2, np.cosh),
    "log2": (1.5, np.log2),
    "log10": (1.5, np.log10),
    "log1p": (1.5, np.log1p),
    "asinh": (3, np.arcsinh),
    "acosh": (3, np.arccosh),
    "atanh": (3, np.arctanh),
    "sin": (1.5, np.sin),
    "cos": (1.5, np.cos),
    "tan": (3, np.tan),
    "asin": (2, np.arcsin),
    "acos": (2, np.arccos),
    "atan": (1.5, np.arctan),
}
BINARY = {
    ("pow", "f32"): (1, torch.pow),
    ("atan2", "f32"): (4, torch.atan2),
}
UNARY = [(op, "f32") for op in F32] + [(op, "f64") for op in F64]
FUSED = [("fma", "f32"), ("fma", "f64")]
LANES_OF_LIBM = [("digamma", "f32"), ("digamma", "f64"), ("erfc", "f64")]


def source(lanes: int) -> str:
    x = f"x{lanes}" if lanes > 1 else ""
    loop = f"for (int64_t i = 0; i < n; i += {lanes})"
    widths = dict.fromkeys((1, lanes))  # as the emitter has them
    text = "".join(f'#define WEFT_LANES {n}\n#include "weft_math.h"\n' for n in widths)
    arity = {**dict.fromkeys(UNARY + LANES_OF_LIBM, 1), **dict.fromkeys(BINARY, 2)}
    arity |= dict.fromkeys(FUSED, 3)
    text += "#ifdef __FP_FAST_FMAF\nint rounds_once = 1;\n#else\nint rounds_once = 0;\n#endif\n"
    for (op, d), count in arity.items():
        parameters = "".join(f"const {d} *p{n}, " for n in range(count))
        loads = ", ".join(f"load_{d}{x}(p{n} + i)" for n in range(count))
        body = f"store_{d}{x}(q + i, {op}_{d}{x}({loads}));"
        text += f"void do_{op}_{d}({parameters}{d} *q, int64_t n) {{ {loop} {body} }}\n"
    return text


@pytest.fixture(scope="module", params=BUILDS, ids=lambda b: f"{b[0]}-x{b[1]}")
def built(request, tmp_path_factory):
    machine, lanes = request.param
    folder = tmp_path_factory.mktemp("math")
    (folder / "m.c").write_text(source(lanes))
    command = f"gcc {FLAGS} {MACHINES[machine]} -I{RUNTIME} m.c -o m.so -lm"
    subprocess.run(command.split(), cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "m.so"))

    def call(name: str, *inputs: np.ndarray) -> np.ndarray:
        n = len(inputs[0])
        padded = [np.concatenate([a, np.ones(-n % 64, a.dtype)]) for a in inputs]
        y = np.empty_like(padded[0])
        arrays = [a.ctypes.data_as(ctypes.c_void_p) for a in (*padded, y)]
        getattr(library, f"do_{name}_f{y.itemsize * 8}")(*arrays, ctypes.c_int64(len(y)))
        return y[:n]

    call.rounds_once = ctypes.c_int.in_dll(library, "rounds_once").value
    return call


def ulps(y: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """The error of y in units of the reference's last place; 0 where both overflow or are NaN."""
    d = y.dtype.type
    with np.errstate(all="ignore"):
        rounded = reference.astype(d)
        agree = (rounded == y) | (np.isnan(rounded) & np.isnan(y))
        unit = np.spacing(np.minimum(np.abs(rounded), np.finfo(d).max)).astype(reference.dtype)
        largest = np.finfo(d).max  # an overflow one way only counts from the largest finite value
        error = np.abs(np.clip(y, -largest, largest) - np.clip(reference, -largest, largest)) / unit
    error = np.where(np.isnan(error), np.inf, error)
    return np.where(agree & ~np.isfinite(rounded), 0, error)


EVERY_997TH = np.arange(0, 2**32, 997, dtype=np.uint64).astype(np.uint32).view(np.float32)
SPECIAL = np.array(
    "0 -0.0 inf -inf nan 1 -1 1e-45 -1e-45 1e-38 -1e-38 0.5 -0.5 2 -2 88.72283 88.72284 -87.33655 "
    "-103.97208 -103.97209 127.99999 128 -149 -150 1e5 1e6 1e38".split(),
    np.float32,
)
REFERENCES: dict[str, np.ndarray] = {}


def f32_points(op: str) -> np.ndarray:
    points = np.concatenate([EVERY_997TH, SPECIAL])
    far = np.abs(points) > 1e5  # lane by lane in libm: sample fewer
    if op in ("sin", "cos", "tan"):
        return np.concatenate([points[~far], points[far][::50]])
    return points


@pytest.mark.parametrize("d", [np.float32, np.float64])
def test_fma_rounds_once_where_there_is_an_instruction(built, d):
    """fma(a, b, -a b) is what rounding took from the product; nothing, where that is rounded."""
    a, b = np.random.default_rng(2).normal(size=(2, 500)).astype(d)
    products = zip(a.tolist(), b.tolist(), (a * b).tolist(), strict=True)
    lost = np.array([Fraction(x) * Fraction(y) - Fraction(p) for x, y, p in products]).astype(d)
    assert np.count_nonzero(lost) > 400
    np.testing.assert_array_equal(built("fma", a, b, -a * b), lost * built.rounds_once)


@pytest.mark.parametrize("op", F32)
def test_f32_functions_are_accurate_on_all_floats(built, op):
    bound, function = F32[op]
    x = f32_points(op)
    if op not in REFERENCES:
        REFERENCES[op] = function(torch.from_numpy(x).double()).numpy()
    error = ulps(built(op, x), REFERENCES[op])
    worst = int(error.argmax())
    assert error[worst] <= bound, f"{op}({x[worst]!r}) is off by {error[worst]} ulp"


@pytest.mark.parametrize("op", F32)
def test_f32_special_values_are_exact(built, op):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    expected = F32[op][1](torch.from_numpy(x).double()).float().numpy()
    y = built(op, x)
    exact = ulps(y, expected.astype(np.float64)) <= (1 if op in ("acos", "atan") else 0)
    assert exact.all(), f"{op}: {y} for {expected}"
    same_sign = np.signbit(y) == np.signbit(expected)
    assert (same_sign | np.isnan(expected)).all(), f"{op}: {y} for {expected}"


@pytest.mark.parametrize("op", F64)
def test_f64_functions_are_accurate(built, op):
    bound, function = F64[op]
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)
    x = np.concatenate([rng.normal(size=20_000), rng.uniform(-745, 710, 20_000), wide, SPECIAL])
    x = np.concatenate([x, np.array([5e-324, 2e-308, 709.78, -745.2, 1 - 2**-53, 1 + 2**-52])])
    with np.errstate(all="ignore"):
        reference = function(x if op == "erf" else x.astype(np.longdouble)).astype(np.longdouble)
    error = ulps(built(op, x), reference)
    worst = int(error.argmax())
    assert error[worst] <= bound, f"{op}({x[worst]!r}) is off by {error[worst]} ulp"


@pytest.mark.parametrize("op", F64)
def test_f64_special_values_are_exact(built, op):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 5e-324, -5e-324, 1e308, -1e308])
    with np.errstate(all="ignore"):
        expected = F64[op][1](x)
    y = built(op, x)
    error = ulps(y, expected.astype(np.longdouble))
    assert (error <= np.where(np.isin(x, [0, np.inf, -np.inf]), 0.51, 3)).all(), f"{op}: {y}"
    same_sign = np.signbit(y) == np.signbit(expected)
    assert (same_sign | np.isnan(expected)).all(), f"{op}: {y} for {expected}"


@pytest.mark.parametrize("op", ["pow", "atan2"])
def test_f32_binary_functions(built, op):
    bound, function = BINARY[op, "f32"]
    rng = np.random.default_rng(1)
    a = np.concatenate([rng.normal(size=200_000) * 10, rng.lognormal(0, 15, 200_000)]).astype(
        np.float32
    )
    b = np.concatenate([rng.normal(size=200_000) * 20, np.round(rng.normal(size=200_000) * 4)])
    special = np.concatenate([SPECIAL, np.array([3, -3, 2.5, -2.5], np.float32)])
    a = np.concatenate([a, np.repeat(special, len(special))])
    b = np.concatenate([b.astype(np.float32), np.tile(special, len(special))])
    reference = function(torch.from_numpy(a).double(), torch.from_numpy(b).double()).numpy()
    y = built(op, a, b)
    error = ulps(y, reference)
    worst = int(error.argmax())
    assert error[worst] <= bound, f"{op}({a[worst]!r}, {b[worst]!r}) is off by {error[worst]} ulp"
    assert ((np.signbit(y) == np.signbit(reference)) | np.isnan(reference)).all()


@pytest.mark.parametrize("op,d", LANES_OF_LIBM)
def test_lanewise_functions(built, op, d):
    x = np.linspace(-8.3, 40, 9001).astype(np.float32 if d == "f32" else np.float64)
    expected = getattr(torch, op)(torch.from_numpy(x).double()).numpy()
    np.testing.assert_allclose(
        built(op, x), expected, rtol=3e-5 if d == "f32" else 1e-10, atol=1e-5
    )
