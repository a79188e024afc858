"""One call of a program, traced: its graph, its constants, and what callers see of it.

call = trace(source, options, targets_of("cpu:avx2"))     # one graph, or a CaptureError
call.codes, call.inputs, call.outputs, call.weights, call.bindings

The call is run once, with a back end that computes nothing: its results are marked, so that what
Python makes of them (views, tuples, inputs that are returned) is told by where they lie.
"""

# pyright: reportPrivateUsage=false

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch._guards import TracingContext
from torch.utils import _pytree as pytree

from weft import driver
from weft.calling import compiled
from weft.cli.program import Source
from weft.core.errors import CaptureError, WeftError, choice
from weft.core.node import Node, op_of
from weft.core.types import TensorType
from weft.export.code import Code, Isa
from weft.export.conditions import conditions
from weft.export.targets import make_codes
from weft.frontend.graph import Captured, Runner
from weft.frontend.torch_level import type_of
from weft.options import Options
from weft.runtime.extern import torch_dtype
from weft.scalar.ops import constant
from weft.scalar.resize import sizes_of, with_sizes
from weft.scalar.sizes import Size
from weft.tensor.ops import Input

Memory = Literal["own", "of_input", "of_output", "of_weight"]


@dataclass(frozen=True)
class Tensor:
    """An input or output as C sees it; `of` and `offset` as weft_model.h has them."""

    name: str
    type: TensorType
    written: bool = False
    memory: Memory = "own"
    of: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Binding:
    """A placeholder, or a result, of the graph: input, weight or output number `of`."""

    memory: Memory
    of: int


@dataclass
class Traced:
    """`codes` has one for each target; `bindings` one for each placeholder of the graph, then one
    for each fresh result."""

    name: str
    captured: Captured
    codes: list[Code]
    inputs: list[Tensor] = field(default_factory=list[Tensor])
    outputs: list[Tensor] = field(default_factory=list[Tensor])
    weights: list[tuple[str, torch.Tensor]] = field(default_factory=list[Any])
    bindings: list[Binding] = field(default_factory=list[Binding])
    left_out: list[str] = field(default_factory=list[str])  # results that are no tensors
    sizes: dict[Node, tuple[int, int]] = field(default_factory=dict[Node, Any])  # input, dimension
    conditions: list[tuple[str, str]] = field(default_factory=list[Any])  # on sizes: text, and C


@dataclass(frozen=True)
class _Marker(driver.Builder):
    """A back end that keeps what it is given, and gives memory that nobody has written.

    Programs are lowered while torch may still be asked to narrow their sizes.
    """

    found: list[Any] = field(default_factory=list[Any])
    targets: Mapping[str, Isa] = field(default_factory=dict[str, Isa])

    def __call__(self, captured: Captured) -> Runner:
        context = TracingContext.try_get()
        mode = context.fake_mode if context is not None else None
        codes = make_codes(captured, self.options, self.targets)

        def run(given: Sequence[Any]) -> Sequence[torch.Tensor]:
            nodes = sizes_of(captured.graph).values()
            count = len(captured.placeholders)
            numbers = dict(zip(nodes, map(constant, given[count:]), strict=True))
            fresh = len(captured.layouts) - len(captured.mutations)
            results = [empty(with_sizes(t, numbers)) for t in captured.layouts[:fresh]]
            shape_env = getattr(mode, "shape_env", None)  # which has all guards by now
            self.found.append((captured, codes, [*given[:count]], results, shape_env))
            return tuple(results)

        return run


def empty(t: TensorType) -> torch.Tensor:
    return torch.empty_strided(t.shape, t.layout, dtype=torch_dtype(str(t.dtype.word)))


