"""The process in which candidates run: one program under several schedules, built and timed.

python -m weft.tune.worker
{"do": "load", "program": "program.txt", "inputs": "inputs.pt", "target": "cpu", "narrows": false}
{"do": "price", "schedules": ["softmax.vectors = 4"], "kernels": [["softmax"]]}
{"do": "build", "schedules": ["", "softmax.vectors = 4"]}
{"do": "times", "numbers": [0, 1, 0]}
"""

import hashlib
import os
from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from weft import driver
from weft.core.errors import WeftError
from weft.core.passes import PassLog
from weft.frontend.graph import KNOWN
from weft.levels import Levels, lower
from weft.options import Options, Tune, find_target
from weft.runtime.child import answer
from weft.scalar.resize import sizes_of
from weft.scalar.structure import Unique
from weft.targets.cpu import CPU
from weft.text import parse_program
from weft.tune.price.scheduled import Fusing, fusions_of, scheduled
from weft.tune.search import Decisions, Scheduled
from weft.tune.text import read_schedule

# Times an output's largest value: other schedules add in another order
CLOSE = {torch.float64: 1e-12, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


class Session:
    """Answers requests about one program. Each method is a request."""

    def __init__(self) -> None:
        self.made: list[Any] = []  # (Run, Report, kernels by symbol) of each number
        self.expected: list[Any] = []

    def load(
        self,
        program: str,
        inputs: str,
        target: str,
        narrows: bool,
        graph: str = "",
        constants: Collection[int] = (),
        ordered: bool = False,
        tune: Tune = "off",
    ) -> dict[str, Any]:
        """Read a program of the loop level, and its inputs.

        With a `graph`, its text at the tensor level, the choices of the whole program are searched.
        """
        self.program = parse_program(Path(program).read_text(), program)
        self.inputs = torch.load(inputs, weights_only=True)
        self.target, self.known = target, KNOWN._replace(narrows=narrows)
        self.tune: Tune = tune
        machine = find_target(target)
        starts = isinstance(machine, CPU) and not sizes_of(self.program)  # as in levels.py
        first = Unique(self.program, starts).first
        self.alike = dict(Counter(first.values()))  # kernels of a structure, by the first of them
        self.whole = None
        if graph:
            layouts = tuple(b.type for b in self.program.outputs)
            beside = {"layouts": layouts, "constants": constants, "ordered": ordered}
            self.known = self.known._replace(**beside)
            self.program = parse_program(Path(graph).read_text(), graph)
            self.whole = Fusing(self.program, target, self.known, tune)
        devices = (t.device for t in self.inputs if isinstance(t, torch.Tensor))
        self.place = next(devices, torch.device("cpu"))
        return {}

    def price(self, schedules: list[str], kernels: list[list[str]]) -> dict[str, Any]:
        """What each schedule makes of those kernels of the program.

        Nothing is compiled: a row has the exact prices of all kernels of each structure, in us,
        instead of a number; none for a GPU.
        """
        return {"rows": [self._priced(*pair) for pair in zip(schedules, kernels, strict=True)]}

    def _priced(self, schedule: str, kernels: Collection[str]) -> dict[str, Any]:
        decided = read_schedule(schedule)
        found: dict[str, Scheduled] = {}
        for name in kernels:
            one = self._one(name, decided.get(name, {}))
            if one is None:
                return {"refused": name}
            found[name] = one
        priced = {k: s.us * self.alike.get(k, 1) for k, s in found.items() if s.us == s.us}
        met = {k: {n: (o, o[0]) for n, o in s.options.items()} for k, s in found.items()}
        return {"texts": {k: sha(s.text) for k, s in found.items()}, "met": met, "prices": priced}

    def _one(self, name: str, decisions: Decisions) -> Scheduled | None:
        if self.whole is not None:
            return self.whole(decisions)
        (kernel,) = [k for k in self.program.kernels if k.name == name]
        return scheduled(kernel, self.target, decisions, self.known)

    def build(self, schedules: list[str]) -> dict[str, Any]:
        """Compile the program under schedules, and run it: results have to be the first one's.

        Replies with a row for each: its number, or why it has none; a digest of each kernel's text;
        and the choices that each kernel met, as options and the one taken.
        """
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # the C compiler is a process of its own
            rows = list(pool.map(self._built, schedules))
        return {"rows": [self._checked(*row) for row in rows]}

    def _built(self, schedule: str) -> tuple[dict[str, Any], Any]:
        options = Options(self.target, schedule=schedule, tune=self.tune, profile=True)
        log = PassLog()
        try:
            levels = lower(self.program, options, log, self.known)
            timed = driver.runnable(levels, options, log, {}, self.place)
            options = replace(options, profile=False)  # of the same object: it draws once a call
            run, _ = driver.runnable(levels, options, log, {}, self.place)
        except WeftError as error:  # a decision whose choice another one takes away
            return {"refused": error.message}, None
        if self.whole is not None:
            names = dict.fromkeys(levels.symbols.values(), self.whole.name)
            text, met = sha("".join(levels.sources.values())), fusions_of(levels.chooser)
            facts = {"texts": {self.whole.name: text}, "met": {self.whole.name: met}}
            return facts, (run, *timed, names)
        facts = facts_of(levels)
        return facts, (run, *timed, {levels.symbols[name]: name for name in facts["texts"]})

    def _checked(self, row: dict[str, Any], made: Any) -> dict[str, Any]:
        if made is None:
            return row
        torch.manual_seed(0)
        run, *timed = made
        found = list(run(self.inputs))
        if not self.made:
            self.expected = [t.clone() if isinstance(t, torch.Tensor) else t for t in found]
        words = (differ(*pair) for pair in zip(self.expected, found, strict=True))
        wrong = next(filter(None, words), None)
        if wrong is not None:
            return {"wrong": wrong}
        self.made.append(tuple(timed))
        return {**row, "number": len(self.made) - 1}

    def times(self, numbers: list[int]) -> dict[str, Any]:
        """Microseconds of the kernels of each structure under schedules, run in turn."""
        rows: list[dict[str, float]] = []
        for number in numbers:
            run, report, names = self.made[number]
            run(self.inputs)
            spent = dict.fromkeys(names.values(), 0.0)
            for kernel in report.kernels:
                spent[names[kernel.symbol]] += kernel.measured_us or 0.0
            rows.append(spent)
        return {"rows": rows}


def facts_of(levels: Levels) -> dict[str, Any]:
    """Of kernels that stand for others of their structure: a digest of the text, and choices."""
    texts = {k.name: levels.sources[levels.symbols[k.name]] for k in levels.made["tile"].kernels}
    met = {name: levels.chooser.kernels[name].met for name in texts}
    return {"texts": {name: sha(text) for name, text in texts.items()}, "met": met}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def differ(expected: Any, found: Any) -> str:
    """In words how results differ by more than the order of additions explains; "" if not."""
    if not isinstance(expected, torch.Tensor):
        return "" if expected == found else f"{found} instead of {expected}"
    if not expected.is_floating_point() and not expected.is_complex():
        return "" if torch.equal(expected, found) else "other integers than by default"
    finite = expected.abs()[expected.isfinite()]
    limit = CLOSE.get(expected.dtype, 1e-4) * (finite.max().item() if finite.numel() else 0.0)
    try:
        torch.testing.assert_close(found, expected, rtol=0.0, atol=limit, equal_nan=True)
    except AssertionError as error:
        return "results differ: " + " ".join(str(error).split())
    return ""


if __name__ == "__main__":
    answer(Session())
