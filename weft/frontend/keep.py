"""What a forward graph keeps for its backward: AOTAutograd's joint graph is cut in two.

forward, backward = partition(joint, inputs, num_fwd_outputs=1)

The cut is torch's minimal one (min-cut rematerialization); here the graph is made ready for it.
"""

# pyright: reportPrivateUsage=false

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any
from unittest.mock import patch

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import iinfo
from torch._functorch import compile_utils, partitioners
from torch._functorch.compile_utils import fx_graph_cse
from torch._ops import OpOverload
from torch.utils.checkpoint import CheckpointPolicy

from weft.core.node import bottom_up
from weft.frontend.schema import aten, chain_of, effect

FX = torch.fx.GraphModule

_OPS = partitioners.get_default_op_list
NARROW = (torch.uint8, torch.int16, torch.int32)


def _last_of(*axes: int) -> Callable[[torch.fx.Node], Any]:
    """The last position in the axes of a call's first operand."""
    return lambda call: prod(call.args[0].meta["val"].shape[a] for a in axes) - 1  # type: ignore[union-attr]


# Calls whose second result are positions, by the last one there may be.
POSITIONS = {
    aten.max_pool2d_with_indices.default: _last_of(-2, -1),
    aten.max_pool3d_with_indices.default: _last_of(-3, -2, -1),
    aten.adaptive_max_pool2d.default: _last_of(-2, -1),
    aten.adaptive_max_pool3d.default: _last_of(-3, -2, -1),
}

# Backward formulas of which the second operand is read for its shape alone, and which have rows.
SHAPED = {
    aten.max_pool2d_with_indices_backward.default,
    aten.max_pool3d_with_indices_backward.default,
    aten.avg_pool2d_backward.default,
    aten.avg_pool3d_backward.default,
    aten.adaptive_max_pool2d_backward.default,
    aten.adaptive_max_pool3d_backward.default,
    aten._adaptive_avg_pool2d_backward.default,
    aten._adaptive_avg_pool3d_backward.default,
}


# Calls that cost nothing where the result is read: of one tensor and a number.
SCALED = {aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar, aten.neg.default}

# Calls that only move elements, and cost nothing where the result is read.
COPIES = {aten.cat.default, aten.repeat.default, aten.constant_pad_nd.default}


def partition(joint: FX, inputs: Sequence[Any], *, num_fwd_outputs: int, **options: Any) -> Any:
    """Forward and backward; what is compared for equality is made of one tensor in memory.

    Random bits are computed again.

    The gradient of amax looks for elements equal to it. A sum computed again may be another in its
    last bit, then none is: the tensor is kept, and its largest element is found again.
    """
    for node in joint.graph.find_nodes(op="call_function", target=aten.detach.default):
        node.replace_all_uses_with(node.args[0])  # the partitioner would keep both
        joint.graph.erase_node(node)
    with _collectives_apart(joint.graph):
        joint.graph = fx_graph_cse(joint.graph)  # before it is asked what backward formulas read
    _forget_values(joint.graph)
    _narrow_positions(joint.graph)
    again: set[torch.fx.Node] = set()
    operands: set[torch.fx.Node] = set()
    for node in joint.graph.nodes:
        if node.target in (aten.eq.Tensor, aten.ne.Tensor) and _is_float(node.args[0]):
            pair = [_base(operand) for operand in node.all_input_nodes]
            operands.update(n for n in pair if n.op == "call_function")
            again.add(node)
            again.update(n for first in pair for last in pair for n in _path(first, last))
    bits = [n for n in joint.graph.nodes if n.target is torch.ops.weft.philox.default]
    again.update(bits)  # which take nothing but a seed
    operands.update(n for b in bits for n in b.all_input_nodes)
    again |= _read_again(joint.graph, num_fwd_outputs) - operands
    # A copy is as the input was, which may be written to before it would be copied again.
    copies = {n for n in joint.graph.nodes if n.target in COPIES}
    operands |= {n for n in copies if any(_base(a).op == "placeholder" for a in n.all_input_nodes)}
    for node in operands - again:
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    for node in again:
        node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    options["num_fwd_outputs"] = num_fwd_outputs
    known = patch.object(partitioners, "get_default_op_list", partial(_known, joint.graph))
    with known, _collectives_apart(joint.graph):
        return min_cut_rematerialization_partition(joint, inputs, **options)


def _collectives_apart(graph: torch.fx.Graph) -> Any:
    """While it lasts torch makes no two equal collectives one: others would wait for the second."""
    calls = {n.target for n in graph.nodes if isinstance(n.target, OpOverload)}
    ordered = [t.overloadpacket for t in calls if chain_of(t) == "collective"]
    return patch.object(compile_utils, "rand_ops", [*compile_utils.rand_ops, *ordered])


