"""One tiny invalid program for each invariant of loop and tile programs, by its sentence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.nest.build import (
    a0,
    a1,
    add,
    b0,
    buffer,
    c,
    fold,
    least,
    linear_relu,
    load,
    loop,
    masked,
    mul,
    program,
    rms_norm,
    softmax,
    sub,
    tiled_linear,
)
from weft.core.arguments import Arguments
from weft.core.errors import VerifyError
from weft.core.types import TensorType, f32, f64, i64
from weft.interpret.nests import run
from weft.kernel.ops import VectorStore, lanes_of
from weft.loop.verify import verify as verify_loop
from weft.scalar.monoid import WELFORD
from weft.scalar.nest import Buffer, Call, Fold, For, Let, Local, Program, Store, Update
from weft.scalar.ops import apply, cast
from weft.text import parse_program
from weft.tile.verify import verify as verify_tile

x, y, s, t = buffer("x", 4), buffer("y", 4), fold("s"), buffer("t", 4, space="local")
FILL = loop(a0, 0, 4, Store(y, (a0,), c(0.0)))


def of(*body: object, inputs: tuple[Buffer, ...] = (x,), level: str = "loop") -> Program:
    """A program that stores to y, and does what it should not."""
    return program((FILL, *body), inputs, (y,), level)  # type: ignore[arg-type]


def store(value: object, at: object = a1, buffer: Buffer = y, **more: object) -> Store:
    return Store(buffer, (at,), value, **more)  # type: ignore[arg-type]


def over(*body: object, **more: object) -> For:
    return loop(a1, 0, 4, *body, **more)  # type: ignore[arg-type]


def summed(*body: object, folds: tuple[Fold, ...] = (s,), role: str = "reduce") -> For:
    return For(a1, c(0), c(4), body, role=role, folds=folds)  # type: ignore[arg-type]


GOOD = Update(s, (load(x, a1),))
INVALID = {
    "k is a tile program, not a loop program": of(level="tile"),
    "kernel k, for a1: bind 'vector4' is not one of the loop level": of(over(bind="vector4")),
    "role 'sorted' is not one of the loop level": of(For(a1, c(0), c(4), (), role="sorted")),
    "kernel k, VectorStore to y: VectorStore is not a statement of the loop level": of(
        VectorStore(y, c(0), c(0.0), 4)
    ),
    "Let is not a statement": of(Let(c(0.0))),
    "lanes is not a term of the loop level": of(store(c(0.0), lanes_of(4))),
    r"store to y\[a1\]: axis a1 is used outside its loop\n  at model.py line 3": of(store(c(0.0))),
    "for a1: axis a1 is bound again inside its own loop": of(over(over(store(c(0.0))))),
    "x is an input, it cannot be stored to": of(over(store(c(0.0), buffer=x))),
    "z is stored to, but it is no output and no local buffer": of(
        over(store(c(0.0), buffer=buffer("z", 4)))
    ),
    "t is stored to, but": of(over(Local(t)), over(store(c(0.0), buffer=t))),
    "y is loaded, but it is no input": of(over(store(load(y, a1)))),
    "x is declared, but not local": of(Local(x)),
    "x has the name of another buffer": of(Local(replace(x, space="local"))),
    "output y is never stored": program(over(), (x,), (y,)),
    "stores 3 of the 4 elements of output y": program(
        loop(a1, 0, 3, store(c(0.0))), (x,), (y,)
    ),
    "stores 2 of the 4 elements": program(loop(a1, 0, 4, store(c(0.0)), step=2), (x,), (y,)),
    r"store to y\[a1 \+ 1\] reaches 4 along axis 0, y has 4 elements": of(
        over(store(c(0.0), add(a1, c(1))))
    ),
    r"load of x\[subtract\(a1, 1\)\] reaches -1 along axis 0": of(
        over(store(load(x, sub(a1, c(1)))))
    ),
    "a value of i64 goes to y, which is f32": of(over(store(a1))),
    "2 indices, y has rank 1": of(Store(y, (c(0), c(0)), c(0.0))),
    "indices must be i64": of(store(c(0.0), c(0.0))),
    "the mask must be bool": of(over(store(c(0.0), mask=c(1)))),
    "for a1: step 0 is not positive": of(over(step=0)),
    "its bounds must be i64": of(For(a1, c(0.0), c(1.0), ())),
    "a free loop declares a fold": of(For(a1, c(0), c(4), (), folds=(s,))),
    "s is declared twice": of(summed(GOOD), summed(GOOD)),
    r"s is \(f32, f64\), but the carriers of sum are \(f32\)": of(
        summed(folds=(Fold(("s",), s.monoid, (f32, f64)),))
    ),
    "w is .f32., but the carriers of welford": of(
        summed(folds=(Fold(("w",), WELFORD, (f32,)),))
    ),
    "update of s: s is updated outside the loop that declares it": of(summed(GOOD, folds=())),
    "free loop a1 updates s, declared outside it": of(
        For(b0, c(0), c(4), (over(GOOD),), role="reduce", folds=(s,))
    ),
    "2 values, sum takes 1": of(summed(Update(s, (load(x, a1),) * 2))),
    "a value of i64 goes to s, which folds f32": of(summed(Update(s, (a1,)))),
    "s is read, but no loop before here declares it": of(
        summed(GOOD, store(s.accs[0]))
    ),
    "running s is read outside its scan, or before": of(summed(GOOD, store(s.running[0]))),
    "running s is read outside its scan, or before its update": of(
        summed(store(s.running[0]), GOOD, role="scan")
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", INVALID)
def test_invalid_loop_programs(sentence: str) -> None:
    with pytest.raises(VerifyError, match=sentence):
        verify_loop(INVALID[sentence])


def test_invalid_programs() -> None:
    p = of()
    z = buffer("z", 4)
    with pytest.raises(VerifyError, match="no step of k writes its output z"):
        verify_loop(replace(p, outputs=(y, z)))
    with pytest.raises(VerifyError, match="kernel k reads x before any step writes it"):
        verify_loop(replace(p, inputs=()))
    transposed = Buffer("x", TensorType(f32, (4,), (2,)))
    with pytest.raises(VerifyError, match=r"kernel k: x is f32\[4\], but f32\[4\]\{2\} elsewhere"):
        verify_loop(replace(p, inputs=(transposed,)))
    call = Call("aten.relu.default", Arguments("[]"), (z,), (y,))
    with pytest.raises(VerifyError, match=r"call of aten\.relu\.default reads z"):
        verify_loop(replace(p, steps=(call,)))
    kernel = replace(p.kernels[0], inputs=(y,), body=())
    with pytest.raises(VerifyError, match="y is both an input and an output"):
        verify_loop(replace(p, inputs=(y,), steps=(kernel,)))


def blocked(lo: int, end: object, **more: object) -> Program:
    inner = loop(a1, b0, end, store(c(0.0)), **more)  # type: ignore[arg-type]
    return of(loop(b0, lo, 4, inner, step=3), level="tile")


TILES = {
    "bind 'vector' is not one of the tile level": of(over(bind="vector"), level="tile"),
    "a vector2 loop by 1 runs 4 iterations in 2 lanes": of(over(bind="vector2"), level="tile"),
    "for a1: a parallel loop must be free, not reduce": replace(
        of(For(a1, c(0), c(4), (), role="reduce", bind="parallel")), level="tile"
    ),
    "for a1: only a parallel loop has a grain": of(
        For(a1, c(0), c(4), (), bind="serial", grain=c(8)), level="tile"
    ),
    r"a vector4 loop needs a literal extent, or lo\.\.min": blocked(0, c(4), bind="vector4"),
    "a scan cannot run in the lanes": of(
        For(a1, c(0), c(4), (), role="scan", bind="vector4"), level="tile"
    ),
    "a vector loop inside vector loop b0": of(
        loop(b0, 0, 2, loop(a1, 0, 2, bind="vector4"), bind="vector4"), level="tile"
    ),
    "reaches 5 along axis 0, y has 4 elements": blocked(0, add(b0, c(3)), bind="vector4"),
    "reaches 4 along axis 0, y has 4 elements": blocked(0, least(add(b0, c(3)), c(5))),
}


@pytest.mark.parametrize("sentence", TILES)
def test_invalid_tile_programs(sentence: str) -> None:
    with pytest.raises(VerifyError, match=sentence):
        verify_tile(TILES[sentence])


def test_tails_are_proved() -> None:
    verify_tile(blocked(0, least(add(b0, c(3)), c(4)), bind="vector4"))
    at = add(mul(b0, c(3)), a1)
    tail = loop(a1, 0, least(c(3), sub(c(4), mul(b0, c(3)))), Store(y, (at,), c(0.0)))
    verify_tile(program(loop(b0, 0, 2, tail), (), (y,), "tile"))


def test_what_a_condition_guards_or_data_decides_is_left_to_the_interpreter() -> None:
    rows = buffer("rows", 4, dtype=i64)
    inside = apply("ge", a1, c(1))
    guarded = masked(x, (sub(a1, c(1)),), inside, c(0.0))
    gathered = load(x, load(rows, a1))
    verify_loop(of(over(store(add(guarded, gathered))), inputs=(x, rows)))
    verify_loop(of(over(store(c(0.0), add(a1, c(1)), mask=apply("lt", a1, c(3))))))


def test_nothing_runs_in_an_empty_loop() -> None:
    empty = buffer("e", 0)
    body = loop(a1, 0, 0, Store(empty, (a1,), c(0.0)))
    verify_loop(program(body, (), (empty,)))


def test_what_is_not_there_is_not_read() -> None:
    """A buffer without elements, behind a condition that never holds."""
    empty, z = buffer("x", 2, 0), buffer("z", 2)
    value = masked(empty, (a0, c(0)), apply("lt", a0, c(0)), c(-1.0))
    p = program(loop(a0, 0, 2, Store(z, (a0,), value)), (empty,), (z,))
    verify_loop(p)
    assert run(p, [np.zeros((2, 0), "f")])[0].tolist() == [-1, -1]


def test_sibling_loops_may_share_an_axis() -> None:
    verify_loop(of(over(store(c(0.0))), over(store(cast(apply("lt", a1, c(2)), f32)))))


SIBLINGS = """
program tile siblings
input x: f32[37]

kernel y(x: f32[37]) -> (y: f32[5], z: f32[32])
for a0 in 0..5:  # free
    in0 = load x[a0]
    y[a0] = in0
for b0 in 0..32 by 16:  # free
    local s0: f32[16]
    for a0 in b0..b0 + 16:  # free
        in1 = load x[a0]
        s0[a0 - b0] = in1
    for a1 in b0..b0 + 16:  # free
        in2 = load s0[a1 - b0]
        z[a1] = in2

output y, z
"""


def test_a_later_loop_over_the_same_axis_has_its_own_place_and_range() -> None:
    verify_tile(parse_program(SIBLINGS))


@pytest.mark.parametrize("p", [linear_relu(2, 3, 4), rms_norm(2, 8), softmax(2, 4)])
def test_valid(p: Program) -> None:
    verify_loop(p)
    verify_tile(replace(p, level="tile"))
    verify_tile(tiled_linear(19, 37, 5))
