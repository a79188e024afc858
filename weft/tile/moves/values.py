"""Schedule moves as values: each prints and parses, checks itself, and lists where it is legal.

move = Split("a0", 8)                   # loop_values.py and slab_values.py have them all
str(move)                               # split{axis=a0, by=8}, which script.py reads
move.apply(kernel, target)              # the kernel with a0 in blocks of 8; WeftError if illegal
Split.instances(kernel, target)         # every split that is legal there
A move changes loops that are not bound, so what is bound is so last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, ClassVar

from weft.core.errors import WeftError
from weft.core.node import require
from weft.core.text.cursor import show_name
from weft.core.text.level import CODECS, Codec
from weft.scalar.blocks import locals_in
from weft.scalar.nest import ASKED, Block, Kernel, Program
from weft.tile import verify as tile_verify
from weft.tile.moves import legal
from weft.tile.moves.legal import Scene, Target

WIDTHS = (1, 2, 4, 8, 16, 32, 64)  # that `instances` tries


class Name(str):
    """The name of a loop, a buffer or a bind in the text of a move."""

    __slots__ = ()


CODECS[Name] = Codec(show_name, lambda cursor, scope: cursor.name())


VECTORS = [f"vector{n}" for n in WIDTHS]
OPTIONS: Mapping[str, Callable[[Scene], Iterable[Any]]] = {
    **dict.fromkeys(("axis", "outer", "inner", "first", "second", "at"), lambda at: at.loops),
    "by": lambda at: WIDTHS,
    "lanes": lambda at: WIDTHS,
    "parts": lambda at: WIDTHS,
    "to": lambda at: [*ASKED, *legal.rules_for(at.target), *VECTORS],
    "buffer": lambda at: [b.name for b in (*at.kernel.inputs, *locals_in(at.kernel.body))],
}


@dataclass(frozen=True)
class Move:
    """What all moves share. `OPTIONS` has what each of their fields may be."""

    name: ClassVar[str]

    def __str__(self) -> str:
        pairs = ((f.name, getattr(self, f.name)) for f in fields(self))
        shown = (f"{n}={show_name(v) if isinstance(v, str) else v}" for n, v in pairs)
        return f"{self.name}{{{', '.join(shown)}}}"

    def change(self, at: Scene) -> Block:
        """The body of the kernel after the move; WeftError where it is not legal."""
        raise NotImplementedError

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel after the move; WeftError, in a sentence, where it is not legal."""
        before, most = Scene(kernel, target), target.l2
        try:
            made = replace(kernel, body=self.change(before))
            held, most = Scene(made, target).held, getattr(target, "shared", target.l2)
            told = f"buffers of the kernel would take {held} bytes of {most}: stage less"
            require(held <= max(most, before.held), told)
            tile_verify.verify(Program("tile", kernel.name, kernel.inputs, kernel.outputs, (made,)))
        except WeftError as e:
            raise WeftError(f"{self} of kernel {kernel.name}: {e.message}", kernel.where) from e
        return made

    @classmethod
    def candidates(cls, kernel: Kernel, target: Target) -> list[Move]:
        """Moves of this kind with names that there are, legal or not."""
        at = Scene(kernel, target)
        return [cls(*v) for v in product(*(OPTIONS[f.name](at) for f in fields(cls)))]

    @classmethod
    def instances(cls, kernel: Kernel, target: Target) -> list[Move]:
        """Every move of this kind that is legal for the kernel."""
        return [m for m in cls.candidates(kernel, target) if m.is_legal(kernel, target)]

    def is_legal(self, kernel: Kernel, target: Target) -> bool:
        try:
            return self.apply(kernel, target) is not kernel
        except WeftError:
            return False
