"""Peel the last, partial iteration of blocked loops, so that full blocks need no masks.

before  for b0 in 0..18 by 16:                      after   for b0 in 0..16 by 16:
            for a0 in b0..min(b0 + 16, 18):                     for a0 in b0..b0 + 16:
                y[a0] = ...                                         y[a0] = ...
                                                            for a0 in 16..18:
                                                                y[a0] = ...
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.node import Node, make, rebuild
from weft.scalar.affine import has_symbol, is_multiple
from weft.scalar.blocks import rewrite_block, substitute_block
from weft.scalar.index import FALSE, TRUE, Interval, bounds, function_of, linear, simplify
from weft.scalar.nest import Block, Fold, For, Load, Stmt
from weft.scalar.ops import Constant, add, apply, axis, constant, floordiv, multiply, subtract
from weft.scalar.reach import axis_range

Ranges = dict[Node, Interval]


def settled(node: Node) -> Node | None:
    """A masked load whose condition is a literal: the load, or the other value."""
    if not isinstance(node.op, Load) or not node.op.masked:
        return None
    *index, condition, other = node.args
    if condition is TRUE:
        return make(Load(node.op.buffer), *index)
    return other if condition is FALSE else None


def simplify_block(block: Block, ranges: Ranges) -> Block:
    """Simplify every term under the ranges of the loops around it."""
    out: list[Stmt] = []
    memo: dict[Node, Node] = {}

    def change(term: Node) -> Node:
        if term not in memo:
            memo[term] = rebuild((simplify(term, ranges),), settled)[0]
        return memo[term]

    for stmt in block:
        if isinstance(stmt, For):
            bounded = replace(stmt, lo=change(stmt.lo), hi=change(stmt.hi))
            inner = ranges | {stmt.axis: axis_range(bounded, ranges)}
            out.append(replace(bounded, body=simplify_block(stmt.body, inner)))
        else:
            out.append(stmt.map_terms(change))
    return tuple(out)


def peel(block: Block, ranges: Ranges | None = None) -> Block:
    """Split every blocked loop of literal length, but a grid's, into full blocks and a rest."""
    ranges = {} if ranges is None else ranges
    out: list[Stmt] = []
    for stmt in block:
        if not isinstance(stmt, For):
            out.append(stmt)
            continue
        extent = simplify(apply(subtract, stmt.hi, stmt.lo), ranges)
        if has_symbol(extent) and stmt.step > 1 and stmt.bind != "grid":
            out.extend(_split_at_size(stmt, extent, ranges))
            continue
        if stmt.step == 1 or stmt.bind == "grid" or not isinstance(extent.op, Constant):
            inner = ranges | {stmt.axis: axis_range(stmt, ranges)}
            even = stmt.step > 1 and is_multiple(extent, stmt.step)
            blocks = any(isinstance(s, For) and s.lo is stmt.axis for s in stmt.body)
            even = even or (stmt.step == 1 and blocks)  # a block of one is full
            body = simplify_block(_full(stmt), inner) if even else stmt.body
            out.append(replace(stmt, body=peel(body, inner)))
            continue
        out.extend(_split(stmt, int(extent.op.value), ranges))
    return tuple(out)


def _split(stmt: For, extent: int, ranges: Ranges) -> list[Stmt]:
    whole = extent // stmt.step * stmt.step
    first, last = bounds(stmt.lo, ranges)
    end = simplify(apply(add, stmt.lo, constant(whole)), ranges)
    parts: list[Stmt] = []
    if whole:
        inner = ranges | {stmt.axis: (first, last + whole - stmt.step)}
        body = peel(simplify_block(_full(stmt), inner), inner)
        parts.append(replace(stmt, hi=end, body=body, folds=()))
    if whole < extent:
        rest = simplify_block(substitute_block(stmt.body, {stmt.axis: end}), ranges)
        if stmt.bind == "register":  # the unrolled copies differ: keep it a loop of one iteration
            inner = ranges | {stmt.axis: (first + whole, last + whole)}
            parts.append(replace(stmt, lo=end, body=peel(rest, inner), folds=()))
        else:
            parts.extend(peel(rest, ranges))
    if not stmt.folds:
        return parts
    if len(parts) == 1 and whole and isinstance(parts[0], For):
        return [replace(parts[0], folds=stmt.folds)]
    return [scope(f"s_{stmt.label}", tuple(parts), stmt.role, stmt.folds)]


def _split_at_size(stmt: For, extent: Node, ranges: Ranges) -> list[Stmt]:
    """Full blocks, and a loop over the rest, of less than one block and nothing unrolled."""
    step = constant(stmt.step)
    whole = apply(multiply, apply(floordiv, extent, step), step)
    end = simplify(apply(add, stmt.lo, whole), ranges)
    first, last = replace(stmt, hi=end, folds=()), replace(stmt, lo=end, folds=())
    inner = ranges | {stmt.axis: axis_range(first, ranges)}
    first = replace(first, body=peel(simplify_block(_full(stmt), inner), inner))
    parts = [first] if end is simplify(stmt.hi, ranges) else [first, _rolled(last)]
    if not stmt.folds:
        return [*parts]
    if len(parts) == 1:
        return [replace(first, folds=stmt.folds)]
    return [scope(f"s_{stmt.label}", tuple(parts), stmt.role, stmt.folds)]


def _rolled(stmt: Stmt) -> Stmt:
    """The nest with serial loops for unrolled ones, whose lengths are no literals there."""
    if not isinstance(stmt, For):
        return stmt
    bind = "serial" if stmt.bind in ("register", "parallel") else stmt.bind
    return replace(stmt, bind=bind, body=tuple(map(_rolled, stmt.body)))


def scope(label: str, body: Block, role: str, folds: tuple[Fold, ...]) -> For:
    """A loop of one iteration, there to declare accumulators."""
    return For(axis(label), constant(0), constant(1), body, 1, role, "serial", folds)


def _full(stmt: For) -> Block:
    """The body of a full block: min(axis + width, end) is axis + width."""

    def change(node: Node) -> Node | None:
        if function_of(node) != "minimum" or stmt.hi not in node.args:
            return None
        other = node.args[0] if node.args[1] is stmt.hi else node.args[1]
        terms, width = linear(other)
        return other if terms == {stmt.axis: 1} and width <= stmt.step else None

    return rewrite_block(stmt.body, change)
