"""weft_vector.h against numpy and torch, at several widths and instruction sets."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.runtime.vector_source import (
    BINARY,
    BY_TORCH,
    COMPARES,
    FLOAT_UNARY,
    FLOATS,
    FOLDS,
    INTEGER_BINARY,
    INTEGERS,
    LANES_PER_CALL,
    NUMBERS,
    NUMPY,
    UNARY,
    Source,
)

RUNTIME = Path(__file__).parents[2] / "weft" / "runtime"
FLAGS = (
    "-std=gnu11 -fno-math-errno -fno-trapping-math -ffp-contract=off -fwrapv -Wno-psabi "
    "-shared -fPIC -Wall -Werror"
)
MACHINES = {"native": "-march=native", "avx2": "-march=native -mno-avx512f", "plain": "-mno-avx"}
BUILDS = [("native", 1), ("native", 8), ("native", 16), ("native", 64), ("avx2", 16), ("plain", 8)]


class Built:
    def __init__(self, library: ctypes.CDLL, lanes: int) -> None:
        self.library, self.lanes = library, lanes

    def __call__(self, name: str, *inputs: np.ndarray, out: type) -> np.ndarray:
        n = len(inputs[0])
        padded = [np.concatenate([a, np.ones(-n % LANES_PER_CALL, a.dtype)]) for a in inputs]
        q = np.zeros(len(padded[0]), out)
        arrays = [a.ctypes.data_as(ctypes.c_void_p) for a in (*padded, q)]
        getattr(self.library, f"do_{name}")(*arrays, ctypes.c_int64(len(q)))
        return q[:n]

    def once(self, name: str, p: int, q: int, n: int = 0) -> None:
        getattr(self.library, f"do_{name}")(
            ctypes.c_void_p(p), ctypes.c_void_p(q), ctypes.c_int64(n)
        )


@pytest.fixture(scope="module", params=BUILDS, ids=lambda b: f"{b[0]}-x{b[1]}")
def built(request, tmp_path_factory):
    machine, lanes = request.param
    folder = tmp_path_factory.mktemp("vector")
    (folder / "v.c").write_text(Source(lanes).text)
    # -O1 compiles the 400 functions in half the time; the widths emitted code uses get its own -O3
    level = "-O3" if (machine, lanes) == ("native", 16) else "-O1"
    command = f"gcc {FLAGS} {level} {MACHINES[machine]} -I{RUNTIME} v.c -o v.so -lm"
    subprocess.run(command.split(), cwd=folder, check=True)
    return Built(ctypes.CDLL(str(folder / "v.so")), lanes)


SPECIAL = np.array(
    "0 -0.0 inf -inf nan 0.5 1.5 2.5 -0.5 -1.5 -2.5 1e-40 3e9 -3e9 1e30".split(), np.float64
)


def values(d: str, seed: int, nonzero: bool = False, special: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if d == "bool":
        return rng.integers(0, 2, 1000).astype(np.bool_)
    if d in FLOATS:
        tail = np.repeat(SPECIAL, len(SPECIAL)) if seed % 2 else np.tile(SPECIAL, len(SPECIAL))
        x = np.concatenate([rng.normal(size=500) * 100, tail if special else []])
        return x.astype(NUMPY[d])
    limits = np.iinfo(NUMPY[d])
    x = rng.integers(limits.min, limits.max, 1000, dtype=NUMPY[d], endpoint=True)
    x[::3] = x[::3] % 20
    x[:6:2], x[1:6:2] = limits.min, limits.max
    return np.where(x == 0, NUMPY[d](3), x) if nonzero else x


def same(y: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(y, expected.astype(y.dtype))


@pytest.mark.parametrize("d", NUMBERS)
@np.errstate(all="ignore")
def test_arithmetic(built, d):
    a, b, t = values(d, 0), values(d, 1), NUMPY[d]
    for op, function in {**UNARY, **(FLOAT_UNARY if d in FLOATS else {})}.items():
        same(built(f"{op}_{d}", a, out=t), function(a))
    nonzero = values(d, 1, nonzero=True)
    for op, function in BINARY.items():
        same(built(f"{op}_{d}", a, nonzero, out=t), function(a, nonzero))
    for op, function in BY_TORCH.items():
        expected = function(torch.from_numpy(a), torch.from_numpy(nonzero)).numpy()
        same(built(f"{op}_{d}", a, nonzero, out=t), expected)
    for op, function in COMPARES.items():
        same(built(f"{op}_{d}", a, b, out=np.bool_), function(a, b))
    m = np.resize(values("bool", 2), len(a))
    same(built(f"select_{d}", m, a, b, out=t), np.where(m, a, b))
    if d in FLOATS:
        same(built(f"div_{d}", a, b, out=t), a / b)
        same(np.signbit(built(f"copysign_{d}", a, b, out=t)), np.signbit(b))
        return
    truncated = torch.div(torch.from_numpy(a), torch.from_numpy(nonzero), rounding_mode="trunc")
    same(built(f"div_{d}", a, nonzero, out=t), truncated.numpy())
    for op in ("div", "fmod", "floordiv", "floormod"):
        built(f"{op}_{d}", a, np.zeros_like(a), out=t)  # must not crash
    for op, function in INTEGER_BINARY.items():
        same(built(f"{op}_{d}", a, b, out=t), function(a, b))
    same(built(f"not_{d}", a, out=t), ~a)
    bits = a.dtype.itemsize * 8
    shift = (np.arange(len(a)) % bits).astype(t)
    same(built(f"shl_{d}", a, shift, out=t), a << shift)
    same(built(f"shr_{d}", a, shift, out=t), a >> shift)
    same(built(f"shl_{d}", a, np.full_like(a, bits), out=t), a * 0)
    same(built(f"shr_{d}", a, np.full_like(a, bits), out=t), np.where(a < 0, -1, 0))


def test_bool(built):
    a, b = values("bool", 0), values("bool", 1)
    functions = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, **COMPARES}
    for op, function in functions.items():
        same(built(f"{op}_bool", a, b, out=np.bool_), function(a, b))
    for rows in (np.ones(640, np.bool_), np.zeros(640, np.bool_), np.arange(640) % 65 != 0):
        chunks = rows.reshape(-1, built.lanes)
        same(built("fold_and_bool", rows, out=np.bool_)[: len(chunks)], chunks.all(1))
        same(built("fold_or_bool", ~rows, out=np.bool_)[: len(chunks)], (~chunks).any(1))
    odd_bytes = np.array([0, 1, 2, 255] * 16, np.uint8)  # a bool from foreign memory
    same(built("cast_bool_u8", odd_bytes, out=np.uint8), odd_bytes != 0)


@pytest.mark.parametrize("d", NUMBERS)
@np.errstate(all="ignore")
def test_folds(built, d):
    x, lanes, t = values(d, 4, special=False), built.lanes, NUMPY[d]
    x = x[: len(x) // 64 * 64]
    if d in FLOATS:
        x = x / 64
        x[3], x[130], x[200] = np.nan, np.inf, -np.inf
    chunks = x.reshape(-1, lanes)
    for op, function in FOLDS.items():
        y = built(f"{op}_{d}", x, out=t)[: len(chunks)]
        accumulate = {} if op in ("fold_max", "fold_min") else {"dtype": t}
        expected = function(chunks, axis=1, **accumulate)
        np.testing.assert_allclose(y, expected, rtol=2e-5 if d == "f32" else 1e-12, atol=1e-4)


@pytest.mark.parametrize("a", NUMPY)
@np.errstate(all="ignore")
def test_casts(built, a):
    x = values(a, 5)
    for b, t in NUMPY.items():
        inside = x
        if a in FLOATS and b in INTEGERS:  # elsewhere C leaves the result open
            limits = np.iinfo(t)
            inside = x[(x > limits.min) & (x < float(limits.max))]
            assert len(inside) > 20
        same(built(f"cast_{a}_{b}", inside, out=t), inside.astype(t))


@pytest.mark.parametrize("d,t", [("f16", torch.float16), ("bf16", torch.bfloat16)])
def test_sixteen_bit_floats(built, d, t):
    every = np.arange(65536, dtype=np.uint16)
    expected = torch.from_numpy(every).view(t).float().numpy()
    wide = built(f"widen_{d}", every, out=np.float32)
    same(wide, expected)
    same(np.signbit(wide), np.signbit(expected))
    # every value, every midpoint, and both neighbours of each
    finite = expected[np.isfinite(expected)].astype(np.float64)
    middle = ((finite[:-1] + finite[1:]) / 2).astype(np.float32)
    x = np.concatenate([expected, middle])
    up, down = (np.nextafter(x[~np.isnan(x)], np.float32(to)) for to in (np.inf, -np.inf))
    edge = np.array([65504, 65519.996, 65520, 3.4e38, 1e-45, 3e-8, 2.9e-8], np.float32)
    x = np.concatenate([x, up, down, edge, -edge])
    rounded = torch.from_numpy(x).to(t)
    y = built(f"narrow_{d}", x, out=np.uint16)
    nan = np.isnan(x)
    same(y[~nan], rounded.view(torch.uint16).numpy()[~nan])
    assert torch.from_numpy(y[nan]).view(t).isnan().all()
    same(built(f"round_{d}_f32", x, out=np.float32), rounded.float().numpy())


EIGHT = [("f8e4m3fn", torch.float8_e4m3fn), ("f8e5m2", torch.float8_e5m2)]


@pytest.mark.parametrize("d,t", EIGHT)
def test_eight_bit_floats(built, d, t):
    """All codes; every f16 and bf16, midpoint and neighbour of each, and what is out of range."""
    every = np.arange(256, dtype=np.uint8)
    expected = torch.from_numpy(every).view(t).float().numpy()
    wide = built(f"widen_{d}", every, out=np.float32)
    same(wide, expected)
    same(np.signbit(wide), np.signbit(expected))
    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    finite = np.sort(expected[np.isfinite(expected)].astype(np.float64))
    middle = ((finite[:-1] + finite[1:]) / 2).astype(np.float32)
    up, down = (np.nextafter(middle, np.float32(to)) for to in (np.inf, -np.inf))
    edge = np.array([464, 480, 61439.996, 61440, 3.4e38, 1e-45, np.inf, np.nan], np.float32)
    halves = [bits.view(dtype).float().numpy() for dtype in (torch.float16, torch.bfloat16)]
    x = np.concatenate([*halves, expected, middle, up, down, edge, -edge])
    rounded = torch.from_numpy(x).to(t)
    y, nan = built(f"narrow_{d}", x, out=np.uint8), np.isnan(x)
    same(y[~nan], rounded.view(torch.uint8).numpy()[~nan])
    assert torch.from_numpy(y[nan]).view(t).isnan().all()
    same(built(f"round_{d}_f32", x, out=np.float32), rounded.float().numpy())


@np.errstate(all="ignore")
def test_pairs_of_bf16(built):
    a, b, c, d = (torch.from_numpy(values("f32", seed)).bfloat16() for seed in range(4))
    x, y = (built("pack_bf16_f32", *(t.view(torch.uint16).numpy() for t in pair), out=np.int32)
            for pair in ((a, b), (c, d)))  # fmt: skip
    words = torch.from_numpy(x).view(torch.bfloat16).view(-1, 2)
    torch.testing.assert_close(words, torch.stack((a, b), 1), rtol=0, atol=0, equal_nan=True)
    a, b, c, d = (t.float().numpy() for t in (a, b, c, d))
    dot, unit = a * c + b * d, 2.0**-22 * (abs(a * c) + abs(b * d) + abs(a) + 1)
    near = {"rtol": 0, "atol": unit, "equal_nan": True}
    assert np.isclose(built("dot_bf16_i32", x, y, out=np.float32), dot, **near).all()
    assert np.isclose(built("add_dot_bf16_i32", a, x, y, out=np.float32), a + dot, **near).all()


def test_words_of_bytes(built):
    a, u, s = (values("i32", seed) for seed in range(3))
    bytes_ = [x.view(np.int8 if i else np.uint8).reshape(-1, 4) for i, x in enumerate((u, s))]
    dot = (bytes_[0].astype(np.int32) * bytes_[1]).sum(-1, dtype=np.int32)
    same(built("dot_bytes_i32", u, s, out=np.int32), dot)
    same(built("dot_turned_i32", s, u, out=np.int32), dot)
    same(built("add_dot_bytes_i32", a, u, s, out=np.int32), a + dot)
    same(built("add_dot_turned_i32", a, s, u, out=np.int32), a + dot)
    for d, four in zip(("u8", "i8"), bytes_, strict=True):
        parts = (np.ascontiguousarray(four[:, i]) for i in range(4))
        same(built(f"pack_bytes_{d}", *parts, out=np.int32), four.copy().view(np.int32)[:, 0])


@pytest.fixture(scope="module")
def guarded():
    """Two buffers, each ending where an unreadable page begins: their end addresses."""
    page, libc = mmap.PAGESIZE, ctypes.CDLL(None, use_errno=True)
    memory = mmap.mmap(-1, 4 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for fence in (base + page, base + 3 * page):
        assert libc.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 0) == 0
    yield base + page, base + 3 * page
    for fence in (base + page, base + 3 * page):
        libc.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 3)


@pytest.mark.parametrize("d", [*NUMPY, "f16"])
def test_partial_memory_never_touches_beyond(built, guarded, d):
    t = np.dtype(NUMPY.get(d, np.uint16))
    for n in range(built.lanes + 1):
        p, q = (end - n * t.itemsize for end in guarded)
        x = (np.arange(n) % 100 + 1).astype(t)
        ctypes.memmove(p, x.ctypes.data, x.nbytes)
        before = q - 16
        ctypes.memset(before, 0x5A, 16 + x.nbytes)
        built.once(f"part_{d}", p, q, n)
        assert ctypes.string_at(q, x.nbytes) == x.tobytes()
        assert ctypes.string_at(before, 16) == b"\x5a" * 16
        for name in ("even_n", "even_where"):  # the last of n is the last before the guard
            ends = guarded[0] - max(2 * n - 1, 0) * t.itemsize
            built.once(f"{name}_{d}", ends, guarded[1] - built.lanes * t.itemsize, n)
        ends = guarded[0] - (2 * built.lanes - 1) * t.itemsize
        built.once(f"even_{d}", ends, guarded[1] - built.lanes * t.itemsize, n)


@pytest.mark.parametrize("d", [*NUMPY, "f16"])
def test_memory(built, d):
    lanes, t = built.lanes, NUMPY.get(d, np.uint16)
    p = (np.arange(4 * lanes + 64) * 7 % 100).astype(t)

    def result(name: str, n: int = 0, offset: int = 0) -> np.ndarray:
        raw = np.zeros(4 * lanes + 200, t)
        skip = (-raw.ctypes.data // raw.itemsize) % (64 // raw.itemsize) + offset
        q = raw[skip:]
        built.once(f"{name}_{d}", p.ctypes.data, q.ctypes.data, n)
        return q[: 3 * lanes + 8].copy()

    def expected(places: slice, content: np.ndarray) -> np.ndarray:
        q = np.zeros(3 * lanes + 8, t)
        q[places] = content
        return q

    n = lanes // 2
    for offset in (0, 1):  # aligned, and not
        kept = [("kept", 0)] if d in NUMBERS else []
        for name, when in (("move", 0), ("ahead", 0), *kept, ("move_if", 0), ("move_if", 1)):
            same(result(name, when, offset), expected(slice(lanes), p[:lanes]))
    same(result("gather"), expected(slice(lanes), p[:lanes][::-1]))
    same(result("gather_near"), expected(slice(lanes), p[:lanes][::-1]))
    same(result("gather_ahead"), expected(slice(lanes), p[:lanes][::-1]))
    same(result("gather_n", n), expected(slice(n), p[: 2 * n : 2]))
    same(result("scatter"), expected(slice(0, 3 * lanes, 3), p[:lanes]))
    same(result("scatter_n", n), expected(slice(0, 3 * n, 3), p[:n]))
    same(result("column"), expected(slice(0, 2 * lanes, 2), p[: 3 * lanes : 3]))
    same(result("column_n", n), expected(slice(0, 2 * n, 2), p[: 3 * n : 3]))
    same(result("even"), expected(slice(lanes), p[: 2 * lanes : 2]))
    for name in ("even_n", "even_where", "gather_where"):
        same(result(name, n), expected(slice(n), p[: 2 * n : 2]))
    same(result("part_where", n), expected(slice(n), p[:n]))


def test_iota(built):
    q = np.zeros(built.lanes, np.int32)
    built.library.iota(ctypes.c_void_p(q.ctypes.data), ctypes.c_int64(5))
    same(q, np.arange(5, 5 + built.lanes))
