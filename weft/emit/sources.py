"""The sources of a program: a text for each kernel, in the language of its target.

symbols, texts, launches = sources_of({"kernel": program}, GPUS["opencl"])
texts[symbols["relu"]]           # #include "weft_opencl.cl" ...
"""

from collections.abc import Mapping, Sequence
from typing import Any

from weft.core.errors import WeftError
from weft.emit.c import emit_kernel
from weft.emit.gpu import Launch, emit_gpu
from weft.emit.languages import LANGUAGES
from weft.emit.rows import emit_rows
from weft.emit.spelling import Names
from weft.scalar.nest import Kernel, Rows
from weft.scalar.resize import sizes_of
from weft.scalar.text.printer import show_kernel
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU

Sources = tuple[dict[str, str], dict[str, str], dict[str, Launch]]


def sources_of(made: Mapping[str, Any], target: CPU | GPU, sizes: Sequence[str] = ()) -> Sources:
    """Symbols by kernel, and by symbol the texts, and the launches of GPU kernels.

    `made` is the program by level; the loops stand above a GPU kernel, where there are any.
    """
    kernels, names = made["kernel"].kernels, Names()
    symbols = {k.name: names.of(f"k_{k.name}") for k in kernels}
    if isinstance(target, CPU):
        order = {k.name: sizes or [*sizes_of(k)] for k in kernels}  # those of rows, else
        texts = {symbols[k.name]: emit_kernel(k, symbols[k.name], order[k.name]) for k in kernels}
        return symbols, texts, {}
    nests = made["loop"].kernels if "loop" in made else ()
    meant, language = {k.name: show_kernel(k) for k in nests}, LANGUAGES[target.language]
    launches: dict[str, Launch] = {}
    for step in made["kernel"].steps:
        if isinstance(step, Kernel | Rows):
            how = symbols[step.name], language, meant.get(step.name, ())
            rows = isinstance(step, Rows)
            launches[how[0]] = emit_rows(step, *how) if rows else emit_gpu(step, *how)
    for kernel in kernels:
        check_shared(kernel, launches[symbols[kernel.name]].shared_bytes, target)
    return symbols, {symbol: launch.source for symbol, launch in launches.items()}, launches


def check_shared(kernel: Kernel, used: int, target: GPU) -> None:
    """WeftError for a kernel whose blocks share more memory than the target has for one."""
    if used > target.shared:
        told = f"kernel {kernel.name} needs {used} bytes of shared memory, and a block of "
        told += f"{target.arch or target.language} has {target.shared}: fewer are staged by"
        raise WeftError(f"{told} --passes=-stage_inputs", *kernel.origin[:1])
