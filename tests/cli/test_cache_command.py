"""The cache on disk: what it holds, its limit, and `weft cache`."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from weft.cli import main as command_line
from weft.config import config
from weft.runtime import cache_size


def entry(root: Path, kind: str, name: str, size: int, age: float) -> Path:
    """An entry of so many bytes, used `age` seconds ago."""
    folder = root / kind / name[:2] / name
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(bytes(size))
    now = folder.stat().st_mtime
    os.utime(folder, (now - age, now - age))
    return folder


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(command_line, "config", replace(config, cache=tmp_path, cache_bytes=5000))
    return tmp_path


def command(*arguments: str) -> None:
    with pytest.raises(SystemExit) as caught:
        command_line.main(["cache", *arguments])
    assert not caught.value.code


def test_what_was_used_least_recently_goes(root: Path) -> None:
    old = entry(root, "programs", "aa1", 1000, age=300)
    used = entry(root, "objects", "bb2", 1000, age=400)
    new = entry(root, "programs", "cc3", 1000, age=100)
    cache_size.touch(used)
    cache_size.prune(root, 3000)
    assert old.exists() and used.exists() and new.exists()  # no more than the limit
    cache_size.prune(root, 2900)
    assert not old.exists() and used.exists() and new.exists()  # down to 0.8 of it
    cache_size.prune(root, 1500)
    assert used.exists() and not new.exists()


def test_only_now_and_then(root: Path) -> None:
    first = entry(root, "programs", "aa1", 2000, age=10)
    cache_size.prune_sometimes(root, 1000)
    second = entry(root, "programs", "bb2", 2000, age=10)
    cache_size.prune_sometimes(root, 1000)  # within the hour
    assert not first.exists() and second.exists()
    stamp = root / cache_size.PRUNED
    os.utime(stamp, (stamp.stat().st_mtime - 2 * cache_size.EVERY,) * 2)
    cache_size.prune_sometimes(root, 1000)
    assert not second.exists()


def test_the_command_shows_and_clears(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry(root, "programs", "aa1", 1000, age=1)
    entry(root, "programs", "ab2", 500, age=1)
    command("--json")
    facts = json.loads(capsys.readouterr().out)
    assert facts["most_bytes"] == 5000
    assert facts["kinds"] == [{"kind": "programs", "entries": 2, "bytes": 1500}]
    command("--show")
    assert "programs" in capsys.readouterr().out
    command("--clear", "--json")
    assert json.loads(capsys.readouterr().out)["kinds"] == []
    assert not (root / "programs").exists()
