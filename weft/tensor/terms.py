"""Turns tensors into scalar terms over coordinates: fusion is substitution of index maps.

t = Terms(buffers).of(node, (a0, a1))      # add(load x[a0, a1], load bias[a1])
Operands with a buffer become loads; all others are inlined, reductions as `Folded` terms.
"""

from collections.abc import Generator, Mapping
from functools import partial

from weft.core.node import Node, Nodes, Op, bottom_up, make, op
from weft.core.types import DType, ScalarType
from weft.scalar import ops as scalar
from weft.scalar.index import FALSE, TRUE, inside, simplify
from weft.scalar.intervals import Interval
from weft.scalar.monoid import Monoid
from weft.scalar.nest import Buffer, Load
from weft.scalar.ops import CASTS, SAFE, Function, apply, axis, cast, constant, function_of, guarded
from weft.scalar.sizes import is_short
from weft.scalar.wholes import is_exact
from weft.tensor.layouts import Contiguous
from weft.tensor.limits import limits
from weft.tensor.ops import Gather, Index, Map, Reduce, Scalar, View, last_of, moved


@op("folded")
class Folded(Op):
    """One carrier of a reduction's result; `axes` are (label, extent), operands the folded values.

    folded{sum, axes=(("r1_0_64", 64),), carrier=0}(load x[a0, r1_0_64])
    tensor/lower.py turns it into loops over `axes` and an accumulator.
    """

    monoid: Monoid
    axes: tuple[tuple[str, int], ...]
    carrier: int
    finite: bool = False

    def infer(self, *values: ScalarType) -> ScalarType:
        return ScalarType(self.monoid.carriers(tuple(v.dtype for v in values))[self.carrier])

    @property
    def variables(self) -> tuple[Node, ...]:
        return tuple(axis(label) for label, _ in self.axes)


_Request = tuple[Node, Nodes, Node | None]  # a tensor, an element's index, the mask around it
Steps = Generator[_Request, Node, Node]  # yields requests, receives their terms, returns a term


