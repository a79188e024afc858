"""Merges kernels that pass on rows into one: which steps, which loops they share, and over blocks.

before  s[a0, a1] = ..; and then .. s[a0, a2] ..      after  for a0 in 0..16:
                                                                 local s_rows: f32[64,512]
                                                                 ... s_rows[r, a1] = ..
                                                                 ... s_rows[r, a2] ..

shared_depth((s, z))            # 1: a row of z reads that row of s
over_rows((s, z), 1, 64)        # the kernel above
"""

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from itertools import count, takewhile
from typing import Any

from weft.core.node import Node
from weft.core.types import TensorType
from weft.scalar.blocks import accesses, combining, loads, redirect, substitute_block
from weft.scalar.nest import Block, Buffer, Call, For, Kernel, Local, Program, Store, walk
from weft.scalar.ops import apply, axis, constant
from weft.scalar.reach import counted
from weft.scalar.structure import renumber, substituted
from weft.tile.analysis.access import chain, span

Steps = Sequence[Any]  # kernels and calls
Run = tuple[Steps, Steps]  # steps, and what stands for them
Joined = Callable[[Steps, Steps, Steps, str], Steps | None]
AHEAD = 4  # kernels that are looked at beyond those merged, which may all read one tensor
ROW = axis("row")  # of a block, in a kernel that is being put together


def readers_of(program: Program) -> Counter[Buffer]:
    """How often each buffer is read, by the program's caller and to combine values with as well."""
    combined = (s.buffer for kernel in program.kernels for s in combining(kernel.body))
    return Counter((*program.outputs, *combined, *(b for s in program.steps for b in s.inputs)))


def merge_runs(program: Program, joined: Joined) -> Program:
    """The program with runs of steps that read each other replaced, where `joined` says by what.

    It is given all steps, a run of them, what stands for these so far, and a name.
    """
    readers, steps, first = readers_of(program), list(program.steps), 0
    while first < len(steps):
        members, made = _longest(steps, steps[first], readers, joined)
        if len(members) == 1:
            first += 1
            continue
        end = steps.index(members[-1]) + 1
        first -= sum(s in members for s in steps[:first])
        steps = [s for s in (*steps[:end], *made, *steps[end:]) if s not in members]
    return replace(program, steps=tuple(steps))


def _longest(steps: Steps, first: Any, readers: Mapping[Buffer, int], joined: Joined) -> Run:
    run = made = members = [first]
    while len(run) < len(members) + AHEAD and (after := reader(steps, run)) is not None:
        run = [*run, after]
        if not shared_depth(run):
            break  # no more members can mend that
        apart = [*made, *run[len(members) :]]
        if read_elsewhere(run, readers) or not (one := joined(steps, run, apart, after.name)):
            continue  # two products may read one softmax
        members, made = run, one
        for side in sides(steps, run, readers):
            run = [s for s in steps if s in members or s is side]
            if one := joined(steps, run, [*made, side], f"{after.name}.{side.name}"):
                members, made = run, one
        run = members
    return members, made


def reader(steps: Sequence[Kernel | Call], members: Sequence[Kernel | Call]) -> Kernel | None:
    """The first step after the members that reads what they wrote, if it has rows."""
    written = {b for m in members for b in m.outputs}
    rest = steps[steps.index(members[-1]) + 1 :]
    found = next((s for s in rest if not written.isdisjoint(s.inputs)), None)
    return found if isinstance(found, Kernel) and leading(found) else None


def sides(steps: Sequence[Any], run: Sequence[Any], readers: Mapping[Buffer, int]) -> list[Any]:
    """Other kernels with rows before a run's last one, whose results that alone reads."""
    own = {b for b, n in Counter(run[-1].inputs).items() if n == readers[b]}
    before = [s for s in steps[: steps.index(run[-1])] if s not in run and leading(s)]
    return [s for s in before if own.issuperset(s.outputs)]


def leading(step: Kernel | Call) -> list[For]:
    """The free loops around the whole body of a kernel."""
    if not isinstance(step, Kernel) or len(step.body) != 1:
        return []
    free = chain(step.body[0], "free")[0]
    return [*takewhile(lambda f: f.lo is constant(0) and f.step == 1 and span(f) is not None, free)]


def passed(members: Sequence[Kernel]) -> list[Buffer]:
    """The intermediates between the members."""
    read = {b for m in members for b in m.inputs}
    return [b for m in members for b in m.outputs if b in read]


def read_elsewhere(members: Sequence[Kernel], readers: Mapping[Buffer, int]) -> bool:
    """Whether others read an intermediate, of which `readers` tell how often each is read."""
    read = Counter(b for m in members for b in m.inputs)
    return any(readers[b] > read[b] for b in passed(members))


