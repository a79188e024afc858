"""What users rely on: weft.compile in all its forms, its options, the torch.compile backend."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import weft
from weft import driver

X = torch.randn(4, 8)
LEVELS = ("torch", "tensor", "loop", "tile", "kernel")


def test_decorators() -> None:
    @weft.compile
    def plain(x: torch.Tensor) -> torch.Tensor:
        """Doubles."""
        return x * 2

    @weft.compile(fuse="none", fallback="error")
    def with_options(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    torch.testing.assert_close(plain(X), X * 2)
    torch.testing.assert_close(with_options(X), X * 2 + 1)
    assert plain.__name__ == "plain" and plain.__doc__ == "Doubles."


def test_every_level_is_text() -> None:
    f = weft.compile(torch.nn.RMSNorm(8))
    with pytest.raises(weft.WeftError, match="nothing is compiled yet"):
        f.ir("loop")
    with torch.no_grad():  # else there is a backward graph too
        f.prepare(X)
    for level in LEVELS:
        assert f.ir(level).startswith(f"program {level} ")
    assert "void k_rms_norm" in f.ir("source") == f.ir("c")
    with pytest.raises(weft.WeftError, match="unknown level 'lop': one of torch, tensor, loop"):
        f.ir("lop")


def test_the_report() -> None:
    # verbose compiles although the program may be cached
    f = weft.compile(lambda x: torch.linalg.qr(torch.relu(x))[0] + 1, profile=True, verbose=1)
    f(X)
    report: weft.Report = f.report
    assert [k.name for k in report.kernels] == ["relu", "add"]
    assert all(k.predicted_us > 0 and k.measured_us is not None for k in report.kernels)
    ((op, reason, where),) = report.externs
    assert (op, reason) == ("aten.linalg_qr.default", "has no row in the ATen table")
    assert where.startswith("test_contract.py line ") and "torch.linalg.qr" in where
    assert {"capture", "torch", "tensor", "loop", "tile", "compiler"} <= set(report.seconds)
    assert report.arena_bytes > 0 and "extern aten.linalg_qr.default" in str(report)


def test_profiling_writes_an_input_once() -> None:
    f = weft.compile(lambda x: x.add_(1), profile=True)
    x = torch.zeros(3)
    f(x)
    assert x.tolist() == [1, 1, 1] and f.report.kernels[0].measured_us is not None


OPTIONS = [
    ({"fuse": "some"}, "unknown fuse 'some': one of none, greedy, all"),
    ({"fallback": True}, "unknown fallback True: one of aten, error"),
    ({"target": "gpu"}, "unknown target 'gpu': one of auto, cpu, cuda"),
    ({"target": 3}, "target cannot be 3"),
    ({"dynamic": "yes"}, "dynamic cannot be 'yes'"),
]


@pytest.mark.parametrize(("options", "sentence"), OPTIONS)
def test_wrong_options(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(weft.WeftError, match=sentence):
        weft.compile(torch.relu, **options)
    torch._dynamo.reset()  # which has one limit of compilations for all of torch's functions
    with pytest.raises(weft.WeftError, match=sentence):
        torch.compile(torch.sin, backend=backend(), options=options)(X)


def test_an_unknown_option() -> None:
    torch._dynamo.reset()
    with pytest.raises(weft.WeftError, match="unknown option 'fuze': one of target, fuse"):
        torch.compile(torch.sin, backend=backend(), options={"fuze": "all"})(X)


@pytest.mark.parametrize("collects", [False, True])
@pytest.mark.parametrize("from_text", [False, True])
def test_no_cycles_are_collected_meanwhile(
    monkeypatch: pytest.MonkeyPatch, collects: bool, from_text: bool
) -> None:
    text = "program torch f\ninput x: f32[4]\ny = aten.relu.default(x): f32[4]\noutput y\n"
    met: list[bool] = []

    def fail(*_: Any) -> Any:
        met.append(gc.isenabled())
        raise RuntimeError("planted")

    monkeypatch.setattr(driver, "lower", fail)
    monkeypatch.setattr(driver, "relink", lambda *_: None)  # not from the cache
    if not collects:
        gc.disable()
    try:
        with pytest.raises(RuntimeError, match="planted"):
            if from_text:
                driver.compile_text(text)
            else:
                weft.compile(torch.sin, fallback="error")(X)
        assert met == [False]
        assert gc.isenabled() == collects
    finally:
        gc.enable()


@pytest.mark.parametrize("thing", [3, torch.nn.Linear, None])
def test_what_cannot_be_compiled(thing: Any) -> None:
    with pytest.raises(weft.WeftError, match="weft compiles a module or a function, not"):
        weft.compile(target="cpu")(thing)


def backend() -> Any:
    """By its name where weft is installed, as make sets it up."""
    if "weft" in torch._dynamo.list_backends():
        return "weft"
    return pytest.importorskip("weft.dynamo").weft_backend


def test_the_backend_of_torch_compile() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
    options = {"target": "auto", "fallback": "error"}
    f = torch.compile(module, backend=backend(), options=options)
    torch.testing.assert_close(f(X), module(X))
    with pytest.raises(weft.UnsupportedOpError, match=r"aten\.linalg_qr\.default"):
        torch.compile(lambda x: torch.linalg.qr(x)[0], backend=backend(), options=options)(X)
