"""What changes of a model and its optimiser between two steps, which guards have to see.

net, optimiser = pair(torch.optim.AdamW)
rate(net, optimiser)
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Parameter

Change = Callable[[Any, Any], None]


def pair(kind: Callable[..., Any], **settings: Any) -> tuple[Any, Any]:
    """A small model in f64 with gradients, and its optimiser."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 2)).double()
    for p in net.parameters():
        p.grad = torch.randn_like(p)
    return net, kind(net.parameters(), lr=0.1, weight_decay=0.1, **settings)


def means(optimiser: Any, p: torch.Tensor) -> list[str]:
    """The names of a parameter's state that is as large as it."""
    return [name for name in optimiser.state[p] if name != "step"]


def rate(net: Any, optimiser: Any) -> None:
    optimiser.param_groups[0]["lr"] = 0.01


def loaded(net: Any, optimiser: Any) -> None:
    state = copy.deepcopy(optimiser.state_dict())
    state["state"][0][means(optimiser, net[0].weight)[0]].mul_(2)
    optimiser.load_state_dict(state)


def without(net: Any, optimiser: Any) -> None:
    net[0].weight.grad = None


def retyped(net: Any, optimiser: Any) -> None:
    p = net[0].bias
    p.data = p.data.float()
    p.grad = torch.ones(5)
    for name in means(optimiser, p):
        optimiser.state[p][name] = torch.ones(5)


def transposed(net: Any, optimiser: Any) -> None:
    net[0].weight.grad = torch.arange(15).double().reshape(3, 5).t()


def added(net: Any, optimiser: Any) -> None:
    new = Parameter(torch.ones(7).double())
    new.grad = torch.ones(7).double()
    optimiser.add_param_group({"params": [new], "lr": 0.5})


def overlapping(net: Any, optimiser: Any) -> None:
    net[1].bias.grad = net[1].bias.detach()


SEEN: tuple[Change, ...] = (rate, loaded, without, retyped, transposed, added, overlapping)
