"""weft_special.h in f64 against mpmath, which torch has through sympy, and torch at the ends.

Of one lane, as GPUs have it, and in vectors by weft_math.h.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import torch

from weft.scalar.special import SPECIAL

RUNTIME = Path(__file__).parents[2] / "weft" / "runtime"
HEAD = """typedef double wide;
#define WEFT_W(op) __builtin_##op
#define WEFT_W_FN static inline __attribute__((unused))
#include "gpu/weft_special.h"
"""
FLAGS = (
    "-O2 -std=gnu11 -fno-math-errno -fno-trapping-math -ffp-contract=off -Wno-psabi "
    "-Wall -Werror -shared -fPIC"
)
BUILDS = {
    "scalar": (0, ""),
    "x1": (1, "-march=native"),
    "x8": (8, "-march=native"),
    "x16": (16, "-march=native"),
    "avx2-x8": (8, "-march=native -mno-avx512f"),
    "plain-x4": (4, "-mno-avx"),
}
TRUE = {
    "modified_bessel_i0": lambda x: mp.besseli(0, x),
    "modified_bessel_i1": lambda x: mp.besseli(1, x),
    "i0e": lambda x: mp.exp(-abs(x)) * mp.besseli(0, x),
    "i1e": lambda x: mp.exp(-abs(x)) * mp.besseli(1, x),
    "modified_bessel_k0": lambda x: mp.besselk(0, x),
    "modified_bessel_k1": lambda x: mp.besselk(1, x),
    "scaled_modified_bessel_k0": lambda x: mp.exp(x) * mp.besselk(0, x),
    "scaled_modified_bessel_k1": lambda x: mp.exp(x) * mp.besselk(1, x),
    "bessel_j0": lambda x: mp.besselj(0, x),
    "bessel_j1": lambda x: mp.besselj(1, x),
    "bessel_y0": lambda x: mp.bessely(0, x),
    "bessel_y1": lambda x: mp.bessely(1, x),
    "airy_ai": mp.airyai,
    "erfcx": lambda x: mp.exp(x * x) * mp.erfc(x),
    "erfinv": mp.erfinv,
    "digamma": mp.digamma,
    "zeta": mp.zeta,
    "gammainc": lambda a, x: mp.gammainc(a, 0, x, regularized=True),
    "gammaincc": lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True),
    "hermite_polynomial_h": lambda x, n: mp.hermite(n, x),
    "laguerre_polynomial_l": lambda x, n: mp.laguerre(n, 0, x),
    "legendre_polynomial_p": lambda x, n: mp.legendre(n, x),
    "chebyshev_polynomial_t": lambda x, n: mp.chebyt(n, x),
    "chebyshev_polynomial_u": lambda x, n: mp.chebyu(n, x),
    "shifted_chebyshev_polynomial_t": lambda x, n: mp.chebyt(n, 2 * x - 1),
    "shifted_chebyshev_polynomial_u": lambda x, n: mp.chebyu(n, 2 * x - 1),
}
EDGES = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, -2.5, 0.5, 2, 3, 10, 1e-30, -0.5, 7, 9]


def source(lanes: int) -> str:
    """Functions of arrays whose length is a multiple of the lanes; 0: those of a scalar."""
    x = f"_f64x{lanes}" if lanes > 1 else "_f64"
    define = f'#define WEFT_LANES {lanes}\n#include "weft_math.h"\n'
    text = define.replace(f"{lanes}", "1") + define * (lanes > 1) if lanes else HEAD
    for arity, names in enumerate(SPECIAL, 1):
        for name in names:
            parameters = ", ".join(f"const double *p{n}" for n in range(arity))
            args = ", ".join(f"load{x}(p{n} + i)" if lanes else f"p{n}[i]" for n in range(arity))
            body = f"store{x}(y + i, {name}{x}({args}))" if lanes else f"y[i] = weft_{name}({args})"
            loop = f"for (long i = 0; i < n; i += {max(lanes, 1)})"
            text += f"void do_{name}({parameters}, double *y, long n) {{ {loop} {body}; }}\n"
    return text


@pytest.fixture(scope="module", params=BUILDS)
def call(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    lanes, machine = BUILDS[request.param]
    folder = tmp_path_factory.mktemp("special")
    (folder / "s.c").write_text(source(lanes))
    command = f"gcc {FLAGS} {machine} -I{RUNTIME} s.c -o s.so -lm"
    subprocess.run(command.split(), cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "s.so"))

    def run(name: str, *inputs: Any) -> np.ndarray:
        n = len(inputs[0])
        arrays = [np.append(np.asarray(a, np.float64), np.ones(-n % 16)) for a in inputs]
        arrays.append(np.empty_like(arrays[0]))
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in arrays]
        getattr(library, f"do_{name}")(*pointers, ctypes.c_long(len(arrays[0])))
        return arrays[-1][:n]

    return run


def points(name: str) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    small = 10.0 ** random.uniform(-30, 2.5, 30)
    both = np.concatenate([random.normal(size=40) * 8, small, random.uniform(7, 9, 20)])
    if name == "erfinv":
        return [np.concatenate([random.uniform(-1, 1, 50), 1 - 10.0 ** -random.uniform(0, 16, 20)])]
    if name in ("erfcx", "airy_ai"):
        return [random.uniform(-25, 12, 90)]
    if name == "zeta":
        return [random.uniform(1.01, 30, 60), 10.0 ** random.uniform(-3, 3, 60)]
    if "gamma" in name and name != "digamma":
        a = 10.0 ** random.uniform(-3, 4, 80)
        near = a * np.exp(random.normal(size=80) / np.sqrt(1 + a))
        return [a, np.where(np.arange(80) % 2, near, random.uniform(0.01, 60, 80))]
    if "polynomial" in name:
        return [random.uniform(-1.5, 1.5, 60), random.integers(0, 14, 60).astype(float)]
    positive = name.endswith(("k0", "k1", "y0", "y1"))
    return [abs(both) if positive else both]


@pytest.mark.parametrize("name", TRUE)
def test_values(call: Any, name: str) -> None:
    """Within 1e-12 of the value, or of the function's usual size: far below one ulp of f32."""
    args = [a.astype(np.float32).astype(np.float64) for a in points(name)]
    with mp.workdps(120 if name == "zeta" else 30):
        true = [
            float(mp.re(TRUE[name](*map(mp.mpf, map(float, each)))))
            for each in zip(*args, strict=True)
        ]
    got, wanted = call(name, *args), np.array(true)
    waves = name.startswith("bessel") or name in ("airy_ai", "digamma") or "polynomial" in name
    size = np.maximum(abs(wanted), 1) if waves else abs(wanted) + 1e-300
    with np.errstate(invalid="ignore"):
        far = (abs(got - wanted) > 1e-12 * size) & (got != wanted)
    assert not far.any(), [(*(a[far][0] for a in args), got[far][0], wanted[far][0])]


