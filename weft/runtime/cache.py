"""The cache on disk: objects, programs, captured graphs, each a folder that appears all at once.

cache = Cache(Path("~/.cache/weft").expanduser(), salt=compiler.identity)
cache.publish("my program", Path("built.so"), {"any": "json"})
path, manifest = cache.load("my program")      # in this process or a later one; None when absent
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from weft.config import config
from weft.core.errors import CacheError, CompilerError
from weft.runtime.cache_size import prune_sometimes, touch

VERSION = "2"  # raise it when the layout below, or what a manifest means, changes
STALE_SECONDS = 3600


class Cache:
    """Entries under `root`, addressed by the hash of their key and of `salt`.

    `salt` is what every entry depends on: the compiler, its flags, the processor, the headers. An
    entry is built in a folder of its own beside the others and renamed into place, so a reader
    never sees half of one. Of processes that want the same entry one builds it, under a lock.
    """

    def __init__(self, root: Path, salt: str = "") -> None:
        self.root = root
        self.salt = salt
        self.swept = False

    def address(self, kind: str, key: str) -> Path:
        """Where the entry of that key is, or would be."""
        name = digest(VERSION, self.salt, kind, key)
        return self.root / kind / name[:2] / name[2:]

    def load(self, key: str) -> tuple[Path, dict[str, Any]] | None:
        """The shared object and manifest published under `key`, or None."""
        entry = self.address("programs", key)
        try:
            document = cast(dict[str, Any], json.loads((entry / "manifest.json").read_text()))
            library = entry / document["library"]
            if library.stat().st_size == document["bytes"]:
                touch(entry)
                return library, cast(dict[str, Any], document["manifest"])
        except FileNotFoundError:
            return None
        except (NotADirectoryError, PermissionError) as e:
            raise unusable(self.root, e) from e
        except (ValueError, KeyError, TypeError):
            pass
        shutil.rmtree(entry, ignore_errors=True)  # torn by a crash of the machine: build it again
        return None

    def publish(
        self, key: str, library: Path, manifest: dict[str, Any]
    ) -> tuple[Path, dict[str, Any]]:
        """Keep a copy of a shared object under `key` with a manifest; returns what `load` does.

        Of several programs made for one key the first stays. The copy's name tells its content:
        the loader takes a path that it has loaded before for the same object.
        """
        name = f"{hashlib.sha256(library.read_bytes()).hexdigest()[:16]}.so"
        facts = {"key": key, "library": name, "bytes": library.stat().st_size}

        def fill(folder: Path) -> None:
            shutil.copyfile(library, folder / name)
            (folder / "manifest.json").write_text(json.dumps({**facts, "manifest": manifest}))

        entry = self.entry("programs", key, fill)
        found = self.load(key)
        if found is None:
            raise CacheError(f"another process has just removed {entry} from the cache: call again")
        return found

    def notes(self, key: str) -> list[Any]:
        """What was noted under a key, in this process or another."""
        found: list[Any] = []
        for path in sorted(self.address("notes", key).glob("*.json")):
            with suppress(OSError, ValueError):  # removed by now, or torn by a crash
                found.append(json.loads(path.read_text()))
        return found

    def note(self, key: str, value: Any) -> None:
        """Add a value of JSON to those under a key."""
        text, folder = json.dumps(value), self.address("notes", key)
        with self.workspace() as made, suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            (made / "note").write_text(text)
            os.replace(made / "note", folder / f"{digest(text)[:16]}.json")

    def read_bytes(self, key: str) -> bytes | None:
        """What was kept under a key by `keep_bytes`, whole."""
        entry = self.address("graphs", key)
        with suppress(OSError):
            for path in entry.iterdir():
                data = path.read_bytes()
                if hashlib.sha256(data).hexdigest() == path.name:
                    touch(entry)
                    return data
            shutil.rmtree(entry, ignore_errors=True)  # torn by a crash of the machine
        return None

    def keep_bytes(self, key: str, data: bytes) -> None:
        """Keep what a later process may use; a cache that cannot be written goes without."""

        def fill(folder: Path) -> None:
            (folder / hashlib.sha256(data).hexdigest()).write_bytes(data)

        with suppress(CacheError):
            self.entry("graphs", key, fill)

    def object(self, text: str, compile: Callable[[Path, Path], None]) -> Path:
        """The object file of a C text, compiled by `compile(source, output)` when it is new."""
        entry = self.address("objects", text)
        output = entry / "kernel.o"
        with suppress(OSError):
            if output.stat().st_size:
                touch(entry)
                return output
            shutil.rmtree(entry, ignore_errors=True)

        def fill(folder: Path) -> None:
            source = folder / "kernel.c"
            source.write_text(text)
            try:
                compile(source, folder / "kernel.o")
            except CompilerError as e:
                raise CompilerError(e.message, str(self.keep(source, entry.name))) from e

        return self.entry("objects", text, fill) / "kernel.o"

    def keep(self, source: Path, name: str) -> Path:
        """Move a C file the compiler refused to where the user can look at it."""
        refused = self.root / "refused" / f"{name[:16]}.c"
        refused.parent.mkdir(parents=True, exist_ok=True)
        os.replace(source, refused)
        return refused

    def entry(self, kind: str, key: str, fill: Callable[[Path], None]) -> Path:
        """The entry of `key`: the one that is there, or else a new folder, filled and renamed.

        Of several processes that ask at once, one fills it, and the others wait for that.
        """
        final = self.address(kind, key)
        if os.path.isdir(final):
            return final
        with self.alone(kind, key), self.workspace() as folder:
            if final.is_dir():
                return final
            try:
                fill(folder)
                final.parent.mkdir(parents=True, exist_ok=True)
                os.rename(folder, final)
            except OSError as e:
                if not final.is_dir():
                    raise unusable(self.root, e) from e
        return final

    @contextmanager
    def alone(self, kind: str, key: str) -> Generator[None]:
        """One process or thread at a time, of those that make what is under the key.

        The lock goes with the process that holds it. Where files cannot be locked, all go on.
        """
        path = self.root / "locks" / f"{kind}.{digest(self.salt, key)[:2]}"
        with ExitStack() as held:
            with suppress(OSError):
                self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.parent.mkdir(exist_ok=True)
                file = held.enter_context(open(path, "w"))
                fcntl.flock(file, fcntl.LOCK_EX)
                held.callback(fcntl.flock, file, fcntl.LOCK_UN)  # a fork since then has it too
            yield

    @contextmanager
    def workspace(self) -> Generator[Path, None, None]:
        """A temporary folder on the cache's own file system, gone at the end unless renamed."""
        parent = self.root / "tmp"
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)  # code is loaded from here
            parent.mkdir(exist_ok=True)
            folder = Path(tempfile.mkdtemp(dir=parent))
        except OSError as e:
            raise unusable(self.root, e) from e
        if not self.swept:
            self.swept = True
            sweep(parent)
            prune_sometimes(self.root, config.cache_bytes)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def unusable(root: Path, error: OSError) -> CacheError:
    """The one sentence for a cache that cannot be read or written."""
    reason = error.strerror or str(error)
    return CacheError(f"cannot use the cache {root} ({reason}): set WEFT_CACHE to another folder")


def sweep(parent: Path) -> None:
    """Remove what killed processes left behind: temporary folders more than an hour old."""
    oldest = time.time() - STALE_SECONDS
    for folder in parent.iterdir():
        with suppress(OSError):  # another process was faster
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)


def digest(*parts: str) -> str:
    """A hash of texts that tells ("ab", "c") from ("a", "bc")."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
