"""The OpenCL runtime: which device it takes, what it refuses, and how it says so."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

import weft
from tests.gpu.opencl import opencl_device
from weft.core.errors import CompilerError, WeftError
from weft.runtime import opencl
from weft.runtime.gpu_program import GPUKernel
from weft.runtime.opencl import find_device, load, whole

HEAD = '#include "weft_opencl.cl"\n'
SCALE = HEAD + "__kernel void scale(__global f32 *x) { x[get_global_id(0)] *= 2; }\n"


@pytest.fixture
def fresh() -> None:
    """Nothing is remembered of devices, before and after."""
    opencl.pyopencl.cache_clear()
    find_device.cache_clear()
    yield
    opencl.pyopencl.cache_clear()
    find_device.cache_clear()


def test_preludes_stand_in_the_text_once() -> None:
    text = whole(SCALE + SCALE)
    assert '\n#include "weft' not in text
    assert "#pragma once" not in text
    assert text.count("typedef float f32;") == 1
    assert text.count("void scale") == 2


def test_without_pyopencl(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(WeftError, match=r"pip install 'weft\[opencl\]'"):
        find_device(None)


def test_without_a_driver(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Error(Exception):
        pass

    def get_platforms() -> list[object]:
        raise Error("PLATFORM_NOT_FOUND_KHR")

    fake = SimpleNamespace(Error=Error, get_platforms=get_platforms)
    monkeypatch.setitem(sys.modules, "pyopencl", fake)
    with pytest.raises(WeftError, match=r"no OpenCL device here: .*apt install pocl-opencl-icd"):
        find_device(None)


def test_text_needs_no_device(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    compiled = weft.compile(lambda x: x + 1, target="opencl").prepare(torch.ones(3))
    assert "__kernel" in compiled.ir("opencl")
    with pytest.raises(WeftError, match="running OpenCL needs pyopencl"):
        compiled(torch.ones(3))


def test_a_device_by_its_name() -> None:
    name = opencl_device().name
    assert find_device(name[:6].upper()).name == name
    with pytest.raises(WeftError, match=r"called 'no such' \(WEFT_OPENCL\): there are"):
        find_device("no such")


def test_what_a_device_refuses() -> None:
    device = opencl_device()
    wrong = {"scale": GPUKernel(SCALE.replace("*= 2", "= nothing"), 1, 32)}
    with pytest.raises(CompilerError, match=r"refused a kernel: error: .*undeclared .*nothing"):
        load(wrong, device)
    most = device.handle.max_work_group_size
    with pytest.raises(
        WeftError, match=f"has blocks of {2 * most} threads; .* runs {most} at most"
    ):
        load({"scale": GPUKernel(SCALE, 1, 2 * most)}, device)


def test_f64_where_a_device_has_none() -> None:
    handle = SimpleNamespace(name="small ", double_fp_config=0)
    device = opencl.Device(handle, None, None)
    kernel = GPUKernel(SCALE.replace("f32", "f64"), 1, 32)
    with pytest.raises(WeftError, match="kernel scale computes in f64, which small has not"):
        load({"scale": kernel}, device)
