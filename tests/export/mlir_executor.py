"""Runs MLIR text by tools that are not ours: mlir-opt lowers it to LLVM, llvmlite compiles that.

run(program, [x, w])      # the loop-level program through to_mlir; its outputs, in order
verifiers()               # mlir-opt's own, and that of the bindings in jaxlib's wheel
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from weft.export.mlir import parameters, to_mlir
from weft.interpret.memory import Memory, allocate, logical, run_call
from weft.scalar import nest
from weft.scalar.nest import Call, Program
from weft.scalar.resize import at_shapes, sizes_in
from weft.scalar.rows import expanded

PASSES = """expand-strided-metadata lower-affine func.func(llvm-request-c-wrappers)
convert-scf-to-cf memref-expand arith-expand{include-bf16=true} convert-math-to-llvm
convert-math-to-libm finalize-memref-to-llvm convert-arith-to-llvm convert-index-to-llvm
convert-func-to-llvm convert-cf-to-llvm reconcile-unrealized-casts""".split()


def tool(name: str) -> str | None:
    """The newest of LLVM's tools of that name, as Debian calls them: mlir-opt-22, or mlir-opt."""
    folders = [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p]
    numbered = [p.name for f in folders for p in f.glob(f"{name}-[0-9]*")]
    newest = sorted(numbered, key=lambda n: int(re.sub(r"\D", "", n) or 0))[-1:]
    return next((found for n in (*newest, name) if (found := shutil.which(n))), None)


def missing() -> str | None:
    """What is not installed that running needs; None if all is there."""
    if tool("mlir-opt") is None or tool("mlir-translate") is None:
        return "mlir-opt and mlir-translate are not installed (Debian: mlir-22-tools)"
    return None if find_spec("llvmlite") else "llvmlite is not installed"


def through(command: Sequence[str], text: str) -> str:
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    if done.returncode:
        raise ValueError(f"{Path(command[0]).name}: {done.stderr[:2000]}")
    return done.stdout


def verify_by_tool(text: str) -> None:
    through([tool("mlir-opt") or "", "--verify-each", "-o", os.devnull], text)


def verify_by_bindings(text: str) -> None:
    from jax._src.interpreters import mlir as bindings
    from jaxlib.mlir import ir

    with bindings.make_ir_context():
        try:
            ir.Module.parse(text).operation.verify()
        except ir.MLIRError as error:
            raise ValueError(str(error)) from error


def verifiers() -> Iterator[Callable[[str], None]]:
    """Those that are installed: each raises ValueError unless MLIR accepts the text."""
    if tool("mlir-opt") is not None:
        yield verify_by_tool
    if find_spec("jaxlib") is not None:
        yield verify_by_bindings


def to_llvm(text: str) -> str:
    """The text in LLVM's own language."""
    opt, translate = tool("mlir-opt"), tool("mlir-translate")
    assert opt is not None and translate is not None
    lowered = through([opt, f"--pass-pipeline=builtin.module({','.join(PASSES)})"], text)
    return through([translate, "--mlir-to-llvmir"], lowered)


def descriptor(data: np.ndarray, shape: Sequence[int], strides: Sequence[int]) -> Any:
    """What a memref is in memory: two pointers, an offset, sizes and strides."""
    at, rank = data.ctypes.data, len(shape)
    return (ctypes.c_int64 * (3 + 2 * rank))(at, at, 0, *shape, *strides)


def array_of(words: int, buffer: nest.Buffer) -> Memory:
    """The memory that a descriptor at an address has, as an array of the buffer's span."""
    pointer, offset = ctypes.cast(words, ctypes.POINTER(ctypes.c_int64))[1:3]
    dtype = buffer.type.dtype.numpy
    size = max(1, buffer.type.span)
    raw = (ctypes.c_char * (size * dtype.itemsize)).from_address(pointer + offset * dtype.itemsize)
    return Memory(np.frombuffer(raw, dtype))


def external(call: Call, faults: list[BaseException]) -> Callable[..., None]:
    """A library call as a C function over descriptors."""

    def run(*words: int) -> None:
        try:
            buffers = (*call.inputs, *call.outputs)
            memory = {b.name: array_of(w, b) for b, w in zip(buffers, words, strict=True)}
            run_call(call, memory)
        except BaseException as error:  # no exception passes through C
            faults.append(error)

    return run


def run(program: Program, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Executes a loop-level program through MLIR and LLVM; its outputs, in order.

    One for any size is compiled as such, and called with the sizes of its inputs.
    """
    import llvmlite.binding as llvm

    shapes = [np.shape(x) for x in inputs]
    text, sizes = to_mlir(program), [*sizes_in(program, shapes).values()]
    program = at_shapes(expanded(program), shapes)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(to_llvm(text))
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    machine = target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=1, jit=True
    )
    faults, kept = list[BaseException](), list[Any]()
    calls = [s for s in program.steps if isinstance(s, Call)]
    with llvm.create_mcjit_compiler(module, machine) as engine:
        names = re.findall(r"declare void @(\"?_mlir_ciface_[^(]*)\(", str(module))
        for name, call in zip(names, calls, strict=True):
            count = len(call.inputs) + len(call.outputs)
            signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)
            kept.append(signature(external(call, faults)))
            address = ctypes.cast(kept[-1], ctypes.c_void_p).value
            engine.add_global_mapping(module.get_function(name.strip('"')), address)
        engine.finalize_object()
        memory = allocate(program, inputs, widen=False)
        buffers = parameters(program)
        given = [descriptor(memory[b.name].data, b.type.shape, b.type.layout) for b in buffers]
        pointers = [ctypes.c_void_p] * len(given)
        main = engine.get_function_address("_mlir_ciface_main")
        numbers = [ctypes.c_int64] * len(sizes)
        ctypes.CFUNCTYPE(None, *pointers, *numbers)(main)(*map(ctypes.addressof, given), *sizes)
    if faults:
        raise faults[0]
    return [np.array(logical(memory[b.name], b.type)) for b in program.outputs]
