"""Kernels that pass on rows: merged where that is legal and cheaper, and the same in meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import weft
from tests.steps import step_of
from weft.interpret import kernels as kernel_interpret
from weft.interpret import nests as interpret
from weft.kernel.verify import verify as verify_kernel
from weft.loop.verify import verify as verify_loop
from weft.scalar.choices import Choices
from weft.scalar.nest import Program
from weft.targets.cpu import CPUS
from weft.text import parse_program, print_program
from weft.tile.lower import kernels as lower
from weft.tile.passes.programs.merge_rows import merge_rows
from weft.tile.price.cost import kernel_time_us
from weft.tile.schedule import CPU_SCHEDULE

ATTENTION = """
program loop attention
input q: f32[4,96,8]
input k: f32[2,96,8]
input v: f32[2,96,20]

kernel s(q: f32[4,96,8], k: f32[2,96,8]) -> s: f32[4,96,96]
for a0 in 0..4:  # free
    for a1 in 0..96:  # free
        for a2 in 0..96:  # free
            for a3 in 0..8:  # reduce
                in0 = load q[a0, a1, a3]
                in1 = load k[a0 // 2, a2, a3]
                v0 = multiply(in0, in1)
                acc0 <- add(acc0, v0)
            s[a0, a1, a2] = acc0

kernel w(s: f32[4,96,96]) -> (w: f32[4,96,96], t: f32[4,96,1])
for a0 in 0..4:  # free
    for a1 in 0..96:  # free
        for a2 in 0..96:  # reduce
            in0 = load s[a0, a1, a2]
            v0 = exp(in0)
            acc0 <- add(acc0, v0)
        t[a0, a1, 0] = acc0
        for a3 in 0..96:  # free
            in1 = load s[a0, a1, a3]
            v1 = exp(in1)
            w[a0, a1, a3] = v1

kernel y(w: f32[4,96,96], v: f32[2,96,20], t: f32[4,96,1]) -> y: f32[4,96,20]
for a0 in 0..4:  # free
    for a1 in 0..96:  # free
        in0 = load t[a0, a1, 0]
        for a2 in 0..20:  # free
            for a3 in 0..96:  # reduce
                in1 = load w[a0, a1, a3]
                in2 = load v[a0 // 2, a3, a2]
                v0 = multiply(in1, in2)
                acc0 <- add(acc0, v0)
            v1 = divide(acc0, in0)
            y[a0, a1, a2] = v1

output y
"""
# 96 KB of scores, past caches of 16 and 64 KB
SMALL = {"l2": 16 << 10, "l3": 128 << 10}


def merge(program: Program, isa: str = "avx512", **facts: int) -> Program:
    target = replace(CPUS[isa], **{**SMALL, **facts})
    return merge_rows(program, partial(kernel_time_us, target=target), target, Choices())


def check_attention(program: Program, isa: str, facts: Mapping[str, int]) -> Program:
    """What it is merged to: one kernel and its panels, equal at the loop and the kernel level."""
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(b.type.shape).astype(np.float32) for b in program.inputs]
    want = interpret.run(program, inputs, widen=True)[0]
    merged = merge(program, isa, **facts)
    verify_loop(merged)
    assert [k.name for k in merged.kernels] == ["pack_k_panels", "pack_v_panels", "y"]
    np.testing.assert_allclose(interpret.run(merged, inputs, widen=True)[0], want, rtol=1e-12)
    tiled = merged
    for _, change in CPU_SCHEDULE:
        tiled = step_of(tiled, change, replace(CPUS[isa], **{**SMALL, **facts}))
    low = lower.lower(tiled)
    verify_kernel(low)
    np.testing.assert_allclose(kernel_interpret.run(low, inputs, widen=True)[0], want, rtol=1e-12)
    return merged


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_attention_is_one_kernel(isa: str, golden: Callable[[str, str], None]) -> None:
    merged = check_attention(parse_program(ATTENTION), isa, SMALL)
    if isa == "avx512":
        golden("tile/merge_rows.txt", print_program(merged))


def test_two_results_do_not_lie_in_the_same_place() -> None:
    """Both are computed by the loop that reads the scores last."""
    text = ATTENTION.replace("-> (w: f32[4,96,96], t", "-> (w: f32[4,96,96], u: f32[4,96,96], t")
    text = text.replace(
        "            w[a0, a1, a3] = v1\n",
        "            v2 = multiply(in1, 2.0)\n            w[a0, a1, a3] = v1\n"
        "            u[a0, a1, a3] = v2\n",
    )
    text = text.replace("kernel y(w: f32[4,96,96],", "kernel y(w: f32[4,96,96], u: f32[4,96,96],")
    head, tail = text.split("kernel y(")
    both = ["in3 = load u[a0, a1, a3]", "v2 = add(in1, in3)", "v0 = multiply(v2, in2)"]
    tail = tail.replace("v0 = multiply(in1, in2)", f"\n{' ' * 16}".join(both))
    program = parse_program(f"{head}kernel y({tail}")
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(b.type.shape).astype(np.float32) for b in program.inputs]
    want = interpret.run(program, inputs, widen=True)[0]
    merged = merge(program)
    assert len(merged.kernels) < 4 and merged.kernels[-1].name == "y"
    np.testing.assert_allclose(interpret.run(merged, inputs, widen=True)[0], want, rtol=1e-12)


def two_sided(columns: bool = False) -> str:
    """Weights of the sum of two products: the second one's kernel comes after the first one's."""
    start, end = ATTENTION.index("kernel s("), ATTENTION.index("kernel w(")
    second = ATTENTION[start:end].replace("s(q", "r(q").replace("-> s:", "-> r:")
    second = second.replace("            s[a0", "            r[a0")
    added, tail = "r: f32[4,96,96]", ATTENTION[end:]
    if columns:
        second, added = f"{COLUMNS}{second}", f"{added}, z: f32[96]"
    tail = tail.replace("kernel w(s: f32[4,96,96])", f"kernel w(s: f32[4,96,96], {added})")
    for n, column in enumerate(("a2", "a3")):
        load = f"in{n} = load s[a0, a1, {column}]\n"
        lines = [f"in{n + 2} = load r[a0, a1, {column}]", f"v{n + 4} = add(in{n}, in{n + 2})"]
        if columns:
            lines += [f"in{n + 4} = load z[{column}]", f"v{n + 6} = add(v{n + 4}, in{n + 4})"]
        other = "".join(f"{' ' * 12}{line}\n" for line in lines)
        last = f"v{n + 6}" if columns else f"v{n + 4}"
        tail = tail.replace(load, load + other).replace(f"exp(in{n})", f"exp({last})")
    return f"{ATTENTION[:end]}{second}{tail}"


COLUMNS = """kernel z(k: f32[2,96,8]) -> z: f32[96]
for a0 in 0..96:  # free
    for a1 in 0..8:  # reduce
        in0 = load k[0, a0, a1]
        acc0 <- add(acc0, in0)
    z[a0] = acc0

"""
SIDES = {
    "read by the sum alone": (two_sided(), ["y"]),
    "an output too": (two_sided().replace("output y", "output y, r"), ["r", "y"]),
    "beside one that has no rows": (two_sided(columns=True), ["z", "y"]),
}


@pytest.mark.parametrize("name", SIDES)
def test_both_sides_of_a_sum_are_computed_where_it_is(name: str) -> None:
    text, kernels = SIDES[name]
    program = parse_program(text)
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(b.type.shape).astype(np.float32) for b in program.inputs]
    merged = merge(program)
    assert [k.name for k in merged.kernels if "pack" not in k.name] == kernels
    both = (interpret.run(p, inputs, widen=True) for p in (merged, program))
    for got, want in zip(*both, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


CAUSAL = ATTENTION.replace(
    "v0 = exp(in0)",
    "v2 = ge(a1, a2)\n            v3 = where(v2, in0, -inf)\n            v0 = exp(v3)",
).replace(
    "v1 = exp(in1)",
    "v2 = ge(a1, a3)\n            v3 = where(v2, in1, -inf)\n            v1 = exp(v3)",
)
CAUSAL = "finite add".join(CAUSAL.rsplit("add", 1))


def test_columns_that_a_mask_rules_out_for_a_block_are_not_paid_for() -> None:
    """As one kernel causal attention computes half of what two kernels do."""
    cache = {"l2": 8 << 10, "l3": 256 << 10}
    plain, causal = (merge(parse_program(t), "avx2", **cache) for t in (ATTENTION, CAUSAL))
    assert [[b.name for b in p.kernels[-1].inputs] for p in (plain, causal)] == [
        ["w", "v", "t"],
        ["q", "k_panels", "v_panels"],
    ]
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(b.type.shape).astype(np.float32) for b in causal.inputs]
    want = interpret.run(parse_program(CAUSAL), inputs, widen=True)[0]
    np.testing.assert_allclose(interpret.run(causal, inputs, widen=True)[0], want, rtol=1e-12)


KEPT = {
    "an output": ATTENTION.replace("output y", "output y, w"),
    "rows that are shifted": ATTENTION.replace("load w[a0, a1, a3]", "load w[a0, 95 - a1, a3]"),
}


@pytest.mark.parametrize("name", KEPT)
def test_kernels_stay_apart_where_rows_are_needed_elsewhere(name: str) -> None:
    merged = merge(parse_program(KEPT[name]))
    assert "y" in [k.name for k in merged.kernels]
    assert any(b.name == "w" for k in merged.kernels for b in k.outputs)


def test_kernels_stay_apart_where_the_cache_holds_what_they_pass_on() -> None:
    program = parse_program(ATTENTION)
    assert merge(program, l2=1 << 20).steps == program.steps


def test_a_large_right_side_is_not_read_for_every_block() -> None:
    text = """
program loop mlp
input x: f32[128,64]
input u: f32[64,4096]
input w: f32[4096,64]

kernel h(x: f32[128,64], u: f32[64,4096]) -> h: f32[128,4096]
for a0 in 0..128:  # free
    for a1 in 0..4096:  # free
        for a2 in 0..64:  # reduce
            in0 = load x[a0, a2]
            in1 = load u[a2, a1]
            v0 = multiply(in0, in1)
            acc0 <- add(acc0, v0)
        v1 = relu(acc0)
        h[a0, a1] = v1

kernel y(h: f32[128,4096], w: f32[4096,64]) -> y: f32[128,64]
for a0 in 0..128:  # free
    for a1 in 0..64:  # free
        for a2 in 0..4096:  # reduce
            in0 = load h[a0, a2]
            in1 = load w[a2, a1]
            v0 = multiply(in0, in1)
            acc0 <- add(acc0, v0)
        y[a0, a1] = acc0

output y
"""
    program = parse_program(text)
    assert merge(program, l2=256 << 10, l3=512 << 10).steps == program.steps


@pytest.mark.parametrize("causal", [False, True])
def test_native_attention_over_many_blocks(causal: bool) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, h, 640, 16) for h in (8, 2, 2))

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=True
        )

    compiled = weft.compile(attend)
    want = attend(q.double(), k.double(), v.double())
    error = (compiled(q, k, v).double() - want).norm() / want.norm()
    assert error < 1e-6
    assert len(compiled.report.kernels) == 3
    ends = "in 0..a1 * 64 + 64 by" in compiled.ir("tile")  # blocks end where their rows do
    assert ends == causal


@pytest.mark.parametrize("number", [torch.inf, torch.nan])
def test_a_later_value_counts_in_causal_attention_by_hand(number: float) -> None:
    """Its weight is 0, and 0 * x is NaN; ATen's attention leaves it out."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 8, 640, 16) for _ in range(3))
    v[:, :3, 500] = number

    def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        at = torch.arange(640)
        scores = torch.where(at[:, None] >= at, q @ k.transpose(-1, -2) / 4, -torch.inf)
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        return (weights @ v) / weights.sum(-1, keepdim=True)

    torch.testing.assert_close(weft.compile(by_hand)(q, k, v), by_hand(q, k, v), equal_nan=True)
