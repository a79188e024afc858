"""The simulator's kernels on a GPU, where there is one: the same results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.launches import run
from tests.sim import kernels
from tests.sim.kernels import Launch
from weft.runtime.cache import Cache
from weft.runtime.cuda import load_module, tensor_map
from weft.runtime.nvrtc import compile_cubin
from weft.sim import TensorMap
from weft.sim.launch import Argument, triple

NEEDS = {"tma_scale": (9, 0), "pipeline": (9, 0), "wgmma_matmul": (9, 0), "wgmma_by_rows": (9, 0)}


def on_device(array: np.ndarray, copies: dict[int, torch.Tensor]) -> int:
    if id(array) not in copies:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        copies[id(array)] = torch.from_numpy(data.copy()).cuda()
    return copies[id(array)].data_ptr()


def encoded(argument: Argument, copies: dict[int, torch.Tensor]) -> np.generic | bytes:
    if isinstance(argument, np.ndarray):
        return np.uint64(on_device(argument, copies))
    if isinstance(argument, TensorMap):
        array, at = argument.array, on_device(argument.array, copies)
        box, swizzle = argument.box, argument.swizzle
        return tensor_map(at, array.dtype.name, array.shape, array.strides, box, swizzle)
    return np.int32(argument)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("make", kernels.ALL, ids=lambda make: make.__name__)
def test_same_results(make: Callable[[], Launch], tmp_path_factory: pytest.TempPathFactory) -> None:
    launch, found = make(), torch.cuda.get_device_capability()
    if found < NEEDS.get(launch.kernel, (8, 0)) or ("wgmma" in launch.kernel and found[0] != 9):
        pytest.skip(f"sm_{found[0]}{found[1]} has no such instructions")
    arch = f"sm_{found[0]}{found[1]}{'a' if found == (9, 0) else ''}"
    store = Cache(tmp_path_factory.mktemp("cubins"))
    module = load_module(compile_cubin(kernels.text(launch.file), arch, store).path)
    copies: dict[int, torch.Tensor] = {}
    args = [encoded(argument, copies) for argument in launch.args]
    sizes = triple(launch.grid), triple(launch.block)
    run(module, launch.kernel, *sizes, args, launch.shared_bytes)
    torch.cuda.synchronize()
    result = copies[id(launch.result)].cpu().numpy().view(launch.result.dtype)
    expected = launch.expected.reshape(-1)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
