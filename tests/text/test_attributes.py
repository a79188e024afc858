"""A new op needs nothing in the printer or the parser: its fields and their types are enough."""

from __future__ import annotations

import pytest

from tests.text.samples import SAMPLES, f, i0, relu, same
from weft.core.errors import ParseError
from weft.core.node import Graph, Node, Op, make, op
from weft.core.types import DType, ScalarType, TensorType, bf16, f32
from weft.scalar.monoid import SUM, Monoid
from weft.scalar.nest import Buffer, Kernel, Load, Local, Program, Store
from weft.scalar.ops import Function, constant, exp
from weft.tensor.ops import Input
from weft.text import parse_program, print_program


@op("everything")
class Everything(Op):
    """An op with an attribute of every kind."""

    function: Function
    monoid: Monoid
    dtype: DType
    type: TensorType
    number: int
    text: str
    flag: bool
    words: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    term: Node
    left_out: int = 7

    def infer(self, *types: TensorType) -> TensorType:
        return self.type


@op("touch")
class Touch(Op):
    """A term that reads a buffer in a way of its own."""

    buffer: Buffer
    times: int = 1

    def infer(self, *types: ScalarType) -> ScalarType:
        return ScalarType(self.buffer.type.dtype)


TYPE = TensorType(f32, (2,), (3,))
THING = Everything(
    exp, SUM, bf16, TYPE, -3, 'say "hi"', True, ("it's\n", ""), ((1,), ()), f("add", i0, -1)
)  # fmt: skip


def test_attributes_of_every_kind() -> None:
    x = make(Input("x", TYPE))
    graph = Graph("tensor", "main", (x,), (make(THING, x, x), make(THING)))
    text = print_program(graph)
    assert text.splitlines()[2] == (
        "v0 = everything{exp, monoid=sum, dtype=bf16, type=f32[2]{3}, number=-3, "
        """text='say "hi"', flag=true, words=("it's\\n", ""), rows=((1,), ()), term=i0 - 1}"""
        "(x, x): f32[2]{3}"
    )
    assert parse_program(text) == graph


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("number=-3", "number=0.5", "expected a whole number but found 0.5"),
        ("flag=true", "flag=1", "expected an attribute of type bool but found 1"),
        ("rows=((1,), ())", "rows=(1,)", "expected '(' but found 1"),
        ("dtype=bf16", "dtype=bf61", "unknown dtype bf61, did you mean bf16"),
        ("number=-3", "numer=-3", "everything has no attribute numer, did you mean number"),
        ("number=-3", "dtype=f32", "attribute dtype of everything is given twice"),
        ("number=-3, ", "", "everything needs attribute number"),
    ],
)
def test_wrong_attributes(old: str, new: str, sentence: str) -> None:
    text = print_program(Graph("tensor", "main", (), (make(THING),)))
    with pytest.raises(ParseError) as caught:
        parse_program(text.replace(old, new))
    assert sentence in caught.value.message


def test_terms_with_buffers() -> None:
    x, y = Buffer("x", TensorType(f32, (4,))), Buffer("y", TensorType(f32, ()))
    term = make(Touch(x, 2), constant(1))
    kernel = Kernel("k", (x,), (y,), (Store(y, (), term),))
    program = Program("tile", "main", (x,), (y,), (kernel,))
    text = print_program(program)
    assert "in0 = touch{x, times=2}(1)\n" in text
    assert same(parse_program(text), program)
    with pytest.raises(ParseError, match="undefined buffer z"):
        parse_program(text.replace("{x,", "{z,"))


def test_a_load_after_a_store_to_local_memory_has_a_new_name() -> None:
    t, y = Buffer("t", TensorType(f32, (1,)), "local"), Buffer("y", TensorType(f32, (2,)))
    read = make(Load(t), constant(0))
    body = (
        Local(t),
        Store(t, (constant(0),), constant(1.0)),
        Store(y, (constant(0),), read),
        Store(t, (constant(0),), constant(2.0)),
        Store(y, (constant(1),), read),
    )
    program = Program("tile", "main", (), (y,), (Kernel("k", (), (y,), body),))
    text = print_program(program)
    assert "in0 = load t[0]\ny[0] = in0\nt[0] = 2.0\nin1 = load t[0]\ny[1] = in1\n" in text
    assert same(parse_program(text), program)


def test_samples_are_fresh_programs() -> None:
    assert same(relu(), SAMPLES["relu"])
