"""Scatters of rows by segments: the nests, their values, and what they are not taken for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import weft
from weft.core.errors import IndexOutOfRange
from weft.interpret import nests as interpret
from weft.interpret.tensors import evaluate
from weft.tensor.lower import BY_TABLE, lower
from weft.text import parse_program, print_program

ROWS = """
program tensor rows
input base: f32[5,32]
input i: i64[12]
input x: f32[6,32]
v0 = view{[12,32] -> (i0)}(i): i64[12,32]
v1 = view{[12,32] -> (i0 // 2, i1)}(x): f32[12,32]
y = scatter{sum, axis=0}(base, v0, v1): f32[5,32]
output y
"""
OTHERS = {
    "an index for each element": ROWS.replace("i: i64[12]", "i: i64[12,32]").replace(
        "(i0)}(i)", "(i0, i1)}(i)"
    ),
    "few columns": ROWS.replace("32]", "8]"),
}


def lowered(text: str, cache: int) -> Any:
    graph = parse_program(text)
    roads = BY_TABLE._replace(segments=lambda *_: True, cache=cache)
    return graph, lower(graph, [tuple(graph.outputs)], roads=roads)


@pytest.mark.parametrize(("cache", "blocks"), [(1 << 20, 1), (400, 2), (1, 64)])
def test_entries_are_sorted_and_those_of_a_row_folded_at_once(cache: int, blocks: int) -> None:
    for function in ("sum", "product", "max", "min"):
        graph, program = lowered(ROWS.replace("sum", function), cache)
        text = print_program(program)
        assert f"y_starts: i32[{blocks},6]" in text
        assert print_program(parse_program(text)) == text
        assert ("local table" in text) == (blocks > 1)
        assert ("local near0: f32[3,32]" in text) == (blocks == 2)
        rng = np.random.default_rng(0)
        given = [
            rng.random((5, 32), np.float32),
            rng.integers(4, size=12),
            rng.random((6, 32), np.float32),
        ]
        (wanted,) = evaluate(graph, given, widen=True)
        (found,) = interpret.run(program, given, widen=True)
        np.testing.assert_allclose(found, wanted, rtol=1e-14)
        np.testing.assert_array_equal(found[4], given[0][4])


SHARED = """
program tensor shared
input base: f32[5,32]
input i: i64[28]
input w: f32[28]
input s: f32[7]
input x: f32[7,32]
v0 = view{[28,32] -> (i0)}(i): i64[28,32]
v1 = map{sqrt}(x): f32[7,32]
v2 = view{[7,32] -> (i0)}(s): f32[7,32]
v3 = map{multiply}(v1, v2): f32[7,32]
v4 = view{[28,32] -> (i0 // 4, i1)}(v3): f32[28,32]
v5 = view{[28,32] -> (i0)}(w): f32[28,32]
v6 = map{multiply}(v4, v5): f32[28,32]
y = scatter{sum, axis=0}(base, v0, v6): f32[5,32]
output y
"""


@pytest.mark.parametrize(("cache", "blocks"), [(1 << 20, 1), (600, 2), (300, 4), (1, 64)])
def test_what_entries_share_is_computed_once_for_a_block(cache: int, blocks: int) -> None:
    graph, program = lowered(SHARED, cache)
    text = print_program(program)
    assert f"y_starts: i32[{blocks},6]" in text
    rows = -(-7 // blocks)  # whole rows of x, of which the last blocks may have none
    assert f"local near0: f32[{rows},32]" in text
    assert text.index("sqrt") < text.index("# reduce usual")
    rng = np.random.default_rng(0)
    given = [
        rng.random((5, 32), np.float32),
        rng.integers(5, size=28),
        *(rng.random(shape, np.float32) for shape in ((28,), (7,), (7, 32))),
    ]
    (wanted,) = evaluate(graph, given, widen=True)
    (found,) = interpret.run(program, given, widen=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


def test_no_more_is_kept_side_by_side_than_a_cache_holds() -> None:
    """Of entries with values of their own, which are in one block: few values are read again."""
    own = SHARED.replace("w: f32[28]", "w: f32[28,32]").replace("-> (i0)}(w)", "-> (i0, i1)}(w)")
    assert "near0" in print_program(lowered(own, 1 << 20)[1])
    assert "near0" not in print_program(lowered(own, 800)[1])


@pytest.mark.parametrize("case", OTHERS)
def test_other_scatters_go_by_tables(case: str) -> None:
    _, program = lowered(OTHERS[case], 1 << 20)
    assert len(program.steps) == 1


def test_prices_count_the_usual_iterations() -> None:
    _, program = lowered(ROWS, 1)
    assert "# reduce usual 1\n" in print_program(program)
    _, program = lowered(ROWS, 1 << 20)
    assert "# reduce usual 3\n" in print_program(program)


Case = tuple[Callable[..., torch.Tensor], int, int, int, torch.dtype]
CASES: dict[str, Case] = {
    "sums": (lambda b, i, x: b.index_add(0, i, x), 50, 1000, 128, torch.float32),
    "of many blocks": (lambda b, i, x: b.index_add(0, i, x), 40, 9001, 96, torch.float32),
    "in f64": (lambda b, i, x: b.index_add(0, i, x), 7, 100, 17, torch.float64),
    "of integers": (lambda b, i, x: b.index_add(0, i, x), 7, 100, 33, torch.int64),
    "in bf16": (lambda b, i, x: b.index_add(0, i, x), 7, 20, 32, torch.bfloat16),
    "greatest": (lambda b, i, x: b.index_reduce(0, i, x, "amax"), 50, 99, 64, torch.float32),
    "least": (lambda b, i, x: b.index_reduce(0, i, x, "amin"), 50, 99, 64, torch.float32),
    "products": (lambda b, i, x: b.index_reduce(0, i, x, "prod"), 50, 99, 64, torch.float32),
    "a few of many rows": (lambda b, i, x: b.index_add(0, i, x), 999, 3, 40, torch.float32),
}


def compiled(f: Callable[..., Any], op: str = "index_add") -> Any:
    return weft.compile(f, schedule=f"*.segments.{op} = yes", fallback="error")


@pytest.mark.parametrize("case", CASES)
def test_values_are_eagers(case: str) -> None:
    f, rows, entries, columns, dtype = CASES[case]
    torch.manual_seed(0)
    base, x = (torch.randn(n, columns).mul(2).to(dtype) for n in (rows, entries))
    i = torch.randint(max(1, rows - 2), (entries,))
    g = compiled(f, "index_add" if "index_add" in f.__code__.co_names else "index_reduce")
    found, wide = g(base, i, x), torch.float64 if dtype.is_floating_point else dtype
    assert [k.name for k in g.report.kernels][-2].endswith("_order")
    wanted = f(base.to(wide), i, x.to(wide)).to(dtype)
    close = {torch.float32: 3e-5, torch.float64: 1e-13, torch.bfloat16: 2e-2}.get(dtype, 0)
    torch.testing.assert_close(found, wanted, rtol=close, atol=close)
    torch.testing.assert_close(found[rows - 2 :], base[rows - 2 :], rtol=0, atol=0)


def test_a_row_that_gets_nothing_keeps_its_bits() -> None:
    base = torch.full((4, 32), -0.0)
    f = compiled(lambda b, i, x: b.index_add(0, i, x))
    found = f(base, torch.tensor([1, 1]), torch.ones(2, 32))
    assert torch.signbit(found[[0, 2, 3]]).all() and (found[1] == 2).all()


def test_an_index_out_of_range_is_an_error() -> None:
    f = compiled(lambda b, i, x: b.index_add(0, i, x))
    for i in (4, -1):
        with pytest.raises(IndexOutOfRange):
            f(torch.zeros(4, 32), torch.tensor([1, i]), torch.ones(2, 32))


def test_sums_do_not_depend_on_the_number_of_threads() -> None:
    torch.manual_seed(0)
    given = torch.randn(40, 192), torch.randint(40, (5000,)), torch.randn(5000, 192)
    f, found = compiled(lambda b, i, x: b.index_add(0, i, x)), []
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(f(*given))
    torch.set_num_threads(before)
    assert torch.equal(*found)
