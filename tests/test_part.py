"""The part of the suite that `make test` runs."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import pytest

from tests.part import HERE, longest_first, note, noted, split

SECONDS = {"a": {"test_long": 25.0, "test_short": 0.5, "test_dear": 100.0}, "b": {"test_b": 3.0}}


class Case(pytest.Item):
    def runtest(self) -> None: ...


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """Of long and short tests, and of one that nothing is noted of."""
    counts = {"a::test_long": 50, "a::test_short": 50, "a::test_dear": 2, "b::test_b": 1, "c::t": 9}
    found: list[pytest.Item] = []
    for name, count in counts.items():
        file, test = name.split("::")
        path = (HERE / file).with_suffix(".py")
        found += [
            Case.from_parent(request.session, name=f"{test}[{i}]", nodeid=name, path=path)
            for i in range(count)
        ]
    return found


def test_a_long_test_keeps_a_fixed_part(cases: list[pytest.Item]) -> None:
    kept, left = split(cases, SECONDS)
    names = [item.name.partition("[")[0] for item in kept]
    assert names.count("test_long") == ceil(50 / 25**0.7) == 6
    others = {name: names.count(name) for name in names if name != "test_long"}
    assert others == {"test_short": 50, "test_dear": 1, "test_b": 1, "t": 9}
    assert sorted([*kept, *left], key=cases.index) == cases
    backwards = split(cases[::-1], SECONDS)[0]
    assert backwards == kept[::-1], "the order of the cases chooses"
    fewer = split([case for case in cases if case is not kept[0]], SECONDS)[0]
    assert len({*kept[1:]} - {*fewer}) == 0, "one case that goes takes others with it"


def test_long_files_are_first(cases: list[pytest.Item]) -> None:
    items = cases[::-1]
    longest_first(items, SECONDS)
    assert [item.path.stem for item in items] == ["a"] * 102 + ["b"] + ["c"] * 9


def test_seconds_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "tests.xml"
    case = '<testcase classname="tests.{}" name="{}" time="{}"/>'
    cases = [("a.test_a", "test_x[1]", 1.2), ("a.test_a", "test_x[2]", 2), ("b", "test_y", 0.4)]
    report.write_text(f"<all>{''.join(case.format(*c) for c in cases)}</all>")
    monkeypatch.setattr("tests.part.NOTED", tmp_path / "seconds.json")
    note(report)
    assert (tmp_path / "seconds.json").read_text() == '{\n  "a/test_a": {"test_x": 3}\n}\n'


def test_noted_tests_exist() -> None:
    """A test that was renamed would run all its cases."""
    gone = [
        f"{file}: {test}"
        for file, tests in noted().items()
        for test in tests
        if f"def {test}(" not in (HERE / f"{file}.py").read_text()
    ]
    assert not gone, "take them out of tests/seconds.json, or give them their new names"
