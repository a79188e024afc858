"""Reads an ONNX file, checks it, and inlines the functions that have no row of their own.

module = load("model.onnx")
module = module_of(model, folder=Path("."), title="model")     # from a ModelProto
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from onnx import ModelProto, NodeProto, TensorProto, defs, inliner, numpy_helper

from weft.core.errors import WeftError, sentence
from weft.onnx.build import build
from weft.onnx.graphs import domain_of, label, nodes_of, with_gradients
from weft.onnx.module import OnnxModule
from weft.onnx.table import find
from weft.onnx.types import OnnxError, name_of

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")
FAMILIES = """pointwise casts shapes indexing reductions products layers normal recurrent resize
sample quantised control signal text trees training attention""".split()
for family in FAMILIES:  # each enters its rows into the table
    import_module(f"weft.onnx.rows.{family}")


def load(path: str | os.PathLike[str]) -> OnnxModule:
    """The module of a file; OnnxError if it is no ONNX model, is damaged, or has unknown parts."""
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise OnnxError(f"{file}: {error.strerror}") from None
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise OnnxError(f"{file} is not an ONNX model, or it is cut off") from None
    if not model.HasField("graph") or not model.opset_import:
        raise OnnxError(f"{file} is not an ONNX model, or it is cut off: it has no graph or opset")
    return module_of(model, file.parent, file.stem)


def module_of(model: ModelProto, folder: Path, title: str) -> OnnxModule:
    """The module of a model whose external data, if it has any, lie in a folder."""
    try:
        opsets = opset_versions(model)
        with_gradients(model.graph)
        return build(inlined(model, opsets), opsets, Reader(folder).read, title)
    except WeftError:
        raise
    except Exception as error:  # what no valid model leads to: a field of a type that it cannot be
        raise OnnxError(f"{title} is no valid model: {sentence(error)}") from error


def opset_versions(model: ModelProto) -> dict[str, int]:
    """The version of each domain; OnnxError if the installed onnx does not know one of ONNX's."""
    found = {domain_of(entry.domain): entry.version for entry in model.opset_import}
    version, known = found.get("", 1), defs.onnx_opset_version()
    if not 1 <= version <= known:
        raise OnnxError(f"the model is of opset {version}; the onnx installed knows 1 to {known}")
    return found


def inlined(model: ModelProto, opsets: dict[str, int]) -> ModelProto:
    """The model with its own functions, and operators that only ONNX defines, taken apart.

    OnnxError names the nodes whose operators have neither a row nor a definition.
    """
    if model.functions:
        model = inliner.inline_local_functions(model)
    unknown = [node for node in nodes_of(model.graph) if not has_row(node, opsets)]
    if not unknown:
        return model
    refused = [node for node in unknown if not is_function(node, opsets)]
    if not refused:
        names = sorted({(domain_of(node.domain), node.op_type) for node in unknown})
        try:
            model = inliner.inline_selected_functions(model, names, inline_schema_functions=True)
        except Exception as error:
            raise OnnxError(f"{label(unknown[0])}: {error}") from None
        refused = [node for node in nodes_of(model.graph) if not has_row(node, opsets)]
    if refused:
        several = ", ".join(dict.fromkeys(map(label, refused)))
        domains = sorted({node.domain for node in refused} - {*DOMAINS, "ai.onnx"})
        custom = f" ({', '.join(domains)} is a custom domain)" if domains else ""
        raise OnnxError(f"there is no row for {several}{custom}")
    return model


def has_row(node: NodeProto, opsets: dict[str, int]) -> bool:
    domain = domain_of(node.domain)
    constant = node.op_type == "Constant" and domain == ""
    return constant or find(domain, node.op_type, opsets.get(domain, 1)) is not None


def is_function(node: NodeProto, opsets: dict[str, int]) -> bool:
    domain = domain_of(node.domain)
    schema: Any
    try:
        schema = defs.get_schema(node.op_type, opsets.get(domain, 1), domain)
    except defs.SchemaError:
        return False
    return schema.has_function or schema.has_context_dependent_function


class Reader:
    """Reads tensors, also those whose data lie in a file beside the model, never outside of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, tensor: TensorProto) -> Any:
        """A NumPy array; OnnxError if its data are missing, cut off, or not in the folder."""
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor = self.gathered(tensor)
        try:
            return numpy_helper.to_array(tensor)
        except (ValueError, TypeError) as error:
            kind = f"{name_of(tensor.data_type)} {list(tensor.dims)}"
            message = f"the tensor {tensor.name!r}, {kind}, is damaged: {error}"
            raise OnnxError(message) from None

    def gathered(self, tensor: TensorProto) -> TensorProto:
        """The tensor with its external data in it."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location, what = entries.get("location", ""), f"the data of {tensor.name!r}"
        file = (self.folder / location).resolve()
        if Path(location).is_absolute() or not file.is_relative_to(self.folder.resolve()):
            raise OnnxError(f"{what} are outside of the model's folder: {location}")
        if not file.is_file():
            raise OnnxError(f"{what} are missing: there is no file {location}")
        start = int(entries.get("offset", 0))
        length = int(entries.get("length", file.stat().st_size - start))
        if start < 0 or length < 0 or start + length > file.stat().st_size:
            raise OnnxError(f"{what} are cut off: {location} ends before byte {start + length}")
        with file.open("rb") as stream:
            stream.seek(start)
            data = stream.read(length)
        dims = list(tensor.dims)
        return TensorProto(name=tensor.name, data_type=tensor.data_type, dims=dims, raw_data=data)
