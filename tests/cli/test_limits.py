"""The machine's limits and the work of programs: arithmetic, and one real measurement."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from weft.cli.habits import measure as measure_habits
from weft.cli.habits import peak_bytes
from weft.cli.limits import ATEN, FORMULAS, Limits, Work, biased_attention_flops, count, measure
from weft.cli.program import Source, SourceSpec
from weft.cli.source import load

LIMITS = Limits(
    threads=2, gflops_one_thread=60.0, gflops=100.0, bf16_gflops_one_thread=0.0, bf16_gflops=200.0,
    copy_gb_per_s={1 << 10: 80.0, 1 << 20: 20.0},
)  # fmt: skip


def work(text: str) -> Work:
    source = load(SourceSpec(text=text))
    assert isinstance(source, Source)
    return count(source)


@pytest.mark.parametrize(
    ("moved", "rate"), [(1, 80.0), (1 << 10, 80.0), (1 << 15, 40.0), (1 << 20, 20.0), (1 << 30, 20)]
)
def test_bandwidth_between_the_measured_sizes(moved: int, rate: float) -> None:
    assert LIMITS.bandwidth(moved) == pytest.approx(rate)


def test_percent_is_of_the_longer_of_computing_and_moving() -> None:
    computing, moving = Work(10**9, 1 << 10), Work(10**6, 1 << 20)
    assert LIMITS.percent(computing, ms=20.0) == pytest.approx(50.0)  # 10 ms at 100 GFLOP/s
    assert LIMITS.seconds(moving) == pytest.approx((1 << 20) / 20e9)
    assert LIMITS.percent(Work(10**9, 1 << 10, bf16=True), ms=20.0) == pytest.approx(25.0)
    assert LIMITS.percent(computing, None) is None


def test_the_higher_of_two_measurements_counts() -> None:
    low = Limits(2, 50.0, 110.0, 0.0, 0.0, {1 << 10: 90.0, 1 << 20: 10.0})
    best = LIMITS.best_of(low)
    assert (best.gflops_one_thread, best.gflops, best.bf16_gflops) == (60.0, 110.0, 200.0)
    assert best.copy_gb_per_s == {1 << 10: 90.0, 1 << 20: 20.0}


PRODUCT = 2 * 8 * 4 * 16


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torch.randn(8,4) @ torch.randn(4,16)", Work(PRODUCT, 4 * (32 + 64 + 128))),
        ("nn.Linear(4,16,bias=False)(torch.randn(8,4))", Work(PRODUCT, 4 * (32 + 64 + 128))),
        (
            "torch.randn(8,4).bfloat16() @ torch.randn(4,16).bfloat16()",
            Work(PRODUCT, 2 * (32 + 64 + 128), bf16=True),
        ),
        ("torch.randn(8,4) @ torch.randn(4)", Work(2 * 32, 4 * (32 + 4 + 8))),
        ("torch.randn(8,4) + torch.randn(1,4).expand(8,4)", Work(0, 4 * (32 + 4 + 32))),
        # two products over what is on or below the diagonal: 3 + 2 + 1 of 9
        (
            "F.scaled_dot_product_attention(torch.randn(1,2,3,4), torch.randn(1,2,3,4), "
            "torch.randn(1,2,3,4), is_causal=True)",
            Work(2 * 2 * 2 * 6 * 4, 4 * 4 * 24),
        ),
        # of a table only the rows that are asked for move
        ("nn.Embedding(1000,64)(torch.arange(3))", Work(0, 3 * 8 + 2 * 3 * 64 * 4)),
        ("nn.Embedding(2,64)(torch.tensor([0,1,1,0]))", Work(0, 4 * 8 + (2 + 4) * 64 * 4)),
    ],
)
def test_work_of_a_program(text: str, expected: Work) -> None:
    assert work(text) == expected


def test_a_table_that_is_read_whole_as_well_counts_whole() -> None:

    class Tied(nn.Embedding):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) @ self.weight.t()

    found = count(Source(Tied(10, 4), (torch.arange(2),), {}, "tied"))
    assert found.bytes == 4 * 10 * 4 + 2 * 8 + 4 * 2 * 10


def test_this_machine() -> None:
    limits = measure(threads=1)
    assert limits.gflops > 1 and limits.gflops_one_thread > 1
    assert all(rate > 0.1 for rate in limits.copy_gb_per_s.values())


def test_habits_of_this_process() -> None:
    """Figures of a real run: orders of magnitude, for the machine may be busy."""
    habits = measure_habits(torch.get_num_threads())
    assert 0 < habits.native_us < habits.call_us < 1000
    assert habits.one_thread_ms > 0 and habits.threads_ms > 0
    assert habits.eager_ms > 0 and habits.eager_between_ms > 0


def test_peak_of_a_call_counts_what_it_lets_go_of() -> None:
    held = peak_bytes(lambda: torch.ones(1 << 25))
    assert held is None or held > 100 << 20
    assert (peak_bytes(lambda: None) or 0) < 4 << 20


def test_attention_of_a_device_is_counted_as_the_cpus() -> None:
    """What lies above the diagonal of a causal one is no work, whichever op eager takes."""
    query, key = (2, 3, 5, 8), (2, 3, 7, 8)
    flash, biased = FORMULAS[ATEN._scaled_dot_product_flash_attention], biased_attention_flops
    kept = 1 + 2 + 3 + 4 + 5
    assert flash(query, key, key, 0.0, True, out_val=None) == 2 * 6 * kept * 16
    assert biased(query, key, key, None, False, 0.0, True) == 2 * 6 * kept * 16
    assert biased(query, key, key, None, False) == 2 * 6 * 35 * 16
