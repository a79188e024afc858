"""The search on programs whose times are made up: what it finds, and what it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from weft.core.errors import WeftError
from weft.tune.search import (
    Built,
    Decisions,
    Priced,
    Schedule,
    Scheduled,
    beam,
    neighbours,
    search,
    us_of,
)

MET = {"vectors": (["4", "1", "2", "8"], "4"), "threads": (["yes", "no"], "yes")}
Price = Callable[[str, Decisions], float]


class Fake:
    """Programs of two kernels; `price` gives microseconds for a kernel's decisions."""

    def __init__(self, price: Price, noise: Sequence[float] = (1.0,)) -> None:
        self.spent, self.noise = price, noise
        self.made: list[Schedule] = []
        self.measured = 0
        self.exact: Price | None = None  # none as for a GPU

    def price(self, schedules: Sequence[Schedule]) -> list[Priced | None]:
        exact = self.exact
        return [
            Priced(
                {k: str(sorted(d.items())) for k, d in schedule.items()},
                dict.fromkeys(schedule, MET),
                {k: exact(k, d) for k, d in schedule.items()} if exact else {},
            )
            for schedule in schedules
        ]

    def build(self, schedules: Sequence[Schedule]) -> list[Built | None]:
        found: list[Built | None] = []
        for schedule in schedules:
            if any("8" in own.values() for own in schedule.values()):
                found.append(None)  # cannot be built
                continue
            self.made.append(schedule)
            texts = {k: str(sorted(dict(schedule.get(k, {})).items())) for k in ("a", "b", "small")}
            found.append(Built(len(self.made) - 1, texts, dict.fromkeys(texts, MET)))
        return found

    def times(self, numbers: Sequence[int]) -> list[dict[str, float]]:
        rows: list[dict[str, float]] = []
        for n in numbers:
            factor = self.noise[self.measured % len(self.noise)]
            self.measured += 1
            own = {k: self.made[n].get(k, {}) for k in ("a", "b")}
            rows.append({k: factor * self.spent(k, d) for k, d in own.items()} | {"small": 0.01})
        return rows


def quiet(line: str) -> None:
    pass


def price(kernel: str, decisions: Decisions) -> float:
    fast = 0.5 if decisions.get("vectors") == "2" else 1.0
    alone = 0.8 if decisions.get("threads") == "no" else 1.0
    return 100 * fast * alone if kernel == "a" else 50 / alone


def test_each_kernel_gets_its_own_best() -> None:
    found = search(Fake(price), {"a", "b", "small"}, 60, quiet)
    assert found["a"].decisions == {"vectors": "2", "threads": "no"}
    assert (found["a"].default_us, found["a"].us) == (100, 40)
    assert found["b"].decisions == {} and found["b"].us == found["b"].default_us == 50
    assert found["small"].tried == 0  # of no weight


def test_only_what_is_wanted_is_searched_and_told() -> None:
    told: list[str] = []
    assert [*search(Fake(price), {"b"}, 60, told.append)] == ["b"]
    assert told == ["b: 3 candidates, none better"]


def test_a_gain_within_the_noise_is_none() -> None:
    def slight(kernel: str, decisions: Decisions) -> float:
        return 90.0 if decisions.get("vectors") == "2" else 100.0

    fake = Fake(slight, noise=(1.0, 1.3, 0.8, 1.25, 0.7))
    assert search(fake, {"a"}, 60, quiet)["a"].decisions == {}


def test_what_one_gains_and_others_lose_is_left() -> None:
    class Shared(Fake):
        def times(self, numbers: Sequence[int]) -> list[dict[str, float]]:
            rows = super().times(numbers)
            for row, n in zip(rows, numbers, strict=True):
                row["b"] += 60 if self.made[n].get("a", {}).get("vectors") == "2" else 0
            return rows

    assert search(Shared(price), {"a"}, 60, quiet)["a"].decisions == {}


def test_no_time_is_the_default() -> None:
    assert search(Fake(price), {"a"}, 0, quiet)["a"].decisions == {}


