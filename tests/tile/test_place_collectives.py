"""Where collectives and waits stand: in text, by the verifier, and in what memory is free."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from weft.core.errors import VerifyError
from weft.link.program import Emitted, make_spec
from weft.loop.verify import verify
from weft.runtime.layout import lay_out
from weft.runtime.python_call import python_source
from weft.runtime.spec import Extern
from weft.scalar.collectives import awaited, is_start, is_wait
from weft.scalar.nest import Call, Program
from weft.scalar.order import dependencies
from weft.targets.cpu import CPUS
from weft.text import parse_program, print_program
from weft.tile.passes.programs.place_collectives import place_collectives
from weft.tile.price.hints import price_for

AVX2 = CPUS["avx2"]
SHAPE = "f32[64,64]"
INPUT = f"input x: {SHAPE}"


def kernel(made: str, *read: str) -> str:
    reads = ", ".join(f"{name}: {SHAPE}" for name in read)
    loads = "".join(f"        in{n} = load {name}[a0, a1]\n" for n, name in enumerate(read))
    adds = "".join(f"        v{n} = add(v{n - 1}, in{n})\n" for n in range(1, len(read)))
    return (
        f"kernel {made}({reads}) -> {made}: {SHAPE}\nfor a0 in 0..64:  # free\n"
        f"    for a1 in 0..64:  # free\n{loads}        v0 = relu(in0)\n{adds}"
        f"        {made}[a0, a1] = v{len(read) - 1}\n"
    )


def collective(made: str, read: str) -> str:
    arguments = """('{"args":[{"tensor":0},"sum","0"],"kwargs":{}}')"""
    target = f"call _c10d_functional.all_reduce.default{arguments}"
    return f"{target} ({read}: {SHAPE}) -> {made}: {SHAPE}\n"


def wait(made: str, read: str) -> str:
    arguments = """('{"args":[{"tensor":0}],"kwargs":{}}')"""
    target = f"call _c10d_functional.wait_tensor.default{arguments}"
    return f"{target} ({read}: {SHAPE}) -> {made}: {SHAPE}\n"


def program(*steps: str, size: int = 64) -> Program:
    parsed: Any = parse_program(
        "\n".join(("program loop test", INPUT.replace("64", str(size)), "", *steps, "output y", ""))
    )
    return parsed


def placed(given: Program) -> Program:
    return place_collectives(given, AVX2, price_for(AVX2, (), 0))


def names(given: Program) -> str:
    return " ".join(s.outputs[0].name if s.outputs else "-" for s in given.steps)


def test_golden(golden: Callable[[str, str], None]) -> None:
    """What the collective needs comes first, what needs it last, and the rest between."""
    before = program(
        *(kernel("far", "x"), kernel("p", "x"), collective("r", "p"), wait("w", "r")),
        *(kernel("z", "w"), kernel("h", "far"), kernel("y", "z", "h")),
    )
    verify(before)
    after = placed(before)
    verify(after)
    assert names(after) == "p r far h w z y"
    assert placed(after).steps == after.steps
    golden("tile/place_collectives.txt", print_program(after))


def test_the_next_collective_goes_before_what_none_needs() -> None:
    """Its operand is made while the first is on its way, and both are there when they are read."""
    given = program(
        *(collective("r", "x"), wait("w", "r"), kernel("a", "w"), kernel("b", "x")),
        *(kernel("c", "x"), collective("s", "c"), wait("v", "s"), kernel("y", "a", "b", "v")),
    )
    assert names(placed(given)) == "r c s b w a v y"


def test_more_than_is_held_at_once_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [collective("r", "x"), wait("w", "r"), kernel("a", "w")]
    given = program(*steps, collective("s", "x"), wait("v", "s"), kernel("y", "a", "v"))
    assert names(placed(given)) == "r s w a v y"
    monkeypatch.setitem(place_collectives.__globals__, "IN_FLIGHT", 20_000)
    assert names(placed(given)) == "r w a s v y"


def test_what_reads_a_result_itself_stays_behind_its_wait() -> None:
    """As in a program that writes in place: the wait's own result is read by none."""
    given = program(collective("r", "x"), kernel("a", "x"), kernel("y", "r", "a"))
    given = replace(given, steps=awaited(given.steps))
    verify(given)
    after = placed(given)
    verify(after)
    assert names(after) == "r a - y"


