"""From a captured PyTorch program to sources, level by level: read `lower` to know weft.

torch -> tensor -> loop -> tile -> kernel -> source, each level a list of named passes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from weft.core.errors import WeftError, choice
from weft.core.node import Graph, Node
from weft.core.passes import Passes, PassLog, call_by_name, numbered
from weft.emit.gpu import Launch
from weft.emit.languages import LANGUAGES
from weft.emit.sources import sources_of
from weft.export.mlir import to_mlir
from weft.export.triton.program import to_triton
from weft.frontend import torch_level
from weft.frontend.graph import KNOWN, Known
from weft.frontend.lower import to_tensor
from weft.kernel import verify as kernel_verify
from weft.loop import verify as loop_verify
from weft.options import Options, find_target
from weft.scalar.blocks import combining
from weft.scalar.choices import Choices, Chooser
from weft.scalar.nest import Block, Buffer, Kernel, Program
from weft.scalar.reach import counted
from weft.scalar.resize import hints_of, sizes_of, with_hints
from weft.scalar.rows import expanded
from weft.scalar.sizes import Size
from weft.scalar.structure import Unique, is_same
from weft.search.search import kept_once, search
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU
from weft.tensor import lower as tensor_lower
from weft.tensor import verify as tensor_verify
from weft.tensor.alike import Prices
from weft.tensor.fuse import partition
from weft.tensor.groups import Group
from weft.tensor.inner_sums import nest_sums
from weft.tensor.layouts import without_layouts
from weft.tensor.pairs import pair_bf16
from weft.tensor.recurrences import split_recurrences
from weft.tensor.rules import simplify
from weft.tensor.runs import as_scatters
from weft.tensor.segments import by_segments
from weft.tensor.slices import join_slices
from weft.tensor.sorts import Buffers
from weft.tensor.statistics import fold_in_one_pass
from weft.tensor.trims import trim_scatters
from weft.text import print_program
from weft.tile import verify as tile_verify
from weft.tile.lower import kernels as tile_lower
from weft.tile.moves.loops import distinct
from weft.tile.moves.script import by_hand, put_back, read_moves, set_aside
from weft.tile.passes.programs.join_launches import most_rows
from weft.tile.price.hints import price_for, ranges_around, thought_large
from weft.tile.price.tables import tables
from weft.tile.schedule import (
    BLOCKS,
    GPU_KERNEL,
    PRECISE,
    Schedule,
    check_machine,
    check_repeats,
    schedule_for,
)
from weft.tune.text import read_schedule, show_schedule
from weft.tune.tuner import decisions_of

VERIFY: dict[str, Callable[[Any], None]] = {
    "torch": torch_level.verify,
    "tensor": tensor_verify.verify,
    "loop": loop_verify.verify,
    "tile": tile_verify.verify,
    "kernel": kernel_verify.verify,
}

# From a nest with loops over threads to the program of one thread; in order, on a GPU.
STEPS = ("spread_threads", "own_elements", "load_matrices", "widen_accesses", "place_barriers")
GPU_THREADS = numbered("weft.kernel", *STEPS, first=GPU_KERNEL)


@dataclass(frozen=True)
class Levels:
    """One program at every level it has been lowered through.

    Below the loop level `made` has only one kernel of each structure, which `unique` tells.
    """

    made: Mapping[str, Any]  # by level
    unique: Unique | None
    sources: Mapping[str, str]
    symbols: Mapping[str, str]  # kernel -> C function
    launches: Mapping[str, Launch]  # of GPU kernels, by symbol
    language: str  # of the sources
    sizes: tuple[Node, ...] = ()  # the symbols that a call has values for, in order
    near: Mapping[Size, tuple[int, int]] = field(default_factory=dict)  # where it is near the best
    chooser: Chooser = field(default_factory=Chooser)  # what was chosen
    known: Known = KNOWN  # beside the program

    def program(self, level: str) -> Any:
        """The whole program at that level; WeftError where it started below."""
        if level not in self.made:
            raise WeftError(f"this program started below the {level} level")
        partly = self.unique is not None and level in ("tile", "kernel")
        return self.unique.restore(self.made[level]) if partly else self.made[level]  # type: ignore[union-attr]

    def blocks(self) -> Program:
        """The tile level of a GPU where blocks are decided; WeftError for any other program."""
        if "blocks" not in self.made:
            told = "choose a target such as cuda:sm_90a, and start above the tile level"
            raise WeftError(f"Triton kernels are a GPU's blocks: {told}")
        assert self.unique is not None
        return self.unique.restore(self.made["blocks"])

    def text(self, level: str) -> str:
        """Text of one level; `source` and the name of its language are the emitted files.

        `schedule` is what was chosen for each kernel, as weft.compile(schedule=...) takes it,
        `mlir` the loop level in MLIR's dialects, and `triton` a GPU's blocks as Triton's kernels.
        """
        if level == "mlir":
            return to_mlir(self.program("loop"))
        if level == "triton":
            return to_triton(self.blocks())
        if level == "schedule":
            return show_schedule(self.chooser)
        if level in ("source", self.language):
            return "\n".join(self.sources.values())
        if level in ("c", *LANGUAGES):
            told = f"the sources for this target are {self.language}, not {level}"
            raise WeftError(f"{told}: choose a target of that language")
        choice("level", level, (*VERIFY, "mlir", "triton", "schedule", "source", "c", *LANGUAGES))
        return print_program(self.program(level))


def on_kernels(
    program: Program, step: Callable[..., Kernel], chooser: Chooser, name: str = "", **facts: Any
) -> Program:
    """One step of the schedule on every kernel; of the facts it takes those that it names.

    Whether a kernel takes a step that has a name is a choice.
    """

    def one(kernel: Kernel) -> Kernel:
        choices = chooser.of(kernel)
        if kernel.name in chooser.moves and name not in ("", "block_sums"):
            return kernel
        made = call_by_name(step, {**facts, "kernel": kernel, "choices": choices})
        sure = not name or name in PRECISE or is_same(made.body, kernel.body)
        return made if sure or choices.decide(name, True) else kernel

    return program.map_kernels(program.level, one)


def on_program(
    program: Program, step: Callable[..., Program], chooser: Chooser, name: str, **facts: Any
) -> Program:
    """One step over the whole program, where that is chosen; it takes the facts that it names.

    Kernels that have moves are none of what it sees.
    """
    seen, aside = set_aside(program, chooser.moves)
    made = call_by_name(step, {**facts, "program": seen, "choices": chooser.program})
    kept = made.steps == seen.steps or chooser.program.decide(name, True)
    return put_back(made, aside) if kept else program


def plain_loops(start: Any, target: CPU | GPU) -> Any:
    """The program; a user's loops then count from 0 by one, as passes know them.

    A GPU has a launch for each row of a kernel where one is too few. WeftError where it cannot run
    the program.
    """
    check_repeats(start, target)
    if start.level != "loop":
        return start
    start = expanded(start, lambda s: most_rows(s.kernel, target) < len(s.rows))
    return start.map_kernels("loop", lambda k: replace(k, body=counted(k.body)))


def scheduling(options: Options, target: CPU | GPU) -> tuple[Schedule, Chooser]:
    """The passes, and what chooses between their options: text, what was measured, the price."""
    chooser = Chooser(read_schedule(options.schedule), moves=read_moves(options.schedule))
    if options.tune != "off":
        chooser.known = partial(decisions_of, target=target)
    merges = options.fuse == "greedy"
    which = options.left_out, merges, GPU_THREADS, options.asked
    return schedule_for(target, *which), chooser


def steps_on_tensors(
    start: str,
    target: CPU | GPU,
    price: Any,
    prices: Prices,
    log: PassLog,
    options: Options,
    known: Known,
) -> Passes:
    """The passes of the tensor level, each with its name; of programs that `start` there, few."""
    plain = plain_on_gpu if isinstance(target, GPU) else lambda graph: graph
    on_cpu = isinstance(target, CPU)
    split = ("002_split_recurrences", lambda g: split_recurrences(plain(g), repeats=on_cpu))
    if start == "tensor":
        return (split,) if isinstance(target, GPU) else ()
    searching = options.search, known.constants, prices
    steps: Passes = (
        ("001_simplify", lambda graph: simplify(plain(graph), log.fired)),
        split,
        ("003_search", lambda graph: search(graph, price, target, log, *searching)),
        ("004_fold_in_one_pass", partial(fold_in_one_pass, price=price)),
        ("005_trim_scatters", trim_scatters),
        ("006_join_slices", join_slices),
    )
    if on_cpu:
        steps = (*steps, ("007_nest_sums", nest_sums))
    return (*steps, ("008_pair_bf16", pair_bf16)) if target.pairs else steps


def plain_on_gpu(graph: Graph) -> Graph:
    return as_scatters(without_layouts(graph))


def groups_of(
    graph: Graph, price: Any, prices: Prices, options: Options, chooser: Chooser, known: Known
) -> list[Group]:
    """Which tensors are computed by one kernel, as was found for this graph or by the price."""
    chooser.begin(graph, searched=options.fuse == "greedy")
    target = find_target(options.target)
    kept = kept_once(graph, known.constants, target)
    segments = None if isinstance(target, GPU) else partial(segments_of, target)
    return partition(graph, price, target, options.fuse, chooser, kept, prices, segments)


def segments_of(target: CPU, node: Node, buffers: Buffers, out: Buffer) -> list[Block]:
    """The nests that take as long as a scatter of rows by segments; none where it cannot go so."""
    return by_segments(node, buffers, out, (), partial(tables, target=target), target.l2 // 2)[1]


def ways_to_scatter(
    target: CPU | GPU, known: Known
) -> tuple[list[tuple[str, str]], tuple[Sequence[str], Sequence[str]]]:
    """Stores that may combine in any order; ops and products that ATen's kernels do without."""
    atomics = [a for a in target.atomics if not (known.ordered and a[1].startswith("f"))]
    if known.alone:
        return atomics, ((), ())
    tabled = () if ("atomic_add", "f32") in atomics else target.tabled
    return atomics, ((*target.library, *tabled), target.tiled)


