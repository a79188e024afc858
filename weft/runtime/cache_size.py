"""The size of the cache on disk, and the removal of its least recently used entries.

usage(root)                  # [Usage("programs", 12, 3_400_000), ...]
prune(root, most=8 << 30)    # the entries used least recently go
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PRUNED = "pruned"  # a file whose time is when the cache was looked through last
EVERY = 3600.0  # seconds between two looks
LEFT = 0.8  # of the limit, after entries were removed


@dataclass(frozen=True)
class Usage:
    """Entries of one kind, and their bytes."""

    kind: str
    entries: int
    bytes: int


@dataclass(frozen=True)
class Entry:
    folder: Path
    used: float  # when: seconds since the epoch
    bytes: int


def usage(root: Path) -> list[Usage]:
    """What each kind of entry takes; nothing where there is no cache."""
    kinds = sorted(p.name for p in root.iterdir() if p.is_dir()) if root.is_dir() else []
    found: list[Usage] = []
    for kind in kinds:
        entries = list(entries_of(root / kind))
        found.append(Usage(kind, len(entries), sum(e.bytes for e in entries)))
    return found


def clear(root: Path) -> None:
    """Remove every entry. Programs that are loaded go on."""
    for path in root.iterdir() if root.is_dir() else ():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


def prune_sometimes(root: Path, most: int) -> None:
    """`prune`, unless a process did within the last hour."""
    stamp = root / PRUNED
    with suppress(OSError):
        if time.time() - stamp.stat().st_mtime < EVERY:
            return
    with suppress(OSError):
        stamp.touch()
        prune(root, most)


def prune(root: Path, most: int) -> None:
    """Where entries hold more than `most` bytes, remove those used least recently."""
    entries = [e for kind in root.iterdir() if kind.is_dir() for e in entries_of(kind)]
    left = sum(e.bytes for e in entries)
    if left <= most:
        return
    for entry in sorted(entries, key=lambda e: e.used):
        if left <= LEFT * most:
            break
        shutil.rmtree(entry.folder, ignore_errors=True)
        left -= entry.bytes


def touch(folder: Path) -> None:
    """Note that an entry is used now."""
    with suppress(OSError):  # a cache that is only read
        os.utime(folder)


def entries_of(kind: Path) -> Iterator[Entry]:
    """The entries of a kind: folders two levels down, named by their hash."""
    for folder in kind.glob("??/*"):
        with suppress(OSError):  # another process has removed it
            size = sum(file.stat().st_size for file in folder.iterdir())
            yield Entry(folder, folder.stat().st_mtime, size)