class Terms:
    """The terms of one kernel's tensors; `ranges` gains the axes of each reduction."""

    def __init__(self, buffers: Mapping[Node, Buffer], ranges: dict[Node, Interval]) -> None:
        self.buffers = buffers
        self.ranges = ranges
        self.memo: dict[_Request, Node] = {}
        self.heights: dict[Node, int] = {}
        self.limits: dict[Node, Interval] = {}

    def of(self, node: Node, index: Nodes, mask: Node | None = None, stored: bool = True) -> Node:
        """The term of `node` at `index`; its loads happen only where `mask` holds.

        With stored=False the term computes the node even if that has a buffer, as outputs do.
        """
        wanted = (node, index, mask)
        value = self._known(wanted) if stored else self.memo.get(wanted)
        if value is not None:
            return value
        open_ = [(wanted, self._build(*wanted))]
        while open_:  # a stack, as graphs are deeper than Python's calls may be
            request, steps = open_[-1]
            try:
                needed = next(steps) if value is None else steps.send(value)
            except StopIteration as end:
                value = self.memo[request] = end.value
                open_.pop()
            else:
                value = self._known(needed)
                if value is None:
                    open_.append((needed, self._build(*needed)))
        return self.memo[wanted]

    def _known(self, request: _Request) -> Node | None:
        node, index, mask = request
        if node in self.buffers:
            return self._load(self.buffers[node], index, mask)
        return self.memo.get(request)

    def _load(self, buffer: Buffer, index: Nodes, mask: Node | None) -> Node:
        """A load; masked only where its index may leave the buffer.

        Nothing uses the value where the mask is off, so the address alone must be valid there.
        """
        dtype = buffer.type.dtype
        extents = zip(index, buffer.type.shape, strict=True)
        if mask is None or all(inside(i, n, self.ranges) for i, n in extents):
            return cast(make(Load(buffer), *index), dtype.compute)
        return cast(make(Load(buffer, True), *index, mask, constant(0, dtype)), dtype.compute)

    def _build(self, node: Node, index: Nodes, mask: Node | None) -> Steps:
        """Build the term from those of its operands, which it requests by `yield`."""
        match node.op:
            case Scalar(value=value, dtype=dtype):
                return constant(value, dtype.compute)
            case Map(function=function):
                args: list[Node] = []
                for a in node.args:
                    args.append((yield (a, index if a.type.rank else (), mask)))
                if mask is not None and function in SAFE:
                    args[0] = guarded(function, mask, args[0])
                return apply_wide(function, args, node.args[0].type.dtype)
            case Contiguous():
                return (yield (node.args[0], index, mask))
            case View():
                return (yield from self._view(node, node.op, index, mask))
            case Index(term=term):
                return simplify(moved((term,), index)[0], self.ranges)
            case Gather():
                return (yield from self._gather(node, node.op, index, mask))
            case Reduce():
                return (yield from self._reduce(node, node.op, index, mask))
            case _:
                raise AssertionError(f"{node.op.name} has no term and no buffer")

    def _view(self, node: Node, view: View, index: Nodes, mask: Node | None) -> Steps:
        inner = tuple(simplify(t, self.ranges) for t in moved(view.index, index))
        source = node.args[0]
        valid = simplify(moved((view.valid or TRUE,), index)[0], self.ranges)
        fill = constant(view.fill, node.type.dtype.compute)
        if valid is FALSE:
            return fill
        if valid is TRUE:
            return (yield (source, inner, mask))
        guard = valid if mask is None else apply("and", mask, valid)
        plain = mask is None and source.type.dtype.compute is source.type.dtype
        if plain and source in self.buffers:
            return make(Load(self.buffers[source], True), *inner, guard, fill)
        return apply("where", valid, (yield (source, inner, guard)), fill)

    def _gather(self, node: Node, gather: Gather, index: Nodes, mask: Node | None) -> Steps:
        source, *rows = node.args
        inner: list[Node] = [constant(0)] * source.type.rank
        for a, tensor in zip(gather.axes, rows, strict=True):
            row = yield (tensor, index, mask)
            extent = constant(source.type.shape[a])
            if gather.wraps:
                row = apply("where", apply("lt", row, constant(0)), apply("add", row, extent), row)
            low, high = limits(tensor, self.limits)
            if low >= 0 and is_short(source.type.shape[a]) and high < source.type.shape[a]:
                inner[a] = row  # although it may be stored, which does not tell
                continue
            row = row if mask is None else guarded(scalar.checked_index, mask, row)
            inner[a] = simplify(apply(scalar.checked_index, row, extent), self.ranges)
        left = [a for a in range(source.type.rank) if a not in gather.axes]
        for a, out_axis in zip(left, gather.rest, strict=True):
            inner[a] = index[out_axis]
        value = yield (source, tuple(inner), mask)
        # An axis of length 1 drops out of the address, and its check with it: `where` keeps that.
        for a in gather.axes:
            if source.type.shape[a] == 1 and inner[a] is not constant(0):
                found = apply("eq", inner[a], constant(0))
                value = apply("where", found, value, constant(0, value.type.dtype))
        return value

    def height(self, node: Node) -> int:
        """The depth of nested reductions below a node in this kernel.

        It is part of axis labels, so that sibling reductions share axes.
        """

        def below(n: Node) -> list[Node]:
            return [a for a in n.args if a not in self.buffers]

        def compute(n: Node) -> int:
            return max((self.heights[a] for a in below(n)), default=0) + isinstance(n.op, Reduce)

        return bottom_up(node, self.heights, compute, below)

    def _reduce(self, node: Node, reduce: Reduce, index: Nodes, mask: Node | None) -> Steps:
        source = node.args[0]
        if any(source.type.shape[a] == 0 for a in reduce.axes):  # no element to read
            identity = reduce.monoid.identity((source.type.dtype.compute,))
            return reduce.monoid.project(identity)[0]
        level = self.height(node)
        inner, axes = list(index), []
        position_term: Node = constant(0)
        for k, a in enumerate(sorted(reduce.axes)):
            extent = source.type.shape[a]
            if extent == 1:
                inner[a] = constant(0)
                continue
            label = f"r{level}_{k}_{extent}"
            inner[a] = axis(label)
            self.ranges[inner[a]] = (0, last_of(extent))
            axes.append((label, extent))
            scaled = apply("multiply", position_term, constant(extent))
            position_term = simplify(apply("add", scaled, inner[a]), self.ranges)
        value = yield (source, tuple(inner), mask)
        values = (value, position_term) if reduce.monoid.indexed else (value,)
        carriers = reduce.monoid.carriers(tuple(v.type.dtype for v in values))
        if not axes:
            terms = reduce.monoid.lift(values)
        else:
            one = partial(Folded, reduce.monoid, tuple(axes), finite=reduce.finite)
            terms = tuple(make(one(c), *values) for c in range(len(carriers)))
        return reduce.monoid.project(terms)[0]


def stored(term: Node, dtype: DType) -> Node:
    """The term cast to the dtype of a buffer; cancels a widening from it or a rounding to it."""
    widened = function_of(term) == str(dtype.compute) and term.args[0].type.dtype is dtype
    if widened or function_of(term) == f"round_{dtype}":
        term = term.args[0]
    return cast(term, dtype)


def apply_wide(function: Function, args: list[Node], source: DType) -> Node:
    """Apply a function in compute precision; a cast to a 16-bit float becomes a rounding in f32."""
    if function not in CASTS.values():
        if source.bits == 16 and source.name in function.domain:  # it takes the stored dtype
            args = [stored(a, source) for a in args]
        return apply(function, *args)
    target = function.result
    assert isinstance(target, DType)
    value = cast(args[0], target.compute)
    if target in (target.compute, source) or (target.is_float and is_exact(value, target)):
        return value
    return apply(f"round_{target}", value)


def is_stored_only(node: Node) -> bool:
    """Whether a node has no term, so that it needs a buffer."""
    return not isinstance(node.op, Scalar | Map | View | Index | Gather | Reduce | Contiguous)
