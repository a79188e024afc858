"""`weft minify`: a planted defect is found in a program of 20 steps, and the file shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from weft.cli.main import main
from weft.cli.minify import graphs_of, input_text, minify
from weft.cli.program import Source
from weft.core.errors import SourceError
from weft.frontend.aten.rows import LOWER
from weft.frontend.aten.table import Row
from weft.options import Options


def twenty(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for number in range(6):
        x = (x * (number + 2)).sin() + y
    return (torch.atan2(x, y.exp()) - y).sum(0)


def source(fn: Any = twenty, *args: torch.Tensor) -> Source:
    return Source(fn, args or (torch.randn(3, 5), torch.randn(5)), {}, "twenty")


def plant(monkeypatch: pytest.MonkeyPatch, name: str, function: Any) -> None:
    monkeypatch.setitem(LOWER, name, Row(function, LOWER[name].operands))


def refuse(*_: Any) -> None:
    raise LookupError("planted")


@pytest.mark.usefixtures("uncached")
def test_an_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "aten.atan2.default", refuse)
    found = minify(source(), Options(), accuracy=False)
    assert (found.steps, found.of, found.why) == (1, 22, "LookupError: planted")
    assert "torch.atan2" in found.text and "torch.randn((3, 5), dtype=torch.float32)" in found.text
    names: dict[str, Any] = {"__name__": "__main__"}
    # the file sets gradients on or off
    with pytest.raises(LookupError, match="planted"), torch.set_grad_enabled(True):
        exec(compile(found.text, "repro.py", "exec"), names)


@pytest.mark.usefixtures("uncached")
def test_wrong_numbers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    exp = LOWER["aten.exp.default"].function
    plant(monkeypatch, "aten.exp.default", lambda x: exp(x) * 1.001)
    found = minify(source(), Options(), accuracy=True)
    assert found.steps == 1 and "exp" in found.text and found.why.startswith("inaccurate: ")
    names: dict[str, Any] = {"__name__": "repro"}
    with torch.set_grad_enabled(True):
        exec(compile(found.text, "repro.py", "exec"), names)
    (x,) = names["example_inputs"]
    (result,) = names["Repro"]()(x)
    torch.testing.assert_close(result, x.exp())


@pytest.mark.usefixtures("uncached")
def test_an_error_of_the_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "aten.cos.default", refuse)
    x = torch.randn(3, requires_grad=True)
    found = minify(source(lambda x: (x * 2).sin().exp() + 1, x), Options(), accuracy=False)
    assert found.steps == 1 and "sin" in found.text and "requires_grad_()" in found.text
    names: dict[str, Any] = {"__name__": "__main__"}
    with torch.enable_grad(), pytest.raises(LookupError, match="planted"):
        exec(compile(found.text, "repro.py", "exec"), names)


def test_what_does_not_fail() -> None:
    simple = source(lambda x: x * 2, torch.randn(3))
    with pytest.raises(SourceError, match="compiles and runs"):
        minify(simple, Options(), accuracy=False)
    with pytest.raises(SourceError, match="as near to float64"):
        minify(simple, Options(), accuracy=True)


def test_inputs_are_those_of_the_call() -> None:
    x = torch.zeros(2)

    def program(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    ((graph, (given,)),) = graphs_of(source(program, x))
    assert len(graph.graph.nodes) == 4 and given.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "made",
    [
        torch.randn(2, 3).t(), torch.randint(3, 9, (4,)), torch.randn(2).half(), torch.ones(()),
        torch.tensor([True, False]), torch.empty(0, 2, dtype=torch.int64), torch.randn(2, 1)[:, 0],
        torch.randn(2).to(torch.float8_e5m2), torch.randn(3, requires_grad=True),
        torch.randn(2, dtype=torch.complex64),
    ],
    ids=lambda t: f"{t.dtype} {tuple(t.shape)}",
)  # fmt: skip
def test_random_inputs_are_like_the_recorded(made: torch.Tensor) -> None:
    like = eval(input_text(made), {"torch": torch})
    assert (like.dtype, like.shape, like.stride()) == (made.dtype, made.shape, made.stride())
    assert like.requires_grad == made.requires_grad
    if made.numel() and not (made.is_floating_point() or made.is_complex()):
        assert made.min() <= like.min() and like.max() <= made.max()


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["minify", *arguments])
    return int(caught.value.code or 0)


@pytest.mark.usefixtures("uncached")
def test_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch, "aten.tan.default", refuse)
    assert command("-c", "torch.randn(3).exp().tan() + 1", "-o", str(tmp_path / "small.py")) == 0
    assert "1 of 3 steps: LookupError: planted" in capsys.readouterr().err
    assert (
        "weft.compile(Repro(), random='eager')(*example_inputs)"
        in (tmp_path / "small.py").read_text()
    )
    options = ("--dynamic", "--fuse", "none", "-o", str(tmp_path / "free.py"))
    assert command("-c", "torch.randn(3).tan()", *options) == 0
    called = "weft.compile(Repro(), fuse='none', dynamic=True, random='eager')(*example_inputs)"
    assert called in (tmp_path / "free.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("-c", "torch.randn(3) + 1"), "compiles and runs: nothing to minify"),
        (("-c", "torch.randn(3) @ torch.randn(4)"), "RuntimeError: "),
        ((), "nothing to compile"),
        (("no_such_file.py:f",), "no file no_such_file.py"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("weft: ") and sentence in error.split("\n")[0]
