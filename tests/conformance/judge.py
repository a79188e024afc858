"""When a result is wrong: further from float64 than twice eager's error, plus a few ulp.

problem = compare(ours, eager, exact)     # "" or a sentence
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

ULPS = 4  # that a correct result may be off where eager happens to be exact
SPREADS = 4  # times what rounding is seen to do: our order of operations is not eager's
TINY = 2  # smallest subnormal numbers, for results that underflow


def compare(
    ours: Any, eager: Any, exact: Any, spread: Sequence[torch.Tensor | None] | None = None
) -> str:
    """What is wrong with `ours`, beside eager's results and (where there are any) float64's.

    `spread` is, for each tensor of `exact`, how far rounding alone is seen to move its elements.
    """
    flat, tree = tree_flatten(ours)
    beside, expected = tree_flatten(eager)
    if tree != expected and len(flat) != len(beside):
        return f"{len(flat)} results where eager gives {len(beside)}"
    doubles = tree_flatten(exact)[0] if exact is not None else [None] * len(beside)
    if len(doubles) != len(beside):
        doubles, spread = [None] * len(beside), None
    for i, (a, b, c) in enumerate(zip(flat, beside, doubles, strict=True)):
        problem = _leaf(a, b, c, spread[i] if spread else None)
        if problem:
            return f"result {i}: {problem}"
    return ""


def _leaf(ours: Any, eager: Any, exact: Any, spread: torch.Tensor | None = None) -> str:
    if not isinstance(eager, torch.Tensor):
        same = type(ours) is type(eager) and (ours == eager or ours != ours)
        return "" if same else f"{ours!r} where eager gives {eager!r}"
    if not isinstance(ours, torch.Tensor):
        return f"{type(ours).__name__} where eager gives a tensor"
    facts = [(t.dtype, tuple(t.shape), t.layout, t.requires_grad) for t in (ours, eager)]
    if facts[0] != facts[1]:
        return f"{facts[0]} where eager gives {facts[1]}"
    if ours.layout is not torch.strided:
        return _leaf(ours.to_dense(), eager.to_dense(), None)
    ours, eager = ours.detach().resolve_conj().resolve_neg(), eager.detach().resolve_conj()
    if ours.is_quantized:
        ours, eager = ours.int_repr(), eager.int_repr()
    if ours.is_complex():
        return _leaf(torch.view_as_real(ours), torch.view_as_real(eager.resolve_neg()), None)
    if not ours.is_floating_point():
        off = int((ours != eager).sum())
        return f"{off} of {ours.numel()} elements differ" if off else ""
    return _floats(ours, eager, exact, spread)


def _floats(
    ours: torch.Tensor, eager: torch.Tensor, exact: Any, spread: torch.Tensor | None
) -> str:
    known = isinstance(exact, torch.Tensor) and exact.shape == ours.shape
    known = known and exact.dtype == torch.float64
    a, b = ours.double(), eager.double()
    c = exact.detach() if known else b
    info = torch.finfo(ours.dtype)
    if ours.dtype == torch.float64:
        apart = (b - c).nan_to_num(0.0, 0.0, 0.0).abs()
        if known and bool((apart > 64 * info.eps * _largest(c)).any()):
            info = torch.finfo(torch.float32)  # eager rounds to it on the way
        else:
            known = False
    error = (b - c).nan_to_num(0.0, 0.0, 0.0)  # where eager has no number, though there is one
    allowed = 2 * error.abs() + ULPS * info.eps * c.abs() + TINY * info.smallest_normal * info.eps
    # Where eager happens to be right, ours need not be. Of errors that are distributed as eager's
    # are, one in 16,000 exceeds four times their root mean square.
    allowed = allowed + 4 * _rms(b - c)
    if known and spread is not None:
        allowed = allowed + SPREADS * spread
    off = (a - c).abs()
    agree = (off <= allowed) | (a == b) | (a == c) | (a.isnan() & (b.isnan() | c.isnan()))
    if not known:  # nothing but eager to compare with: the same up to rounding
        agree |= torch.isclose(a, b, rtol=64 * info.eps, atol=64 * info.eps * _largest(b))
    if bool(agree.all()):
        return ""
    at = int((~agree).flatten().nonzero()[0])
    values = [float(t.flatten()[at]) for t in (a, b, c)]
    count = f"{int((~agree).sum())} of {a.numel()} elements wrong"
    return f"{count}, as {values[0]:.9g} where eager gives {values[1]:.9g}, float64 {values[2]:.9g}"


def _rms(error: torch.Tensor) -> float:
    finite = error[error.isfinite()]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def _largest(t: torch.Tensor) -> float:
    finite = t[t.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0
