"""Tensor level to loop level: each group of outputs becomes one nest.

program = lower(graph, groups)      # groups from fuse.partition: which tensors share a kernel
The nest follows from the terms: a reduction runs in the outermost block that binds what it reads,
reductions over the same axes share a loop, a loop is opened where an output first needs it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from weft.core.node import Graph, Node, make, op_of
from weft.core.text.graph import fresh
from weft.core.types import DType, Symbolic, TensorType
from weft.scalar import nest
from weft.scalar.blocks import Index, loads, nodes
from weft.scalar.collectives import awaited
from weft.scalar.intervals import Interval
from weft.scalar.monoid import LAST
from weft.scalar.ops import CASTS, apply, axis, checked_index, constant, value_of
from weft.scalar.structure import renumber
from weft.tensor.nests import Leaf, Nest
from weft.tensor.ops import (
    ALONE,
    Extern,
    Input,
    Map,
    Part,
    Scan,
    Scatter,
    Select,
    Sort,
    View,
    box,
    positions,
)
from weft.tensor.places import by_winners
from weft.tensor.ragged import RunOf, Runs
from weft.tensor.recurrence import Recurrence
from weft.tensor.repeats import Repeating, parts_of
from weft.tensor.runs import fills, folds
from weft.tensor.scatters import Tables, by_table, one_table
from weft.tensor.segments import by_segments
from weft.tensor.selection import selections
from weft.tensor.sorts import Buffers, Made, sorting_kernels, ways_to_sort
from weft.tensor.terms import Terms, stored

Group = tuple[Node, ...]  # the outputs of a kernel
Layouts = tuple[TensorType, ...]  # types of a program's outputs, with their strides


class Roads(NamedTuple):
    """What decides how scatters and sorts are computed.

    `tables` is the above. `atomic` is whether the scatter of that name goes by atomic stores, of
    its nest by tables and these; `sorting` the way that a sort of that name goes, of the nests of
    each. `blocks`: in how many a row may be sorted. `segments` is whether the scatter of that name
    goes by segments, of its nest by tables and what take as long; `cache`: bytes of what is
    read that are to stay near, 0 where no scatter goes so. `within`: groups of a recurrence's body.
    """

    tables: Tables
    atomic: Callable[[str, nest.Block, Sequence[nest.Block]], bool]
    sorting: Callable[[str, Mapping[str, Sequence[nest.Block]]], str]
    blocks: Sequence[int] = (1,)
    segments: Callable[[str, nest.Block, Sequence[nest.Block]], bool] = lambda *_: False
    cache: int = 0
    within: Callable[[Graph], list[Group]] | None = None


BY_TABLE = Roads(one_table, lambda *_: False, lambda _, ways: next(iter(ways)))


def root_shape(outputs: Group) -> tuple[int, ...] | None:
    """The iteration space that the outputs share; None when their shapes do not align.

    Shapes align where they differ only in axes of length 1: (16, 64), (16, 1) and (16,). Where some
    have fewer axes, one has the whole space.
    """
    placed = _placed(outputs)
    axes = range(1 + max((a for s in placed for a in s), default=-1))
    shapes = [[s.get(a, 1) for a in axes] for s in placed]
    root = [*map(_common, zip(*shapes, strict=True))]
    fits = all(d in (1, r) for s in shapes for d, r in zip(s, root, strict=True))
    whole = len({*map(len, placed)}) == 1 or root in shapes
    return tuple(root) if (fits and whole) or all(0 in s for s in shapes) else None


def _placed(outputs: Group) -> list[dict[int, int]]:
    """The extents of each output, by the axes of the iteration space."""
    same = len({o.type.rank for o in outputs}) == 1
    places = (range(o.type.rank) if same else _kept(o) for o in outputs)
    return [dict(zip(p, o.type.shape, strict=True)) for p, o in zip(places, outputs, strict=True)]


def _kept(output: Node) -> Sequence[int]:
    """The axes that a view keeps, where those that it drops have one element; else the first."""
    op, every = output.op, range(output.type.rank)
    if isinstance(op, View) and op.valid is None and output.args[0].type.size == output.type.size:
        kept = [a for a, t in enumerate(op.index) if value_of(t) is None]
        return kept if tuple(op.index[a] for a in kept) == positions(len(every)) else every
    return every


def _common(extents: Sequence[int]) -> int:
    """The longest; a size is longer than 1, and fits nothing but itself and 1."""
    sizes = [n for n in extents if isinstance(n, Symbolic)]
    return sizes[0] if sizes else max(extents)


def elements(outputs: Group) -> tuple[dict[Node, Interval], list[tuple[Node, Index]]]:
    """The ranges of the axes that outputs of one kernel share, and the index of each output."""
    root = root_shape(outputs)
    assert root is not None
    ranges, zero = box(root, "o"), constant(0)
    at = [tuple(axis(f"o{a}") if d != 1 else zero for a, d in s.items()) for s in _placed(outputs)]
    return ranges, [*zip(outputs, at, strict=True)]


def lower_group(
    outputs: Group, buffers: Buffers, written: Buffers, tables: Tables = one_table
) -> nest.Block:
    """The nest that computes a group's outputs in `written` from tensors in `buffers`."""
    op = outputs[0].op
    if isinstance(op, ALONE) and 0 in outputs[0].type.shape:
        return ()
    if isinstance(op, Sort):
        return tuple(s for *_, body in sorting_kernels(outputs, buffers, written) for s in body)
    if isinstance(op, Select):
        return selections(outputs[0], buffers, written[outputs[0]])["digits"]
    if isinstance(op, Runs):
        return folds(outputs[0], buffers, written[outputs[0]])
    if isinstance(op, RunOf):
        return fills(outputs[0], buffers, written[outputs[0]])
    if isinstance(op, Scan):
        return _lower_scan(outputs, op, buffers, written)
    if isinstance(op, Scatter):
        return by_table(outputs[0], op, buffers, written, tables)
    ranges, wanted = elements(outputs)
    terms = Terms({n: b for n, b in buffers.items() if n not in outputs}, ranges)
    leaves: list[Leaf] = []
    for node, index in wanted:
        shape = node.type.shape
        if 0 in shape:  # nothing to store
            continue
        value = terms.of(node, index, stored=False)
        loops = tuple((a, d, "free") for a, d in zip(index, shape, strict=True) if d != 1)
        leaves.append(Leaf(loops, nest.Store(written[node], index, stored(value, node.type.dtype))))
    return renumber(Nest().block(leaves, frozenset()))


