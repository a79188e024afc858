"""Terms in the hardware's words: flat addresses, and lanes for the vector axis.

v = Lanes_(Vector(a1, base, 16, None), ranges).term(load x[a0, a1])     # load{16} x[a0 * 64 + base]
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.core.node import Node, bottom_up, make, postorder, substitute
from weft.core.types import TensorType, i32, i64
from weft.kernel.ops import Permute, Splat, VectorLoad, VectorStore, lanes_of
from weft.scalar.affine import from_linear, function_of, linear, plus
from weft.scalar.blocks import address
from weft.scalar.index import FALSE, TRUE, simplify
from weft.scalar.intervals import Interval
from weft.scalar.nest import Buffer, Load, Stmt, Store, free_variables
from weft.scalar.ops import (
    CASTS,
    FUNCTIONS,
    SAFE,
    Axis,
    Constant,
    Symbol,
    apply,
    constant,
    guarded,
    value_of,
)
from weft.scalar.reach import bounds
from weft.scalar.symbols import bounded
from weft.tile.analysis.access import stride_along, window
from weft.tile.lower.tables import Table, table

FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
FAR = 1 << 62  # where no index is


@dataclass(frozen=True)
class Vector:
    """The axis that runs over lanes: lane i is iteration base + i; only `count` lanes if given."""

    axis: Node
    base: Node
    lanes: int
    count: Node | None
    role: str


def flat(buffer: Buffer) -> Buffer:
    """The buffer as the kernel level sees it: a run of elements."""
    return replace(buffer, type=TensorType(buffer.type.dtype, (buffer.type.span,)))


class Lowering:
    """Rewrites terms and stores under a vector axis (or none) to the kernel level."""

    def __init__(self, vector: Vector | None, ranges: Mapping[Node, Interval]) -> None:
        self.vector, self.ranges, self.known = vector, ranges, ranges
        if vector is not None:
            low, high = bounds(vector.base, ranges)
            self.known = {**ranges, vector.axis: (low, high + vector.lanes - 1)}
        self.memo: dict[Node, Node] = {}
        self.words: dict[Node, Node] = {}

    def term(self, node: Node) -> Node:
        return bottom_up(node, self.memo, self._term, self._values)

    def _values(self, node: Node) -> tuple[Node, ...]:
        """What is lowered before a node: not the indices of a load, which become an address."""
        return () if isinstance(node.op, Load) or self._table(node) else node.args

    def _table(self, node: Node) -> Table | None:
        """The term as a table that the lanes look up."""
        v = self.vector
        return table(node, v.lanes) if v and v.axis in free_variables(node) else None

    def _term(self, node: Node) -> Node:
        v = self.vector
        if v is not None and node is v.axis:
            return apply("add", v.base, lanes_of(v.lanes))
        if isinstance(node.op, Load):
            return self._load(node, node.op)
        if not node.args:
            return node
        by_axis = v is not None and v.axis in free_variables(node)
        if (found := self._table(node)) is not None:
            return make(Permute(), found.values, self.term(found.at))
        if v is not None and by_axis and (narrow := self._compare_lanes(node, v)) is not None:
            return narrow
        if v is not None and function_of(node) == "i32" and node.args[0] is v.axis:
            return apply("add", *(apply(CASTS[i32], t) for t in (v.base, lanes_of(v.lanes))))
        args = [self.term(a) for a in node.args]
        if function_of(node) == "and" and TRUE in args:
            return args[args.index(TRUE) - 1]
        if function_of(node) == "where" and args[0] in (TRUE, FALSE):
            return args[1 if args[0] is TRUE else 2]
        if v is None or not (by_axis or any(a.type.lanes > 1 for a in args)):
            same = all(x is y for x, y in zip(args, node.args, strict=True))
            return node if same else make(node.op, *args)
        if v.count is not None and (function := getattr(node.op, "function", None)) in SAFE:
            args[0] = guarded(function, self._active(None), args[0])  # nothing is beyond the count
        return self._divided(node, *args) or make(node.op, *args)

    def _divided(self, node: Node, x: Node, *more: Node) -> Node | None:
        """A division of i64 lanes by a number as a shift, where 0 <= x < 2**31 after a product.

        No machine divides these (Granlund and Montgomery, Division by Invariant Integers, 1994).
        """
        divides = function_of(node) in ("floordiv", "floormod") and node.type.dtype is i64
        by = int(value_of(more[0]) or 0) if divides else 0
        bits, product = by.bit_length() - 1, x
        if by <= 0 or x.type.lanes == 1:
            return None
        if by != 1 << bits:
            low, high = bounds(node.args[0], self.known)
            if not 0 <= low <= high < 1 << 31 or by >= 1 << 31:
                return None
            bits += 32
            product = apply("multiply", x, constant((1 << bits) // by + 1))
        quotient = apply("shift_right", product, constant(bits))
        if function_of(node) == "floordiv":
            return quotient
        return apply("subtract", x, apply("multiply", quotient, constant(by)))

    def _compare_lanes(self, node: Node, v: Vector) -> Node | None:
        """A comparison even along the lanes, as lane number against one scalar, both i32.

        a < b  with  a - b = s lane + r  is  lane < -r / s; with a - b = r - s lane  lane > r / s.
        """
        name = function_of(node)
        if name not in FLIPPED or node.args[0].type.dtype is not i64:
            return None
        # what tensors hold may be so large that a difference wraps
        left, right = (a if bounded(a, self.known) else _clamped(a, -FAR, FAR) for a in node.args)
        even, offset = linear(apply("subtract", left, right))
        terms = dict(even)
        step = terms.pop(v.axis, 0)
        uneven = any(v.axis in free_variables(a) for a in terms)
        if step == 0 or uneven or (abs(step) > 1 and name in ("eq", "ne")):
            return None
        name = name if step > 0 else FLIPPED[name]
        sign = -1 if step > 0 else 1
        up = abs(step) - 1 if name in ("lt", "ge") else 0  # a quotient rounded up, or down
        start = plus((terms, offset), linear(v.base), step)
        bound = from_linear(*plus(({}, up), start, sign))
        bound = apply("floordiv", bound, constant(abs(step))) if abs(step) > 1 else bound
        limit = simplify(self.term(_clamped(bound, -1, v.lanes)), self.ranges)
        if limit.type.lanes > 1:  # it depends on what the lanes have folded
            return None
        holds = FUNCTIONS[name].evaluate
        if isinstance(limit.op, Constant):
            answers = {bool(holds(i, limit.op.value)) for i in range(v.lanes)}
            if len(answers) == 1:
                return TRUE if answers.pop() else FALSE
        return compare_lanes(name, v.lanes, limit)

    def _load(self, node: Node, load: Load) -> Node:
        rank, target, v = load.buffer.type.rank, flat(load.buffer), self.vector
        where = address(load.buffer, node.args[:rank], self.ranges)
        condition, fill = node.args[rank:] or (TRUE, constant(0, target.type.dtype))
        condition = self.term(condition)
        always = condition is TRUE
        if condition is FALSE:
            return self.term(fill)
        if v is None or (not self._varies(where) and condition.type.lanes == 1):
            guard = () if always else (condition, fill)
            return make(Load(target, not always), self.term(where), *guard)
        if not always and condition.type.lanes == 1:
            where = _within(where, node.args[rank])
        if (near := self._permuted(where, target, v)) is not None:
            if always and v.count is None:
                return near
            return apply("where", self._active(None if always else condition), near, fill)
        index, step = self._lane_places(where, v)
        if always and (step or v.count is None):
            counted = () if v.count is None else (v.count,)
            ahead = 0 if counted else load.ahead
            wide = VectorLoad(target, v.lanes, step, bool(counted), ahead=ahead)
            return make(wide, index, *counted)
        active = self._active(None if always else condition)
        return make(VectorLoad(target, v.lanes, step, masked=True), index, active, fill)

    def _varies(self, where: Node) -> bool:
        """Whether an address is another in each lane: by the axis, or by what lanes folded."""
        v = self.vector
        by_axis = v is not None and v.axis in free_variables(where)
        return by_axis or self.term(where).type.lanes > 1

    def _lane_places(self, where: Node, v: Vector) -> tuple[Node, int]:
        """Where lane 0 is and how far the next one; or where each lane is, and 0."""
        step = stride_along(where, v.axis)
        if step:
            terms, offset = linear(where)
            rest = {a: k for a, k in terms.items() if a is not v.axis}
            first = self.term(from_linear(*plus((rest, offset), linear(v.base), step)))
            if first.type.lanes == 1:
                return first, step
        wide = self.term(where)
        return wide if wide.type.lanes > 1 else make(Splat(v.lanes), wide), 0

    def _permuted(self, where: Node, target: Buffer, v: Vector) -> Node | None:
        """Elements near each other as lanes of one load; None where they may be farther apart.

        The load begins so that all of it is in the buffer. Where no lane is active, or where a
        lane's place is outside, that lane gets another one's element.
        """
        size = target.type.size
        found = window(where, v.axis, v.lanes, self.known, target.type)
        if found is None:
            return None
        (lane_0,) = substitute((where,), {v.axis: v.base})
        if self.term(lane_0).type.lanes > 1:  # it depends on what the lanes have folded
            return None
        first = apply("add", lane_0, constant(int(found[0])))
        start = simplify(_clamped(first, 0, max(0, size - v.lanes)), self.ranges)
        counted = (constant(size),) if size < v.lanes else ()
        load = make(VectorLoad(target, v.lanes, counted=bool(counted)), self.term(start), *counted)
        terms, offset = linear(where)
        moving = {a: k for a, k in terms.items() if v.axis in free_variables(a)}
        fixed = {a: k for a, k in terms.items() if a not in moving}
        base = from_linear(*plus((fixed, offset), linear(start), -1))
        at = apply("add", self._word(from_linear(moving, 0), v), self._word(base, v))
        return make(Permute(), load, at)

    def _word(self, node: Node, v: Vector) -> Node:
        """The lower half of an i64 term, as i32, computed in i32 where the upper has no say."""

        def parts(n: Node) -> tuple[Node, ...]:
            return n.args if self._in_words(n, v) else ()

        def one(n: Node) -> Node:
            if (value := value_of(n)) is not None:
                return constant((int(value) + (1 << 31)) % (1 << 32) - (1 << 31), i32)
            if n is v.axis:
                return apply("add", *(apply(CASTS[i32], t) for t in (v.base, lanes_of(v.lanes))))
            if not self._in_words(n, v):
                return apply(CASTS[i32], self.term(n))
            x, y = (self.words[a] for a in n.args)
            name = function_of(n) or ""
            if name == "floordiv":
                name, y = "shift_right", constant(int(value_of(y) or 1).bit_length() - 1, i32)
            return apply(name, x, y)

        return bottom_up(node, self.words, one, parts)

    def _in_words(self, node: Node, v: Vector) -> bool:
        """Whether a term moves along the lanes and needs but the lower halves of its parts."""
        name = function_of(node)
        if v.axis not in free_variables(node):
            return False
        if name in ("add", "subtract", "multiply"):
            return True
        by = int(value_of(node.args[1]) or 0) if name == "floordiv" else 0
        known = name in ("minimum", "maximum") or (by > 0 and not by & (by - 1))
        return known and all(_is_word(bounds(a, self.known)) for a in node.args)

    def _active(self, condition: Node | None) -> Node:
        """The condition as lanes, false beyond the count."""
        v = self.vector
        assert v is not None
        if condition is not None and condition.type.lanes == 1:
            condition = make(Splat(v.lanes), condition)
        if v.count is None:
            assert condition is not None
            return condition
        inside = compare_lanes("lt", v.lanes, v.count)
        return inside if condition is None else apply("and", condition, inside)

    def store(self, stmt: Store) -> Stmt:
        """The store in lanes when it moves along the vector axis."""
        target, v = flat(stmt.buffer), self.vector
        where = address(stmt.buffer, stmt.index, self.ranges)
        value = self.term(stmt.value)
        mask = None if stmt.mask is None else self.term(stmt.mask)
        lanes = 1 if mask is None else mask.type.lanes  # of lanes, one may store where all would
        if v is None or (lanes == 1 and not self._varies(where)):
            return Store(target, (self.term(where),), value, mask, stmt.how, stmt.when)
        if value.type.lanes == 1:
            value = make(Splat(v.lanes), value)
        index, step = self._lane_places(where, v)
        return VectorStore(target, index, value, v.lanes, step, v.count, mask, stmt.how, stmt.when)


def _within(where: Node, condition: Node) -> Node:
    """The address, with 0 for the loaded indices that the condition is about where it fails.

    All lanes are masked then, but a processor that masks a load out of a page that is not mapped
    takes hundreds of cycles: a row past the end of a table, which pads a list, is such.
    """
    about = set(postorder(condition))
    loaded = {t for t in linear(where)[0] if t in about and not isinstance(t.op, Axis | Symbol)}
    return substitute((where,), {t: apply("where", condition, t, constant(0)) for t in loaded})[0]


def _clamped(term: Node, low: int, high: int) -> Node:
    return apply("minimum", apply("maximum", term, constant(low)), constant(high))


def _is_word(values: Interval) -> bool:
    """Whether i32 has all values of an interval."""
    return values[0] >= -(1 << 31) and values[1] < 1 << 31


def compare_lanes(name: str, lanes: int, limit: Node) -> Node:
    """Lane numbers against a limit, which is at most their count: i32, as wide as f32 data is."""
    return apply(name, apply(CASTS[i32], lanes_of(lanes)), apply(CASTS[i32], limit))


def count_of(lo: Node, hi: Node, lanes: int, ranges: Mapping[Node, Interval]) -> Node | None:
    """Active lanes of hi - lo, None when all are."""
    left = simplify(apply("subtract", hi, lo), ranges)
    least = simplify(apply("minimum", left, constant(lanes)), ranges)
    return None if least is constant(lanes) else least
