"""RNN, GRU and LSTM: torch's layers where they compute the same, else a loop over time.

LSTM(x, self.W, self.R, self.B, hidden_size=32)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.onnx.table import op
from weft.onnx.types import refuse

ACTIVATIONS: dict[str, Callable[[Tensor, float | None, float | None], Tensor]] = {
    "relu": lambda x, a, b: torch.relu(x),
    "tanh": lambda x, a, b: torch.tanh(x),
    "sigmoid": lambda x, a, b: torch.sigmoid(x),
    "affine": lambda x, a, b: default(a, 1.0) * x + default(b, 0.0),
    "leakyrelu": lambda x, a, b: F.leaky_relu(x, default(a, 0.01)),
    "thresholdedrelu": lambda x, a, b: torch.where(x > default(a, 1.0), x, 0),
    "scaledtanh": lambda x, a, b: default(a, 1.0) * torch.tanh(default(b, 1.0) * x),
    "hardsigmoid": lambda x, a, b: (default(a, 0.2) * x + default(b, 0.5)).clamp(0, 1),
    "elu": lambda x, a, b: F.elu(x, default(a, 1.0)),
    "softsign": lambda x, a, b: F.softsign(x),
    "softplus": lambda x, a, b: F.softplus(x),
}
ALPHAS = ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
BETAS = ("affine", "scaledtanh", "hardsigmoid")


def default(value: float | None, other: float) -> float:
    return other if value is None else value


class Gates:
    """The activations of one direction, and what is common to all its steps."""

    def __init__(self, words: dict[str, Any], direction: int, usual: tuple[str, ...]) -> None:
        names = [name.lower() for name in words["activations"] or usual * 2]
        own = slice(direction * len(usual), (direction + 1) * len(usual))
        self.names, self.clip = names[own], words["clip"]
        self.alpha = consumed(words["activation_alpha"], names, ALPHAS)[own]
        self.beta = consumed(words["activation_beta"], names, BETAS)[own]
        unknown = [name for name in self.names if name not in ACTIVATIONS]
        if unknown:
            refuse(f"unknown activation {unknown[0]}")

    def __call__(self, place: int, x: Tensor, clips: bool = True) -> Tensor:
        x = x.clamp(-self.clip, self.clip) if self.clip and clips else x
        return ACTIVATIONS[self.names[place]](x, self.alpha[place], self.beta[place])


def consumed(values: Any, names: list[str], taking: tuple[str, ...]) -> list[float | None]:
    """The value of each activation: in order, of those that take one; None for the default."""
    rest = iter(values or ())
    return [next(rest, None) if name in taking else None for name in names]


Step = Callable[..., tuple[Tensor, Tensor | None]]


def rnn_step(
    g: Gates, x: Tensor, h: Tensor, c: Any, r: Tensor, rb: Tensor, p: Any, words: Any
) -> Any:
    return g(0, x + h @ r.t() + rb), None


def gru_step(
    g: Gates, x: Tensor, h: Tensor, c: Any, r: Tensor, rb: Tensor, p: Any, words: Any
) -> Any:
    xz, xr, xh = x.chunk(3, -1)
    rz, rr, rh = r.chunk(3, 0)
    bz, br, bh = rb.chunk(3, -1)
    update, reset = g(0, xz + h @ rz.t() + bz), g(0, xr + h @ rr.t() + br)
    if words["linear_before_reset"]:
        new = g(1, xh + reset * (h @ rh.t() + bh))
    else:
        new = g(1, xh + (reset * h) @ rh.t() + bh)
    return (1 - update) * new + update * h, None


def lstm_step(
    g: Gates, x: Tensor, h: Tensor, c: Any, r: Tensor, rb: Tensor, p: Any, words: Any
) -> Any:
    gi, go, gf, gc = (x + h @ r.t() + rb).chunk(4, -1)
    pi, po, pf = p.chunk(3, -1) if p is not None else (0.0, 0.0, 0.0)
    enter = g(0, gi + pi * c)
    keep = 1 - enter if words["input_forget"] else g(0, gf + pf * c)
    cell = keep * c + enter * g(1, gc)
    return g(0, go + po * cell) * g(2, cell, clips=False), cell


USUAL = {
    "RNN": (1, ("Tanh",), rnn_step),
    "GRU": (3, ("Sigmoid", "Tanh"), gru_step),
    "LSTM": (4, ("Sigmoid", "Tanh", "Tanh"), lstm_step),
}


def direction_of(
    name: str, words: dict[str, Any], d: int, back: bool, x: Tensor, lengths: Any, parts: list[Any]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """One direction: x of [time, batch, features] -> all states, the last one, the last cell."""
    gates, usual, step = USUAL[name]
    own: list[Any] = [part[d] if part is not None else None for part in parts]
    w, r, b, h, c, p = own
    hidden = r.shape[-1]
    wb, rb = b.chunk(2) if b is not None else (x.new_zeros(1), x.new_zeros(gates * hidden))
    h = x.new_zeros(x.shape[1], hidden) if h is None else h
    c = x.new_zeros(x.shape[1], hidden) if c is None and name == "LSTM" else c
    given = x @ w.t() + wb
    activations = Gates(words, d, usual)
    states: list[Any] = [None] * x.shape[0]
    for t in reversed(range(x.shape[0])) if back else range(x.shape[0]):
        result: Any = step(activations, given[t], h, c, r, rb, p, words)
        new, cell = result
        if lengths is None:
            states[t], h, c = new, new, cell
            continue
        alive = (t < lengths)[:, None]
        states[t], h = torch.where(alive, new, 0), torch.where(alive, new, h)
        before: Any = c
        c = torch.where(alive, cell, before) if name == "LSTM" else None
    return torch.stack(states), h, c


ORDERS = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}  # of ONNX's gates, as torch's stand


def layer_call(name: str, words: dict[str, Any], lengths: Any, p: Any) -> Any:
    """The layer of torch that computes the same; None if none does."""
    usual = [n.lower() for n in USUAL[name][1]]
    names = [n.lower() for n in words["activations"] or usual]
    alike = lengths is None and p is None and not words["clip"] and not words["input_forget"]
    if not alike or (name == "GRU" and not words["linear_before_reset"]):
        return None
    if name == "RNN" and set(names) == {"relu"}:
        return torch.rnn_relu
    same = names in (usual, usual * 2)
    return {"RNN": torch.rnn_tanh, "GRU": torch.gru, "LSTM": torch.lstm}[name] if same else None


def layer(name: str, call: Any, back: bool, x: Tensor, parts: list[Any]) -> list[tuple[Any, ...]]:
    """What `direction_of` gives for each direction, by a layer of torch."""
    w, r, b, h, c = parts
    weights: list[Tensor] = []
    for d in range(w.shape[0]):
        biases = () if b is None else b[d].chunk(2)
        for v in (w[d], r[d], *biases):
            gates = v.chunk(len(ORDERS[name]))
            weights.append(torch.cat([gates[i] for i in ORDERS[name]]))
    zeros = x.new_zeros(w.shape[0], x.shape[1], r.shape[-1])
    h, c = (zeros if v is None else v for v in (h, c))
    start = [h, c] if name == "LSTM" else h
    x = x.flip(0) if back else x
    found = call(x, start, weights, b is not None, 1, 0.0, False, w.shape[0] == 2, False)
    states = found[0].flip(0) if back else found[0]
    each = states.reshape(*x.shape[:2], w.shape[0], -1).unbind(2)
    lasts = found[1:] if name == "LSTM" else (found[1], [None] * len(each))
    return list(zip(each, *lasts, strict=True))


def sequence(name: str, x: Tensor, w: Tensor, r: Tensor, others: list[Any], words: Any) -> Any:
    b, lengths, h, c, p = others
    if words["layout"]:  # the batch first
        x = x.transpose(0, 1)
        h, c = (v.transpose(0, 1) if v is not None else None for v in (h, c))
    backs = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[
        words["direction"]
    ]
    parts = [w, r, b, h, c, p]
    call = layer_call(name, words, lengths, p)
    if call is not None:
        found: Any = layer(name, call, backs == [True], x, parts[:5])
    else:
        found = [
            direction_of(name, words, d, back, x, lengths, parts) for d, back in enumerate(backs)
        ]
    states = torch.stack([f[0] for f in found], 1)
    last = torch.stack([f[1] for f in found])
    last_cells: list[Any] = [f[2] for f in found]
    cells = torch.stack(last_cells) if name == "LSTM" else None
    if words["layout"]:
        states, last = states.permute(2, 0, 1, 3), last.transpose(0, 1)
        cells = cells.transpose(0, 1) if cells is not None else None
    return (states, last) if cells is None else (states, last, cells)


COMMON: dict[str, Any] = {
    "activations": None, "activation_alpha": None, "activation_beta": None, "clip": None,
    "direction": "forward", "hidden_size": None, "layout": 0,
    "linear_before_reset": 0, "input_forget": 0, "output_sequence": 0,
}  # fmt: skip


def checked(name: str, words: dict[str, Any]) -> dict[str, Any]:
    unknown = [key for key in words if key not in COMMON]
    if unknown:
        refuse(f"{name} has no attribute {unknown[0]}")
    return {**COMMON, **words}


@op("RNN")
def rnn(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, n: Any = None, h: Any = None, **words: Any
) -> Any:
    return sequence("RNN", x, w, r, [b, n, h, None, None], checked("RNN", words))


@op("GRU")
def gru(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, n: Any = None, h: Any = None, **words: Any
) -> Any:
    return sequence("GRU", x, w, r, [b, n, h, None, None], checked("GRU", words))


@op("LSTM")
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Any = None,
    n: Any = None,
    h: Any = None,
    c: Any = None,
    p: Any = None,
    **words: Any,
) -> Any:
    return sequence("LSTM", x, w, r, [b, n, h, c, p], checked("LSTM", words))