def _lower_scan(outputs: Group, scan: Scan, buffers: Buffers, written: Buffers) -> nest.Block:
    """One fold, whose results the outputs are."""
    shape = outputs[0].type.shape
    ranges = box(shape, "o")
    index = tuple(ranges)
    value = Terms(buffers, ranges).of(outputs[0].args[0], index)
    folded = (value, index[scan.axis]) if scan.monoid.indexed else (value,)
    dtypes = scan.monoid.carriers(tuple(v.type.dtype for v in folded))
    fold = nest.Fold(tuple(f"acc{k}" for k in range(len(dtypes))), scan.monoid, dtypes)
    results = scan.monoid.project(fold.running)
    stmts: list[nest.Update | nest.Store] = [nest.Update(fold, folded)]
    for node in outputs:
        value = stored(results[op_of(node, Scan).result], node.type.dtype)
        stmts.append(nest.Store(written[node], index, value))
    loops = [(a, d, "free") for a, d in zip(index, shape, strict=True)]
    loops.append((*loops.pop(scan.axis)[:2], "scan"))
    leaves = [Leaf(tuple(loops), stmt) for stmt in stmts]
    return renumber(Nest(len(dtypes)).block(leaves, frozenset()))


def _kernels(
    group: Group, buffers: Buffers, written: Buffers, roads: Roads, taken: set[str]
) -> list[Made]:
    """The kernels of a group: one, but where atomic stores fold the values of a scatter."""
    made = tuple(written[n] for n in group)
    if isinstance(group[0].op, Sort) and 0 not in group[0].type.shape:
        ways = ways_to_sort(group[0], roads.blocks)
        by = partial(sorting_kernels, group, buffers, written, taken=taken)
        nests = {name: [body for *_, body in by(way, priced=True)] for name, way in ways.items()}
        kernels = by(ways[roads.sorting(made[0].name, nests)])
        taken.update(b.name for _, outputs, _ in kernels for b in outputs)
        return kernels
    if isinstance(group[0].op, Select) and made[0].type.size:
        nests = selections(group[0], buffers, made[0])
        way = roads.sorting(made[0].name, {name: [body] for name, body in nests.items()})
        return [(made[0].name, made, nests[way])]
    body = lower_group(group, buffers, written, roads.tables)
    whole = [(made[-1].name, made, body)]
    if not isinstance(group[0].op, Scatter) or 0 in (made[0].type.size, group[0].args[2].type.size):
        return whole
    if roads.cache:
        near = roads.tables, roads.cache
        kernels, takes = by_segments(group[0], buffers, made[0], taken, *near)
        if kernels and roads.segments(made[0].name, body, takes):
            taken.update(b.name for _, outputs, _ in kernels for b in outputs)
            return kernels
    last = group[0].op.monoid is LAST
    parts = (_by_winners if last else _by_atomics)(group[0], buffers, made[0], taken)
    return parts if roads.atomic(made[0].name, body, [nest for *_, nest in parts]) else whole


