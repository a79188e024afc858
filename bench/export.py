"""Sizes and start-up of an exported program, beside AOTInductor's package and ONNX Runtime.

python -m bench.export        # a table; peers that are not installed are left out, aloud

Each model gives its first result in a process of its own: weft's is the C example, the others are
Python, whose `import` of the library is told apart. Bytes are those of what has to be shipped.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from weft.cli.main import main as weft
from weft.cli.output import show, table

MODEL = """
import torch
from torch import nn
torch.manual_seed(0)
layers = [nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
          for _ in range(4)]
model, x = nn.Sequential(*layers).eval(), torch.zeros(16, 256)
"""
AOTI = """
import time; begin = time.perf_counter()
import torch; told = time.perf_counter() - begin
run = torch._inductor.aoti_load_package("{path}")
run(torch.zeros(16, 256)); print(told)
"""
ORT = """
import time; begin = time.perf_counter()
import numpy, onnxruntime; told = time.perf_counter() - begin
run = onnxruntime.InferenceSession("{path}", providers=["CPUExecutionProvider"])
run.run(None, {{run.get_inputs()[0].name: numpy.zeros((16, 256), "f4")}}); print(told)
"""
TURNS = 5
Row = list[str]


def made() -> tuple[nn.Module, torch.Tensor]:
    names: dict[str, object] = {}
    exec(MODEL, names)
    return names["model"], names["x"]  # type: ignore[return-value]


def libraries(package: str, *names: str) -> int:
    """Bytes of shared libraries of a Python package whose names hold one of these."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(f"{package} is not installed")
    every = Path(spec.origin).parent.rglob("*.so*")
    return sum(p.stat().st_size for p in every if any(n in p.name for n in names))


def fastest(command: list[str]) -> tuple[float, float]:
    """Seconds of a process, the least of several, and of it those that it prints."""
    best, own = float("inf"), 0.0
    for _ in range(TURNS):
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        spent = time.perf_counter() - begin
        if spent < best:
            last = done.stdout.split()[-1]
            best, own = spent, float(last) if command[0] == sys.executable else 0.0
    return best, own


def row(name: str, needs: int, code: int, weights: int, command: list[str]) -> Row:
    seconds, imported = fastest(command)
    sizes = [f"{n / 1e6:.2f}" for n in (needs, code, weights)]
    return [name, *sizes, f"{1e3 * seconds:.0f}", f"{1e3 * imported:.0f}"]


def of_weft(folder: Path) -> Row:
    """The library, with all of x86's instruction sets, stripped."""
    own = folder / "mlp"
    (folder / "model.py").write_text(MODEL + "model.example_inputs = (x,)\n")
    target = "cpu:avx2,cpu:avx512,cpu:plain"
    try:
        weft(["export", f"{folder / 'model.py'}:model", "--target", target, "-o", str(own)])
    except SystemExit as ended:
        assert not ended.code, "weft export failed"
    subprocess.run(["make", "-s", "-C", str(own)], check=True)
    subprocess.run(["strip", str(own / "libmlp.so")], check=True)
    weights = own / "weights.safetensors"
    code = (own / "libmlp.so").stat().st_size
    return row("weft", 0, code, weights.stat().st_size, [str(own / "example"), str(weights)])


def of_inductor(folder: Path) -> Row:
    model, x = made()
    path = str(folder / "aoti.pt2")
    torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,)), package_path=path)
    size = Path(path).stat().st_size
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    needs = libraries("torch", "libtorch_cpu", "libtorch.so", "libc10", "libgomp")
    command = [sys.executable, "-c", AOTI.format(path=path)]
    return row("AOTInductor", needs, size - weights, weights, command)


def of_onnxruntime(folder: Path) -> Row:
    model, x = made()
    path = folder / "model.onnx"
    torch.onnx.export(model, (x,), path, external_data=False, verbose=False)
    needs = libraries("onnxruntime", "onnxruntime")
    command = [sys.executable, "-c", ORT.format(path=path)]
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    return row("ONNX Runtime", needs, path.stat().st_size - weights, weights, command)


def main() -> None:
    rows: list[Row] = []
    ways: list[Callable[[Path], Row]] = [of_weft, of_inductor, of_onnxruntime]
    with tempfile.TemporaryDirectory() as folder:
        for way in ways:
            try:
                rows.append(way(Path(folder)))
            except ImportError as error:
                print(f"{way.__name__} is left out: {error}")
    columns = ["", "needs MB", "code MB", "weights MB", "first result ms", "of it import ms"]
    show(table("four feed-forward blocks of 256", columns, rows))


if __name__ == "__main__":
    main()
