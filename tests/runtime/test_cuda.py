"""Launching: what the driver is asked for (a fake one prints it), and its refusals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.core.errors import WeftError
from weft.runtime import nvidia
from weft.runtime.compiler import find_compiler

pytest.importorskip("cuda.bindings.driver")

ROOT = Path(__file__).parents[2]
PROGRAM = r"""
from pathlib import Path
import numpy as np
from tests.launches import run
from weft.core.errors import WeftError
import ctypes
from weft.runtime.cache import Cache
from weft.runtime.cuda import launch, load_module, tensor_map
from weft.runtime.cuda import CUDADevice
from weft.runtime.gpu_program import GPUKernel
Path("k.cubin").write_bytes(b"\x7fELF")
module = load_module(Path("k.cubin"))
map = tensor_map(4096, "float32", (60, 156), (624, 4), (32, 16), swizzle=128)
assert map == bytes([7]) * 128
args = [np.uint64(0xABC), np.int32(-5), np.float32(2.5), b"text\0"]
run(module, "k", (1, 2, 3), (4, 5, 6), args)
run(module, "k", (1, 1, 1), (32, 1, 1), args, shared_bytes=60000, stream=77)
device, kernel = CUDADevice(0, "sm_90a", Cache(Path("cubins"))), GPUKernel("", 5, 64, 32)
values = [np.array([0xABC]), np.array([-5], np.int32), np.array([2.5], np.float32), b"text"]
at = [v if isinstance(v, bytes) else v.ctypes.data for v in values]
held = ctypes.create_string_buffer(at.pop())
places = (ctypes.c_void_p * 4)(*at, ctypes.addressof(held))
def play(stream):
    launch(module.function("k"), (5, 1, 1), (64, 1, 1), 32, stream, ctypes.addressof(places))
replay = device.record(play)
replay(5)
del replay
device.wait(3)
for act in (module.fault, module.fault, lambda: module.function("other"),
            lambda: launch(module.function("k"), (2, 1, 1), (1, 2048, 1), 9, 0,
                           ctypes.addressof(places))):
    try:
        print("result", act(), flush=True)
    except WeftError as e:
        print(type(e).__name__, e.message, flush=True)
"""
EXPECTED = """\
load ELF
map of type 7, rank 2 at 0x1000: 156 60 by 624, box 16 32, step 1 1, 0 3 2 0
launch 1 2 3, 4 5 6, 0 on (nil): abc -5 2.5 text
attribute 8 60000
launch 1 1 1, 32 1 1, 60000 on 0x4d: abc -5 2.5 text
stream of kind 1
record 0x63, mode 2
launch 5 1 1, 64 1 1, 32 on 0x63: abc -5 2.5 text
graph, 0
recording gone
replay on 0x5
graph gone
wait for 0x3
result 2
result 0
WeftError CUDA cannot find other: CUDA_ERROR_NOT_FOUND
launch 2 1 1, 1 2048 1, 9 on (nil): abc -5 2.5 text
WeftError CUDA cannot launch k: 2 blocks of 2048 threads, with 9 bytes of dynamic shared memory: \
CUDA_ERROR_INVALID_VALUE
"""


def test_what_the_driver_is_asked(tmp_path: Path) -> None:
    compiler, source = find_compiler(), Path(__file__).parent / "fake_cuda.c"
    compiler.compile(source, tmp_path / "fake.o")
    compiler.link([tmp_path / "fake.o"], tmp_path / "libcuda.so.1")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout == EXPECTED, done.stderr


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        nvidia.driver()
    except WeftError as e:
        assert e.message == "there is no NVIDIA driver here: libcuda.so.1 does not load"
    else:
        pytest.skip("there is a driver")
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(WeftError, match=r"pip install 'weft\[cuda\]'"):
        nvidia.driver()
