"""Kernel programs: vector accesses, tails, shuffles, and what the tile level lowers to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.nest.build import (
    a0,
    a1,
    add,
    b0,
    buffer,
    c,
    flat,
    fold,
    least,
    loop,
    mul,
    program,
    reduce,
    sub,
    tiled_linear,
)
from weft.core.errors import VerifyError
from weft.core.node import Node, make
from weft.driver import compile_text
from weft.interpret.kernels import run
from weft.kernel.ops import (
    Extract,
    Shuffle,
    VectorLoad,
    VectorStore,
    lanes_of,
)
from weft.kernel.verify import verify
from weft.scalar.monoid import MAX, SUM
from weft.scalar.nest import Fold, Program, Store, Update
from weft.scalar.ops import apply
from weft.text import parse_program
from weft.tile.lower.kernels import lower

rng = np.random.default_rng(0)
L = 4


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def horizontal(s: Fold, carrier: Node) -> Node:
    """The lanes of a vector carrier combined into lane 0."""
    distance = s.lanes // 2
    while distance:
        (carrier,) = s.monoid.combine((carrier,), (make(Shuffle(distance), carrier),))
        distance //= 2
    return make(Extract(0), carrier)


def doubled(n: int) -> Program:
    """y = 2 x in vectors of 4, the tail counted."""
    x, y = buffer("x", n), buffer("y", n)
    count = least(c(L), sub(c(n), b0))
    value = mul(make(VectorLoad(x, L, counted=True), b0, count), c(2.0))
    body = loop(b0, 0, n, VectorStore(y, b0, value, L, count=count), step=L, bind="parallel")
    return program(body, (x,), (y,), level="kernel")


@pytest.mark.parametrize("n", [1, 4, 7, 16])
def test_counted_tail(n: int) -> None:
    p, x = doubled(n), normal(n)
    verify(p)
    assert (run(p, [x])[0] == 2 * x).all()


@pytest.mark.parametrize("monoid", [SUM, MAX], ids=str)
def test_vector_accumulators(monoid: object) -> None:
    """A row's sum: vectors of partial sums, folded across lanes by shuffles."""
    x, y = buffer("x", 3, 8), buffer("y", 3)
    s = fold("s", monoid, lanes=L)  # type: ignore[arg-type]
    value = make(VectorLoad(flat(x), L), add(mul(a0, c(8)), a1))
    inner = reduce(a1, 0, 8, Update(s, (value,)), folds=(s,), step=L)
    body = loop(a0, 0, 3, inner, Store(y, (a0,), horizontal(s, s.accs[0])))
    p = program(body, (x,), (y,), level="kernel")
    verify(p)
    given = normal(3, 8)
    np.testing.assert_allclose(run(p, [given])[0], monoid.reference(given, (1,))[:, 0], rtol=1e-5)  # type: ignore[attr-defined]


def test_strides_gathers_and_masks() -> None:
    x, y, z, w = buffer("x", 16), buffer("y", 16), buffer("z", 4), buffer("w", 4)
    column = make(VectorLoad(x, L, stride=4), c(1))  # 1, 5, 9, 13
    index = sub(c(15), lanes_of(L))
    even = apply("eq", apply("floormod", lanes_of(L), c(2)), c(0))
    gathered = make(VectorLoad(x, L, 0, masked=True), index, even, c(-1.0))
    partly = make(VectorLoad(x, L, 2, masked=True), c(10), apply("lt", lanes_of(L), c(3)), c(0.5))
    body = (
        loop(a0, 0, 16, Store(y, (a0,), c(0.0))),
        VectorStore(y, c(2), column, L, stride=4),
        VectorStore(z, sub(c(3), lanes_of(L)), gathered, L, 0),
        VectorStore(w, c(0), c(9.0), L, mask=apply("not", even)),
        VectorStore(w, c(0), partly, L, mask=even),
    )
    p = program(body, (x,), (y, z, w), level="kernel")
    verify(p)
    y_, z_, w_ = run(p, [np.arange(16, dtype="f")])
    assert y_.tolist() == [0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 13, 0]
    assert z_.tolist() == [-1, 13, -1, 15]
    assert w_.tolist() == [10, 9, 14, 9]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "bool", "i64"])
def test_masked_stores_in_c(dtype: str) -> None:
    """The lanes left out keep what they held: contiguous, apart, at indices, and only the first."""
    text = f"""
program kernel main
input x: {dtype}[8]

kernel k(x: {dtype}[8]) -> y: {dtype}[32]
in0 = load{{8}} x[0]
v0 = lanes{{8}}
v1 = lt(v0, 3)
for a0 in 0..4:  # free serial
    y{{8}}[a0 * 8] = in0
v2 = shuffle{{1}}(in0)
y{{8}}[0] = v2 if v1
y{{8, stride 2}}[8] = v2 if v1
v3 = add(v0, 24)
scatter y{{8}}[v3] = v2 count 2 if v1

output y
"""
    compiled = compile_text(text)
    x = torch.arange(8).to({"bool": torch.bool, "i64": torch.int64}.get(dtype, torch.float32))
    x = x.bfloat16() if dtype == "bf16" else x
    (expected,) = compiled.interpret(x)
    assert compiled(x).double().tolist() == expected.astype(float).tolist()


