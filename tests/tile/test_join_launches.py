"""Kernels that are alike, as one over rows: where it is legal, in text, levels, C, in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

import weft
from weft.core.errors import ParseError, VerifyError
from weft.core.passes import PassLog
from weft.driver import compile_text
from weft.interpret import kernels as kernel_interpret
from weft.interpret import nests as interpret
from weft.levels import VERIFY, lower
from weft.options import Options
from weft.scalar.choices import Choices
from weft.scalar.nest import Program, Rows
from weft.scalar.rows import expanded
from weft.targets.cpu import CPUS
from weft.text import parse_program, print_program
from weft.tile.passes.programs.join_launches import join_launches

AVX2 = CPUS["avx2"]

MAPS = """
program loop maps
input x: f32[3,4]
input y: f32[2,5,4]
input z: f32[7]
input s: f32[]

kernel a(x: f32[3,4], s: f32[]) -> (p: f32[3,4], q: f32[])
in0 = load s[]
v0 = add(in0, 1.0)
q[] = v0
for a0 in 0..3:  # free
    for a1 in 0..4:  # free
        in1 = load x[a0, a1]
        v1 = multiply(in1, v0)
        p[a0, a1] = v1

kernel b(y: f32[2,5,4], s: f32[]) -> (r: f32[2,5,4], t: f32[])
in0 = load s[]
v0 = add(in0, 1.0)
t[] = v0
for a0 in 0..2:  # free
    for a1 in 0..5:  # free
        for a2 in 0..4:  # free
            in1 = load y[a0, a1, a2]
            v1 = multiply(in1, v0)
            r[a0, a1, a2] = v1

kernel c(z: f32[7], q: f32[]) -> (u: f32[7], v: f32[])
in0 = load q[]
v0 = add(in0, 1.0)
v[] = v0
for a0 in 0..7:  # free
    in1 = load z[a0]
    v1 = multiply(in1, v0)
    u[a0] = v1

output p, q, r, t, u, v
"""  # c reads what a writes


def joined(text: str) -> Program:
    program = parse_program(text)
    VERIFY["loop"](program)
    made = join_launches(program, AVX2, (), Choices())
    VERIFY["loop"](made)
    return made


def inputs_of(program: Program) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.normal(size=b.type.shape).astype(b.type.dtype.numpy) for b in program.inputs]


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_maps_of_any_shapes_are_one_kernel(golden: Callable[[str, str], None]) -> None:
    program, made = parse_program(MAPS), joined(MAPS)
    golden("tile/join_launches.txt", print_program(made))
    (rows, c) = made.steps
    assert isinstance(rows, Rows) and [r.sizes for r in rows.rows] == [(12,), (40,)]
    assert not isinstance(c, Rows), "it waits for one of the others"
    data = inputs_of(program)
    assert same(interpret.run(program, data), interpret.run(made, data))
    plain = expanded(made)
    VERIFY["loop"](plain)
    assert len(plain.kernels) == 3
    assert same(interpret.run(program, data), interpret.run(plain, data))


@pytest.mark.parametrize("target", ["cpu:plain", "cpu:avx2", "cpu:avx512", "cuda:sm_90a"])
def test_every_level_has_rows(target: str) -> None:
    made = joined(MAPS)
    levels = lower(made, Options(target), PassLog())
    data, runs = inputs_of(made), {"kernel": kernel_interpret.run}
    wanted = interpret.run(made, data)
    for level in ("loop", "tile", "kernel"):
        program = levels.program(level)
        VERIFY[level](program)
        again = parse_program(print_program(program))
        assert print_program(again) == print_program(program)
        VERIFY[level](again)
        assert any(isinstance(s, Rows) for s in again.steps)
        assert same(runs.get(level, interpret.run)(again, data), wanted)


@pytest.mark.parametrize("level", ["loop", "tile", "kernel"])
def test_text_runs_in_c(level: str) -> None:
    made = joined(MAPS)
    levels = lower(made, Options("cpu:avx2"), PassLog())
    program = compile_text(levels.text(level), Options("cpu:avx2"))
    data = [torch.from_numpy(a) for a in inputs_of(made)]
    wanted = interpret.run(made, [a.numpy() for a in data])
    for found, want in zip(program(*data), wanted, strict=True):
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-6)


CHAIN = """
program loop chain
input x: f32[4]

kernel a(x: f32[4]) -> p: f32[4]
for a0 in 0..4:  # free
    in0 = load x[a0]
    v0 = exp(in0)
    p[a0] = v0

