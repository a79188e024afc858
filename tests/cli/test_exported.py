"""torch.export archives as a SOURCE: read as bytes and JSON, and never unpickled."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch._export.serde.serialize import _SYM_OPS
from torch.export import Dim

import weft
from weft.cli.exported import is_arithmetic, is_operator, load_exported
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


def other_size(tree: Any) -> None:
    for value in tree["graph_module"]["graph"]["tensor_values"].values():
        for size in value["sizes"]:
            if "as_expr" in size:
                size["as_expr"]["expr_str"] = "__import__('os').system('touch /tmp/wrong')"


def other_name(tree: Any) -> None:
    tree["graph_module"]["graph"]["inputs"][0]["as_tensor"]["name"] = "x): import os #"


def other_guard(tree: Any) -> None:
    tree["guards_code"] = ["print(1)"]


def hidden_size(tree: Any) -> None:
    """Under a key that is a name of one of torch's own fields as well."""
    values = tree["graph_module"]["graph"]["tensor_values"]
    evil = {"as_expr": {"expr_str": "__import__('os').system('x')", "hint": None}}
    values["metadata"] = {**next(iter(values.values())), "sizes": [evil]}


def other_range(tree: Any) -> None:
    tree["range_constraints"]["print(1)"] = {"min_val": 2, "max_val": 4}


def comment(tree: Any) -> None:
    tree["guards_code"] = ["L['x'].size()[0] > 1 # it's \" free text"]


def parameter(tree: Any) -> None:
    """The names of arguments by keyword are parameters of code that torch writes."""
    (entry,) = (e for e in tree["graph_module"]["module_call_graph"] if e["fqn"] == "")
    own = entry["signature"]
    assert '\\"k\\"' in own["in_spec"]
    own["in_spec"] = own["in_spec"].replace('\\"k\\"', '\\"k=print(1)\\"')
    own["forward_arg_names"] = None


def imports(tree: Any) -> None:
    (entry,) = (e for e in tree["graph_module"]["module_call_graph"] if e["fqn"] == "")
    hook = json.dumps([{"__enum__": True, "fqn": "this:s", "name": "x"}])
    own = [1, {"type": "builtins.dict", "context": hook, "children_spec": []}]
    entry["signature"]["out_spec"] = json.dumps(own)


def called(target: str) -> Callable[[str, bytes], bytes]:
    def change(tree: Any) -> None:
        tree["graph_module"]["graph"]["nodes"][0]["target"] = target

    return in_json("models/model.json", change)


def argument(tree: Any) -> None:
    more = {"name": "", "arg": {"as_operator": "torch.os.system"}, "kind": 1}
    tree["graph_module"]["graph"]["nodes"][0]["inputs"].append(more)


BROKEN: dict[str, tuple[Callable[[str, bytes], bytes | None], str]] = {
    "weight": (in_json("weights_config.json", pickled), "a.weight is a pickle, which weft does no"),
    "target": (called("torch.load"), "the target 'torch.load' is not"),
    "library": (called("torch.ops.load_library"), "the target .torch"),
    "any call": (called("_operator.call"), "the target ._operator.ca"),
    "file": (called("torch.ops.aten.from_file.default"), "the target"),
    "save": (called("torch.ops.aten.save.default"), "the target"),
    "operator": (in_json("models/model.json", argument), "the as_operator 'torch.os"),
    "hidden": (in_json("models/model.json", hidden_size), "the expr_str .__import__"),
    "range": (in_json("models/model.json", other_range), "the range 'print"),
    "comment": (in_json("models/model.json", comment), "the guards_code"),
    "parameter": (in_json("models/model.json", parameter), "the in_spec"),
    "import": (in_json("models/model.json", imports), "the out_spec"),
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
    with pytest.raises(SourceError, match="is no whole torch\\.export archive"):
        load_exported(path)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("Mul(Integer(2), Symbol('s77', positive=True, integer=True))", True),
        ("L['x'].size()[0] % 8 == 0 and 2 <= L['x'].size()[0]", True),
        ("FloorDiv(s0, 2) + 1", True),
        ("math.trunc(1.5*torch.sym_float(L['x'].size()[0])) == 6", True),
        ("torch.load('f')", False),
        ("__import__('os')", False),
        ("L['x'].__class__", False),
        ("(lambda: 1)()", False),
        ("[1 for s0 in L]", False),
        ("Symbol('os.system(1)')", False),
        ("open('f')", False),
        ("1; 2", False),
        ("-" * 100_000 + "1", False),
    ],
)
def test_expressions_over_sizes(text: str, safe: bool) -> None:
    assert is_arithmetic(text) is safe


