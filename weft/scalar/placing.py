"""Places the terms of a nest: each in the outermost block that binds what it depends on.

place(kernel.body)      # the same block with a Let before the first use of each term
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile

from weft.core.errors import VerifyError
from weft.core.node import Node, bottom_up
from weft.scalar import nest
from weft.scalar.nest import Block, Buffer, For, Let, Stmt, Update, free_variables, walk

Inline = Callable[[Node], bool]  # whether a term is written where it is used


class _Placer:
    """Builds the placed form: one frame per open block, innermost last."""

    def __init__(self, inline: Inline, partial: bool) -> None:
        self.inline, self.partial = inline, partial
        self.blocks: list[list[Stmt]] = []
        self.loops: list[int] = []  # serial number of the loop each frame belongs to
        self.bound: list[set[Node]] = []  # terms with a Let in each frame
        self.depth: dict[Node, int] = {}  # axis or accumulator -> frame that binds it
        self.written: dict[Buffer, list[int]] = {}  # local buffer -> loops around its last store
        self.reads: dict[Node, frozenset[Buffer | Node]] = {}  # what a store or an update changes
        self.serial = 0

    def block(self, stmts: Block, variable: Node | None = None) -> Block:
        self.serial += 1
        self.blocks.append([])
        self.bound.append(set())
        self.loops.append(self.serial)
        if variable is not None:
            self.depth[variable] = len(self.blocks) - 1
            for stmt in walk(stmts):  # a load may read what an earlier iteration stored
                self._wrote(getattr(stmt, "buffer", None))
        for stmt in stmts:
            self.statement(stmt)
        self.bound.pop()
        self.loops.pop()
        return tuple(self.blocks.pop())

    def statement(self, stmt: Stmt) -> None:
        memo: dict[Node, int] = {}
        for term in stmt.terms():
            bottom_up(term, memo, lambda t: self._place(t, memo))
        here = len(self.blocks) - 1
        if isinstance(stmt, For):
            stmt = replace(stmt, body=self.block(stmt.body, stmt.axis))
            for fold in stmt.folds:
                self.depth.update(dict.fromkeys(fold.accs, here))
        elif isinstance(stmt, Update):
            self.depth.update(dict.fromkeys(stmt.fold.running, here))
            self._changed(*stmt.fold.running)
        else:
            self._wrote(getattr(stmt, "buffer", None))
        self.blocks[here].append(stmt)

    def _wrote(self, buffer: Buffer | None) -> None:
        if buffer is not None and buffer.space != "global":
            self.written[buffer] = list(self.loops)
            self._changed(buffer)

    def _changed(self, *parts: Buffer | Node) -> None:
        """Forget the Lets that read a buffer or a running value: a change makes them stale."""
        for bound in self.bound:
            bound.difference_update([t for t in bound if not self._reads(t).isdisjoint(parts)])

    def _reads(self, term: Node) -> frozenset[Buffer | Node]:
        """The local buffers and the variables that a term reads."""

        def compute(node: Node) -> frozenset[Buffer | Node]:
            own: Buffer | None = getattr(node.op, "buffer", None)
            mine = () if own is None or own.space == "global" else (own,)
            return free_variables(node).union(mine, *(self.reads[a] for a in node.args))

        return bottom_up(term, self.reads, compute)

    def _place(self, term: Node, memo: dict[Node, int]) -> int:
        """Place a term, whose subterms are; return the depth of its block."""
        if nest.is_atom(term):
            if term not in self.depth and not self.partial and nest.is_variable(term):
                raise VerifyError(f"{getattr(term.op, 'label', term.op)} is used outside its loop")
            return self.depth.get(term, 0)
        depth = max((memo[a] for a in term.args), default=0)
        if hasattr(term.op, "buffer"):
            depth = max(depth, self._visible(term.op.buffer))  # type: ignore[attr-defined]
        if not self.inline(term) and not any(term in b for b in self.bound[: depth + 1]):
            self.bound[depth].add(term)
            self.blocks[depth].append(Let(term))
        return depth

    def _visible(self, buffer: Buffer) -> int:
        """Least depth of a load of the buffer: the innermost loop shared with its last store."""
        pairs = zip(self.written.get(buffer, []), self.loops, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return max(shared - 1, 0)


def place(block: Block, inline: Inline = lambda t: False, partial: bool = False) -> Block:
    """The placed form of a block: a Let for each term, in the outermost block that binds it.

    Terms for which `inline` holds get no Let: they are written where they are used. A `partial`
    block may use variables that loops around it bind. VerifyError for any other unbound variable.
    """
    return _Placer(inline, partial).block(block)
