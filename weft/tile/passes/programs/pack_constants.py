"""pack_constants: packs a constant operand of a contraction in panels, by a kernel run once.

before  for a0 in 0..128:  # free               after  kernel pack_w(w: f32[64,512]) -> ...
            for a1 in 0..512:  # free                  for b0 in 0..16:  # free
                for a2 in 0..64:  # reduce                 for a2 in 0..64:  # free
                    acc0 <- add(acc0, x * w[a2, a1])           for j0 in 0..32:  # free
                                                                   ... = w[a2, b0 * 32 + j0]
                                                       and then x * panels[a1 // 32, a2, a1 % 32]

It packs the right operand, or the left one where rows fill the lanes better than columns. Few rows
read panels too, one by one: `for p0 in 0..512 by 32: for a1 in p0..p0 + 32`. Rows of a panel lie
one after another in the order the register tiles read them. The runtime runs kernels of constants
alone once, and again when a constant has changed.
"""

from collections.abc import Collection
from dataclasses import replace

from weft.core.node import Node, make, postorder, substitute
from weft.core.text.graph import fresh
from weft.core.types import TensorType
from weft.scalar import nest
from weft.scalar.affine import function_of
from weft.scalar.blocks import loads, map_each, map_loops, nodes, substitute_block, with_body
from weft.scalar.nest import Block, Buffer, For, Kernel, Load, Program, Store, Update
from weft.scalar.ops import apply, constant, floordiv, floormod, minimum, multiply, value_of
from weft.scalar.sizes import Size, hint
from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, contraction, folded, span, stride_of, trips
from weft.tile.moves.loops import Labels, around, blocked
from weft.tile.passes.cpu.block_contraction import FEW, pays, tile_width, turns

FILLED = 1.25  # times as many columns as there are at most lie in panels that few rows read


def pack_constants(program: Program, constants: Collection[int], target: Machine) -> Program:
    """Pack for every contraction that the CPU schedule will block."""
    known = {program.inputs[i].name for i in constants}
    names = {b.name for s in program.steps for b in (*s.inputs, *s.outputs)}

    def one(kernel: Kernel) -> list[Kernel]:
        is_known = all(b.name in known for b in kernel.inputs)
        made = [kernel] if is_known else packed(kernel, known, names, target, few=True)
        fixed = made if is_known else made[:-1]
        known.update(b.name for k in fixed for b in k.outputs)
        return made

    return program.expand_kernels(one)


def packed(
    kernel: Kernel, known: Collection[str], names: set[str], target: Machine, few: bool = False
) -> list[Kernel]:
    """Kernels that pack what its contractions read of `known` buffers, then it over the panels.

    `few`: also where few rows read them, which pays where the panels are kept.
    """
    packing = _Packing(kernel, known, names, target, few)
    return [*packing.packs, packing.kernel]


