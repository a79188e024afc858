"""Kernels that hand each other long rows, as one kernel over chunks of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import weft
from tests.gpu.opencl import opencl_device
from weft.core.node import make
from weft.core.types import f32
from weft.interpret import nests as interpret
from weft.loop import verify
from weft.scalar.choices import Choices
from weft.scalar.nest import Acc, Program
from weft.scalar.ops import apply
from weft.targets.gpu import GPUS
from weft.text import parse_program, print_program
from weft.tile.analysis.degree import Degrees, NotByChunks
from weft.tile.passes.programs import chunk_reduce as module
from weft.tile.passes.programs.chunk_reduce import chunk_reduce

TARGET = GPUS["cuda:sm_90a"]

SCORES = """
kernel scores(q: f32[{rows},8], k: f32[{columns},8]) -> s: f32[{rows},{columns}]
for a0 in 0..{rows}:  # free
    for a1 in 0..{columns}:  # free
        for a2 in 0..8:  # reduce
            in0 = load q[a0, a2]
            in1 = load k[a1, a2]
            acc0 <- add(acc0, multiply(in0, in1))
        s[a0, a1] = acc0
"""
WEIGHTS = """
kernel weights(s: f32[{rows},{columns}]) -> (p: f32[{rows},{columns}], t: f32[{rows}])
for a0 in 0..{rows}:  # free
    for a1 in 0..{columns}:  # reduce
        in0 = load s[a0, a1]
        acc0 <- maximum(acc0, where({keep1}, in0, -inf))
    for a2 in 0..{columns}:  # reduce
        in1 = load s[a0, a2]
        acc1 <- add(acc1, exp(subtract(where({keep2}, in1, -inf), acc0)))
    t[a0] = reciprocal(acc1)
    for a3 in 0..{columns}:  # free
        in2 = load s[a0, a3]
        p[a0, a3] = {weight}
"""
WEIGHT = "exp(subtract(where({keep3}, in2, -inf), acc0))"
CAUSAL = "ge(a0, {column})"
SUMS = """
kernel sums(p: f32[{rows},{columns}], t: f32[{rows}], v: f32[{columns},5]) -> y: f32[{rows},5]
for a0 in 0..{rows}:  # free
    in0 = load t[a0]
    for a1 in 0..5:  # free
        for a2 in 0..{columns}:  # reduce
            in1 = load p[a0, a2]
            in2 = load v[a2, a1]
            acc0 <- finite add(acc0, multiply(multiply(in1, in0), in2))
        y[a0, a1] = acc0
