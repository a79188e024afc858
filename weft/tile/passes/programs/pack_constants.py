"""pack_constants: packs a constant operand of a contraction in panels, by a kernel run once.

before  for a0 in 0..128:  # free               after  kernel pack_w(w: f32[64,512]) -> ...
            for a1 in 0..512:  # free                  for b0 in 0..16:  # free
                for a2 in 0..64:  # reduce                 for a2 in 0..64:  # free
                    acc0 <- add(acc0, x * w[a2, a1])           for j0 in 0..32:  # free
                                                                   ... = w[a2, b0 * 32 + j0]
                                                       and then x * panels[a1 // 32, a2, a1 % 32]

It packs the right operand, or the left one where rows fill the lanes better than columns. Few rows
read panels too, one by one: `for p0 in 0..512 by 32: for a1 in p0..p0 + 32`. The runtime runs
kernels of constants alone once, and again when a constant has changed.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from weft.core.node import Node, postorder
from weft.scalar import nest
from weft.scalar.blocks import (
    keeps,
    loads,
    map_each,
    map_loops,
    nodes,
    substitute_block,
    unpacks,
    with_body,
)
from weft.scalar.nest import Block, For, Kernel, Load, Program, Update
from weft.scalar.ops import apply
from weft.scalar.sizes import hint
from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, contraction, folded, span, trips
from weft.tile.moves.loops import Labels, blocked
from weft.tile.moves.panels import in_panels, longest, panels, tile_width
from weft.tile.price.lines import turned_rows, turns
from weft.tile.price.products import FEW, pays

FILLED = 1.25  # times as many columns as there are at most lie in panels that few rows read


def pack_constants(program: Program, constants: Collection[int], target: Machine) -> Program:
    """Pack for every contraction that the CPU schedule will block."""
    known = {program.inputs[i].name for i in constants}
    names = {b.name for b in program.buffers()}

    def one(kernel: Kernel) -> list[Kernel]:
        is_known = all(b.name in known for b in kernel.inputs)
        made = [kernel] if is_known else packed(kernel, known, names, target, few=True)
        fixed = made[:-1] if not is_known else made if keeps(kernel) else []
        known.update(b.name for k in fixed for b in k.outputs)
        return made

    return program.expand_kernels(one)


def packed(
    kernel: Kernel, known: Collection[str], names: set[str], target: Machine, few: bool = False
) -> list[Kernel]:
    """Kernels that pack what its contractions read of `known` buffers, then it over the panels.

    `few`: also where few rows read them, which pays where the panels are kept.
    """
    packing = _Packing(known, names, target, few, Labels(kernel.body))
    body = packing.block(kernel.body)
    buffers = (b for pack in packing.packs for b in pack.outputs)
    return [*packing.packs, with_body(kernel, body, *buffers) if packing.packs else kernel]


@dataclass
class _Packing:
    """The kernels that pack panels for the contractions of one kernel."""

    known: Collection[str]
    names: set[str]
    target: Machine
    few: bool
    labels: Labels
    packs: list[Kernel] = field(default_factory=list[Kernel])

    def block(self, block: Block, around: tuple[For, ...] = ()) -> Block:
        return map_loops(block, lambda s: self.one(s, around))

    def one(self, stmt: For, around: tuple[For, ...]) -> For:
        found = contraction(stmt)
        if found is not None and pays(found):
            return self.whole(stmt, found, around)
        split = self.by_panels(stmt, around) if self.few else None
        if split is not None or found is not None:
            return split or stmt
        return replace(stmt, body=self.block(stmt.body, (*around, stmt)))

    def whole(self, stmt: For, found: Contraction, around: tuple[For, ...]) -> For:
        """The contraction with a side that is fixed in panels."""
        side, width = found, tile_width(found, self.target)
        if not self.fixed(side.right):
            side, width = found.turned, turned_rows(found, self.target)
            if not self.fixed(side.right) or not turns(found, self.target):
                return stmt
        side, around = longest(side, around)
        read = [b.type for b in loads(side.right)]
        if unpacks(read, max(hint(t.size) for t in read) * side.right.type.dtype.bytes):
            return stmt
        if any(span(f) is None for f in _read_along(side, around)):
            return stmt
        side = self.pack(replace(side, outer=(*around, *side.outer)), width)
        update = replace(found.update, values=(apply(found.times, side.left, side.right),))
        return map_each((stmt,), Update, lambda s: update)[0]  # type: ignore[return-value]

    def by_panels(self, stmt: For, around: tuple[For, ...]) -> For | None:
        """Folds of few rows with constants, panel by panel; None for other nests.

        One row reads each element once: what the cache holds is read as fast where it is.
        """
        free, reduce, updates, stores, column = folded(stmt) or ([], [], [], [], None)
        if column is None:
            return None
        along = {r.axis for r in reduce}
        reads = {n: nest.free_variables(n) for n in nodes(tuple(updates)) if isinstance(n.op, Load)}
        wide = [n for n, of in reads.items() if column.axis in of and along & of]
        rows = trips(*(f for f in free if not any(f.axis in reads[n] for n in wide)))
        near = rows == 1 and hint(sum(b.type.bytes for b in loads(*wide))) <= self.target.l2
        if not wide or near or rows >= FEW or not all(map(self.plain, wide)):
            return None
        outer = (*around, *(f for f in free if f is not column))
        roles = (column, column, outer, (), tuple(reduce), updates[0])
        sides = [Contraction(*roles, n, n, tuple(stores)) for n in wide]
        if any(not f.extent for c in sides for f in _read_along(c)):
            return None
        width = tile_width(sides[0], self.target)
        if -(-trips(column) // width) * width > FILLED * trips(column):
            return None
        at = self.labels.axis("p")
        packed = {c.right: in_panels(self.pack(c, width), width) for c in sides}
        reads = {right: read(at) for right, read in packed.items() if read}

        def part(s: For) -> For:
            return blocked(s, at, width, bind="") if s.axis is column.axis else s

        return map_each(substitute_block((stmt,), reads), For, part)[0]  # type: ignore[return-value]

    def pack(self, c: Contraction, width: int) -> Contraction:
        """The same over panels of c.right of that width, which a kernel of its own packs."""
        kernel, read = panels(c, width, self.labels, self.names)
        self.packs.append(kernel)
        return replace(c, right=read)

    def plain(self, read: Node) -> bool:
        """Whether that is an element of a constant, wherever it is read."""
        return isinstance(read.op, Load) and not read.op.masked and self.fixed(read)

    def fixed(self, right: Node) -> bool:
        """Whether only axes and constants decide the term."""
        free = not any(isinstance(t.op, nest.Acc | nest.Running) for t in postorder(right))
        read = loads(right)
        return free and bool(read) and all(b.name in self.known for b in read)


def _read_along(c: Contraction, around: tuple[For, ...] = ()) -> list[For]:
    """The loops that the right side depends on: their lengths are those of its panels."""
    reads = nest.free_variables(c.right)
    return [f for f in (*around, *c.outer, *c.reduce, c.columns) if f.axis in reads]
