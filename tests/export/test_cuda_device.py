"""Exported CUDA on a device, where there is one: as eager, from memory of the CPU and its own."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft
from tests.export.library import Array, Library, Refused, export, make
from tests.export.programs import Counts, Net, ids, source
from tests.export.same import bits


@cache
def arch() -> str:
    """The target for device 0; "" where there is no device, or none that weft has code for."""
    major, device = ctypes.c_int(), ctypes.c_int()
    try:
        c = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    if c.cuInit(0) or c.cuDeviceGet(ctypes.byref(device), 0):
        return ""
    c.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
    return {8: "sm_80", 9: "sm_90a", 12: "sm_120"}.get(major.value, "")


pytestmark = pytest.mark.skipif(not arch(), reason="there is no GPU")
P = ctypes.c_void_p


def exported(fn: Any, folder: Path, *args: torch.Tensor, **how: Any) -> Library:
    export([source(fn, *args)], folder, arch(), **how)
    make(folder, "libm.so")
    return Library(folder)


def layers(x: torch.Tensor, w: torch.Tensor) -> Any:
    return F.layer_norm((x @ w).relu(), (24,)), x.sum(0)


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


def halves(*shapes: tuple[int, int]) -> list[torch.Tensor]:
    return [torch.randn(shape).bfloat16() for shape in shapes]


PROGRAMS: dict[str, tuple[Any, Callable[[], list[torch.Tensor]]]] = {
    "layers": (layers, lambda: [torch.randn(20, 40), torch.randn(40, 24)]),
    "tensor maps": (product, lambda: halves((128, 512), (512, 128))),
    "shared memory": (product, lambda: halves((1024, 512), (512, 1024))),
    "net": (Net().eval(), lambda: [ids()]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str, tmp_path: Path) -> None:
    fn, fresh = PROGRAMS[name]
    library = exported(fn, tmp_path / "m", *fresh())
    for _ in range(3):
        args = fresh()
        with torch.no_grad():
            out = fn(*args)
        wide: Any = {"rtol": 2e-2, "atol": 1e-1} if args[0].dtype is torch.bfloat16 else {}
        for (_, mine), theirs in zip(
            library.run(args), out if isinstance(out, tuple) else (out,), strict=True
        ):
            torch.testing.assert_close(mine, theirs, **wide)
    library.close()


def test_random_numbers_are_those_of_a_cpu(tmp_path: Path) -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.4) + torch.rand(8)

    x = torch.randn(4, 8)
    library, f = exported(noisy, tmp_path / "m", x), weft.compile(noisy)
    torch.manual_seed(5)
    library.seed(5)
    for _ in range(3):
        assert bits(library.run((x,))[0][1]) == bits(f(x))
    library.close()


def test_free_sizes_state_and_faults(tmp_path: Path) -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1)

    library = exported(scaled, tmp_path / "a", torch.randn(6, 8), dynamic=True)
    for shape in ((5, 8), (400, 300)):
        x = torch.randn(*shape)
        torch.testing.assert_close(library.run((x,))[0][1], scaled(x))
    library.close()
    library = exported(Counts().eval(), tmp_path / "b", torch.ones(3))
    for turn in (1.0, 2.0):
        assert torch.equal(library.run((torch.ones(3),))[0][1], torch.full((3,), 2 * turn))
    library.close()
    library = exported(nn.Embedding(9, 8), tmp_path / "c", torch.tensor([1, 2]))
    for _ in range(2):
        with pytest.raises(Refused, match=r"an index is out of range .*, at kernel embedding"):
            library.run((torch.tensor([1, 9]),))
        library.run((torch.tensor([1, 8]),))
    library.close()


def test_threads_share_an_instance(tmp_path: Path) -> None:
    library, wrong = exported(layers, tmp_path / "m", *PROGRAMS["layers"][1]()), list[str]()

    def calls() -> None:
        own = Library.__new__(Library)
        vars(own).update(vars(library), error=ctypes.create_string_buffer(2048))
        for _ in range(50):
            args = PROGRAMS["layers"][1]()
            for (_, mine), theirs in zip(own.run(args), layers(*args), strict=True):
                if not torch.allclose(mine, theirs, atol=1e-4):
                    wrong.append("other values")

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    library.close()


def test_memory_of_the_device_and_streams(tmp_path: Path) -> None:
    """Runs in turn on two streams: one frame serves both, in order."""
    library = exported(layers, tmp_path / "m", *PROGRAMS["layers"][1]())
    c, context, streams = ctypes.CDLL("libcuda.so.1"), P(), [P(), P()]
    args = PROGRAMS["layers"][1]()
    sizes = [*(t.nbytes for t in args), 20 * 24 * 4, 40 * 4]
    at = [ctypes.c_uint64() for _ in sizes]
    assert not c.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    assert not c.cuCtxPushCurrent_v2(context)
    for place, bytes_ in zip(at, sizes, strict=True):
        assert not c.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(bytes_))
    for stream in streams:
        assert not c.cuStreamCreate(ctypes.byref(stream), 1)
    for place, t in zip(at, args, strict=False):
        c.cuMemcpyHtoD_v2(place, P(t.data_ptr()), ctypes.c_size_t(t.nbytes))
    c.cuCtxPopCurrent_v2(ctypes.byref(P()))
    given = (Array * 2)(*(Array(a.value) for a in at[:2]))
    out = (Array * 2)(*(Array(a.value) for a in at[2:]))
    for turn in range(20):
        stream = streams[turn % 2]
        library.checked(
            library.call("run_device", library.model, 0, given, out, stream, *library.room())
        )
    assert not c.cuCtxPushCurrent_v2(context)
    for stream in streams:
        assert not c.cuStreamSynchronize(stream)
    for place, theirs in zip(at[2:], layers(*args), strict=True):
        mine = torch.empty_like(theirs)
        assert not c.cuMemcpyDtoH_v2(P(mine.data_ptr()), place, ctypes.c_size_t(mine.nbytes))
        torch.testing.assert_close(mine, theirs)
    for place in at:
        assert not c.cuMemFree_v2(place)
    for stream in streams:
        assert not c.cuStreamDestroy_v2(stream)
    c.cuCtxPopCurrent_v2(ctypes.byref(P()))
    c.cuDevicePrimaryCtxRelease_v2(0)
    library.close()
