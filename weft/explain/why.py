"""Why a program became what it is: fusions with what they save or cost, choices, regions.

fusions(levels, log, target)    # [{"what": "inline", "of": ["v3"], "saved": 2.1, "taken": True}]
regions(log)                    # what the search found for each region, and what became of it
Fusion is greedy by price: what it did has the price at its turn; what it left undone is priced on
the kernels that it ended with.
"""

import re
from dataclasses import dataclass
from typing import Any

from weft.explain.names import Names
from weft.explain.record import Recording
from weft.levels import Levels
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU
from weft.tensor.fuse import Joining, is_joinable
from weft.tensor.groups import NEVER, Groups
from weft.tensor.recurrence import CALLS
from weft.tile.price.hints import price_for

MOST = 300  # fusions left undone that are priced: they are pairs of kernels

Row = dict[str, Any]


def fusions(levels: Levels, log: Recording, target: CPU | GPU) -> list[Row]:
    """Those taken in the order in which they were, then those that could be and are not."""
    if not log.groups:
        return []
    choices = levels.chooser.program
    taken: list[Row] = [
        {
            "name": name,
            "taken": choices.met[name].taken == "yes",
            "saved": round(saved, 3),
            "why": decision(name, choices.decided, choices.known),
        }
        for name, saved in choices.saved.items()
        if name in choices.met
    ]
    undone = Undone(levels, log, target)
    rows: list[Row] = taken + undone.rows({row["name"] for row in taken})
    names = Names(levels.made["tensor"], levels.text("tensor")).of
    shown = {undone.groups.name(n): name for n, name in names.items()}
    for row in rows:
        row["what"], *tensors = row.pop("name").split(".")
        row["of"] = [shown.get(t, t) for t in tensors]
    return rows


def decision(name: str, decided: Any, known: Any) -> str:
    """Who chose: the schedule's text, what was measured or asked of all, or the price."""
    return "schedule" if name in decided else "tuned" if name in known else "price"


@dataclass
class Undone:
    """Fusions that the final kernels leave, each with what it would save."""

    levels: Levels
    log: Recording
    target: CPU | GPU

    def __post_init__(self) -> None:
        graph = self.levels.made["tensor"]
        price = price_for(self.target, self.levels.sizes)
        self.groups = Groups(graph, price, self.target)
        self.groups.stored = {n for group in self.log.groups for n in group}
        for group in self.log.groups:
            self.groups.put(self.groups.kernel(group))

    def rows(self, known: set[str]) -> list[Row]:
        found = [row for row in (*self.inlined(), *self.joined()) if row["name"] not in known]
        return found[:MOST]

    def inlined(self) -> list[Row]:
        groups, rows = self.groups, list[Row]()
        for node in sorted(groups.stored, key=groups.order.__getitem__):
            own, readers = groups.kernels[node], groups.readers(node)
            if isinstance(node.op, CALLS) or not readers or len(own.outputs) > 1:
                continue
            row: Row = {"name": f"inline.{groups.name(node)}", "taken": False, "saved": None}
            if node in groups.forced:
                row["why"] = "it needs memory: an output, a scan, or what a library call takes"
            elif any(isinstance(k.outputs[0].op, CALLS) for k in readers):
                row["why"] = "a library call reads it"
            else:
                after = sum(groups.kernel(k.outputs, own.outputs).cost for k in readers)
                before = own.cost + sum(k.cost for k in readers)
                row |= priced(before, after)
            rows.append(row)
        return rows

    def joined(self) -> list[Row]:
        groups, rows = self.groups, list[Row]()
        joining = Joining(groups)
        kernels = sorted(filter(is_joinable, groups.all()), key=lambda k: k.place)
        for i, a in enumerate(kernels):
            touched = {*a.reads, *a.outputs}
            for b in kernels[i + 1 :]:
                if touched.isdisjoint((*b.reads, *b.outputs)) or len(rows) >= MOST:
                    continue
                pair = ".".join(groups.name(k.outputs[0]) for k in (a, b))
                row: Row = {"name": f"join.{pair}", "taken": False, "saved": None}
                if joining.is_legal(a, b):
                    rows.append(row | priced(a.cost + b.cost, joining.all_of(a, b).cost))
        return rows


def priced(before: float, after: float) -> Row:
    """What a fusion that was not made would save, and so why it was not."""
    if after >= NEVER:
        return {"saved": None, "why": "too long for a kernel, or its loops do not fit"}
    if after < before:
        why = "it pays here by itself, but would compute something twice, or is decided otherwise"
        return {"saved": before - after, "why": why}
    return {"saved": before - after, "why": "price"}


def choices(levels: Levels) -> dict[str, list[Row]]:
    """The choices of each kernel: what could be, by rank, with its price where that is a number."""
    return {
        kernel: [
            {
                "name": name,
                "taken": met.taken,
                "options": list(met.options),
                "prices": [number(own.prices.get(name, {}).get(o)) for o in met.options],
                "by": decision(name, own.decided, own.known),
            }
            for name, met in own.met.items()
            if len(met.options) > 1 and not name.startswith(("inline.", "join."))
        ]
        for kernel, own in levels.chooser.kernels.items()
    }


def number(price: Any) -> float | None:
    """A price that tells something: not whether an option is the usual one."""
    price = price[0] if isinstance(price, tuple) else price  # the rest decides between equal ones
    return float(price) if isinstance(price, int | float) and not isinstance(price, bool) else None


STORY = re.compile(r"(.*?) \((.*?)\): (\d+) ms; (.*)", re.DOTALL)
PARTS = {
    "cost": re.compile(r"([\d.]+ -> [\d.]+) us"),
    "operations": re.compile(r"multiply-adds (\d+ -> \d+)"),
    "priced": re.compile(r"priced ([\d.]+ -> [\d.]+) us"),
}
OUTCOMES = ("nothing cheaper", "refused", "not cheaper", "given up", "too many")


def regions(log: Recording) -> list[Row]:
    """What the search told of each region: was and is as formulas of tensors, and the outcome."""
    return [region(text) for text in log.regions]


def region(text: str) -> Row:
    matched = STORY.fullmatch(text)
    if matched is None:
        return {"roots": text.partition(":")[0], "story": text, "outcome": "", "ms": None}
    roots, of, ms, story = matched.groups()
    pairs = (pair.split(" = ", 1) for pair in of.split(", ") if " = " in pair)
    names = {x: name for x, name in pairs if name != "t"}  # as one without a name is called
    parts = story.split("; ")
    formulas = [part for part in parts if part.startswith(("was ", "is "))]
    told = "; ".join(part for part in parts if part not in formulas)
    row: Row = {"roots": roots, "of": of, "ms": int(ms), "story": told}
    for word, _, formula in (part.partition(" ") for part in formulas):
        row[word] = re.sub(r"\bx\d+\b", lambda m: names.get(m[0], m[0]), formula)
    for key, pattern in PARTS.items():
        found = pattern.search(story)
        row[key] = found[1] if found else None
    row["outcome"] = next((o for o in OUTCOMES if o in story), "taken")
    last = story.rpartition("; ")[2]
    row["why"] = last if row["outcome"] != "taken" else story.partition("us; ")[2] or last
    return row
