"""Every scalar function of every dtype it takes, as C: at edges and between them, against NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.test_math import ulps
from tests.sim.test_math import WORDS, functions_of, result_of
from weft.core.types import DType, boolean
from weft.emit.spelling import element, function_name
from weft.emit.terms import Terms
from weft.runtime.compiler import find_compiler
from weft.scalar.ops import CASTS, Function, apply, axis, constant
from weft.scalar.special import SPECIAL

WIDTHS = (1, 4, 8, 16)
# Bounds of the error in ulp, beyond 2; those of libm hold for f64 as well.
ULPS = {"log2": 2.5, "log10": 3, "erfc": 3, "tan": 4, "sinh": 3, "cosh": 3, "asin": 3, "acos": 3}
ULPS |= {"atan": 3, "atan2": 4, "rsqrt": 2, "erf": 3}
CANCEL = {"lgamma", "fma"}  # near their zeros the references are no better
OF_WORDS = {"bits", "float_of"}  # of a word as it is: no wider one has the same
EITHER_ZERO = {"maximum", "minimum", "relu"}
EDGES = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 1.5, 2, -2, 2.5, 3, -3, 10, -10, 88.5]
EDGES += [-87.5, -103.9, 128, -150, 709.5, -745, 1e5, -1e5, 1e15, 0.1, 7.25, -1e-3, 5, -5, 9.5, 26]


def samples(d: DType) -> np.ndarray:
    """The ends of the range, what is near them, and numbers in between."""
    if d is boolean:
        return np.array([False, True])
    if d.is_integer:
        info = np.iinfo(d.numpy)
        ends = [info.min, info.min + 1, info.max, info.max - 1]
        middle = [-100, -13, -8, -3, -2, -1, 0, 1, 2, 3, 5, 7, 8, 20, 63, 100]
        return np.array([n for n in (*ends, *middle) if info.min <= n <= info.max], d.numpy)
    info = np.finfo(d.numpy)
    ends = [info.max, info.tiny, info.smallest_subnormal, info.eps, 1 + info.eps, 1 - info.epsneg]
    ends = [*ends, info.max / 2, info.tiny * 8, info.max**0.5, info.tiny**0.5]
    random = np.random.default_rng(d.bits).normal(size=24) * 10.0 ** np.arange(-12, 12)
    return np.array([*EDGES, *ends, *(-e for e in ends), *random]).astype(d.numpy)


def arguments(function: Function, d: DType) -> list[np.ndarray]:
    """All combinations of samples, to a multiple of the lanes; degrees of polynomials are small."""
    dtypes = [boolean if function.name == "where" and i == 0 else d for i in range(function.arity)]
    values = [samples(dtype) for dtype in dtypes]
    if function.arity > 3 or (function.arity == 3 and d.is_float):
        values = [v[::3] if len(v) > 2 else v for v in values]
    if "polynomial" in function.name:
        values[1] = values[1][~(abs(values[1]) > 100)]
    grid = np.array(list(product(*(range(len(v)) for v in values)))).T
    padded = grid[:, np.arange(-(-grid.shape[1] // 64) * 64) % grid.shape[1]]
    return [v[i] for v, i in zip(values, padded, strict=True)]


def symbol(function: Function, d: DType) -> str:
    return f"do_{function.name}_{d}"


def source(lanes: int) -> str:
    widths = dict.fromkeys((1, lanes))  # as emitted files have
    text = '#include "weft.h"\n'
    text += "".join(f'#define WEFT_LANES {n}\n#include "weft_math.h"\n' for n in widths)
    text += "const weft_table *weft_shared; int weft_threads; _Thread_local int *weft_fault;\n"
    x = f"x{lanes}" if lanes > 1 else ""
    for d in WORDS:
        for function in functions_of(d):
            dtypes = [boolean, d, d] if function.name == "where" else [d] * function.arity
            args = [f"load_{t}{x}(p{i} + i)" for i, t in enumerate(dtypes)]
            call, result = function_name(function, dtypes, lanes, args), result_of(function, d)
            heads = [f"const {element(t)} *p{i}, " for i, t in enumerate(dtypes)]
            head = f"{''.join(heads)}{element(result)} *q, int64_t n"
            loop = f"for (int64_t i = 0; i < n; i += {lanes})"
            text += f"WEFT_EXPORT void {symbol(function, d)}({head}) "
            text += f"{{ {loop} store_{result}{x}(q + i, {call}); }}\n"
    return text


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[int, ctypes.CDLL]:
    compiler, made = find_compiler(), dict[int, ctypes.CDLL]()
    for lanes in WIDTHS:
        folder = tmp_path_factory.mktemp("functions")
        (folder / "f.c").write_text(source(lanes))
        compiler.compile(folder / "f.c", folder / "f.o")
        compiler.link([folder / "f.o"], folder / "f.so")
        made[lanes] = ctypes.CDLL(str(folder / "f.so"))
    return made


def results(
    library: ctypes.CDLL, function: Function, d: DType, args: Sequence[np.ndarray]
) -> np.ndarray:
    got = np.zeros(len(args[0]), result_of(function, d).numpy)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*args, got)]
    getattr(library, symbol(function, d))(*pointers, ctypes.c_int64(len(got)))
    return got


def defined(function: Function, d: DType, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where torch says what the result is, and NumPy says the same."""
    to = function.result
    if d.is_float and function in CASTS.values() and isinstance(to, DType) and to.is_integer:
        info = np.iinfo(to.numpy)
        return (x > float(info.min) - 1) & (x < float(info.max) + (to.bits < 64))
    if function.name in ("shift_left", "shift_right"):
        return (y >= 0) & (y < d.bits)
    if function.name == "power" and d.is_integer:
        return y >= 0
    if function.name in ("floordiv", "floormod", "truncdiv", "fmod") and d.is_integer:
        return y != 0
    return np.ones(len(x), bool)


