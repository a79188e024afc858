"""Each kind of fault, planted in a good kernel, is found in its line; the good ones have none."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.sim import kernels
from tests.sim.kernels import Launch, copy
from weft.sim import simulate


@pytest.mark.parametrize("make", kernels.ALL, ids=lambda make: make.__name__)
def test_good_kernels(make: Callable[[], Launch]) -> None:
    launch = make()
    report = launch.run()
    assert not report.faults, str(report)
    np.testing.assert_allclose(launch.result, launch.expected, rtol=1e-5, atol=1e-5)


# kernel, text, its replacement, and the fault: its kind and part of the line it is found in
PLANTED: list[tuple[Callable[[], Launch], str, str, str, str]] = [
    (lambda: copy("coalesced"), "= x[i];", "= x[i + 1];", "out of bounds", "x[i + 1]"),
    (lambda: copy("coalesced"), "y[i] =", "y[i + 1] =", "out of bounds", "y[i + 1]"),
    (lambda: copy("coalesced"), "y[i] =", "y[i - 1] =", "out of bounds", "y[i - 1]"),
    # so far off that other buffers could lie there
    (lambda: copy("coalesced"), "= x[i];", "= x[i + 100000];", "out of bounds", "x[i + 100000]"),
    (kernels.transpose, "tile[i][threadIdx.x] =", "tile[i + 1][threadIdx.x] =", "out of bounds",
     "tile[i + 1]"),
    (kernels.transpose, "= tile[threadIdx.x][i]", "= tile[threadIdx.x + 1][i]", "out of bounds",
     "tile[threadIdx.x + 1]"),
    (kernels.by_four, "const float4 *>(x + i)", "const float4 *>(x + i / 2)", "misaligned",
     "x + i / 2"),
    # races in shared memory: a missing barrier before, and after
    (kernels.transpose, "__syncthreads();", "", "race", "= tile[threadIdx.x][i]"),
    (kernels.matmul, "        }\n        __syncthreads();\n    }", "}\n    }", "race",
     "tile_a[i % 4"),
    (kernels.softmax, "    __syncthreads();\n    f32 sum", "    f32 sum", "race", "] = sum;"),
    (kernels.mma_matmul, "__syncthreads();", "__syncwarp();", "race", "ldmatrix_x2_trans"),
    (kernels.atomic_sum, "atomicAdd(&part, x[i]);", "part += x[i];", "race", "part += x[i]"),
    (kernels.atomic_sum, "    __syncthreads();", "", "race", "atomicAdd(&part"),
    (kernels.atomic_sum, "atomicAdd(&part, x[i]);\n    __syncthreads();", "atomicAdd(&part, x[i]);",
     "race", "atomicAdd(sum, part)"),
    # races in global memory, between blocks
    (lambda: copy("coalesced"), "y[i] =", "y[threadIdx.x] =", "race", "y[threadIdx.x]"),
    (kernels.atomic_sum, "atomicAdd(sum, part);", "*sum += part;", "race", "*sum += part"),
    (kernels.last_block_sum, "__threadfence();", "", "race", "? parts[threadIdx.x]"),
    # barriers and shuffles not reached by all
    (kernels.softmax, "__syncthreads();", "if (threadIdx.x < 64) __syncthreads();", "divergence",
     "if (threadIdx.x < 64)"),
    (kernels.transpose, "    __syncthreads();", "if (column > 40) return;\n    __syncthreads();",
     "divergence", "__syncthreads();"),
    (kernels.softmax, "    __syncthreads();",
     "if (threadIdx.x < 32) {\n__syncthreads();\n} else {\n__syncthreads();\n}", "divergence",
     "__syncthreads();"),
    (kernels.softmax, "        most = fmaxf(most, __shfl",
     "if (threadIdx.x < 16) most = fmaxf(most, __shfl", "divergence", "if (threadIdx.x < 16)"),
    (kernels.softmax, "__shfl_xor_sync(0xffffffff, most", "__shfl_xor_sync(0xfffffffe, most",
     "usage", "0xfffffffe"),
    # what nothing wrote
    (kernels.transpose, "        tile[i][threadIdx.x] =", "if (threadIdx.x) tile[i][threadIdx.x] =",
     "unwritten", "= tile[threadIdx.x][i]"),
    (kernels.atomic_sum, "if (threadIdx.x == 0) part = 0.0f;", "", "unwritten", "atomicAdd(&part"),
    # copies read before their wait, or overwritten under way
    (kernels.async_matmul, "cp_async_wait<1>", "cp_async_wait<2>", "async", "tile_a[stage][i]"),
    (kernels.async_matmul, "cp_async_wait<0>();", "", "async", "load<f32x4>(&tile_b"),
    (kernels.async_matmul, "        __syncthreads();\n        for", "        for", "race",
     "load<f32x4>(&tile_b"),
    (kernels.tma_scale, "        mbarrier_wait(&full[s], box / 3 % 2);", "", "async", "2.0f * at"),
    (kernels.tma_scale, "box / 3 % 2", "1 - box / 3 % 2", "async", "2.0f * at"),
    (kernels.tma_scale, "                tma_store_wait<0>();", "", "async",
     "tma_load_2d(tile[s], x"),
    (kernels.tma_scale, "    if (threadIdx.x == 0) tma_store_wait<0>();", "", "async", "tma_store"),
    (kernels.tma_scale, "        fence_proxy_async();", "", "proxy", "tma_store_2d"),
    (kernels.tma_scale, "    __syncthreads();", "", "race", "mbarrier_wait"),
    (kernels.pipeline, "                mbarrier_wait(empty + i % 2, 1 - i / 2 % 2);", "", "async",
     "bulk_load"),
    (kernels.pipeline, "            mbarrier_wait(full + i % 2, i / 2 % 2);", "", "unwritten",
     "load<f32x4>(tile"),
    (kernels.wgmma_by_rows, "    fence_proxy_async();", "", "proxy", "wgmma_f16"),
    (kernels.wgmma_matmul, "        wgmma_fence();", "", "usage", "wgmma_bf16"),
    (kernels.wgmma_matmul, "        wgmma_wait<0>();\n        __syncthreads();", "__syncthreads();",
     "async", "tma_load_2d(tile_a"),
    (kernels.pipeline, "mbarrier_init(full + s, 1)", "mbarrier_init(full + s, 0)", "usage",
     "mbarrier_expect(full"),
    # waits without end
    (kernels.pipeline, "mbarrier_init(empty + s, 96)", "mbarrier_init(empty + s, 97)", "hang",
     "mbarrier_wait(empty"),
    (kernels.tma_scale, "mbarrier_expect(&full[s], 4096)", "mbarrier_expect(&full[s], 8192)",
     "hang", "mbarrier_wait"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "old", "new", "kind", "line"), PLANTED)
def test_planted(make: Callable[[], Launch], old: str, new: str, kind: str, line: str) -> None:
    report = make().run(old, new)
    found = [f for f in report.faults if f.kind == kind and line in f.text]
    assert found, str(report)


HELPERS = """#include "weft_cuda.cuh"
template <class T> __device__ __forceinline__ T reversed(T value, i32 beyond) {
    __shared__ T tile[32];
    tile[threadIdx.x] = value;
    __syncwarp();
    return tile[31 + beyond - threadIdx.x];
}
__device__ i32 seen;
__constant__ f32 turns[2] = {1.0f, 1.0f};
extern "C" __global__ void twice(const f32 *x, f32 *y, i32 beyond) {
    __shared__ f32 part[32];
    part[threadIdx.x] = reversed(x[threadIdx.x], beyond);
    __syncwarp();
    seen += 1;
    y[threadIdx.x] = turns[threadIdx.x % 2] * reversed(part[31 - threadIdx.x], 0);
}
"""


@pytest.mark.parametrize("beyond", [0, 1])
def test_shared_arrays_of_helpers(beyond: int) -> None:
    x, y = kernels.normal(32), kernels.normal(32)
    report = simulate(HELPERS, "twice", 1, 32, [x, y, beyond])
    kinds = {(fault.kind, fault.line) for fault in report.faults}
    assert kinds == ({("out of bounds", 6)} if beyond else set()), str(report)
    if not beyond:
        np.testing.assert_array_equal(y, x[::-1])


# Whatever makes threads, copies and products wait for one another.
SYNCHRONISES = re.compile(
    r"(__sync|__threadfence|cp_async_(wait|commit)|mbarrier_(init_|expect|wait|arrive)"
    r"|fence_proxy_async|tma_store_(wait|commit)|wgmma_(fence|wait|commit))[^;]*;"
)


def places() -> list[tuple[Callable[[], Launch], int]]:
    found: list[tuple[Callable[[], Launch], int]] = []
    for make in kernels.ALL:
        text, name = kernels.text(make().file), make().kernel
        begin = text.index(f"{name}(")
        end = text.find("__global__", begin)
        whole = SYNCHRONISES.finditer(text, begin, end if end > 0 else len(text))
        found += [(make, match.start()) for match in whole]
    return found


@pytest.mark.parametrize(
    ("make", "at"), places(), ids=lambda value: getattr(value, "__name__", None)
)
def test_none_can_be_left_out(make: Callable[[], Launch], at: int) -> None:
    launch = make()
    text = kernels.text(launch.file)
    end = text.index(";", at)
    report = launch.run(text[:end], text[:at], seconds=5)
    assert report.faults, text[at:end]
