"""Programs launched as on a device, which the simulator stands for: results, memory, graphs."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import weft
from tests.gpu.programs import PROGRAMS
from tests.gpu.simulated_device import STREAM, simulated
from weft import driver
from weft.cli.running import launch_cells
from weft.runtime.gpu_program import KEPT_GRAPHS
from weft.runtime.nvrtc import Resources
from weft.targets.nvidia import occupancy

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    return weft.compile(function, target="cuda:sm_90a", **options)


def close(got: Any, wanted: Any) -> None:
    for one, other in zip(pytree.tree_leaves(got), pytree.tree_leaves(wanted), strict=True):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride()


def rows(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Without fusion several kernels, with temporaries between."""
    return ((x.softmax(0) @ w).softmax(-1) @ w).sum(0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str) -> None:
    torch.manual_seed(0)
    function, make = PROGRAMS[name]
    args = make()
    with simulated() as device:
        close(compiled(function, fallback="error")(*args), function(*args))
        assert set(device.streams) <= {STREAM}


def test_a_program_made_before_is_not_lowered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shift = int.from_bytes(os.urandom(3), "big") / 1000  # no program of an earlier run

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.sort(x.softmax(1) + shift)[0] * 2

    x = torch.randn(5, 40)
    with simulated():
        first = compiled(function)
        close(first(x), function(x))
        assert not first.report.cached
        monkeypatch.setattr(driver, "lower", lambda *_: pytest.fail("lowered again"))
        again = compiled(function)
        close(again(x), function(x))
    assert again.report.cached and "tile" not in again.report.seconds
    assert [k.name for k in again.report.kernels] == [k.name for k in first.report.kernels]
    assert again.report.kernels[0].launch == first.report.kernels[0].launch
    assert again.report.externs == first.report.externs


def test_operators_run_between_kernels() -> None:
    def sorts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, places = torch.sort(x * 2, dim=1)
        return values + 1, places, torch.sort(values.sum(1) + 1)[0] * 3

    x = torch.randn(5, 40)
    with simulated() as device:
        f = compiled(sorts)
        close(f(x), sorts(x))
        assert [op for op, _, _ in f.report.externs] == ["aten.sort.default"] * 2
        assert len(device.launched) >= 3


def test_inputs_are_written() -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        y[:, 1].mul_(2)
        return x.softmax(-1)

    ours, theirs = torch.ones(3, 5), torch.ones(3, 5)
    with simulated():
        f = compiled(step)
        for _ in range(4):
            mine, other = torch.full((3, 5), 2.0), torch.full((3, 5), 2.0)
            close(f(ours, mine), step(theirs, other))
            close((ours, mine), (theirs, other))


def test_views_of_inputs_and_results() -> None:
    x = torch.randn(6, 8)

    def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return x[1], y, y.t()

    with simulated():
        part, y, turned = compiled(views)(x)
        assert part.data_ptr() == x[1].data_ptr() and turned.data_ptr() == y.data_ptr()
        close((part, y, turned), views(x))


@pytest.mark.parametrize("start", [1, 2, 3])
def test_an_input_at_an_odd_address(start: int) -> None:
    memory = torch.randn(200)
    cut = memory[start : start + 60].view(5, 12)
    assert cut.data_ptr() % 16
    with simulated():
        f = compiled(lambda x: x.softmax(-1))
        close(f(cut), cut.softmax(-1))
        close(f(torch.ones(5, 12)), torch.ones(5, 12).softmax(-1))
        wide = compiled(lambda x, y: x + y)  # overlapping, with gaps, in columns
        for x in (memory[start:].as_strided((4, 5), (2, 3)), cut.t(), cut[:1].expand(12, 12)):
            y = torch.randn(x.shape)
            close(wide(x, y), x + y)
        doubled = compiled(lambda x: x.mul_(2))
        wanted = cut.clone() * 2
        assert doubled(cut) is cut
        close(cut.clone(), wanted)


def test_repeated_calls_are_recorded_and_never_overwrite_a_result() -> None:
    x, w = torch.randn(9, 7), torch.randn(7, 7)
    with simulated() as device:
        f = compiled(rows, fuse="none")
        first = f(x, w)
        assert len(device.launched) >= 3 and device.recorded == 0
        kept = [f(x + i, w) for i in range(6)]
        for i, one in enumerate(kept):
            close(one, rows(x + i, w))
        close(first, rows(x, w))
        assert len({one.data_ptr() for one in kept}) == 6
        assert set(device.streams) == {STREAM}


def test_memory_that_comes_back_is_recorded_for() -> None:
    x, w = torch.randn(9, 7), torch.randn(7, 7)
    with simulated() as device:
        f = compiled(rows, fuse="none")
        scope = f.prepare(x, w).programs[0].__globals__  # of the text of its call
        once("empty", scope)
        once("new_arena", scope)
        for _ in range(5):  # at the same places, with other values
            x.copy_(torch.randn(9, 7))
            close(f(x, w), rows(x, w))
        assert (device.recorded, device.replayed) == (1, 4)
        y = x.clone()  # at another place
        for _ in range(3):
            close(f(y, w), rows(y, w))
            close(f(x, w), rows(x, w))
        assert (device.recorded, device.replayed) == (2, 4 + 2 + 3)
        assert set(device.streams) == {STREAM}


