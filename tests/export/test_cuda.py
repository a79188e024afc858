"""Exported CUDA gives what the simulator gives of the same program: by a driver that checks."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft
from tests.export.fake_device import FakeDevice
from tests.export.library import Array, Library, Refused, export, make
from tests.export.programs import Counts, source, views
from tests.export.same import bits

pytest.importorskip("cuda.bindings.nvrtc")

P = ctypes.c_void_p


def tensors(out: Any) -> list[torch.Tensor]:
    return list(out) if isinstance(out, tuple | list) else [out]


def simulated(fn: Any, *args: Any, **how: Any) -> list[bytes]:
    """What the same program gives in-process; a seed is drawn by torch."""
    f = weft.compile(fn, target="cuda:sm_90a", simulate=True, **how)
    with torch.no_grad():
        return [bits(t) for t in tensors(f(*args))]


def same(device: FakeDevice, library: Library, fn: Any, *args: Any, **how: Any) -> None:
    expected = simulated(fn, *(a.clone() for a in args), **how)
    assert [bits(t) for t in device.outputs(library, args)] == expected


# --- runs from memory of the CPU


def layers(x: torch.Tensor, w: torch.Tensor) -> Any:
    return F.layer_norm((x @ w).relu(), (24,)), x.sum(0)


def test_a_run(device: FakeDevice, tmp_path: Path) -> None:
    args = torch.randn(20, 40), torch.randn(40, 24)
    library = device.exported(source(layers, *args), tmp_path / "m")
    assert library.isa == "sm_90a"
    for _ in range(2):
        same(device, library, layers, torch.randn(20, 40), torch.randn(40, 24))
    library.close()


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


def test_tensor_maps(device: FakeDevice, tmp_path: Path) -> None:
    """A product by TMA: maps of inputs, which are encoded again where these lie elsewhere."""
    args = [torch.randn(128, 512).bfloat16(), torch.randn(512, 128).bfloat16()]
    library = device.exported(source(product, *args), tmp_path / "m")
    assert any(k.maps for k in device.kernels.values())
    for _ in range(2):
        same(device, library, product, *args)
        args = [t + 1 for t in args]
    library.close()


def test_dynamic_shared_memory(device: FakeDevice, tmp_path: Path) -> None:
    """More than 48 KB are asked for; the driver refuses a launch if they were not."""
    args = [torch.randn(1024, 512).bfloat16(), torch.randn(512, 1024).bfloat16()]
    library = device.exported(source(product, *args), tmp_path / "m")
    assert any(k.shared > 48 << 10 for k in device.kernels.values())
    P.in_dll(device.c, "fake_run").value = None  # it takes long in the simulator
    library.run(args)
    assert device.number("launches").value == 1
    library.close()


def test_random_numbers(device: FakeDevice, tmp_path: Path) -> None:
    """As weft gives on a CPU: the seed is torch's there, and each element is computed alike."""

    def noisy(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.4) + torch.rand(8)

    x = torch.randn(4, 8)
    library, f = device.exported(source(noisy, x), tmp_path / "m"), weft.compile(noisy)
    assert library.signature().draws == 1
    for seed in (0, 2**40 + 3):
        torch.manual_seed(seed)
        library.seed(seed)
        for _ in range(2):
            assert bits(device.outputs(library, (x,))[0]) == bits(f(x))
    library.close()


def test_what_aten_would_do_faster_has_code(device: FakeDevice, tmp_path: Path) -> None:
    """In-process a sort is ATen's on a GPU; here each row is a thread's."""

    def ordered(x: torch.Tensor) -> Any:
        return (*x.sort(1), x.topk(2, 0).values)

    x = torch.randperm(40).float().reshape(5, 8)
    library = device.exported(source(ordered, x), tmp_path / "m")
    assert all(map(torch.equal, device.outputs(library, (x,)), ordered(x)))
    library.close()


def test_free_sizes(device: FakeDevice, tmp_path: Path) -> None:
    def scaled(x: torch.Tensor, y: torch.Tensor) -> Any:
        y.add_(1)
        return (x - x.amax(-1, keepdim=True)).exp(), torch.cat([x, x * 2])

    y = torch.zeros(3)
    library = device.exported(source(scaled, torch.randn(6, 8), y), tmp_path / "m", dynamic=True)
    for turn, shape in enumerate(((5, 8), (40, 300), (2, 2))):
        x = torch.randn(*shape)
        found = device.outputs(library, (x, y))
        torch.testing.assert_close(found, [*scaled(x, torch.zeros(3))])
        assert torch.equal(y, torch.full((3,), turn + 1.0))
    with pytest.raises(Refused, match="is 1, and the model takes 2 to"):
        library.run((torch.randn(1, 8), y))
    library.close()


