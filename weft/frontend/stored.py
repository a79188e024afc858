"""What was captured of FX graphs, kept on disk: a later process traces none of them again.

key = store.key(graph, inputs, names)        # None: something in it has no text that says it all
store.save(key, packed(captured))
captured = unpacked(store.load(key))         # None where there is none

A key says all that tracing reads: every node and its line, what is assumed of inputs, torch's
switches, the versions of torch and weft. A graph with anything else in it (bodies, hooks, operators
or functions that are not torch's own, numbers read from tensors) is not kept.
"""

# This file reaches into torch: its switches have no public names for all of it.
# pyright: reportPrivateUsage=false

import hashlib
import pickle
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.autograd_cache import check_node_safe
from torch._guards import TracingContext
from torch._ops import OpOverload, OpOverloadPacket
from torch.fx.node import _get_qualified_name
from torch.overrides import _get_current_function_mode_stack
from torch.utils._pytree import tree_structure, tree_unflatten

from weft.core.node import Graph, make
from weft.frontend.assumptions import ANY, EXACT, PLAIN, Assumptions
from weft.frontend.capture import Name
from weft.frontend.graph import Captured, Placeholder
from weft.frontend.lines import innermost_line
from weft.frontend.parts import FX

OWN_OPERATORS = ("aten::", "prims::")  # those of torch: others may change under their names
HOMES = {"torch", "_operator", "math", "getattr"}  # of functions that torch's version tells
# What Dynamo notes at nodes, of which the trace reads nothing, or only what is in the key.
NOTED = {
    "example_value", "stack_trace", "nn_module_stack", "source_fn_stack", "original_aten",
    "from_node", "seq_nr", "torch_fn", "grapharg", "is_wrapped", "val", "tensor_meta",
    "unbacked_bindings", "tensor_dict", "steal_arg", "creation_timestamp", "autograd_backward",
}  # fmt: skip


class Untold(Exception):
    """A part of a program that the key cannot say."""


@dataclass(frozen=True)
class Store:
    """Where captured programs are kept; `facts` is what decides them beside graph and torch."""

    facts: tuple[Any, ...]
    read: Callable[[str], bytes | None]
    write: Callable[[str, bytes], None]

    def key(
        self, graph: FX, inputs: Sequence[Any], names: Sequence[Name] | None, *how: Any
    ) -> str | None:
        """A digest of all that decides what is made of the graph; None where that has no text."""
        try:
            lines = [*_nodes(graph), *_inputs(inputs), repr(names), repr(_switches())]
        except Untold:
            return None
        text = "\n".join((*lines, repr(how), *map(repr, self.facts)))
        return hashlib.sha256(text.encode()).hexdigest()

    def load(self, key: str | None) -> Any:
        """What was saved under the key; None where there is nothing, or it cannot be read."""
        data = None if key is None else self.read(key)
        try:
            found = None if data is None else pickle.loads(data)
        except Exception:  # whatever a torn file makes of the classes that it names
            found = None
        if key is not None:
            counters["weft"]["stored_hit" if found is not None else "stored_miss"] += 1
        return found

    def save(self, key: str, value: Any) -> None:
        """Keep a value; one that pickle does not take is not kept."""
        with suppress(pickle.PicklingError, TypeError, AttributeError):
            self.write(key, pickle.dumps(value))


# --- the key --------------------------------------------------------------------------------------


def _nodes(graph: FX) -> list[str]:
    """A line for each node."""
    if any(True for _ in graph.children()) or graph.graph.find_nodes(op="get_attr"):
        raise Untold("a graph that holds tensors or graphs")
    number: dict[torch.fx.Node, int] = {}
    lines: list[str] = []
    for n in graph.graph.nodes:
        if not NOTED.issuperset(n.meta) or n.meta.get("is_wrapped"):
            raise Untold(f"a node with notes of somebody: {sorted(n.meta)}")
        try:
            check_node_safe(n)  # torch's own list of what its cache may hold
        except Exception as error:
            raise Untold(str(error)) from error
        place = innermost_line(n.stack_trace, library=True)
        told = _told((n.args, n.kwargs), number)
        lines.append(f"{n.op} {_target(n)} {told} {place!r}")
        number[n] = len(number)
    return lines


def _target(n: torch.fx.Node) -> str:
    """What a node calls, by a name that leads to that very object."""
    target: Any = n.target
    if isinstance(target, str):
        return target
    if isinstance(target, OpOverload | OpOverloadPacket):
        name = target.name() if isinstance(target, OpOverload) else target._qualified_op_name
        if name.startswith(OWN_OPERATORS):
            return f"{type(target).__name__} {target}"
        raise Untold(f"the operator {name}")
    name = _get_qualified_name(target)
    home, _, rest = name.partition(".")
    with_home = sys.modules.get(home) if rest else sys.modules["builtins"]
    try:
        found = attrgetter(rest or home)(with_home)
    except AttributeError:
        found = None
    if home not in HOMES or found is not target:
        raise Untold(f"the function {name}")
    return name