"""


def program(
    rows: int, columns: int, weight: str = WEIGHT, keep: str = CAUSAL, output: str = "y"
) -> Program:
    head = "program loop attention\ninput q: f32[{rows},8]\ninput k: f32[{columns},8]\n"
    text = head + "input v: f32[{columns},5]\n" + SCORES + WEIGHTS + SUMS + "\noutput {output}\n"
    facts: dict[str, Any] = {"rows": rows, "columns": columns, "output": output}
    facts |= {f"keep{n}": keep.format(column=f"a{n}") for n in (1, 2, 3)}
    return parse_program(text.format(weight=weight.format(**facts), **facts), "attention")


@pytest.fixture(autouse=True)
def one_is_cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "kernel_time_us", lambda body, target: 1.0)


def inputs_of(given: Program) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=b.type.shape) for b in given.inputs]


@pytest.mark.parametrize(("rows", "columns"), [(64, 128), (70, 70), (3, 200), (130, 65), (64, 7)])
def test_means_the_same(rows: int, columns: int) -> None:
    given = program(rows, columns)
    merged = chunk_reduce(given, TARGET, Choices())
    assert len(merged.kernels) == 1
    verify.verify(merged)
    inputs = inputs_of(given)
    (wanted,), (found,) = (interpret.run(p, inputs, widen=True) for p in (given, merged))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_text(golden: Callable[[str, str], None]) -> None:
    golden(
        "gpu/chunk_reduce.txt", print_program(chunk_reduce(program(128, 128), TARGET, Choices()))
    )


def test_columns_that_no_row_of_a_block_has_are_left_out() -> None:
    text = print_program(chunk_reduce(program(128, 128), TARGET, Choices()))
    assert "in 0..min(128, a0 + 64) by 64:  # scan" in text


@pytest.mark.parametrize(
    "weight",
    [
        "multiply(exp(subtract(in2, acc0)), exp(subtract(in2, acc0)))",  # of degree 2
        "add(exp(subtract(in2, acc0)), 1.0)",  # of no degree
        "subtract(in2, acc0)",
        "multiply(in2, reciprocal(acc1))",  # of what the end of a row tells
    ],
)
def test_what_does_not_scale_stays_apart(weight: str) -> None:
    assert len(chunk_reduce(program(64, 128, weight), TARGET, Choices()).kernels) > 1


def test_what_is_read_elsewhere_stays_apart() -> None:
    given = program(64, 128, output="y, p")
    assert len(chunk_reduce(given, TARGET, Choices()).kernels) > 1


@pytest.mark.parametrize("keep", ["lt(200, {column})", "lt(100, {column})"])
def test_rows_that_keep_nothing_so_far(keep: str) -> None:
    """Nothing at all gives NaN, as exp(-inf - -inf) does; nothing in the first chunk is nothing."""
    given = program(64, 128, keep=keep)
    merged = chunk_reduce(given, TARGET, Choices())
    assert len(merged.kernels) == 1
    inputs = inputs_of(given)
    (wanted,), (found,) = (interpret.run(p, inputs, widen=True) for p in (given, merged))
    assert np.isnan(wanted).all() == keep.startswith("lt(200")
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


ATTENTION: dict[str, Callable[..., Any]] = {
    "plain": F.scaled_dot_product_attention,
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "written_out": lambda q, k, v: (q @ k.transpose(-1, -2) * 0.3).softmax(-1) @ v,
    "no_maximum": lambda q, k, v: (q @ k.transpose(-1, -2)).relu() @ v,
}


@pytest.mark.parametrize("target", ["cuda:sm_90a", "metal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ATTENTION)
def test_in_the_simulator(name: str, dtype: torch.dtype, target: str) -> None:
    q, k, v = (torch.randn(2, n, 32).to(dtype) for n in (150, 170, 170))
    eager = ATTENTION[name]
    compiled = weft.compile(eager, target=target, simulate=True)
    found, wanted = compiled(q, k, v).double(), eager(q.double(), k.double(), v.double())
    own = (eager(q, k, v).double() - wanted).norm()
    floor = {torch.float32: 1e-6, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}[dtype]
    assert (found - wanted).norm() <= max(2 * own, floor * wanted.norm())
    rounded = name == "written_out" and dtype is not torch.float32  # weights, at a row's end
    assert ("# scan" in compiled.ir("loop")) is not rounded


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    rows, columns = torch.arange(q.shape[-2]), torch.arange(k.shape[-2])
    scores = torch.where(rows[:, None] >= columns, q @ k.transpose(-1, -2) * 0.2, -torch.inf)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return (weights @ v) / weights.sum(-1, keepdim=True)


@pytest.mark.parametrize(("eager", "ends"), [(by_hand, False), (ATTENTION["causal"], True)])
def test_chunks_that_a_mask_rules_out(eager: Callable[..., Any], ends: bool) -> None:
    """0 times an infinite value is NaN by hand; ATen's attention leaves out whole chunks of it."""
    q, k, v = (torch.randn(2, 256, 32) for _ in range(3))
    v[0, 200, :7] = torch.inf
    compiled = weft.compile(eager, target="cuda:sm_90a", simulate=True)
    found, wanted = compiled(q, k, v), eager(q, k, v)
    if not ends:
        torch.testing.assert_close(found, wanted, equal_nan=True)
    assert bool(found[0, :192].isfinite().all()) == ends
    (chunks,) = (line for line in compiled.ir("loop").splitlines() if line.endswith("# scan"))
    assert ("min(" in chunks) == ends


def test_shared_memory_that_the_launch_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIDES", ((64, 64),))
    q, k, v = (torch.randn(4, 256, 64) for _ in range(3))
    compiled = weft.compile(F.scaled_dot_product_attention, target="cuda:sm_90a", simulate=True)
    found = compiled(q, k, v)
    levels = compiled.programs[0].artifact.levels()
    (launch,) = levels.launches.values()
    assert launch.shared_bytes >= launch.dynamic_bytes > 48 << 10
    wanted = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
    assert (found - wanted).norm() < 1e-6 * wanted.norm()


def test_threads_that_go_round_a_loop_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 12 columns, every other thread has two pieces of 4: PoCL by its default got them wrong."""
    opencl_device()
    monkeypatch.setattr(module, "SIDES", ((16, 32),))

    def biased(*given: Any) -> torch.Tensor:
        pairs = zip(given[::2], given[1::2], strict=True)
        return F.scaled_dot_product_attention(
            *((x + b).view(1, 19, 4, 12).transpose(1, 2) for x, b in pairs)
        )

    given = [torch.randn(n) for n in ((1, 19, 48), (48,)) * 3]
    compiled = weft.compile(biased, target="opencl")
    torch.testing.assert_close(compiled(*given), biased(*given))
    assert "# scan" in compiled.ir("loop")


@pytest.mark.parametrize(("fuse", "merged"), [("greedy", True), ("none", False), ("all", False)])
def test_merges_by_price_alone(fuse: Any, merged: bool) -> None:
    """`none` keeps operators apart, `all` computes again instead."""
    eager = ATTENTION["plain"]
    attention = weft.compile(eager, target="cuda:sm_90a", simulate=True, fuse=fuse)
    attention(*(torch.randn(2, 150, 32) for _ in range(3)))
    assert ("# scan" in attention.ir("loop")) is merged


def test_degrees_of_terms() -> None:
    """Those that scale with exp(s - maximum) do so negated as well; what is added to them not."""
    score, top = make(Acc("s0", f32)), make(Acc("top", f32))
    weight = apply("exp", apply("subtract", score, top))
    degrees = Degrees({top}, top=top)
    assert degrees.of(weight) == degrees.of(apply("negate", weight)) == 1
    assert degrees.of(apply("negate", score)) == 0
    with pytest.raises(NotByChunks):
        degrees.of(apply("add", weight, score))
