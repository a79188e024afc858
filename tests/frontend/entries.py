"""Both ways into weft, and a comparison of what a call gives and leaves behind with eager's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves

import weft

Entry = Callable[[Any], Any]


def through_backend(fn: Any) -> Any:
    return torch.compile(fn, backend="weft", options={"random": "eager"})


def through_weft(fn: Any) -> Any:
    return weft.compile(fn, random="eager")  # to compare: test_randoms.py has weft's own


ENTRIES: dict[str, Entry] = {"weft.compile": through_weft, "torch.compile": through_backend}


def assert_same(ours: Any, eager: Any) -> None:
    """Values, dtypes, layouts and whether gradients are wanted, leaf by leaf."""
    (got, got_tree), (want, want_tree) = tree_flatten(ours), tree_flatten(eager)
    assert got_tree == want_tree
    for g, w in zip(got, want, strict=True):
        assert type(g) is type(w)
        if not isinstance(w, torch.Tensor):
            assert g == w
            continue
        assert (g.dtype, g.shape, g.layout) == (w.dtype, w.shape, w.layout)
        assert g.requires_grad == w.requires_grad
        if w.layout is torch.strided:
            assert strides(g) == strides(w)
        if w.is_quantized:
            assert torch.equal(g.dequantize(), w.dequantize())
        elif w.is_floating_point() and w.itemsize == 1:
            assert torch.equal(g.float(), w.float())
        else:
            torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-6, equal_nan=True)


def strides(t: torch.Tensor) -> list[int]:
    """Of the axes along which there is a step."""
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1]


def assert_as_eager(f: Any, fn: Any, args: tuple[Any, ...]) -> None:
    """One call of each on equal arguments: results, what the arguments hold after, gradients."""
    ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
    torch.manual_seed(1)
    eager = fn(*theirs)
    torch.manual_seed(1)
    result = f(*ours)
    assert_same(result, eager)
    assert_same(ours, theirs)
    wanted = [t for t in tree_leaves(theirs) if isinstance(t, torch.Tensor) and t.requires_grad]
    if wanted:
        assert_same(gradients(result, ours), gradients(eager, theirs))


def gradients(result: Any, args: Any) -> Any:
    """Of a number that depends on every result."""
    results = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    wanted = [t for t in tree_leaves(args) if isinstance(t, torch.Tensor) and t.requires_grad]
    total = sum((weighted(t) for t in results), torch.zeros(()))
    return torch.autograd.grad(total, wanted, allow_unused=True)


def weighted(t: torch.Tensor) -> torch.Tensor:
    real = torch.view_as_real(t) if t.is_complex() else t
    return (real * torch.arange(1.0, real.numel() + 1).reshape(real.shape)).sum()
