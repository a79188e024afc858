"""Digests of every text that the static suite emits: a change of the house alone leaves all equal.

python -m tests.replay before.json                        # {"agree/softmax cpu:avx2": sha256}
python -m tests.replay after.json --against before.json   # names every text that differs

The suite is the programs of `weft bench` at their own sizes (on meta: no memory, no compiler) and
those of tests/agree, for the CPUs and the CUDA devices of TARGETS.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from tests.agree.test_programs import PROGRAMS
from tests.captures import Silent
from weft import driver
from weft.calling import compiled
from weft.cli.program import Source, SourceSpec
from weft.cli.source import load
from weft.cli.workloads import CUDA_WORKLOADS, WORKLOADS
from weft.core.errors import WeftError
from weft.core.passes import PassLog
from weft.frontend.graph import Captured, Known, Runner
from weft.options import Options

TARGETS = {
    "cpu workloads": ("cpu:avx512", "cpu:neon"),
    "cuda workloads": ("cuda:sm_80", "cuda:sm_90a"),
    "agree": ("cpu:avx2", "cuda:sm_90a"),
}


class Emitter(Silent):
    """A back end that emits each captured graph for some targets, and runs none."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.targets = targets
        self.texts: dict[str, list[str]] = {target: [] for target in targets}

    def __call__(self, captured: Captured) -> Runner:
        for target in self.targets:
            options, known = Options(target), Known(captured.layouts, captured.constants())
            try:
                text = driver.lower(captured.graph, options, PassLog(), known).text("source")
            except WeftError as error:
                text = f"{type(error).__name__}: {error}"
            self.texts[target].append(text)
        return _no_run


def _no_run(tensors: list[torch.Tensor]) -> Any:
    raise AssertionError("a replay only emits")


def programs() -> Iterator[tuple[str, str, Source]]:
    """(group, name, program) of the whole suite."""
    for group, workloads in (("cpu workloads", WORKLOADS), ("cuda workloads", CUDA_WORKLOADS)):
        for name, workload in workloads.items():
            source = load(SourceSpec(text=workload.text, device="meta"))
            assert isinstance(source, Source)
            yield group, name, source
    for case in PROGRAMS:
        yield "agree", case.name, Source(case.fn, tuple(case.make()), {}, case.name)


def digests(only: str = "") -> dict[str, str]:
    """The digest of every emitted text, by group, program and target."""
    found: dict[str, str] = {}
    for group, name, source in programs():
        if only not in f"{group}/{name}":
            continue
        emitter = Emitter(TARGETS[group])
        with torch.no_grad():
            compiled(source.callable, emitter).prepare(*source.args, **source.kwargs)
        for target, texts in emitter.texts.items():
            assert texts, f"nothing was captured of {group}/{name}"
            digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
            found[f"{group}/{name} {target}"] = digest
    return found


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The texts that are not the same, or that only one of two replays has."""
    return sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--only", default="", help="a part of the names of programs")
    chosen = parser.parse_args()
    start = time.process_time()
    found = digests(chosen.only)
    chosen.out.write_text(json.dumps(found, indent=1, sort_keys=True))
    print(f"{len(found)} texts in {time.process_time() - start:.0f} s")
    if chosen.against is not None:
        before = json.loads(chosen.against.read_text())
        changed = differences({n: d for n, d in before.items() if chosen.only in n}, found)
        raise SystemExit("\n".join(["these differ:", *changed]) if changed else 0)


if __name__ == "__main__":
    main()
