"""split_matmul_k: splits a long sum with few results over the grid; a second kernel combines.

before  for a0 in 0..32:  # free              after  for s0 in 0..4:  # free
            for a1 in 0..64:  # free                     for a0 in 0..32: for a1 in 0..64:  # free
                for a2 in 0..4096:  # reduce                 for a2 in 0..1024:  # reduce acc0
                    acc0 <- add(acc0, x*w)                   y_part0[s0, a0, a1] = acc0
                y[a0, a1] = acc0                     and then, for each result, the sum of its parts

It works for any fold. The order of the parts is fixed, so every run gives the same results.
"""

import math
from dataclasses import replace

from weft.core.text.graph import fresh
from weft.scalar.blocks import substitute_block, with_body
from weft.scalar.nest import For, Kernel, Program, Store
from weft.scalar.ops import constant
from weft.targets.gpu import GPU
from weft.tile.analysis.access import chain, contraction, divisors, trips
from weft.tile.moves.loops import Labels, nested
from weft.tile.moves.parts import buffers, combining, cut, split_kernels
from weft.tile.price.axes import best_axis_alone
from weft.tile.price.latency import turns

SIDE = 64  # of a tile that keeps a multiprocessor busy
LONGEST = 1024  # terms one thread adds one by one, or a quarter of a product's: errors grow so
PRODUCTS, ELEMENTS = 256, 4096  # of a part: fewer are not worth a kernel more


def split_matmul_k(program: Program, target: GPU) -> Program:
    """Split the reductions that would leave most multiprocessors idle."""
    return split_kernels(program, lambda kernel, names: _split(kernel, names, target))


def _split(kernel: Kernel, names: set[str], target: GPU) -> list[Kernel]:
    """The kernel that makes the parts and the one that combines them, or the kernel alone."""
    around, body = chain(*kernel.body, "free") if len(kernel.body) == 1 else ([], kernel.body)
    loops = chain(body[0], "reduce")[0] if body else []
    if not loops or any(isinstance(s, For) for s in body[1:]):
        return [kernel]
    plain = all(not f.folds for f in loops[1:])
    even = all(f.lo is constant(0) and f.extent and f.step == 1 for f in (*around, *loops))
    found = _parts((around or loops)[0], around, loops, target) if plain and even else None
    if found is None:
        return [kernel]
    (split, length), (_, *rest) = found, body
    folds, part, index = loops[0].folds, Labels(kernel.body).axis("s"), [f.axis for f in around]
    outer, end, place = cut(split, part, length)
    stored = buffers(kernel, "part", folds, (trips(outer), *map(trips, around)), names)
    stores = tuple(Store(b, (part, *index), acc) for acc, b in stored.items())
    sums = [replace(f, hi=end) if f is split else f for f in loops]
    parts = (*nested(sums, substitute_block(loops[-1].body, place)), *stores)
    first = with_body(kernel, nested([outer, *around], parts))
    name = fresh(f"{kernel.name}_parts", names)
    first = replace(first, name=name, outputs=tuple(stored.values()))
    combine = combining(folds, stored, part, trips(outer), tuple(index))
    return [first, with_body(kernel, nested(around, (combine, *rest)), *stored.values())]


def _parts(nest: For, around: list[For], loops: list[For], target: GPU) -> tuple[For, int] | None:
    """The loop to split and how long its parts are, None where there are blocks enough.

    Of rows that reduce themselves first, threads share each row, and a block adds its rows up.
    """
    results, rows = trips(*around), trips(*loops)
    depth = int(turns(loops[0]))  # more than rows where these have loops of their own
    product = contraction(nest) if around else None
    if product is not None:
        sides = (-(-trips(f) // SIDE) for f in (product.rows, product.columns))
        outer = trips(*product.outer, *product.repeat)
        blocks, least, alone = outer * math.prod(sides), PRODUCTS, depth // 4
    else:
        chosen = best_axis_alone(nest, target)[1]
        side_by_side = any(f.axis in chosen for f in around)
        blocks = -(-results // target.warp) if side_by_side else results
        least = ELEMENTS // (target.warp if side_by_side else 1)
        alone = rows // (1 if side_by_side or depth > rows else target.threads)
    wanted = max(min(2 * target.cores // max(1, blocks), depth // least), -(-alone // LONGEST))
    choices = ((n, f) for f in loops for n in divisors(trips(f)) if n <= wanted)
    count, loop = max(choices, key=lambda c: c[0], default=(1, nest))
    length = trips(loop) // count
    if product is None and 2 * count < wanted:  # few lengths divide it: the last part is shorter
        loop = max(loops, key=trips)
        length = 4 * -(-trips(loop) // (4 * wanted))
    return (loop, length) if length < trips(loop) else None
