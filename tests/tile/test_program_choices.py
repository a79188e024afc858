"""The choices of a whole program: which kernels it has. Each way is right, and can be written."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

import weft
from tests.captures import capture_call
from weft import driver
from weft.core.errors import WeftError
from weft.core.passes import PassLog
from weft.frontend.lower import to_tensor
from weft.options import Options
from weft.scalar.choices import Chooser
from weft.scalar.nest import Block, Store, walk
from weft.targets.cpu import CPUS
from weft.tensor.fuse import partition


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def emitted(schedule: str = "", target: str = "cpu:avx512", rows: int = 512):
    """The levels of attention over that many rows, which are merged by default."""
    args = [torch.empty(1, 8, rows, 64, dtype=torch.float32) for _ in range(3)]
    captured = capture_call(attention, args, {})
    return driver.lower(captured.graph, Options(target, schedule=schedule), PassLog())


def lines_of(levels) -> list[str]:
    text = levels.text("schedule").splitlines()
    return [line.partition("#")[0].strip() for line in text if line.startswith("program_")]


def yes_of(schedule: str) -> list[str]:
    """The fusions and merges that were taken."""
    lines = (line.partition("#")[0].strip() for line in schedule.splitlines())
    return [s for s in lines if re.match(r"program_\w+\.(inline|join|merge)\..* = yes$", s)]


def undone(lines: list[str], again: Callable[[str], list[str]]) -> str:
    """All fusions taken back: those too that are met `again` as others are gone."""
    back: dict[str, None] = {}
    while taken := {n: None for n in (line.partition(" =")[0] for line in lines) if n not in back}:
        back |= taken
        lines = again("".join(f"{n} = no\n" for n in back))
    return "".join(f"{n} = no\n" for n in back)


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

    def lines_by(schedule: str) -> list[str]:
        other = weft.compile(attention, schedule=schedule)
        torch.testing.assert_close(other(q, k, v), expected)
        counts.add(len(weft.report(other).kernels))
        return yes_of(other.ir("schedule"))

    lines = yes_of(compiled.ir("schedule"))
    assert sum(".inline." in line for line in lines) >= 4
    for line in lines:
        lines_by(line.partition("#")[0].replace("yes", "no"))
    undone(lines, lines_by)
    assert len(counts) > 1


def test_forward_and_backward_replay_from_one_text() -> None:
    """Each has lines of its own: the other's are passed over."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.tanh(x @ w) * 2 + x.exp(), -1)

    def texts(compiled) -> tuple[str, str]:
        x, w = (torch.randn(64, 64, requires_grad=True) for _ in range(2))
        torch.autograd.grad(compiled(x, w), [x, w], torch.ones(64, 64))
        return compiled.ir("c"), compiled.ir("schedule")

    source, schedule = texts(weft.compile(f))
    assert (
        len({line.partition(".")[0] for line in schedule.splitlines() if "program_" in line}) == 2
    )
    assert texts(weft.compile(f, schedule=schedule)) == (source, schedule)


def test_no_fusion_at_all_by_hand() -> None:
    """Every line taken back: what a fusion that is gone would have allowed is not missed."""
    levels = emitted()
    schedule = undone(
        yes_of(levels.text("schedule")), lambda s: yes_of(emitted(s).text("schedule"))
    )
    none = emitted(schedule)
    assert len(none.program("loop").kernels) > len(levels.program("loop").kernels)


def sums(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sum(1), (x * 3).sum(1)


def test_a_fusion_that_the_price_declines() -> None:
    """Joined where it is asked for, at the end; the trail says so."""
    graph = to_tensor(capture_call(sums, (torch.randn(64, 256),), {}).graph)

    def price(body: Block) -> float:
        return float(sum(isinstance(s, Store) for s in walk(body)) ** 2)  # of two results 4

    apart = partition(graph, price, CPUS["avx512"])
    assert len(apart) == 2
    chooser = Chooser({"program": {"join.sum.sum_1": "yes"}})
    assert len(partition(graph, price, CPUS["avx512"], chooser=chooser)) == 1
    assert chooser.checked().program.met["join.sum.sum_1"].taken == "yes"


def test_a_fusion_that_cannot_be_is_told() -> None:
    args = (torch.randn(64, 256),)
    name = driver.lower(capture_call(sums, args, {}).graph, Options("cpu"), PassLog()).chooser.name
    with pytest.raises(WeftError, match=rf"unknown choice of kernel {name} 'join\.sum\.nothing'"):
        weft.compile(sums, schedule=f"{name}.join.sum.nothing = yes")(*args)


@pytest.mark.parametrize("line", ["inlien.t0 = no", "split_matmul_kk = no"])
def test_a_name_that_is_none_is_told(line: str) -> None:
    f = weft.compile(lambda x: x.softmax(-1), target="cpu", schedule=f"program_softmax.{line}")
    with pytest.raises(WeftError, match="unknown choice of kernel program_softmax"):
        f(torch.randn(4, 8))


def test_a_chunk_that_leaves_no_registers_for_strips() -> None:
    """Each thread holds more of a chunk than 64 values: it reads them one by one."""
    args = [torch.empty(n, 4096, dtype=torch.bfloat16, device="meta") for n in (512, 11008)]
    captured = capture_call(torch.nn.functional.linear, args, {})
    for chunk in (64, 32):
        options = Options("cuda:sm_90a", schedule=f"linear.chunk = {chunk}")
        assert "__global__" in driver.lower(captured.graph, options, PassLog()).text("source")
