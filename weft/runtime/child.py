"""A child process that answers requests, each a line of JSON, as does what it replies.

child = Child("weft.cli.bench_worker", Path("bench.log"))
child.ask(do="round", seconds=0.2)          # {"ms": 1.7}; ChildError where it cannot
child.close()
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from weft.core.errors import WeftError


class ChildError(WeftError):
    """A child process that ended, took too long, or replied with an error."""


class Child:
    """`python -m module`, with its stderr in a file; it is `usable` until it ends.

    `limit` is how many seconds a reply may take.
    """

    def __init__(
        self,
        module: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
        limit: float | None = None,
    ) -> None:
        self.title = module.rpartition(".")[2]
        self.usable, self.limit = True, limit
        self.log = log.open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The reply to a request; ChildError without one."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the process has ended: reading its reply fails below
        if not select.select([self.process.stdout], [], [], self.limit)[0]:
            self.close()
            raise ChildError(f"{self.title}: no reply within {self.limit} s")
        line = self.process.stdout.readline()
        if not line:
            self.usable = False
            raise ChildError(f"{self.title}: its process ended: {self.last_words()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            self.usable = "CUDA" not in reply["error"]  # a fault destroys the context of the device
            raise ChildError(reply["error"], reply["where"])
        return reply

    def last_words(self) -> str:
        code = self.process.wait()
        self.log.seek(0)
        lines = self.log.read().strip().splitlines()
        return f"exit code {code}" + (f", {lines[-1]}" if lines else "")

    def close(self) -> None:
        """End the process."""
        self.usable = False
        self.process.kill()
        self.process.communicate()
        self.log.close()


def answer(session: Any, describe: Callable[[Exception], str] = str) -> None:
    """In the child: a method of the session answers each request. Its prints go to stderr."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = getattr(session, request.pop("do"))(**request)
        except WeftError as error:
            reply = {"error": error.message, "where": error.where}
        except Exception as error:  # a failure of a program is the reply
            reply = {"error": f"{type(error).__name__}: {describe(error)}", "where": None}
        print(json.dumps(reply), file=replies, flush=True)
