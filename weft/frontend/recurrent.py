"""Recurrent layers: ATen's own LSTM where eager takes it, loops over time elsewhere.

with recurrent(trains=True):
    y, state = lstm(x)      # traced: a call of weft::lstm_layer for each layer and direction
    y, state = gru(x)       # ... and of weft::recurrent_layer

On CPUs eager computes a layer of an LSTM, and its gradient, by one call of oneDNN, which is faster
than kernels for each step of time. GRUs, plain layers and other LSTMs are one operator as well,
whose rows are recurrences. What is neither (projections, packed sequences, autocast, sizes that are
free) is taken apart, up to LONGEST steps.
"""

# This file reaches into torch: its decompositions have no public names for all of it.
# pyright: reportPrivateUsage=false

import inspect
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._decomp import decomposition_table, decompositions

from weft.core.errors import CaptureError
from weft.frontend.extents import is_symbolic
from weft.tensor.recurrence import LONGEST

KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
FUNCTIONS = {getattr(torch, kind): getattr(torch.ops.aten, kind) for kind in KINDS}

Layer = Callable[..., tuple[torch.Tensor, Any]]
_plain, _choose = decompositions._rnn_helper, decompositions.select_one_layer_lstm_function


@contextmanager
def recurrent(trains: bool) -> Generator[None]:
    """As weft takes recurrent layers apart; Inductor's way is torch's own."""
    before = decompositions.select_one_layer_lstm_function, decompositions._rnn_helper
    decompositions.select_one_layer_lstm_function = _chosen if trains else _choose
    decompositions._rnn_helper = _of_limited_length
    try:
        yield
    finally:
        decompositions.select_one_layer_lstm_function, decompositions._rnn_helper = before


def in_parts(function: Any, args: Sequence[Any]) -> Callable[..., Any] | None:
    """How `torch.lstm` and its like are taken apart within `recurrent`; None for all else."""
    kind = FUNCTIONS.get(function)
    if kind is None or decompositions._rnn_helper is not _of_limited_length:
        return None
    packed = len(args) > 1 and isinstance(args[3], Sequence)  # its second argument are batch sizes
    return decomposition_table[kind.data if packed else kind.input]


def dropping(
    x: Any, hidden: Any, params: Any, biases: bool, count: int, *rest: Any
) -> tuple[torch.Tensor, list[Any]]:
    """`_rnn_helper`, with dropout of what the next layer reads: torch's never drops out."""
    p, train, both_ways, batch_first, layer = rest
    if not (p and train):
        return _plain(x, hidden, params, biases, count, *rest)
    x = x.transpose(0, 1) if batch_first else x
    last: list[torch.Tensor] = []
    for i in range(count):
        own = slice(i * (1 + both_ways), (i + 1) * (1 + both_ways))
        x = torch.dropout(x, p, train=True) if i else x
        alone = (hidden[own], params[own], biases, 1, 0.0, train, both_ways, False, layer)
        x, after = _plain(x, *alone)
        last += after
    return x.transpose(0, 1) if batch_first else x, last


def _of_limited_length(x: Any, hidden: Any, params: Any, biases: bool, *rest: Any) -> Any:
    *how, layer = rest
    loop = _as_loop(layer)
    if loop is layer is not _library_layer:
        check_length(len(hidden) * x.shape[1 if x.dim() == 3 and rest[-2] else 0])
    return dropping(x, hidden, params, biases, *how, loop)


def check_length(steps: Any) -> None:
    """CaptureError for more steps than are taken apart."""
    if steps > LONGEST:
        raise CaptureError(
            f"a recurrent layer takes {steps} steps, more than the {LONGEST} at most"
        )


def _as_loop(layer: Layer) -> Layer:
    """A layer of torch's decompositions as one operator, where that is known."""
    if layer is decompositions.one_layer_lstm:
        return partial(_loop, "lstm", layer)
    if not isinstance(layer, partial) or layer.func is not decompositions.one_layer_rnn:
        return layer
    function = layer.keywords["hidden_fn"]
    held = inspect.getclosurevars(function).nonlocals.get("nonlinearity")
    kinds = {torch.tanh: "rnn_tanh", torch.relu: "rnn_relu"}
    kind = "gru" if function is decompositions.gru_cell else kinds.get(held)  # type: ignore[arg-type]
    return layer if kind is None else partial(_loop, kind, layer)


def _loop(
    kind: str, plain: Layer, x: torch.Tensor, hidden: Any, params: Any, biases: bool, **how: Any
) -> tuple[torch.Tensor, Any]:
    """One layer in one direction; x is [time, batch, features], the state [batch, hidden]."""
    inputs, own, *rest = params
    both = rest[:2] if biases else (None, torch.zeros_like(own[:, 0]))
    state = torch.cat(hidden, 1) if kind == "lstm" else hidden
    tensors, steps = [x, state, *params], x.shape[0]
    several = {t.dtype for t in tensors} != {x.dtype} or torch.is_autocast_enabled(x.device.type)
    known = not is_symbolic(steps) and steps and len(rest) == 2 * biases  # no projections
    transformed = torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore
    if several or not known or transformed:
        check_length(steps)
        return plain(x, hidden, params, biases, **how)
    gates, reverse = torch.nn.functional.linear(x, inputs, both[0]), how.get("reverse", False)
    hs = torch.ops.weft.recurrent_layer(gates, state, own, both[1], kind, reverse)
    last = hs[0 if reverse else -1]
    size = own.shape[1]
    return (hs[..., :size], last.split(size, 1)) if kind == "lstm" else (hs, last)


def _chosen(x: torch.Tensor, hidden: Any, params: Sequence[Sequence[torch.Tensor]]) -> Layer:
    """What eager takes (aten/src/ATen/native/RNN.cpp, use_mkldnn); for these sizes alone."""
    tensors = [x, *hidden, *(p for layer in params for p in layer)]
    plain = all(t.device.type == "cpu" and t.dtype is x.dtype for t in tensors)
    known = x.dtype is torch.float32
    if x.dtype is torch.bfloat16:
        known = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    projected = hidden[0].size(2) != hidden[1].size(2)
    takes = torch._C._get_mkldnn_enabled() and plain and known and not projected
    takes = takes and all(int(n) for n in x.shape)  # of a size that is free, this one is assumed
    return _library_layer if takes else decompositions.one_layer_lstm


def _library_layer(
    x: torch.Tensor, hidden: Any, params: Any, biases: bool, reverse: bool = False
) -> tuple[torch.Tensor, Any]:
    """One layer in one direction; x is [time, batch, features], the state [batch, hidden]."""
    inputs, own = params[:2]
    both = params[2:4] if biases else (torch.zeros_like(inputs), torch.zeros_like(own))
    h, c = (state.unsqueeze(0).contiguous() for state in hidden)
    y, h, c, _ = torch.ops.weft.lstm_layer(
        x.contiguous(), inputs, own, *both, h, c, reverse, biases
    )
    return y, (h.squeeze(0), c.squeeze(0))


decompositions._rnn_helper = dropping
