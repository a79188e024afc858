"""The price of a nest, in microseconds, from its structure alone.

kernel_time_us(kernel.body, target)     # price of fusing, and the report's predicted time

time = max(instructions, bytes moved) / cores + launch, on a GPU at least the latency of one thread
(tile/price/latency.py). A term is paid for once per iteration of the block where `place` computes
it, and once per register tile where that reuses it.
"""

from collections.abc import Sequence
from dataclasses import replace

from weft.core.node import postorder
from weft.scalar.blocks import loops_in, map_loops, substitute_block
from weft.scalar.nest import Block, For, Let, Load, Stmt, Update
from weft.scalar.ops import apply, constant
from weft.scalar.placing import place
from weft.scalar.structure import restates
from weft.targets.gpu import GPU
from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, chain, contraction, term_cost, trips
from weft.tile.analysis.grouped import grouped
from weft.tile.moves.join import collapse
from weft.tile.moves.loops import Labels
from weft.tile.moves.spread import spread_nest
from weft.tile.moves.stage import rows_staged
from weft.tile.price.axes import access_cost, best_axis_alone
from weft.tile.price.latency import latency_ns
from weft.tile.price.products import ACROSS, dot_tile, panels_cost, pays, terms_cost, tiles_cost
from weft.tile.price.traffic import memory_ns

WAITS = 3  # vector instructions that load and store a sum that waits for the next group's
SHORT, PART = 128, 4  # iterations that lanes of a part of a warp share, and how many these are


def kernel_time_us(body: Block, target: Machine) -> float:
    """Predicted time of one kernel on all cores."""
    if restates(body):
        return 0.0  # link/program.py leaves it out
    body = expected(body)
    body = body if isinstance(target, GPU) else rows_staged(body, target)
    time = block_time_us(body, target) / _shares(body, target)
    if isinstance(target, GPU):
        time = max(time, latency_ns(body, target) / 1e3)
    return time + target.launch_us


def expected(body: Block) -> Block:
    """The body with as many iterations of loops whose ends are loaded as there usually are."""

    def one(stmt: For) -> For:
        inside, lo, hi = map_loops(stmt.body, one), stmt.lo, stmt.hi
        if stmt.usual:
            inside = substitute_block(inside, {stmt.axis: apply("add", lo, stmt.axis)})
            lo, hi = constant(0), constant(stmt.usual)
        return replace(stmt, lo=lo, hi=hi, body=inside, usual=0)

    return map_loops(body, one) if any(s.usual for s in loops_in(body)) else body


def _shares(body: Block, target: Machine) -> int:
    """How many cores the kernel keeps busy."""
    loops = [s for s in body if isinstance(s, For)]
    share = max((trips(s) for s in loops if s.role == "free"), default=1)
    if isinstance(target, GPU) and len(loops) == 1:  # a reduction alone is split over the grid
        share = trips(*(chain(loops[0], "free")[0] or loops))
    elif isinstance(target, GPU):
        share = 1  # of several nests: they wait for each other, in one block
    return max(1, min(target.cores, share))


def block_time_us(body: Block, target: Machine) -> float:
    """Predicted time of a block on one core."""
    body = expected(body)
    work = sum(_instructions(s, target) for s in body if isinstance(s, For))
    return max(work / target.vector_ops_per_ns, memory_ns(body, target)) / 1e3


def _instructions(stmt: For, target: Machine) -> float:
    """Vector instructions of one top-level nest, scheduled as the passes would."""
    if any(s.bind for s in loops_in((stmt,))):
        return _scheduled(place((stmt,), partial=True))
    found = contraction(stmt)
    if found is not None:
        return _contraction(found, target)
    if stmt.role != "reduce" and any(map(contraction, loops_in(stmt.body))):
        inner = [s for s in stmt.body if isinstance(s, For)]
        return trips(stmt) * sum(_instructions(s, target) for s in inner)
    if isinstance(target, GPU):
        return best_cost(stmt, target)
    tiles = grouped(stmt)
    cost = _in_lanes(stmt, target)
    return min(cost, _contraction(tiles, target)) if tiles and pays(tiles) else cost


def in_tiles(stmt: For, target: Machine) -> Contraction | None:
    """The nest as a contraction of terms in groups, where tiles of it are the cheapest."""
    found = grouped(stmt)
    if found is None or not pays(found):
        return None
    return found if _contraction(found, target) <= _in_lanes(stmt, target) else None


def _in_lanes(stmt: For, target: Machine) -> float:
    """Vector instructions of a nest with lanes over an axis, or with its sums over them."""
    cost, nest = best_cost(stmt, target), spread_nest(stmt, target.lanes(4), Labels((stmt,)))
    return min(cost, spread_cost(nest)) if nest else cost


def best_cost(stmt: For, target: Machine) -> float:
    """Vector instructions of a nest with the best of its axes over lanes."""
    stmt = _whole_rows(stmt, target)
    cost = best_axis_alone(stmt, target)[0]
    if isinstance(target, GPU) and _has_short_rows(stmt, target):
        cost = min(cost, best_axis_alone(stmt, replace(target, warp=PART))[0] * PART / target.warp)
    return cost


def spread_cost(nest: For) -> float:
    """Vector instructions of a nest whose sums over groups are spread over lanes."""
    return _scheduled(place((nest,), partial=True)) + trips(*chain(nest, "free")[0]) * ACROSS


def _whole_rows(stmt: For, target: Machine) -> For:
    """The nest with its loops joined where the last one is too short to fill a register."""
    loops, _ = chain(stmt, "free")
    short = len(loops) > 1 and trips(loops[-1]) < target.lanes(4)
    joined = collapse((stmt,))[0] if short else stmt
    return joined if isinstance(joined, For) else stmt


def _has_short_rows(stmt: For, target: GPU) -> bool:
    """Whether each of many rows has only short loops, so that a part of a warp computes it."""
    rows, body = chain(stmt, "free")
    inner = [s for s in body if isinstance(s, For)]
    flat = not any(isinstance(s, For) for f in inner for s in f.body)
    longest = max(map(trips, inner), default=0)
    return flat and 0 < longest <= SHORT and trips(*rows) >= target.warp


def _scheduled(stmts: Sequence[Stmt]) -> float:
    total = 0.0
    for s in stmts:
        if isinstance(s, For):
            n = 1.0 if s.lanes or s.extent is None else s.extent / s.step
            total += max(n, 1.0) * _scheduled(s.body)
        elif isinstance(s, Let):
            total += term_cost(s.term)
        else:
            total += s.fold.monoid.cost if isinstance(s, Update) else 1.0
    return total


def _contraction(c: Contraction, target: Machine) -> float:
    """As the schedule would compute it, and then its epilogue."""
    lanes, around = target.lanes(c.bytes), trips(*c.outer, *c.repeat)
    read = (n for s in c.stores for n in postorder(s.value) if isinstance(n.op, Load))
    uneven = sum(access_cost(n, c.columns.axis, lanes, c.ranges) for n in read)
    epilogue = around * trips(c.rows) * (sum(terms_cost(s.value) + 1 for s in c.stores) + uneven)
    if isinstance(target, GPU):
        return tiles_cost(c, target) + epilogue * trips(c.columns) / lanes
    dots = None if c.groups else dot_tile(c, target)
    total = panels_cost(c, target) if dots is None else dots.price
    if c.groups:
        sums = around * trips(c.rows) * trips(c.reduce[0])
        epilogue += sums * (sum(map(terms_cost, c.groups.values)) + WAITS)
    return total + epilogue * -(-trips(c.columns) // lanes)
