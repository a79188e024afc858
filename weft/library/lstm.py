"""The operator weft::lstm_layer: a layer of an LSTM over all of time, by oneDNN; its gradient.

y, h, c, workspace = torch.ops.weft.lstm_layer(x, w_ih, w_hh, b_ih, b_hh, h, c, False, True)

x f32 or bf16[time,batch,features], w_ih [4*hidden,features], w_hh [4*hidden,hidden], b_ih and b_hh
[4*hidden], h and c [1,batch,hidden] -> y [time,batch,hidden]. It is aten::mkldnn_rnn_layer, which
eager calls on CPUs, for programs without a grad mode; its workspace has a size that oneDNN knows.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Optional, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore

aten = torch.ops.aten
LSTM = 2  # as oneDNN counts kinds of layers
Maybe: TypeAlias = Optional[Tensor]  # noqa: UP045  # the schema is read from annotations


@torch.library.custom_op("weft::lstm_layer", mutates_args=())
def lstm_layer(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, h: Tensor, c: Tensor,
    reverse: bool, biases: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    how = (reverse, [], LSTM, h.shape[2], 1, biases, False, False, True)
    with torch.enable_grad():  # else nothing is kept for the backward
        return aten.mkldnn_rnn_layer(x, w_ih, w_hh, b_ih, b_hh, h, c, *how)


@lstm_layer.register_fake
def _(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, h: Tensor, c: Tensor,
    reverse: bool, biases: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
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
        return lstm_layer(*(torch.zeros(s, dtype=dtype) for s in shapes), *how)[3].numel()


@torch.library.custom_op("weft::lstm_layer_backward", mutates_args=())
def lstm_layer_backward(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, h: Tensor, c: Tensor,
    y: Tensor, hy: Tensor, cy: Tensor, dy: Maybe, dh: Maybe, dc: Maybe, reverse: bool, biases: bool,
    workspace: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    how = (reverse, LSTM, h.shape[2], 1, biases, True, False, [], False, workspace)
    given = (x, w_ih, w_hh, b_ih, b_hh, h, c, y, hy, cy, dy, dh, dc)
    *found, b, _, h, c = aten.mkldnn_rnn_layer_backward(*given, *how)
    return *found, b, b.clone(), h, c  # its two gradients of biases are one tensor


@lstm_layer_backward.register_fake
def _(*given: Any) -> Any:
    return tuple(torch.empty_like(t, dtype=torch.float32).contiguous() for t in given[:7])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:7], *output)
    ctx.how = inputs[7:]


def _backward(ctx: Any, *gradients: Maybe) -> tuple[Any, ...]:
    *given, workspace = ctx.saved_tensors
    found = lstm_layer_backward(*given, *gradients[:3], *ctx.how, workspace)
    return *(g.to(t.dtype) for g, t in zip(found, given, strict=False)), None, None


lstm_layer.register_autograd(_backward, setup_context=_keep)
