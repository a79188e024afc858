"""The text of a product by a warpgroup: its matrices are in shared memory, its sums in an array.

product(mma, "wgmma", "acc0", pointer)      # wgmma_bf16<128, false, true>(acc0, .. + 2 * k, ..);
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from weft.core.node import Node, op_of
from weft.kernel.ops import Matrix, Mma
from weft.scalar.nest import Buffer

STEP = 16  # of the depth that an instruction takes


def product(
    stmt: Mma, word: str, sums: str, pointer: Callable[[Buffer, Node], str]
) -> Iterator[str]:
    """By 16 of its depth at a time, and done when the next begins."""
    (left,), (right,) = stmt.left, stmt.right
    a, b = op_of(left, Matrix), op_of(right, Matrix)
    sides = ", ".join(_side(m, pointer(replace(m.buffer, swizzle=0), at), word)
                      for m, at in ((a, left.args[0]), (b, right.args[0])))  # fmt: skip
    ways = ", ".join(str(m.by_rows).lower() for m in (a, b))
    kind = f"{b.buffer.type.dtype}<{b.rows}, {ways}>"
    yield f"{word}_fence();"
    yield "#pragma unroll"
    yield f"for (i32 k = 0; k < {b.depth // STEP}; k++) {word}_{kind}({sums}, {sides});"
    yield f"{word}_commit();"
    yield f"{word}_wait<0>();"


def _side(matrix: Matrix, at: str, word: str) -> str:
    """Where the units find a step's part of a side: they undo the swizzle themselves."""
    swizzle, size = matrix.buffer.swizzle, matrix.buffer.type.dtype.bytes
    place = f"{word}_descriptor<{swizzle}>({at}, {size * matrix.leading}, {8 * swizzle})"
    step = (swizzle if matrix.by_rows else size) * STEP // 16  # descriptors count by 16 bytes
    return f"{place} + {step} * k"
