"""Runs printed Triton files in a process of its own: interpreted, or compiled to cubins.

with Worker("interpret") as worker:
    worker(text, [x, w])      # what run(x, w) returns
with Worker("compile") as worker:
    worker(text, [x, w])      # bytes of each kernel's cubin for sm_90, and its TTIR: no GPU needed
Triton decides when it is imported whether it interprets, so this is a child with TRITON_INTERPRET.
What the interpreter lacks is put in its place here: functions of libdevice, products of bf16,
subnormal numbers of bf16, which it takes for 0 or another number, and assertions.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent.parent
Cubin = tuple[int, str]


def missing() -> str | None:
    """What is not installed that running needs; None if all is there."""
    return None if find_spec("triton") else "triton is not installed (pip install 'weft[triton]')"


class Worker:
    """A child that runs one file after another; RuntimeError with what one raised there."""

    def __init__(self, how: str) -> None:
        environment = {**os.environ, "TRITON_INTERPRET": str(int(how == "interpret"))}
        self.folder = tempfile.TemporaryDirectory()
        environment |= {"TRITON_CACHE_DIR": self.folder.name, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-W", "ignore", "-m", "tests.export.triton_worker", how]
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment
        )

    def __call__(self, text: str, inputs: Sequence[torch.Tensor]) -> Any:
        assert self.child.stdin is not None and self.child.stdout is not None
        pickle.dump((text, list(inputs)), self.child.stdin)
        self.child.stdin.flush()
        fine, result = pickle.load(self.child.stdout)
        if not fine:
            raise RuntimeError(result)
        return result

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.communicate()
        self.folder.cleanup()


def loaded(text: str, folder: str, number: int) -> ModuleType:
    """The file as a module: Triton reads the source of its functions."""
    path = Path(folder) / f"printed_{number}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def interpret(module: ModuleType, inputs: Sequence[torch.Tensor]) -> Any:
    return module.run(*inputs) if inputs else module.run(device="cpu")


def quicken_interpreter() -> None:
    """Folds by a function of the file, which Triton interprets element by element, in log2 n steps.

    As on a GPU, the two halves of a dimension are combined; sizes are powers of two.
    """
    from triton.runtime.interpreter import ReduceOps, ScanOps

    def halves(self: Any, *sides: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = [
            self.to_tensor(a, d) for side in sides for a, d in zip(side, self.dtypes, strict=True)
        ]
        out = self.combine_fn.fn(*given)
        return [o.handle.data for o in (out if isinstance(out, tuple) else (out,))]

    def arrays_of(self: Any, input: Any) -> list[np.ndarray]:
        self.dtypes = [x.dtype for x in input]
        return [np.moveaxis(x.handle.data, self.axis, 0) for x in input]

    def reduce(self: Any, input: Any) -> list[Any]:
        arrays = arrays_of(self, input)
        while (count := len(arrays[0]) // 2) > 0:
            arrays = halves(self, [a[:count] for a in arrays], [a[count:] for a in arrays])
        return [self.to_tensor(a[0], d) for a, d in zip(arrays, self.dtypes, strict=True)]

    def scan(self: Any, input: Any) -> list[Any]:
        arrays, step = [a.copy() for a in arrays_of(self, input)], 1
        while step < len(arrays[0]):
            made = halves(self, [np.roll(a, step, 0) for a in arrays], arrays)
            for a, m in zip(arrays, made, strict=True):
                a[step:] = m[step:]
            step *= 2
        moved = (np.moveaxis(a, 0, self.axis) for a in arrays)
        return [self.to_tensor(a, d) for a, d in zip(moved, self.dtypes, strict=True)]

    setattr(ReduceOps, "generic_reduce", reduce)  # noqa: B010
    setattr(ScanOps, "generic_scan", scan)  # noqa: B010


def complete_interpreter() -> None:
    """A tl.dot of bf16 as one of f32, whose products are the same; assertions."""
    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, tl

    # Assertions hold, as they do where run() launches with debug=True.
    options = interpreter.InterpreterOptions(debug=True, sanitize_overflow=False)
    interpreter.interpreter_builder.options = options
    dot = InterpreterBuilder.create_dot

    def wide(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        words = np.ascontiguousarray(x.data).astype(np.uint32) << 16
        return TensorHandle(words.view(np.float32), tl.float32)

    def product(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(self, wide(a), wide(b), *rest)

    setattr(InterpreterBuilder, "create_dot", product)  # noqa: B010
    cast = InterpreterBuilder.cast_impl

    def convert(self: Any, x: Any, to: Any) -> Any:
        exact = x.dtype.scalar == tl.bfloat16 and to.scalar == tl.float32
        return wide(x) if exact else cast(self, x, to)

    setattr(InterpreterBuilder, "cast_impl", convert)  # noqa: B010


def complete_libdevice() -> None:
    """Its functions by torch's."""
    from triton.language.extra import libdevice
    from triton.runtime import interpreter
    from triton.runtime.interpreter import TensorHandle, tl

    special = {
        **{name: getattr(torch, name) for name in """expm1 log10 log1p tanh erfc lgamma tan asin
        acos atan sinh cosh trunc erfinv atan2 fmod pow""".split()},
        "rint": torch.round, "erfcx": torch.special.erfcx, "normcdfinv": torch.special.ndtri,
        "j0": torch.special.bessel_j0, "j1": torch.special.bessel_j1,
        "y0": torch.special.bessel_y0, "y1": torch.special.bessel_y1,
        "cyl_bessel_i0": torch.special.modified_bessel_i0,
        "cyl_bessel_i1": torch.special.modified_bessel_i1,
    }  # fmt: skip

    def by_torch(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            tensors: list[Any] = [interpreter.interpreter_semantic.to_tensor(a) for a in args]
            dtype = max((t.dtype for t in tensors), key=lambda d: d.primitive_bitwidth)
            arrays = [np.asarray(t.handle.data) for t in tensors]
            wanted = np.float64 if dtype.primitive_bitwidth == 64 else np.float32
            shape = np.broadcast_shapes(*(t.shape or () for t in tensors))
            full = [np.broadcast_to(a.astype(wanted).reshape(t.shape or ()) , shape)
                    for a, t in zip(arrays, tensors, strict=True)]  # fmt: skip
            out = function(*(torch.from_numpy(np.array(a)) for a in full)).numpy()
            made = tl.block_type(dtype, list(shape)) if shape else dtype
            return tl.tensor(TensorHandle(out if shape else out.reshape(1), dtype), made)

        return call

    for name, function in special.items():
        setattr(libdevice, name, by_torch(function))


class Compiled:
    """A kernel that is compiled where it would be launched."""

    def __init__(self, function: Any, made: list[Cubin]) -> None:
        self.function, self.made = function, made

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self.launch

    def launch(self, *args: torch.Tensor, **options: Any) -> None:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
        from triton.runtime.jit import mangle_type

        types = dict(zip(self.function.arg_names, map(mangle_type, args), strict=True))
        source = ASTSource(self.function, types, {})
        found = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        self.made.append((len(found.asm["cubin"]), str(found.asm["ttir"])))


def compile_all(module: ModuleType, inputs: Sequence[torch.Tensor]) -> list[Cubin]:
    made: list[Cubin] = []
    for name, value in [*vars(module).items()]:
        if name.endswith("_kernel") or "_kernel_" in name:
            setattr(module, name, Compiled(value, made))
    interpret(module, inputs)
    return made


def main(how: str) -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed here is no reply
    if how == "interpret":
        complete_interpreter()
        complete_libdevice()
        quicken_interpreter()
    with tempfile.TemporaryDirectory() as folder:
        number = 0
        while True:
            try:
                text, inputs = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            number += 1
            try:
                module = loaded(text, folder, number)
                reply = True, (interpret if how == "interpret" else compile_all)(module, inputs)
            except BaseException as error:
                told = error.__cause__ if error.__cause__ is not None else error
                reply = False, f"{type(error).__name__}: {error} {told}"[-1500:]
            pickle.dump(reply, replies)
            replies.flush()


if __name__ == "__main__":
    main(sys.argv[1])