def is_atomic(
    atomics: Collection[tuple[str, str]],
    price: Callable[[Block], float],
    choices: Choices,
    name: str,
    table: Block,
    nests: Sequence[Block],
) -> bool:
    """Whether a scatter combines its values in memory, in any order, and not in a table.

    It may where `atomics`, pairs of a store's `how` and a dtype, have all that its nests store.
    """
    combined = {(s.how, s.buffer.type.dtype.name) for nest in nests for s in combining(nest)}
    legal = set[tuple[str, str]]() < combined <= {*atomics}
    return legal and beats_table(price, choices, "atomic", name, table, nests)


def beats_table(
    price: Callable[[Block], float],
    choices: Choices,
    way: str,
    name: str,
    table: Block,
    nests: Sequence[Block],
) -> bool:
    """Whether the nests of another way to scatter are chosen, which take less than by a table."""
    return choices.decide(f"{way}.{name}", sum(map(price, nests)) < price(table))


def way_to_sort(
    price: Callable[[Block], float],
    choices: Choices,
    name: str,
    ways: Mapping[str, Sequence[Block]],
) -> str:
    """The cheapest way of a sort, of the nests of each."""
    return choices.pick("sort", ways, lambda way: sum(map(price, ways[way])))


def roads_of(
    target: CPU | GPU,
    atomics: Collection[tuple[str, str]],
    price: Callable[[Block], float],
    prices: Prices,
    fuse: str,
    choices: Choices,
) -> tensor_lower.Roads:
    """What decides how scatters, sorts and the bodies of recurrences are computed."""
    ways = partial(is_atomic, atomics, price, choices), partial(way_to_sort, price, choices)
    blocks, segments = (1, target.cores), partial(beats_table, price, choices, "segments")
    cache = 0 if isinstance(target, GPU) else target.l2 // 2
    within = partial(partition, price=price, target=target, fuse=fuse, prices=prices)
    sizes = partial(tables, target=target)
    return tensor_lower.Roads(sizes, *ways, blocks, segments, cache, within)


