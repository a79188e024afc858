"""Runs a GPU program in the simulator: its kernels in order, over copies of the tensors.

run = link(emitted, GPUS["cuda:sm_90a"], {})
results = run(tensors)
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from weft.core.errors import WeftError
from weft.emit.gpu import Launch
from weft.interpret.memory import as_array, as_tensor
from weft.link.program import Emitted
from weft.runtime.sizes import value
from weft.scalar.nest import Buffer, Call, Rows
from weft.scalar.ops import constant
from weft.scalar.resize import with_sizes
from weft.sim import TensorMap, simulate
from weft.sim.launch import Argument
from weft.targets.gpu import GPU

SECONDS = 600  # after which a kernel counts as one that does not end


def link(
    emitted: Emitted, target: GPU, writes: Mapping[int, int]
) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    """Runs the program on tensors; `writes` says which outputs go into which inputs.

    WeftError for a fault, and for a library call: no device is there to run it on.
    """

    def run(tensors: Sequence[Any]) -> list[torch.Tensor]:
        labels = [n.op.label for n in emitted.sizes]  # type: ignore[attr-defined]
        numbers = tensors[len(emitted.program.inputs) :]
        known = dict(zip(labels, numbers, strict=True))
        literal = {n: constant(size) for n, size in zip(emitted.sizes, numbers, strict=True)}
        program = with_sizes(emitted.program, literal)
        memory = {b.name: memory_of(t, b) for b, t in zip(program.inputs, tensors, strict=False)}
        for step in program.steps:
            if isinstance(step, Call):
                told = f"{step.target} is a library call: the simulator runs kernels alone"
                raise WeftError(told)
            for b in step.outputs:  # or what an earlier step wrote, to combine values with
                new = np.zeros(max(1, b.type.span), b.type.dtype.word.numpy)
                memory.setdefault(b.name, new)
            symbol = emitted.symbols[step.name]
            launch = emitted.launches[symbol]
            given = step.operands if isinstance(step, Rows) else (*step.inputs, *step.outputs)
            operands = [memory[b.name] for b in given]
            args = arguments(operands, launch, [known[label] for label in launch.sizes])
            where = symbol, value(launch.grid, known), launch.block
            facts = launch.dynamic_bytes, target.arch, target.warp
            report = simulate(launch.source, *where, args, *facts, seconds=SECONDS)
            if report.faults:
                raise WeftError(f"kernel {step.name} has faults in the simulator:\n{report}")
        outputs = [tensor_of(memory[b.name], b) for b in program.outputs]
        for i, into in writes.items():
            tensors[into].copy_(outputs[i])
        return [out for i, out in enumerate(outputs) if i not in writes]

    return run


def arguments(
    memory: Sequence[np.ndarray], launch: Launch, sizes: Sequence[int] = ()
) -> list[Argument]:
    """The arguments of a kernel: its operands' memory, sizes, tensor maps, and the fault flag."""
    maps: list[TensorMap] = []
    for m in launch.maps:
        whole = memory[m.operand]
        tensor = np.ndarray(m.sizes, whole.dtype, whole, 0, m.strides)
        maps.append(TensorMap(tensor, m.sides, m.swizzle))
    return [*memory, *map(np.int64, sizes), *maps, *[np.zeros(1, np.int32)] * launch.faults]


def memory_of(tensor: torch.Tensor, buffer: Buffer) -> np.ndarray:
    """A copy of a tensor's memory in the buffer's strides, which may make elements overlap."""
    span = buffer.type.span if tensor.numel() else 0
    own = torch.zeros(max(1, span), dtype=tensor.dtype)
    own[:span] = tensor.detach().as_strided((span,), (1,))
    return as_array(own)


def tensor_of(array: np.ndarray, buffer: Buffer) -> torch.Tensor:
    """The buffer's elements as a tensor."""
    return as_tensor(array).as_strided(buffer.type.shape, buffer.type.layout)
