"""The collector of cycles is paused while weft traces and lowers, and then as it was."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
import torch

from weft import levels
from weft.core.collector import collected, uncollected
from weft.runtime import compiler


@pytest.fixture
def enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


@pytest.mark.usefixtures("enabled")
def test_collector_is_paused_and_resumed() -> None:
    with uncollected():
        assert not gc.isenabled()
        with collected(), uncollected():
            assert not gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
        with collected():
            assert gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), uncollected():
        raise ZeroDivisionError
    assert gc.isenabled()


@pytest.mark.usefixtures("enabled")
def test_collector_that_a_program_has_disabled_stays_so() -> None:
    gc.disable()
    with uncollected():
        with collected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert not gc.isenabled()


@pytest.mark.usefixtures("enabled")
@pytest.mark.parametrize("entry", ["weft.compile", "torch.compile"])
def test_collector_is_paused_while_a_program_is_compiled(
    entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is traced and lowered; not while the C compiler runs, nor afterwards."""
    import weft

    seen: list[tuple[str, bool]] = []
    plain, run = levels.to_tensor, compiler.Compiler.run

    def to_tensor(*args: object) -> object:
        seen.append(("lower", gc.isenabled()))
        return plain(*args)  # type: ignore[arg-type]

    def compiles(self: compiler.Compiler, *args: object) -> str:
        seen.append(("C", gc.isenabled()))
        return run(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(levels, "to_tensor", to_tensor)
    monkeypatch.setattr(compiler.Compiler, "run", compiles)
    torch.compiler.reset()
    new = float(int.from_bytes(os.urandom(3), "big"))  # no program that the cache knows

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * new).sin()

    compiled = weft.compile(f) if entry == "weft.compile" else torch.compile(f, backend="weft")
    x = torch.randn(5)
    torch.testing.assert_close(compiled(x), f(x))
    assert ("lower", False) in seen and ("C", True) in seen
    assert ("lower", True) not in seen and ("C", False) not in seen
    assert gc.isenabled()