def _known(graph: torch.fx.Graph) -> partitioners.OpTypes:
    """What the cut knows of ops: all views are views, and copies may be made again.

    Torch's own knows views by name, without transpose, and makes few copies again.
    """
    plain = _OPS()
    calls = [n.target for n in graph.nodes if isinstance(n.target, OpOverload)]
    views = {t.overloadpacket for t in calls if effect(t) == "view"}
    moves = views | {t.overloadpacket for t in COPIES}
    fused, again = plain.fusible_ops | moves, plain.recomputable_ops | moves
    view_ops = plain.view_ops | views
    return replace(plain, fusible_ops=fused, recomputable_ops=again, view_ops=view_ops)


def _forget_values(graph: torch.fx.Graph) -> None:
    """Have zeros stand for operands of which a backward reads the shape alone."""
    for target in SHAPED:
        for call in graph.find_nodes(op="call_function", target=target):
            value = call.args[1].meta["val"]
            if all(isinstance(n, int) for n in value.shape):
                with graph.inserting_before(call):
                    how = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
                    zeros = graph.call_function(aten.full.default, ([*value.shape], 0), how)
                with value.fake_mode:
                    zeros.meta["val"] = torch.zeros(value.shape, dtype=value.dtype)
                call.update_arg(1, zeros)


def _narrow_positions(graph: torch.fx.Graph) -> None:
    """Convert positions that a backward reads to the narrowest integers, and back."""
    for target, ends in POSITIONS.items():
        for call in graph.find_nodes(op="call_function", target=target):
            last = ends(call)
            fits = [d for d in NARROW if isinstance(last, int) and last <= iinfo(d).max]
            for node in list(call.users) if fits else ():
                if node.target is operator.getitem and node.args[1] == 1:
                    _through(graph, node, fits[0])


def _through(graph: torch.fx.Graph, node: torch.fx.Node, narrow: torch.dtype) -> None:
    """Have the readers of a node read it by way of another dtype."""
    readers, value = list(node.users), node.meta["val"]
    with graph.inserting_after(node):
        kept = graph.call_function(aten._to_copy.default, (node,), {"dtype": narrow})
    with graph.inserting_after(kept):
        read = graph.call_function(aten._to_copy.default, (kept,), {"dtype": value.dtype})
    with value.fake_mode:
        kept.meta["val"], read.meta["val"] = value.to(narrow), value.clone()
    for reader in readers:
        if reader.op != "output":
            reader.replace_input_with(node, read)


def _read_again(graph: torch.fx.Graph, results: int) -> set[torch.fx.Node]:
    """What is only rearranged, and read where no result needs it, or by others that are.

    What results alone read is not among them: what it is made of would have to be kept.
    """
    forward: dict[Any, None] = {}
    for result in graph.output_node().args[0][:results]:  # type: ignore[index]
        if isinstance(result, torch.fx.Node):
            bottom_up(result, forward, lambda _: None, lambda n: n.all_input_nodes)
    found: set[torch.fx.Node] = set()
    for n in reversed(graph.nodes):
        read = any(u in found or (u not in forward and u.op != "output") for u in n.users)
        if read and _is_rearranged(n):
            found.add(n)
    return found


def _is_rearranged(n: torch.fx.Node) -> bool:
    """Whether a node is a view of one tensor of no more bytes, or a multiple of one that is made
    here: that is as cheap to keep, and others may keep it. An input may be written to.
    """
    known = isinstance(n.target, OpOverload) and len(n.all_input_nodes) == 1
    scaled = n.target in SCALED and _base(n, *SCALED, aten.clone.default).op == "call_function"
    if not known or not (scaled or effect(n.target) == "view"):
        return False
    both = [v.meta["val"] for v in (n, n.all_input_nodes[0])]
    sizes = [t.numel() * t.itemsize for t in both if isinstance(t, torch.Tensor)]  # not of splits
    known = len(sizes) == 2 and all(type(size) is int for size in sizes)
    return known and sizes[0] >= sizes[1]


def _base(n: torch.fx.Node, *others: Any) -> torch.fx.Node:
    """What a node is a view of, by way of calls of others too."""
    while isinstance(n.target, OpOverload) and (effect(n.target) == "view" or n.target in others):
        n = n.all_input_nodes[0]
    return n


def _path(first: torch.fx.Node, last: torch.fx.Node) -> set[torch.fx.Node]:
    """The nodes that make `last` of `first` alone; none where it takes more, or random numbers."""
    path: set[torch.fx.Node] = set()
    waiting = [last]
    while waiting:
        node = waiting.pop()
        if node is first or node in path:
            continue
        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if node.op != "call_function" or not node.all_input_nodes or random:
            return set()
        path.add(node)
        waiting += node.all_input_nodes
    return path


def _is_float(n: Any) -> bool:
    value = n.meta.get("val") if isinstance(n, torch.fx.Node) else None
    return isinstance(value, torch.Tensor) and value.is_floating_point()
