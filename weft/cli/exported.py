"""A torch.export archive (model.pt2) as a SOURCE, read without unpickling anything.

load_exported(Path("model.pt2"))      # the program, with inputs of the shapes that it was made with

torch.export.load unpickles: example inputs, and weights of tensor subclasses. The program itself
is JSON, and plain weights are bytes. Here only these are read, by torch's own reader of archives,
and all strings of the JSON that torch would evaluate, call, import or paste into code are checked
first.
"""

# This file reaches into torch: the parts of torch.export.load have no public names.
# pyright: reportPrivateUsage=false

import ast
import inspect
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch._export.serde.schema import ExportedProgram as Schema
from torch._export.serde.schema import PayloadConfig
from torch._export.serde.serialize import (
    _SYM_OPS,
    ExportedProgramDeserializer,
    GraphModuleDeserializer,
    _bytes_to_dataclass,
)
from torch._export.serde.union import _Union
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument
from torch.export.pt2_archive import PT2ArchiveReader
from torch.export.pt2_archive._package import (
    _load_constants,
    _load_payload_config,
    _load_state_dict,
)
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo

from weft.cli.program import Source
from weft.core.errors import SourceError

PICKLED = "which weft does not unpickle, as that runs code of the file"
OPERATORS = ("torch.ops.", "_operator.", "math.", "torch.sym_", "torch._sym_")
NAMESPACES = ("aten", "prims", "quantized_decomposed")
FREE = {  # what torch neither evaluates nor pastes into code
    "metadata", "as_string", "as_strings", "fqn", "torch_version", "treespec_namedtuple_fields",
    "opset_version",
}  # fmt: skip
CALLS = set(
    """Symbol Integer Rational Float Add Mul Pow Mod Max Min floor ceiling Eq Ne Lt Le Gt Ge And Or
    Not Equality Unequality GreaterThan LessThan StrictGreaterThan StrictLessThan FloorDiv PythonMod
    CleanDiv CeilDiv ToFloat TruncToInt FloatTrueDiv IntTrueDiv PowByNatural max min size stride
    storage_offset math torch trunc ceil sqrt sym_float sym_int sym_max sym_min""".split()
)
TREE = (
    ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Subscript, ast.Constant,
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop,
    ast.cmpop, ast.Load,
)  # fmt: skip


def load_exported(path: Path) -> Source:
    """The program of an archive; SourceError for one that is broken, or needs a pickle."""
    reader, model, told = opened(path)
    program = deserialized(path, reader, model, told)
    with refused(path, "cannot be read"):
        args, kwargs = from_inputs(program, example)
        program.example_inputs = args, kwargs  # without any, torch leaves out what guards sizes
        module = program.module()
    ranges = program.range_constraints
    free, named = from_inputs(program, lambda value: free_sizes(value, ranges))
    names = inspect.signature(module.forward).parameters
    sizes = {**dict(zip(names, free, strict=False)), **named}
    return Source(module, args, kwargs, path.stem, str(path), sizes)


@contextmanager
def refused(path: Path, what: str) -> Generator[None, None, None]:
    """SourceError for whatever a broken file makes of torch's reader."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SourceError(f"{path} {what}: {first}") from None


def opened(path: Path) -> tuple[PT2ArchiveReader, str, Schema]:
    """An archive and its one program, whose name and JSON have been checked."""
    near = "is no whole torch.export archive of this or a near version of torch"
    with refused(path, near):
        reader = PT2ArchiveReader(str(path))
        names = reader.get_file_names()
        models = [n for n in names if n.startswith("models/")]
        if len(models) != 1 or not models[0].endswith(".json"):
            raise SourceError(f"{path} does not hold one exported program: write it anew")
        told = _bytes_to_dataclass(Schema, reader.read_bytes(models[0]))
        configs = [n for n in names if n.startswith("data/") and n.endswith(".json")]
        payloads = [_load_payload_config(reader, n) for n in configs]
    check(path, told, payloads, names)
    return reader, Path(models[0]).stem, told


def check(path: Path, told: Schema, payloads: Sequence[PayloadConfig], names: list[str]) -> None:
    """SourceError for what would be unpickled or run while the program is loaded, or runs."""
    if any(re.fullmatch(r"data/(weights|constants)/[^/]*\.pt", n) for n in names):
        raise SourceError(f"{path} is of an old format with a pickle of all weights, {PICKLED}")
    for payload in payloads:
        for weight, meta in payload.config.items():
            if meta.use_pickle or not meta.path_name.startswith(("weight_", "tensor_")):
                raise SourceError(f"{path}: {weight} is a pickle, {PICKLED}")
    inputs = strings(told.graph_module.graph.inputs)
    guarded = (("input", text) for key, text in inputs if key == "as_string")
    for key, text in chain(strings([told, *payloads]), guarded):
        if not is_safe(key, text):
            raise SourceError(f"{path}: the {key} {text[:80]!r} is not one that weft reads")


def strings(tree: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """All strings of a tree of torch's schema, each with its field; keys of a mapping are names."""
    if isinstance(tree, _Union):
        yield from strings(tree.value, str(tree.type))
    elif is_dataclass(tree):
        for f in fields(tree):
            yield from strings(getattr(tree, f.name), f.name)
    elif isinstance(tree, dict):
        for inner, value in tree.items():
            yield "range" if key == "range_constraints" else "name", inner
            yield from strings(value, key)
    elif isinstance(tree, list):
        for value in tree:
            yield from strings(value, key)
    elif isinstance(tree, str):
        yield key, tree


