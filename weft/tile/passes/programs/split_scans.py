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

from weft.core.text.graph import fresh
from weft.scalar.blocks import reads_again, with_body
from weft.scalar.nest import Block, For, Kernel, Local, Program
from weft.scalar.ops import constant
from weft.scalar.structure import substituted
from weft.targets.gpu import GPU
from weft.tile.analysis.access import chain, trips
from weft.tile.moves import parts
from weft.tile.moves.loops import Labels, in_strips, nested


def split_scans(program: Program, target: GPU) -> Program:
    """Split the scans of too few rows for the device."""
    return parts.split_kernels(program, lambda kernel, names: _split(kernel, names, target))


def _split(kernel: Kernel, names: set[str], target: GPU) -> list[Kernel]:
    """Over the grid where rows are few for the device, then each row's part in a block."""
    around, scan = _scan_of(kernel)
    length = parts.part_length(scan, around, target) if scan else 0
    if scan is None or length >= trips(scan):
        return [kernel]
    if parts.lies_along(scan):
        block = parts.of_block(scan, target)
        if block >= trips(scan):
            return [_in_block(kernel)]
        length = length if trips(scan) % block else block  # whole blocks: none has a shorter end
    index, part = tuple(f.axis for f in around), Labels(kernel.body).axis("s")
    shape = (-(-trips(scan) // length), *map(trips, around))
    totals, before = (
        parts.buffers(kernel, s, scan.folds, shape, names) for s in ("part", "before")
    )
    nests = parts.of_scan(scan, part, length, totals, before, index)
    outer = For(part, constant(0), constant(shape[0]), ())
    first = with_body(kernel, nested([outer, *around], nests[0]))
    first = replace(first, name=fresh(f"{kernel.name}_parts", names), outputs=(*totals.values(),))
    second = with_body(kernel, nested(around, nests[1]), *totals.values())
    second = replace(second, name=fresh(f"{kernel.name}_scan", names), outputs=(*before.values(),))
    third = with_body(kernel, nested([outer, *around], nests[2]), *before.values())
    return [first, *_split(second, names, target), _in_block(third)]


def _scan_of(kernel: Kernel) -> tuple[list[For], For | None]:
    """The one scan of a kernel, and the loops around it."""
    around, body = chain(*kernel.body, "free") if len(kernel.body) == 1 else ([], kernel.body)
    scan = body[0] if len(body) == 1 else None
    return around, scan if isinstance(scan, For) and not reads_again(body) else None


def _in_block(kernel: Kernel) -> Kernel:
    """The kernel with each row scanned by the threads of a block, where it lies along the scan."""
    around, scan = _scan_of(kernel)
    if scan is None or scan.role != "scan" or not scan.extent or not parts.lies_along(scan):
        return kernel
    body = _by_threads(scan, parts.strip(scan), Labels(kernel.body))
    return replace(kernel, body=nested(around, body))


def _by_threads(scan: For, length: int, labels: Labels) -> Block:
    """Nests of one block: a thread's totals, the scan of these, and what comes after them."""
    if trips(scan) <= parts.GROUP:
        return (For(labels.axis("s"), constant(0), constant(1), (scan,), bind="thread"),)
    part, count = labels.axis("s"), -(-trips(scan) // length)
    accs = [a for f in scan.folds for a in f.accs]
    totals, before = (
        {a: labels.buffer(s, a.type.dtype, (count,)) for a in accs} for s in ("part", "before")
    )
    first, second, third = parts.of_scan(scan, part, length, totals, before, ())
    (second,) = substituted(second, {part: labels.axis("s")})
    if trips(scan) % length == 0:
        first = (in_strips(first[0], labels.axis("c"), length), *first[1:])  # type: ignore[arg-type]
        third = parts.stored_at_once(third[0], labels)  # type: ignore[arg-type]
    outer = For(part, constant(0), constant(count), (), bind="thread")
    declared = (Local(b) for b in (*totals.values(), *before.values()))
    middle = _by_threads(second, parts.GROUP, labels)  # type: ignore[arg-type]
    return (*declared, *nested([outer], first), *middle, *nested([outer], third))
