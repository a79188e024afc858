"""One operator of OpInfo in one dtype: its samples, run by eager, in float64, and by weft.

for number, outcome in run_case(op, torch.float32, entries, samples=3): ...
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

import weft
from tests.conformance.judge import compare
from tests.conformance.rounding import spread

DTYPES = {
    "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16,
    "i64": torch.int64, "bool": torch.bool,
}  # fmt: skip
ENTRIES: dict[str, Callable[[Any], Any]] = {
    "weft.compile": lambda f: weft.compile(f, random="eager"),
    "torch.compile": lambda f: torch.compile(
        f, backend="weft", dynamic=False, options={"random": "eager"}
    ),
}
# Their values are whatever was in memory.
UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
                 "new_empty_strided")  # fmt: skip


def name_of(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def operators() -> dict[str, Any]:
    """All operators of OpInfo by name. The import takes seconds."""
    from torch.testing._internal.common_methods_invocations import op_db

    # which forbids to set flags such as allow_tf32, in all of this process
    flags = torch.backends.disable_global_flags.__globals__
    flags["__allow_nonbracketed_mutation_flag"] = True
    return {name_of(op): op for op in op_db}


def run_case(
    op: Any, dtype: torch.dtype, entries: Sequence[str], most: int
) -> Iterator[tuple[int, str, str]]:
    """(number of the sample, entry, problem) of each run; "" is right, "skip: ..." is not run.

    "rounding: ..." is off by more than judge.py allows, and by no more than rounding can explain.
    """
    if dtype not in op.supported_dtypes("cpu"):
        return
    grads = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    random.seed(0)
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=grads))
    for number in chosen(len(samples), most):
        for entry in entries:
            yield number, entry, run_sample(op, samples[number], entry, grads)


def chosen(count: int, most: int) -> list[int]:
    """At most that many samples, spread evenly; all where `most` is 0."""
    if not most or count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / max(1, most - 1)) for i in range(most)})


def run_sample(op: Any, sample: Any, entry: str, grads: bool) -> str:
    def program(x: Any, *args: Any, **kwargs: Any) -> Any:
        return op.op(x, *args, **kwargs)

    try:
        eager = outcome(program, sample, grads)
    except Exception as error:  # eager refuses it; what weft does then is not compared
        return f"skip: eager raises {type(error).__name__}"
    try:
        exact = outcome(program, widened(sample), grads)
    except Exception:
        exact = (None, None)
    torch.compiler.reset()
    try:
        ours = outcome(ENTRIES[entry](program), sample, grads)
    except Exception as error:
        return f"error: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
    if op.name in UNINITIALISED:
        exact = eager = ours if shapes(ours) == shapes(eager) else eager
    for what, a, b, c in zip(("", "gradient, "), ours, eager, exact, strict=True):
        problem = compare(a, b, c)
        if problem:
            explained = is_rounding(program, sample, grads, (ours, eager, exact))
            return f"{'rounding' if explained else 'wrong'}: {what}{problem}"
    return ""


def is_rounding(program: Callable[..., Any], sample: Any, grads: bool, found: Any) -> bool:
    """Whether eager's own operations, rounded at random, would be as far off as our results are."""
    tensors = [t for t in pytree.tree_leaves(sample.input) if isinstance(t, torch.Tensor)]
    dtype = tensors[0].dtype if tensors else torch.int64
    if found[2] == (None, None) or not dtype.is_floating_point:
        return False
    moved = spread(lambda: outcome(program, widened(sample), grads), found[2], dtype)
    return not compare(*found, spread=moved)


def shapes(tree: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda t: (t.shape, t.dtype), tree)


def outcome(program: Callable[..., Any], sample: Any, grads: bool) -> tuple[Any, Any]:
    """Results, and the gradients of the inputs; the sample is left as it was."""
    x, args, kwargs = fresh((sample.input, sample.args, sample.kwargs))
    torch.manual_seed(1)
    out = program(x, *args, **kwargs)
    if not grads:
        return out, None
    results = [t for t in pytree.tree_leaves(out) if differentiable(t)]
    leaves = [t for t in pytree.tree_leaves((x, args, kwargs)) if differentiable(t) and t.is_leaf]
    if not results or not leaves:
        return out, None
    weights = [
        torch.randn(t.shape, dtype=torch.float64, generator=seeded(i))
        for i, t in enumerate(results)
    ]
    given = [w.to(t.dtype) for w, t in zip(weights, results, strict=True)]
    found = torch.autograd.grad(results, leaves, given, allow_unused=True)
    return pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, out), found


def seeded(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def differentiable(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.requires_grad and not t.is_sparse


def fresh(tree: Any, change: Callable[[torch.Tensor], torch.Tensor] = lambda t: t) -> Any:
    """Copies of the tensors, strides kept, that are leaves again."""

    def copy(t: torch.Tensor) -> torch.Tensor:
        if t.layout is not torch.strided:
            return change(t.detach().clone()).requires_grad_(t.requires_grad)
        new = change(t.detach())
        if new is t or new.data_ptr() == t.data_ptr():
            new = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t.detach())
        return new.requires_grad_(t.requires_grad)

    return pytree.tree_map_only(torch.Tensor, copy, tree)


def widened(sample: Any) -> Any:
    """The sample in float64: the tensors, and the dtypes it names."""
    from torch.testing._internal.opinfo.core import SampleInput

    def double(t: torch.Tensor) -> torch.Tensor:
        return t.double() if t.is_floating_point() else t.clone()

    x, args, kwargs = fresh((sample.input, sample.args, sample.kwargs), double)
    floats = (torch.float32, torch.bfloat16, torch.float16)
    args, kwargs = pytree.tree_map_only(
        torch.dtype, lambda d: torch.float64 if d in floats else d, (args, kwargs)
    )
    return SampleInput(x, args=tuple(args), kwargs=kwargs)
