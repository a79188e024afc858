"""NVRTC with no driver: resources of kernels for every target, the cache, its errors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from weft.core.errors import CompilerError
from weft.runtime import nvidia, nvrtc
from weft.runtime.cache import Cache
from weft.runtime.nvrtc import compile_cubin

pytest.importorskip("cuda.bindings.nvrtc")

ARCHS = ("sm_80", "sm_90a", "sm_120")
KERNELS = sorted((Path(__file__).parent.parent / "sim" / "kernels").glob("*.cu"))

# 64 values that are all alive at once; with 32 or 64 registers some must go to memory.
CROWDED = """
extern "C" __global__ void __launch_bounds__(1024, 2) crowded(float *x) {
    float v[64];
    for (int i = 0; i < 64; i++) v[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < 64; i++) x[i * 1024 + threadIdx.x] = v[i] * v[63 - i] + v[(i * 7) % 64];
}
extern "C" __global__ void simple(float *x) {
    __shared__ float tile[100];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[99 - threadIdx.x];
}
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("cubins"))


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
@pytest.mark.parametrize("arch", ARCHS)
def test_the_simulators_kernels_compile(path: Path, arch: str, store: Cache) -> None:
    cubin = compile_cubin(path.read_text(), arch, store)
    assert cubin.path.read_bytes().startswith(b"\x7fELF")
    assert cubin.kernels
    for name, used in cubin.kernels.items():
        assert 0 < used.registers <= 255, name
        assert used.spill_bytes == 0, name
        assert used.stack_bytes <= 8, name  # ptxas takes 8 beside tensor maps on sm_120


@pytest.mark.parametrize("arch", ARCHS)
def test_resources(arch: str, store: Cache) -> None:
    kernels = compile_cubin(CROWDED, arch, store).kernels
    assert set(kernels) == {"crowded", "simple"}
    assert kernels["crowded"].registers in (32, 64)  # sm_120 has no room for two such blocks
    assert kernels["crowded"].spill_bytes > 0
    assert kernels["crowded"].stack_bytes > 0
    assert kernels["simple"].spill_bytes == 0
    assert kernels["simple"].shared_bytes == 400


def test_a_cubin_is_compiled_once(store: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_cubin(CROWDED, "sm_80", store)
    monkeypatch.setattr(nvrtc, "compile_text", None)
    assert compile_cubin(CROWDED, "sm_80", store) == first


def test_errors(store: Cache) -> None:
    with pytest.raises(CompilerError, match=r'"nothing" is undefined') as caught:
        compile_cubin("// a kernel\n__global__ void k() { nothing(); }\n", "sm_80", store)
    assert caught.value.message.startswith("NVRTC refused kernel k for sm_80:")
    assert caught.value.where == "line 2: __global__ void k() { nothing(); }"
    with pytest.raises(CompilerError, match="sm_1"):
        compile_cubin(CROWDED, "sm_1", store)
    large = CROWDED.replace("tile[100]", "tile[100000]")
    with pytest.raises(
        CompilerError, match=r"kernel simple for sm_80: 400000 bytes of .* the most"
    ):
        compile_cubin(large, "sm_80", store)


def test_without_nvrtc(store: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia.nvrtc.cache_clear()
    nvrtc.version.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(CompilerError, match=r"pip install 'weft\[cuda\]'"):
        compile_cubin(CROWDED, "sm_80", store)
