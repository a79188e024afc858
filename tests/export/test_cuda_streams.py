"""Exported CUDA from memory of the device: streams, what runs wait for, and what is refused."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.export.fake_device import FakeDevice
from tests.export.library import OWN, Array, Library
from tests.export.programs import Counts, source
from tests.export.test_cuda import Sums

pytest.importorskip("cuda.bindings.nvrtc")

P = ctypes.c_void_p


@pytest.fixture
def allocated(device: FakeDevice) -> Iterator[Callable[[], int]]:
    """Memory of the driver's for three floats, as often as it is asked for."""
    context, made, c = P(), list[ctypes.c_uint64](), device.c

    def one() -> int:
        place = ctypes.c_uint64()
        c.cuCtxPushCurrent_v2(context)
        c.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(12))
        c.cuCtxPopCurrent_v2(ctypes.byref(context))
        made.append(place)
        return place.value

    c.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    yield one
    c.cuCtxPushCurrent_v2(context)
    for place in made:
        c.cuMemFree_v2(place)
    c.cuCtxPopCurrent_v2(ctypes.byref(context))
    c.cuDevicePrimaryCtxRelease_v2(0)


def on_device(library: Library, given: int, *out: int, number: int = 0) -> tuple[int, Any, str]:
    """A run on stream NULL: what it gives, its outputs, and what it says."""
    own = (Array * 1)(Array(given)), (Array * len(out))(*map(Array, out))
    failed = library.call("run_device", library.model, number, *own, None, *library.room())
    return failed, own[1], library.error.value.decode()


def test_a_run_on_a_stream(
    device: FakeDevice, allocated: Callable[[], int], tmp_path: Path
) -> None:
    """Outputs that are parts of weights lie on the device as well."""
    library = device.exported(source(Counts().eval(), torch.ones(3)), tmp_path / "m")
    x, y, at, to = torch.ones(3), torch.empty(3), allocated(), allocated()
    ctypes.memmove(at, x.data_ptr(), 12)
    for turn in (1, 2):
        failed, out, _ = on_device(library, at, to, 0)
        assert not failed and library.signature().output[1].memory != OWN
        ctypes.memmove(y.data_ptr(), to, 12)
        assert torch.equal(y, torch.full((3,), 2.0 * turn))
        ctypes.memmove(y.data_ptr(), out[1].data, 12)  # a weight, on the device
        assert torch.equal(y, torch.arange(3.0))
    assert device.number("waits").value == 1000  # the second for the first, on stream NULL
    device.outputs(library, (x,))
    assert device.number("waits").value == 1001  # on a stream of its own
    told = "input x does not lie at a multiple of 16 bytes"
    assert on_device(library, at + 4, to, 0)[::2] == (1, told)
    device.number("capturing").value = 1
    told = "a run cannot be recorded: its memory is used by other runs"
    assert on_device(library, at, to, 0)[::2] == (1, told)
    library.close()


def test_a_run_comes_after_one_that_writes_weights(
    device: FakeDevice, allocated: Callable[[], int], tmp_path: Path
) -> None:
    """Of another signature, on another stream."""
    model = Sums()
    library = device.exported([source(model, torch.ones(n)) for n in (3, 2)], tmp_path / "m")
    assert not on_device(library, allocated(), allocated())[0]
    before = device.number("waits").value
    device.outputs(library, (torch.ones(2),), 1)
    assert device.number("waits").value == before + 1
    device.outputs(library, (torch.ones(2),), 1)  # the last one has ended
    assert device.number("waits").value == before + 1
    library.close()


@pytest.mark.parametrize("fn", [F.relu, Counts().eval()])
def test_a_wait_that_the_driver_refuses(
    fn: Any, device: FakeDevice, allocated: Callable[[], int], tmp_path: Path
) -> None:
    """For the last run that took these temporaries, or that wrote weights: nothing is run then."""
    library = device.exported(source(fn, torch.ones(3)), tmp_path / "m")
    at, to = allocated(), [allocated() for _ in range(library.signature().outputs)]
    ctypes.memmove(at, torch.ones(3).data_ptr(), 12)
    assert not on_device(library, at, *to)[0]
    launches = device.number("launches").value
    device.number("refuses_waits").value = 1
    told = "CUDA cannot wait for a run: CUDA_ERROR_UNKNOWN"
    assert on_device(library, at, *to)[::2] == (1, told)
    assert device.number("launches").value == launches
    device.number("refuses_waits").value = 0
    assert not on_device(library, at, *to)[0]
    library.close()
