"""Keeps one of equal kernels in a program, so that each is scheduled and compiled once.

unique = Unique(program)              # unique.program has one kernel of each structure
unique.restore(scheduled)             # every kernel again, as the first of its structure
unique.starts["add_2"]                # (0, 128): the elements at which its inputs begin
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import mul
from typing import Any, TypeVar

from weft.core.node import Node, make
from weft.scalar.affine import from_linear, linear, plus
from weft.scalar.blocks import nodes, redirect, rewrite_block
from weft.scalar.nest import Buffer, Kernel, Load, Program
from weft.scalar.ops import Axis, apply, constant
from weft.scalar.structure import structure
from weft.scalar.substitution import substituted

T = TypeVar("T")
Place = tuple[int, ...]  # coordinates of an element


def from_first(kernel: Kernel) -> tuple[Kernel, tuple[Place, ...]]:
    """The kernel with each input moved to begin at the first coordinates it reads, and these.

    load x[3, a0] -> load x[0, a0] and (3, 0): the steps of an unrolled loop, which read a row each,
    become equal.
    """
    reads: dict[Buffer, list[Node]] = {b: [] for b in kernel.inputs if b not in kernel.outputs}
    for node in nodes(kernel.body):
        if isinstance(node.op, Load) and node.op.buffer in reads:
            reads[node.op.buffer].append(node)
    first = {b: _first(b, found) for b, found in reads.items()}
    moved = {b: b for b, start in first.items() if any(start)}
    if moved:
        body = redirect(kernel.body, moved, lambda b, index: _shift(index, first[b], -1))
        kernel = replace(kernel, body=body)
    return kernel, tuple(first.get(b, (0,) * b.type.rank) for b in kernel.inputs)


def _first(buffer: Buffer, reads: list[Node]) -> Place:
    """The least constant that the reads add in each dimension; all 0 where a read is masked."""
    rank = buffer.type.rank
    if not reads or any(n.op.masked for n in reads):  # type: ignore[attr-defined]
        return (0,) * rank
    return tuple(min(_constant(n.args[d]) for n in reads) for d in range(rank))


def _constant(index: Node) -> int:
    """A lower bound of an index: its constant where it adds axes, which are >= 0; else 0."""
    terms, offset = linear(index)
    grows = all(k > 0 and isinstance(atom.op, Axis) for atom, k in terms.items())
    return max(offset, 0) if grows else 0


def _shift(index: tuple[Node, ...], start: Place, sign: int) -> tuple[Node, ...]:
    """The index + sign * start; a part that does not move stays as it is."""
    pairs = zip(index, start, strict=True)
    return tuple(from_linear(*plus(linear(i), ({}, n), sign)) if n else i for i, n in pairs)


class Unique:
    """`program` has only the first kernel of each structure; `restore` brings the others back.

    With `starts`, kernels that read different parts of their inputs alike share a structure too;
    the property `starts` has the elements at which the parts begin.
    """

    def __init__(self, program: Program, starts: bool = False) -> None:
        self.full = program
        self.places: dict[str, tuple[Place, ...]] = {}  # kernel -> where its parts begin
        moved = {k: from_first(k) if starts else (k, ()) for k in program.kernels}
        alike: dict[tuple[Any, ...], list[Kernel]] = {}
        for kernel, (part, _) in moved.items():
            alike.setdefault(structure(part), []).append(kernel)
        stands: dict[str, str] = {}
        steps: list[Kernel] = []
        for same in alike.values():
            places = {k.name: moved[k][1] for k in same}
            apart = len(set(places.values())) > 1
            self.places |= places if apart else {}
            stands |= dict.fromkeys(places, same[0].name)
            steps.append(moved[same[0]][0] if apart else same[0])
        # kernel -> the first kernel of its structure
        self.first = {k.name: stands[k.name] for k in program.kernels}
        self.program = replace(program, steps=tuple(steps))

    @property
    def starts(self) -> dict[str, tuple[int, ...]]:
        """For each kernel that takes parts of its inputs: the element at which each part begins."""
        layouts = {k.name: [b.type.layout for b in k.inputs] for k in self.full.kernels}
        parts = {name: zip(at, layouts[name], strict=True) for name, at in self.places.items()}
        return {name: tuple(sum(map(mul, *part)) for part in own) for name, own in parts.items()}

    def restore(self, program: Program) -> Program:
        """The full program at the level of `program`, which is `self.program` lowered."""
        made = {k.name: k for k in program.kernels}

        def again(kernel: Kernel) -> Kernel:
            own = _over_others(made[self.first[kernel.name]], kernel)
            if kernel.name not in self.places:
                return own
            flat = program.level == "kernel"
            first = [(n,) for n in self.starts[kernel.name]] if flat else self.places[kernel.name]
            return _over_whole(own, first)

        return self.full.map_kernels(program.level, again)

    def all(self, facts: Mapping[str, T]) -> dict[str, T]:
        """Facts of the first kernels, by name, as facts of every kernel."""
        return {name: facts[first] for name, first in self.first.items()}


def _over_others(found: Kernel, kernel: Kernel) -> Kernel:
    """The lowered kernel `found` of its structure, over the buffers of `kernel`."""
    pairs = zip((*found.inputs, *found.outputs), (*kernel.inputs, *kernel.outputs), strict=True)
    own = {b: replace(mine, type=b.type) for b, mine in pairs}
    return replace(substituted(found, own), name=kernel.name, origin=kernel.origin)


def _over_whole(kernel: Kernel, start: Sequence[Place]) -> Kernel:
    """The kernel over whole inputs: adds the start of each part to the indices."""
    first = {b: at for b, at in zip(kernel.inputs, start, strict=True) if any(at)}

    def change(node: Node) -> Node | None:
        at = first.get(getattr(node.op, "buffer", None))  # type: ignore[arg-type]
        if at is None:
            return None
        index, rest = node.args[: len(at)], node.args[len(at) :]
        if all(i.type.lanes == 1 for i in index):
            return make(node.op, *_shift(index, at, 1), *rest)
        return make(node.op, apply("add", index[0], constant(at[0])), *rest)  # a gather

    return replace(kernel, body=rewrite_block(kernel.body, change))
