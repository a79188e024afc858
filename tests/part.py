"""Which cases `make test` runs: of a test that takes long a fixed part of its cases.

kept, left = split(items, noted())         # `make test-all` runs both
python -m tests.part build/tests.xml       # note how long each test took in a run of all
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from xml.etree import ElementTree
from zlib import crc32

import pytest

HERE = Path(__file__).parent
NOTED = HERE / "seconds.json"
Seconds = Mapping[str, Mapping[str, float]]  # of all cases of a test, by file and function


def split(
    items: Sequence[pytest.Item], seconds: Seconds
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The cases that are in the part, and all others, each in order.

    A test of s seconds, more than one, keeps cases that take s**0.3 of them, and one at the least.
    Their names choose them: a new case leaves the others as they are.
    """
    tests: defaultdict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        tests[where(item)].append(item)
    kept: set[pytest.Item] = set()
    for (file, test), cases in tests.items():
        took = max(1.0, seconds.get(file, {}).get(test, 0.0))
        count = ceil(len(cases) / took**0.7)
        kept |= {*sorted(cases, key=lambda item: crc32(item.name.encode()))[:count]}
    return [i for i in items if i in kept], [i for i in items if i not in kept]


def longest_first(items: list[pytest.Item], seconds: Seconds) -> None:
    """Sort by files: a long one that started last would leave the other processes to wait."""
    files = {file: sum(tests.values()) for file, tests in seconds.items()}
    items.sort(key=lambda item: -files.get(where(item)[0], 0.0))


def where(item: pytest.Item) -> tuple[str, str]:
    """The file, from tests/ on, and the function of a case."""
    file = item.path.relative_to(HERE).with_suffix("").as_posix()
    return file, item.name.partition("[")[0]


def noted() -> Seconds:
    return json.loads(NOTED.read_text())


def note(report: Path) -> None:
    """Write from a report in JUnit's form what tests took that took a second or more."""
    took: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.attrib["classname"].replace(".", "/").removeprefix("tests/")
        took[file][case.attrib["name"].partition("[")[0]] += float(case.attrib["time"])
    lines: list[str] = []
    for file, tests in sorted(took.items()):
        if long := {name: round(s) for name, s in sorted(tests.items()) if s >= 1}:
            lines.append(f"  {json.dumps(file)}: {json.dumps(long)}")
    NOTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    note(Path(sys.argv[1]))
