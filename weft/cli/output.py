"""What the command line prints: tables, progress, text for pipes.

with working("compiling"): ...          # a spinner after one second, on a terminal
show(table("kernels", ["name", "us"], [["relu", "1.2"]]))
"""

import json
import math
import re
import secrets
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from weft.core.errors import SourceError, WeftError

PIPE_WIDTH = 200  # columns where there is no terminal
SPINNER_AFTER = 1.0  # seconds


def console(stream: Any = None) -> Console:
    stream = sys.stdout if stream is None else stream
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Group:
    """A title and a table; columns of numbers are right-aligned."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(columns):
        numbers = all(is_number(row[i]) for row in rows)
        made.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    return Group(Text(title, style="bold"), made) if title else Group(made)


def is_number(cell: str) -> bool:
    return bool(re.fullmatch(r"-|inf|nan|wrong|failed|[\d.]+(e[-+]\d+)?", cell))


STYLES = {"ok": "green", "passed": "green", "FAILED": "bold red", "missing": "bold red"}


def show(*parts: Group | str) -> None:
    out = console()
    for part in parts:
        out.print(part, markup=False)


def write_text(text: str, path: str | None) -> None:
    """Writes text to stdout (None or "-") or to a file, in one step; SourceError if that fails."""
    text = text if text.endswith("\n") else text + "\n"
    if path is None or path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    target = Path(path)
    temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise SourceError(f"cannot write {path}: {error.strerror}") from None


def write_json(value: Any, path: str | None) -> None:
    write_text(json.dumps(plain(value), indent=2), path)


def plain(value: Any) -> Any:
    """Replaces NaN and infinities by None, as JSON has none of them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


def show_error(error: WeftError) -> None:
    """Prints an error's sentence and its place on stderr."""
    place = f"\n  at {error.where}" if error.where else ""
    sys.stderr.write(f"weft: {error.message}{place}\n")


@contextmanager
def working(message: str) -> Generator[None, None, None]:
    """Shows a spinner once the block takes longer than a second, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    status = console(sys.stderr).status(message)
    timer = threading.Timer(SPINNER_AFTER, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def number(value: float | None, how: str = ".3g") -> str:
    return "-" if value is None else format(value, how)


def microseconds(value: float | None) -> str:
    return number(value, ".2f" if value is not None and value < 100 else ".0f")


def milliseconds(value: float | None) -> str:
    return number(value, ".4f" if value is not None and value < 1 else ".2f")


def error_text(value: float | None) -> str:
    return number(value, ".1e")