def once(name: str, scope: dict[str, Any]) -> None:
    """An allocator that gives what it gave before, as torch's does when that has been freed."""
    allocate, found = scope[name], list[Any]()

    def again(*args: Any) -> Any:
        found.extend([] if found else [allocate(*args)])
        return found[0]

    scope[name] = again


def segment(f: Any) -> Any:
    """The one segment of the one program of `f`."""
    (program,) = f.programs
    return program.__globals__["segment0"]


def test_graphs_are_few() -> None:
    w = torch.randn(7, 7)
    with simulated() as device:
        f = compiled(rows, fuse="none")
        held = [(x := torch.randn(9, 7), f(x, w)) for _ in range(KEPT_GRAPHS + 3)]
        assert device.recorded == 0, "every call had addresses of its own"
        assert len(segment(f).graphs) == KEPT_GRAPHS
        for x, y in held:
            close(y, rows(x, w))


def test_few_kernels_are_not_recorded() -> None:
    x = torch.randn(4, 8)
    with simulated() as device:
        f = compiled(torch.relu)
        for _ in range(5):
            close(f(x), x.relu())
        assert device.recorded == 0


def test_inside_a_graph_of_the_user() -> None:
    x, w = torch.randn(9, 7), torch.randn(7, 7)
    with simulated() as device:
        f = compiled(rows, fuse="none")
        device.recording = True
        for _ in range(5):
            close(f(x, w), rows(x, w))
        assert device.recorded == device.replayed == 0


def test_calls_from_several_threads() -> None:
    x, w = torch.randn(9, 7), torch.randn(7, 7)
    wrong: list[BaseException] = []

    def call(f: Any, i: int) -> None:
        try:
            for _ in range(3):
                close(f(x + i, w), rows(x + i, w))
        except BaseException as error:
            wrong.append(error)

    with simulated():
        f = compiled(rows, fuse="none")
        f(x, w)
        threads = [threading.Thread(target=call, args=(f, i)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong, wrong


def test_faults_are_errors() -> None:
    table = torch.randn(11, 8)
    with simulated():
        f = compiled(lambda t, i: t[i] + 1)
        with pytest.raises(weft.IndexOutOfRange, match="kernel"):
            f(table, torch.tensor([3, 11]))
        close(f(table, torch.tensor([3, 10])), table[torch.tensor([3, 10])] + 1)
        with pytest.raises(weft.DivisionByZero):
            compiled(lambda x, y: x // y)(torch.tensor([4]), torch.tensor([0]))


def test_a_profile_times_every_step_and_tells_its_launch() -> None:
    x = torch.randn(5, 40)
    with simulated():
        f = compiled(lambda x: torch.sort(x.softmax(1))[0] + 1, profile=True)
        close(f(x), torch.sort(x.softmax(1))[0] + 1)
        softmax, add = f.report.kernels
        assert softmax.measured_us == add.measured_us == 5.0
        assert f.report.extern_us[0] > 0
    found = softmax.launch
    assert found is not None and found.grid == 5 and found.block >= 32
    assert softmax.bytes == 2 * x.nbytes  # read and written
    assert (found.registers, found.spill_bytes, found.shared_bytes) == (64, 8, 1024)
    peak = 4.8e6  # bytes per microsecond of an H200
    assert softmax.percent_of_peak == pytest.approx(100 * 1600 / 5 / peak)
    cells = launch_cells(softmax)
    assert cells[:1] + cells[2:5] == ["5", "1024", "64", "8"] and cells[6] == "0.0016"


def test_a_kernel_that_fits_no_multiprocessor() -> None:
    huge = lambda self, kernels: {name: Resources(255, 0, 0, 240 << 10) for name in kernels}  # noqa: E731
    told = r"kernel k_softmax does not fit a multiprocessor of sm_90a: 256 threads of 255 .*232448"
    with simulated() as device:
        device.resources = partial(huge, device)
        with pytest.raises(weft.WeftError, match=told):
            compiled(lambda x: x.softmax(1))(torch.randn(5, 1000))


def test_a_profile_without_a_device_has_all_but_the_times() -> None:
    pytest.importorskip("cuda.bindings")
    f = compiled(lambda x: x.softmax(1), simulate=True, profile=True)
    f(torch.randn(5, 40))
    (kernel,) = f.report.kernels
    assert kernel.launch is not None and (kernel.launch.registers or 0) > 4
    assert kernel.launch.occupancy and kernel.measured_us is kernel.percent_of_peak is None


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "share"),
    [
        ("sm_80", 256, 32, 0, 1.0),
        ("sm_80", 256, 33, 0, 0.75),  # 40 registers each: 6 blocks
        ("sm_80", 256, 64, 0, 0.5),
        ("sm_90a", 128, 32, 100 << 10, 0.125),  # two blocks of 101 KB in 228
        ("sm_90a", 32, 16, 0, 0.5),  # 32 blocks of one warp
        ("sm_120", 1024, 32, 0, 2 / 3),  # one block of 1024 in 1536
        ("sm_80", 1024, 255, 0, 0.0),  # does not start
    ],
)
def test_occupancy(arch: str, threads: int, registers: int, shared: int, share: float) -> None:
    assert occupancy(arch, threads, registers, shared) == pytest.approx(share)
    assert occupancy("gfx942", threads, registers, shared) is None
