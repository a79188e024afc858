"""Kernels scheduled by hand: their moves from the text of a schedule, applied in order.

read_moves("mm: split{axis=a0, by=8}")["mm"]        # (Split("a0", 8),)
kernel = applied(kernel, moves, target)             # WeftError names the move that is not legal
program, aside = set_aside(program, {"mm"})         # a program without mm, for passes over it
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from weft.core.arguments import Arguments
from weft.core.passes import Passes
from weft.core.text.cursor import Cursor, Line
from weft.core.text.level import Scope, read_attributes
from weft.scalar.choices import MOVE, Chooser
from weft.scalar.nest import Call, Kernel, Program
from weft.tile.moves.legal import Target
from weft.tile.moves.loop_values import Bind, Join, Merge, Reorder, Split, SplitFold, Vectorize
from weft.tile.moves.slab_values import Pad, Pipeline, Stage, Tensorize
from weft.tile.moves.values import Move

Aside = Mapping[str, Kernel]
KINDS = (Split, Reorder, Join, Merge, Bind, SplitFold, Vectorize, Stage, Pad, Pipeline, Tensorize)
MOVES: Mapping[str, type[Move]] = {m.name: m for m in KINDS}


def read_move(cursor: Cursor) -> Move:
    """Reads what a move prints; ParseError for another name, or other fields."""
    name = cursor.name("a move")
    if name not in MOVES:
        cursor.fail(f"unknown move {name!r}: one of {', '.join(MOVES)}")
    cls: Any = MOVES[name]
    move: Any = read_attributes(cursor, cls, Scope())
    return move


def read_moves(text: str) -> dict[str, tuple[Move, ...]]:
    """Moves by kernel, in order; ParseError for a line that begins as one, and is none."""
    found: dict[str, tuple[Move, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if MOVE.match(line):
            cursor = Cursor(Line(number, line, "schedule"))
            kernel = cursor.name("a kernel")
            cursor.expect(":")
            found[kernel] = (*found.get(kernel, ()), read_move(cursor))
            cursor.end()
    return found


def by_hand(program: Program, steps: Passes, chooser: Chooser, target: Target) -> Any:
    """The program with each kernel that has moves scheduled by these, its folds widened before.

    Of the passes over kernels, `steps`, none but block_sums changes those kernels later.
    """
    widen = [step for name, step in steps if name.endswith("widen_folds")]

    def one(kernel: Kernel) -> Kernel:
        moves = chooser.moves.get(kernel.name, ())
        for step in widen if moves else ():
            kernel = step(kernel, target)
        return applied(kernel, moves, target)

    return program.map_kernels(program.level, one) if chooser.moves else program


def applied(kernel: Kernel, moves: Sequence[Move], target: Target) -> Kernel:
    """The kernel after its moves."""
    for move in moves:
        kernel = move.apply(kernel, target)
    return kernel


def set_aside(program: Program, names: Collection[str]) -> tuple[Any, Aside]:
    """The program with calls in place of some kernels, which no pass looks into; and these."""
    aside = {f"kernel {k.name}": k for k in program.kernels if k.name in names}

    def one(kernel: Kernel) -> Kernel | Call:
        call = Call(f"kernel {kernel.name}", Arguments.of([]), kernel.inputs, kernel.outputs)
        return call if call.target in aside else kernel

    steps = (one(s) if isinstance(s, Kernel) else s for s in program.steps)
    return (replace(program, steps=tuple(steps)), aside) if aside else (program, aside)


def put_back(program: Program, aside: Aside) -> Program:
    """The program with kernels in place of the calls that stood for them."""
    steps = (aside.get(s.target, s) if isinstance(s, Call) else s for s in program.steps)
    return replace(program, steps=tuple(steps)) if aside else program
