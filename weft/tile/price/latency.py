"""The time of a GPU kernel with too few threads to hide the latency of their loads.

latency_ns(kernel.body, GPUS["cuda:sm_90a"])      # of the chain of loads that one thread makes

By Little's law: a thread has FLIGHT loads of a loop under way, and each takes LOAD (some 600 cycles
where no cache has it: Jia et al., "Dissecting the NVIDIA Volta GPU architecture via
microbenchmarking", and what followed for later ones).
"""

from weft.scalar.blocks import loads, loops_in, nodes
from weft.scalar.nest import Block, Buffer, For, Local
from weft.targets.gpu import GPU
from weft.tile.analysis.access import chain, contraction, trips
from weft.tile.moves.parts import part_length
from weft.tile.price.axes import best_axis_alone

LOAD, SHARED = 400.0, 25.0  # ns from global and from shared memory
NEAR = 48 << 10  # bytes of a row that are still there when it is read again
FLIGHT, WIDE = 4, 4  # loads of a loop that a thread has under way, elements of one along a row
CHUNK, DEPTH = 100.0, 32  # ns for the barrier and first reads of a product's chunk, its length
ROWS, TILES = 8, 2  # blocks on a multiprocessor, of rows and of tiles


def latency_ns(body: Block, target: GPU) -> float:
    """The latency of all nests, which run one after another."""
    return sum(_nest(s, target) for s in body if isinstance(s, For))


def _nest(stmt: For, target: GPU) -> float:
    around, body = chain(stmt, "free")
    count = trips(*around)
    if contraction(stmt) is not None:
        return _wait(stmt, 1, target, set())
    loops = [s for s in body if isinstance(s, For)]
    alone = len(loops) == len(body) == 1
    if alone and loops[0].role == "scan" and not any(loops_in(loops[0].body)):
        length = part_length(loops[0], around, target)  # the others of three kernels are short
        more = 2e3 * target.launch_us if length < trips(loops[0]) else 0.0
        return LOAD * max(1.0, length / FLIGHT) + more
    chosen = best_axis_alone(stmt, target)[1]
    share, blocks = target.threads * WIDE, ROWS  # a row for each block
    if any(isinstance(s, Local) for s in body):
        blocks = TILES
    elif not around:
        share *= target.cores  # a reduction alone, which is split
    elif not chosen.isdisjoint(f.axis for f in around):  # a column for each thread
        few = count < target.fewest_threads
        share, count = target.shared_threads // target.warp if few else 1, 1
    elif loops:  # a block has several short ones
        count *= min(1.0, max(map(turns, loops)) / share)
    waves = max(1.0, count / blocks / target.cores)
    seen = set[Buffer]()
    return waves * (sum(_wait(s, share, target, seen) for s in loops) or LOAD)


def _wait(stmt: For, share: int, target: GPU, seen: set[Buffer]) -> float:
    """The latency of one of the threads that share a loop; buffers `seen` before are cached."""
    product = contraction(stmt)
    if product is not None:
        chunks = trips(*product.reduce) / DEPTH
        return LOAD + min(chunks, target.cores) * CHUNK  # more are split over the grid
    if stmt.role == "scan":
        inner = [s for s in stmt.body if isinstance(s, For)]
        if inner:
            return trips(stmt) * sum(_wait(s, share, target, set()) for s in inner)
    read = {b for b in loads(*nodes((stmt,))) if b.space == "global"}
    if stmt.role == "scan":  # one thread has the row
        return trips(stmt) * (SHARED if read <= seen else LOAD / FLIGHT)
    count = turns(stmt)
    if read and read <= seen and count * WIDE <= NEAR:
        return 0.0
    seen |= read
    return (LOAD if read else SHARED) * max(1.0, count / share / FLIGHT)


def turns(stmt: For) -> float:
    """The number of iterations that one thread runs of a loop and of those inside it."""
    return trips(stmt) * max(1.0, sum(turns(s) for s in stmt.body if isinstance(s, For)))
