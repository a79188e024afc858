"""Small sums over processes as one collective, where it is asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tile.test_place_collectives import collective, kernel, names, placed, program, wait
from weft.core.errors import WeftError
from weft.loop.verify import verify
from weft.options import Options
from weft.scalar.nest import Program
from weft.targets.cpu import CPUS
from weft.text import print_program
from weft.tile.passes.programs.join_collectives import join_collectives
from weft.tile.schedule import schedule_for

AVX2 = CPUS["avx2"]
TWO = [kernel("a", "x"), collective("r", "a"), wait("v", "r"), kernel("c", "v")]
TWO += [kernel("b", "x"), collective("s", "b"), wait("w", "s"), kernel("y", "c", "w")]


def joined(given: Program) -> Program:
    verify(given)
    made = join_collectives(given, AVX2)
    verify(made)
    verify(placed(made))
    return made


def test_golden(golden: Callable[[str, str], None]) -> None:
    made = joined(program(*TWO))
    assert names(made) == "a b r v c w y"
    assert [b.name for s in made.steps[2:3] for b in s.outputs] == ["r", "s"]
    golden("tile/join_collectives.txt", print_program(made))


def test_one_that_needs_another_stays_apart() -> None:
    given = program(*TWO[:4], collective("s", "c"), wait("w", "s"), kernel("y", "w"))
    assert joined(given).steps == given.steps


def test_others_of_their_kind_alone_are_joined() -> None:
    """Another operator, or the same with other arguments, ends a bucket."""
    other = collective("s", "b").replace("sum", "max")
    given = program(*TWO[:5], other, *TWO[6:])
    assert joined(given).steps == given.steps


def test_large_ones_stay_apart() -> None:
    large = program(*(step.replace("64", "512") for step in TWO), size=512)
    assert joined(large).steps == large.steps


def test_one_tensor_twice() -> None:
    given = program(collective("r", "x"), collective("s", "x"), *TWO[2:4], *TWO[6:])
    made = joined(given)
    assert len(made.steps[0].inputs) == 1 and len(made.steps[0].outputs) == 2


def test_it_is_asked_for() -> None:
    def passes(text: str) -> list[str]:
        chosen = Options(passes=text)
        found = schedule_for(AVX2, chosen.left_out, asked=chosen.asked).program
        return [name[4:] for name, _ in found]

    assert "join_collectives" not in passes("") and "place_collectives" in passes("")
    assert "join_collectives" in passes("+join_collectives,-place_collectives")
    with pytest.raises(WeftError, match="unknown pass to ask for 'join'"):
        passes("+join")
