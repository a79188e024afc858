"""`weft run --check`: a wrong kernel comes first by name, and those it feeds are not blamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

from weft import levels
from weft.cli.kernels import check_kernels, first_wrong, kernel_line
from weft.cli.main import main
from weft.cli.program import Source
from weft.options import Options

APART = Options(fuse="none")
PROGRAM = "(torch.randn(8, 33) * 2).exp().cumsum(1).tanh()"


def plant(monkeypatch: pytest.MonkeyPatch, kernel: str, right: str, wrong: str) -> None:
    """Emit other text for one kernel."""
    emit = levels.sources_of

    def sources_of(*given: Any) -> Any:
        symbols, sources, launches = emit(*given)
        name = symbols[kernel]
        changed = {n: t.replace(right, wrong) if name in t else t for n, t in sources.items()}
        assert changed != sources
        return symbols, changed, launches

    monkeypatch.setattr(levels, "sources_of", sources_of)


def program(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).exp().cumsum(1).tanh()


@pytest.mark.usefixtures("uncached")
def test_the_wrong_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(program, (torch.randn(8, 33),), {}, "program")
    checks = check_kernels(source, APART)
    assert first_wrong(checks) is None and len(checks) == 4
    plant(monkeypatch, "exp", "exp_f32", "expm1_f32")
    checks = check_kernels(source, APART)
    assert [c.result.kernel for c in checks if not c.verdict.passed] == ["exp"]
    line = kernel_line(checks, passed=False)
    assert "the first kernel that differs from its loop nest: exp, of test_kernels.py" in line


def test_pairs_of_bf16_are_numbers() -> None:
    """Where a machine multiplies pairs, an odd product between kernels is a buffer of them."""
    a, b = torch.randn(1000, 15).bfloat16(), torch.randn(15, 1000).bfloat16()
    checks = check_kernels(Source(lambda a, b: (a @ b).softmax(-1), (a, b), {}, "f"), Options())
    assert checks and first_wrong(checks) is None


def test_inputs_are_those_of_the_call() -> None:
    """Parameters, written inputs and library calls in between."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(5, 5), nn.BatchNorm1d(5)

        def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
            seen.add_(1)
            y = self.norm(self.linear(x))
            return torch.cat([torch.linalg.qr(y)[0] * 2, y.exp()]).half().sum(0) + seen

    model = Model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    source = Source(model, (torch.randn(6, 5), torch.zeros(5)), {}, "model")
    checks = check_kernels(source, Options())
    assert len(checks) >= 3 and first_wrong(checks) is None
    torch.testing.assert_close(dict(model.state_dict()), before)


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["run", *arguments])
    return int(caught.value.code or 0)


@pytest.mark.usefixtures("uncached")
def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("-c", PROGRAM, "--check", "--fuse", "none") == 0
    assert command("-c", PROGRAM, "--check", "--fuse", "none", "--dynamic") == 0
    out = capsys.readouterr().out
    assert "4 kernel outputs against their loop nests in float64: passed" in out
    plant(monkeypatch, "tanh", "tanh_f32", "sin_f32")
    assert command("-c", PROGRAM, "--check", "--fuse", "none") == 1
    out = capsys.readouterr().out
    assert "the first kernel that differs from its loop nest: tanh" in out
    assert command("-c", PROGRAM, "--check", "--fuse", "none", "--json", "-") == 1
    facts = json.loads(capsys.readouterr().out)
    assert [k["kernel"] for k in facts["kernels"] if not k["passed"]] == ["tanh"]


def test_what_cannot_be_checked(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "double.tensor"
    path.write_text(
        "program tensor double\ninput x: f32[3]\ny = map{add}(x, x): f32[3]\noutput y\n"
    )
    assert command(str(path), "--check") == 2
    assert "--check takes a PyTorch program" in capsys.readouterr().err
