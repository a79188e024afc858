"""A captured program as code for NVIDIA's GPUs: a launch spec of kernels alone, and their cubins.

code = make_cuda_code(captured, options, isa_of("sm_90a"))
code.kernels["k_relu"].grid, code.cubins["k_relu"]

Cubins are NVRTC's: nothing here needs a GPU or a driver.
"""

from collections.abc import Sequence
from dataclasses import replace

from weft.config import config
from weft.export.code import DRAWS, Code, Isa, lowered, place_in_c
from weft.frontend.graph import Captured
from weft.library.calls import WROTE
from weft.link.gpu import to_cache, with_launches
from weft.link.program import WRITE
from weft.options import Options, find_target
from weft.runtime.cache import Cache
from weft.runtime.gpu_program import GPUKernel
from weft.runtime.layout import item_bytes, lay_out
from weft.runtime.nvrtc import compile_all
from weft.runtime.sizes import IN_C, by_value, in_c, value
from weft.runtime.spec import Buffer, Call, ProgramSpec
from weft.targets.gpu import GPU

THREADS = 256  # of a block that copies
WORDS = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}  # by bytes of an element


def make_cuda_code(captured: Captured, options: Options, isa: Isa) -> Code:
    """Lower a program; UnsupportedOpError lists all ops that have no code, with their lines."""
    emitted, writes = lowered(captured, options, ())
    made, target = to_cache(emitted, writes), find_target(options.target)
    assert isinstance(target, GPU)
    texts = {symbol: kernel.source for symbol, kernel in made.kernels.items()}
    cubins = compile_all(texts.values(), isa.name, Cache(config.cache))
    used = {symbol: cubins[source].kernels[symbol] for symbol, source in texts.items()}
    with_launches(made, used, target)  # refuses what does not fit
    spec, stores, draws = without_externs(made.spec)
    cubins |= compile_all((k.source for k in stores.values()), isa.name, Cache(config.cache))
    kernels = {**made.kernels, **stores}
    images = {symbol: cubins[k.source].path.read_bytes() for symbol, k in kernels.items()}
    texts = {symbol: kernel.source for symbol, kernel in kernels.items()}
    return Code(isa, lay_out(spec), texts, draws, kernels, images, len(stores))


def without_externs(spec: ProgramSpec) -> tuple[ProgramSpec, dict[str, GPUKernel], int]:
    """The spec with its externs as calls: of DRAWS, which is no kernel, where a seed is drawn, and
    of kernels that copy what is stored into inputs; these; how many seeds are drawn."""
    buffers = {b.name: b for b in spec.buffers}
    labels = [label for label, _ in spec.sizes]
    steps: list[Call] = []
    kernels: dict[str, GPUKernel] = {}
    draws = 0
    for step in spec.steps:
        if isinstance(step, Call):
            steps.append(step)
        elif step.target == WRITE:
            into, value = step.reads
            symbol = f"k_store{len(kernels)}"
            kernels[symbol] = copy_kernel(symbol, buffers[value], buffers[into], labels)
            steps.append(Call(symbol, (value, into, *map(by_value, labels))))
        elif step.target != WROTE:
            draws += 1
            steps.append(Call(DRAWS, tuple(name for name in step.outputs if name is not None)))
    return replace(spec, steps=tuple(steps)), kernels, draws


def copy_kernel(symbol: str, made: Buffer, into: Buffer, labels: Sequence[str]) -> GPUKernel:
    """CUDA that copies a tensor into another of its shape, each with its own strides."""
    word = WORDS[item_bytes(into)]
    count = " * ".join(f"({n})" for n in into.shape) or "1"
    known = all(isinstance(n, int) for n in into.shape)
    grid = f"({count} + {THREADS - 1}) // {THREADS}"
    sizes = "".join(f", const i64 {label}" for label in labels)
    plain = "static inline __attribute__((unused))"
    lines = [
        '#include "weft_cuda.cuh"',
        *(line.replace(plain, "static __device__ inline") for line in IN_C if labels),
        f'extern "C" __global__ void __launch_bounds__({THREADS}) {symbol}(const {word} *from, '
        f"{word} *into{sizes}) {{",
        f"    i64 rest = (i64)blockIdx.x * {THREADS} + threadIdx.x;",
        f"    if (rest >= {in_c(count)}) return;",
    ]
    for d in reversed(range(len(into.shape))):
        n = in_c(str(into.shape[d]))
        lines += [f"    const i64 i{d} = rest % ({n});", f"    rest /= ({n});"]
    copied = f"    into[{place_in_c(into)}] = from[{place_in_c(made)}];"
    source = "\n".join([*lines, copied, "}", ""])
    return GPUKernel(source, value(grid, {}) if known else grid, THREADS)