def trace(
    source: Source, options: Options, targets: Mapping[str, Isa], *, steps: bool = False
) -> Traced:
    """A source's call, lowered for some targets; CaptureError where it is not one graph.

    With `steps` it may take gradients itself, as a training step does.
    """
    told = source.freed(replace(options, fallback="error"))
    sizes = told.pop("sizes", None)
    marker = _Marker(Options(**told), sizes, True, targets=targets)
    with torch.set_grad_enabled(steps):
        results = compiled(source.callable, marker)(*source.args, **source.kwargs)
    if not marker.found:
        eager = "it ran in eager, as the first step of an optimiser does, which makes its state: "
        told = (
            f"{eager}in SOURCE call weft.compile(step) once"
            if steps
            else "the call computes nothing with tensors"
        )
        raise CaptureError(f"there is nothing to export: {told}")
    for name, leaf in paths(results):
        if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None:
            place = dotted("", name) or "out"
            raise CaptureError(f"output {place} has a history of gradients: detach it in SOURCE")
    captured, codes, given, fresh, shape_env = marker.found[-1]
    if any(p.region is not None for p in captured.placeholders):
        raise CaptureError("arguments that share memory which the program writes to")
    call = Traced(source.title, captured, codes)
    own = _inputs(call, source, given)
    _bind(call, source, given, own)
    bound = [*call.bindings, *(Binding("of_output", i) for i in range(len(fresh)))]
    bound += [Binding("of_input", i) for i in range(len(own))]
    _outputs(call, results, fresh, [*zip((*given, *fresh, *own), bound, strict=True)])
    _sizes(call)
    free = bool(call.sizes)
    if options.dynamic and not free:
        raise CaptureError("no size is free: what the program computes depends on their numbers")
    call.conditions = conditions(captured, shape_env) if free else []
    return call


def with_shapes(source: Source, text: str) -> Source:
    """The source with other shapes of some arguments: "x=8x64, past.0=1" (a scalar: "x=")."""
    parts = (part.strip().partition("=") for part in text.split(",") if part.strip())
    wanted = {name: shape for name, _, shape in parts}
    leaves = argument_names(source)
    known = [name for name, leaf in leaves if isinstance(leaf, torch.Tensor)]
    for name, shape in wanted.items():
        choice("argument of --signature", name, known)
        if not re.fullmatch(r"(\d+(x\d+)*)?", shape):
            raise WeftError(f"--signature {name}={shape} is no shape such as {name}=8x64")

    def one(name: str, leaf: Any) -> Any:
        if name not in wanted:
            return leaf
        return leaf.new_zeros([int(n) for n in wanted[name].split("x") if n])

    made = [one(name, leaf) for name, leaf in leaves]
    _, spec = pytree.tree_flatten((source.args, source.kwargs))
    args, kwargs = pytree.tree_unflatten(made, spec)
    return replace(source, args=args, kwargs=kwargs, title=text or source.title)


# --- inputs and weights


def argument_names(source: Source) -> list[tuple[str, Any]]:
    """All leaves of the arguments, each with a name: x, past.0, config.scale."""
    fn = source.callable
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        parameters = [*inspect.signature(target).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "arg")
    more = (f"{rest}.{i}" for i in range(len(source.args)))
    trees = [*zip([*names, *more], source.args, strict=False), *source.kwargs.items()]
    return [(dotted(name, path), leaf) for name, tree in trees for path, leaf in paths(tree)]


def paths(tree: Any) -> list[tuple[Any, Any]]:
    return pytree.tree_flatten_with_path(tree)[0]


def dotted(first: str, path: Sequence[Any]) -> str:
    """A path within a tree as a name."""
    steps = (getattr(k, n) for k in path for n in ("key", "idx", "name") if hasattr(k, n))
    return ".".join([*([first] if first else []), *map(str, steps)])