NAME = re.compile(r"[\w.\-]*")


def is_safe(key: str, text: str) -> bool:
    """Whether a field's string is of its kind: FREE, a row of KINDS, or else a name."""
    return key in FREE or KINDS.get(key, is_name)(text)


def is_name(text: str) -> bool:
    return bool(NAME.fullmatch(text))


def is_quotable(text: str) -> bool:
    """Whether a text means itself between quotes."""
    return text.isprintable() and not {*text} & {*"'\"\\"}


def is_operator(text: str) -> bool:
    """Whether a text names an operator that computes with tensors or sizes, and opens no file."""
    if not text.startswith(OPERATORS) or "__" in text or not is_name(text):
        return False
    found: Any = GraphModuleDeserializer().deserialize_operator(text)
    if isinstance(found, OpOverload):
        files = any(a.name == "filename" for a in found._schema.arguments)
        return found.namespace in NAMESPACES and not files
    return isinstance(found, HigherOrderOperator) or found in _SYM_OPS


def is_tree(text: str) -> bool:
    """Whether a text is a tree of containers whose keys are names, and none is to be imported."""
    try:
        return not text or is_container(json.loads(text)[1])
    except (ValueError, TypeError, LookupError, RecursionError):
        return False


def is_container(tree: Any) -> bool:
    context: Any = tree["context"]
    if isinstance(context, str) and context.startswith(("[", "{", '"')):
        context = json.loads(context)
    keys: list[Any] = context if isinstance(context, list) else [context]
    plain = all(is_name(k) if isinstance(k, str) else not isinstance(k, dict | list) for k in keys)
    return plain and all(map(is_container, tree["children_spec"]))


def is_arithmetic(text: str) -> bool:
    """Whether a text computes with sizes and does nothing else."""
    if "#" in text or not text.isprintable():  # a comment is in no syntax tree
        return False
    try:
        nodes = [*ast.walk(ast.parse(text, mode="eval"))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    names = [n.id for n in nodes if isinstance(n, ast.Name)]
    names += [n.attr for n in nodes if isinstance(n, ast.Attribute)]
    texts = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    plain = all(isinstance(n, TREE) for n in nodes) and all(map(NAME.fullmatch, texts))
    return plain and all(n in CALLS or re.fullmatch(r"[su]\d+|L|true|false", n) for n in names)


# What torch evaluates or calls as a program's own, what it builds containers of, and arguments that
# are strings: guards have them between quotes.
KINDS: dict[str, Callable[[str], bool]] = {
    **dict.fromkeys(("expr_str", "guards_code"), is_arithmetic),
    **dict.fromkeys(("target", "as_operator"), is_operator),
    **dict.fromkeys(("in_spec", "out_spec"), is_tree),
    "input": is_quotable,
    "range": lambda text: is_name(text) or is_arithmetic(text),  # a size, or one made of it: 2*s0
}


def deserialized(path: Path, reader: PT2ArchiveReader, name: str, told: Schema) -> ExportedProgram:
    """The program, by the parts of torch.export.load that read no pickle."""
    with refused(path, "cannot be read"):
        state, constants = _load_state_dict(reader, name), _load_constants(reader, name)
        return ExportedProgramDeserializer().deserialize(told, state, constants, b"")


def from_inputs(
    program: ExportedProgram, make: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What is made of each input that the program was exported with, in place of its arguments."""
    values = {n.name: n.meta.get("val") for n in program.graph.find_nodes(op="placeholder")}
    leaves: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            arg: Any = spec.arg
            constant = isinstance(arg, ConstantArgument)
            leaves.append(make(arg.value if constant else values[arg.name]))
    tree: Any = program.call_spec.in_spec
    args, kwargs = pytree.tree_unflatten(leaves, tree)
    return tuple(args), dict(kwargs)


def example(value: Any) -> Any:
    """An argument of that shape and dtype: random numbers, or zeros."""
    if not isinstance(value, torch.Tensor):
        return hint(value)
    shape, strides = ([hint(n) for n in part] for part in (value.shape, value.stride()))
    made = torch.empty_strided(shape, strides, dtype=value.dtype)
    elements = made.untyped_storage().nbytes() // made.itemsize
    memory = made.as_strided((elements,), (1,))  # each once, where strides are 0
    memory.normal_() if made.is_floating_point() else memory.zero_()
    return made


def hint(n: Any) -> Any:
    return int(n.node.hint) if isinstance(n, torch.SymInt) else n


def free_sizes(value: Any, ranges: Mapping[Any, Any]) -> dict[int, tuple[int, int | None]] | None:
    """The sizes of a tensor that the export has left free, as weft.compile(sizes=...) has them."""
    if not isinstance(value, torch.Tensor):
        return None
    found: dict[int, tuple[int, int | None]] = {}
    for d, n in enumerate(value.shape):
        if isinstance(n, torch.SymInt) and n.node.maybe_as_int() is None:
            known = ranges.get(n.node.expr)
            most = None if known is None or known.upper == int_oo else int(known.upper)
            found[d] = (0 if known is None else max(0, int(known.lower))), most
    return found
