"""The operator weft::recurrent_layer: a GRU, a plain recurrent layer or an LSTM over all of time.

hs = torch.ops.weft.recurrent_layer(gates, h, w, b, "gru", False)

gates [time,batch,n*hidden] is what the input gives: x @ w_ih.T + b_ih, with n = 3 of a GRU, 4 of an
LSTM, 1 of a plain layer (rnn_tanh, rnn_relu). h [batch,state], w [n*hidden,hidden], b [n*hidden] ->
hs [time,batch,state]; state is hidden, of an LSTM 2*hidden: h, then c. `reverse` begins with the
last time. weft computes it as a recurrence (frontend/aten/recurrent.py). What stands here is a loop
in Python, for what it cannot compile; the formulas are those of torch/_decomp/decompositions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

LIBRARY = torch.library.Library("weft", "FRAGMENT")


def cell(kind: str, gates: Tensor, h: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """One step: gates [batch,n*hidden], h [batch,state] -> the state after it."""
    hidden = w.shape[1]
    own = functional.linear(h[:, :hidden], w, b)
    if kind == "gru":
        (r, z, n), (hr, hz, hn) = gates.chunk(3, 1), own.chunk(3, 1)
        new = torch.tanh(n + hn * torch.sigmoid(r + hr))
        return (h - new) * torch.sigmoid(z + hz) + new
    if kind == "lstm":
        i, f, g, o = (gates + own).chunk(4, 1)
        c = torch.sigmoid(f) * h[:, hidden:] + torch.sigmoid(i) * torch.tanh(g)
        return torch.cat((torch.sigmoid(o) * torch.tanh(c), c), 1)
    return (torch.tanh if kind == "rnn_tanh" else torch.relu)(gates + own)


def recurrent_layer(
    gates: Tensor, h: Tensor, w: Tensor, b: Tensor, kind: str, reverse: bool
) -> Tensor:
    found: list[Tensor] = []
    for row in gates.flip(0) if reverse else gates:
        h = cell(kind, row, h, w, b)
        found.append(h)
    return torch.stack(found[::-1] if reverse else found)


def recurrent_layer_backward(
    gates: Tensor, h: Tensor, w: Tensor, b: Tensor, hs: Tensor, g: Tensor, kind: str, reverse: bool
) -> tuple[Tensor, ...]:
    """The gradients of gates, h, w and b, where g is that of hs, which the layer gave."""
    with torch.enable_grad():
        own = gates, h, w, b = [t.detach().requires_grad_() for t in (gates, h, w, b)]
        return torch.autograd.grad(recurrent_layer(gates, h, w, b, kind, reverse), own, g)


def _shape(gates: Tensor, h: Tensor, *given: Any) -> Tensor:
    return h.new_empty((gates.shape[0], *h.shape))


def _shapes(*given: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in given[:4])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4], output)
    ctx.how = inputs[4:]


def taken_apart(
    layer: Callable[..., Sequence[Tensor]], given: Sequence[Tensor], seeds: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradients of what is given, in operators that have gradients themselves."""
    pairs = [(y, g) for y, g in zip(layer(*given), seeds, strict=True) if g is not None]
    results, known = zip(*pairs, strict=True)
    wanted = [t for t in given if t.requires_grad]
    made = torch.autograd.grad(results, wanted, known, create_graph=True, allow_unused=True)
    found = iter(made)
    return [next(found) if t.requires_grad else None for t in given]


def _backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    if torch.is_grad_enabled():  # a second derivative may follow
        again = lambda *given: [recurrent_layer(*given, *ctx.how)]  # noqa: E731
        return *taken_apart(again, ctx.saved_tensors[:4], [g]), None, None
    found = torch.ops.weft.recurrent_layer_backward(*ctx.saved_tensors, g, *ctx.how)
    return *found, None, None


HOW = "str kind, bool reverse"
LIBRARY.define(f"recurrent_layer(Tensor gates, Tensor h, Tensor w, Tensor b, {HOW}) -> Tensor")
LIBRARY.define(
    "recurrent_layer_backward(Tensor gates, Tensor h, Tensor w, Tensor b, Tensor hs, Tensor g, "
    f"{HOW}) -> (Tensor, Tensor, Tensor, Tensor)"
)
LIBRARY.impl("recurrent_layer", recurrent_layer, "CompositeExplicitAutograd")
LIBRARY.impl("recurrent_layer_backward", recurrent_layer_backward, "CompositeExplicitAutograd")
torch.library.register_fake("weft::recurrent_layer", _shape, lib=LIBRARY)
torch.library.register_fake("weft::recurrent_layer_backward", _shapes, lib=LIBRARY)
torch.library.register_autograd(
    "weft::recurrent_layer", _backward, setup_context=_keep, lib=LIBRARY
)
