"""Exported programs with random numbers: those of weft in-process, for the same seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft
from tests.export.library import Library, Refused, export, exported, make
from tests.export.programs import source
from tests.export.same import bits
from weft.cli.main import main
from weft.core.errors import CaptureError, UnsupportedOpError

SEEDS = 0, 7, 2**32 - 1, 2**40 + 3


def noisy(x: torch.Tensor) -> Any:
    return F.dropout(x, 0.3) + torch.rand(8), torch.randn(5), torch.randint(0, 100, (3,))


def sums(x: torch.Tensor) -> torch.Tensor:
    """The seed is drawn in the middle of the program, behind kernels."""
    h = (x @ x.t()).softmax(-1)
    return (h + torch.rand_like(h)) @ x + torch.bernoulli(h.sigmoid()).sum()


def wide(x: torch.Tensor) -> torch.Tensor:
    """A draw of the program's own between those of weft: all are of one generator."""
    return x.bernoulli() + torch.randint(-(2**63), 2**63 - 1, ()) % 1000


def turns(f: Any, x: torch.Tensor, count: int) -> list[list[bytes]]:
    every = (f(x) for _ in range(count))
    return [[bits(t) for t in (out if isinstance(out, tuple) else (out,))] for out in every]


def drawn(library: Library, x: torch.Tensor, count: int) -> list[list[bytes]]:
    return [[bits(t) for _, t in library.run((x,))] for _ in range(count)]


@pytest.mark.parametrize("fn", [noisy, sums, wide])
def test_seeds_give_what_torchs_give(fn: Any, tmp_path: Path) -> None:
    """700 calls take more than one turn of the generator's 624 words."""
    x = torch.rand(4, 8)
    library = exported(source(fn, x), tmp_path / "m")
    f = weft.compile(fn, freeze=True)
    assert library.signature().draws == (2 if fn is wide else 1)
    for seed in SEEDS:
        torch.manual_seed(seed)
        library.seed(seed)
        count = 700 if seed == 7 else 2
        assert drawn(library, x, count) == turns(f, x, count), seed
    library.close()


def test_an_instance_begins_with_seed_0_and_has_its_own_numbers(tmp_path: Path) -> None:
    x = torch.randn(4, 8)
    one = exported(source(noisy, x), tmp_path / "m")
    first, second, third = drawn(one, x, 3)
    other = Library(tmp_path / "m")
    assert drawn(other, x, 1) == [first]
    one.seed(0)
    assert drawn(one, x, 2) == [first, second] and first != second
    assert drawn(other, x, 2) == [second, third]
    with pytest.raises(Refused, match="has the shape"):  # takes no number
        other.run((torch.randn(4, 4),))
    one.seed(0)
    assert drawn(one, x, 4)[3:] == drawn(other, x, 1)
    one.close()
    other.close()


def test_a_program_for_all_sizes(tmp_path: Path) -> None:
    def dropped(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5)

    library = exported(source(dropped, torch.randn(6, 8)), tmp_path / "m", dynamic=True)
    f = weft.compile(dropped, dynamic=True, freeze=True)
    for rows in (5, 2, 9):
        x = torch.randn(rows, 8)
        torch.manual_seed(rows)
        library.seed(rows)
        assert drawn(library, x, 2) == turns(f, x, 2)
    library.close()


def test_what_torch_draws_itself_is_refused(tmp_path: Path) -> None:
    def shuffled(x: torch.Tensor) -> torch.Tensor:
        return x[torch.randperm(4)] + torch.rand(4)

    with pytest.raises(
        UnsupportedOpError, match=r"an op has no code without torch: aten\.randperm"
    ):
        export([source(shuffled, torch.randn(4))], tmp_path / "m")


# --- training steps


class Trained:
    """A step with dropout, an optimiser with state, and what it trains."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.GELU(), nn.Linear(16, 4))
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.x, self.y = torch.randn(6, 8), torch.tensor([0, 1, 2, 3, 0, 1])

    def step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimiser.step()
        self.optimiser.zero_grad()
        return loss.detach()

    def begun(self) -> Trained:
        self.step(self.x, self.y)
        return self


def test_a_training_step(tmp_path: Path) -> None:
    """Losses as in-process, and what is saved is where another instance goes on."""
    ours, theirs = Trained().begun(), Trained().begun()
    export([source(ours.step, ours.x, ours.y)], tmp_path / "m", steps=True)
    make(tmp_path / "m", "libm.so")
    library = Library(tmp_path / "m")
    assert library.signature().keeps_state and library.signature().draws == 1
    f = weft.compile(theirs.step)

    def losses(of: Any) -> list[bytes]:
        return [bits(of((ours.x, ours.y))[0][1]) for _ in range(10)]

    torch.manual_seed(4)
    library.seed(4)
    expected = [bits(f(theirs.x, theirs.y)) for _ in range(20)]
    assert losses(library.run) == expected[:10] and len({*expected}) == 20
    library.save(tmp_path / "trained.safetensors")
    second = Library(tmp_path / "m", weights=tmp_path / "trained.safetensors")
    torch.manual_seed(4)
    for _ in range(10):
        torch.randint(-(2**63), 2**63 - 1, ())
    seed = int(torch.randint(0, 2**31, ()))
    library.seed(seed)
    second.seed(seed)
    assert losses(library.run) == losses(second.run) != expected[10:]
    with pytest.raises(Refused, match="cannot write /nowhere/w: No such file"):
        library.save(Path("/nowhere/w"))
    library.close()
    second.close()


def test_a_first_step_and_history_are_refused(tmp_path: Path) -> None:
    new = Trained()
    with pytest.raises(
        CaptureError, match=r"the first step of an optimiser.*: in SOURCE call weft.compile"
    ):
        export([source(new.step, new.x, new.y)], tmp_path / "m", steps=True)
    with pytest.raises(CaptureError, match="output out has a history of gradients: detach it"):
        export([source(new.model, new.x)], tmp_path / "m", steps=True)


STEP = """
import torch
import weft
from torch import nn
model = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.5))
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)  # has no state
def step(x):
    model(x).sum().backward()
    optimiser.step()
    optimiser.zero_grad()
    return model[0].weight
example_inputs = (torch.randn(4, 8),)
weft.compile(step)(*example_inputs)
"""


def test_the_command_exports_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(STEP)
    with pytest.raises(SystemExit) as ended:
        main(["export", f"{tmp_path}/train.py:step", "--train", "-o", str(tmp_path / "m")])
    assert ended.value.code in (0, None)
    assert "output out: f32[4,8]" in capsys.readouterr().out
    make(tmp_path / "m", "libm.so")
    library = Library(tmp_path / "m")
    before, after = (library.run((torch.ones(4, 8),))[0][1] for _ in range(2))
    assert not torch.equal(before, after)
    library.close()