def _inputs(call: Traced, source: Source, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Declares the tensors among the arguments; those that the graph reads as it has them."""
    captured = call.captured
    own: dict[int, str] = {}
    tensors: list[torch.Tensor] = []
    for name, leaf in argument_names(source):
        if not isinstance(leaf, torch.Tensor):
            continue
        if id(leaf) in own:
            raise CaptureError(f"the arguments {own[id(leaf)]} and {name} are one tensor")
        own[id(leaf)] = name
        at = next((i for i, t in enumerate(given) if t is leaf), None)
        if at is None:
            if leaf.layout is not torch.strided:
                raise CaptureError(f"argument {name} is no plain tensor")
            declared = Tensor(name, type_of(leaf))
        else:
            p = captured.placeholders[at]
            if p.position in captured.numbers:
                raise CaptureError(f"the value of argument {name} decides what is computed")
            declared = Tensor(name, op_of(p.node, Input).tensor, at in captured.mutations)
        call.inputs.append(declared)
        tensors.append(leaf)
    return tensors


def _bind(call: Traced, source: Source, given: Sequence[Any], own: Sequence[torch.Tensor]) -> None:
    """What each placeholder is: an argument, or else a weight."""
    numbers = {id(t): i for i, t in enumerate(own)}
    known, graph = _state_names(source.callable), call.captured.graph
    names = [graph.names[node] for node in graph.inputs]
    for i, t in enumerate(given):
        if id(t) in numbers:
            if id(t) in known:
                argument = call.inputs[numbers[id(t)]].name
                raise CaptureError(f"the argument {argument} is the program's own {known[id(t)]}")
            call.bindings.append(Binding("of_input", numbers[id(t)]))
            continue
        if t.device.type == "meta":
            raise WeftError(f"{names[i]} has no values: its tensors are on the meta device")
        name = known.get(id(t)) or names[i]
        call.bindings.append(Binding("of_weight", len(call.weights)))
        call.weights.append((name, t.detach()))
        if call.captured.placeholders[i].position in call.captured.numbers:
            call.left_out.append(f"the value of {name}, which decides what is computed")


def _state_names(fn: Callable[..., Any]) -> dict[int, str]:
    """Parameters and buffers of a module by their own names, the first of several."""
    if not isinstance(fn, torch.nn.Module):
        return {}
    every = [*fn.named_parameters(), *fn.named_buffers()]
    return {id(t): name for name, t in reversed(every)}


# --- outputs


Places = Sequence[tuple[torch.Tensor, Binding]]  # tensors, and whose memory they are


def _outputs(call: Traced, results: Any, fresh: Sequence[torch.Tensor], every: Places) -> None:
    """Finds each tensor that the call gave among what it was given and what the graph made."""
    flat = [(dotted("", path) or "out", leaf) for path, leaf in paths(results)]
    places: dict[int, int] = {}  # of fresh results, by number: outputs
    for name, leaf in flat:
        number = next((i for i, t in enumerate(fresh) if t is leaf), None)
        if not isinstance(leaf, torch.Tensor):
            call.left_out.append(f"{name} is {leaf!r}")
        elif number is not None and number not in places:
            places[number] = len(call.outputs)
            call.outputs.append(Tensor(name, call.captured.layouts[number]))
        else:
            call.outputs.append(_part(call, name, leaf, every))
    for number, t in enumerate(call.captured.layouts[: len(fresh)]):
        if number not in places:  # outputs are views of it
            places[number] = len(call.outputs)
            call.outputs.append(Tensor(f"memory.{number}", t))
    call.outputs = [
        replace(t, of=places[t.of]) if t.memory == "of_output" else t for t in call.outputs
    ]
    call.bindings += [Binding("own", places[i]) for i in range(len(fresh))]


def _part(call: Traced, name: str, leaf: torch.Tensor, every: Places) -> Tensor:
    """An output that lies in the memory of something else, or is a constant."""
    storage = leaf.untyped_storage()._cdata
    bases = [(t, bound) for t, bound in every if t.untyped_storage()._cdata == storage]
    if not bases:
        call.weights.append((name, leaf.detach()))  # which the program holds, and no graph reads
        return Tensor(name, type_of(leaf), False, "of_weight", len(call.weights) - 1)
    if any(t.dtype != leaf.dtype for t, _ in bases) or sizes_of(call.captured.graph):
        told = "a shape that sizes decide" if sizes_of(call.captured.graph) else "another dtype"
        raise CaptureError(f"output {name} is a view of other memory with {told}")
    whole = [row for row in bases if row[0] is leaf]
    owners = {bound.of if bound.memory == "of_input" else bound.memory for _, bound in bases}
    if not whole and len(owners) > 1:
        raise CaptureError(f"output {name} is a view of memory that arguments share")
    for base, bound in whole or bases:
        at = int(leaf.storage_offset()) - int(base.storage_offset())
        if 0 <= at <= type_of(base).span - type_of(leaf).span:
            return Tensor(name, type_of(leaf), False, bound.memory, bound.of, at)
    raise CaptureError(f"output {name} is a view of more than the program is given")


# --- sizes


def _sizes(call: Traced) -> None:
    """Finds each size as a dimension of an input."""
    for node in sizes_of(call.captured.graph).values():
        found = (
            (i, d)
            for i, t in enumerate(call.inputs)
            for d, n in enumerate(t.type.shape)
            if isinstance(n, Size) and n.term is node
        )
        place = next(found, None)
        if place is None:
            raise CaptureError(f"the size {node.op.label} is a dimension of no input by itself")  # type: ignore[attr-defined]
        call.sizes[node] = place
