"""One tiny invalid tensor program per invariant, each with its sentence."""

from __future__ import annotations

import pytest

from weft.core.arguments import Arguments
from weft.core.errors import VerifyError
from weft.core.node import Graph, Node, make
from weft.core.types import TensorType, boolean, f32, i64
from weft.scalar.monoid import MONOIDS, SUM
from weft.scalar.ops import Axis, add, apply, axis, constant, exp
from weft.tensor import ops
from weft.tensor.verify import verify

X = make(ops.Input("x", TensorType(f32, (4, 6))))
ROW, COLUMN = ops.position(0), ops.position(1)


def program(output: Node, *inputs: Node, level: str = "tensor") -> Graph:
    names, origin = {output: "v0"}, {output: "model.py line 3: y = f(x)"}
    return Graph(level, "main", inputs or (X,), (output,), names, origin)


def retyped() -> Node:
    return Node(ops.Map(exp), (X,), TensorType(f32, (6, 4)))


def two_results() -> Node:
    both = (TensorType(f32, (4, 6)), TensorType(i64, (4, 6)))
    return make(ops.Extern("aten.sort.default", Arguments('[{"tensor": 0}]'), both), X)


def view(*index: Node, shape: tuple[int, ...] = (4, 6), valid: Node | None = None) -> Node:
    return make(ops.View(shape, index, valid), X)


INVALID = {
    "v0: axis is not an op of the tensor level": lambda: make(Axis("a")),
    "v0: is f32[6,4], but its op gives f32[4,6]": retyped,
    "v0: exp takes 1 arguments, got 2": lambda: Node(ops.Map(exp), (X, X), TensorType(f32, (4, 6))),
    "v0: reduce does not take 2 arguments": lambda: Node(ops.Reduce(SUM, (0,)), (X, X), X.type),
    "v0: an output has several results": two_results,
    "v0: part 2 of a call with 2 results": lambda: Node(ops.Part(2), (two_results(),), X.type),
    "v0: part -1 of a call with 2 results": lambda: Node(ops.Part(-1), (two_results(),), X.type),
    "v0: takes a part of what has one result": lambda: Node(ops.Part(0), (X,), X.type),
    "v0: view reads index 6 of axis 1, which has 6 elements": lambda: view(
        ROW, apply(add, COLUMN, constant(1))
    ),
    "v0: view reads index -1 of axis 0, which has 4 elements": lambda: view(
        apply(add, ROW, constant(-1)), COLUMN, valid=apply("ge", COLUMN, constant(1))
    ),
    "v0: index term uses i2, an axis that a rank-2 result lacks": lambda: view(
        ROW, ops.position(2)
    ),
    "v0: index term uses a, an axis that a rank-2 result lacks": lambda: view(axis("a"), COLUMN),
    "v0: its mask is i64, not bool": lambda: view(ROW, COLUMN, valid=ROW),
    "v0: reads at a bool index, not i64": lambda: view(apply("lt", ROW, COLUMN), COLUMN),
    "v0: index term is f32, neither i64 nor bool": lambda: make(ops.Index((4,), constant(1.0))),
    "v0: folds an axis twice: (0, 0)": lambda: make(ops.Reduce(SUM, (0, 0)), X),
    "v0: welford is not a monoid of scans": lambda: make(ops.Scan(MONOIDS["welford"], 0), X),
    "v0: max has 1 results, no 5": lambda: make(ops.Scan(MONOIDS["max"], 0, 5), X),
    "v0: 1 is not a value of bool": lambda: make(ops.Scalar(1, boolean)),
    "v0: reads y, which is not an input of the graph": lambda: make(
        ops.Input("y", TensorType(f32, (2,)))
    ),
}


@pytest.mark.parametrize("sentence", INVALID)
def test_invalid_programs_are_named(sentence: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(program(INVALID[sentence]()))
    assert caught.value.message == sentence
    assert caught.value.where == "model.py line 3: y = f(x)"


def test_inputs_have_different_labels() -> None:
    other = make(ops.Input("x", TensorType(f32, (2,))))
    with pytest.raises(VerifyError, match="two inputs are called x"):
        verify(program(X, X, other))


def test_an_input_is_an_input_node() -> None:
    with pytest.raises(VerifyError, match="an input of the graph is a map"):
        verify(program(X, make(ops.Map(exp), X)))


def test_another_level_is_refused() -> None:
    with pytest.raises(VerifyError, match="main is a program of the loop level, not tensor"):
        verify(program(X, level="loop"))


def test_reads_outside_are_fine_where_the_mask_is_off() -> None:
    inside = apply("and", apply("ge", ROW, constant(1)), apply("lt", ROW, constant(5)))
    verify(program(view(apply(add, ROW, constant(-1)), COLUMN, shape=(6, 6), valid=inside)))
    never = apply("lt", ROW, constant(0))
    verify(program(view(apply(add, ROW, constant(100)), COLUMN, valid=never)))


def test_masks_of_several_axes_are_understood_at_any_size() -> None:
    """The windows of a padded convolution: i0 + i1 - 1 lies inside where the mask says so."""
    x = make(ops.Input("x", TensorType(f32, (1 << 20,))))
    place = apply(add, apply(add, ROW, COLUMN), constant(-1))
    valid = apply("and", apply("ge", place, constant(0)), apply("lt", place, constant(1 << 20)))
    verify(program(make(ops.View((1 << 20, 3), (place,), valid), x), x))
    with pytest.raises(VerifyError, match="view reads index"):
        verify(program(make(ops.View((1 << 20, 3), (place,)), x), x))


def test_an_empty_view_reads_nothing() -> None:
    verify(program(view(apply(add, ROW, constant(9)), COLUMN, shape=(0, 6))))