@pytest.mark.parametrize("name", ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai"])
def test_waves_far_out(call: Any, name: str) -> None:
    """Relative to their amplitude there; Airy's phase, x^1.5 * 2/3, is rounded to f64 itself."""
    airy = name == "airy_ai"
    x = np.array([2.0**20, 2.0**24 + 2, 1e6, 2.0**40, 2.0**64, 1e30, 3.0e38], np.float32)
    x = (-x[:3] if airy else x).astype(np.float64)
    with mp.workdps(120):
        true = np.array([float(mp.re(TRUE[name](mp.mpf(float(each))))) for each in x])
    size = (abs(x) ** -0.25 if airy else np.sqrt(2 / x)) / np.sqrt(np.pi)
    phase = abs(x) ** 1.5 * 2 / 3 if airy else 0
    off = abs(call(name, x) - true) / size
    assert (off < 1e-12 + 2 * np.finfo(np.float64).eps * phase).all(), off


def test_incomplete_gamma_far_out(call: Any) -> None:
    """Where all of it is on one side, and beside others: steps of one lane change no other's."""
    a = np.array([2e6, 4061284.0, 1e7, 5.0, 900.0, 2e6, 3e5, 9e4, 1.0, 1e10])
    x = np.array([1.2e6, 539637.0, 1e6, 3.0, 550.0, 9e6, 1.5e5, 4e4, 1.0, 1e9])
    for name, side in (("gammainc", 0), ("gammaincc", 1)):
        found, alone = call(name, a, x), [call(name, a[i : i + 1], x[i : i + 1]) for i in range(10)]
        assert (found == np.concatenate(alone)).all(), (name, found, alone)
        wanted = [side, side, side, None, None, 1 - side, side, side, None, side]
        assert all(w is None or f == w for f, w in zip(found, wanted, strict=True)), (name, found)


def test_zeta_of_integers(call: Any) -> None:
    """As of a polygamma: powers are products up to the 16th, of what these are finite of."""
    random = np.random.default_rng(0)
    s = np.concatenate([random.integers(2, 19, 80), [2, 2, 3, 16, 16, 17, 16]]).astype(float)
    ends = [3.2e154, 199.5, 6.4e102, 6.9e19, 200.5, 1e-3, 1e-19]
    q = np.concatenate([10.0 ** random.uniform(-3, 3, 60), -random.uniform(0.01, 9, 20), ends])
    with mp.workdps(60):
        true = np.array([float(mp.zeta(mp.mpf(a), mp.mpf(b))) if b < 1e15 else
                         float(mp.mpf(b) ** (1 - mp.mpf(a)) / (mp.mpf(a) - 1))
                         for a, b in zip(map(float, s), map(float, q), strict=True)])  # fmt: skip
    got = call("zeta", s, q)
    assert (abs(got - true) < 1e-12 * abs(true) + 1e-300).all(), [
        *zip(s, q, got, true, strict=True)
    ]


def test_the_normal_distribution_and_its_inverse(call: Any) -> None:
    p = np.concatenate([np.linspace(0.01, 0.99, 60), 10.0 ** -np.linspace(1, 300, 60)])
    with mp.workdps(40):
        for each, x in zip(p, call("ndtri", p), strict=True):
            slope = mp.npdf(mp.mpf(float(x)))
            off = (mp.ncdf(mp.mpf(float(x))) - mp.mpf(float(each))) / slope
            assert abs(off) < 4e-15 * max(1, abs(x))


@pytest.mark.parametrize("name", [name for names in SPECIAL for name in names])
def test_ends(call: Any, name: str) -> None:
    """Infinities, NaN, poles and what lies outside of the domain, as torch; it is 1e-8 off."""
    args = [np.array(EDGES)]
    if name in SPECIAL[1]:
        args = [a.ravel() for a in np.meshgrid(EDGES, EDGES)]
    if "polynomial" in name:
        args = [a[np.isfinite(args[1]) & ~np.isnan(args[0])] for a in args]
    if name == "zeta":
        args = [a[~np.isneginf(args[1]) & ~np.isnan(args[0])] for a in args]
    if name.startswith("gamma"):
        args = [a[~np.isnan(args[0]) & ~np.isnan(args[1])] for a in args]
    got = call(name, *args)
    wanted = getattr(torch.special, name)(*map(torch.tensor, args)).numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
