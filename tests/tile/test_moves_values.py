"""Schedule moves as values: their text, what they make, what they refuse, any sequence of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.tile.moves import PROGRAMS, program_of, same, with_kernel
from weft.core.errors import ParseError, WeftError
from weft.core.text.cursor import Cursor, Line
from weft.scalar.nest import Kernel, Program
from weft.targets.cpu import CPU, CPUS
from weft.targets.gpu import GPU, GPUS
from weft.text import print_program
from weft.tile.moves.script import MOVES, applied, read_move, read_moves
from weft.tile.moves.values import Move

AVX2, SM90 = CPUS["avx2"], GPUS["cuda:sm_90a"]


def moves_of(*lines: str) -> tuple[Move, ...]:
    return read_moves("\n".join(f"y: {line}" for line in lines))["y"]


def scheduled(name: str, target: CPU | GPU, *lines: str) -> Kernel:
    return applied(program_of(name).kernels[0], moves_of(*lines), target)


# --- text and effect ------------------------------------------------------------------------------

CHUNKS = (
    "split{axis=a0, by=32}",
    "split{axis=a1, by=16}",
    "reorder{outer=a0, inner=b1}",
    "bind{axis=b0, to=grid}",
    "bind{axis=b1, to=grid}",
    "bind{axis=a0, to=thread}",
    "bind{axis=a1, to=thread}",
    "split{axis=a2, by=16}",
    "stage{buffer=x, at=b2}",
    "stage{buffer=w, at=b2}",
)
EACH = {
    "split{axis=a0, by=4}": ("matmul", AVX2, ()),
    "reorder{outer=a0, inner=a1}": ("transpose", AVX2, ()),
    "join{outer=a0, inner=a1}": ("transpose", AVX2, ()),
    "merge{first=a0, second=a3}": ("scaled", AVX2, ()),
    "bind{axis=a0, to=parallel}": ("cumsum", AVX2, ()),
    "split_fold{axis=a1, by=4}": ("argmax", AVX2, ()),
    "vectorize{axis=a1, lanes=8}": ("matmul", AVX2, ()),
    "stage{buffer=w, at=b0}": ("matmul", AVX2, ("split{axis=a2, by=4}",)),
    "pad{buffer=w_s0, by=1}": ("matmul", SM90, ("stage{buffer=w, at=a0}",)),
    "pipeline{at=b0, parts=2}": ("total", SM90, ("split{axis=a1, by=2}", "stage{buffer=x, at=b0}")),
    "tensorize{at=b2}": ("products", SM90, CHUNKS),
}


def test_there_is_a_text_of_each_move() -> None:
    assert [text.partition("{")[0] for text in EACH] == [*MOVES]


@pytest.mark.parametrize("text", EACH)
def test_a_move_prints_and_parses(text: str, golden: Callable[[str, str], None]) -> None:
    move = read_move(Cursor(Line(1, text, "schedule")))
    assert str(move) == text and move == read_move(Cursor(Line(1, str(move), "schedule")))
    name, target, before = EACH[text]
    program = program_of(name)
    kernel = applied(program.kernels[0], moves_of(*before) if before else (), target)
    assert move in type(move).instances(kernel, target)
    moved = move.apply(kernel, target)
    same(program, moved, target)
    shown = [print_program(with_kernel(program, k)) for k in (kernel, moved)]
    golden(f"tile/moves/{move.name}.txt", f"--- before {text}\n{shown[0]}--- after\n{shown[1]}")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("y: tile{axis=a0}", "unknown move 'tile': one of split, reorder, join, merge"),
        ("y: split{axis=a0}", "split needs attribute by"),
        ("y: split{loop=a0, by=8}", "split has no attribute loop"),
        ("y: split{axis=a0, by=x}", "expected a whole number but found x"),
        ("y: split{axis=a0, by=8} 9", "unexpected 9 after the end of the statement"),
    ],
)
def test_a_line_that_is_no_move_is_told(line: str, told: str) -> None:
    with pytest.raises(ParseError, match=told) as caught:
        read_moves(f"# by hand\n{line}")
    assert caught.value.where == f"schedule line 2: {line}"


# --- refusals -------------------------------------------------------------------------------------

LOOSE = """
program loop loose
input x: f32[8]

kernel y(x: f32[8]) -> y: f32[8]
local t: f32[9]
for a0 in 0..8:  # free
    t[0] = load x[a0]
for a1 in 0..8:  # free
    in0 = load t[a1]
    t[a1 + 1] = in0
