"""Changes of loops that several passes share: fresh names, blocks, vector lanes, masks.

blocked(a0, b0, 16, body)       # for b0 in a0's range by 16: body(b0, min(b0 + 16, end))
tiled((a0, a1), ((0, 64), (1, 64), (0, 8)), labels, body)       # 64 x 64, and of these 8 x 64
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from weft.core.node import Node, rebuild
from weft.core.text.graph import fresh
from weft.core.types import DType, TensorType
from weft.scalar.blocks import access, accesses, locals_in, loops_in, map_statements, masked
from weft.scalar.index import simplify
from weft.scalar.nest import Block, Buffer, For, Kernel, Program, Stmt, Store, free_variables, walk
from weft.scalar.ops import apply, axis, constant, has_symbol, minimum
from weft.scalar.reach import extent_of
from weft.scalar.resize import sizes_of
from weft.scalar.structure import substituted
from weft.tile.analysis.access import trips

Steps = Sequence[tuple[int, int]]  # each a number of a loop, and a width
BlockBody = Callable[[Node, Node], Block]  # over a start and an end


class Labels:
    """Fresh loop and buffer names in one kernel."""

    def __init__(self, body: Block) -> None:
        self.loops = {loop.label for loop in loops_in(body)}
        if any(has_symbol(t) for s in walk(body) for t in s.terms()):
            self.loops |= {*sizes_of(body)}
        self.buffers = {b.name for b, _ in accesses(body)}

    def axis(self, stem: str) -> Node:
        return axis(_numbered(stem, self.loops))

    def buffer(self, stem: str, dtype: DType, shape: Sequence[int], space: str = "local") -> Buffer:
        return Buffer(_numbered(stem, self.buffers), TensorType(dtype, tuple(shape)), space)


def distinct(program: Any) -> Any:
    """The program, where no local buffer has the name of a parameter: `panel0` may be a user's."""

    def renamed(kernel: Kernel) -> Kernel:
        taken = {b.name for b in (*kernel.inputs, *kernel.outputs)}
        met = [b for b in dict.fromkeys(locals_in(kernel.body)) if b.name in taken]
        others = {b: replace(b, name=fresh(b.name, taken)) for b in met}
        return replace(kernel, body=substituted(kernel.body, others)) if others else kernel

    is_program = isinstance(program, Program)
    return program.map_kernels(program.level, renamed) if is_program else program


def _numbered(stem: str, taken: set[str]) -> str:
    name = next(name for n in count() if (name := f"{stem}{n}") not in taken)
    taken.add(name)
    return name


def upto(start: Node, width: Any, end: Node) -> Node:
    return apply(minimum, apply("add", start, constant(width)), end)


def past(place: Node, start: Node) -> Node:
    """The distance of an index from where a loop starts."""
    return place if start is constant(0) else apply("subtract", place, start)


def nested(loops: Sequence[For], body: Block, **fields: Any) -> Block:
    """The body inside perfectly nested loops, the first outermost.

    The loops have other `fields`, as `replace` takes them.
    """
    for loop in reversed(loops):
        body = (replace(loop, body=body, **fields),)
    return body


def around(loops: Sequence[For], nest: For, **fields: Any) -> For:
    """The nest inside loops as `nested` has them."""
    return nested(loops, (nest,), **fields)[0]  # type: ignore[return-value]


def blocked(
    loop: For, origin: Node, width: int, body: BlockBody | None = None, bind: str = "serial"
) -> For:
    """`for origin in loop by width`, with a body over origin .. min(origin + width, end).

    Without another body it is the loop itself over that block.
    """
    end = upto(origin, width, loop.hi)
    block = body(origin, end) if body else (replace(loop, lo=origin, hi=end, folds=()),)
    return For(origin, loop.lo, loop.hi, block, width, loop.role, bind, loop.folds)


def tiled(loops: Sequence[For], steps: Steps, labels: Labels, body: Callable[..., Block]) -> Block:
    """Loops in blocks, and in blocks of these: a step is which of the loops it cuts, and how wide.

    `body` is over the loops as they are in the innermost blocks.
    """
    if not steps:
        return body(*loops)
    (which, width), *rest = steps

    def inside(lo: Node, hi: Node) -> Block:
        cut = [replace(f, lo=lo, hi=hi) if i == which else f for i, f in enumerate(loops)]
        return tiled(cut, rest, labels, body)

    return (blocked(loops[which], labels.axis("b"), width, inside),)


def vectors(loop: For, lo: Node, hi: Node, lanes: int, labels: Labels, body: Block) -> For:
    """The loop from lo to hi as unrolled vectors."""
    origin = labels.axis("c")
    vector = For(loop.axis, origin, upto(origin, lanes, hi), body, 1, loop.role, f"vector{lanes}")
    return For(origin, lo, hi, (vector,), lanes, loop.role, "register")


def renamed(block: Block, labels: Labels) -> Block:
    """The block with fresh names for its loops: a copy beside the first."""
    axes = {f.axis: labels.axis(f.label.rstrip("0123456789")) for f in loops_in(block)}
    return substituted(block, axes)


def full(loop: For, width: int) -> tuple[Node, bool]:
    """Where whole blocks of that width end, and whether the loop ends there.

    Of a loop that a size ends it is not known; the last block begins before its end.
    """
    if has_symbol(loop.hi):
        return loop.hi, False
    length = -(-trips(loop) // width) * width
    end = simplify(apply("add", loop.lo, constant(length)), {})
    return end, length == extent_of(loop)


def section(loop: For, start: Node, length: int, **fields: Any) -> For:
    """The loop from `start` to `length` beyond it, with other `fields` as `replace` takes them."""
    return replace(loop, lo=start, hi=apply("add", start, constant(length)), **fields)


def in_strips(loop: For, start: Node, width: int) -> For:
    """The loop in strips of so many neighbours, which one thread takes."""
    role = "scan" if loop.role == "reduce" else loop.role  # in order: one accumulator
    strip = section(loop, start, width, bind="register", folds=(), role=role)
    return replace(loop, axis=start, step=width, body=(strip,))


def guarded(term: Node, axis: Node, condition: Node) -> Node:
    """The term with its loads along an axis masked by a condition; 0 where it is false."""

    def change(node: Node) -> Node | None:
        along = access(node) and axis in free_variables(node)
        return masked(node, condition) if along else None

    return rebuild((term,), change)[0]


def within(body: Block, loop: For) -> Block:
    """The body with no load or store beyond the loop's end."""
    inside = apply("lt", loop.axis, loop.hi)

    def one(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For):
            stmt = stmt.map_terms(lambda t: guarded(t, loop.axis, inside))
        if not isinstance(stmt, Store):
            return stmt
        return replace(stmt, mask=inside if stmt.mask is None else apply("and", stmt.mask, inside))

    return map_statements(body, one)
