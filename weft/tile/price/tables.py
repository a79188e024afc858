"""How large the table is that a scatter folds values into, so that it stays in fast memory.

tables(1000, 768, CPUS["avx2"])     # (1000, 128): 128 columns of all rows at a time
"""

from weft.targets.machine import Machine

CACHED = 1 << 17  # elements of a table that stays in a CPU's cache
LEAST = 16  # columns, so that rows are read by whole vectors


def tables(rows: int, columns: int, target: Machine) -> tuple[int, int]:
    """Rows and columns of a table: all rows, and columns that divide, where memory allows."""
    most = target.table_elements
    wide = max(LEAST, CACHED // rows) if most is None else 2 * LEAST
    width = max(d for d in range(1, min(columns, wide) + 1) if columns % d == 0)
    return (rows if most is None else min(rows, most // width)), width
