"""Languages beside CUDA: what their text looks like, what runs it, what compiles it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import weft
from tests.gpu.hip import spills_of
from tests.gpu.opencl import opencl_device
from tests.gpu.programs import PROGRAMS
from tests.gpu.test_passes import PROGRAMS as NESTS
from tests.gpu.test_programs import SIMULATOR, simulated
from weft.driver import compile_text
from weft.options import TARGETS, Options
from weft.targets.gpu import GPUS


@pytest.mark.parametrize("target", ["hip:gfx942", "opencl", "metal"])
def test_text(target: str, golden: Callable[[str, str], None]) -> None:
    text = compile_text(NESTS["rows"].lstrip(), Options(target)).ir("source")
    golden(f"gpu/rows_{target.partition(':')[0]}.txt", text)


@SIMULATOR
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", ["hip:gfx942", "metal"])
def test_simulated_as_eager(name: str, target: str) -> None:
    if (name, target) == ("f64", "metal"):
        with pytest.raises(
            weft.WeftError, match="kernel amax computes in f64, which Metal has not"
        ):
            simulated(name, target=target)
    else:
        simulated(name, target=target)


@pytest.mark.parametrize("name", PROGRAMS)
def test_opencl_as_eager(name: str) -> None:
    opencl_device()
    simulated(name, target="opencl", simulate=False)


def test_threads_of_these_targets_exchange_nothing() -> None:
    kernel = """program kernel shifted
input x: f32[32]

kernel y(x: f32[32]) -> y: f32[32]
for t0 in 0..32:  # free thread
    in0 = load x[t0]
    v0 = thread_xor{1}(in0)
    y[t0] = v0

output y
"""
    assert "shuffle_xor(in0, 1)" in compile_text(kernel, Options("hip:gfx90a")).ir("hip")
    with pytest.raises(weft.WeftError, match="kernel y needs exchange, which Metal has not"):
        compile_text(kernel, Options("metal"))


@SIMULATOR
@pytest.mark.parametrize("name", ["softmax", "argmax", "variance", "sum", "two_axes"])
def test_threads_that_exchange_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "cuda:sm_80", replace(GPUS["cuda:sm_80"], exchanges=False))
    text = simulated(name, target="cuda:sm_80").ir("cuda")
    assert "shuffle" not in text
    assert "__shared__" in text


@pytest.mark.parametrize(("target", "most"), [("opencl", 32 << 10), ("hip:gfx90a", 64 << 10)])
def test_more_shared_memory_than_a_block_has_is_refused(target: str, most: int) -> None:
    text = f"""program kernel shared
input x: f32[32]

kernel y(x: f32[32]) -> y: f32[32]
for t0 in 0..32:  # free thread
    local s: f32[{most // 4}] in shared
    s[t0] = load x[t0]
    y[t0] = load s[t0]

output y
"""
    compile_text(text, Options(target))
    told = f"kernel y needs {most + 4} bytes of shared memory, and a block of .* has {most}:"
    with pytest.raises(weft.WeftError, match=told):
        compile_text(text.replace(f"[{most // 4}]", f"[{most // 4 + 1}]"), Options(target))


def words_of_languages(
    new: torch.Tensor, threadIdx: torch.Tensor, kernel: torch.Tensor, device: torch.Tensor,
    local: torch.Tensor, constant: torch.Tensor, half: torch.Tensor, metal: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    return ((new + threadIdx) * (kernel + device) + local * constant - half * metal).sum(0)


WORDS = [torch.full((40, 3), float(i)) for i in range(8)]


@SIMULATOR
@pytest.mark.parametrize("target", ["cuda:sm_80", "hip:gfx90a", "metal"])
def test_names_that_are_words_of_the_language(target: str) -> None:
    got = weft.compile(words_of_languages, target=target, simulate=True)(*WORDS)
    torch.testing.assert_close(got, words_of_languages(*WORDS))


def test_names_that_are_words_of_opencl() -> None:
    opencl_device()
    got = weft.compile(words_of_languages, target="opencl")(*WORDS)
    torch.testing.assert_close(got, words_of_languages(*WORDS))


def test_blocks_of_a_large_grid_are_counted_in_64_bits() -> None:
    text = NESTS["pointwise"].lstrip().replace("100", "1000000000")
    text = compile_text(text, Options("hip:gfx90a")).ir("hip")
    assert re.search(r"const i64 \w+ = \(i64\)blockIdx\.x \* \d+;", text)


@pytest.mark.skipif(shutil.which("hipcc") is None, reason="hipcc is not installed")
def test_hip_compiles_without_spills() -> None:
    texts: list[str] = []
    for name, (function, make) in PROGRAMS.items():
        compiled = weft.compile(function, target="hip:gfx90a", fallback="error")
        compiled.prepare(*make())
        texts.append(re.sub(r"\bk_(\w+\()", rf"k_{name}_\1", compiled.ir("hip")))
    found = spills_of("\n".join(texts), "gfx90a")
    assert len(found) >= len(PROGRAMS) - 1  # an empty one has no kernel
    assert set(found) == {0}


@pytest.mark.skipif(shutil.which("hipcc") is None, reason="hipcc is not installed")
def test_spills_of_hip_are_counted() -> None:
    text = """#include "weft_hip.cuh"
extern "C" __global__ void __launch_bounds__(1024, 1) k_many(const f32 *x, f32 *y) {
    f32 held[400];
    #pragma unroll
    for (i32 i = 0; i < 400; i++) held[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (i32 i = 0; i < 400; i++) y[i * 1024 + threadIdx.x] = held[399 - i] * held[i * 7 % 400];
}
"""
    assert spills_of(text, "gfx90a")[0] > 100