def test_lanes_out_of_bounds() -> None:
    x, y = buffer("x", 6), buffer("y", 8)
    store = VectorStore(y, b0, make(VectorLoad(x, L), b0), L)
    p = program(loop(b0, 0, 8, store, step=L), (x,), (y,), level="kernel")
    with pytest.raises(VerifyError, match=r"load of x\[b0\] reaches 7 along axis 0, x has 6 elem"):
        verify(p)
    with pytest.raises(VerifyError, match=r"load of x\[6\] is out of bounds.* where b0=4"):
        run(p, [normal(6)])


@pytest.mark.parametrize("shape", [(32, 48, 20), (19, 37, 5), (1, 3, 2)])
def test_tiles_lower_to_vectors(shape: tuple[int, int, int]) -> None:
    """Tails peeled, rows jammed, columns in lanes: the same product."""
    m, n, k = shape
    p = lower(tiled_linear(m, n, k, by=8))
    verify(p)
    x, w = normal(m, k), normal(k, n)
    np.testing.assert_allclose(run(p, [x, w])[0], x @ w, atol=2e-5)


def part(**changes: object) -> Program:
    """A valid store of a vector, changed in one place."""
    x, y = buffer("x", 8), buffer("y", 8)
    default = {"buffer": y, "index": c(0), "value": make(VectorLoad(x, L), c(0)), "lanes": L}
    fill = VectorStore(y, c(0), c(0.0), 8)
    return program((fill, VectorStore(**default | changes)), (x,), (y,), level="kernel")  # type: ignore[arg-type]


x8, y8 = buffer("x", 8), buffer("y", 8)
v8 = make(VectorLoad(x8, 8), c(0))
INVALID = {
    "a value of 8 lanes is stored in 4": part(value=v8),
    "a condition must be bool x4, is boolx8": part(mask=apply("lt", lanes_of(8), c(3))),
    "a condition must be bool x1, is boolx8": part(when=apply("lt", lanes_of(8), c(3))),
    "reaches 8 along axis 0, y has 8 elements there": part(index=c(5)),
    r"reaches -1 along axis 0": part(index=c(-1)),
    "reaches 9 along axis 0": part(index=c(4), count=c(6)),
    "shuffle by 4 of 4 lanes": part(value=make(Shuffle(4), make(VectorLoad(x8, L), c(0)))),
    "lane 9 of 8": part(value=make(Extract(9), v8)),
    "the index of a gather of 4 has 8 lanes": part(value=make(VectorLoad(x8, L, 0), lanes_of(8))),
    "bind 'vector4' is not one of the kernel level": program(
        loop(a0, 0, 8, Store(y8, (a0,), c(0.0)), bind="vector4"), (), (y8,), level="kernel"
    ),
    r"y is f32\[2,4\], a kernel sees flat buffers": Program(
        "kernel",
        "k",
        (),
        (buffer("y", 2, 4),),
        program(
            loop(a0, 0, 2, loop(a1, 0, 4, Store(buffer("y", 2, 4), (a0, a1), c(0.0)))),
            (),
            (buffer("y", 2, 4),),
        ).steps,
    ),
    "8 lanes go to 4": program(
        (reduce(a0, 0, 1, Update(fold("s", lanes=L), (v8,)), folds=(fold("s", lanes=L),)),),
        (x8,),
        (),
        level="kernel",
    ),
    "a value of i64 goes to y, which is f32": part(value=lanes_of(L)),
}


@pytest.mark.parametrize("sentence", INVALID)
def test_invalid(sentence: str) -> None:
    with pytest.raises(VerifyError, match=sentence):
        verify(INVALID[sentence])


def test_the_valid_form_of_the_invalid_ones() -> None:
    verify(part())


BEFORE = """
program kernel before
input x: f32[4]

kernel y(x: f32[4]) -> y: f32[4]
for b0 in 0..1:  # free grid
    local s: f32[1]
    s[0] = 0.0
    for a0 in 0..4:  # scan
        in0 = load s[0]
        y[a0] = in0
        s[0] = add(in0, load x[a0])

output y
"""


def test_an_iteration_reads_what_the_one_before_has_stored() -> None:
    p, x = parse_program(BEFORE.lstrip(), "before"), normal(4)
    verify(p)
    np.testing.assert_allclose(run(p, [x])[0], np.cumsum(x) - x, rtol=1e-5, atol=1e-6)


SIBLINGS = """
program kernel siblings
input x: f32[5]

kernel y(x: f32[5]) -> y: f32[1]
for c0 in 0..1:  # reduce serial
    for b0 in 0..2:  # reduce serial
        in0 = load x[b0]
        acc0 <- fma(in0, in0, acc0)
        v0 = multiply(in0, in0)
        acc1 <- add(acc1, v0)
    for b0 in 2..5:  # reduce serial
        in1 = load x[b0]
        acc0 <- fma(in1, in1, acc0)
        v1 = multiply(in1, in1)
        acc1 <- add(acc1, v1)
y[0] = add(acc0, acc1)

output y
"""


def test_loops_over_one_axis_have_values_of_their_own() -> None:
    """Both halves are the same terms; one computed in the first says nothing about the second."""
    p, x = parse_program(SIBLINGS.lstrip(), "siblings"), normal(5)
    verify(p)
    np.testing.assert_allclose(run(p, [x])[0], [2 * np.sum(x * x)], rtol=1e-5)
