"""One tiny wrong program per error: the sentence, and the line it points at."""

from __future__ import annotations

import pytest

from tests.text.samples import SAMPLES
from weft.core.errors import ParseError, VerifyError, WeftError
from weft.text import parse_program, print_program

TENSOR = "program tensor main\ninput x: f32[2,3]\ninput rows: i64[4]\n{}\noutput x\n"
LOOP = """program loop main
input x: f32[4,8]
kernel k(x: f32[4,8]) -> y: f32[4]
for a0 in 0..4:  # free
    for a1 in 0..8:  # reduce
        in0 = load x[a0, a1]
        acc0 <- add(acc0, in0)
    {}
output y
"""

GRAPHS = [
    ("y = mpa{relu}(x)", ParseError, "unknown op mpa, did you mean map"),
    ("y = map{rellu}(x)", ParseError, "unknown function rellu, did you mean relu?"),
    ("y = map{relu}(row)", ParseError, "undefined name row, did you mean rows?"),
    ("y = map{relu}(x): f32[3,2]", VerifyError, "y is declared f32[3,2] but its op gives f32[2,3]"),
    ("y = map{add}(x, rows)", VerifyError, "map add of shapes (2, 3) and (4,)"),
    ("y = map{add}(x, 1)", VerifyError, "add of f32 and i64: dtypes differ"),
    ("y = map{add}(x)", VerifyError, "add takes 2 arguments, got 1"),
    ("y = reduce{sum, axes=(2,)}(x)", VerifyError, "axes (2,) of a rank-2 tensor"),
    ("y = reduce{sum}(x)", ParseError, "reduce needs attribute axes"),
    (
        "y = reduce{sum, axis=(1,)}(x)",
        ParseError,
        "reduce has no attribute axis, did you mean axes",
    ),
    ("y = reduce{sum, axes=1}(x)", ParseError, "expected '(' but found 1"),
    ("y = reduce{sun, axes=(1,)}(x)", ParseError, "unknown monoid sun, did you mean sum"),
    ("y = reduce{sum, axes=(1,)}(x, x)", VerifyError, "reduce does not take f32[2,3], f32[2,3]"),
    ("y = view{[6] -> (i0)}(x)", VerifyError, "view with 1 indices of a rank-2 tensor"),
    ("y = view{[6] -> (i0, i1)}(x)", ParseError, "undefined name i1, did you mean i0?"),
    ("y = view{[6] -> (i0, 1.0)}(x)", VerifyError, "an index must be i64, not f32"),
    (
        "y = view{[6] -> (0, i0) where i0}(x)",
        VerifyError,
        "a condition must be bool, not i64",
    ),
    ("y = view{[6] -> (0, 0 < i0 < 2)}(x)", ParseError, "comparisons do not chain"),
    ("y = view{[-6] -> (i0, 0)}(x)", ParseError, "negative extent -6"),
    ("y = part{0}(x)", VerifyError, "part does not take f32[2,3]"),
    ("y = load x[0]", VerifyError, "load is not an op of the tensor level"),
    ("y = shuffle{8}(x)", VerifyError, "shuffle is not an op of the tensor level"),
    ("x = map{relu}(x)", ParseError, "x is defined twice"),
    ("y = map{relu}(x) rows", ParseError, "unexpected rows after the end of the statement"),
    ("y = map{relu}(x: f32[2,3]", ParseError, "expected ')' but found :"),
    ("y = map{relu}(x): f23[2,3]", ParseError, "unknown dtype f23, did you mean f32"),
    ("y = 'relu'(x)", ParseError, "expected an op but found 'relu'"),
    ("y = $relu(x)", ParseError, "unexpected character '$'"),
    ("relu(x)", ParseError, "expected '=' but found ("),
    ("  y = map{relu}(x)", ParseError, "unexpected indentation"),
    ("input z: f32[2]{1,2}", ParseError, "2 strides for 1 axes"),
    ("output y", ParseError, "undefined name y"),
    ("y = map{add}(rows, 9999999999999999999)", ParseError, "9999999999999999999 does not fit i64"),
    ("y = map{add}(rows, -true)", ParseError, "-true is not a literal"),
]

