"""Which results that are stored into inputs need no memory of their own: the kernel writes there.

named = in_place(emitted, {3: 0})      # {"add_3": "weight"}: the result, the input
A kernel may where it reads each element of the input before it stores the result there, where
nothing reads the input later, and where nothing after its start can fail: then the input is whole.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from weft.core.node import Node, postorder
from weft.kernel.ops import VectorLoad, VectorStore
from weft.link.program import Emitted
from weft.scalar.blocks import combining
from weft.scalar.nest import Block, Buffer, For, Kernel, Load, Stmt, Store
from weft.scalar.resize import sizes_of
from weft.scalar.structure import is_checked


def in_place(emitted: Emitted, writes: Mapping[int, int]) -> dict[str, str]:
    """Results and the inputs that they are stored into; of a program for any size none.

    There a last block may compute some elements twice.
    """
    program, found = emitted.program, dict[str, str]()
    names = [b.name for b in program.outputs]
    for i, target in writes.items():
        value, into = program.outputs[i], program.inputs[target]
        at = next((n for n, s in enumerate(program.steps) if value in s.outputs), None)
        if at is None or names.count(value.name) > 1 or into.name in names or sizes_of(program):
            continue
        same = value.type == into.type or value.type.layout == into.type.layout
        same = same and value.type.shape == into.type.shape and value.type.dtype is into.type.dtype
        rest = program.steps[at:]
        kernels = [s for s in rest if isinstance(s, Kernel) and not is_checked(s.body)]
        alone = not any(into.name in (b.name for b in s.inputs) for s in rest[1:])
        distinct = 0 not in into.type.layout and into.name not in found.values()
        if same and alone and distinct and len(kernels) == len(rest):
            found |= {value.name: into.name} if _early(kernels[0], value, into, emitted) else {}
    return found


def _early(kernel: Kernel, value: Buffer, into: Buffer, emitted: Emitted) -> bool:
    """Whether the kernel, as it is emitted, reads an element of `into` before it stores it.

    Not one that is handed an address within its inputs: elements have other numbers there.
    """
    final = emitted.bodies[kernel.name]
    written = final.outputs[[b.name for b in kernel.outputs].index(value.name)]
    places = [n for n, b in enumerate(kernel.inputs) if b.name == into.name]
    read = [final.inputs[n] for n in places]
    if any(emitted.starts.get(kernel.name, ())) or any(combining(final.body)) or len(read) > 1:
        return False
    return not read or _in_order(final.body, read[0], written)


def _in_order(block: Block, read: Buffer, written: Buffer) -> bool:
    """Whether each load is met in a block that stores its element, by then or further down.

    A block computes a term once, where it is first needed.
    """
    inner = [stmt.body for stmt in block if isinstance(stmt, For)]
    if not all(_in_order(body, read, written) for body in inner):
        return False
    met: dict[Node, int] = {}
    last: dict[Any, int] = {}  # the statement that stores an element
    for n, stmt in enumerate(block):
        for load in _loads(stmt, read):
            met.setdefault(load, n)
        last.update((element, n) for element in _stored(stmt, written))
    return all(last.get(_loaded(load), -1) >= n for load, n in met.items())


def _stored(stmt: Stmt, written: Buffer) -> Iterator[Any]:
    if isinstance(stmt, Store | VectorStore) and stmt.buffer.name == written.name:
        vector = isinstance(stmt, VectorStore)
        index = stmt.index if vector else stmt.index[0]
        yield (index, stmt.lanes, stmt.stride) if vector else (index, 1, 1)


def _loads(stmt: Stmt, read: Buffer) -> Iterator[Node]:
    """The loads among a statement's own terms."""
    for node in postorder(*stmt.terms()):
        if isinstance(node.op, Load | VectorLoad) and node.op.buffer.name == read.name:
            yield node


def _loaded(load: Node) -> Any:
    op, at = load.op, load.args[0]
    return (at, op.lanes, op.stride) if isinstance(op, VectorLoad) else (at, 1, 1)
