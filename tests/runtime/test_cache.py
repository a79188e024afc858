"""The cache and the compiler when things go wrong: races, killed compiles, nothing to run."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from weft.core.errors import CacheError, CompilerError
from weft.runtime.cache import Cache
from weft.runtime.compiler import cpu_features, find_compiler
from weft.runtime.toolchain import Toolchain, open_toolchain

SOURCE = "int answer(void) { return 42; }\n"


def test_miss_then_hit(tools: Toolchain, tmp_path: Path) -> None:
    cache = Cache(tmp_path, "salt")
    assert cache.load("key") is None
    built = tmp_path / "built.so"
    built.write_bytes(b"machine code")
    path, _ = cache.publish("key", built, {"kernels": 3})
    assert cache.load("key") == (path, {"kernels": 3})
    assert path.read_bytes() == b"machine code"
    assert cache.load("other key") is None
    assert Cache(tmp_path, "another machine").load("key") is None


def test_an_object_is_compiled_once(tools: Toolchain, tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    compiled: list[Path] = []

    def compile(source: Path, output: Path) -> None:
        compiled.append(source)
        tools.compiler.compile(source, output)

    first = cache.object(SOURCE, compile)
    assert cache.object(SOURCE, compile) == first
    assert len(compiled) == 1
    cache.object(SOURCE + "\n", compile)
    assert len(compiled) == 2


def test_torn_entry_is_a_miss(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    built = tmp_path / "built.so"
    built.write_bytes(b"machine code")
    path, _ = cache.publish("key", built, {})
    path.write_bytes(b"")
    assert cache.load("key") is None
    assert cache.publish("key", built, {})[0].read_bytes() == b"machine code"
    (path.parent / "manifest.json").write_text('{"bytes"')
    assert cache.load("key") is None


def test_bytes_are_whole_or_not_there(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.read_bytes("key") is None
    cache.keep_bytes("key", b"a graph")
    assert cache.read_bytes("key") == b"a graph" and cache.read_bytes("other key") is None
    (path,) = cache.address("graphs", "key").iterdir()
    path.write_bytes(b"a gra")
    assert cache.read_bytes("key") is None
    cache.keep_bytes("key", b"a graph")
    assert cache.read_bytes("key") == b"a graph"


def test_a_cache_that_cannot_be_written_goes_without_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    Cache(tmp_path / "file").keep_bytes("key", b"a graph")
    assert Cache(tmp_path / "file").read_bytes("key") is None


RACE = """
import sys, time
from pathlib import Path
from weft.runtime.toolchain import open_toolchain
tools = open_toolchain(Path(sys.argv[1]))
time.sleep(max(0.0, float(sys.argv[2]) - time.time()))
print(tools.build("key", {"k": "int answer(void) { return 42; }"}, {"by": "race"})[0])
"""


def test_two_processes_race(tools: Toolchain, tmp_path: Path) -> None:
    start = str(time.time() + 3)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(tmp_path), start], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    paths = {racer.communicate(timeout=120)[0].strip() for racer in racers}
    assert [racer.returncode for racer in racers] == [0, 0]
    found = open_toolchain(tmp_path).cache.load("key")
    assert found is not None
    assert paths == {str(found[0])}
    assert list((tmp_path / "tmp").iterdir()) == []


def test_killed_compile_is_harmless(tools: Toolchain, tmp_path: Path) -> None:
    old, young = tmp_path / "tmp" / "old", tmp_path / "tmp" / "young"
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "program.so").write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    here = open_toolchain(tmp_path)
    assert here.cache.load("key") is None
    here.build("key", {"k": SOURCE}, {})
    assert here.cache.load("key") is not None
    assert not old.exists()
    assert young.exists()  # perhaps another process is still at it


def test_unwritable_cache(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    tools = open_toolchain(blocker / "cache")
    for act in (
        lambda: tools.cache.load("key"),
        lambda: tools.build("key", {"k": SOURCE}, {}),
    ):
        with pytest.raises(CacheError, match="set WEFT_CACHE to another folder") as caught:
            act()
        assert str(blocker / "cache") in str(caught.value)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerError, match="neither gcc nor clang: install one with"):
        find_compiler(None)
    with pytest.raises(CompilerError, match="'nocc' set by WEFT_CC or CC is not on PATH"):
        find_compiler("nocc -m64")


def test_compiler_is_named_in_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = find_compiler()
    assert compiler.version in compiler.identity
    assert cpu_features()
    other = tmp_path / "othercc"
    other.write_text('#!/bin/sh\nexec gcc "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("CC", str(other))
    assert find_compiler(None).command == (str(other),)
    salts = {open_toolchain(tmp_path, cc).cache.salt for cc in (None, "gcc")}
    assert len(salts) == 2


def test_a_fork_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A worker that begins while a program is compiled has the lock's file too, for its life."""
    cache = Cache(tmp_path)
    read, write = os.pipe()
    with cache.alone("objects", "text"):
        child = os.fork()
        if not child:
            os.close(write)
            os.read(read, 1)  # until the end of the parent's pipe
            os._exit(0)
    try:
        (lock,) = (tmp_path / "locks").iterdir()
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError while it is held
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(child, 0)