def _told(value: Any, number: dict[torch.fx.Node, int]) -> str:
    """An argument as text: equal texts are equal arguments."""
    if isinstance(value, torch.fx.Node):
        return f"%{number[value]}"
    if isinstance(value, slice):
        return f"slice{_told((value.start, value.stop, value.step), number)}"
    if isinstance(value, tuple | list):
        inner = ", ".join(_told(v, number) for v in value)
        return f"{type(value).__name__}({inner})"
    if isinstance(value, dict):
        inner = ", ".join(f"{k!r}: {_told(v, number)}" for k, v in value.items())
        if all(type(k) is str for k in value):
            return f"{{{inner}}}"
    if type(value) in (*EXACT, float, complex, type(...)):
        return repr(value)
    raise Untold(f"an argument of type {type(value).__name__}")


def _inputs(inputs: Sequence[Any]) -> list[str]:
    assumed = Assumptions.of(inputs)
    if assumed.sharing or assumed.wrappers or _get_current_function_mode_stack():
        raise Untold("inputs that share a storage, or a mode that sees calls")
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:  # type: ignore[attr-defined]
        raise Untold("hooks of saved tensors")
    context = TracingContext.try_get()
    if context is not None and (context.fakify_first_call or context.ddp_optimizer_ctx is not None):
        raise Untold("a part of a model that DDP has cut")
    lines = [repr(assumed.modes)]
    for value, fact in zip(inputs, assumed.inputs, strict=True):
        if isinstance(value, torch.Tensor):
            plain = type(value) in PLAIN and value.layout is torch.strided
            if not plain or value.is_quantized or ANY in (*fact[1], *fact[2]):
                raise Untold("a tensor of a kind of its own")
            place = value.storage_offset(), value.untyped_storage().nbytes()
            more = (*place, value.is_leaf, value.requires_grad, value.is_inference())
            lines.append(f"{fact[1:]} {more}")
        else:
            lines.append(_told(value, {}))
    return lines


def _switches() -> tuple[Any, ...]:
    """What else of torch's state a trace may read."""
    b = torch.backends
    kinds = b.cuda.flash_sdp_enabled, b.cuda.mem_efficient_sdp_enabled, b.cuda.math_sdp_enabled
    return (
        torch.__version__, torch.version.git_version, sys.version, functorch_config.get_hash(),
        torch._C._get_mkldnn_enabled(), torch._C._has_mkldnn, b.cpu.get_cpu_capability(),
        *(enabled() for enabled in kinds), b.cuda.cudnn_sdp_enabled(), b.cudnn.enabled,
        torch.get_float32_matmul_precision(), b.opt_einsum.enabled, b.opt_einsum.strategy,
        b.opt_einsum.is_available(), torch.is_inference_mode_enabled(),
        torch.is_anomaly_enabled(), torch.is_autocast_cache_enabled(), torch.get_num_threads(),
        torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
    )  # fmt: skip


# --- the value ------------------------------------------------------------------------------------


def packed(captured: Captured) -> tuple[Any, ...] | None:
    """What pickle takes, and `unpacked` gives again; None where it knows values of this process."""
    literals = any(p.tensor is not None for p in captured.placeholders)
    if captured.numbers or captured.sizes or literals:
        return None
    graph = captured.graph
    number = {node: i for i, node in enumerate(graph.nodes())}
    rows = [(node.op, [number[a] for a in node.args]) for node in number]
    ends = [number[n] for n in graph.inputs], [number[n] for n in graph.outputs]
    both = graph.names, graph.origin
    told = [{number[n]: text for n, text in d.items() if n in number} for d in both]
    places = [(p.position, p.fixed, p.region) for p in captured.placeholders]
    tree = tree_unflatten(range(len(captured.leaves)), captured.out_tree)
    rest: Any = {"graph": None, "placeholders": places, "out_tree": tree}
    rest = replace(captured, **rest)
    return rows, ends, told, rest


def unpacked(found: tuple[Any, ...], title: str) -> Captured:
    """The program again, its nodes interned in this process."""
    rows, (inputs, outputs), told, rest = found
    nodes: list[Any] = []
    for op, args in rows:
        nodes.append(make(op, *[nodes[i] for i in args]))
    first, last = (tuple(nodes[i] for i in ends) for ends in (inputs, outputs))
    names, origin = ({nodes[i]: text for i, text in d.items()} for d in told)
    both = zip(first, rest.placeholders, strict=True)
    places = [Placeholder(n, at, fixed, region=region) for n, (at, fixed, region) in both]
    graph = Graph("torch", title, first, last, names, origin)
    tree = tree_structure(rest.out_tree)
    return replace(rest, graph=graph, placeholders=places, out_tree=tree, seconds=0.0)