def test_memory_that_tensors_share(device: FakeDevice, tmp_path: Path) -> None:
    """Views of inputs and outputs, an input that is written, and strides."""
    x, y = torch.randn(4, 5), torch.randn(3)
    library = device.exported(source(views, x, y.clone()), tmp_path / "m")
    ours, theirs = y.clone(), y.clone()
    expected = views(x, theirs)
    found = device.outputs(library, (x, ours))
    flat = [expected["whole"], *expected["part"], expected["alone"]]
    torch.testing.assert_close(found, flat)
    assert torch.equal(ours, theirs)
    library.close()


def test_strides_with_gaps_keep_what_is_between(device: FakeDevice, tmp_path: Path) -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    memory = torch.arange(24.0).reshape(4, 6)
    expected = memory.clone()
    expected[:, :3] *= 2
    library = device.exported(source(doubled, torch.zeros(4, 6)[:, :3]), tmp_path / "m")
    device.outputs(library, (memory[:, :3],))
    assert torch.equal(memory, expected)
    library.close()


def test_tensors_in_turns_in_memory_keep_what_both_get(device: FakeDevice, tmp_path: Path) -> None:
    """Neither is part of the other, but each spans some of it."""

    def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.mul_(2).sum() + y.mul_(3).sum()

    memory = torch.arange(48.0).reshape(2, 4, 6)
    expected = torch.cat([memory[..., :3] * 2, memory[..., 3:] * 3], -1)
    given = torch.zeros(2, 4, 6)[..., :3], torch.zeros(2, 4, 6)[..., 3:]
    library = device.exported(source(scaled, *given), tmp_path / "m")
    device.outputs(library, (memory[..., :3], memory[..., 3:]))
    assert torch.equal(memory, expected)
    library.close()


def test_state_and_what_is_saved(device: FakeDevice, tmp_path: Path) -> None:
    library = device.exported(source(Counts().eval(), torch.ones(3)), tmp_path / "m")
    other = Library(tmp_path / "m")
    for turn in (1.0, 2.0):
        doubled, weight = device.outputs(library, (torch.ones(3),))
        assert torch.equal(doubled, torch.full((3,), 2 * turn))
        assert torch.equal(weight, torch.arange(3.0))
    library.save(tmp_path / "saved")
    assert torch.equal(device.outputs(other, (torch.ones(3),))[0], torch.full((3,), 2.0))
    third = Library(tmp_path / "m", weights=tmp_path / "saved")
    assert torch.equal(device.outputs(third, (torch.ones(3),))[0], torch.full((3,), 6.0))
    for one in (library, other, third):
        one.close()


