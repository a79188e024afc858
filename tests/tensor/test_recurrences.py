"""Recurrences: what leaves the loop, kernels that repeat at every level, and what is unrolled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from weft.core.errors import ParseError, UnsupportedOpError, VerifyError, WeftError
from weft.driver import compile_text
from weft.interpret import kernels, nests
from weft.interpret.tensors import evaluate
from weft.levels import VERIFY
from weft.options import Options
from weft.tensor.recurrence import Recurrence
from weft.tensor.recurrences import split_recurrences
from weft.text import parse_program, print_program

RNN = """program tensor rnn
input x: f32[5,3,4]
input h0: f32[3,6]
input u: f32[6,4]
input w: f32[6,6]
r = recurrence{5, carried=1, sliced=1, backward=false}(h0, x, u, w): (f32[3,6], f32[5,3,6])
    input h: f32[3,6]
    input x_t: f32[3,4]
    input u: f32[6,4]
    input w: f32[6,6]
    v0 = view{[3,6,4] -> (i0, i2)}(x_t): f32[3,6,4]
    v1 = view{[3,6,4] -> (i1, i2)}(u): f32[3,6,4]
    v2 = map{multiply}(v0, v1): f32[3,6,4]
    v3 = reduce{sum, axes=(2,)}(v2): f32[3,6,1]
    a = view{[3,6] -> (i0, i1, 0)}(v3): f32[3,6]
    v4 = view{[3,6,6] -> (i0, i2)}(h): f32[3,6,6]
    v5 = view{[3,6,6] -> (i1, i2)}(w): f32[3,6,6]
    v6 = map{multiply}(v4, v5): f32[3,6,6]
    v7 = reduce{sum, axes=(2,)}(v6): f32[3,6,1]
    b = view{[3,6] -> (i0, i1, 0)}(v7): f32[3,6]
    c = map{add}(a, b): f32[3,6]
    n = map{tanh}(c): f32[3,6]
    output n, n
last = part{0}(r): f32[3,6]
hs = part{1}(r): f32[5,3,6]
output last, hs
"""
# What is carried alone: two buffers take turns.
LAST = RNN.replace("hs = part{1}(r): f32[5,3,6]\n", "").replace("output last, hs", "output last")
# A sum that the loop carries, and what each row of it gives, of all of time.
SUMS = """program tensor sums
input x: f32[7,3,4]
input h0: f32[3,4]
input s0: f32[4,4]
r = recurrence{7, carried=2, sliced=1, backward=true}(h0, s0, x): (f32[3,4], f32[4,4], f32[7,3,1])
    input h: f32[3,4]
    input s: f32[4,4]
    input x_t: f32[3,4]
    t = map{tanh}(h): f32[3,4]
    n = map{add}(t, x_t): f32[3,4]
    v0 = view{[4,4,3] -> (i2, i0)}(t): f32[4,4,3]
    v1 = view{[4,4,3] -> (i2, i1)}(x_t): f32[4,4,3]
    v2 = map{multiply}(v0, v1): f32[4,4,3]
    v3 = reduce{sum, axes=(2,)}(v2): f32[4,4,1]
    v4 = view{[4,4] -> (i0, i1, 0)}(v3): f32[4,4]
    m = map{add}(s, v4): f32[4,4]
    y = reduce{sum, axes=(1,)}(t): f32[3,1]
    output n, m, y
last = part{0}(r): f32[3,4]
total = part{1}(r): f32[4,4]
ys = part{2}(r): f32[7,3,1]
output last, total, ys
"""
PROGRAMS = {
    "forward": RNN,
    "backward": RNN.replace("backward=false", "backward=true"),
    "last": LAST,
    "sums": SUMS,
    "once": RNN.replace("[5,3", "[1,3").replace("{5,", "{1,"),
}


def inputs(program: Any) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.standard_normal(n.type.shape).astype(np.float32) for n in program.inputs]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_level_agrees(name: str) -> None:
    """The tensor level's interpreter, those of repeated kernels, the C, and what was split."""
    graph = parse_program(PROGRAMS[name])
    assert print_program(graph) == PROGRAMS[name]
    VERIFY["tensor"](graph)
    given = inputs(graph)
    wanted = evaluate(graph, given, widen=True)
    split = split_recurrences(graph, repeats=True)
    VERIFY["tensor"](split)
    for text in (PROGRAMS[name], print_program(split)):
        program = compile_text(text)
        for level in ("loop", "tile", "kernel"):
            shown = program.ir(level)
            read = parse_program(shown)
            assert print_program(read) == shown
            VERIFY[level](read)
            run: Callable[..., Any] = kernels.run if level == "kernel" else nests.run
            check(run(read, given), wanted)
        found = program(*map(torch.from_numpy, given))
        check([t.numpy() for t in (found if isinstance(found, tuple | list) else [found])], wanted)


