"""narrow_buffers: stores an intermediate in 16 bits where its values are rounded to 16 bits anyway.

before  y[a0] = round_bf16(v0)      after  y[a0] = bf16(v0)         # y: bf16, no output
        ... load y[a0]                     ... f32(load y[a0])

No value changes: half of the bytes move, and products of such buffers are of 16-bit matrices.
"""

from dataclasses import replace

from weft.core.node import Node, make
from weft.core.types import DType
from weft.scalar.blocks import map_each, nodes, rewrite_block
from weft.scalar.nest import Block, Buffer, Kernel, Load, Program, Store, walk
from weft.scalar.ops import CASTS, ROUNDS, apply, function_of, value_of

ROUNDED: dict[str | None, DType] = {str(f): d for d, f in ROUNDS.items() if d.bits == 16}
EXACT = (0.0, float("inf"), float("-inf"))  # in 16 bits


def narrow_buffers(program: Program) -> Program:
    """Narrow every buffer between kernels that only rounded values are stored to."""
    fixed = {b.name for b in (*program.inputs, *program.outputs)}
    plain = [s for s in program.steps if isinstance(s, Kernel)]
    others = [s for s in (*program.steps, *program.each) if s not in plain]
    fixed |= {b.name for s in others for b in (*s.inputs, *s.outputs)}
    found: dict[str, set[DType | None]] = {}
    for kernel in program.kernels:
        for stmt in walk(kernel.body):
            if isinstance(stmt, Store) and stmt.buffer.space == "global":
                rounded = None if stmt.combines else ROUNDED.get(function_of(stmt.value))
                found.setdefault(stmt.buffer.name, set()).add(rounded)
        for node in nodes(kernel.body):
            op = node.op
            if isinstance(op, Load) and op.masked and value_of(node.args[-1]) not in EXACT:
                fixed.add(op.buffer.name)
    narrow = {n: d for n, (d, *more) in found.items() if d and not more and n not in fixed}
    return program.map_kernels("loop", lambda k: _over(k, narrow)) if narrow else program


def _over(kernel: Kernel, narrow: dict[str, DType]) -> Kernel:
    def other(b: Buffer) -> Buffer:
        known = b.space == "global" and b.name in narrow
        return replace(b, type=replace(b.type, dtype=narrow[b.name])) if known else b

    def load(node: Node) -> Node | None:
        if not isinstance(node.op, Load) or other(node.op.buffer) is node.op.buffer:
            return None
        buffer, args = other(node.op.buffer), list(node.args)
        if node.op.masked:
            args[-1] = apply(CASTS[buffer.type.dtype], args[-1])
        return apply(CASTS[node.type.dtype], make(replace(node.op, buffer=buffer), *args))

    def store(stmt: Store) -> Store:
        if other(stmt.buffer) is stmt.buffer:
            return stmt
        buffer = other(stmt.buffer)
        value = apply(CASTS[buffer.type.dtype], stmt.value.args[0])
        return replace(stmt, buffer=buffer, value=value)

    body: Block = map_each(rewrite_block(kernel.body, load), Store, store)
    inputs, outputs = (tuple(map(other, bs)) for bs in (kernel.inputs, kernel.outputs))
    return replace(kernel, inputs=inputs, outputs=outputs, body=body)
