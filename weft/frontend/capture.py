"""One call of a function or module, as a functional ATen graph for that signature.

    captured = capture(torch.nn.RMSNorm(64), (torch.randn(8, 64),), {})
    print_program(captured.graph)

The program runs once on fake tensors; parameters, buffers and tensors of closures are noticed as
it touches them. What this cannot follow raises CaptureError.
"""

# This file reaches into torch: its dispatcher and tables have no public names for all of it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
import inspect
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor, FakeTensorMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from weft.core.errors import CaptureError, WeftError
from weft.core.graph import Graph
from weft.core.node import Node
from weft.core.types import TensorType
from weft.frontend.aliasing import Ref, is_dense, read
from weft.frontend.composites import tracing
from weft.frontend.graph import Captured, Geometry, Leaf
from weft.frontend.torch_level import type_of
from weft.frontend.tracer import Home, Tracer

CONSTANTS = (
    *(type(None), bool, int, float, complex, str),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)


def capture(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Captured:
    """Trace `fn(*args, **kwargs)`."""
    start = time.perf_counter()
    flat, in_tree = tree_flatten((args, kwargs))
    for leaf in flat:
        if not isinstance(leaf, (torch.Tensor, *CONSTANTS)):
            raise CaptureError(f"an argument of type {type(leaf).__name__}")
    captured = _capture(fn, flat, in_tree, shared=set())
    if captured is None:  # inputs that share a storage, and one of them is written
        tensors = [t for t in flat if isinstance(t, torch.Tensor)]
        captured = _capture(fn, flat, in_tree, shared=_shared_storages(tensors))
    if captured is None:
        raise CaptureError("an input that is written shares its storage with a parameter")
    captured.seconds = time.perf_counter() - start
    return captured


def modules_of(fn: Callable[..., Any]) -> dict[str, torch.nn.Module]:
    """The modules whose parameters `fn` may read, by the name they go under."""
    if isinstance(fn, torch.nn.Module):
        return {"": fn}
    if isinstance(fn, functools.partial):
        return modules_of(fn.func)
    found: dict[str, Any] = {}
    if inspect.ismethod(fn):
        found["self"], fn = fn.__self__, fn.__func__
    if inspect.isfunction(fn):
        found |= {n: fn.__globals__[n] for n in fn.__code__.co_names if n in fn.__globals__}
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                found[name] = cell.cell_contents
            except ValueError:  # a variable that is not set yet
                continue
    return {n: m for n, m in found.items() if isinstance(m, torch.nn.Module)}


def homes_of(modules: dict[str, torch.nn.Module]) -> dict[int, Home]:
    """Where each parameter and buffer lives, by its id."""
    homes: dict[int, Home] = {}
    for root, module in modules.items():
        for prefix, inner in module.named_modules(prefix=root):
            for kind, home in (("parameter", inner._parameters), ("buffer", inner._buffers)):
                for key, tensor in home.items():
                    name = f"{prefix}.{key}" if prefix else key
                    if tensor is not None:
                        homes.setdefault(id(tensor), (kind, name, home, key))
    return homes


def _capture(
    fn: Callable[..., Any], flat: list[Any], in_tree: TreeSpec, shared: set[int]
) -> Captured | None:
    """None where an input that shares its storage is written and `shared` does not say so."""
    modules = modules_of(fn)
    tracer = Tracer(FakeTensorMode(allow_non_fake_inputs=True), homes_of(modules))
    before = _states(modules)
    gradients = torch.is_grad_enabled()
    try:
        with torch.inference_mode(False), torch.set_grad_enabled(gradients):
            with tracing(tracer):
                inputs = _inputs(tracer, flat, _argument_names(fn, in_tree), shared)
                args, kwargs = tree_unflatten(inputs, in_tree)
                graph = isinstance(fn, torch.fx.GraphModule)
                out = _Located(fn, tracer).run(*args) if graph else fn(*args, **kwargs)
            changed = _restore(before)
            if changed:
                raise CaptureError(f"the program assigns {', '.join(changed)}")
            with tracer.fake_mode:
                name = getattr(fn, "__name__", type(fn).__name__)
                return _finish(tracer, out, in_tree, name, bool(shared))
    except WeftError:
        raise
    except Exception as error:
        message = str(error).strip().split("\n")[0]
        told = f"{type(error).__name__}: {message}"
        if isinstance(error, DynamicOutputShapeException):
            told = f"the shape of what {error.func} gives depends on values"
        raise CaptureError(told, tracer.where(error)) from error
    finally:
        _restore(before)


class _Located(torch.fx.Interpreter):
    """Runs an FX graph, telling the tracer the source line each node came from."""

    def __init__(self, module: torch.fx.GraphModule, tracer: Tracer) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.tracer = tracer

    def run_node(self, n: torch.fx.Node) -> Any:
        self.tracer.location = _last_frame(n.stack_trace)
        return super().run_node(n)


def _last_frame(stack: str | None) -> str:
    """'File "a.py", line 3, in f' and the code below it, as "a.py line 3: code"."""
    frames = re.findall(r'File "(?:.*/)?(.*?)", (line \d+).*(?:\n(?! *File ") *(.*))?', stack or "")
    return "{} {}: {}".format(*frames[-1]) if frames else ""


def _argument_names(fn: Callable[..., Any], in_tree: TreeSpec) -> list[str]:
    """A name for every flat argument, from the signature where it gives one."""
    args_tree, kwargs_tree = in_tree.children()
    forward = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    names: list[str] = []
    for i, child in enumerate(args_tree.children()):
        names += [plain[i] if i < len(plain) else f"arg{i}"] * child.num_leaves
    for key, child in zip(kwargs_tree.context, kwargs_tree.children(), strict=True):
        names += [str(key)] * child.num_leaves
    return names


# Inputs


def _shared_storages(tensors: list[torch.Tensor]) -> set[int]:
    seen = Counter(t.untyped_storage()._cdata for t in tensors)
    return {storage for storage, count in seen.items() if count > 1}


def _inputs(tracer: Tracer, flat: list[Any], names: list[str], shared: set[int]) -> list[Any]:
    """The fake arguments; inputs in a `shared` storage become parts of one placeholder."""
    bases: dict[int, tuple[Ref, int]] = {}
    out: list[Any] = []
    for position, (leaf, name) in enumerate(zip(flat, names, strict=True)):
        if not isinstance(leaf, torch.Tensor):
            out.append(leaf)
            continue
        storage = leaf.untyped_storage()._cdata if shared else 0
        if storage not in shared:
            fixed = isinstance(leaf, torch.nn.Parameter)
            ref = tracer.placeholder(leaf, name, "input", position=position, fixed=fixed)
            out.append(ref.fake)
            continue
        if storage not in bases:
            region, start = _extent(leaf, flat)
            ref = tracer.placeholder(leaf, name, "input", position=position, region=region)
            bases[storage] = (ref, start)
        root, start = bases[storage]
        offset = int(leaf.storage_offset()) - start
        out.append(tracer.part(root, Geometry(tuple(leaf.shape), leaf.stride(), offset)))
    return out


def _extent(first: torch.Tensor, flat: list[Any]) -> tuple[Geometry, int]:
    """The 1-D region that covers every argument in the storage of `first`, and its start."""
    storage = first.untyped_storage()._cdata
    group = [t for t in flat if isinstance(t, torch.Tensor)]
    group = [t for t in group if t.untyped_storage()._cdata == storage]
    if any(t.dtype != first.dtype for t in group):
        raise CaptureError("inputs of different dtypes share a storage that is written")
    start = int(min(t.storage_offset() for t in group))
    last = max(
        t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
        for t in group
        if t.numel()
    )
    return Geometry((int(last) + 1 - start,), (1,), start - int(first.storage_offset())), start


# State of modules

_States = list[tuple[str, dict[str, Any], dict[str, Any]]]


def _states(modules: dict[str, torch.nn.Module]) -> _States:
    states: _States = []
    for root, module in modules.items():
        for name, inner in module.named_modules(prefix=root):
            for live in (inner.__dict__, inner._buffers, inner._parameters):
                states.append((name, live, dict(live)))
    return states


def _restore(before: _States) -> list[str]:
    """Undo every assignment to an attribute since; the names of those that had changed."""
    changed: list[str] = []
    for name, live, old in before:
        keys = [k for k in {**old, **live} if live.get(k, live) is not old.get(k, old)]
        if keys:
            live.clear()
            live.update(old)
        changed += [f"{name}.{key}" if name else key for key in keys]
    return changed


# Outputs


def _finish(
    tracer: Tracer, out: Any, in_tree: TreeSpec, name: str, overlapping: bool
) -> Captured | None:
    flat, out_tree = tree_flatten(out)
    changed = [(i, root) for i, root in enumerate(tracer.roots) if root.storage.version]
    mutations = [(i, read(root, tracer.emit)) for i, root in changed]
    written = {tracer.sources[i].untyped_storage()._cdata for i, _ in mutations}
    if written & _shared_storages(tracer.sources):
        return None
    results, leaves = _outputs(tracer, flat)
    inputs = tuple(p.node for p in tracer.placeholders)
    stored = [(i, value) for i, value in mutations if value is not inputs[i]]
    outputs = (*(value for value, _ in results), *(value for _, value in stored))
    return Captured(
        Graph("torch", name, inputs, outputs, tracer.names, tracer.origin),
        tracer.placeholders,
        (*(layout for _, layout in results), *(type_of(tracer.roots[i].fake) for i, _ in stored)),
        [i for i, _ in stored],
        leaves,
        in_tree,
        out_tree,
        _place(tracer, [leaf for leaf in flat if isinstance(leaf, torch.Tensor)]),
        overlapping,
    )


def _place(tracer: Tracer, results: list[torch.Tensor]) -> torch.device:
    """The device of all tensors; a number beside them may be on the CPU, unless it comes out."""
    inner = {f.device for f in tracer.fakes.values() if f.dim() or f.device.type != "cpu"}
    found = inner | {tracer.fake(t).device for t in results} or {torch.device("cpu")}
    if len(found) > 1:
        raise CaptureError(f"tensors on {' and '.join(sorted(map(str, found)))} in one program")
    return found.pop()


def _outputs(tracer: Tracer, flat: list[Any]) -> tuple[list[tuple[Node, TensorType]], list[Leaf]]:
    refs = [tracer.ref(leaf) if isinstance(leaf, torch.Tensor) else None for leaf in flat]
    distinct = {id(ref.fake): ref.storage for ref in refs if ref is not None}
    tenants = Counter(map(id, distinct.values()))  # of each storage, tensors returned
    results: list[tuple[Node, TensorType]] = []
    index: dict[int, int] = {}  # id of a fake -> its result
    leaves: list[Leaf] = []
    for leaf, ref in zip(flat, refs, strict=True):
        if ref is None:
            leaves.append(_constant(leaf))
            continue
        alone = tenants[id(ref.storage)] == 1 and is_dense(type_of(ref.fake))
        owner = ref if alone and ref.storage.placeholder is None else ref.root
        geometry = None if owner is ref else _geometry(ref, owner)
        if owner.storage.placeholder is not None:
            leaves.append(Leaf("placeholder", owner.storage.placeholder, geometry))
            continue
        if id(owner.fake) not in index:
            index[id(owner.fake)] = len(results)
            results.append((read(owner, tracer.emit), type_of(owner.fake)))
        leaves.append(Leaf("result", index[id(owner.fake)], geometry))
    return results, leaves


def _geometry(ref: Ref, owner: Ref) -> Geometry:
    if ref.fake.dtype != owner.fake.dtype or ref.fake.is_conj() or ref.fake.is_neg():
        raise CaptureError("an output that views another tensor's bytes as another dtype")
    offset = ref.fake.storage_offset() - owner.fake.storage_offset()
    return Geometry(tuple(ref.fake.shape), ref.fake.stride(), int(offset))


def _constant(leaf: Any) -> Leaf:
    if not isinstance(leaf, CONSTANTS) or isinstance(leaf, FakeTensor):
        raise CaptureError(f"a result of type {type(leaf).__name__}")
    return Leaf("constant", constant=leaf)