def random_steps(seed: int) -> Program:
    choose = random.Random(seed)
    values, steps = ["x"], list[str]()
    for n in range(choose.randint(3, 20)):
        read = [choose.choice(values) for _ in range(2)]
        if choose.random() < 0.4:
            steps += [collective(f"r{n}", read[0]), wait(f"w{n}", f"r{n}")]
            values.append(f"w{n}")
        else:
            steps.append(kernel(f"k{n}", *dict.fromkeys(read)))
            values.append(f"k{n}")
    return program(*steps, kernel("y", values[-1]))


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    """Every step is there, after all that it depends on; calls keep their order."""
    given = random_steps(seed)
    verify(given)
    after = placed(given)
    verify(after)
    assert {*after.steps} == {*given.steps} and len(after.steps) == len(given.steps)
    place = {step: n for n, step in enumerate(after.steps)}
    for step, before in zip(given.steps, dependencies(given.steps), strict=True):
        assert all(place[given.steps[n]] < place[step] for n in before)
    calls = [[s for s in p.steps if isinstance(s, Call) and not is_wait(s)] for p in (given, after)]
    assert calls[0] == calls[1]


@pytest.mark.parametrize("seed", range(20))
def test_memory_that_a_collective_moves_is_not_free(seed: int) -> None:
    """No buffer overlaps what a collective touches, from its start to the wait."""
    after = placed(random_steps(seed))
    facts = {k.name: k.name for k in after.kernels}
    sources = dict.fromkeys(facts, "")
    spec = make_spec(Emitted(after, facts, sources, {}, {}, {}, {}), {})
    layout = lay_out(spec)
    touched = [(n, s) for n, s in enumerate(spec.steps) if isinstance(s, Extern)]
    for n, step in touched:
        waits = [m for m, s in touched if m > n and s.reads == step.outputs]
        for name in step.reads if waits else ():
            if not layout.in_arena(name):
                continue
            start = layout.plan.offsets[name]
            for other, at in layout.plan.offsets.items():
                first, last = layout.lives[other]
                if other != name and first <= waits[0] and last >= n:
                    assert at != start, f"{other} lies where {name} does"


WHOLE = kernel("p", "x"), collective("r", "p"), wait("w", "r"), kernel("y", "w")
REFUSED = {
    "reads r before a wait for the collective": (WHOLE[0], WHOLE[1], kernel("y", "r")),
    "nothing waits for the collective that makes r": (WHOLE[0], WHOLE[1], kernel("y", "x")),
}
MOVED = {
    "writes p before a wait for the collective that moves it": (0, 1, 0, 2, 3),
    "reads r before any step writes it": (0, 2, 1, 3),
}


@pytest.mark.parametrize("message", REFUSED)
def test_the_verifier_refuses(message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(program(*REFUSED[message]))


@pytest.mark.parametrize("message", MOVED)
def test_the_verifier_refuses_an_order(message: str) -> None:
    given = program(*WHOLE)
    verify(given)
    with pytest.raises(VerifyError, match=message):
        verify(replace(given, steps=tuple(given.steps[n] for n in MOVED[message])))


def test_waits_that_are_missing() -> None:
    """Before the first reader, and at the end for what nothing reads."""
    given = program(collective("r", "x"), collective("s", "x"), kernel("y", "r"))
    whole = replace(given, steps=awaited(given.steps))
    verify(whole)
    assert names(whole) == "r s - y -"
    assert [is_start(s) for s in whole.steps] == [True, True, False, False, False]
    assert awaited(whole.steps) == whole.steps


def test_a_tensor_that_a_collective_reads_is_let_go_after_its_wait() -> None:
    """As any result of a library call: not only when the whole call ends."""
    given = program(
        *(collective("r", "x"), wait("w", "r"), collective("s", "w"), wait("v", "s")),
        *(collective("t", "v"), wait("u", "t"), kernel("y", "u")),
    )
    facts = {k.name: k.name for k in given.kernels}
    spec = make_spec(Emitted(given, facts, dict.fromkeys(facts, ""), {}, {}, {}, {}), {})
    layout = lay_out(spec)
    lines = [line.strip() for line in python_source(layout)[0].splitlines()]
    assert {layout.buffers[name].kind for name in "rst"} == {"temp"}
    assert all(f"t{layout.index[name]} = None" in lines for name in "rst")
