"""Rows of weft's own operators for gradients: marks, and the gradients themselves.

The tensors that a row gives are what the program computes: of a gradient, nodes over those of the
function that is differentiated, whose own gradients are rows like any other.
"""

from collections.abc import Sequence

from weft.frontend.aten.table import Row
from weft.tensor.build import Tensor, full
from weft.tensor.grad import gradients
from weft.tensor.marks import Cotangent, Stop, Variable, custom, mark

GRADIENT = "weft.gradient.default"


def variable(x: Tensor, number: int) -> Tensor:
    return x if number < 0 else Tensor(mark(Variable(number), x.node))


def custom_gradient(*groups: Sequence[Tensor]) -> list[Tensor]:
    """`groups` are results, their cotangents, inputs, and each input's gradient."""
    return [Tensor(n) for n in custom(*(tuple(t.node for t in group) for group in groups))]


def steady(x: Tensor) -> Tensor:
    """x as a constant to gradients: a result does not depend on it, as a softmax on its top."""
    return Tensor(mark(Stop(), x.node))


def straight_through(x: Tensor, y: Tensor, *, number: int) -> Tensor:
    """y, of which all gradients pass on to x."""
    given = mark(Cotangent(number), y.node)
    return Tensor(*custom((y.node,), (given,), (x.node,), (given,)))


def gradient(y: Tensor, xs: Sequence[Tensor]) -> list[Tensor]:
    seed = full((), 1, y.dtype).node
    return [Tensor(g) for g in gradients((y.node,), (seed,), tuple(x.node for x in xs))]


MEANINGS = {
    "variable": variable,
    "result": lambda x: x,
    "stop": steady,
    "cotangent": lambda y, number: Tensor(mark(Cotangent(number), y.node)),
    "custom": custom_gradient,
    "straight_through": straight_through,
    "gradient": gradient,
}

ROWS = {f"weft.{name}.default": Row(meaning, "stored") for name, meaning in MEANINGS.items()}
