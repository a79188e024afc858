"""The exact price of CPU kernels: what it counts, how it compares, and the rates it reads."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.captures import capture_call
from weft.config import config
from weft.core.passes import PassLog
from weft.emit.terms import unnamed
from weft.levels import lower
from weft.options import Options, find_target
from weft.scalar.blocks import loops_in
from weft.scalar.nest import Kernel
from weft.scalar.placing import place
from weft.targets.cpu import CPU, CPUS
from weft.tile.lower.kernels import lower_kernel
from weft.tune.price import rates as rates_file
from weft.tune.price.cpu import Walk, kernel_us, memory
from weft.tune.price.rates import Rates, default_rates, rates_of, rates_path, write_rates
from weft.tune.price.traffic import Traffic
from weft.tune.price.work import Counting, Work

RATES = Rates()


@pytest.fixture
def target() -> CPU:
    found = find_target("cpu:avx512")
    assert isinstance(found, CPU)
    return found


def kernels(f: Callable[..., Any], *shapes: tuple[int, ...], schedule: str = "") -> list[Kernel]:
    """The kernels of a function, at the tile level."""
    captured = capture_call(f, tuple(torch.empty(shape) for shape in shapes))
    options = Options("cpu:avx512", schedule=schedule, tune="off")
    return [*lower(captured.graph, options, PassLog()).made["tile"].kernels]


def kernel(f: Callable[..., Any], *shapes: tuple[int, ...], schedule: str = "") -> Kernel:
    """The only one."""
    (found,) = kernels(f, *shapes, schedule=schedule)
    return found


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def total(x: torch.Tensor) -> torch.Tensor:
    return x.sum()


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def us(k: Kernel, target: CPU) -> float:
    return kernel_us(k, target, RATES)


def inner_work(k: Kernel, target: CPU) -> list[Work]:
    """Of every loop's own statements, outer ones first."""
    body = place(lower_kernel(k).body, unnamed)
    return [Counting(target, RATES).block(loop.body) for loop in loops_in(body)]


def test_counts_of_a_sum_of_two_arrays(target: CPU) -> None:
    assert inner_work(kernel(add, (4096,), (4096,)), target) == [Work(add=1.0, load=2.0, store=1.0)]


def test_counts_of_a_product(target: CPU) -> None:
    product = kernel(torch.matmul, (64, 64), (64, 64), schedule="*.tile_rows = 4\n*.panel = 32")
    sums = [w for w in inner_work(product, target) if w.fma]
    # four rows of two vectors; two vectors of a panel, and an element of each row
    assert sums == [Work(fma=8.0, load=2.0 + 4 * RATES.narrow)]


def bytes_of(k: Kernel, target: CPU) -> tuple[float, ...]:
    """ns past each cache."""
    body = place(lower_kernel(k).body, unnamed)
    walk = Walk(target, RATES)
    walk.block(body)
    return memory(body, walk.turns, target, RATES)


def test_bytes_past_the_caches(target: CPU) -> None:
    one = kernel(add, (1 << 22,), (1 << 22,), schedule="*.threads = no\n*.stream = no")
    streams = kernel(add, (1 << 22,), (1 << 22,), schedule="*.threads = no\n*.stream = yes")
    array = 4 << 22
    past_l1, past_l2, past_l3 = bytes_of(one, target)
    assert past_l1 == pytest.approx(3 * array / RATES.l2)
    assert past_l2 == pytest.approx(3 * array / RATES.l3)
    assert past_l3 == pytest.approx(4 * array / RATES.memory)  # a store reads its line first
    assert bytes_of(streams, target)[2] == pytest.approx(3 * array / RATES.memory)
    assert bytes_of(kernel(add, (4096,), (4096,)), target)[1:] == (0.0, 0.0)  # its core has it all


