"""What moves need: loops that are not bound, iterations that do not meet, binds that fit.

at = Scene(kernel, target)
at.put(at.free("a0"), (..,))        # the kernel's body with statements in place of an unbound loop
clash(loop)                         # VerifyError where iterations meet in an element they store
RULES["thread"](loop, at.path("a0"), "thread", target)      # ... where a bind does not fit
A path has the loops from the outermost one to the loop itself.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from weft.core.errors import choice
from weft.core.node import Node, require
from weft.scalar import blocks, nest
from weft.scalar.affine import linear
from weft.scalar.blocks import locals_in, loops_in, only_loop, stored_in
from weft.scalar.nest import PARALLEL, PIPELINE, Block, Buffer, For, Kernel, Store, free_variables
from weft.scalar.reach import extent_of, longest
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU
from weft.tile.moves.loops import Labels

Target = CPU | GPU
Rule = Callable[[list[For], str, Target], None]
MOST = 64  # copies of its body that a loop unrolls
SHARED = ("lane", "warp")  # binds to threads that share an iteration
SIDE_BY_SIDE = ("thread", "register", "vector")  # binds of loops that share a slab inside


class Scene:
    """A kernel that a move changes, for a target: its loops by name, and fresh names."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel, self.target, self.labels = kernel, target, Labels(kernel.body)
        self.on_gpu = isinstance(target, GPU)
        self.loops = list(dict.fromkeys(f.label for f in loops_in(kernel.body)))
        self.held = sum(b.bytes for b in dict.fromkeys(locals_in(kernel.body)))

    def path(self, label: str) -> list[For]:
        """The loops from the outermost one to that of a name."""
        choice("loop", label, self.loops)
        found = loops_in(self.kernel.body)
        return [f for f in found if any(g.label == label for g in loops_in((f,)))]

    def free(self, label: str) -> For:
        """The loop of a name, which must not be bound."""
        loop = self.path(label)[-1]
        require(loop.bind in ("", "serial"), f"{label} is bound to {loop.bind}: bind it after this")
        ahead = any(isinstance(s, For) and s.bind in PIPELINE for s in loop.body)
        require(not ahead, f"slabs are filled ahead of {label}: change it before")
        return loop

    def whole(self, label: str, by: int) -> For:
        """The loop of a name, which can go in such blocks."""
        loop = self.free(label)
        require(loop.step == 1, f"{label} is in blocks of {loop.step}: split the loop inside of it")
        require(by > 0, f"{by} is no length of a block")
        return loop

    def chain(self, outer: str, inner: str) -> list[For]:
        """The loops of a perfect nest from one to another: not bound, and of one role, no scans."""
        path, first = self.path(inner), self.path(outer)[-1]
        require(first in path[:-1], f"{inner} is not inside of {outer}")
        chain = path[path.index(first) :]
        perfect = all(only_loop(f.body) is g for f, g in pairwise(chain))
        require(perfect, f"there are other statements between {outer} and {inner}")
        for f in chain:
            told = f"{outer} is a {first.role} loop, and {f.label} a {f.role} loop"
            require(self.free(f.label).role == first.role != "scan", told)
        return chain

    def put(self, old: For, *new: nest.Stmt) -> Block:
        """The body of the kernel with statements in place of a loop."""

        def down(loop: For) -> Block:
            return (
                new if loop is old else (replace(loop, body=blocks.expand_loops(loop.body, down)),)
            )

        return blocks.expand_loops(self.kernel.body, down)


def moving(loop: For, by_end: bool = True) -> set[Node]:
    """The loop's axis, and those of loops inside that start, or end, where it says."""
    found = {loop.axis}
    for f in loops_in(loop.body):
        ends = free_variables(f.lo, f.hi) if by_end else free_variables(f.lo)
        found |= {f.axis} if found & ends else set()
    return found


