"""The report of a simulation: faults, and the cost of each access, by line of the kernel.

report.faults                   # (Fault(kind='race', line=12, ...), ...)
report.accesses                 # (Access(line=9, space='shared', per_request=32.0, ideal=1.0), ...)
print(report)                   # both as a table
"""

from dataclasses import dataclass

UNITS = {"global": "sectors", "shared": "wavefronts"}


@dataclass(frozen=True)
class Fault:
    """Something the kernel must not do; `other_line` is the other half of a race."""

    kind: str
    line: int
    text: str
    message: str
    block: tuple[int, int, int]
    thread: int
    count: int
    other_line: int | None = None

    def __str__(self) -> str:
        times = f", {self.count} times" if self.count > 1 else ""
        block = ",".join(map(str, self.block))
        return (
            f"line {self.line}: {self.message} (block {block}, thread {self.thread}{times})\n"
            f"    {self.text}"
        )


@dataclass(frozen=True)
class Access:
    """One load, store, atomic or copy of a line: how many requests of a warp, at what cost.

    `transactions` are sectors of 32 bytes for global memory, wavefronts for shared memory; `ideal`
    is what the same bytes take when they are contiguous, or in banks of their own.
    """

    line: int
    text: str
    space: str
    kind: str
    bytes: int
    requests: int
    transactions: int
    ideal_transactions: int

    @property
    def per_request(self) -> float:
        return self.transactions / self.requests

    @property
    def ideal(self) -> float:
        return self.ideal_transactions / self.requests

    @property
    def conflicts(self) -> int:
        """Transactions beyond the ideal."""
        return self.transactions - self.ideal_transactions


@dataclass(frozen=True)
class SimReport:
    """All faults, each once per line, and all accesses in the order of the text."""

    faults: tuple[Fault, ...]
    accesses: tuple[Access, ...]

    def __str__(self) -> str:
        found = "\n".join(map(str, self.faults)) if self.faults else "no faults"
        return f"{found}\n\n{table(self.accesses)}"


def table(accesses: tuple[Access, ...]) -> str:
    """A row per access: what it costs a request, and what it would at best."""
    rows = [("line", "access", "bytes", "requests", "per request", "at best", "text")]
    for a in accesses:
        cost = f"{a.per_request:.4g} {UNITS[a.space]}"
        name = f"{a.space} {a.kind}"
        rows.append(
            (str(a.line), name, str(a.bytes), str(a.requests), cost, f"{a.ideal:.4g}", a.text)
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    )


def message(kind: str, where: str, offset: int, other: str) -> str:
    """The sentence of a fault; `other` says which line, of which thread, it collides with."""
    byte = f"byte {offset} of {where}"
    sentences = {
        "out of bounds": f"{byte} is out of bounds"
        if where
        else f"address {offset:#x} is in no buffer",
        "misaligned": f"{byte} is no multiple of the size of the access",
        "race": f"{other} touches {byte} as well, and nothing orders the two",
        "unwritten": f"{byte} in shared memory is read before anything wrote it",
        "async": f"{byte} belongs to a copy under way, started by {other}"
        if where
        else "the block ends while this is under way",
        "proxy": f"{byte} was written by {other}, with no fence for the copy engine behind it",
        "divergence": f"not all threads that must come here do: {other} does not",
        "hang": "this does not end",
        "crash": f"the thread dies here: {where}",
        "check": where,
        "usage": f"the {where} {offset} is not allowed here",
    }
    return sentences[kind]
