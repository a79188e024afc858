"""torch.export archives as a SOURCE: read as bytes and JSON, and never unpickled."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.export import Dim

import weft
from weft.cli.exported import is_arithmetic, load_exported
from weft.cli.program import Source
from weft.cli.source import load_path
from weft.core.errors import SourceError
from weft.options import Options


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.scale = nn.Linear(8, 4), nn.Buffer(torch.tensor(2.0))
        self.held = torch.randn(4)

    def forward(self, x: torch.Tensor, past: dict[str, torch.Tensor], *, k: float = 2.0) -> Any:
        h = torch.relu(self.a(x)) * self.scale * k + self.held
        return {"h": h, "p": past["v"] + h.sum()}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    torch.manual_seed(0)
    path, model = tmp_path_factory.mktemp("pt2") / "m.pt2", Model().eval()
    free = {"x": {0: Dim("n", min=2, max=64)}, "past": {"v": None}, "k": None}
    args = torch.randn(3, 8), {"v": torch.randn(5)}
    torch.export.save(torch.export.export(model, args, {"k": 3.0}, dynamic_shapes=free), path)
    return path, model


def test_it_is_the_program(saved: tuple[Path, Model]) -> None:
    """With no unpickling at all, and the weights and sizes of the export."""
    path, model = saved
    with patch("pickle.loads", None), patch("torch.load", None), patch("pickle.Unpickler", None):
        found = load_path(str(path), meta=False)
    assert isinstance(found, Source)
    (x, past), kwargs = found.args, found.kwargs
    assert x.shape == (3, 8) and past["v"].shape == (5,) and kwargs == {"k": 3.0}
    assert found.sizes == {"x": {0: (2, 64)}, "past": {"v": {}}, "k": None}
    f = weft.compile(found.callable, **found.freed(Options(dynamic=True)))
    for rows in (3, 7):
        x = torch.randn(rows, 8)
        with torch.no_grad():
            torch.testing.assert_close(f(x, past, k=3.0), model(x, past, k=3.0))


def changed(path: Path, to: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(to, "w") as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return to


def in_json(part: str, change: Callable[[Any], Any]) -> Callable[[str, bytes], bytes]:
    def edit(name: str, data: bytes) -> bytes:
        if not name.endswith(part):
            return data
        tree = json.loads(data)
        change(tree)
        return json.dumps(tree).encode()

    return edit


def pickled(tree: Any) -> None:
    tree["config"]["a.weight"]["use_pickle"] = True


def other_target(tree: Any) -> None:
    tree["graph_module"]["graph"]["nodes"][0]["target"] = "torch.load"


def other_size(tree: Any) -> None:
    for value in tree["graph_module"]["graph"]["tensor_values"].values():
        for size in value["sizes"]:
            if "as_expr" in size:
                size["as_expr"]["expr_str"] = "__import__('os').system('touch /tmp/wrong')"


def other_name(tree: Any) -> None:
    tree["graph_module"]["graph"]["inputs"][0]["as_tensor"]["name"] = "x): import os #"


def other_guard(tree: Any) -> None:
    tree["guards_code"] = ["print(1)"]


BROKEN: dict[str, tuple[Callable[[str, bytes], bytes | None], str]] = {
    "weight": (in_json("weights_config.json", pickled), "a.weight is a pickle, which weft does no"),
    "target": (in_json("models/model.json", other_target), "the target 'torch.load' is not"),
    "size": (in_json("models/model.json", other_size), "the expr_str .__import__"),
    "name": (in_json("models/model.json", other_name), "the name 'x\\): import os #' is not one"),
    "guard": (in_json("models/model.json", other_guard), "the guards_code 'print"),
    "old": (
        lambda n, d: None if n.endswith("model.json") else d,
        "does not hold one exported program",
    ),
    "no JSON": (
        lambda n, d: d[:99] if n.endswith("model.json") else d,
        "no whole torch.export archive",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_archives(name: str, saved: tuple[Path, Model], tmp_path: Path) -> None:
    change, told = BROKEN[name]
    path = changed(saved[0], tmp_path / "m.pt2", change)
    with pytest.raises(SourceError, match=told):
        load_exported(path)


def test_files_of_other_kinds(saved: tuple[Path, Model], tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    for data in (b"", b"text", pickle.dumps([1]), saved[0].read_bytes()[:2000]):
        path.write_bytes(data)
        with pytest.raises(SourceError, match="is no whole torch\\.export archive"):
            load_exported(path)
    torch.save({"w": torch.randn(2)}, path)
    with pytest.raises(SourceError, match="does not hold one exported program"):
        load_exported(path)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("Mul(Integer(2), Symbol('s77', positive=True, integer=True))", True),
        ("L['x'].size()[0] % 8 == 0 and 2 <= L['x'].size()[0]", True),
        ("FloorDiv(s0, 2) + 1", True),
        ("__import__('os')", False),
        ("L['x'].__class__", False),
        ("(lambda: 1)()", False),
        ("[1 for s0 in L]", False),
        ("Symbol('os.system(1)')", False),
        ("open('f')", False),
        ("1; 2", False),
    ],
)
def test_expressions_over_sizes(text: str, safe: bool) -> None:
    assert is_arithmetic(text) is safe