def test_bytes_of_a_window_are_those_of_its_rows(target: CPU) -> None:
    pool = kernel(lambda x: torch.nn.functional.avg_pool2d(x, 3, 1), (1, 64, 64, 64))
    body = place(lower_kernel(pool).body, unnamed)
    walk = Walk(target, RATES)
    walk.block(body)
    found = Traffic(target.l2, walk.turns).buffers(body)
    assert sum(found.values()) == pytest.approx(4 * (64**3 + 64 * 62**2), rel=0.05)


@pytest.mark.parametrize(
    ("f", "shapes", "better", "worse"),
    [
        (softmax, ((512, 512),), "", "*.vectorize_loops = no"),
        (softmax, ((512, 512),), "*.threads = yes", "*.threads = no"),
        (total, ((1 << 18,),), "*.vectors = 4", "*.vectors = 1"),  # a chain of additions
        (add, ((1 << 24,), (1 << 24,)), "*.stream = yes", "*.stream = no"),
        (torch.matmul, ((256, 256), (256, 256)), "*.tile_rows = 8", "*.tile_rows = 2"),
        (torch.matmul, ((256, 256), (256, 256)), "", "*.block_contraction = no"),
    ],
)
def test_what_is_faster_costs_less(
    target: CPU, f: Any, shapes: Any, better: str, worse: str
) -> None:
    assert us(kernel(f, *shapes, schedule=better), target) < 0.9 * us(
        kernel(f, *shapes, schedule=worse), target
    )


@pytest.mark.parametrize("f", [total, softmax])
def test_twice_as_much_takes_twice_as_long(target: CPU, f: Any) -> None:
    schedule = "*.threads = no" if f is softmax else "*.split = no"
    one, two = (kernel(f, (n, 1024), schedule=schedule) for n in (512, 1024))
    assert us(two, target) == pytest.approx(2 * us(one, target), rel=0.05)


def test_a_loop_that_ends_at_an_axis_runs_half_of_its_way(target: CPU) -> None:
    def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def whole(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    shapes = ((4, 1024, 64),) * 3
    half, full = (sum(us(k, target) for k in kernels(f, *shapes)) for f in (causal, whole))
    assert 0.4 < half / full < 0.75


def test_a_loop_whose_ends_are_loaded_runs_as_often_as_usual(target: CPU) -> None:
    def fold(entries: int) -> float:
        given = torch.empty(64, 128), torch.zeros(entries).long(), torch.empty(entries, 128)
        captured = capture_call(lambda b, i, x: b.index_add(0, i, x), given)
        options = Options("cpu:avx512", schedule="*.segments.index_add = yes", tune="off")
        return us(lower(captured.graph, options, PassLog()).made["tile"].kernels[-1], target)

    assert fold(1600) > 2 * fold(400) and fold(6400) > 3 * fold(1600)


def test_rates_are_kept_for_one_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rates_file, "config", replace(config, cache=tmp_path))
    target = CPUS["avx512"]
    path, mine = rates_path(target), rates_file.machine_of(target)
    assert rates_of(target) == default_rates(target)
    measured = replace(Rates(), fma=0.125, fork_us=7.0)
    write_rates(path, measured, mine)
    assert rates_of(target) == measured and not caplog.records
    text = json.loads(path.read_text())
    broken = {
        "another machine": json.dumps({**text, "machine": "other"}),
        "another version": json.dumps({**text, "version": 0}),
        "does not have the rates": json.dumps({**text, "rates": {"fma": 1.0}}),
        "no positive number": json.dumps({**text, "rates": {**text["rates"], "add": -1}}),
        "Unterminated": path.read_text()[:40],
    }
    for number, (why, content) in enumerate(broken.items()):
        path.write_text(content + " " * number)
        rates_file.measured.cache_clear()
        with caplog.at_level(logging.WARNING):
            assert rates_of(target) == default_rates(target)
        assert why in caplog.text and "weft doctor --calibrate" in caplog.text
        caplog.clear()
