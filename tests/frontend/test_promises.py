"""weft.compile(f, sizes={"x": {0: (1, 4096)}}): free from the first call on, within the range."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch.export import Dim

import weft
from weft.core.errors import UnsupportedOpError, WeftError
from weft.frontend.graph import Captured, Runner
from weft.frontend.specialise import Session

X = {"x": {0: (1, 4096)}}


def rows(*counts: int) -> list[torch.Tensor]:
    return [torch.randn(n, 8) for n in counts]


def ranges_of(f: Any) -> list[str]:
    return [line.rsplit(" near")[0] for line in f.report.sizes]


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def branches(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 32:
        return x + 1
    return x - 1


def at_64(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ones(64, 8)


@pytest.mark.parametrize("given", [
    (1, 4096), Dim("rows", min=1, max=4096), Dim.DYNAMIC(min=1, max=4096),
])  # fmt: skip
def test_one_program_from_the_first_call_on(given: Any) -> None:
    f = weft.compile(softmax, sizes={"x": {-2: given}})
    for x in rows(64, 3, 4096, 2):
        torch.testing.assert_close(f(x), softmax(x))
    assert ranges_of(f) == ["s0: 2..4096"]
    (x,) = rows(1)  # 0 and 1 have programs of their own
    torch.testing.assert_close(f(x), softmax(x))
    assert len(f.programs) == 2


def test_marks_are_gone_after_the_call() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.tag = 3  # type: ignore[attr-defined]
        return softmax(x)

    (x,) = rows(5)
    weft.compile(fn, sizes=X)(x)
    assert vars(x) == {"tag": 3}
    torch._dynamo.maybe_mark_dynamic(x, 1)
    weft.compile(softmax, sizes=X)(x)
    assert vars(x)["_dynamo_weak_dynamic_indices"] == {1}


@pytest.mark.parametrize("count", [0, 5000])
@pytest.mark.parametrize("compiled_before", [False, True])
def test_another_size_is_an_error(count: int, compiled_before: bool) -> None:
    f = weft.compile(softmax, sizes=X)
    if compiled_before:
        f(*rows(7))
    with pytest.raises(WeftError, match=f"dimension 0 of x is {count}, and 1..4096 is promised"):
        f(*rows(count))


@pytest.mark.parametrize(("fn", "told", "line"), [
    (branches, " takes 33..4096", "x.shape[0] > 32"),
    (at_64, ", or an argument without a promise, fixes it to 64", "torch.ones"),
])  # fmt: skip
def test_what_the_program_contradicts(fn: Any, told: str, line: str) -> None:
    with pytest.raises(WeftError) as raised:
        weft.compile(fn, sizes=X)(*rows(64))
    found = raised.value
    assert f"dimension 0 of x is promised to be 1..4096, but the program{told}" in found.message
    assert found.where is not None and line in found.where and "test_promises.py:" in found.where


def test_what_the_range_decides_is_no_contradiction() -> None:
    f = weft.compile(lambda x: x + 1 if x.shape[0] < 5000 else x, sizes=X)
    for x in rows(64, 3):
        torch.testing.assert_close(f(x), x + 1)
    assert ranges_of(f) == ["s0: 2..4096"]


def test_a_size_without_a_greatest() -> None:
    f = weft.compile(softmax, sizes={"x": {0: (1, None)}})
    for x in rows(64, 3):
        torch.testing.assert_close(f(x), softmax(x))
    assert len(f.programs) == 1


def test_sizes_that_the_program_finds_equal() -> None:
    n = Dim("n", max=99)
    f = weft.compile(add, sizes={"x": (n, None), "y": [n, Dim.STATIC]})
    for x in rows(64, 3):
        torch.testing.assert_close(f(x, y=x), x + x)
    assert ranges_of(f) == ["s0: 2..99"]


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: Any, *more: Any, mask: Any = None, **named: Any) -> Any:
        y = self.layer(x["rows"][0])
        return y + named["bias"] if "bias" in named else y


def test_what_lists_and_dicts_hold_and_named_arguments() -> None:
    sizes = {"x": {"rows": [{0: (1, 9)}, None]}, "mask": {0: (1, 9)}, "bias": {0: (1, 9)}}
    module = Holder()
    f = weft.compile(module, sizes=sizes)
    for x in rows(4, 6, 9):
        given = {"rows": [x, None]}
        torch.testing.assert_close(f(given), module(given))
        torch.testing.assert_close(f(given, bias=x), module(given, bias=x))
    assert set(ranges_of(f)) == {"s0: 2..9"}
    with pytest.raises(WeftError, match=r"dimension 0 of x\['rows'\]\[0\] is 10"):
        f({"rows": [*rows(10), None]})
    with pytest.raises(WeftError, match="dimension 0 of bias is 10"):
        f({"rows": [*rows(4), None]}, bias=rows(10)[0])


@pytest.mark.parametrize(("sizes", "told"), [
    ({"z": {0: (1, 4)}}, "unknown argument of sizes 'z': one of x, y"),
    ({"x": {0: 5}}, "5 is neither a range"),
    ({"x": {0: (5, 4)}}, r"\(5, 4\) is neither a range"),
    ({"x": {0: (1, 2, 3)}}, "is neither a range"),
    ({"x": {0: (1.5, 9)}}, "is neither a range"),
    ({"x": {0: ("a", 9)}}, "is neither a range"),
    ({"x": {0: 2 * Dim("n")}}, "is neither a range"),
    ({"x": {2: (1, 4)}}, "x of 2 dimensions has no 2"),
    ({"x": {"a": (1, 4)}}, "x of 2 dimensions has no 'a'"),
    ({"x": 5}, "5 is no promise of x"),
])  # fmt: skip
def test_what_is_no_promise(sizes: Any, told: str) -> None:
    with pytest.raises(WeftError, match=told):
        weft.compile(add, sizes=sizes)(*rows(4, 4))


def test_a_holder_without_that() -> None:
    for promise in ([None, {0: (1, 4)}], {"a": {0: (1, 4)}}):
        with pytest.raises(WeftError, match="sizes: x has no"):
            weft.compile(lambda x: x[0] + 1, sizes={"x": promise})(rows(4))


def test_sizes_that_are_not_free_are_checked() -> None:
    f = weft.compile(softmax, sizes=X, dynamic=False)
    for x in rows(5, 6):
        torch.testing.assert_close(f(x), softmax(x))
    assert len(f.programs) == 2 and not f.report.sizes
    with pytest.raises(WeftError, match="dimension 0 of x is 5000"):
        f(*rows(5000))


def test_a_pickle_has_its_promises() -> None:
    f = pickle.loads(pickle.dumps(weft.compile(softmax, sizes=X)))
    f(*rows(5))
    assert ranges_of(f) == ["s0: 2..4096"]


def test_what_is_read_after_a_graph_break() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y + x

    f = weft.compile(fn, sizes=X)
    for x in rows(5, 6, 9):
        torch.testing.assert_close(f(x), x * 3)


def test_ranges_of_one_size_and_of_one_tensor() -> None:
    """Neither of two promises breaks the other: what holds is what both have in common."""
    for x, y in (((2, 64), (2, 32)), ((2, 32), (2, 64))):
        f = weft.compile(add, sizes={"x": {0: x}, "y": {0: y}})
        f(*2 * rows(5))
        assert ranges_of(f) == ["s0: 2..32"]
    for sizes in ({"x": {0: (1, 8)}, "y": {0: (1, 99)}}, {"x": {0: (5, 5)}}, {"x": {0: (1, 5)}}):
        f = weft.compile(add, sizes=sizes, dynamic=True)
        (x,) = rows(5)
        f(x, x)
        with pytest.raises(WeftError, match="dimension 0 of x is 50"):
            f(*2 * rows(50))


def test_defaults_and_what_has_no_names() -> None:
    (other,) = rows(3)
    f = weft.compile(lambda x, y=other: x + y[0], sizes={"y": {0: (5, 9)}})
    with pytest.raises(WeftError, match="dimension 0 of y is 3"):
        f(*rows(4))
    with pytest.raises(WeftError, match="no names"):
        weft.compile(torch.relu, sizes=X)(*rows(4))


def test_what_weft_has_to_fix(caplog: pytest.LogCaptureFixture) -> None:
    def attention(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    sizes = {"x": {2: (2, 99)}}  # of which it takes the square root
    f = weft.compile(attention, sizes=sizes)
    for n in (8, 16):
        x = torch.randn(3, 5, n)
        torch.testing.assert_close(f(x), attention(x))
    assert "dimension 2 of x is promised, but compiled for each size" in caplog.messages
    with pytest.raises(WeftError, match="dimension 2 of x is promised, but its number decides"):
        weft.compile(attention, sizes=sizes, fallback="error")(torch.randn(3, 5, 8))


def test_what_cannot_be_compiled_at_sizes_is_an_error_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def compiled(session: Session, captured: Captured) -> Runner:
        if captured.sizes:
            raise UnsupportedOpError("a defect")
        return right(session, captured)

    right = Session.compiled
    monkeypatch.setattr(Session, "compiled", compiled)
    (x,) = rows(5)
    torch.testing.assert_close(weft.compile(softmax, sizes=X)(x), softmax(x))
    assert any("compiled for each size by itself: a defect" in m for m in caplog.messages)
    with pytest.raises(UnsupportedOpError, match="a defect"):
        weft.compile(softmax, sizes=X, fallback="error")(x)


def test_ranges_that_one_block_holds() -> None:
    """A loop that is unrolled has a length: a block's, though the block runs once at most."""
    f = weft.compile(
        lambda x, w: torch.conv2d(x, w, padding=1), sizes={"x": {2: (3, 5), 3: (3, 6)}}
    )
    w = torch.randn(16, 8, 3, 3)
    for height, width in ((3, 4), (5, 6), (4, 3)):
        x = torch.randn(2, 8, height, width)
        torch.testing.assert_close(f(x, w), torch.conv2d(x, w, padding=1))
    assert len(f.programs) == 1


def test_threads_leave_no_marks_on_a_tensor_that_they_share() -> None:
    (x,) = rows(5)
    f = weft.compile(softmax, sizes=X)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(f, [x] * 8))
    torch.testing.assert_close(torch.stack(found), softmax(x).expand(8, -1, -1))
    assert not vars(x)


@pytest.mark.parametrize("split", [False, True], ids=["told", "split"])
def test_what_a_size_is_a_multiple_of_leaves_no_masks(split: bool) -> None:
    def told(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] % 32 == 0)
        return x * 2

    f = weft.compile((lambda x: x.view(-1, 32) * 2) if split else told, dynamic=True)
    for rows in (96, 64, 32 * 7):
        x = torch.randn(rows)
        torch.testing.assert_close(f(x).flatten(), x * 2)
    assert len(f.programs) == 1 and not f.reasons
    assert "size s0: 32..65536 near 1024, s0 % 32 == 0" in weft.ir(f, "loop")
    assert not re.search("count|if|min", weft.ir(f, "kernel").split("kernel", 2)[2])
    with pytest.raises(RuntimeError):
        f(torch.randn(33))
