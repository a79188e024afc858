"""Lists of a sum's live entries: what they are taken for, and that values are eager's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import weft
from weft.core.errors import IndexOutOfRange
from weft.interpret.nests import run
from weft.scalar.choices import Choices
from weft.targets.cpu import CPUS
from weft.text import parse_program, print_program
from weft.tile.passes.cpu.list_live import list_live
from weft.tile.passes.cpu.stream_stores import stream_stores
from weft.tile.verify import verify

ROWS = 20


def padded(t: Tensor) -> Tensor:
    return F.pad(t, (0, 0, 0, 1))


def bag(t: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return F.embedding_bag(x, padded(t), mode="sum")


def two(t: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    both = F.embedding_bag(x, padded(t), mode="sum"), F.embedding_bag(y, padded(t), mode="sum")
    return both[0] - 2 * both[1]


def gathered(t: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return F.embedding(x, padded(t)).sum(1)


def weighted(t: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    rows = F.embedding(x.clamp(max=ROWS - 1), t)
    return torch.where((x < ROWS)[..., None], w[..., None] * rows, 0.0).sum(1)


def greatest(t: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    rows = F.embedding(x.clamp(max=ROWS - 1), t)
    return torch.where((x < ROWS)[..., None], rows, -torch.inf).amax(1)


def by_place(t: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """The rows themselves are summed, where a mask allows it."""
    return torch.where((x < ROWS)[..., None], t[: x.shape[1]] * 3, 0.0).sum(1)


def nested(t: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """A row is looked up by what the mask allows to be looked up."""
    live = x < ROWS
    place = torch.where(live, y.flatten()[torch.where(live, x, 0)], ROWS) % ROWS
    return torch.where(live[..., None], F.embedding(place, t), 0.0).sum(1)


CASES: list[Callable[..., Tensor]] = [bag, two, gathered, weighted, greatest, by_place, nested]


def given(width: int, entries: int, bags: int, share: float, seed: int) -> tuple[Tensor, ...]:
    """A table of whole numbers, two lists with so large a share of live entries, and weights."""
    torch.manual_seed(seed)
    table = torch.randint(-9, 9, (ROWS, width)).float()
    lists = [
        torch.where(torch.rand(bags, entries) < share, torch.randint(ROWS, (bags, entries)), ROWS)
        for _ in range(2)
    ]
    lists[0][0], lists[1][-1] = ROWS, 3  # none is live, and one row alone
    return table, lists[0].int(), lists[1], torch.randint(-3, 3, (bags, entries)).float()


@pytest.mark.parametrize("function", CASES)
def test_values_are_those_of_eager(function: Callable[..., Tensor]) -> None:
    compiled = weft.compile(function, target="cpu:avx512")
    for seed, (width, entries, bags, share) in enumerate(
        [(128, 8, 30, 0.5), (130, 16, 5, 0.0), (257, 11, 9, 1.0), (200, 12, 1, 0.7)]
    ):
        inputs = given(width, entries, bags, share, seed)
        assert torch.equal(compiled(*inputs), function(*inputs)), (width, entries, bags)
        if width == 128:
            assert "local live0" in compiled.ir("tile"), function.__name__


@pytest.mark.parametrize("function", [bag, two])
def test_gradients_are_those_of_eager(function: Callable[..., Tensor]) -> None:
    table, x, y, w = given(256, 16, 64, 0.6, 7)
    x = x.long()

    def slope(table: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        table = table.detach().requires_grad_()
        return torch.autograd.grad(function(table, x, y, w).square().sum(), table)[0]

    found = weft.compile(slope)(table, x, y, w)
    assert torch.equal(found, slope(table, x, y, w))


def test_bits_are_the_same_on_any_number_of_threads() -> None:
    table, x, y, w = given(256, 16, 300, 0.6, 8)
    table = torch.randn_like(table)
    compiled, found = weft.compile(two), list[Tensor]()
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(compiled(table, x, y, w))
    torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_an_index_beyond_the_padding_is_a_fault() -> None:
    table, x, y, w = given(128, 8, 30, 0.5, 9)
    compiled = weft.compile(bag)
    compiled(table, x, y, w)
    x[3, 2] = ROWS + 1
    with pytest.raises(IndexOutOfRange):
        compiled(table, x, y, w)


TEXT = """
program tile bags
input x: i64[4,16]
input w: f32[10,128]

kernel y(x: i64[4,16], w: f32[10,128]) -> y: f32[4,128]
for a0 in 0..4:  # free
    for a1 in 0..128:  # free
        for a2 in 0..16:  # reduce
            in0 = load x[a0, a2]
            v0 = checked_index(in0, 11)
            v1 = lt(v0, 10)
            in1 = load w[v0, a1] if v1 else 0.0
            acc0 <- add(acc0, in1)
        y[a0, a1] = acc0

output y
"""
OTHERS = {
    "the mask leaves another value": TEXT.replace("else 0.0", "else 1.0"),
    "the fold has another identity": TEXT.replace("add(acc0", "maximum(acc0"),
    "few columns": TEXT.replace("128", "127"),
    "few entries": TEXT.replace("16", "7"),
    "each column has a mask of its own": TEXT.replace("lt(v0, 10)", "lt(a1, v0)"),
    "the mask reads nothing": TEXT.replace("lt(v0, 10)", "lt(a2, 9)"),
}


def listed(text: str) -> Any:
    target, program = CPUS["avx512"], parse_program(text.lstrip())
    changed = program.map_kernels("tile", lambda k: list_live(k, target, Choices()))
    verify(changed)
    return changed


def test_a_list_has_the_same_meaning() -> None:
    changed = listed(TEXT)
    assert "in0 = load w" not in print_program(changed)
    assert "local live0: i32[16]" in print_program(changed)
    assert print_program(parse_program(print_program(changed))) == print_program(changed)
    _, x, _, _ = given(128, 16, 4, 0.5, 10)
    places = [x.long().clamp(max=10).numpy(), torch.randn(10, 128).numpy()]
    wanted, found = (run(p, places, widen=True)[0] for p in (parse_program(TEXT.lstrip()), changed))
    assert (wanted == found).all()


@pytest.mark.parametrize("case", OTHERS)
def test_other_sums_have_no_list(case: str) -> None:
    assert "live0" not in print_program(listed(OTHERS[case]))


def test_rows_looked_up_often_stay_in_the_cache() -> None:
    """Stores are streamed where they would evict these, and no few stores."""
    compiled = weft.compile(bag, target="cpu:avx512")
    compiled(*given(128, 16, 40, 0.9, 11))
    program: Any = parse_program(compiled.ir("tile").replace(" stream", ""))
    for l2, wanted in {4 << 10: True, 64 << 10: False}.items():
        target = replace(CPUS["avx512"], l2=l2, l3=1 << 30)
        streamed = program.map_kernels("tile", lambda k, t=target: stream_stores(k, t, Choices()))
        assert (" stream" in print_program(streamed)) == wanted, l2