kernel b(p: f32[4]) -> q: f32[4]
for a0 in 0..4:  # free
    in0 = load p[a0]
    v0 = exp(in0)
    q[a0] = v0

output p, q
"""


def test_kernels_that_wait_for_each_other_stay_apart() -> None:
    assert not any(isinstance(s, Rows) for s in joined(CHAIN).steps)


BETWEEN = """
program loop between
input x: f32[4]
input y: f32[4]

kernel a(x: f32[4]) -> p: f32[4]
for a0 in 0..4:  # free
    in0 = load x[a0]
    v0 = exp(in0)
    p[a0] = v0

kernel b(p: f32[4]) -> q: f32[4]
for a0 in 0..4:  # free
    in0 = load p[a0]
    v0 = negate(in0)
    q[a0] = v0

kernel c(y: f32[4]) -> r: f32[4]
for a0 in 0..4:  # free
    in0 = load y[a0]
    v0 = negate(in0)
    r[a0] = v0

kernel d(r: f32[4]) -> s: f32[4]
for a0 in 0..4:  # free
    in0 = load r[a0]
    v0 = exp(in0)
    s[a0] = v0

output q, s
"""  # a and d are alike, so are b and c; but a runs before b, and c before d


def test_joined_kernels_do_not_wait_for_each_other() -> None:
    program, made = parse_program(BETWEEN), joined(BETWEEN)
    assert [len(s.rows) for s in made.steps if isinstance(s, Rows)] == [2]
    assert len(made.steps) == 3
    data = inputs_of(program)
    assert same(interpret.run(program, data), interpret.run(made, data))


def large(order: str) -> str:
    """Two chains of two kernels over more than a cache holds, in an order."""
    chains = {"a": ("exp", "x", "p"), "b": ("exp", "y", "q"), "c": ("negate", "p", "r")}
    chains["d"] = "negate", "q", "s"
    size = "f32[600000]"
    kernels = [
        f"kernel {k}({x}: {size}) -> {y}: {size}\nfor a0 in 0..600000:  # free\n"
        f"    in0 = load {x}[a0]\n    v0 = {f}(in0)\n    {y}[a0] = v0\n"
        for k, (f, x, y) in ((k, chains[k]) for k in order)
    ]
    inputs = f"program loop large\ninput x: {size}\ninput y: {size}\n"
    return "\n".join((inputs, *kernels, "output r, s\n"))


@pytest.mark.parametrize("order, rows", [("abcd", [2, 2]), ("acbd", [])])
def test_large_kernels_are_joined_where_nothing_waits_for_longer(
    order: str, rows: list[int]
) -> None:
    made = joined(large(order))
    assert [len(s.rows) for s in made.steps if isinstance(s, Rows)] == rows


def changed(made: Program, **what: object) -> Program:
    (rows, *rest) = made.steps
    assert isinstance(rows, Rows)
    return replace(made, steps=(replace(rows, **what), *rest))  # type: ignore[arg-type]


def test_rows_are_verified() -> None:
    made = joined(MAPS)
    (rows, *_) = made.steps
    assert isinstance(rows, Rows)
    first, second = rows.rows
    wrong = {
        "is f32\\[2,5,4\\], but": (first, replace(second, sizes=(12,))),
        "which n0 cannot be": (first, replace(second, sizes=(44,))),
        "1 inputs and 2 outputs": (first, replace(second, inputs=second.inputs[:1])),
        "what another writes": (first, first),
        "no rows": (),
    }
    for told, found in wrong.items():
        with pytest.raises(VerifyError, match=told):
            VERIFY["loop"](changed(made, rows=found))
    text = print_program(made)
    with pytest.raises(ParseError, match="undefined size"):
        parse_program(text.replace("where n0", "where n1", 1))
    bare = text.replace(" where n0 = 12", "").replace(" where n0 = 40", "")
    with pytest.raises(VerifyError, match=r"is f32\[3,4\], but"):
        VERIFY["loop"](parse_program(bare))


# --- compiled -------------------------------------------------------------------------------------


def test_rows_that_read_each_others_results_store_elsewhere() -> None:
    def crossed(x: torch.Tensor, y: torch.Tensor) -> None:
        a, b = y * 2 + 1, x * 2 + 1
        x.copy_(a)
        y.copy_(b)

    fn = weft.compile(crossed)
    x, y = torch.arange(1000.0), -torch.arange(1000.0)
    want = y * 2 + 1, x * 2 + 1
    fn(x, y)
    assert torch.equal(x, want[0]) and torch.equal(y, want[1])


def test_results_of_rows_are_stored_in_place() -> None:
    def grown(xs: list[torch.Tensor]) -> None:
        for x in xs:
            x.copy_(x * 2 + 1)

    shapes = [(3,), (5, 7), (64,), (2, 3, 4), (1000,), (33,)]
    xs = [torch.randn(s, dtype=torch.float64) for s in shapes]
    want = [x * 2 + 1 for x in xs]
    fn = weft.compile(grown)
    fn(xs)
    assert len(fn.report.kernels) == 1 and fn.report.kernels[0].rows == 6
    assert fn.report.arena_bytes == 0
    for found, wanted in zip(xs, want, strict=True):
        torch.testing.assert_close(found, wanted)


def test_a_fault_in_a_row_is_raised() -> None:
    def picked(xs: list[torch.Tensor], i: list[torch.Tensor]) -> list[torch.Tensor]:
        return [x[j] for x, j in zip(xs, i, strict=True)]

    xs = [torch.randn(8) for _ in range(50)]
    good = [torch.tensor([1, 2, 7]) for _ in range(50)]
    fn = weft.compile(picked)
    for found, x, j in zip(fn(xs, good), xs, good, strict=True):
        assert torch.equal(found, x[j])
    assert len(fn.report.kernels) == 1
    bad = [*good[:-1], torch.tensor([1, 2, 8])]
    with pytest.raises(IndexError):
        fn(xs, bad)


OPTIMISERS = {
    "AdamW": {},
    "Adam": {"amsgrad": True},
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "RMSprop": {"centered": True},
    "Adagrad": {},
    "NAdam": {},
    "Adamax": {},
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_step_of_many_tensors_is_a_few_launches(name: str) -> None:
    shapes = [(3, 5), (64,), (7, 2, 3), (130,), (16, 9), (2, 2), (31,), (40, 40)] * 3
    made = []
    for _ in range(3):
        torch.manual_seed(0)
        own = [torch.nn.Parameter(torch.randn(s, dtype=torch.float64)) for s in shapes]
        for p in own:
            p.grad = torch.randn_like(p)
        made.append((own, getattr(torch.optim, name)(own, **OPTIMISERS[name])))
    (own, optimiser), (apart, alone), (eager, other) = made
    step = weft.compile(lambda: optimiser.step())
    each = weft.compile(lambda: alone.step(), passes="-join_launches")
    for _ in range(4):
        for run in (step, each, other.step):
            run()
    assert len(each.report.kernels) >= len(shapes)
    assert len(step.report.kernels) <= 4
    assert sum(k.rows for k in step.report.kernels) >= len(shapes)
    for p, q, r in zip(own, apart, eager, strict=True):
        assert torch.equal(p, q)
        torch.testing.assert_close(p, r, rtol=1e-6, atol=1e-6)  # a step's number is f32


def test_copies_are_left_out_as_before() -> None:
    def shown(xs: list[torch.Tensor]) -> list[torch.Tensor]:
        made = [x.cumsum(0) for x in xs]
        return [*made, *(m.t().contiguous() for m in made)]

    xs = [torch.randn(6, 5, dtype=torch.float64) for _ in range(3)]
    fn, apart = weft.compile(shown), weft.compile(shown, passes="-join_launches")
    for found, wanted in zip(fn(xs), shown(xs), strict=True):
        torch.testing.assert_close(found, wanted)
    apart(xs)
    launches = [sum(k.rows for k in f.report.kernels) for f in (fn, apart)]
    assert launches[0] == launches[1] and len(fn.report.kernels) < launches[0]


def test_what_a_cache_cannot_hold_waits_for_nothing() -> None:
    def chains(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple((t.softmax(1) @ t).softmax(1) @ t for t in (x, y))

    small, large = (torch.randn(2, n, n, dtype=torch.float64) for n in (16, 700))
    fns = [weft.compile(chains) for _ in range(2)]
    for fn, data in zip(fns, (small, large), strict=True):
        for found, wanted in zip(fn(*data), chains(*data), strict=True):
            torch.testing.assert_close(found, wanted)
    rows = [max(k.rows for k in fn.report.kernels) for fn in fns]
    assert rows[0] == 2
    apart = weft.compile(chains, passes="-join_launches")
    apart(*large)
    assert fns[1].report.arena_bytes <= apart.report.arena_bytes
