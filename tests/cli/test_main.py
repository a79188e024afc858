"""The command line end to end, over a driver that stands in for the compiler."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import weft
from tests.cli.conftest import Eager, Report
from weft.cli import doctor
from weft.cli.main import main
from weft.core.errors import CompilerError, UnsupportedOpError

PROGRAM = "torch.relu(torch.randn(4, 3) @ torch.randn(3, 2))"

pytestmark = pytest.mark.usefixtures("fake")


def weft_command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    code = caught.value.code
    return code if isinstance(code, int) else 0


def test_ir_is_exact_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert weft_command("compile", "-c", PROGRAM, "--ir", "loop") == 0
    assert capsys.readouterr().out == f"loop of a program [bold]{'wide ' * 60}[/bold]\n"


def test_compile_prepares_for_the_arguments(fake: list[Any]) -> None:
    weft_command("compile", "-c", PROGRAM, "--target", "cpu", "--fuse", "none", "-vv")
    (args, kwargs) = fake[0].prepared
    assert [tuple(a.shape) for a in args] == [(4, 3), (3, 2)] and not kwargs
    options = {"target": "cpu", "fuse": "none", "fallback": "aten", "verbose": 2}
    assert fake[0].options.items() >= options.items()


@pytest.mark.parametrize(
    ("level", "target"),
    [("cuda", "cuda:sm_80"), ("hip", "hip:gfx90a"), ("metal", "metal"), ("loop", "auto")],
)
def test_a_language_says_what_for(level: str, target: str, fake: list[Any]) -> None:
    weft_command("compile", "-c", PROGRAM, "--ir", level)
    assert fake[0].options["target"] == target


def test_summary_is_a_table(capsys: pytest.CaptureFixture[str], fake: list[Any]) -> None:
    assert weft_command("compile", "-c", PROGRAM) == 0
    out = capsys.readouterr().out
    for word in ("relu", "predicted", "capture", "0.250", "total", "0.750"):
        assert word in out
    assert "\x1b" not in out


def test_json_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert weft_command("compile", "-c", PROGRAM, "--json", "--ir", "loop") == 0
    facts = json.loads(capsys.readouterr().out)
    (kernel,) = facts["kernels"]
    assert (kernel["name"], kernel["predicted_us"], kernel["measured_us"]) == ("relu", 1.5, None)
    assert (kernel["flops"], kernel["bytes"]) == (8, 32)
    assert facts["ir"]["loop"].startswith("loop of")


def test_output_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.c"
    assert weft_command("compile", "-c", PROGRAM, "--ir", "c", "-o", str(path)) == 0
    assert path.read_text().startswith("c of a program")
    assert [p.name for p in tmp_path.iterdir()] == ["program.c"]
    assert capsys.readouterr().out == ""


def test_run_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert weft_command("run", "-c", PROGRAM) == 0
    out = capsys.readouterr().out
    assert "f32[4,2]" in out and "1 output against float64 eager: passed" in out


def test_run_names_what_was_not_generated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Eager(torch.relu)
    made.report = Report(externs=[("aten.sort", "no row", "a.py:1")], reasons=["data decides"])
    monkeypatch.setattr(weft, "compile", lambda function, **options: made)
    assert weft_command("run", "-c", "torch.relu(torch.randn(4, 3))") == 0
    out = capsys.readouterr().out
    assert out.endswith("aten.sort ran as ATen's: no row\nin eager: data decides\n")


def test_run_misses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fake: list[Any]
) -> None:
    make = weft.compile
    monkeypatch.setattr(weft, "compile", lambda f, **o: make(lambda *a: f(*a) * 1.001, **o))
    assert weft_command("run", "-c", PROGRAM) == 1
    assert "1 of 1 FAILED" in capsys.readouterr().out


def test_run_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    assert weft_command("run", "-c", PROGRAM, "--json", str(path)) == 0
    facts = json.loads(path.read_text())
    assert facts["passed"] and facts["outputs"][0]["type"] == "f32[4,2]"
    capsys.readouterr()
    assert weft_command("run", "-c", PROGRAM, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["source"] == PROGRAM


def test_profile_lists_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert weft_command("run", "-c", PROGRAM, "--profile") == 0
    assert "predicted" in capsys.readouterr().out


def test_the_seed_decides(tmp_path: Path) -> None:
    norms: list[float] = []
    for seed in ("1", "1", "2"):
        weft_command("run", "-c", PROGRAM, "--seed", seed, "--json", str(tmp_path / "out.json"))
        norms.append(json.loads((tmp_path / "out.json").read_text())["outputs"][0]["norm"])
    assert norms[0] == norms[1] != norms[2]


def test_run_of_ir_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.loop"
    path.write_text("kernel gather(x: f32[4,3], index: i64[2]) -> out: f32[2,3]\n")
    assert weft_command("run", str(path)) == 0
    out = capsys.readouterr().out
    assert "f32[2,3]" in out and "against the interpreter: passed" in out


def test_python_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x @ x\n"
        "def example_inputs():\n"
        "    return torch.randn(3, 3)\n"
        "def wrong(x=torch.randn(2, 3)):\n"
        "    return x @ x\n"
    )
    assert weft_command("run", f"{path}:Net") == 0
    assert weft_command("run", f"{path}:nosuch") == 2
    assert "defines no 'nosuch'" in capsys.readouterr().err
    path.write_text(path.read_text().replace("def example_inputs", "def unused"))
    assert weft_command("run", f"{path}:wrong") == 2
    assert f"at {path} line 8:  return x @ x" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compile", "-c", PROGRAM, "--ir", "lop"], "unknown --ir 'lop': one of torch, tensor,"),
        (["run", "-c", PROGRAM, "--fuse", "x"], "unknown fuse 'x': one of none, greedy, all"),
        (["run", "-c", PROGRAM, "--bench", "--backends", "tvm"], "unknown backend 'tvm': one of"),
        (["compile", "no/such/folder"], "no file, model folder or cached hub model 'no/such/fold"),
        (["compile"], "nothing to compile: SOURCE is"),
        (["compile", "-c", "torch.relu("], "syntax error: '(' was never closed\n  at -c line 1:"),
        (["compile", "x.py:Net"], "no file x.py"),
        (["compile", "x", "-c", "y"], "one SOURCE, not two"),
        (["run", "-c", "torch.randn(2,3) @ torch.randn(2,3)"], "RuntimeError: mat1 and mat2"),
        (["compile", "-c", PROGRAM, "--ir", "c", "-o", "/no/such/x"], "cannot write /no/such/x"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert weft_command(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"weft: {message}")
    assert "Traceback" not in captured.err and captured.out == ""


def test_errors_of_the_compiler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise UnsupportedOpError("aten.sort has no lowering", "-c line 1:  torch.sort(x)")

    monkeypatch.setattr(weft, "compile", refuse)
    assert weft_command("compile", "-c", PROGRAM) == 2
    expected = "weft: aten.sort has no lowering\n  at -c line 1:  torch.sort(x)\n"
    assert capsys.readouterr().err == expected


def test_an_internal_error_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(weft, "compile", lambda *_, **__: [][1])
    assert weft_command("compile", "-c", PROGRAM) == 3
    error = capsys.readouterr().err
    assert "internal error" in error and "IndexError" in error and "Traceback" not in error


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code = weft_command("doctor", "--json")
    facts = {fact["name"]: fact for fact in json.loads(capsys.readouterr().out)["facts"]}
    assert facts["torch"]["found"] == torch.__version__ and facts["C compiler"]["ok"]
    assert code == (0 if facts["torch.compile backend"]["ok"] else 2)
    monkeypatch.setenv("PATH", "/nowhere")
    assert weft_command("doctor") == 2
    captured = capsys.readouterr()
    assert "missing" in captured.out
    missing = "weft: C compiler: weft needs a C compiler and found neither gcc nor clang: install"
    assert missing in captured.err and "or what WEFT_CC names" in captured.err


def test_doctor_tells_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def facts() -> dict[str, doctor.Fact]:
        return {f.name: f for f in doctor.examine() if f.name in ("NVRTC", "NVIDIA driver", "GPU")}

    def none() -> Any:
        raise CompilerError("compiling CUDA needs NVRTC: pip install 'weft[cuda]'")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "a board")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(
        doctor, "driver", lambda: SimpleNamespace(cuDriverGetVersion=lambda: (0, 13010))
    )
    monkeypatch.setattr(doctor, "compile_text", lambda text, arch: none())
    found = facts()
    assert found["GPU"].found == "a board, compute capability 9.0: cuda:sm_90a"
    assert found["NVIDIA driver"].found == "for CUDA 13.1" and found["NVIDIA driver"].ok
    assert not found["NVRTC"].ok and "pip install" in found["NVRTC"].found
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    assert not facts()["GPU"].ok and "no target is for a board" in facts()["GPU"].found
    assert not any(fact.needed for fact in found.values())
