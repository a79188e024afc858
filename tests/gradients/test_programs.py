"""Gradients of random programs in float64, as torch's autograd gives them; and of a few networks.

`python -m tests.gradients.test_programs 0 1000` runs as many seeds.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.fuzz.programs import make, scope
from tests.gradients.interpreted import Interpreted, gradients_of
from weft.calling import Compilation
from weft.core.errors import WeftError
from weft.tensor.ops import Scatter
from weft.transforms import _both  # pyright: ignore[reportPrivateUsage]

SEEDS = range(16)
# as_strided reaches what torch's autograd forgets; half rounds in another order than torch.
LEFT_OUT = ("as_strided", "half")


def weighted(out: Any) -> Any:
    """A number of all float results, each element with a weight of its own."""
    total: Any = 0
    for k, y in enumerate(out):
        if y.is_floating_point():
            at = torch.arange(y.numel(), dtype=torch.float64).reshape(y.shape)
            total = total + (y.double() * torch.cos(at + k)).sum()
    return total


def outcome(seed: int) -> str:
    """ "equal", or why nothing was compared; AssertionError with the program where it differs."""
    text, inputs = make(seed)[:2]
    if any(word in text for word in LEFT_OUT):
        return "left out"
    names = scope()
    exec(compile(text, "<program>", "exec"), names)

    def f(*xs: torch.Tensor) -> Any:
        return weighted(names["program"](*(x.clone() for x in xs)))

    xs = [x.double() if x.is_floating_point() else x for x in inputs]
    places = [i for i, x in enumerate(xs) if x.is_floating_point()]
    leaves = [x.clone().requires_grad_() if i in places else x for i, x in enumerate(xs)]
    try:
        y = f(*leaves)
        wanted = torch.autograd.grad(y, [leaves[i] for i in places], materialize_grads=True)
    except (RuntimeError, AttributeError, IndexError, TypeError):
        return "no gradient in eager"
    try:
        found = gradients_of(f, xs, places)
    except WeftError:
        return "refused"
    for i, g, w in zip(places, found, wanted, strict=True):
        scale = float(w[w.isfinite()].abs().max()) if w.isfinite().any() else 1.0
        close = torch.allclose(g, w, rtol=1e-6, atol=1e-8 * max(1, scale), equal_nan=True)
        assert close and g.shape == w.shape, f"seed {seed}, x{i}: {g} for {w}\n{text}"
    return "equal"


def test_random_programs() -> None:
    counts = Counter(outcome(seed) for seed in SEEDS)
    assert counts["equal"] >= len(SEEDS) // 3, counts


LABELS = torch.randint(0, 10, (4,))
# name -> function, arguments, and the most primitives of value and gradients
NETWORKS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], int]] = {
    "rms_norm": (
        lambda x, w: (F.rms_norm(x, (8,), w) ** 3).sum(),
        [torch.randn(4, 8), torch.randn(8)],
        38,
    ),
    "layer_norm": (lambda x: (F.layer_norm(x, (8,)) ** 3).sum(), [torch.randn(4, 8)], 40),
    "cross_entropy": (lambda x: F.cross_entropy(x, LABELS), [torch.randn(4, 10)], 46),
    "convolution": (
        lambda x, w: F.conv2d(x, w, padding=1, stride=2).sin().sum(),
        [torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)],
        20,
    ),
    "pooling": (
        lambda x: (F.avg_pool2d(F.max_pool2d(x, 2), 3, 1, 1) ** 2).sum(),
        [torch.randn(2, 3, 8, 8)],
        30,
    ),
    "attention": (
        lambda q, k, v: (F.scaled_dot_product_attention(q, k, v, is_causal=True) ** 2).sum(),
        [torch.randn(1, 2, 6, 4) for _ in range(3)],
        64,
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_compact(name: str) -> None:
    """Right, and without a scatter where views suffice."""
    f, xs, most = NETWORKS[name]
    back, places = Interpreted(), tuple(range(len(xs)))
    found = Compilation(_both(f, places, has_aux=False), back).call(tuple(xs), {})[1]
    wanted = torch.func.grad(f, places)(*xs)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    nodes = [*back.graphs[-1].nodes()]
    assert not any(isinstance(n.op, Scatter) for n in nodes) and len(nodes) <= most, len(nodes)


if __name__ == "__main__":
    counts: Counter[str] = Counter()
    for number in range(*map(int, sys.argv[1:3])):
        try:
            counts[outcome(number)] += 1
        except AssertionError as error:
            counts["WRONG"] += 1
            print(error)
        torch._dynamo.reset()  # pyright: ignore
    print(counts)
