"""Compiles a loaded program, PyTorch or IR text, with the options of the command line.

compiled = compile_program(load(spec), Options(target="cpu"))
compiled.ir("loop"), compiled.report.kernels
"""

from typing import Any, Protocol

import torch

import weft
from weft import driver
from weft.cli.check import run_eager
from weft.cli.program import IrText, Source, program_place
from weft.core.errors import WeftError, choice
from weft.library.calls import TORCH_DTYPES
from weft.options import Options, find_target
from weft.targets.gpu import GPUS

LEVELS = ("torch", "tensor", "loop", "mlir", "schedule", "tile", "triton", "kernel", "source")
LANGUAGES = ("c", "cuda", "hip", "opencl", "metal")


class Compiled(Protocol):
    """The result of `weft.compile` and of `driver.compile_text`."""

    @property
    def report(self) -> weft.Report: ...
    def __call__(self, *args: Any) -> Any: ...
    def ir(self, level: str) -> str: ...


def target_for(level: str | None, target: str) -> str:
    """The target to compile for: with `--ir cuda` and target "auto" the first CUDA target."""
    rows = (name for name, gpu in GPUS.items() if gpu.language == level)
    return next(rows, target) if target == "auto" else target


def device_name(options: Options) -> str:
    """The device on which a program's tensors have to be for these options."""
    return str(driver.device_of(find_target(options.target), options.simulate))


def compile_source(source: Source, options: Options) -> Compiled:
    """Compiles a program for its own arguments, without running it.

    WeftError with the program's place if weft fails; SourceError if eager does as well.
    """
    compiled = weft.compile(source.callable, **source.freed(options))
    try:
        with torch.set_grad_enabled(source.wants_grad):
            compiled.prepare(*source.args, **source.kwargs)
    except WeftError as error:
        error.where = error.where or program_place(source.file)
        raise
    except Exception:
        run_eager(source)  # the program's own mistake is a SourceError with its line
        raise
    return compiled


def compile_ir(program: IrText, options: Options) -> driver.TextProgram:
    return driver.compile_text(program.text, options, program.title)


def compile_program(program: Source | IrText, options: Options) -> Compiled:
    if isinstance(program, IrText):
        return compile_ir(program, options)
    return compile_source(program, options)


def text_as_source(program: IrText, compiled: driver.TextProgram, seed: int) -> Source:
    """IR text with random inputs of the types that it declares, from the seed."""
    torch.manual_seed(seed)
    args = tuple(random_input(dtype, shape) for _, dtype, shape in compiled.inputs)
    return Source(compiled, args, {}, program.title, file=program.title)


def random_input(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    element = TORCH_DTYPES[choice("dtype", dtype, TORCH_DTYPES)]
    if element.is_floating_point:
        return torch.randn(shape, dtype=torch.float64).to(element)
    return torch.randint(0, 2, shape).to(element)  # small enough to be an index
