"""Which loops of a block become dimensions of tensors, which stay loops, which sums become tl.dot.

plan = planned(kernel.body)
plan.body                   # each For is bound to "grid", "lanes" or "serial"
plan.sizes[a0]              # lanes of a dimension, a power of two: the loop takes so many at once
A loop over threads is a dimension. So is an innermost sum or scan of sixteen terms or more, if its
block stays small. A sum of products whose factors share that axis alone is a tl.dot: its update has
both factors as values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from weft.core.node import Node
from weft.core.types import f32
from weft.scalar import nest
from weft.scalar.monoid import LAST
from weft.scalar.nest import Block, For, Update, free_variables
from weft.scalar.ops import CASTS, apply, constant, function_of, value_of, where
from weft.scalar.reach import longest
from weft.scalar.updates import fused, is_product

THREADS = {"thread", "lane", "warp", "register"}
IN_ORDER = {"", "serial", "unroll"}
LANES = 8192  # elements of a block's tensors, at most
SHORT = 16  # a shorter sum stays a loop; tl.dot takes no shorter one


@dataclass
class Plan:
    body: Block = ()
    sizes: dict[Node, int] = field(default_factory=dict)
    dots: set[Node] = field(default_factory=set)  # axes that a tl.dot sums over
    grid: list[For] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def planned(body: Block) -> Plan:
    plan = Plan()
    plan.body = _block(plan, _merged(body), ())
    return plan


def power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def count_of(loop: For) -> int | None:
    """Iterations at most, None where no number says."""
    most = longest(loop.lo, loop.hi)
    return None if most is None else max(0, -(-most // loop.step))


def _merged(body: Block) -> Block:
    """The body, where a loop over chunks that holds their loop alone is one loop."""

    def one(stmt: nest.Stmt) -> nest.Stmt:
        if not isinstance(stmt, For):
            return stmt
        stmt = replace(stmt, body=tuple(map(one, stmt.body)))
        inner = stmt.body[0] if len(stmt.body) == 1 else None
        if not isinstance(inner, For) or inner.lo is not stmt.axis or inner.step != 1:
            return stmt
        ends = inner.hi.args if function_of(inner.hi) == "minimum" else (inner.hi,)
        chunk = apply("add", stmt.axis, constant(stmt.step))
        inside = [t for s in nest.walk(inner.body) for t in s.terms()]
        alone = stmt.axis not in free_variables(*inside) if inside else True
        whole = stmt.hi in ends or _divides(stmt)
        if stmt.bind not in IN_ORDER or inner.folds or not alone or not whole or chunk not in ends:
            return stmt
        hi = stmt.hi
        return replace(inner, lo=stmt.lo, hi=hi, folds=stmt.folds)

    return tuple(map(one, body))


def _divides(loop: For) -> bool:
    lo, hi = value_of(loop.lo), value_of(loop.hi)
    return lo is not None and hi is not None and (int(hi) - int(lo)) % loop.step == 0


def _block(plan: Plan, body: Block, around: tuple[For, ...]) -> Block:
    return tuple(_loop(plan, s, around) if isinstance(s, For) else s for s in body)


def _loop(plan: Plan, loop: For, around: tuple[For, ...]) -> For:
    """The loop, bound to what it becomes; `around` are those that are dimensions."""
    count = count_of(loop)
    if loop.bind == "grid":
        plan.grid.append(loop)
        if count is None or free_variables(loop.lo, loop.hi):
            plan.problems.append(f"a grid over {loop.label} whose size is no number")
        return replace(loop, body=_block(plan, loop.body, around))
    if loop.bind not in {*THREADS, *IN_ORDER}:
        plan.problems.append(f"a loop bound to {loop.bind}")
    taken = math.prod(plan.sizes[f.axis] for f in around)
    if loop.role != "free" and not any(isinstance(s, For) for s in loop.body):
        body = tuple(_as_dot(plan, s, loop, around) for s in loop.body)
        if loop.axis in plan.dots:
            deep = 32 if _is_wide(body) else 64
            most = deep if count is None else power_of_two(count)
            plan.sizes[loop.axis] = max(SHORT, min(most, deep))
            return replace(loop, bind="lanes", body=body)
    room = max(1, LANES // taken)
    updates = [s for s in nest.walk(loop.body) if isinstance(s, Update)]
    ordered = any(s.fold.monoid is LAST for s in updates)  # which tl.reduce does not keep
    innermost = not any(isinstance(s, For) for s in loop.body) and bool(updates)
    long = (count is None or count >= SHORT) and room >= SHORT
    parallel = loop.bind in THREADS or (loop.role != "free" and innermost and long and not ordered)
    if not parallel:
        return replace(loop, bind="serial", body=_block(plan, loop.body, around))
    plan.sizes[loop.axis] = min(room, room if count is None else power_of_two(count))
    return replace(loop, bind="lanes", body=_block(plan, loop.body, (*around, loop)))


def _is_wide(body: Block) -> bool:
    values = [v for s in body if isinstance(s, Update) and len(s.values) == 2 for v in s.values]
    return any(v.type.dtype.bits > 16 for v in values)


def _as_dot(plan: Plan, stmt: nest.Stmt, loop: For, around: Sequence[For]) -> nest.Stmt:
    """The update of a product with both factors, rows first, where tl.dot can add it up."""
    if not isinstance(stmt, Update) or len(around) != 2 or len(loop.body) != 1 or stmt.partial:
        return stmt
    made = fused(stmt)
    if not is_product(made) or any(plan.sizes[f.axis] < SHORT for f in around):
        return stmt
    rows, columns = (f.axis for f in around)
    sides = [{*free_variables(v)} & {rows, columns, loop.axis} for v in made.values]
    if {rows, loop.axis} == sides[1] and {columns, loop.axis} == sides[0]:
        made, sides = replace(made, values=made.values[::-1]), sides[::-1]
    if sides != [{rows, loop.axis}, {columns, loop.axis}] or made.fold.dtypes[0] is not f32:
        return stmt
    plan.dots.add(loop.axis)
    narrow = [narrowed(v) for v in made.values]
    dtypes = {n.type.dtype for n in narrow if n is not None}
    if None not in narrow and len(dtypes) == 1:
        return replace(made, values=tuple(narrow))  # type: ignore[arg-type]
    return made


def narrowed(term: Node) -> Node | None:
    """The 16-bit term that an f32 one is a conversion of; None if there is none."""
    if function_of(term) == "f32" and term.args[0].type.dtype in CASTS:
        inner = term.args[0]
        return inner if inner.type.dtype.is_float and inner.type.dtype.bits == 16 else None
    if function_of(term) == "where" and value_of(term.args[2]) == 0:
        inner = narrowed(term.args[1])
        if inner is not None:
            return apply(where, term.args[0], inner, constant(0.0, inner.type.dtype))
    return None
