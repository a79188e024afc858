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
from weft.scalar.blocks import Index, substitute_block
from weft.scalar.nest import Block, Buffer, Fold, For, Kernel, Load, Program, Running, Store, Update
from weft.scalar.ops import apply, constant
from weft.scalar.structure import substituted
from weft.targets.gpu import GPU
from weft.tile.analysis.access import trips

PART = 128  # elements at least that a thread scans


def split_kernels(program: Program, split: Callable[[Kernel, set[str]], list[Kernel]]) -> Program:
    """The program with each kernel split, given the names that are taken: those of all."""
    names = {b.name for s in program.steps for b in (*s.inputs, *s.outputs)}
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
    free = flat and not any(isinstance(n.op, Running) for n in postorder(*values))
    if not even or not free or scan.role != "scan":
        return trips(scan)
    wanted = -(-target.fewest_threads // trips(*around))  # parts of a row
    return PART * -(-trips(scan) // (wanted * PART))


def updates_in(block: Block) -> tuple[Update, ...]:
    return tuple(s for s in block if isinstance(s, Update))


def own_part(loop: For, folds: tuple[Fold, ...], suffix: str) -> tuple[For, Block]:
    """The loop with accumulators of its own, and the updates that add these to the outer ones."""
    own = {f: f.suffixed(suffix) for f in folds}
    updates = tuple(Update(f, part.accs, partial=True) for f, part in own.items())
    pairs = [zip(f.running, f.monoid.combine(f.running, own[f].running), strict=True) for f in own]
    body = substitute_block(substituted(loop.body, own), dict(chain(*pairs)))
    return replace(loop, body=body, folds=tuple(own.values())), updates


def combining(
    folds: Sequence[Fold], parts: Mapping[Node, Buffer], turn: Node, count: int, index: Index = ()
) -> For:
    """The loop over so many parts that folds them; buffers have each accumulator at turn, index."""
    read = {acc: make(Load(part), turn, *index) for acc, part in parts.items()}
    updates = (Update(f, tuple(read[acc] for acc in f.accs), partial=True) for f in folds)
    end = constant(count)
    return For(turn, constant(0), end, tuple(updates), 1, "reduce", folds=tuple(folds))
