"""split_scans: scans long rows in parts, side by side: first their totals, and the scan of these.

before  for a0 in 0..8:  # free               after  y_part0[s0, a0]: what part s0 of a0 folds to
            for a1 in 0..4096:  # scan acc0          y_before0[s0, a0]: the scan of these; and then
                acc0 <- add(acc0, x)                 for a0 in 0..8: for s0 in 0..32:  # free
                y[a0, a1] = running acc0                 for a1 in 0..128:  # scan acc0_s0
                                                             acc0_s0 <- add(acc0_s0, x)
                                                             y[..] = y_before0[s0 - 1, a0] + running

It works for any fold, and reads what is scanned twice (Merrill and Grimshaw, Parallel Scan for
Stream Architectures, 2009). Where there are many parts, their scan is split as well.
"""

from dataclasses import replace

from weft.core.node import make
from weft.core.text.graph import fresh
from weft.scalar.blocks import reads_again, substitute_block, with_body
from weft.scalar.nest import For, Kernel, Load, Program, Store
from weft.scalar.ops import apply, constant
from weft.targets.gpu import GPU
from weft.tile.analysis.access import chain, trips
from weft.tile.moves import parts
from weft.tile.moves.loops import Labels, nested


def split_scans(program: Program, target: GPU) -> Program:
    """Split the scans of too few rows for the device."""
    return parts.split_kernels(program, lambda kernel, names: _split(kernel, names, target))


def _split(kernel: Kernel, names: set[str], target: GPU) -> list[Kernel]:
    around, body = chain(*kernel.body, "free") if len(kernel.body) == 1 else ([], kernel.body)
    scan = body[0] if len(body) == 1 else None
    if not isinstance(scan, For) or reads_again(body):
        return [kernel]
    length = parts.part_length(scan, around, target)
    if length >= trips(scan):
        return [kernel]
    first, second, third = _kernels(kernel, around, scan, length, names)
    return [first, *_split(second, names, target), third]


def _kernels(
    kernel: Kernel, around: list[For], scan: For, length: int, names: set[str]
) -> tuple[Kernel, Kernel, Kernel]:
    """What makes the totals of parts, what scans these, and what scans each part after them."""
    part, index = Labels(kernel.body).axis("s"), tuple(f.axis for f in around)
    outer, end, place = parts.cut(scan, part, length)
    stmts, shape = substitute_block(scan.body, place), (trips(outer), *map(trips, around))
    totals, before = (
        parts.buffers(kernel, s, scan.folds, shape, names) for s in ("part", "before")
    )
    # each accumulator, what reads it in the loop, and what it is before any element
    each = (zip(f.accs, f.running, f.monoid.identity(f.dtypes), strict=True) for f in scan.folds)
    carriers = [one for fold in each for one in fold]

    fold = replace(scan, hi=end, role="reduce", body=parts.updates_in(stmts))
    stores = (Store(b, (part, *index), acc) for acc, b in totals.items())
    first = with_body(kernel, nested([outer, *around], (fold, *stores)))
    first = replace(first, name=fresh(f"{kernel.name}_parts", names), outputs=(*totals.values(),))

    loop = parts.combining(scan.folds, totals, part, trips(outer), index)
    stores = (Store(before[acc], (part, *index), running) for acc, running, _ in carriers)
    loop = replace(loop, role="scan", body=(*loop.body, *stores))
    second = with_body(kernel, nested(around, (loop,)), *totals.values())
    second = replace(second, name=fresh(f"{kernel.name}_scan", names), outputs=(*before.values(),))

    some, behind = apply("ge", part, constant(1)), apply("add", part, constant(-1))
    reads = {r: make(Load(before[a], True), behind, *index, some, n) for a, r, n in carriers}
    inner, _ = parts.own_part(replace(scan, hi=end, body=stmts), scan.folds, str(part.op.label))  # type: ignore[attr-defined]
    inner = replace(inner, body=substitute_block(inner.body, reads))
    return first, second, with_body(kernel, nested([outer, *around], (inner,)), *before.values())
