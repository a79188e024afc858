"""Notes of steps that end at an optimiser without state: none is traced up to there again."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import counters

from tests.frontend.test_stored import Data, session
from weft.frontend.python import Frames

OPTIMISERS: list[Any] = []  # of the module: Dynamo names those it imports otherwise


def trained(data: Data, loaded: bool = False, rows: int = 4, scope: bool = False) -> list[Any]:
    """As in a process that finds `data`: after each call the loss, and frames traced so far.

    The optimiser has `loaded` state before, and is a variable of the module or of a `scope`.
    """
    torch.compiler.reset()
    counters.clear()
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    own = torch.optim.Adam(net.parameters(), 0.1)
    OPTIMISERS[:] = [own]
    if loaded:
        net(torch.ones(1, 3)).sum().backward()
        own.step()
        own.zero_grad()

    def of_scope(x: torch.Tensor) -> torch.Tensor:
        loss = net(x).square().mean()
        loss.backward()
        own.step()
        own.zero_grad()
        return loss.detach()

    def of_module(x: torch.Tensor) -> torch.Tensor:
        loss = net(x).square().mean()
        loss.backward()
        OPTIMISERS[0].step()
        OPTIMISERS[0].zero_grad()
        return loss.detach()

    frames, found = Frames(of_scope if scope else of_module, session(data)), list[Any]()
    for _ in range(3):
        found += [frames.call(torch.ones(rows, 3)).item(), counters["frames"]["total"]]
    return found


def test_a_first_step_is_traced_in_the_first_process_alone() -> None:
    for scope in (True, False):
        data: Data = {}
        first, again = trained(data, scope=scope), trained(data, scope=scope)
        assert first[1::2] == [1, 2, 2] and again[1::2] == [0, 1, 1]
        assert first[::2] == again[::2] == trained({}, scope=scope)[::2]


def test_an_optimiser_with_state_is_followed_at_once() -> None:
    data: Data = {}
    trained(data)
    assert trained(data, loaded=True)[1::2] == [1, 1, 1]


def test_a_note_is_of_such_calls_alone() -> None:
    data: Data = {}
    trained(data)
    assert trained(data, rows=5)[1::2] == [1, 2, 2]
    assert trained(data, scope=True)[1::2] == [1, 2, 2]


def test_a_note_that_leads_nowhere_decides_nothing() -> None:
    for text in (b"L['gone']", b"L['fn']", b"torn ("):
        data: Data = {}
        trained(data)
        (noted,) = [key for key, value in data.items() if value.startswith(b"G[")]
        data[noted] = text
        assert trained(data)[1::2] == [1, 2, 2]
