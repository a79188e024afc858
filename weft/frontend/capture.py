"""One FX graph as a functional ATen graph, for what it is called with.

    captured = capture(graph, (x, weight))
    print_program(captured.graph)

The graph runs once on fake tensors. Python is not traced here: Dynamo made the FX graph and
guards what it took from Python. What cannot be followed raises Uncaptured, which names the node.
"""

# This file reaches into torch: its dispatcher and tables have no public names for all of it.
# pyright: reportPrivateUsage=false

import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._ops import HigherOrderOperator
from torch._prims_common import compute_required_storage_length
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import guard_scalar
from torch.utils._pytree import tree_flatten

from weft.core.errors import CaptureError, sentence
from weft.core.node import Graph, Node, postorder
from weft.core.types import TensorType
from weft.frontend.aliasing import Ref, is_dense, overlaps_itself, read
from weft.frontend.assumptions import CONSTANTS, modes
from weft.frontend.composites import in_training, tracing
from weft.frontend.derivatives import CUSTOM, custom, differentiates, is_mark, marked, own_gradients
from weft.frontend.extents import extent, has_ranges, replaced, settle, shape_env_of, sources
from weft.frontend.floats import is_free
from weft.frontend.graph import Captured, Geometry, Leaf, Values
from weft.frontend.lines import innermost_line
from weft.frontend.parts import FX
from weft.frontend.scans import scan_op, scanned
from weft.frontend.subclasses import leaves, plain, whole
from weft.frontend.subgraphs import TRACED_INTO
from weft.frontend.torch_level import type_of
from weft.frontend.tracer import Tracer
from weft.scalar.resize import sizes_of, with_sizes
from weft.tensor.ops import Part


class Uncaptured(CaptureError):
    """`node` of the FX graph cannot be captured; None where that is not known."""

    def __init__(self, message: str, where: str | None, node: torch.fx.Node | None) -> None:
        super().__init__(message, where)
        self.node = node


@dataclass(frozen=True)
class Name:
    """How an input of an FX graph is shown, and whether it is a parameter or buffer."""

    label: str
    fixed: bool = False


def capture(
    graph: FX,
    inputs: Sequence[Any],
    names: Sequence[Name] | None = None,
    title: str = "graph",
    fused_random: bool = True,
    trains: bool = False,
    native: bool = False,
) -> Captured:
    """Trace `graph(*inputs)`; inputs may be fake tensors.

    Gradients that it makes and uses are followed where it `trains`: torch's engine runs on
    fake tensors. Gradients of its results are not. Then ATen may compute whole layers, but where
    all is to be `native`.
    """
    start = time.perf_counter()
    names = names or [Name(str(p.target)) for p in graph.graph.find_nodes(op="placeholder")]
    how = names, title, fused_random, trains, native
    tensors = [t for t in plain(inputs) if isinstance(t, torch.Tensor)]
    captured = _capture(graph, inputs, *how, shared=set())
    if captured is None:  # inputs that share a storage, and one of them is written
        captured = _capture(graph, inputs, *how, shared=_shared_storages(tensors))
    if captured is None:
        raise Uncaptured("a written input shares its storage with a literal", None, None)
    captured.seconds = time.perf_counter() - start
    return captured


def _capture(
    graph: FX,
    inputs: Sequence[Any],
    names: Sequence[Name],
    title: str,
    fused_random: bool,
    trains: bool,
    native: bool,
    shared: set[int],
) -> Captured | None:
    """None where an input that shares its storage is written and `shared` does not say so."""
    given, inputs = inputs, plain(inputs)
    names = [
        Name(f"{name.label}{part}", name.fixed)
        for name, value in zip(names, given, strict=True)
        for _, part in leaves(value)
    ]
    shape_env = shape_env_of(inputs)
    if shape_env is not None and shape_env.frozen:
        raise CaptureError("a size that torch takes no guards of any more")
    # where inputs are fake already, theirs: it has the sizes that torch knows by name
    mode = detect_fake_mode(inputs) if shape_env else FakeTensorMode()
    assert mode is not None
    mode.allow_non_fake_inputs = True
    own = differentiates(graph)
    tracer = Tracer(mode, fused_random, own)
    if own:
        tracer.own = own_gradients(tracer)
    steps = _Steps(graph, tracer)
    drawn, before = torch.get_rng_state(), modes()
    wanted = any(isinstance(t, torch.Tensor) and t.requires_grad for t in inputs)
    wanted = wanted and not trains
    try:
        # transforms inside the graph count on the mode; gradients to its inputs are not recorded
        with torch.inference_mode(False), torch.set_grad_enabled(before[0] and (own or not wanted)):
            with tracing(tracer), _engine(inputs, native) if trains else nullcontext():
                out = steps.run(*whole(given, _inputs(tracer, inputs, names, shared)))
            steps.node = None
            with tracer.fake_mode:
                captured = _finish(tracer, out, title)
        if modes() != before or not torch.equal(drawn, torch.get_rng_state()):
            raise CaptureError("the graph changes a mode of torch or seeds its generator")
        return captured and with_settled_sizes(captured, shape_env, inputs)
    except Exception as error:
        told = sentence(error)
        if isinstance(error, DynamicOutputShapeException):
            told = f"the shape of what {error.func} gives depends on values"
        raise Uncaptured(told, tracer.location or None, steps.node) from error