def _by_winners(node: Node, buffers: Buffers, out: nest.Buffer, taken: set[str]) -> list[Made]:
    """Kernels that find the last value of each place in any order, and one that reads it."""
    last, result = by_winners(node)
    found = nest.Buffer(fresh(f"{out.name}_last", taken), last.type)
    read = lower_group((result,), {**buffers, last: found}, {result: out})
    return [*_by_atomics(last, buffers, found, taken), (out.name, (out,), read)]


def _by_atomics(node: Node, buffers: Buffers, out: nest.Buffer, taken: set[str]) -> list[Made]:
    """Kernels that store the base, combine values with it in any order, and round to 16 bits."""
    op, (base, index, x), dtype = op_of(node, Scatter), node.args, out.type.dtype.compute
    sums = nest.Buffer(fresh(f"{out.name}_sums", taken), TensorType(dtype, node.type.shape))
    sums = out if dtype is out.type.dtype else sums
    ranges, ((_, at),) = elements((x,))
    terms = Terms(buffers, ranges)
    rows = node.type.shape[op.axis]
    row = apply(checked_index, terms.of(index, at), constant(rows + op.beyond))
    inside = apply("lt", row, constant(rows)) if op.beyond else None
    place, how = (*at[: op.axis], row, *at[op.axis + 1 :]), f"atomic_{op.monoid.function}"
    store = nest.Store(sums, place, terms.of(x, at), inside, how)
    loops = tuple((a, n, "free") for a, n in zip(at, x.type.shape, strict=True) if n != 1)
    combine = renumber(Nest().block([Leaf(loops, store)], frozenset()))
    first, last = _copy(base, dtype), _copy(node, out.type.dtype)
    fill = lower_group((first,), buffers, {first: sums})
    parts = [(fresh(f"{out.name}_start", taken), (sums,), fill), (sums.name, (sums,), combine)]
    rounded = (out.name, (out,), lower_group((last,), {node: sums}, {last: out}))
    return parts if sums is out else [*parts, rounded]


def _copy(node: Node, dtype: DType) -> Node:
    """A tensor of the same elements, which is stored anew."""
    same = make(View(node.type.shape, positions(node.type.rank)), node)
    return same if dtype is node.type.dtype else make(Map(CASTS[dtype]), same)