for a2 in 0..8:  # free
    y[a2] = load t[a2]

output y
"""

TWO_LANES = ["bind{axis=a0, to=thread}", "split{axis=a2, by=4}", "bind{axis=b0, to=lane}"]

REFUSED = [
    ("matmul", AVX2, ["split{axis=a7, by=4}"], "unknown loop 'a7': one of a0, a1, a2"),
    ("matmul", AVX2, ["split{axis=a0, by=0}"], "0 is no length of a block"),
    (
        "matmul",
        AVX2,
        ["split{axis=a0, by=4}", "split{axis=b0, by=2}"],
        "b0 is in blocks of 4: split the loop inside of it",
    ),
    (
        "matmul",
        AVX2,
        ["bind{axis=a0, to=parallel}", "split{axis=a0, by=4}"],
        "a0 is bound to parallel: bind it after this",
    ),
    (
        "matmul",
        AVX2,
        ["reorder{outer=a1, inner=a2}"],
        "there are other statements between a1 and a2",
    ),
    ("matmul", AVX2, ["reorder{outer=a1, inner=a0}"], "a0 is not inside of a1"),
    (
        "cumsum",
        AVX2,
        ["reorder{outer=a0, inner=a1}"],
        "a0 is a free loop, and a1 a scan loop",
    ),
    (
        "matmul",
        AVX2,
        ["split{axis=a0, by=4}", "reorder{outer=b0, inner=a0}"],
        "the ends of a0 move with a loop that would be inside of it",
    ),
    (
        "matmul",
        AVX2,
        ["split{axis=a0, by=4}", "join{outer=b0, inner=a0}"],
        "how often a0 runs is no number, or moves with b0",
    ),
    ("matmul", AVX2, ["bind{axis=a0, to=grid}"], "unknown bind 'grid': one of parallel, vector"),
    (
        "matmul",
        AVX2,
        ["bind{axis=a1, to=vector3}"],
        "there is no vector3: vector2, vector4, vector8",
    ),
    (
        "matmul",
        AVX2,
        ["bind{axis=a1, to=vector8}"],
        "a vector8 loop by 1 runs 11 iterations in 8 lanes",
    ),
    ("matmul", AVX2, ["bind{axis=a2, to=parallel}"], "a parallel loop must be free, not reduce"),
    ("cumsum", AVX2, ["bind{axis=a1, to=register}"], "a1 is a scan, whose iterations go in order"),
    (
        "scatter",
        SM90,
        ["bind{axis=a2, to=thread}"],
        "a2 is a scan, whose iterations go in order",
    ),
    (
        "matmul",
        AVX2,
        ["split{axis=a0, by=4}", "bind{axis=b0, to=parallel}", "bind{axis=a0, to=parallel}"],
        "a0 is inside of b0, which is bound to parallel",
    ),
    ("loose", AVX2, ["bind{axis=a0, to=parallel}"], "all iterations of a0 store to the same"),
    ("loose", AVX2, ["bind{axis=a1, to=parallel}"], "iterations of a1 may read what others store"),
    ("loose", SM90, ["bind{axis=a2, to=grid}"], "a kernel of several nests has one block"),
    (
        "matmul",
        SM90,
        ["bind{axis=a1, to=grid}"],
        "a0 is not bound to grid, or has other statements",
    ),
    ("matmul", SM90, ["bind{axis=a2, to=grid}"], "a0 is not bound to grid"),
    ("matmul", SM90, ["bind{axis=a2, to=lane}"], "a2 is inside of no free loop bound to thread"),
    (
        "matmul",
        SM90,
        ["bind{axis=a0, to=thread}", "bind{axis=a2, to=thread}"],
        "a0 around a2 has threads: bind a2 to lane",
    ),
    (
        "total",
        SM90,
        ["bind{axis=a1, to=thread}", "bind{axis=a0, to=thread}"],
        "a1 inside of a0 is bound to thread: bind outer loops first",
    ),
    (
        "matmul",
        SM90,
        [*TWO_LANES, "bind{axis=a2, to=lane}"],
        "a2 is inside of b0, which is bound to lane",
    ),
    (
        "softmax",
        SM90,
        ["bind{axis=a0, to=thread}", "bind{axis=a1, to=lane}", "bind{axis=a3, to=warp}"],
        "threads share other loops inside of a0, and not as warp",
    ),
    (
        "matmul",
        SM90,
        ["bind{axis=a0, to=thread}", "bind{axis=a2, to=warp}"],
        "a0 is no single loop of 2, 4, 8 .. 32 threads",
    ),
    ("matmul", AVX2, ["split_fold{axis=a0, by=4}"], "a0 declares no fold"),
    (
        "matmul",
        AVX2,
        ["split_fold{axis=a2, by=2}", "split_fold{axis=s0, by=2}"],
        "s0 is in blocks of 2: split the loop inside of it",
    ),
    ("matmul", AVX2, ["stage{buffer=z, at=a0}"], "unknown input 'z': one of x, w"),
    ("matmul", AVX2, ["stage{buffer=w, at=a2}"], "0 loops inside move with what it reads"),
    ("scatter", AVX2, ["stage{buffer=base, at=a2}"], "nothing inside of a2 reads base"),
    (
        "matmul",
        AVX2,
        ["stage{buffer=w, at=a1}", "bind{axis=a1, to=register}"],
        "iterations of a1 would share w_s0: stage after loops are bound",
    ),
    (
        "matmul",
        SM90,
        ["stage{buffer=w, at=a1}", "bind{axis=a1, to=thread}"],
        "iterations of a1 would share w_s0: stage after loops are bound",
    ),
    ("matmul", AVX2, ["merge{first=a0, second=a1}"], "a1 does not follow a0"),
    ("softmax", AVX2, ["merge{first=a1, second=a2}"], "a2 needs what a1 folds"),
    (
        "softmax",
        AVX2,
        ["merge{first=a2, second=a3}"],
        "a2 is a reduce loop, and a3 a free loop",
    ),
    (
        "loose",
        AVX2,
        ["merge{first=a0, second=a1}"],
        "iterations of a1 may touch what others of a0 do in t",
    ),
    (
        "scaled",
        AVX2,
        ["split{axis=a0, by=4}", "merge{first=b0, second=a3}"],
        "b0 and a3 have other ends",
    ),
    ("products", AVX2, ["tensorize{at=a2}"], "there are no matrix units of 16-bit values"),
    (
        "products",
        SM90,
        [*CHUNKS[:-1], "tensorize{at=b2}"],
        "b2 is no loop over chunks of a sum of products of 16-bit values that are staged",
    ),
    (
        "products",
        SM90,
        [*CHUNKS, "bind{axis=a2, to=unroll}", "tensorize{at=b2}"],
        "a2 is bound to unroll: bind it after this",
    ),
    ("matmul", AVX2, ["pad{buffer=x, by=1}"], "unknown local buffer 'x': one of "),
]


@pytest.mark.parametrize(("name", "target", "lines", "told"), REFUSED)
def test_what_is_not_legal_is_refused(
    name: str, target: CPU | GPU, lines: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROGRAMS, "loose", LOOSE)
    *before, last = moves_of(*lines)
    kernel = applied(program_of(name).kernels[0], before, target)
    with pytest.raises(WeftError) as caught:
        last.apply(kernel, target)
    assert caught.value.message.startswith(f"{last} of kernel y: ")
    assert told in caught.value.message
    assert last not in type(last).instances(kernel, target)


# --- any sequence ---------------------------------------------------------------------------------

STEPS = 7
KINDS = [
    *("split", "reorder", "join", "merge", "split_fold"),
    *("stage", "bind", "bind", "bind", "vectorize"),
]


def random_moves(program: Program, target: CPU | GPU, seed: int) -> Iterator[tuple[Move, Kernel]]:
    """Legal moves of a kernel one after the other, and what each makes of it."""
    choose, kernel = random.Random(seed), program.kernels[0]
    for kind in (choose.choice(KINDS) for _ in range(STEPS)):
        tried = MOVES[kind].candidates(kernel, target)
        choose.shuffle(tried)  # the first legal one is any of the instances
        move = next((m for m in tried if m.is_legal(kernel, target)), None)
        if move is not None:
            kernel = move.apply(kernel, target)
            yield move, kernel


@pytest.mark.parametrize("target", [AVX2, SM90], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_any_moves_keep_the_meaning(name: str, target: CPU | GPU) -> None:
    program = program_of(name)
    for seed in range(4):
        told, kernel = list[str](), program.kernels[0]
        for move, moved in random_moves(program, target, seed):
            told, kernel = [*told, f"y: {move}"], moved
        try:
            same(program, kernel, target)
        except Exception as error:
            text = print_program(with_kernel(program, kernel))
            raise AssertionError("\n".join([f"seed {seed}", *told, text, str(error)])) from error