def lower(start: Any, options: Options, log: PassLog, known: Known = KNOWN) -> Levels:
    """From a program of any level to C: the whole compiler, in order."""
    target = find_target(options.target)
    schedule, chooser = scheduling(options, target)
    on_gpu, met = isinstance(target, GPU), hints_of(start)
    atomics, stay = ways_to_scatter(target, known)
    narrows, program = known.narrows and not on_gpu, plain_loops(start, target)
    made, unique, near = {program.level: program}, None, dict[Size, tuple[int, int]]()

    def run(letter: str, change: Callable[[Any], Any], name: str = "") -> None:
        nonlocal program
        changed = distinct(log.run(letter, name, change, program, print_program))
        program = made[changed.level] = changed

    if program.level == "torch":
        run("n", lambda g: to_tensor(g, options.fallback, *stay))
        run("n", lambda p: thought_large(p, known.few or ()) if narrows else p)
    layouts, free = with_hints((known.layouts, tuple(sizes_of(start).values())), hints_of(program))
    price, prices = price_for(target, free), Prices()
    if program.level == "tensor":
        for name, step in steps_on_tensors(start.level, target, price, prices, log, options, known):
            run("n", step, name)
        groups = log.time("l", partial(groups_of, program, price, prices, options, chooser, known))
        roads = roads_of(target, atomics, price, prices, options.fuse, chooser.program)
        run("l", partial(tensor_lower.lower, groups=groups, layouts=layouts, roads=roads))
        over = partial(on_program, chooser=chooser, target=target, price=price)
        for name, step in schedule.program:
            run("l", partial(over, step=step, name=name[4:], constants=known.constants), name)
    if known.fused:
        return Levels(made, None, {}, {}, {}, target.language, free, near, chooser, known)
    if program.level == "loop":
        if narrows:
            near, few = log.time("t", lambda: ranges_around(program, met, known.few, target))
            if few != known.few:
                return lower(start, options, log, known._replace(few=few))
        unique = Unique(by_hand(program, schedule.kernels, chooser, target), not (on_gpu or free))
        run("t", lambda _: replace(unique.program, level="tile"))
        for name, step in schedule.kernels:
            choosing = {"step": step, "chooser": chooser, "name": name[4:]}
            run("t", partial(on_kernels, **choosing, target=target, near=near), name)
            made |= {"blocks": program} if on_gpu and name[4:] in BLOCKS else {}
        log.show_choices(show_schedule(chooser.checked()))
    check_machine(program, target)
    if program.level == "tile":
        run("k", tile_lower.lower)
        for name, step in schedule.threads:
            run("k", partial(on_kernels, step=step, chooser=chooser, target=target), name)
    symbols, sources, launches = log.time("s", lambda: sources_of(made, target, [*sizes_of(start)]))
    texts = sources, unique.all(symbols) if unique else symbols, launches
    return Levels(made, unique, *texts, target.language, free, near, chooser, known)
