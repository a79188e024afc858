"""Code of a call without its loads, and tensors that a check hands on to the call after it."""

# pyright: reportUndefinedVariable=false, reportUnknownMemberType=false

from __future__ import annotations

import threading
import types
from collections.abc import Callable
from typing import Any

import pytest

from weft.frontend.loads import handed_on, positions, without_loads
from weft.frontend.tensor_guards import Tensors


def plain() -> Any:
    return [program(held.x, held.y[0])]  # noqa: F821  # pyright: ignore


def stored() -> Any:
    return program((x := held.x), held.y[0]), x  # noqa: F821  # pyright: ignore


def branching() -> Any:
    return program(held.x if held else 1, held.y[0])  # noqa: F821  # pyright: ignore


def twice() -> Any:
    return program(held.x, 1), program(held.x, 1)  # noqa: F821  # pyright: ignore


def test_loads_are_left_out() -> None:
    code = without_loads(plain.__code__, "program", 2)
    assert code is not None
    assert types.FunctionType(code, {"program": lambda: 7})() == [7]


@pytest.mark.parametrize("read", (stored, branching, twice))
def test_code_that_does_more_is_left(read: Callable[[], Any]) -> None:
    assert without_loads(read.__code__, "program", 2) is None


class Same:
    """In place of TensorGuards: tensors that are numbers over 0."""

    def check(self, *found: int) -> bool:
        return min(found) > 0

    def check_verbose(self, *found: int, tensor_check_names: Any) -> str:
        return f"{tensor_check_names[0]} is {found[0]}"


def test_each_thread_has_what_its_own_check_found() -> None:
    tensors = Tensors(lambda v: (v["x"], v["y"]), ["x", "y"], Same(), ["x", "y"])
    assert positions(["y", "x"], tensors) == [1, 0] and not positions(["y", "z"], tensors)
    check, call = handed_on(tensors, tensors, [1, 0], lambda *given: given)
    assert tensors({"x": 5, "y": 6}) and not tensors.found  # Dynamo's own look
    assert not check({"x": 0, "y": 6}) and not tensors.found
    assert tensors.told == ["x is 0"]
    assert check({"x": 1, "y": 2})
    found: list[Any] = []
    other = threading.Thread(target=lambda: found.extend([check({"x": 3, "y": 4}), call()]))
    other.start()
    other.join()
    assert found == [True, (4, 3)] and call() == (2, 1) and not tensors.found


def test_a_call_between_a_check_and_its_call() -> None:
    """As a handler of a signal makes one; or within the check, at what it finds."""
    nested: list[Any] = []

    def find(v: Any) -> Any:
        if v.pop("signal", False):
            nested.extend([check({"x": 7, "y": 8}), call()])
        return v["x"], v["y"]

    tensors = Tensors(find, ["x", "y"], Same(), ["x", "y"])
    check, call = handed_on(tensors, tensors, [1, 0], lambda *given: given)
    assert check({"x": 1, "y": 2, "signal": True}) and nested == [True, (8, 7)]
    assert check({"x": 3, "y": 4}) and call() == (4, 3) and call() == (2, 1)
    assert not tensors.found


def test_a_check_that_raises_leaves_nothing() -> None:
    tensors = Tensors(lambda v: (v["x"], v["y"]), ["x", "y"], Same(), ["x", "y"])
    check, _ = handed_on(tensors, tensors, [1, 0], lambda *given: given)
    with pytest.raises(KeyError):
        check({})
    assert not tensors.found