def clash(loop: For) -> None:
    """VerifyError where iterations store one element, or one may read what another stores.

    A role promises as much, but a promise can be broken; only buffers of an iteration may do both.
    """
    axes = moving(loop, by_end=False)
    own, read = {*locals_in(loop.body)}, blocks.loads(*blocks.nodes(loop.body))
    for s in (s for s in nest.walk(loop.body) if isinstance(s, Store) and s.buffer not in own):
        told = f"all iterations of {loop.label} store to the same elements of {s.buffer.name}"
        require(bool(axes & free_variables(*s.index)), told)
        told = f"iterations of {loop.label} may read what others store to {s.buffer.name}"
        require(s.buffer not in read or not meets(loop, s.buffer), told)


def meets(loop: For, buffer: Buffer) -> bool:
    """Whether an iteration may touch an element of a buffer that another one touches."""
    axes, inside = moving(loop, by_end=False), {f.axis for f in loops_in((loop,))}
    places = {index for b, index in blocks.accesses(loop.body) if b == buffer}
    return not any(_tells({*indices}, axes, inside) for indices in zip(*places, strict=True))


def _tells(indices: set[Node], axes: set[Node], inside: set[Node]) -> bool:
    """Whether all accesses have one index, and that tells the iteration: by one of its axes."""
    own = free_variables(*indices) & inside
    alone = len(indices) == len(own) == 1 and own <= axes
    return alone and own <= linear(indices.pop())[0].keys()


def varies(loop: For, buffer: Buffer) -> bool:
    """Whether iterations of a loop may fill a buffer of its body with other values."""
    axes, terms = moving(loop), list[Node]()
    for s in nest.walk(loop.body):
        if isinstance(s, For):
            axes |= {n for fold in s.folds for n in (*fold.accs, *fold.running)}
        fills = isinstance(s, For) and buffer in stored_in(s.body)
        terms += s.terms() if fills or (isinstance(s, Store) and s.buffer == buffer) else ()
    own = {*locals_in(loop.body)} & {*blocks.loads(*terms)}
    return bool(axes & free_variables(*terms) or own)


def fills(loop: For, outer: For) -> bool:
    """Whether all that a loop does is to fill buffers that an outer one declares inside."""
    plain = all(f.role == "free" for f in loops_in((loop,)))
    return plain and stored_in((loop,)) <= {*locals_in(outer.body)}


def uniform(path: list[For]) -> None:
    """VerifyError where threads go through a loop around what they do together each in its way."""
    axes = {f.axis for f in path if f.bind == "thread"}
    for f in path:
        alike = f.bind.startswith(SIDE_BY_SIDE) or axes.isdisjoint(free_variables(f.lo, f.hi))
        require(alike, f"{f.label} has other ends in each thread")


def _at_once(
    path: list[For], private: str, outside: tuple[str, ...], inside: tuple[str, ...]
) -> For:
    """The loop at the end of a path, whose iterations may run at once.

    private     memory that each iteration has for itself
    outside     binds that cannot be around it, and `inside`, but of loops that only fill slabs
    """
    loop, here = path[-1], path[-1].label
    require(loop.role != "scan", f"{here} is a scan, whose iterations go in order")
    clash(loop)
    for b in locals_in(loop.body):
        told = f"iterations of {here} would share {b.name}: stage after loops are bound"
        require(b.space == private or not varies(loop, b), told)
    for f in path[:-1]:
        told = f"{here} is inside of {f.label}, which is bound to {f.bind}"
        require(not f.bind.startswith(outside), told)
    for f in (f for f in loops_in(loop.body) if not fills(f, loop)):
        told = f"{f.label} inside of {here} is bound to {f.bind}: bind outer loops first"
        require(not f.bind.startswith(inside), told)
        told = f"{here} folds, and {f.label} inside of it does not"
        require(loop.role == "free" or f.role == "reduce", told)
    return loop


