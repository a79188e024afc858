"""Programs that want gradients: AOTAutograd's forward and backward, each captured and built.

step = with_gradients(fn, build)          # step(*args) has a grad_fn
torch.compile(fn, backend=graph_backend(build))
"""

# This file reaches into torch: its dispatcher and tables have no public names for all of it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from functorch.compile import aot_module, min_cut_rematerialization_partition
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from weft.frontend.capture import capture, modules_of
from weft.frontend.entry import MISS, Build, Entry, direct_entry
from weft.frontend.graph import Captured, Runner
from weft.frontend.signature import call_key


class GraphProgram:
    """An FX graph of tensors and numbers, captured and built for each signature it meets."""

    def __init__(self, graph: torch.fx.GraphModule, build: Build) -> None:
        self.graph, self.build = graph, build
        self._boxed_call = True  # AOTAutograd hands the arguments over as a list
        self.entries: dict[Any, Entry] = {}
        self.hot: Callable[[Sequence[Any]], Any] = lambda args: MISS

    def __call__(self, args: list[Any]) -> Any:
        results = self.hot(args)
        if results is not MISS:
            args.clear()
            return results
        flat, tree = tree_flatten((tuple(args), {}))
        args.clear()  # a boxed call frees its arguments as soon as it can
        key = call_key(flat, tree)
        if key not in self.entries:
            captured = capture(self.graph, tuple(flat), {})
            runner = self.build(captured)
            self.entries[key] = direct_entry(self.graph, captured, runner, flat)
            self.hot = self.entries[key].hot or self.hot
        with torch.no_grad():
            return self.entries[key].call(tuple(flat), {}, flat)


class _Holder(torch.nn.Module):
    """A function as a module, so that AOTAutograd sees the parameters it reads."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.roots = torch.nn.ModuleList(modules_of(fn).values())
        self.fn = fn

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


class Differentiable:
    """`fn` for one signature, with gradients; the graphs are made at the first call."""

    def __init__(self, fn: Callable[..., Any], build: Build, out_tree: TreeSpec) -> None:
        self.started = False
        self.out_tree = out_tree
        module = fn if isinstance(fn, torch.nn.Module) else _Holder(fn)
        self.traced: Any = aot_module(module, **_through_aot(build))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with nullcontext() if self.started else _primitives():
            out = self.traced(*args, **kwargs)
        self.started = True
        if isinstance(out, list):  # AOTAutograd gives a flat tuple back as a list
            return tree_unflatten(tree_leaves(out), self.out_tree)
        return out


def _through_aot(build: Build) -> dict[str, Any]:
    """How AOTAutograd is to make its two graphs, and what compiles them."""

    def changing(captured: Captured) -> Runner:  # in training, parameters do with every call
        inputs = [replace(p, fixed=False) for p in captured.placeholders]
        return build(replace(captured, placeholders=inputs))

    def compiler(graph: torch.fx.GraphModule, example: Any) -> GraphProgram:
        return GraphProgram(graph, changing)

    return {
        "fw_compiler": compiler,
        "bw_compiler": compiler,
        "partition_fn": min_cut_rematerialization_partition,
        "decompositions": core_aten_decompositions(),
    }


@contextmanager
def _primitives() -> Generator[None, None, None]:
    """Attention and recurrent layers in the form whose backward is made of core ATen ops."""
    fused = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch._C._set_mkldnn_enabled(fused)


def graph_backend(build: Build) -> Callable[..., Any]:
    """What torch.compile(backend=...) takes: a function of an FX graph and example inputs."""
    differentiable = aot_autograd(**_through_aot(build))

    def backend(graph: torch.fx.GraphModule, example: Sequence[Any]) -> Callable[..., Any]:
        tensors = [*graph.parameters(), *(t for t in example if isinstance(t, torch.Tensor))]
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            with _primitives():
                return differentiable(graph, example)
        program = GraphProgram(graph, build)
        return lambda *args: program([*args])

    return backend
