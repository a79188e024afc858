"""Peel the last, partial iteration of blocked loops, so that full blocks need no masks.

before  for b0 in 0..18 by 16:                      after   for b0 in 0..16 by 16:
            for a0 in b0..min(b0 + 16, 18):                     for a0 in b0..b0 + 16:
                y[a0] = ...                                         y[a0] = ...
                                                            for a0 in 16..18:
                                                                y[a0] = ...
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.node import Node
from weft.scalar.index import Interval, bounds, simplify
from weft.scalar.nest import Block, For, Stmt, substitute_block
from weft.scalar.ops import Constant, constant

Ranges = dict[Node, Interval]


def axis_range(stmt: For, ranges: Ranges) -> Interval:
    """Values the loop's axis takes."""
    lo, hi = bounds(stmt.lo, ranges), bounds(stmt.hi, ranges)
    last = hi[1] - 1
    if isinstance(stmt.lo.op, Constant) and isinstance(stmt.hi.op, Constant) and last >= lo[0]:
        last = lo[0] + (last - lo[0]) // stmt.step * stmt.step
    return lo[0], max(last, lo[0])


def simplify_block(block: Block, ranges: Ranges) -> Block:
    """Simplify every term under the ranges of the loops around it."""
    out: list[Stmt] = []
    memo: dict[Node, Node] = {}

    def change(term: Node) -> Node:
        if term not in memo:
            memo[term] = simplify(term, ranges)
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
    """Split every blocked serial or parallel loop with literal bounds into full blocks and a rest."""
    ranges = {} if ranges is None else ranges
    out: list[Stmt] = []
    for stmt in block:
        if not isinstance(stmt, For):
            out.append(stmt)
            continue
        extent = stmt.extent
        if stmt.step == 1 or extent is None or stmt.bind == "register":
            inner = ranges | {stmt.axis: axis_range(stmt, ranges)}
            out.append(replace(stmt, body=peel(stmt.body, inner)))
            continue
        out.extend(_split(stmt, extent, ranges))
    return tuple(out)


def _split(stmt: For, extent: int, ranges: Ranges) -> list[Stmt]:
    assert isinstance(stmt.lo.op, Constant)
    lo = int(stmt.lo.op.value)
    whole = extent // stmt.step * stmt.step
    parts: list[Stmt] = []
    if whole:
        inner = ranges | {stmt.axis: (lo, lo + whole - stmt.step)}
        body = peel(simplify_block(stmt.body, inner), inner)
        parts.append(replace(stmt, hi=constant(lo + whole), body=body, folds=()))
    if whole < extent:
        at = substitute_block(stmt.body, {stmt.axis: constant(lo + whole)})
        parts.extend(peel(simplify_block(at, ranges), ranges))
    if not stmt.folds:
        return parts
    if len(parts) == 1 and isinstance(parts[0], For) and not parts[0].folds and whole:
        return [replace(parts[0], folds=stmt.folds)]
    scope = replace(stmt, lo=constant(0), hi=constant(1), step=1, body=tuple(parts))
    return [replace(scope, bind="serial")]
