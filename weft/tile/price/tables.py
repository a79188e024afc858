"""How large the table is that a scatter folds values into, so that it stays in fast memory.

tables(1000, 768, CPUS["avx2"])     # (1000, 128): 128 columns of all rows at a time
"""

from typing import Any

from weft.scalar.sizes import Size, hint
from weft.targets.machine import Machine

CACHED = 1 << 17  # elements of a table that stays in a CPU's cache
LEAST = 16  # columns, so that rows are read by whole vectors


def tables(rows: Any, columns: Any, target: Machine) -> tuple[Any, Any]:
    """Rows and columns of a table: all rows, and columns that divide, where memory allows.

    It has numbers of both where memory is short, all columns of any size where it is not.
    """
    most = target.table_elements
    if most is None and isinstance(columns, Size):
        return rows, columns
    wide = max(LEAST, CACHED // hint(rows)) if most is None else 2 * LEAST
    width = max(d for d in range(1, min(hint(columns), wide) + 1) if columns % d == 0)
    if most is None:
        return rows, width
    return most // width if isinstance(rows, Size) else min(rows, most // width), width
