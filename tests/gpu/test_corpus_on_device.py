"""What runs the corpus on a device, with the CPU in its place; where there is none it says so."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.corpus import on_device
from tests.gpu.corpus.program import Program
from weft.cli.program import Source


def program(function: object, *args: torch.Tensor) -> Program:
    return Program("it", lambda: Source(function, args, {}, "it"))  # type: ignore[arg-type]


def test_right_and_wrong_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(40)[3:].as_strided((4, 5), (2, 3))
    there = on_device.moved(x, "cpu")
    assert there.stride() == x.stride() and there.storage_offset() == 3 and torch.equal(there, x)
    found = on_device.on_device(program(lambda x: x.softmax(-1), x), "cpu")
    assert not found.failures and not found.refused
    found = on_device.on_device(program(lambda x: x @ x, torch.randn(3, 4)), "cpu")
    assert "mat1 and mat2" in found.refused
    monkeypatch.setattr(on_device.weft, "compile", lambda f, **options: lambda x: f(x) * 1.01)
    found = on_device.on_device(program(torch.exp, torch.randn(4)), "cpu")
    assert len(found.failures) == on_device.CALLS and "error 1.0e-02" in found.failures[0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert on_device.main([]) == 2
    assert "needs a CUDA device" in capsys.readouterr().err
