"""weft.grad without a compiler: the tensor level's interpreter runs what is captured, in float64.

grads = gradients_of(lambda x, w: (x @ w).sum(), (x, w))         # as weft.grad(f, (0, 1)) gives
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tests.captures import Silent
from weft.calling import Compilation
from weft.core.node import Graph
from weft.frontend.graph import Captured, Runner
from weft.frontend.lower import to_tensor
from weft.interpret.tensors import evaluate, to_numpy, to_torch
from weft.tensor.rules import simplify
from weft.tensor.verify import verify
from weft.transforms import _both  # pyright: ignore[reportPrivateUsage]


class Interpreted(Silent):
    """A back end that verifies and interprets the tensor level; `graphs` are those it ran."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []

    def __call__(self, captured: Captured) -> Runner:
        plain = to_tensor(captured.graph)
        verify(plain)
        graph = simplify(plain)
        verify(graph)
        self.graphs.append(graph)

        def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            found = evaluate(graph, [to_numpy(t) for t in tensors])
            outs: list[torch.Tensor] = []
            for value, layout in zip(found, captured.layouts, strict=True):
                new = to_torch(value)
                outs.append(new.new_empty_strided(layout.shape, layout.layout).copy_(new))
            return outs

        return run


def gradients_of(f: Callable[..., Any], args: Sequence[Any], argnums: Any = None) -> Any:
    """What weft.grad(f, argnums)(*args) gives; by all float tensors where they are not named."""
    if argnums is None:
        pairs = enumerate(args)
        argnums = [i for i, x in pairs if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return Compilation(_both(f, argnums, has_aux=False), Interpreted()).call(tuple(args), {})[1]
