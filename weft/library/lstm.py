"""The operator weft::lstm_layer: a layer of an LSTM over all of time, by oneDNN; its gradient.

y, h, c, workspace = torch.ops.weft.lstm_layer(x, w_ih, w_hh, b_ih, b_hh, h, c, False, True)

x f32 or bf16[time,batch,features], w_ih [4*hidden,features], w_hh [4*hidden,hidden], b_ih and b_hh
[4*hidden], h and c [1,batch,hidden] -> y [time,batch,hidden]. It is aten::mkldnn_rnn_layer, which
eager calls on CPUs, for programs without a grad mode; its workspace has a size that oneDNN knows.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore

from weft.library.recurrent import recurrent_layer, taken_apart

aten = torch.ops.aten
LSTM = 2  # as oneDNN counts kinds of layers
LIBRARY = torch.library.Library("weft", "FRAGMENT")


def lstm_layer(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, h: Tensor, c: Tensor,
    reverse: bool, biases: bool,
) -> Any:  # fmt: skip
    how = (reverse, [], LSTM, h.shape[2], 1, biases, False, False, True)
    with torch.enable_grad():  # else nothing is kept for the backward
        return aten.mkldnn_rnn_layer(x, w_ih, w_hh, b_ih, b_hh, h, c, *how)


def _layer_shapes(x: Tensor, *given: Any) -> tuple[Tensor, ...]:
    h, c, reverse, biases = given[4:]
    y = x.new_empty((*x.shape[:2], h.shape[2]))
    size = workspace(x.dtype, *map(int, (*x.shape, h.shape[2])), reverse, biases)
    return y, torch.empty_like(h), torch.empty_like(c), x.new_empty((size,), dtype=torch.uint8)


@cache
def workspace(
    dtype: torch.dtype, time: int, batch: int, features: int, hidden: int, *how: bool
) -> int:
    """Bytes that oneDNN keeps for the backward, of a layer of that size that is run."""
    shapes = [(time, batch, features), (4 * hidden, features), (4 * hidden, hidden)]
    shapes += [(4 * hidden,)] * 2 + [(1, batch, hidden)] * 2
    with _disable_current_modes():
        operands = (torch.zeros(s, dtype=dtype) for s in shapes)
        return torch.ops.weft.lstm_layer(*operands, *how)[3].numel()


def lstm_layer_backward(*operands: Any) -> tuple[Tensor, ...]:
    *given, reverse, biases, workspace = operands
    how = (reverse, LSTM, given[5].shape[2], 1, biases, True, False, [], False, workspace)
    *found, b, _, h, c = aten.mkldnn_rnn_layer_backward(*given, *how)
    return *found, b, b.clone(), h, c  # its two gradients of biases are one tensor


def _gradient_shapes(*given: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(t, dtype=torch.float32).contiguous() for t in given[:7])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:7], *output)
    ctx.how = inputs[7:]


def _in_steps(reverse: bool, biases: bool, *given: Tensor) -> tuple[Tensor, ...]:
    """The layer in operators that have gradients."""
    x, w_ih, w_hh, b_ih, b_hh, h, c = given
    gates, hidden = torch.nn.functional.linear(x, w_ih, b_ih), h.shape[2]
    state = torch.cat((h, c), 2).squeeze(0)
    states = recurrent_layer(gates, state, w_hh, b_hh, "lstm", reverse)
    h, c = states[0 if reverse else -1].unsqueeze(0).split(hidden, 2)
    return states[..., :hidden], h, c


def _backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
    *given, workspace = ctx.saved_tensors
    if torch.is_grad_enabled():  # a second derivative may follow
        again = partial(_in_steps, *ctx.how)
        return *taken_apart(again, given[:7], gradients[:3]), None, None
    found = torch.ops.weft.lstm_layer_backward(*given, *gradients[:3], *ctx.how, workspace)
    return *(g.to(t.dtype) for g, t in zip(found, given, strict=False)), None, None


# torch.library.custom_op would add some 50 us to each call
OPERANDS = ", ".join(f"Tensor {name}" for name in "x w_ih w_hh b_ih b_hh h c".split())
RESULTS = ", ".join(f"Tensor {name}" for name in "y hy cy".split())
GIVEN = ", ".join(f"Tensor? {name}" for name in "dy dh dc".split())
HOW = "bool reverse, bool biases"
for name, kernel, shapes, operands, count in (
    ("lstm_layer", lstm_layer, _layer_shapes, f"{OPERANDS}, {HOW}", 4),
    (
        "lstm_layer_backward",
        lstm_layer_backward,
        _gradient_shapes,
        f"{OPERANDS}, {RESULTS}, {GIVEN}, {HOW}, Tensor workspace",
        7,
    ),
):
    LIBRARY.define(f"{name}({operands}) -> ({', '.join(['Tensor'] * count)})")
    LIBRARY.impl(name, kernel, "CPU")
    torch.library.register_fake(f"weft::{name}", shapes, lib=LIBRARY)
torch.library.register_autograd("weft::lstm_layer", _backward, setup_context=_keep, lib=LIBRARY)