def shared_depth(members: Sequence[Kernel]) -> int:
    """Leading loops that all share, and whose iterations pass on slices of their own."""
    loops = [leading(m) for m in members]
    same = takewhile(lambda fs: len({span(f) for f in fs}) == 1, zip(*loops, strict=False))
    for depth in range(len(list(same)), 0, -1):
        if all(_own(b, members, depth) for b in passed(members)):
            return depth
    return 0


def _own(buffer: Buffer, members: Sequence[Kernel], depth: int) -> bool:
    """Whether iteration i of the shared loops touches the slice at i alone."""
    at = ((_levels(m, depth), index) for m in members for index in touches(m.body, buffer))
    seen = {tuple(map(levels.get, index)) for levels, index in at}
    levels = [n for n in next(iter(seen)) if n is not None]
    return len(seen) == 1 and sorted(levels) == list(range(depth))


def _levels(kernel: Kernel, depth: int) -> dict[Node, int]:
    return {f.axis: n for n, f in enumerate(leading(kernel)[:depth])}


def touches(block: Block, buffer: Buffer) -> list[tuple[Node, ...]]:
    """Indices of every access of a buffer."""
    return [index for b, index in accesses(block) if b == buffer]


def rows_of(members: Sequence[Kernel], depth: int) -> dict[Buffer, dict[int, Any]]:
    """Of every intermediate the positions along a row, with their sizes.

    Those are all but the positions of so many shared loops.
    """
    found: dict[Buffer, dict[int, Any]] = {}
    for member, b in ((m, b) for m in members for b in m.outputs if b in passed(members)):
        index, levels = touches(member.body, b)[0], _levels(member, depth)
        sizes = enumerate(b.type.shape)
        found[b] = {p: n for p, n in sizes if index[p] not in levels and n not in (0, 1)}
    return found


def merged_kernel(members: Sequence[Kernel], inside: Container[Buffer], body: Block) -> Kernel:
    """One kernel in place of several, with their operands but for the buffers `inside`."""
    inputs = dict.fromkeys(b for m in members for b in m.inputs if b not in inside)
    outputs = tuple(b for m in members for b in m.outputs if b not in inside)
    origin = tuple(dict.fromkeys(line for m in members for line in m.origin))
    return Kernel(members[-1].name, tuple(inputs), outputs, renumber(body), origin)


def over_rows(members: Sequence[Kernel], depth: int, block: int) -> Kernel:
    """The members as one kernel, over blocks of so many rows: of the last loop that they share."""
    handed = rows_of(members, depth)
    types = {b: TensorType(b.type.dtype, (block, *along.values())) for b, along in handed.items()}
    local = {b: Buffer(f"{b.name}_rows", t, "local") for b, t in types.items()}
    axes, accs = count(), count()

    def in_block(member: Kernel) -> For:
        """What a member does with the rows of a block, over axes of its own."""
        loops = leading(member)[:depth]
        values = {f.axis: axis(f"outer{n}") for n, f in enumerate(loops)}
        first = values[loops[-1].axis]
        values[loops[-1].axis] = apply("add", first, ROW)
        own = redirect(loops[-1].body, local, lambda b, at: (ROW, *map(at.__getitem__, handed[b])))
        end = constant(block)
        if loops[-1].extent is None:
            end = apply("minimum", end, apply("subtract", loops[-1].hi, first))
        return For(ROW, constant(0), end, substitute_block(own, values))

    nests = [in_block(replace(m, body=renumber(m.body, axes, accs))) for m in members]
    over = _in_place(nests, tuple(local.values()))
    kept = [Local(b) for b in local.values() if b not in over]
    body: Block = (*kept, *substituted(tuple(nests), over))
    for n, loop in reversed(list(enumerate(leading(members[0])[:depth]))):
        body = (For(axis(f"outer{n}"), constant(0), loop.hi, body, block if n == depth - 1 else 1),)
    return merged_kernel(members, local, counted(body))


def _in_place(nests: Sequence[For], locals_: Sequence[Buffer]) -> dict[Buffer, Buffer]:
    """Buffers stored by the only statement that reads another for the last time, at one place."""
    found: dict[Buffer, Buffer] = {}
    for n, rows in enumerate(nests):
        last, before, after = rows.body[-1:], rows.body[:-1], tuple(nests[n + 1 :])
        stmts = [s for s in walk(last) if s.terms()]
        for old in (b for b in locals_ if not touches(after, b)):
            readers = [s for s in stmts if old in loads(*s.terms())]
            new = readers[0].buffer if len(readers) == 1 and isinstance(readers[0], Store) else old
            alike = new in locals_ and new is not old and new.type == old.type
            at = {*touches(last, new), *touches(last, old)}
            if alike and len(at) == 1 and not touches(before, new):
                found[new] = found.get(old, old)
    return found
