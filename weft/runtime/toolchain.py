"""Compiler and cache together: from C texts to a shared object on disk, built at most once.

tools = open_toolchain(Path("~/.cache/weft").expanduser())
path = tools.build("key", {"relu": "#include ..."}, manifest={})
tools.cache.load("key")                       # (path, manifest), also in later processes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from weft.config import config
from weft.runtime.cache import Cache, digest
from weft.runtime.compiler import HEADERS, Compiler, cpu_features, find_compiler, run_all


@dataclass(frozen=True)
class Toolchain:
    """A compiler, and a cache whose keys depend on that compiler and this machine."""

    compiler: Compiler
    cache: Cache

    def build(self, key: str, sources: Mapping[str, str], manifest: dict[str, Any]) -> Path:
        """Compile the texts that are new, side by side, link all, publish under `key`."""
        texts = list(dict.fromkeys(sources.values()))
        objects = run_all([lambda text=text: self.object(text) for text in texts])
        with self.cache.workspace() as folder:
            library = folder / "program.so"
            self.compiler.link(objects, library)
            return self.cache.publish(key, library, manifest)

    def object(self, text: str) -> Path:
        """The object file of one C text."""
        return self.cache.object(text, self.compiler.compile)


def open_toolchain(root: Path, compiler: str | None = config.compiler) -> Toolchain:
    """The compiler found (see find_compiler) and the cache under `root`."""
    found = find_compiler(compiler)
    return Toolchain(found, Cache(root, digest(found.identity, cpu_features(), headers())))


@cache
def headers() -> str:
    """Everything an emitted file can include, for cache keys."""
    files = sorted(path for path in HEADERS.iterdir() if path.suffix in (".h", ".c"))
    return "\n".join(f"{path.name}\n{path.read_text()}" for path in files)
