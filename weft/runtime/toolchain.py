"""Compiler and cache together: from C texts to a shared object on disk, built at most once.

tools = open_toolchain(Path("~/.cache/weft").expanduser())
path, manifest = tools.build("key", {"relu": "#include ..."}, manifest={})
tools.cache.load("key")                       # (path, manifest), also in later processes
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

from weft.config import config
from weft.runtime.cache import Cache, digest
from weft.runtime.compiler import HEADERS, Compiler, cpu_features, find_compiler, run_all
from weft.runtime.trim import Library, split


@dataclass(frozen=True)
class Toolchain:
    """A compiler, and a cache whose keys depend on that compiler and this machine."""

    compiler: Compiler
    cache: Cache

    def build(
        self, key: str, sources: Mapping[str, str], manifest: dict[str, Any]
    ) -> tuple[Path, dict[str, Any]]:
        """Compile the texts that are new, side by side, link all, publish under `key`.

        Of processes that do so at once, one compiles a text, and one links.
        """
        texts = list(dict.fromkeys(sources.values()))
        objects = run_all(partial(self.cache.object, text, self._compile) for text in texts)
        with self.cache.alone("links", key), self.cache.workspace() as folder:
            found = self.cache.load(key)
            if found is not None:
                return found
            library = folder / "program.so"
            self.compiler.link(objects, library)
            return self.cache.publish(key, library, manifest)

    def shared(
        self, key: str, sources: Mapping[str, str], manifest: dict[str, Any]
    ) -> tuple[Path, dict[str, Any]]:
        """The shared object and the manifest under `key`, built where the cache has none."""
        return self.cache.load(key) or self.build(key, sources, manifest)

    def _compile(self, source: Path, output: Path) -> None:
        """Compile a file, a kernel's without what it does not use of the headers."""
        head, body = split(source.read_text())
        if "WEFT_LANES" in head:
            source.write_text(self.library(head).trim(body))
        self.compiler.compile(source, output)

    def library(self, head: str) -> Library:
        """The declarations that the directives at the top of a file bring in."""

        def fill(folder: Path) -> None:
            source = folder / "head.c"
            source.write_text(head)
            made = Library.of(self.compiler.preprocess(source))
            (folder / "library.json").write_text(made.dump())

        with LOCK:
            path = self.cache.address("headers", head) / "library.json"
            if path not in LIBRARIES:
                if not path.exists():
                    self.cache.entry("headers", head, fill)
                LIBRARIES[path] = Library.load(path.read_text())
            return LIBRARIES[path]


LIBRARIES: dict[Path, Library] = {}  # of this process
LOCK = Lock()


def open_toolchain(root: Path, compiler: str | None = config.compiler, isa: str = "") -> Toolchain:
    """The compiler found (see find_compiler) and the cache under `root`."""
    found = find_compiler(compiler, isa)
    return Toolchain(found, Cache(root, digest(found.identity, cpu_features(), headers())))


@cache
def headers() -> str:
    """Everything an emitted file can include, for cache keys."""
    files = sorted(path for path in HEADERS.rglob("*.?") if path.suffix in (".h", ".c"))
    return "\n".join(f"{path.name}\n{path.read_text()}" for path in files)
