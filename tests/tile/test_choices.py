"""The choices of a schedule: cheapest by default, replayed from text, each option right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.tile.test_panels import PRODUCT_OF_MANY as PRODUCT
from tests.tile.test_passes import FACTS, PROGRAMS, close, inputs_of
from weft.core.errors import WeftError
from weft.driver import compile_text
from weft.interpret import kernels as kernel_interpret
from weft.interpret import nests as interpret
from weft.kernel import verify as kernel_verify
from weft.levels import on_kernels
from weft.options import Options
from weft.scalar.choices import Choice, Choices, Chooser
from weft.scalar.nest import Program
from weft.targets.cpu import CPU, CPUS
from weft.text import parse_program
from weft.tile import verify as tile_verify
from weft.tile.lower import kernels as tile_lower
from weft.tile.schedule import CPU_SCHEDULE
from weft.tune.text import read_schedule


def test_the_cheapest_is_taken_and_the_first_of_equals() -> None:
    choices = Choices()
    assert choices.pick("vectors", (1, 2, 4), lambda n: abs(n - 3)) == 2
    assert choices.met["vectors"] == Choice(("2", "4", "1"), "2")


def test_what_was_decided_is_taken_by_name_and_number() -> None:
    choices = Choices({"vectors.2": "4"})
    assert choices.pick("vectors", (1, 2, 4), float) == 1
    assert choices.pick("vectors", (1, 2, 4), float) == 4
    assert choices.pick("vectors", (1, 2, 4), float) == 1
    assert [*choices.met] == ["vectors", "vectors.2", "vectors.3"]


def test_no_option_is_an_error_but_passed_over_where_it_was_known() -> None:
    with pytest.raises(WeftError, match=r"unknown softmax\.vectors '3': one of 1, 2"):
        Choices({"vectors": "3"}, kernel="softmax").pick("vectors", (1, 2), float)
    assert Choices(known={"vectors": "3"}).pick("vectors", (1, 2), float) == 1


def test_the_text_of_a_schedule() -> None:
    found = read_schedule("# all\n*.stream = no\n\nsoftmax.vectors.2 = 4  # 1 2\nmm.tile = 8x2")
    assert found == {"*": {"stream": "no"}, "softmax": {"vectors.2": "4"}, "mm": {"tile": "8x2"}}
    with pytest.raises(WeftError, match=r"schedule line 2, 'softmax vectors 4': kernel.choice = "):
        read_schedule("\nsoftmax vectors 4")


def test_a_schedule_replays_and_an_edited_one_is_obeyed() -> None:
    start = compile_text(PRODUCT, Options("cpu:avx512"))
    text = start.ir("schedule")
    assert "y.tile_rows = 8" in text and "y.block_contraction = yes" in text
    again = compile_text(PRODUCT, Options("cpu:avx512", schedule=text))
    assert (again.ir("c"), again.ir("schedule")) == (start.ir("c"), text)
    edited = text.replace("y.tile_rows = 8", "y.tile_rows = 4")
    other = compile_text(PRODUCT, Options("cpu:avx512", schedule=edited))
    assert other.ir("c") != start.ir("c") and "y.tile_rows = 4" in other.ir("schedule")
    every = compile_text(PRODUCT, Options("cpu:avx512", schedule="*.tile_rows = 4\n*.nothing = 1"))
    assert every.ir("c") == other.ir("c")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("y.tile_rows = 77", "unknown y.tile_rows '77': one of 8, 4, 5"),
        ("y.rows = 8", "unknown choice of kernel y 'rows': one of collapse_loops|tile_rows"),
        ("tile_rows 8", "schedule line 1, 'tile_rows 8'"),
    ],
)
def test_a_wrong_line_is_told(line: str, told: str) -> None:
    with pytest.raises(WeftError, match=told.replace("collapse_loops|", "")):
        compile_text(PRODUCT, Options("cpu:avx512", schedule=line))


def scheduled(program: Program, target: CPU, chooser: Chooser) -> Program:
    program = replace(program, level="tile")
    for _, step in CPU_SCHEDULE:
        program = on_kernels(program, step, chooser, target=target, near={})
    return program


def others(program: Program, target: CPU) -> Iterator[tuple[str, Program]]:
    """The program with one choice of a kernel decided otherwise, for every option."""
    chooser = Chooser()
    scheduled(program, target, chooser)
    for kernel, choices in chooser.kernels.items():
        for name, (options, taken) in choices.met.items():
            for option in options:
                if option != taken:
                    decided = Chooser({kernel: {name: option}})
                    yield f"{kernel}.{name} = {option}", scheduled(program, target, decided)


@pytest.mark.parametrize("isa", ["avx512", "plain"])
@pytest.mark.parametrize("name", [*PROGRAMS, "product"])
def test_every_option_means_the_same(name: str, isa: str) -> None:
    program: Program = parse_program({**PROGRAMS, "product": PRODUCT}[name])
    inputs, target = inputs_of(program), replace(CPUS[isa], **FACTS.get(name, {}))
    want = interpret.run(program, inputs, widen=True)
    for told, made in others(program, target):
        tile_verify.verify(made)
        kernels = tile_lower.lower(made)
        kernel_verify.verify(kernels)
        got = kernel_interpret.run(kernels, inputs, widen=True)
        try:
            close(got, want)
        except AssertionError as error:
            raise AssertionError(f"{told}: {error}") from None


def test_a_pass_is_left_out_for_one_kernel() -> None:
    alone = Options("cpu:avx512", schedule="y.block_contraction = no")
    every = Options("cpu:avx512", passes="-block_contraction")
    one, other = (compile_text(PRODUCT, options).ir("c") for options in (alone, every))
    assert one == other != compile_text(PRODUCT, Options("cpu:avx512")).ir("c")
