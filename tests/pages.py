"""Runs what a page of the documentation shows, and gives the page with the output of today.

text = current(page.read_text(), Here())                # `$ weft` lines, in this process
text = current(page.read_text(), Apart(tmp_path))       # all blocks, in a process of their own

A fenced block is told by its language and its first line:
$ weft ...         a command, and below it what it prints; `NAME=value`, and a pipe as in a shell
python             code: of one page in one process, whose folder is empty at first
sh                 commands of bash, where `weft` and `torchrun` are this Python's
diff               a change of weft, made in a copy of it; what follows runs by that
# FILE, // FILE    as its first line: the text of a file, which is there from the beginning
output             what the block before it printed
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:#|//) (\w+\.\w+)\n")
RUN = ("python", "sh", "diff")
COMMAND = """
from weft.cli.main import main
try:
    main({arguments!r})
except SystemExit as end:
    assert not end.code, f"exit status {{end.code}}"
"""
SERVE = """
import contextlib, io, json, sys
from typing import Any
{execute}
def serve(answers):
    for line in sys.stdin:
        print(json.dumps(execute(json.loads(line), globals())), file=answers, flush=True)
serve(sys.stdout)
"""


def execute(code: str, names: dict[str, Any]) -> str:
    """What code prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "page.py", "exec"), names)
    return printed.getvalue()


class Here(contextlib.nullcontext[None]):
    """Runs `$ weft` lines in this process; every other block stays as it is."""

    names: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self.names = {}

    def python(self, code: str) -> str:
        return execute(code, self.names)


def changed(text: str, hunk: str) -> str:
    """A file after one hunk of a diff, which has one place there wherever that is."""
    lines = [line if line.strip() else " \n" for line in hunk.splitlines(keepends=True)]
    before, after = ("".join(line[1:] for line in lines if line[0] in f" {sign}") for sign in "-+")
    assert text.count(before) == 1, f"weft has changed, so this is no change of it:\n{hunk}"
    return text.replace(before, after)


class Apart:
    """Runs every block in an empty folder, Python in a process of its own.

    A diff is applied to a copy of weft there, and then another process starts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.weft = folder, ROOT
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None:
        if self.process is not None:
            self.process.communicate(timeout=60)  # it ends where its input does
            self.process = None

    def files(self, text: str) -> None:
        """Writes the files that a page shows."""
        for found in BLOCK.finditer(text):
            if name := FILE.match(found[2]):
                (self.folder / name[1]).write_text(found[2])

    def python(self, code: str) -> str:
        if self.process is None:
            serve = SERVE.format(execute=inspect.getsource(execute))
            self.process = self.start([sys.executable, "-c", serve])
        assert self.process.stdin and self.process.stdout
        print(json.dumps(code), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, f"no block of the page may fail:\n{code}"
        return json.loads(answer)

    def sh(self, commands: str) -> str:
        weft = f'weft() {{ "{sys.executable}" -m weft "$@"; }}\n'
        weft += f'torchrun() {{ "{sys.executable}" -m torch.distributed.run "$@"; }}\n'
        process = self.start(["bash", "-e", "-o", "pipefail", "-c", weft + commands])
        printed, _ = process.communicate()
        assert process.returncode == 0, f"{commands}\n{printed}"
        return printed

    def diff(self, text: str) -> str:
        self.__exit__()
        if self.weft is ROOT:
            shutil.copytree(ROOT / "weft", self.folder / "weft")
            self.weft = self.folder
        for part in re.split(r"^--- .*\n\+\+\+ b/", text, flags=re.MULTILINE)[1:]:
            name, *hunks = re.split(r"^@@.*\n", part, flags=re.MULTILINE)
            path = self.folder / name.strip()
            path.write_text(functools.reduce(changed, hunks, path.read_text()))
        return ""

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.weft)}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, stdin=pipe, stdout=pipe, text=True
        )


def session(command: str, names: dict[str, str], worker: Here | Apart) -> str:
    """What a `$` line prints: `NAME=value`, or a weft command with what it is piped through."""
    assigned = re.fullmatch(r"(\w+)=(.*)", command)
    if assigned:
        names[assigned[1]] = shlex.split(assigned[2])[0]
        return ""
    for name, value in names.items():
        command = command.replace(f'"${name}"', shlex.quote(value))
    weft, _, pipe = command.partition(" | ")
    arguments = shlex.split(weft)
    assert arguments.pop(0) == "weft"
    printed = worker.python(COMMAND.format(arguments=arguments))
    if not pipe:
        return printed
    return subprocess.run(pipe, shell=True, input=printed, text=True, capture_output=True).stdout


def current(text: str, worker: Here | Apart) -> str:
    """The page with what its blocks print today; AssertionError where one fails."""
    names: dict[str, str] = {}
    printed = ""
    if isinstance(worker, Apart):
        worker.files(text)

    def again(found: re.Match[str]) -> str:
        nonlocal printed
        language, block = found.groups()
        if not language and block.startswith("$ "):
            first, _, _ = block.partition("\n")
            block = f"{first}\n{session(first[2:], names, worker)}"
        elif isinstance(worker, Apart) and language == "output":
            block = printed
        elif isinstance(worker, Apart) and language in RUN and not FILE.match(block):
            printed = getattr(worker, language)(block)
        return f"```{language}\n{block}```"

    return BLOCK.sub(again, text)
