"""The choices of a whole program: which kernels it has. Each way is right, and can be written."""

from __future__ import annotations

import pytest
import torch

import weft
from tests.captures import capture_call
from weft import driver
from weft.core.errors import WeftError
from weft.core.passes import PassLog
from weft.options import Options


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def emitted(schedule: str = "", target: str = "cpu:avx512", rows: int = 512):
    """The levels of attention over that many rows, which are merged by default."""
    args = [torch.empty(1, 8, rows, 64, dtype=torch.float32) for _ in range(3)]
    captured = capture_call(attention, args, {})
    return driver.lower(captured.graph, Options(target, schedule=schedule), PassLog())


def lines_of(levels) -> list[str]:
    text = levels.text("schedule").splitlines()
    return [line.partition("#")[0].strip() for line in text if line.startswith("program.")]


@pytest.mark.parametrize("target, no", [("cpu:avx512", "no"), ("cuda:sm_90a", "None")])
def test_a_merge_that_is_not_taken(target: str, no: str) -> None:
    levels = emitted(target=target)
    merges = [line.partition(" =")[0] for line in lines_of(levels) if ".merge." in line]
    assert merges
    apart = emitted("".join(f"{name} = {no}\n" for name in merges), target)
    assert apart.text("source") != levels.text("source")
    assert {f"{name} = {no}" for name in merges} <= {*lines_of(apart)}


def test_what_is_printed_replays() -> None:
    levels = emitted()
    again = emitted(levels.text("schedule"))
    assert again.text("source") == levels.text("source")
    assert again.text("schedule") == levels.text("schedule")


def test_what_was_decided_otherwise_is_right() -> None:
    q, k, v = (torch.randn(1, 8, 512, 64) for _ in range(3))
    compiled, counts = weft.compile(attention), set[int]()
    expected = compiled(q, k, v)
    lines = [s for s in compiled.ir("schedule").splitlines() if s.startswith("program.")]
    assert sum(line.startswith("program.inline.") for line in lines) >= 4
    for line in lines:
        other = weft.compile(attention, schedule=line.partition("#")[0].replace("yes", "no"))
        torch.testing.assert_close(other(q, k, v), expected)
        counts.add(len(weft.report(other).kernels))
    assert len(counts) > 1


def test_a_fusion_that_the_price_declines() -> None:
    """Joined where it is asked for; a pair that cannot be is told."""

    def sums(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * 2).sum(1), (y * 3).sum(1)

    args = torch.randn(64, 256), torch.randn(64, 256)
    compiled = weft.compile(sums)
    for found, expected in zip(compiled(*args), sums(*args), strict=True):
        torch.testing.assert_close(found, expected)
    with pytest.raises(WeftError, match=r"unknown choice of kernel program 'join\.sum_1\.nothing'"):
        weft.compile(sums, schedule="program.join.sum_1.nothing = yes")(*args)


def test_a_chunk_that_leaves_no_registers_for_strips() -> None:
    """Each thread holds more of a chunk than 64 values: it reads them one by one."""
    args = [torch.empty(n, 4096, dtype=torch.bfloat16, device="meta") for n in (512, 11008)]
    captured = capture_call(torch.nn.functional.linear, args, {})
    for chunk in (64, 32):
        options = Options("cuda:sm_90a", schedule=f"linear.chunk = {chunk}")
        assert "__global__" in driver.lower(captured.graph, options, PassLog()).text("source")
