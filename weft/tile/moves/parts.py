"""Splits folds: loops in parts with accumulators of their own, and what combines the parts.

outer, end, place = cut(loop, s0, 128)     # s0 in 0..32; an end and an index in part s0
own_part(loop, loop.folds, "s0")           # acc0_s0 <- add(acc0_s0, x); acc0 <- add(acc0, acc0_s0)
combining(folds, buffers, q0, 32)          # for q0 in 0..32: acc0 <- add(acc0, part0[q0])
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from weft.core.node import Node, make, postorder
from weft.core.text.graph import fresh
from weft.core.types import TensorType
from weft.scalar import nest
from weft.scalar.blocks import Index, loops_in, nodes, substitute_block
from weft.scalar.nest import Block, Buffer, Fold, For, Kernel, Load, Program, Store, Update
from weft.scalar.ops import apply, constant
from weft.scalar.structure import substituted
from weft.targets.gpu import GPU
from weft.tile.analysis.access import ranges_in, strides, trips
from weft.tile.moves.loops import Labels, upto
from weft.tile.moves.partial import ending

Held = Mapping[Node, Buffer]  # where parts of accumulators lie
PART = 128  # elements at least that a thread scans
OF_BLOCK = 4096  # elements at most that the threads of a block scan together
GROUP = 33  # totals that one thread scans: odd, so that threads meet in no bank


def split_kernels(program: Program, split: Callable[[Kernel, set[str]], list[Kernel]]) -> Program:
    """The program with each kernel split, given the names that are taken: those of all."""
    names = {b.name for b in program.buffers()}
    names.update(k.name for k in program.kernels)
    return program.expand_kernels(lambda kernel: split(kernel, names))


def cut(loop: For, part: Node, length: int) -> tuple[For, Node, dict[Node, Node]]:
    """A loop from 0 in parts of so many iterations, fewer in the last.

    The loop over the parts; in one of them the end of a loop from 0, and what its axis stands for.
    """
    outer = For(part, constant(0), constant(-(-trips(loop) // length)), ())
    start = apply("multiply", part, constant(length))
    left = apply("subtract", loop.hi, start)
    end = apply("minimum", constant(length), left) if trips(loop) % length else constant(length)
    return outer, end, {loop.axis: apply("add", start, loop.axis)}


def buffers(
    kernel: Kernel, stem: str, folds: Sequence[Fold], shape: Sequence[int], names: set[str]
) -> dict[Node, Buffer]:
    """New buffers for accumulators, one element for each index of that shape."""
    accs, name = (a for f in folds for a in f.accs), f"{kernel.outputs[0].name}_{stem}"
    types = {a: TensorType(a.type.dtype, tuple(shape)) for a in accs}
    return {a: Buffer(fresh(name, names), type_) for a, type_ in types.items()}


def part_length(scan: For, around: list[For], target: GPU) -> int:
    """How long the parts of each row are: as long as the row where it stays whole."""
    even = all(f.lo is constant(0) and f.extent and f.step == 1 for f in (*around, scan))
    values = [v for s in updates_in(scan.body) for v in s.values]
    flat = all(isinstance(s, Update | Store) for s in scan.body)
    free = flat and not any(isinstance(n.op, nest.Running) for n in postorder(*values))
    if not even or not free or scan.role != "scan":
        return trips(scan)
    wanted = -(-target.fewest_threads // trips(*around))  # parts of a row
    return PART * -(-trips(scan) // (wanted * PART))


def lies_along(scan: For) -> bool:
    """Whether neighbours in a long scan are neighbours in memory: threads take strips of it."""
    ranges = ranges_in((scan,))
    steps = [step for s in scan.body for _, step in strides(s, scan.axis, ranges)]
    return trips(scan) > GROUP * strip(scan) and set(steps) <= {0, 1, -1}


def of_block(scan: For, target: GPU) -> int:
    """How many elements the threads of a block scan together: twice their totals fit in shared."""
    each = 2 * sum(d.bytes for f in scan.folds for d in f.dtypes)
    fit = strip(scan) * (target.shared // 4 // each)
    return min(OF_BLOCK, 1 << fit.bit_length() - 1)


def strip(scan: For) -> int:
    """The elements of a scan that are 16 bytes of what it reads and writes."""
    sizes = [t.op.buffer.type.dtype.bytes for t in nodes(scan.body) if isinstance(t.op, Load)]
    return 16 // min(sizes, default=4)


def stored_at_once(scan: For, labels: Labels) -> Block:
    """The scan in registers, and the stores of what it left in them: as wide as they can be."""
    stores = [s for s in scan.body if isinstance(s, Store) and s.buffer.space == "global"]
    held = [labels.buffer("held", s.value.type.dtype, (trips(scan),)) for s in stores]
    inside = dict(zip(stores, held, strict=True))
    kept: dict[nest.Stmt, nest.Stmt] = {
        s: replace(s, buffer=b, index=(scan.axis,), mask=None) for s, b in inside.items()
    }
    body = (kept.get(s, s) for s in scan.body)
    after = (replace(s, value=make(Load(b), scan.axis)) for s, b in inside.items())
    at = labels.axis("e")
    copy = replace(scan, body=tuple(after), folds=(), bind="register")
    copy = substituted(copy, {scan.axis: at})
    return (*map(nest.Local, held), replace(scan, body=tuple(body)), copy)


def of_scan(
    scan: For, part: Node, length: int, totals: Held, before: Held, index: Index
) -> tuple[Block, Block, Block]:
    """What makes the total of a part, what scans these, and what scans a part after them."""
    outer, end, place = cut(scan, part, length)
    stmts = substitute_block(scan.body, place)
    fold = replace(scan, hi=end, role="reduce", body=updates_in(stmts))
    first = (fold, *(Store(b, (part, *index), acc) for acc, b in totals.items()))
    # each accumulator, what reads it in the loop, and what it is before any element
    each = (zip(f.accs, f.running, f.monoid.identity(f.dtypes), strict=True) for f in scan.folds)
    carriers = [one for fold in each for one in fold]
    loop = combining(scan.folds, totals, part, trips(outer), index)
    stores = (Store(before[acc], (part, *index), running) for acc, running, _ in carriers)
    loop = replace(loop, role="scan", body=(*loop.body, *stores))
    some, behind = apply("ge", part, constant(1)), apply("add", part, constant(-1))
    reads = {r: make(Load(before[a], True), behind, *index, some, n) for a, r, n in carriers}
    inner, _ = own_part(replace(scan, hi=end, body=stmts), scan.folds, str(part.op.label))  # type: ignore[attr-defined]
    return first, (loop,), (replace(inner, body=substitute_block(inner.body, reads)),)


def updates_in(block: Block) -> tuple[Update, ...]:
    return tuple(s for s in block if isinstance(s, Update))


def own_part(loop: For, folds: tuple[Fold, ...], suffix: str) -> tuple[For, Block]:
    """The loop with accumulators of its own, and the updates that add these to the outer ones."""
    own = {f: f.suffixed(suffix) for f in folds}
    updates = tuple(Update(f, part.accs, partial=True) for f, part in own.items())
    pairs = [zip(f.running, f.monoid.combine(f.running, own[f].running), strict=True) for f in own]
    body = substitute_block(substituted(loop.body, own), dict(chain(*pairs)))
    return replace(loop, body=body, folds=tuple(own.values())), updates


def split_fold(stmt: For, width: int, labels: Labels, bind: str = "serial") -> For:
    """The loop in blocks with accumulators of their own, which it folds in behind each block."""
    origin = labels.axis("s")
    hi = upto(origin, width, stmt.hi)
    part, updates = own_part(stmt, stmt.folds, str(origin.op.label))  # type: ignore[attr-defined]
    body = part.body if stages(stmt) else ending(part, hi)
    part = replace(part, lo=origin, hi=hi, body=body)
    before = stmt.folds if stmt.role == "scan" else ()  # is read in the block
    begins = (Update(f, f.monoid.identity(f.dtypes), True) for f in before)
    return replace(stmt, axis=origin, body=(*begins, part, *updates), step=width, bind=bind)


def stages(stmt: For) -> bool:
    """Whether a loop fills slabs too, those of iterations after its own among them."""
    return any(s.role == "free" for s in loops_in(stmt.body))


def combining(folds: Sequence[Fold], parts: Held, turn: Node, count: int, index: Index = ()) -> For:
    """The loop over so many parts that folds them; buffers have each accumulator at turn, index."""
    read = {acc: make(Load(part), turn, *index) for acc, part in parts.items()}
    updates = (Update(f, tuple(read[acc] for acc in f.accs), partial=True) for f in folds)
    end = constant(count)
    return For(turn, constant(0), end, tuple(updates), 1, "reduce", folds=tuple(folds))
