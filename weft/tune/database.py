"""What tuning found: a file of JSON lines in the cache, one for each kernel and machine.

database = Database(config.cache / "tuned.jsonl")
database.add([Row(key, "softmax", "cpu", {"vectors": "4"}, 9.1, us=7.4, tried=12, when=now)])
database.find(key)          # that row, in this process or a later one; None for another kernel

A kernel's key has its text at the loop level, with the names of buffers left out, the machine, and
the files of weft that schedule it: what another version found does not count. A program's has its
text at the tensor level, and the files that fuse it as well. Lines of two files can be put
together: of several for one key the latest counts, or the latest that was measured.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

from weft.core.errors import CacheError, WeftError
from weft.core.node import Graph
from weft.scalar.nest import Kernel
from weft.scalar.resize import sizes_of
from weft.scalar.structure import substituted
from weft.scalar.text.printer import show_kernel
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU
from weft.text import print_program

DECIDERS = ("scalar", "tile", "kernel", "emit", "runtime/weft_vector.h", "runtime/compiler.py")
FUSING = ("tensor", "loop", *DECIDERS)
PRICING = ("tune/price", "targets")


@dataclass(frozen=True)
class Row:
    """A kernel's decisions, none where the default is best; its microseconds before and after.

    Or those of a whole program, which decide what kernels it has.
    """

    key: str
    kernel: str
    target: str
    decisions: Mapping[str, str]
    default_us: float
    us: float
    tried: int  # candidates
    when: str  # in ISO 8601, so that later ones compare greater
    predicted: bool = False  # with no device, by the exact price; what is measured goes before it
    price: str = ""  # a digest of the price that predicted: another one's row is stale
    small: bool = False  # took little of a program's time, and was not searched
    whole: bool = False  # a program's, whose time is that of all its kernels


class Database:
    """The rows of one file, read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: tuple[int, int] | None = None
        self.known: dict[str, Row] = {}

    def rows(self) -> dict[str, Row]:
        """The latest row of each key; a line that is none is passed over."""
        try:
            found = self.path.stat()
        except OSError:
            self.seen, self.known = None, {}
            return self.known
        stamp = found.st_mtime_ns, found.st_size
        if stamp != self.seen:
            self.seen, self.known = stamp, latest(read_rows(self.path))
        return self.known

    def find(self, key: str) -> Row | None:
        row = self.rows().get(key)
        return row if row is not None and is_fresh(row) else None

    def digest(self) -> str:
        """Of all decisions: programs that were compiled by others are compiled again."""
        rows = {key: row for key, row in self.rows().items() if row.decisions and is_fresh(row)}
        decided = {key: row.decisions for key, row in rows.items()}
        return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()[:16]

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows, each as one write."""
        text = "".join(json.dumps(asdict(row)) + "\n" for row in rows)
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(text)
        except OSError as error:
            raise CacheError(f"cannot write {self.path}: {error.strerror}") from error

    def forget(self, part: str) -> int:
        """Remove the rows of kernels whose name has that part; how many there were."""
        rows = self.rows()
        kept = [row for row in rows.values() if part not in row.kernel]
        other = self.path.with_suffix(f".{os.getpid()}")
        with suppress(FileNotFoundError):
            Database(other).add(kept)
            os.replace(other, self.path)
        return len(rows) - len(kept)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; WeftError where it cannot be read."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise WeftError(f"{path}: {error.strerror}") from None
    found: list[Row] = []
    for line in lines:
        with suppress(ValueError, TypeError):  # torn by a crash
            found.append(Row(**json.loads(line)))
    return found


def latest(rows: Iterable[Row]) -> dict[str, Row]:
    """By key the last measured row, else the last one by the price as it is, else the last."""
    counts = sorted(rows, key=lambda row: (not row.predicted, is_fresh(row), row.when))
    return {row.key: row for row in counts}


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def is_fresh(row: Row) -> bool:
    """Whether a row was measured, or predicted by the price as it is."""
    return not row.predicted or row.price == digest_of(PRICING)


@cache
def digest_of(names: tuple[str, ...]) -> str:
    """A digest of files of weft, such as those that decide what a kernel becomes."""
    root = Path(__file__).parent.parent
    found = [p for name in names for p in sorted((root / name).rglob("*.py")) or [root / name]]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in found)).hexdigest()


def program_key(graph: Graph, target: CPU | GPU) -> str:
    """A digest of a graph at the tensor level, with its names, which decisions have as well."""
    sizes = [node.op for node in sizes_of(graph).values()]
    text = print_program(replace(graph, name="program"))
    parts = text, repr(sizes), repr(target), digest_of(FUSING)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def kernel_key(kernel: Kernel, target: CPU | GPU) -> str:
    """A digest of a kernel at the loop level, whatever it and its buffers are called."""
    buffers = dict.fromkeys((*kernel.inputs, *kernel.outputs))
    others = {b: replace(b, name=f"b{i}") for i, b in enumerate(buffers)}
    plain = replace(substituted(kernel, others), name="kernel", origin=())
    sizes = [node.op for node in sizes_of(kernel).values()]
    parts = (*show_kernel(plain), repr(sizes), repr(target), digest_of(DECIDERS))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