class _Packing:
    """One kernel over packed panels, and the kernels that pack them."""

    def __init__(
        self, kernel: Kernel, known: Collection[str], names: set[str], target: Machine, few: bool
    ) -> None:
        self.known, self.names, self.target, self.few = known, names, target, few
        self.labels = Labels(kernel.body)
        self.packs: list[Kernel] = []
        body = self.block(kernel.body)
        panels = (b for pack in self.packs for b in pack.outputs)
        self.kernel = with_body(kernel, body, *panels) if self.packs else kernel

    def block(self, block: Block, around: tuple[For, ...] = ()) -> Block:
        return map_loops(block, lambda s: self.one(s, around))

    def one(self, stmt: For, around: tuple[For, ...]) -> For:
        found = contraction(stmt)
        if found is not None and pays(found):
            return self.whole(stmt, found, around)
        panels = self.by_panels(stmt, around) if self.few else None
        if panels is not None or found is not None:
            return panels or stmt
        return replace(stmt, body=self.block(stmt.body, (*around, stmt)))

    def whole(self, stmt: For, found: Contraction, around: tuple[For, ...]) -> For:
        """The contraction with a side that is fixed in panels."""
        side, width = found, tile_width(found, self.target)
        if not self.fixed(side.right):
            side, width = found.turned, self.target.lanes(found.bytes)
            if not self.fixed(side.right) or not turns(found, self.target):
                return stmt
        if any(span(f) is None for f in _read_along(side, around)):
            return stmt
        read = self.pack(replace(side, outer=(*around, *side.outer)), width)
        value = apply(found.times, side.left, read)
        update = replace(found.update, values=(value,))
        changed = map_each((stmt,), Update, lambda s: update)
        return changed[0]  # type: ignore[return-value]

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
        at, size = self.labels.axis("p"), constant(width)
        place = {
            apply(floordiv, column.axis, size): apply(floordiv, at, size),
            apply(floormod, column.axis, size): apply("subtract", column.axis, at),
        }
        panels = {c.right: substitute((self.pack(c, width),), place)[0] for c in sides}

        def part(s: For) -> For:
            return blocked(s, at, width, bind="") if s.axis is column.axis else s

        return map_each(substitute_block((stmt,), panels), For, part)[0]  # type: ignore[return-value]

    def plain(self, read: Node) -> bool:
        """Whether that is an element of a constant, wherever it is read."""
        return isinstance(read.op, Load) and not read.op.masked and self.fixed(read)

    def fixed(self, right: Node) -> bool:
        """Whether only axes and constants decide the term."""
        free = not any(isinstance(t.op, nest.Acc | nest.Running) for t in postorder(right))
        read = loads(right)
        return free and bool(read) and all(b.name in self.known for b in read)

    def pack(self, c: Contraction, width: int) -> Node:
        """Emit the kernel that packs c.right in panels of that width; how to read it."""
        columns, column = span(c.columns), c.columns.axis
        within = set(postorder(c.right))
        parts = dict(self.part(f, c.right) for f in c.outer if f.axis in within)
        outer, inner = list(parts.values()), [r for r in c.reduce if r.axis in within]
        (right,) = substitute((c.right,), {term: f.axis for term, f in parts.items()})
        count = (columns + width - 1) // width
        shape = (*map(span, outer), count, *map(span, inner), width)
        inputs = loads(c.right)
        name = fresh(f"{inputs[0].name}_panels", self.names)
        panels = Buffer(name, TensorType(c.right.type.dtype, shape))
        each, n, whole = self.labels.axis("b"), self.labels.axis("j"), constant(columns // width)

        def fill(panel: Node, partial: bool) -> For:
            """The loops that fill a panel; beyond the last column that one again."""
            at = apply("add", apply(multiply, panel, constant(width)), n)
            at = apply(minimum, at, constant(columns - 1)) if partial else at
            value = substitute((right,), {column: at})[0]
            index = (*(f.axis for f in outer), panel, *(r.axis for r in inner), n)
            loop = For(n, constant(0), constant(width), (Store(panels, index, value),))
            return around(inner, loop, role="free", folds=())

        along = {stride_of(n, column, {}) for n in postorder(right) if isinstance(n.op, Load)}
        # squares of registers read rows of columns anywhere: one nest for all panels, the last too
        begin = constant(0) if 1 not in along and isinstance(columns, Size) else whole
        nests = [For(each, constant(0), begin, (fill(each, False),))] if begin is whole else []
        nests = nests if value_of(whole) != 0 else []
        if isinstance(columns, Size):  # one more, or none
            nests.append(For(each, begin, constant(count), (fill(each, True),)))
        elif columns % width:
            nests.append(fill(whole, True))
        body = tuple(around(outer, nest) for nest in nests)
        self.packs.append(Kernel(f"pack_{panels.name}", inputs, (panels,), body))
        quotient = apply(floordiv, column, constant(width))
        inside = apply(floormod, column, constant(width))
        return make(Load(panels), *parts, quotient, *(r.axis for r in inner), inside)

    def part(self, loop: For, right: Node) -> tuple[Node, For]:
        """What of a loop's axis the term depends on, a quotient or all of it; a loop over that."""
        users = [n for n in dict.fromkeys(postorder(right)) if loop.axis in n.args]
        by = int(value_of(users[0].args[1]) or 0) if function_of(users[0]) == "floordiv" else 0
        if len(users) > 1 or by < 1 or loop.extent is None or trips(loop) % by:
            return loop.axis, loop
        return users[0], For(self.labels.axis("g"), constant(0), constant(trips(loop) // by), ())


def _read_along(c: Contraction, around: tuple[For, ...] = ()) -> list[For]:
    """The loops that the right side depends on: their lengths are those of its panels."""
    reads = nest.free_variables(c.right)
    return [f for f in (*around, *c.outer, *c.reduce, c.columns) if f.axis in reads]