class Sums(nn.Module):
    """Writes to its buffer for three numbers, and returns it for two."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = nn.Buffer(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> Any:
        return (self.sum.add_(x) * 1) if x.shape[0] == 3 else (self.sum, x * 2)


def test_a_signature_returns_what_another_writes(device: FakeDevice, tmp_path: Path) -> None:
    model = Sums()
    calls = [source(model, torch.ones(n)) for n in (3, 2)]
    library = device.exported(calls, tmp_path / "m")
    device.outputs(library, (torch.ones(3),))
    assert torch.equal(device.outputs(library, (torch.ones(2),), 1)[0], torch.ones(3))
    library.close()


def test_a_training_step(device: FakeDevice, tmp_path: Path) -> None:
    def made() -> tuple[Any, Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 4))
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: torch.Tensor) -> Any:
            loss = model(x).square().mean()
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            return loss.detach(), model[0].weight

        step(torch.ones(6, 8))
        return step, model

    x = torch.randn(6, 8)
    (ours, _), (theirs, _) = made(), made()
    library, f = device.exported(source(ours, x), tmp_path / "m", steps=True), weft.compile(theirs)
    torch.manual_seed(3)
    library.seed(3)
    for _ in range(3):
        torch.testing.assert_close(device.outputs(library, (x,)), [t.detach() for t in f(x)])
    library.close()


def test_no_kernels_and_no_elements(device: FakeDevice, tmp_path: Path) -> None:
    def empty(x: torch.Tensor) -> Any:
        return x.exp(), x.reshape(3, 0)

    x = torch.zeros(0, 3)
    library = device.exported(source(empty, x), tmp_path / "m")
    assert [t.shape for t in device.outputs(library, (x,))] == [(0, 3), (3, 0)]
    library.close()


def test_a_fault_names_the_torch_line(device: FakeDevice, tmp_path: Path) -> None:
    table = nn.Embedding(9, 8)
    library = device.exported(source(table, torch.tensor([1, 2])), tmp_path / "m")
    wrong, good = torch.tensor([1, 9]), torch.tensor([1, 8])
    for _ in range(2):
        with pytest.raises(
            Refused, match=r"an index is out of range .*, at kernel embedding"
        ) as told:
            library.run((wrong,))
        assert told.value.args[0] == 2
        assert torch.equal(device.outputs(library, (good,))[0], table(good).detach())
    library.close()


def test_a_fault_leaves_inputs_as_they_are(device: FakeDevice, tmp_path: Path) -> None:
    def picked(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x[i]

    x, good, wrong = torch.zeros(4), torch.tensor([3, 0]), torch.tensor([0, 4])
    library = device.exported(source(picked, x.clone(), good), tmp_path / "m")
    with pytest.raises(Refused, match="an index is out of range"):
        library.run((x, wrong))
    assert torch.equal(x, torch.zeros(4))
    assert torch.equal(device.outputs(library, (x, good))[0], torch.ones(2))
    assert torch.equal(x, torch.ones(4))
    library.close()


def test_signatures_share_kernels_and_weights(device: FakeDevice, tmp_path: Path) -> None:
    model = nn.Linear(8, 4)
    calls = [source(model, torch.randn(n, 8)) for n in (2, 3)]
    library = device.exported(calls, tmp_path / "m")
    for number, rows in enumerate((2, 3)):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(device.outputs(library, (x,), number)[0], model(x).detach())
    library.close()


def test_threads_share_an_instance(device: FakeDevice, tmp_path: Path) -> None:
    """Each run has temporaries and a stream of its own; kernels do nothing here."""
    x = torch.randn(8, 8)
    library, wrong = device.exported(source(product, x, x.clone()), tmp_path / "m"), list[int]()
    P.in_dll(device.c, "fake_run").value = None

    def calls() -> None:
        y, error = torch.empty(8, 8), ctypes.create_string_buffer(100)
        given, out = (Array * 2)(*[Array(x.data_ptr())] * 2), (Array * 1)(Array(y.data_ptr()))
        room = ctypes.c_size_t(100)
        for _ in range(200):
            wrong.append(library.call("run", library.model, 0, given, out, 0, error, room))

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0] * 800 and device.number("launches").value >= 800
    library.close()


# --- devices


def test_the_device_chooses(device: FakeDevice, tmp_path: Path) -> None:
    """Code of the same major version, and no higher minor one; sm_90a on 9.0 alone."""
    device.exported(source(F.relu, torch.randn(8)), tmp_path / "m", "sm_80,sm_90a").close()
    for major, minor, isa in ((8, 0, "sm_80"), (8, 9, "sm_80"), (9, 0, "sm_90a")):
        device.number("major").value, device.number("minor").value = major, minor
        library = Library(tmp_path / "m")
        assert library.isa == isa
        library.close()
    for device.number("major").value, device.number("minor").value in ((9, 1), (7, 5), (12, 0)):
        with pytest.raises(Refused, match="sm_80 sm_90a do not run on device 0: Fake 0"):
            Library(tmp_path / "m")


def test_what_the_driver_refuses(device: FakeDevice, tmp_path: Path) -> None:
    x = torch.randn(8)
    library = device.exported(source(F.relu, x), tmp_path / "m")
    device.number("fails_at").value = 0
    with pytest.raises(Refused, match="CUDA cannot launch k_relu: CUDA_ERROR_UNKNOWN"):
        library.run((x,))
    assert torch.equal(device.outputs(library, (x,))[0], x.relu())
    room = ctypes.c_longlong.in_dll(device.c, "fake_room")
    room.value = 16
    with pytest.raises(Refused, match="cannot allocate the weights: CUDA_ERROR_OUT_OF_MEMORY"):
        Library(tmp_path / "m")
    room.value = 300
    other = Library(tmp_path / "m")
    with pytest.raises(Refused, match=r"cannot allocate \d+ bytes: CUDA_ERROR_OUT_OF_MEMORY"):
        other.run((x,))
    other.close()
    library.close()


def test_no_driver(tmp_path: Path) -> None:
    export([source(F.relu, torch.randn(8))], tmp_path / "m", "sm_80")
    make(tmp_path / "m", "libm.so", "CFLAGS=-Werror -DWEFT_LIBCUDA='\"/nowhere.so\"'")
    with pytest.raises(Refused, match=r"there is no NVIDIA driver here: /nowhere\.so"):
        Library(tmp_path / "m")
