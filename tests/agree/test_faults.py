"""Indices out of range and integers divided by zero: an error where eager has one, and only there.

A program is run on arguments that are right (every executor gives eager's values), then on ones
that are not: eager, the interpreter of every level and the C all raise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft
from tests.agree.checks import LEVELS, Recorder, check, interpreted
from weft import driver
from weft.calling import compiled
from weft.interpret import calls

SIZES = (1, 5, 17, 33, 3000)  # 3000 rows are more than one thread's share
TABLE = torch.arange(21.0).reshape(7, 3)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)

READS: dict[str, Callable[..., Any]] = {
    "embedding": lambda w, i: F.embedding(i, w),
    "gather": lambda w, i: w.gather(0, i[:, None].expand(-1, 3)),
    "index_select": lambda w, i: w.index_select(0, i),
    "index": lambda w, i: w[i],
    "index_two": lambda w, i: w[i, i // 3],
    "take": lambda w, i: w.take(i * 3),
    "scatter_add": lambda w, i: w.scatter_add(0, i[:, None].expand(-1, 3), w[:1].expand(len(i), 3)),
    "index_columns": lambda w, i: w.t()[:, i],
    "computed": lambda w, i: w.index_select(0, (9 - i) - 3),  # no index where i is 0, as in a tail
    "pad": lambda w, i: F.pad(w.index_select(0, (9 - i) - 3), (1, 1, 2, 2)),
    "cat": lambda w, i: torch.cat([F.embedding(i, w), w]),
    "sum": lambda w, i: w.index_select(0, (9 - i) - 3).sum(0),
    "one_hot": lambda w, i: F.one_hot(i - 2, 5),
    "matmul": lambda w, i: F.embedding(i, w) @ w.t(),
    "positions": lambda w, i: w[torch.arange(4) + i[0]],
    "cross_entropy": lambda w, i: F.cross_entropy(w, i.expand(7) if len(i) == 1 else i[:7] % 9),
}
DIVISIONS: dict[str, Callable[..., Any]] = {
    "floordiv": lambda x, y: x // y,
    "remainder": lambda x, y: x % y,
    "fmod": torch.fmod,
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "by_number": lambda x, y: 100 // y + torch.remainder(100, y),
    "pad": lambda x, y: F.pad(x // y, (3, 5)),
    "cat": lambda x, y: torch.cat([x // y, x]),
    "sum": lambda x, y: (x % y).sum(),
    "row": lambda x, y: x[:, None] // y[None, -1:].expand(1, 3),
}


def rows(n: int, last: int) -> torch.Tensor:
    """Indices 3 to 6, and a last one that is not read where it is the same."""
    return torch.cat([torch.arange(n - 1) % 4 + 3, torch.tensor([last])])


def faults(fn: Callable[..., Any], *args: torch.Tensor, levels: bool = True) -> Exception:
    """What the compiled program raises; eager and the interpreters of all levels raise it too."""
    with pytest.raises(Exception) as eager:
        fn(*args)
    recorder = Recorder(driver.Options())
    f = compiled(fn, recorder)
    with torch.no_grad(), pytest.raises(type(eager.value)) as ours:
        f(*args)
    assert isinstance(ours.value, weft.IndexOutOfRange | weft.DivisionByZero)
    made = f.programs[0].artifact.levels()  # type: ignore[attr-defined]
    for level in LEVELS[1:] if levels else ():
        with pytest.raises(type(ours.value)):
            interpreted(made.program(level), recorder.given[0], True)
    with pytest.raises((IndexError, RuntimeError)):
        calls.evaluate(made.program("torch"), recorder.given[0], double=True)
    return ours.value


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", READS)
def test_an_index_out_of_range(name: str, n: int) -> None:
    if name in ("positions", "cross_entropy"):
        check(READS[name], (TABLE, torch.tensor([2])))
        error = faults(READS[name], TABLE, torch.tensor([8]), levels=n < 50)
    else:
        check(READS[name], (TABLE, rows(n, 6)))
        error = faults(READS[name], TABLE, rows(n, 9), levels=n < 50)
    assert isinstance(error, weft.IndexOutOfRange)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", DIVISIONS)
def test_an_integer_divided_by_zero(name: str, n: int) -> None:
    for dtype in INTEGERS if n == 17 else (torch.int64,):
        x, y = (torch.arange(n) % 50).to(dtype), (torch.arange(n) % 7 + 1).to(dtype)
        check(DIVISIONS[name], (x, y))
        y[-1] = 0
        error = faults(DIVISIONS[name], x, y, levels=n < 50)
        assert isinstance(error, weft.DivisionByZero)


@pytest.mark.parametrize("name", ["embedding", "gather", "index_select"])
def test_what_counts_from_the_end_is_as_in_eager(name: str) -> None:
    faults(READS[name], TABLE, torch.tensor([-1]))
    check(READS["index"], (TABLE, torch.tensor([-1, -7])))
    check(READS["take"], (TABLE, torch.tensor([-1, -7])))
    faults(READS["index"], TABLE, torch.tensor([-8]))


@pytest.mark.parametrize("n", SIZES)
def test_ignored_targets_are_no_fault(n: int) -> None:
    x, target = torch.randn(n + 1, 7), torch.arange(n + 1) % 7
    target[1::2] = -100
    check(F.cross_entropy, (x, target))
    check(lambda x, t: F.cross_entropy(x, t, ignore_index=9), (x, target.where(target >= 0, 9)))
    target[0] = 7
    faults(F.cross_entropy, x, target)


def test_a_table_of_one_row() -> None:
    """No address needs its index."""
    for fn in (READS["embedding"], lambda w, i: F.embedding(i, w[:1].sin()).sum(1)):
        check(fn, (TABLE[:1], torch.zeros(17, dtype=torch.int64)))
        faults(fn, TABLE[:1], torch.ones(17, dtype=torch.int64))


def test_what_is_proved_is_not_checked() -> None:
    f = weft.compile(lambda x: (x[torch.arange(6).flip(0)], x[torch.arange(6) - 6], x.long() // 3))
    f(torch.randn(6))
    assert "checked" not in f.ir("loop")
    faults(lambda x: x[torch.arange(6) - 7], torch.randn(6))
    faults(lambda x: x % 0, torch.arange(6))


def test_the_error_names_the_line() -> None:
    error = faults(READS["embedding"], TABLE, rows(5, 7))
    assert "out of range" in str(error) and "at kernel embedding; test_faults.py" in str(error)
    assert "ZeroDivisionError" in str(faults(DIVISIONS["fmod"], rows(5, 1), rows(5, 0)))


def test_an_input_is_written_after_the_checks() -> None:
    def write(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x.copy_(x[i])

    x = torch.arange(3)
    with pytest.raises(IndexError):
        weft.compile(write)(x, torch.tensor([2, 1, 3]))
    assert x.tolist() == [0, 1, 2]