@contextmanager
def _engine(inputs: Sequence[Any], native: bool) -> Generator[None]:
    """torch's engine in this thread, which is the one that is traced."""
    with torch.autograd.set_multithreading_enabled(False), in_training(inputs, native):
        yield


def with_settled_sizes(captured: Captured, shape_env: Any, inputs: Sequence[Any]) -> Captured:
    """The graph over sizes s0, s1, ... with what torch knows of them by now."""
    if shape_env is None:
        return captured
    told = (captured.graph, captured.layouts, tuple(captured.leaves))
    known = replaced(shape_env, sizes_of(told).values())
    told = with_sizes(told, known)
    used = sizes_of(told).values()
    places = sources(inputs)
    if any(n not in places for n in used):
        raise CaptureError("a size that no input has by itself")
    order = [n for n in places if n in used]
    together = max((len(sizes_of(n.type)) for n in told[0].nodes()), default=0)
    settled = settle(shape_env, order, together)
    graph, layouts, leaves = with_sizes(told, settled)
    nodes = zip(captured.placeholders, graph.inputs, strict=True)
    return replace(
        captured,
        graph=graph,
        layouts=layouts,
        leaves=list(leaves),
        placeholders=[replace(p, node=n) for p, n in nodes],
        sizes={settled[n]: places[n] for n in order},
        called={n.op.label: settled[n] for n in order},  # type: ignore[attr-defined]
        narrows=bool(order) and not has_ranges(shape_env),
    )


@dataclass(frozen=True)
class _Opaque:
    """Stands for an input that is neither tensor nor constant: it may only be passed on."""

    position: int
    kind: str


class _Steps(torch.fx.Interpreter):
    """Runs an FX graph, telling the tracer the source line each node came from."""

    def __init__(self, module: FX, tracer: Tracer) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.tracer = tracer
        self.node: torch.fx.Node | None = None  # the one that runs now
        self.opaque: dict[torch.fx.Node, str] = {}  # inputs that only the output may have

    def run_node(self, n: torch.fx.Node) -> Any:
        self.node = n
        self.tracer.location = innermost_line(n.stack_trace, library=True) or ""
        if n.target is CUSTOM and self.tracer.differentiates:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return custom(self.tracer, partial(_Steps, tracer=self.tracer), *args, **kwargs)
        if n.target is scan_op:
            return scanned(self.tracer, *self.fetch_args_kwargs_from_env(n)[0])
        if (into := TRACED_INTO.get(n.target)) is not None:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return into(*args, **kwargs)
        if isinstance(n.target, HigherOrderOperator):
            raise CaptureError(f"{n.target} is an operator whose bodies alone are compiled")
        taken = [a for a in n.all_input_nodes if a in self.opaque] if self.opaque else []
        if taken and n.op != "output":
            raise CaptureError(f"an argument of type {self.opaque[taken[0]]}")
        told = n.meta.get("example_value")
        if n.target == "item" and is_free(told):
            (source,) = n.all_input_nodes
            taken = self.tracer.floats.take(n, source, self.env[source])
            return told if taken else guard_scalar(told)  # type: ignore[arg-type]
        if is_mark(n.target):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return marked(self.tracer, n.target, args)
        value = super().run_node(n)
        if isinstance(value, _Opaque):
            self.opaque[n] = value.kind
        return value


# Inputs


def _shared_storages(tensors: list[torch.Tensor]) -> set[int]:
    seen = Counter(t.untyped_storage()._cdata for t in tensors if t.layout is torch.strided)
    return {storage for storage, count in seen.items() if count > 1}


def _inputs(tracer: Tracer, inputs: Values, names: Sequence[Name], shared: set[int]) -> list[Any]:
    """The fake arguments; inputs in a `shared` storage become parts of one placeholder."""
    bases: dict[int, tuple[Ref, int]] = {}
    out: list[Any] = []
    for position, (leaf, name) in enumerate(zip(inputs, names, strict=True)):
        if not isinstance(leaf, torch.Tensor):
            is_constant = isinstance(leaf, (*CONSTANTS, torch.SymInt))
            out.append(leaf if is_constant else _Opaque(position, type(leaf).__name__))
            continue
        storage = leaf.untyped_storage()._cdata if shared else 0
        if storage not in shared:
            fixed = name.fixed and not leaf.is_inference()
            ref = tracer.placeholder(leaf, name.label, position=position, fixed=fixed)
            out.append(ref.fake)
            continue
        if storage not in bases:
            region, start = _extent(leaf, inputs)
            ref = tracer.placeholder(leaf, name.label, position=position, region=region)
            bases[storage] = (ref, start)
        root, start = bases[storage]
        offset = int(leaf.storage_offset()) - start
        out.append(Geometry(tuple(leaf.shape), leaf.stride(), offset).of(root.fake))
    return out


