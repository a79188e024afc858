"""Rows of weft::recurrent_layer and its backward (library/recurrent.py): recurrences."""

from collections.abc import Sequence

from weft.core.types import Symbolic
from weft.frontend.aten.table import Row, require
from weft.scalar import ops as s
from weft.scalar.ops import sigmoid
from weft.tensor.build import Tensor, cast, concat, matmul, slice_, transpose, widen
from weft.tensor.grad import gradients
from weft.tensor.loops import before, body_of, recur, recur_back


def chunks(x: Tensor, count: int) -> list[Tensor]:
    """Equal parts along axis 1."""
    each = x.shape[1] // count
    return [slice_(x, 1, i * each, each) for i in range(count)]


def cell(kind: str, gates: Tensor, h: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """One step, as library/recurrent.py has it, in what floats of 16 bits are computed in."""
    state, gates, w, b = map(widen, (h, gates, w, b))
    hidden = w.shape[1]
    own = matmul(slice_(state, 1, 0, hidden), transpose(w)) + b
    if kind == "gru":
        (r, z, n), (hr, hz, hn) = chunks(gates, 3), chunks(own, 3)
        new = s.tanh(n + hn * sigmoid(r + hr))
        return cast((state - new) * sigmoid(z + hz) + new, h.dtype)
    if kind == "lstm":
        i, f, g, o = chunks(gates + own, 4)
        c = sigmoid(f) * slice_(state, 1, hidden, hidden) + sigmoid(i) * s.tanh(g)
        return cast(concat([sigmoid(o) * s.tanh(c), c], 1), h.dtype)
    return cast((s.tanh if kind == "rnn_tanh" else s.relu)(gates + own), h.dtype)


def layer(gates: Tensor, h: Tensor, w: Tensor, b: Tensor, kind: str, reverse: bool) -> Tensor:
    require(not isinstance(gates.shape[0], Symbolic), "has a free number of steps")

    def step(h: Tensor, gates: Tensor, w: Tensor, b: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        after = cell(kind, gates, h, w, b)
        return [after], [after]

    _, (hs,) = recur(step, [h], [gates], [w, b], reverse)
    return hs


def layer_backward(
    gates: Tensor, h: Tensor, w: Tensor, b: Tensor, hs: Tensor, g: Tensor, kind: str, reverse: bool
) -> Sequence[Tensor]:
    op = body_of(layer(gates, h, w, b, kind, reverse))
    held = [before(h, hs, reverse)]
    found = recur_back(op, [h, gates, w, b], held, [None, g], gradients)
    return found[1], found[0], *found[2:]


ROWS = {
    "weft.recurrent_layer.default": Row(layer, "stored"),
    "weft.recurrent_layer_backward.default": Row(layer_backward, "stored"),
}
