"""The price of one scheduled kernel on a CPU, counted from what the C compiler is given.

kernel_us(kernel, host())       # us of a kernel at the tile level, after all of its passes

time = launch + forks + instructions and bytes, whichever take longer, and a part of the others.
Instructions are those of the kernel level, by pipe, times the iterations of the loops around them
on the busiest core; of a loop that adds to few accumulators, the latency of these. Bytes are what
moves past each cache (traffic.py).
"""

from collections.abc import Mapping
from typing import Any

from weft.core.node import Node, postorder
from weft.emit.terms import unnamed
from weft.kernel.ops import VectorStore
from weft.scalar import nest
from weft.scalar.affine import linear
from weft.scalar.blocks import loops_in
from weft.scalar.nest import Block, Buffer, For, Kernel, Let, Store
from weft.scalar.ops import Apply, Constant, Symbol
from weft.scalar.placing import place
from weft.scalar.sizes import hint
from weft.targets.cpu import CPU
from weft.tile.lower.kernels import lower_kernel
from weft.tune.price.rates import Rates, rates_of
from weft.tune.price.traffic import Traffic, access_of
from weft.tune.price.work import PAGE, Counting, Work

L1 = 32 << 10  # bytes
OVER = 0.5  # of the last cache: bytes by which more than that is used until nothing stays
WINDOW = 300.0  # instructions that a core has under way: iterations of outer loops overlap
PEELED = 8, 200  # iterations and instructions of a loop that the C compiler unrolls as a whole
LEARNT = 24  # iterations of a loop whose end a core still foresees
# The part of what takes less time than the longest that is not hidden behind that: of bytes and
HIDDEN, BEHIND = 0.15, 0.03  # instructions, and of instructions for different pipes


def kernel_us(kernel: Kernel, target: CPU, rates: Rates | None = None) -> float:
    """Microseconds of a kernel at the tile level, sizes at their hints, on all cores."""
    return body_us(placed(kernel), target, rates or rates_of(target))


def placed(kernel: Kernel) -> Block:
    """What the C compiler is given."""
    return place(lower_kernel(kernel).body, unnamed)


def body_us(body: Block, target: CPU, rates: Rates) -> float:
    walk = Walk(target, rates)
    times = walk.block(body), *memory(body, walk.turns, target, rates)
    return rates.launch_us + walk.fork_us + longest(*times) / 1e3


def longest(*times: float, part: float = HIDDEN) -> float:
    """The longest of times that overlap, and a part of the others."""
    most = max(times)
    return most + part * (sum(times) - most)