def _extent(first: torch.Tensor, inputs: Sequence[Any]) -> tuple[Geometry, int]:
    """The 1-D region that covers every input in the storage of `first`, and its start."""
    storage = first.untyped_storage()._cdata
    group = [t for t in inputs if isinstance(t, torch.Tensor)]
    group = [t for t in group if t.untyped_storage()._cdata == storage]
    if any(t.dtype != first.dtype for t in group):
        raise CaptureError("inputs of different dtypes share a storage that is written")
    start = int(min(t.storage_offset() for t in group))
    full: list[Any] = [(t.shape, t.stride(), t.storage_offset()) for t in group if t.numel()]
    end = int(max(compute_required_storage_length(*where) for where in full))
    return Geometry((end - start,), (1,), start - int(first.storage_offset())), start


# Outputs


def _finish(tracer: Tracer, out: Any, title: str) -> Captured | None:
    flat, out_tree = tree_flatten(out)
    if torch.is_grad_enabled() and any(isinstance(t, FakeTensor) and t.requires_grad for t in flat):
        raise CaptureError("a result that wants gradients of its own")
    changed = [(i, root) for i, root in enumerate(tracer.roots) if root.storage.version]
    if any(root.fake.grad_fn is not None for _, root in changed):
        raise CaptureError("a write to an input that gradients are to pass")
    mutations = [(i, read(root, tracer.emit)) for i, root in changed]
    written = {tracer.sources[i].untyped_storage()._cdata for i, _ in mutations}
    if written & _shared_storages(tracer.sources):
        return None
    results, leaves = _outputs(tracer, flat)
    placeholders = tracer.placeholders
    inputs = tuple(p.node for p in placeholders)
    values = [value for value, _ in results] + [value for _, value in mutations]
    called = {*postorder(*values)}
    # nobody reads the last draw, but it moves the generator, or what the last collective gives,
    # but other processes take part in it: also where what reads it turns out to be a constant
    last = [(kind == "collective", v) for kind, v in tracer.last.items() if v not in values]
    unread = [v for ordered, v in last if ordered or call_of(v) not in called]
    results += [(value, value.type) for value in unread]
    stored = [(i, value) for i, value in mutations if value is not inputs[i]]
    if any(overlaps_itself(type_of(tracer.roots[i].fake)) for i, _ in stored):
        raise CaptureError("a write to an input of which several elements are one in memory")
    results += [(value, type_of(tracer.roots[i].fake)) for i, value in stored]
    outputs, layouts = tuple(value for value, _ in results), tuple(type_ for _, type_ in results)
    graph = Graph("torch", title, inputs, outputs, tracer.names, tracer.origin)
    used = {*inputs, *graph.nodes()}  # not what only told a shape, as meta tensors may
    place = _place(tracer, used, [leaf for leaf in flat if isinstance(leaf, torch.Tensor)])
    holders = [i for i, _ in stored]
    return Captured(graph, placeholders, layouts, holders, leaves, out_tree, place, tracer.numbers)


def call_of(value: Node) -> Node:
    """The call that gives a value, alone or with others."""
    return value.args[0] if isinstance(value.op, Part) else value


def _place(tracer: Tracer, used: set[Node], results: list[torch.Tensor]) -> torch.device:
    """The device of all tensors; a number beside them may be on the CPU, unless it comes out."""
    fakes = [fake for value, fake in tracer.fakes.items() if value in used]
    inner = {f.device for f in fakes if f.dim() or f.device.type != "cpu"}
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
            leaves.append(_other(leaf))
            continue
        if ref.fake.is_conj() or ref.fake.is_neg():
            raise CaptureError("an output with a lazy conjugate or negation")
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
    if ref.fake.dtype != owner.fake.dtype:
        raise CaptureError("an output that views another tensor's bytes as another dtype")
    shape, strides = (tuple(map(extent, n)) for n in (ref.fake.shape, ref.fake.stride()))
    offset = ref.fake.storage_offset() - owner.fake.storage_offset()
    return Geometry(shape, strides, extent(offset))


def _other(leaf: Any) -> Leaf:
    """A leaf that is no tensor."""
    if isinstance(leaf, _Opaque):
        return Leaf("input", leaf.position)
    if isinstance(leaf, torch.SymInt):
        return Leaf("size", constant=extent(leaf))
    if not isinstance(leaf, CONSTANTS) or isinstance(leaf, FakeTensor):
        raise CaptureError(f"a result of type {type(leaf).__name__}")
    return Leaf("constant", constant=leaf)