def lower(
    graph: Graph, groups: list[Group], layouts: Layouts | None = None, roads: Roads = BY_TABLE
) -> nest.Program:
    """The loop program of a partitioned graph; `groups` are in an order that respects data flow.

    `layouts` has each output's strides. Every output has memory of its own: one that is an input,
    or is returned twice, is copied. `roads` sizes the tables of scatters, or declines them.
    """
    taken = {n.op.label for n in graph.inputs}  # type: ignore[attr-defined]

    def name(node: Node) -> str:
        return fresh(graph.names.get(node, node.op.name), taken)

    wanted = layouts or tuple(o.type for o in graph.outputs)
    called = {a for group in groups if isinstance(group[0].op, Extern) for a in group[0].args}
    placed = [p for p in zip(graph.outputs, wanted, strict=True) if p[0] not in called]
    direct = dict(reversed(placed))  # its first layout; externs read row-major
    buffers: dict[Node, nest.Buffer] = {
        n: nest.Buffer(n.op.label, n.op.tensor) for n in graph.inputs if isinstance(n.op, Input)
    }
    steps: list[nest.Step] = []
    for group in groups:
        if isinstance(group[0].op, Extern):
            call = _lower_call(group, buffers, name(group[0]), taken)
            steps.append(replace(call, origin=graph.origin.get(group[0], "")))
            continue
        stored = (n for n in group if not isinstance(n.op, Recurrence))
        written = {n: nest.Buffer(name(n), direct.get(n) or n.type) for n in stored}
        if isinstance(group[0].op, Recurrence):
            steps += _lower_recurrence(group, buffers, written, name(group[0]), roads, taken)
            buffers.update(written)
            continue
        lines = tuple(dict.fromkeys(graph.origin[n] for n in group if n in graph.origin))
        for title, made, body in _kernels(group, buffers, written, roads, taken):
            reads = tuple(b for b in loads(*nodes(body)) if b.space == "global")
            steps.append(nest.Kernel(title, reads, made, body, lines))
        buffers.update(written)
    outputs: list[nest.Buffer] = []
    for node, layout in zip(graph.outputs, wanted, strict=True):
        buffer = buffers[node]
        if node in graph.inputs or buffer in outputs or buffer.type.layout != layout.layout:
            buffer = nest.Buffer(fresh(f"{graph.names.get(node, 'out')}_copy", taken), layout)
            copy = _copy(node, layout.dtype)
            body = lower_group((copy,), buffers, {copy: buffer})
            steps.append(nest.Kernel(buffer.name, loads(*nodes(body)), (buffer,), body))
        outputs.append(buffer)
    inputs = tuple(buffers[n] for n in graph.inputs)
    return nest.Program("loop", graph.name, inputs, tuple(outputs), awaited(steps))


def _lower_recurrence(
    group: Group, buffers: Buffers, written: Buffers, name: str, roads: Roads, taken: set[str]
) -> Iterator[nest.Step]:
    """Its body's kernels, repeated, after copies of what is carried first where strides differ."""
    assert roads.within is not None
    node, results = group[0], {i: written[n] for i, n in parts_of(group).items()}
    one = Repeating(node, [buffers[a] for a in node.args], results, taken)
    for i, operand in enumerate(node.args[: one.op.carried]):
        wanted, found = one.layout(i), one.operands[i]
        if found.type.layout != wanted.layout:
            copied = nest.Buffer(fresh(f"{found.name}_copy", taken), wanted)
            body = lower_group((copy := _copy(operand, wanted.dtype),), buffers, {copy: copied})
            yield nest.Kernel(copied.name, loads(*nodes(body)), (copied,), body)
            one.operands[i] = copied
    body, layouts = one.body()
    yield one.repeat(name, lower(body, roads.within(body), layouts, roads))


def _lower_call(
    group: Group, buffers: dict[Node, nest.Buffer], stem: str, taken: set[str]
) -> nest.Call:
    node, *parts = group
    call = op_of(node, Extern)
    results = [nest.Buffer(fresh(stem, taken), t) for t in call.results]
    buffers |= {part: results[part.op.number] for part in parts if isinstance(part.op, Part)}
    if len(results) == 1:
        buffers[node] = results[0]
    inputs = tuple(buffers[a] for a in node.args)
    return nest.Call(call.target, call.arguments, inputs, tuple(results), call.reason)