class Walk:
    """The time of a block's instructions, with the axes around it at half of their way."""

    def __init__(self, target: CPU, rates: Rates) -> None:
        self.target, self.rates = target, rates
        self.counting = Counting(target, rates)
        self.at: dict[Node, Any] = {}
        self.turns: dict[For, float] = {}  # iterations of loops
        self.instructions: dict[For, float] = {}  # of all iterations of loops
        self.times = 1.0  # how often the block runs
        self.fork_us = 0.0

    def block(self, stmts: Block) -> float:
        """ns of one run."""
        inner = sum(self.loop(s) for s in stmts if isinstance(s, For))
        return self.issue(self.counting.block(stmts)) + inner

    def issue(self, work: Work) -> float:
        """ns of instructions that do not wait for each other: arithmetic beside memory's."""
        r, n = self.rates, work
        arithmetic = n.fma * r.fma + n.add * r.add + n.step * r.step
        shuffles = n.shuffle * r.shuffle + n.lane * r.lane
        return longest(arithmetic + shuffles, n.load * r.load, n.store * r.store, part=BEHIND)

    def loop(self, stmt: For) -> float:
        lo = self.value(stmt.lo)
        if stmt.usual:
            self.at[stmt.hi] = lo + stmt.usual
        hi = self.value(stmt.hi)
        turns = max(0, -(-(hi - lo) // stmt.step))
        self.turns[stmt] = float(turns)
        self.instructions[stmt] = 0.0
        if turns == 0:
            return 0.0
        self.at[stmt.axis] = lo + turns // 2 * stmt.step
        shared, times = 1.0, self.times
        if stmt.bind == "parallel":
            grain = 1 if stmt.grain is None else max(1, self.value(stmt.grain))
            chunks = min(self.target.cores, turns // grain)
            if chunks > 1:
                self.fork_us += times * self.rates.fork_us
                shared = -(-turns // chunks) / turns
        self.times = times * turns
        inner = sum(self.loop(s) for s in stmt.body if isinstance(s, For))
        self.times = times
        work = self.counting.block(stmt.body)
        lanes = self.target.vector_bytes / 8 if compiler_vectorizes(stmt, work) else 1.0
        work = work.over(lanes)
        count = work.total + sum(self.instructions[s] for s in stmt.body if isinstance(s, For))
        self.instructions[stmt] = turns * count
        chain = self.counting.chain(stmt.body) / max(1.0, WINDOW / max(1.0, turns * count))
        path = self.counting.path(stmt.body) / max(1.0, WINDOW / max(1.0, count))
        unrolled = turns == 1 or (turns <= PEELED[0] and turns * work.total <= PEELED[1])
        turn, enter = (0.0, 0.0) if unrolled else (self.rates.turn, self.rates.enter)
        each = max(self.issue(work), chain, path, turn / lanes) + inner
        each += self.rates.jump * jumps(stmt, self.target)
        return turns * shared * each + enter * (turns > LEARNT)

    def value(self, term: Node) -> int:
        """A bound, with sizes at their hints."""
        found: dict[Node, Any] = {}
        for node in postorder(term):
            known = self.at.get(node)
            found[node] = self.own(node, [found[a] for a in node.args]) if known is None else known
        return int(found[term])

    def own(self, node: Node, args: list[Any]) -> Any:
        op = node.op
        if isinstance(op, Constant):
            return op.value
        if isinstance(op, Symbol):
            return op.hint
        return op.function.evaluate(*args) if isinstance(op, Apply) else 0


def jumps(stmt: For, target: CPU) -> int:
    """The buffers in which every iteration goes to another page: nothing fetches that ahead."""
    found: set[Buffer] = set()
    for part in stmt.body:
        access = access_of(part)
        if access is not None and hint(access[0].bytes) > target.l2:
            buffer, index, _, _ = access
            step = linear(index)[0].get(stmt.axis, 0) * stmt.step * buffer.type.dtype.bytes
            found |= {buffer} if abs(step) >= PAGE else set()
    return len(found)


def compiler_vectorizes(stmt: For, work: Work) -> bool:
    """Whether the C compiler runs a loop over lanes: of plain arithmetic on neighbours, no sums."""
    accesses = [found for s in stmt.body if (found := access_of(s)) is not None]
    plain = all(isinstance(s, Let | Store) for s in stmt.body) and not work.step and stmt.step == 1
    lanes = any(n > 1 for _, _, n, _ in accesses)
    near = (linear(index)[0].get(stmt.axis, 0) in (0, 1) for _, index, _, _ in accesses)
    return bool(accesses) and plain and not lanes and all(near)


def memory(
    body: Block, turns: Mapping[For, float], target: CPU, rates: Rates
) -> tuple[float, float, float]:
    """ns that bytes take past each of the three caches.

    A kernel mostly reads what another, or its own last run, has left there: all that its core's
    cache holds, and nothing where it needs much more than the last cache has. Ordinary stores take
    twice the room, and read their lines first; streaming ones take none, and all reach memory.
    """
    cores = target.cores if any(loops_in(body, "parallel")) else 1
    stores = [s for s in nest.walk(body) if isinstance(s, Store | VectorStore)]
    streamed = {s.buffer for s in stores if s.how == "stream"}
    written = {s.buffer for s in stores} - streamed
    first, second = (Traffic(size, turns).buffers(body) for size in (L1, target.l2))
    own = {b: min(n, hint(b.bytes)) for b, n in second.items() if b not in streamed}
    held = sum(n * (2 if b in written else 1) for b, n in own.items())
    if held <= target.l2 * cores:
        second = {b: n for b, n in second.items() if b in streamed}
    missed = min(1.0, max(0.0, held / target.l3 - 1) / OVER)
    shared = sum(n for b, n in second.items() if b not in streamed)
    beyond = sum(
        n if b in streamed else n * missed * (2 if b in written else 1) for b, n in second.items()
    )
    return (
        sum(first.values()) / rates.l2 / cores,
        shared / rates.l3 / cores,
        beyond / (rates.memory if cores == 1 else rates.memory_all),
    )