def _even(loop: For, *but: str) -> None:
    """VerifyError for a loop inside whose ends move with this one, but for loops of such binds."""
    for f in loops_in(loop.body):
        moves = moving(loop) & free_variables(f.lo, f.hi) and not f.bind.startswith(but)
        require(not moves, f"the ends of {f.label} move with {loop.label}: bind that one first")


def parallel(path: list[For], to: str, target: Target) -> None:
    _at_once(path, "local", ("parallel", "register", "vector"), ("parallel",))


def register(path: list[For], to: str, target: Target) -> None:
    loop = _at_once(path, "", ("vector",), PARALLEL)
    _even(loop, "register", "vector")
    most = longest(loop.lo, loop.hi)
    short = most is not None and most <= MOST * loop.step
    require(short, f"{loop.label} runs more than {MOST} times, or as a size says: split it")
    whole = extent_of(loop) is not None or not isinstance(target, GPU)
    require(whole, f"the last block of {loop.label} is not whole: split by a divisor")


def vector(path: list[For], to: str, target: Target) -> None:
    loop = _at_once(path, "", ("vector",), ("vector", "parallel"))
    _even(loop)
    widths = [f"vector{1 << n}" for n in range(1, target.lanes(4).bit_length())]
    fits = to in widths and longest(loop.lo, loop.hi) != 1
    require(fits, f"{loop.label} runs once, or there is no {to}: {', '.join(widths)}")


def grid(path: list[For], to: str, target: Target) -> None:
    clash(path[-1])
    for f, inner in pairwise(path):
        alone = f.bind == "grid" and only_loop(f.body) is inner
        require(
            alone, f"{f.label} is not bound to grid, or has other statements than {inner.label}"
        )
    moves = free_variables(path[-1].lo, path[-1].hi)
    require(not moves, f"the ends of {path[-1].label} move with a loop around it")


def thread(path: list[For], to: str, target: Target) -> None:
    loop = _at_once(path, "local", ("register", *SHARED), ("grid", "thread", *SHARED))
    first = next(i for i, f in enumerate(path) if f.bind == "thread" or f is loop)
    chain = all(f.bind == "thread" and only_loop(f.body) is g for f, g in pairwise(path[first:]))
    told = f"{path[first].label} around {loop.label} has threads: bind {loop.label} to lane"
    require(chain and (loop.role == "free" or path[first] is loop), told)
    literal = loop.role == "reduce" or extent_of(loop) is not None
    require(literal, f"{loop.label} has no literal length: split it")
    slab = loop.role == "reduce" and any(loops_in(loop.body, "thread"))
    require(not slab, f"all threads would fill what {loop.label} reads: stage around it")


def lane(path: list[For], to: str, target: Target) -> None:
    loop = _at_once(path, "local", ("register", *SHARED), PARALLEL)
    around = [f for f in path if f.bind == "thread" and f.role == "free"]
    require(bool(around), f"{loop.label} is inside of no free loop bound to thread, to share it")
    last = around[-1]
    others = all(f.bind == to for f in loops_in(last.body, *SHARED))
    require(others, f"threads share other loops inside of {last.label}, and not as {to}")
    own = {*locals_in(last.body)} - {*locals_in(loop.body)}
    require(not own, f"each thread of {last.label} has {', '.join(b.name for b in own)} for itself")
    uniform(path[:-1])
    count, warp = (extent_of(last) or 0) / last.step, target.lanes(4)
    few = len(around) == 1 and count in [1 << n for n in range(1, warp.bit_length())]
    told = f"{last.label} is no single loop of 2, 4, 8 .. {warp} threads"
    require(to == "lane" or few, told)


CPU_RULES = {"parallel": parallel, "vector": vector}
GPU_RULES = {"grid": grid, "thread": thread, "lane": lane, "warp": lane}


def rules_for(target: Target) -> dict[str, Rule]:
    """What checks each bind, by its name without a number."""
    return {**(GPU_RULES if isinstance(target, GPU) else CPU_RULES), "register": register}