def test_operators_over_sizes() -> None:
    for op in _SYM_OPS:
        assert is_operator(f"{op.__module__}.{op.__qualname__}"), op


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("first", [True, False])
def test_what_is_checked_is_what_is_read(
    first: bool, saved: tuple[Path, Model], tmp_path: Path
) -> None:
    """Of two files of one name, torch's reader of archives and Python's may take either."""
    path, wrong = tmp_path / "m.pt2", tmp_path / "wrong"
    expr = f"__import__('pathlib').Path({str(wrong)!r}).touch()"

    def change(tree: Any) -> None:
        other_size(tree)
        text = json.dumps(tree).replace("__import__('os').system('touch /tmp/wrong')", expr)
        tree.clear()
        tree.update(json.loads(text))

    with zipfile.ZipFile(saved[0]) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            both = [old.read(name), in_json("models/model.json", change)(name, old.read(name))]
            for data in dict.fromkeys(both if first else both[::-1]):
                new.writestr(name, data)
    with suppress(SourceError):
        load_exported(path)
    assert not wrong.exists()


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] % 2 == 0 else x * 3


def test_guards_of_an_archive_hold(tmp_path: Path) -> None:
    """What the export relied on is checked of each call, or the size is not free."""
    path = tmp_path / "m.pt2"
    args, free = (torch.ones(4, 3),), ({0: Dim.DYNAMIC},)
    torch.export.save(torch.export.export(Branches(), args, dynamic_shapes=free), path)
    found = load_exported(path)
    f = weft.compile(found.callable, **found.freed(Options(dynamic=True)))
    assert torch.equal(f(torch.ones(6, 3)), torch.full((6, 3), 2.0))
    with pytest.raises(Exception, match="Guard failed"):
        f(torch.ones(5, 3))


class Halves(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y[::2]


def test_a_size_made_of_another(tmp_path: Path) -> None:
    path, n = tmp_path / "m.pt2", Dim("n", min=3, max=9)
    args, free = (torch.ones(4), torch.ones(8)), ({0: n}, {0: 2 * n})
    torch.export.save(torch.export.export(Halves(), args, dynamic_shapes=free), path)
    assert load_exported(path).sizes == {"x": {0: (3, 9)}, "y": {0: (6, 18)}}


def test_an_argument_whose_elements_share_memory(tmp_path: Path) -> None:
    path, x = tmp_path / "m.pt2", torch.ones(8).expand(3, 8)
    torch.export.save(torch.export.export(nn.Linear(8, 4), (x,)), path)
    (given,) = load_exported(path).args
    assert (given.shape, given.stride()) == ((3, 8), (0, 1))


class Rows(nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor, mode: str) -> torch.Tensor:
        k = n.item()
        torch._check(k >= 2)
        return x[:k] if mode == "some" else x


def test_sizes_of_values_and_strings(tmp_path: Path) -> None:
    """What is asserted of them is told in free text; a guard has an argument between quotes."""
    path, args = tmp_path / "m.pt2", (torch.ones(8), torch.tensor(3), "some")
    torch.export.save(torch.export.export(Rows(), args), path)
    assert load_exported(path).callable(*args).shape == (3,)

    def change(tree: Any) -> None:
        tree["graph_module"]["graph"]["inputs"][-1]["as_string"] = "' or print(1) or '"

    wrong = changed(path, tmp_path / "wrong.pt2", in_json("models/model.json", change))
    with pytest.raises(SourceError, match=r"the input .' or print"):
        load_exported(wrong)