def reference(function: Function, d: DType, args: list[np.ndarray]) -> np.ndarray:
    """By NumPy, in the next wider precision where there is one."""
    wide = {"f32": np.float64, "f64": np.longdouble}.get(d.name)
    rounds = function in CASTS.values() or "round_" in function.name or function.name in OF_WORDS
    with np.errstate(all="ignore"):
        if wide is None or rounds:
            found = np.asarray(function.evaluate(*args))
            return found.astype(np.float64) if result_of(function, d).is_float else found
        args = [a if a.dtype == np.bool_ else a.astype(wide) for a in args]
        return np.asarray(function.evaluate(*args))


@pytest.mark.parametrize("d", WORDS, ids=str)
def test_any_number_of_lanes(libraries: dict[int, ctypes.CDLL], d: DType) -> None:
    """Gradients compare values that they compute again, in loops of other widths."""
    random = np.random.default_rng(0).normal(size=(4, 512)) * 3
    for function in functions_of(d):
        args = arguments(function, d)
        args = [np.concatenate([a, r.astype(a.dtype)]) for a, r in zip(args, random, strict=False)]
        first, *others = (results(library, function, d, args) for library in libraries.values())
        for other in others:
            np.testing.assert_array_equal(other, first, str(function))


@np.errstate(all="ignore")
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("d", WORDS, ids=str)
def test_every_function(libraries: dict[int, ctypes.CDLL], lanes: int, d: DType) -> None:
    failures: list[str] = []
    special = {name for names in SPECIAL for name in names}  # test_special.py: torch is far off
    for function in functions_of(d):
        if function.name in special:
            continue
        args = arguments(function, d)
        got = results(libraries[lanes], function, d, args)
        where = defined(function, d, args[0], args[-1])
        args, got = [a[where] for a in args], got[where]
        wanted = reference(function, d, args)
        wrong = got != wanted.astype(got.dtype)
        if got.dtype.kind == "f":
            wrong = ulps(got, wanted) > ULPS.get(function.name, 2)
            if function.name in CANCEL:
                size = np.maximum(1, np.max(np.abs(args), 0))
                wrong &= ~(np.abs(got - wanted) < 4 * np.finfo(d.numpy).eps * size)
            if function.name not in EITHER_ZERO:
                wrong |= (np.signbit(got) != np.signbit(wanted)) & ~np.isnan(wanted)
        for i in np.flatnonzero(wrong)[:6]:
            call = f"{function}({', '.join(str(a[i]) for a in args)})"
            failures.append(f"{call} = {got[i]}, not {wanted[i]}")
    assert not failures, "\n".join(failures)


def test_indices_divided_by_powers_of_two_round_down(tmp_path: Path) -> None:
    """In words of C that call nothing, whatever the sign."""
    i, terms, found = axis("i"), Terms(), dict[str, list[int]]()
    terms.names[i], terms.ranges[i] = "i", (-300, 300)
    for name, by in product(("floordiv", "floormod"), (1, 2, 16, 256)):
        spelt = terms.index(apply(name, apply("add", i, constant(3)), constant(by)))
        whole = [n // by if name == "floordiv" else n % by for n in range(-297, 304)]
        assert "floor" not in spelt
        found[spelt] = whole
    head = '__attribute__((visibility("default"))) long f'
    bodies = (f"{head}{k}(long i) {{ return 1 + {text}; }}\n" for k, text in enumerate(found))
    (tmp_path / "f.c").write_text("".join(bodies))
    compiler = find_compiler()
    compiler.compile(tmp_path / "f.c", tmp_path / "f.o")
    compiler.link([tmp_path / "f.o"], tmp_path / "f.so")
    library = ctypes.CDLL(str(tmp_path / "f.so"))
    for k, (spelt, whole) in enumerate(found.items()):
        function = library[f"f{k}"]
        function.restype = ctypes.c_long
        got = [function(ctypes.c_long(n)) - 1 for n in range(-300, 301)]
        assert got == whole, spelt
