"""Which results that are stored into inputs need no memory of their own: the kernel writes there.

named = in_place(emitted, {3: 0})      # {"add_3": "weight"}: the result, the input
A kernel may where it reads each element of the input before it stores the result there, where
nothing reads the input later, and where nothing after its start can fail: then the input is whole.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from weft.core.node import Node, postorder
from weft.kernel.ops import VectorLoad, VectorStore
from weft.link.program import Emitted
from weft.scalar.blocks import combining
from weft.scalar.nest import Block, Buffer, Call, For, Kernel, Let, Load, Rows, Store, walk
from weft.scalar.ops import function_of
from weft.scalar.placing import place
from weft.scalar.repeat import Repeat, Row
from weft.scalar.resize import sizes_of
from weft.scalar.structure import is_checked


def in_place(emitted: Emitted, writes: Mapping[int, int]) -> dict[str, str]:
    """Results and the inputs that they are stored into; of a program for any size none.

    There a last block may compute some elements twice.
    """
    program, found = emitted.program, dict[str, str]()
    if not writes or sizes_of(program):
        return found
    names, steps = Counter(b.name for b in program.outputs), [*enumerate(program.steps)]
    made = {b: n for n, s in reversed(steps) for b in s.outputs}  # the first step that stores it
    read = {b.name: n for n, s in steps for b in s.inputs}  # the last step that does
    apart = Call, Repeat  # which may fail, or write a part at a time
    calls = (n for n, s in steps if isinstance(s, apart) or is_checked(_kernel(s).body))
    kernels = _Kernels(emitted)
    failing = max(calls, default=-1)  # the last step that can fail
    for i, target in writes.items():
        value, into = program.outputs[i], program.inputs[target]
        at = made.get(value, -1)
        if at <= failing or names[value.name] > 1 or into.name in names:
            continue
        same = value.type == into.type or value.type.layout == into.type.layout
        same = same and value.type.shape == into.type.shape and value.type.dtype is into.type.dtype
        distinct = 0 not in into.type.layout and into.name not in found.values()
        last = read.get(into.name, at) <= at
        if same and distinct and last and kernels.early(program.steps[at], value, into):
            found[value.name] = into.name
    return found


def _kernel(step: Any) -> Kernel:
    return step.kernel if isinstance(step, Rows) else step


class _Kernels:
    """Whether kernels, as they are emitted, read an element of an input before they store it.

    Not one that is handed an address within its inputs: elements have other numbers there. Of a
    kernel with rows the row that stores the value is alone to read the input.
    """

    def __init__(self, emitted: Emitted) -> None:
        self.emitted = emitted
        self.rows: dict[str, dict[str, Kernel | Row]] = {}  # of a step, by what they write
        self.reads: dict[str, Counter[str]] = {}  # how many of them read a buffer
        self.known: dict[tuple[Any, ...], bool] = {}

    def early(self, step: Any, value: Buffer, into: Buffer) -> bool:
        if step.name not in self.rows:
            rows = step.rows if isinstance(step, Rows) else (step,)
            self.rows[step.name] = {b.name: row for row in rows for b in row.outputs}
            self.reads[step.name] = Counter(n for row in rows for n in {b.name for b in row.inputs})
        own = self.rows[step.name][value.name]
        read = [n for n, b in enumerate(own.inputs) if b.name == into.name]
        if self.reads[step.name][into.name] > len(read[:1]) or len(read) > 1:
            return False
        key = step.name, own.outputs.index(value), *read
        if key not in self.known:
            self.known[key] = self._in_order(*key)
        return self.known[key]

    def _in_order(self, name: str, value: int, into: int | None = None) -> bool:
        final = self.emitted.bodies[name]
        if any(self.emitted.starts.get(name, ())) or any(combining(final.body)):
            return False
        if into is None:
            return True
        body, sides = place(final.body), (final.inputs[into], final.outputs[value])
        return _in_order(body, *sides) and not (sizes_of(final) and _cut(body))


def _cut(block: Block) -> bool:
    """Whether blocks may end early, or a last one start early: it computes elements twice."""
    ends = [t for s in walk(block) if isinstance(s, For) for t in (s.lo, s.hi)]
    ends += [s.index if isinstance(s, VectorStore) else s.index[0] for s in _stores(block)]
    return any(function_of(n) in ("minimum", "maximum") for n in postorder(*ends))


def _stores(block: Block) -> list[Any]:
    return [s for s in walk(block) if isinstance(s, Store | VectorStore)]


def _in_order(block: Block, read: Buffer, written: Buffer) -> bool:
    """Whether each element that a block reads goes into what the block stores there.

    So it is read first, in whatever order the C compiler has them: to that these are two buffers.
    A block computes a term once, where `place` has it.
    """
    inner = [stmt.body for stmt in block if isinstance(stmt, For)]
    loads = {stmt.term for stmt in block if isinstance(stmt, Let) and _reads(stmt.term, read)}
    stores = [s for s in block if isinstance(s, Store | VectorStore)]
    own = [s for s in stores if s.buffer.name == written.name]
    covered = {n for s in own for n in postorder(s.value) if n in loads and _loaded(n) == _place(s)}
    return loads == covered and all(_in_order(body, read, written) for body in inner)


def _reads(term: Node, read: Buffer) -> bool:
    return isinstance(term.op, Load | VectorLoad) and term.op.buffer.name == read.name


def _place(s: Store | VectorStore) -> Any:
    return (s.index, s.lanes, s.stride) if isinstance(s, VectorStore) else (s.index[0], 1, 1)


def _loaded(load: Node) -> Any:
    op, at = load.op, load.args[0]
    return (at, op.lanes, op.stride) if isinstance(op, VectorLoad) else (at, 1, 1)