def check(found: list[Any], wanted: list[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.reshape(a, b.shape), b, rtol=2e-5, atol=2e-6)


def loops(text: str) -> list[Recurrence]:
    split = split_recurrences(parse_program(text), repeats=True)
    return [n.op for n in split.nodes() if isinstance(n.op, Recurrence)]


def test_products_of_slices_are_made_before_the_loop() -> None:
    (op,) = loops(RNN)
    assert op.body.nodes() and [n.type.shape for n in op.body.inputs] == [(3, 6), (3, 6, 1), (6, 6)]


def test_sums_are_made_after_the_loop() -> None:
    (op,) = loops(SUMS)
    assert op.carried == 1 and not any(n.op.name == "reduce" for n in op.body.nodes())


def test_a_loop_that_carries_nothing_is_none() -> None:
    lines = [line for line in SUMS.split("\n") if " n = " not in line and "input h" not in line]
    alone = "\n".join(lines).replace("map{tanh}(h)", "map{tanh}(x_t)").replace("n, m, y", "m, y")
    alone = alone.replace("carried=2", "carried=1").replace("(h0, s0, x)", "(s0, x)")
    alone = alone.replace("): (f32[3,4], ", "): (").replace("last = part{0}(r): f32[3,4]\n", "")
    alone = alone.replace("part{1}", "part{0}").replace("part{2}", "part{1}").replace("last, ", "")
    assert not loops(alone)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gpus_unroll(name: str) -> None:
    graph = parse_program(PROGRAMS[name])
    given = inputs(graph)
    program = compile_text(PROGRAMS[name], Options(target="cuda:sm_80", simulate=True))
    found = program(*map(torch.from_numpy, given))
    found = found if isinstance(found, tuple | list) else [found]
    check([t.numpy() for t in found], evaluate(graph, given, widen=True))
    assert "repeat" not in program.ir("loop")


def test_gpus_refuse_what_is_too_long() -> None:
    long = LAST.replace("[5,3", "[200,3").replace("{5,", "{200,")
    with pytest.raises(UnsupportedOpError, match="of 200 steps, of which 128 at most are unrolled"):
        compile_text(long, Options(target="cuda:sm_80", simulate=True))
    with pytest.raises(WeftError, match="repeat r: kernels are repeated on CPUs alone"):
        compile_text(compile_text(LAST).ir("loop"), Options(target="cuda:sm_80", simulate=True))


WRONG = {
    "operand 1 is": RNN.replace("(h0, x, u, w)", "(h0, h0, u, w)"),
    "is carried on as": RNN.replace("    output n, n", "    output v3, n"),
    "0 carried tensors": RNN.replace("{5, carried=1", "{0, carried=0"),
    "reads index": RNN.replace("view{[3,6,4] -> (i0, i2)}", "view{[3,6,4] -> (i0, i2 + 1)}"),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_invalid_recurrences(sentence: str) -> None:
    with pytest.raises(VerifyError, match=sentence):
        VERIFY["tensor"](parse_program(WRONG[sentence]))


def test_a_body_stands_under_its_line() -> None:
    with pytest.raises(ParseError, match="needs the lines of its body"):
        parse_program(RNN.replace("    ", ""))
    with pytest.raises(ParseError, match="unexpected indentation"):
        parse_program(RNN.replace("    n = map{tanh}(c)", "        n = map{tanh}(c)"))


def test_invalid_repeats() -> None:
    text = compile_text(LAST).ir("loop")
    for old, new, sentence in (
        ("from 0 last last", "from 0", "writes 0 of 1 slices of last"),
        (" from -1 first h0", " from -1", "reads r_h before it is written"),
        ("slice r_x_t: f32[3,4]", "slice r_x_t: f32[4,3]", r"but f32\[4,3\] before"),
        ("= x: f32[5,3,4] from 0", "= h0: f32[3,6] from 0", "is no slice of h0"),
    ):
        assert old in text, text
        with pytest.raises(VerifyError, match=sentence):
            VERIFY["loop"](parse_program(text.replace(old, new)))