def test_a_default_that_cannot_be_built_is_an_error() -> None:
    class Broken(Fake):
        def build(self, schedules: Sequence[Schedule]) -> list[Built | None]:
            return [None] * len(schedules)

    with pytest.raises(WeftError, match="the default cannot be built"):
        search(Broken(price), {"a"}, 60, quiet)


def test_neighbours_differ_in_one_choice_the_likeliest_first() -> None:
    found = [*neighbours({"threads": "no"}, {**MET, "threads": (["yes", "no"], "no")})]
    assert found == [
        {"threads": "no", "vectors": "1"},
        {"threads": "yes"},
        {"threads": "no", "vectors": "2"},
        {"threads": "no", "vectors": "8"},
    ]


def test_the_exact_price_orders_candidates_and_leaves_out_the_slow() -> None:
    fake = Fake(lambda kernel, decisions: 100.0)
    fake.exact = lambda kernel, d: {"1": 2.0, "2": 1.0, "8": 30.1}.get(d.get("vectors", ""), 10.0)
    found = search(fake, {"a"}, 60, quiet)
    assert [dict(s["a"]) for s in fake.made if s] == [
        {"vectors": "2"},
        {"vectors": "2", "threads": "no"},  # priced alike: fewer decisions first
        {"vectors": "1"},
        {"vectors": "1", "threads": "no"},
    ]
    assert found["a"].tried == 4  # the others are priced at more than three times the best


def test_the_beam_proposes_what_only_two_decisions_together_give() -> None:
    """Alone, each of the two is slower than the default, and stays a part of the beam."""

    def paired(kernel: str, decisions: Decisions) -> float:
        both = decisions.get("vectors") == "1", decisions.get("threads") == "no"
        return 50.0 if all(both) else 120.0 if any(both) else 100.0

    fake = Fake(paired)
    fake.exact = paired
    assert search(fake, {"a"}, 60, quiet)["a"].decisions == {"vectors": "1", "threads": "no"}
    assert search(Fake(paired), {"a"}, 60, quiet)["a"].decisions == {}  # one at a time


def test_a_beam_of_one_goes_through_all_choices_once() -> None:
    built: list[Decisions] = []

    def build(decisions: Decisions) -> Scheduled:
        built.append(decisions)
        us = 100.0 - 10 * (decisions.get("b") == "no") - 5 * (decisions.get("c") == "yes")
        options = {n: (decisions.get(n, o[0]), *o) for n, o in CHOICES.items()}
        options = {n: tuple(dict.fromkeys(o)) for n, o in options.items()}
        return Scheduled(decisions, options, str(sorted(decisions.items())), us)

    CHOICES = {"a": ("yes", "no"), "b": ("yes", "no"), "c": ("no", "yes")}
    found = beam(build, time.monotonic() + 60, {}, width=1)
    assert min(found, key=us_of).decisions == {"b": "no", "c": "yes"} and len(built) == 4


def test_what_was_not_searched_is_told_from_what_has_nothing_to_try() -> None:
    class Alone(Fake):
        def build(self, schedules: Sequence[Schedule]) -> list[Built | None]:
            rows = super().build(schedules)
            return [r and r._replace(met={name: {} for name in r.met}) for r in rows]

    found = search(Alone(price), {"a", "small"}, 60, quiet)
    assert (found["a"].tried, found["a"].small) == (0, False) and found["small"].small


def test_what_has_one_text_is_tried_once() -> None:
    class Alike(Fake):
        def price(self, schedules: Sequence[Schedule]) -> list[Priced | None]:
            rows = super().price(schedules)
            return [r and r._replace(texts=dict.fromkeys(r.texts, "the same")) for r in rows]

    fake = Alike(lambda kernel, decisions: 100.0)
    fake.exact = lambda kernel, decisions: 1.0
    assert search(fake, {"a"}, 60, quiet)["a"].tried == 0 and len(fake.made) == 1