NESTS = [
    ("y[a0] = in0", ParseError, "undefined name in0"),
    ("y[a0, 0] = acc0", VerifyError, "2 indices of y, which is f32[4]"),
    ("y[0.5] = acc0", VerifyError, "an index must be i64, not f32"),
    ("y[a2] = acc0", ParseError, "undefined name a2, did you mean a0?"),
    ("z[a0] = acc0", ParseError, "undefined buffer z"),
    ("y[a0] = acc0 if a0", VerifyError, "a condition must be bool, not i64"),
    ("v0 = lod x[a0, 0]", ParseError, "undefined name lod, did you mean load?"),
    ("v0 = relue(acc0)", ParseError, "unknown op relue, did you mean relu"),
    ("v0 = add(acc0, 1)", VerifyError, "add of f32 and i64: dtypes differ"),
    ("v0 = map{relu}(acc0)", VerifyError, "map is not an op of the loop level"),
    ("v0 = lanes{8}", VerifyError, "lanes is not an op of the loop level"),
    ("v0 = load{8} x[0]", ParseError, "expected a buffer but found 8"),
    ("y{8}[a0] = acc0", ParseError, "no statement starts with y {"),
    ("v0 = load x[a0]", VerifyError, "1 index of x, which is f32[4,8]"),
    ("v0 = load x[a0, 0] if true", ParseError, "expected 'else' but found the end of the line"),
    ("a0 = relu(acc0)", ParseError, "a0 is defined twice"),
    ("local y: f32[3]", ParseError, "y is defined twice"),
    ("acc1 <- add(acc1, acc0)", ParseError, "no loop around this update declares acc1"),
    ("acc1 <- add(acc0, 1.0)", ParseError, "the update of acc1 reads acc0 in its place"),
    ("acc1 <- sub(acc1, 1.0)", ParseError, "unknown monoid sub"),
    ("y[a0] = running acc0", ParseError, "undefined accumulator acc0"),
    ("for a2 in 0..4:  # fre", ParseError, "the role of a loop is free, reduce, scan, not fre"),
    ("for a2 in 0..4:  # reduce into acc7", ParseError, "acc7 is declared but never updated"),
    ("for a2 in 0..4 by 0:", ParseError, "a step of 0"),
    ("for a2 in 0:4:", ParseError, "expected '..' but found :"),
    ("fort a2 in 0..4:", ParseError, "no statement starts with fort a2"),
    ("        y[a0] = acc0", ParseError, "unexpected indentation"),
    ("stage x[0]", ParseError, "no statement starts with stage x"),
]

PROGRAMS = [
    ("", ParseError, "an empty program"),
    ("# nothing", ParseError, "an empty program"),
    ("graph main", ParseError, "expected a header such as program tensor main but found graph"),
    ("program lop main", ParseError, "unknown level lop, did you mean loop"),
    ("program tensor main\ninput x: f32[2]", ParseError, "ends without an output line"),
    ("program tensor main\noutput 1.0\nx", ParseError, "a line after the output line"),
    ("program loop main\ninput x: f32[2]", ParseError, "ends without an output line"),
    ("program loop main\noutput\nx", ParseError, "a line after the output line"),
    (
        "program loop main\nx[0] = 1.0",
        ParseError,
        "expected input, kernel, call, repeat or output but found x",
    ),
    ("program loop main\ninput x: f32[2]\ninput x: f32[2]", ParseError, "x is defined twice"),
    ("program loop main\nkernel k(x: f32[2]) -> ()", ParseError, "undefined buffer x"),
    (
        "program loop main\ninput x: f32[2]\nkernel k(x: f32[3]) -> ()",
        VerifyError,
        "x is declared f32[3] here, but f32[2] before",
    ),
    ("program loop main\ncall a.b(0) () -> ()", ParseError, "expected a quoted string but found 0"),
]


def fails(text: str, kind: type[WeftError], sentence: str, place: str) -> None:
    with pytest.raises(kind) as caught:
        parse_program(text, "f.txt")
    assert sentence in caught.value.message
    assert "\n" not in caught.value.message
    assert (caught.value.where or "").startswith(place), caught.value.where


@pytest.mark.parametrize(("line", "kind", "sentence"), GRAPHS, ids=lambda v: str(v)[:40])
def test_wrong_graph(line: str, kind: type[WeftError], sentence: str) -> None:
    fails(TENSOR.format(line), kind, sentence, f"f.txt line 4: {line.strip()}")


@pytest.mark.parametrize(("line", "kind", "sentence"), NESTS, ids=lambda v: str(v)[:40])
def test_wrong_nest(line: str, kind: type[WeftError], sentence: str) -> None:
    fails(LOOP.format(line), kind, sentence, f"f.txt line 8: {line.strip()}")


@pytest.mark.parametrize(("text", "kind", "sentence"), PROGRAMS, ids=lambda v: str(v)[:40])
def test_wrong_program(text: str, kind: type[WeftError], sentence: str) -> None:
    fails(text, kind, sentence, "f.txt")


def test_updates_of_one_fold_agree() -> None:
    more = "acc0 <- maximum(acc0, in0)"
    text = LOOP.replace("add(acc0, in0)", f"add(acc0, in0)\n        {more}")
    fails(text, ParseError, "acc0 is a sum, not a max of acc0", f"f.txt line 8: {more}")
    more = "acc0 <- finite add(acc0, in0)"
    text = LOOP.replace("add(acc0, in0)", f"add(acc0, in0)\n        {more}")
    fails(text, ParseError, "acc0 is a sum, not a finite sum of acc0", f"f.txt line 8: {more}")
    text = LOOP.replace("acc0 <- add(acc0, in0)", "acc0 <- argmax(acc0; in0, a1)")
    fails(text, ParseError, "argmax has 2 accumulators, not 1", "f.txt line 7")


def test_program_without_a_level_is_no_text() -> None:
    class Source:
        level = "source"

    with pytest.raises(VerifyError, match="a program of the source level has no text form"):
        print_program(Source())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_missing_line_is_a_sentence(name: str) -> None:
    """Whatever line is gone, the text reads as another program or fails in one sentence."""
    lines = print_program(SAMPLES[name]).splitlines()
    for i in range(len(lines)):
        try:
            parse_program("\n".join(lines[:i] + lines[i + 1 :]))
        except WeftError as e:
            assert e.where and "\n" not in e.message
