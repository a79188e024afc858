"""Records the ATen calls of a program on fake tensors as a functional graph.

    with fake_mode, tracer:
        fn(*fake_inputs)            # tracer.ref(out).value is now the graph that gives out

It sits below autograd and below composite ops, so nearly every op is core ATen.
"""

# This file reaches into torch: its dispatcher and tables have no public names for all of it.
# pyright: reportPrivateUsage=false

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._python_dispatch import is_traceable_wrapper_subclass_type as is_wrapper_type
from torch.utils._pytree import tree_leaves, tree_map_only

from weft.core.errors import CaptureError
from weft.core.node import Node, make
from weft.frontend import schema
from weft.frontend.aliasing import Ref, Step, Storage, is_dense, read, write
from weft.frontend.assumptions import PLAIN
from weft.frontend.floats import Floats
from weft.frontend.graph import Geometry, Placeholder
from weft.frontend.randoms import Draws
from weft.frontend.torch_level import NOTHING, Aten, encode_call, type_of
from weft.tensor.ops import Input, Part

aten = torch.ops.aten


class Tracer(TorchDispatchMode):
    """The graph so far, and for every tensor the program holds, what it is in the graph."""

    def __init__(
        self, fake_mode: FakeTensorMode, fused_random: bool = True, differentiates: bool = False
    ) -> None:
        super().__init__()
        self.differentiates = differentiates  # whether gradients are weft's own: see derivatives.py
        self.marks = 0  # variables and cotangents so far
        self.own: dict[OpOverload, Callable[..., Any]] = {}  # what records some ops
        self.steady = False  # in a composite that does not depend on the maxima it takes
        self.through = False  # gradients pass, whatever torch's mode is
        self.randoms = Draws(lambda: self).table() if fused_random else {}
        self.fake_mode = fake_mode
        self.names: dict[Node, str] = {}
        self.origin: dict[Node, str] = {}  # the line of the program that made a node
        self.last: dict[str, Node] = {}  # the last random call, and collective: the next come after
        self.placeholders: list[Placeholder] = []
        self.sources: list[torch.Tensor] = []  # the real tensor of each placeholder
        self.roots: list[Ref] = []  # the ref of each placeholder
        self.refs: dict[int, Ref] = {}  # by id of a tensor: a fake, or the source of a placeholder
        self.known: dict[int, torch.Tensor] = {}  # fakes whose numbers are known, by id
        self.fakes: dict[Node, torch.Tensor] = {}
        self.location = ""  # the line of the program that runs now: "model.py line 12: y = f(x)"
        self.numbers: dict[int, Any] = {}  # by position, inputs whose value the program has read
        self.floats = Floats(self.record)
        self.paused = False
        self._used: dict[str, int] = {}  # names, and the last number after each

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(map(is_wrapper_type, types)):
            return NotImplemented  # its own dispatch says what the call computes
        if self.paused or func.namespace == "prim":
            return func(*args, **kwargs)
        return self.record(func, args, kwargs)

    def record(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if op is aten.lift_fresh.default and not isinstance(args[0], FakeTensor):
            return self._literal(args[0])
        if op is aten._local_scalar_dense.default:
            return self._number(self.ref(args[0]))
        if op is aten.size.default:
            return list(args[0].shape)
        if op in schema.BATCH_NORMS:
            return self._batch_norm(op, args)
        if op._schema.name.startswith("aten::_foreach_"):  # by torch: one call for each tensor
            with self:
                return op._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
        if op in self.randoms:
            with self, self.dispatcher():
                found = self.randoms[op](*args, **kwargs)
            if found is not NotImplemented:
                return found
        if op in self.own and not self.through and torch.is_grad_enabled():
            return self.own[op](op, args, kwargs)
        what = schema.effect(op)
        if schema.reads_storage(op) and self.fake(args[0]).storage_offset():
            raise CaptureError(f"{op} of a view that does not begin where its storage does")
        if what == "composite":
            before, self.steady = self.steady, op in schema.STEADY
            try:
                with self, self.dispatcher():
                    return schema.composition(op)(*args, **kwargs)
            finally:
                self.steady = before
        effects = {"view": self._view, "write": self._write, "reshape": self._reshape}
        if what in effects:
            return effects[what](op, args, kwargs)
        outs = self.call(op, self._fakes(args), self._fakes(kwargs))
        if not any(isinstance(t, torch.Tensor) for t in tree_leaves(outs)):
            return outs
        if any(isinstance(a, torch.SymFloat) for a in tree_leaves((args, kwargs))):
            return self.floats.call(op, args, kwargs, outs)
        self.add(op, self._values(args), self._values(kwargs), outs)
        return outs

    def call(self, op: OpOverload, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an op on fake tensors, unrecorded."""
        before, self.paused = self.paused, True
        try:
            with self.fake_mode, self.dispatcher():
                return op(*args, **kwargs)
        finally:
            self.paused = before

    def dispatcher(self) -> AbstractContextManager[None]:
        """Python's own decompositions where sizes are free, which some of C++'s refuse."""
        return nullcontext() if self.fake_mode.shape_env is None else enable_python_dispatcher()

    def add(
        self, op: OpOverload, args: Any, kwargs: dict[str, Any], outs: Any
    ) -> list[Node | None]:
        """The call as a node; its results, fresh tensors (None for one the op leaves undefined)."""
        flat = tree_leaves(outs)
        several = len(flat) > 1
        layouts = {t.layout for t in flat if isinstance(t, torch.Tensor)} - {torch.strided}
        if layouts:
            raise CaptureError(f"{op} gives a tensor with layout {layouts.pop()}")
        name = self._name(op._schema.name.split("::")[1])
        chain = schema.chain_of(op)
        results = tuple(type_of(t) if isinstance(t, torch.Tensor) else NOTHING for t in flat)
        arguments, nodes = encode_call(args, kwargs)
        last = self.last.get(chain)
        nodes = nodes if last is None or last in nodes else (*nodes, last)
        whole = make(Aten(str(op), arguments, results), *nodes)
        if self.location:
            self.origin.setdefault(whole, self.location)
        values: list[Node | None] = []
        for i, fake in enumerate(flat):
            if not isinstance(fake, torch.Tensor):
                values.append(None)
                continue
            value = make(Part(i), whole) if several else whole
            self.names.setdefault(value, f"{name}_{i}" if several else name)
            values.append(value := self._stopped(value, fake) if self._stops(op) else value)
            self.hold(fake, value)
        if chain:
            self.last[chain] = next(v for v in values if v is not None)
        return values

    def hold(self, fake: torch.Tensor, value: Node) -> None:
        """Note what a fresh tensor of the program is in the graph."""
        self.fakes[value] = fake
        self.refs.setdefault(id(fake), Ref(fake, Storage(), value))

    def emit(self, op: OpOverload, *args: Any, index: int = 0, **kwargs: Any) -> Node:
        """A node on values rather than tensors; returns its result number `index`."""
        if op in schema.IDENTITY:
            stops = op is aten.detach.default and self.differentiates
            return self._stopped(args[0], self.fakes[args[0]]) if stops else args[0]
        outs = self.call(op, tree_map_only(Node, self.fakes.__getitem__, args), kwargs)
        before, self.through = self.through, True
        value = self.add(op, args, kwargs, outs)[index]
        self.through = before
        assert value is not None
        return value

    def _stops(self, op: OpOverload) -> bool:
        """Whether no gradient passes to what the program computes now."""
        if not self.differentiates or op.namespace == "weft":
            return False
        if op is aten.detach.default or (self.steady and op is aten.amax.default):
            return True
        return not (self.through or torch.is_grad_enabled())

    def _stopped(self, value: Node, fake: torch.Tensor) -> Node:
        if not value.type.dtype.is_float:
            return value
        arguments, nodes = encode_call((value,), {})
        stopped = make(Aten("weft.stop.default", arguments, (value.type,)), *nodes)
        self.names.setdefault(stopped, self._name("stop"))
        self.fakes[stopped] = fake
        return stopped

    # What each tensor is

    def ref(self, tensor: torch.Tensor) -> Ref:
        found = self.refs.get(id(tensor))
        return found or (self._twin if isinstance(tensor, FakeTensor) else self._lift)(tensor)

    def value(self, tensor: torch.Tensor) -> Node:
        return read(self.ref(tensor), self.emit)

    def fake(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.ref(tensor).fake

    def _values(self, args: Any) -> Any:
        return tree_map_only(torch.Tensor, self.value, args)

    def _fakes(self, args: Any) -> Any:
        return tree_map_only(torch.Tensor, self.fake, args)

    def _twin(self, tensor: torch.Tensor) -> Ref:
        """A tensor made behind the dispatcher's back, such as x.data: another name of one."""
        type_, pointer = type_of(tensor), tensor.untyped_storage()._cdata
        for ref in [*self.refs.values()]:
            if ref.fake.untyped_storage()._cdata == pointer and type_of(ref.fake) == type_:
                step = Step(aten.alias.default, (), {}, 0)
                twin = Ref(tensor, ref.storage, read(ref, self.emit), ref.version, ref, step)
                return self.refs.setdefault(id(tensor), twin)
        raise CaptureError(f"a tensor {type_} whose origin the trace did not see")

    # Placeholders

    def placeholder(self, source: torch.Tensor, name: str, **fields: Any) -> Ref:
        """A tensor from outside: a new placeholder and its fake."""
        region: Geometry | None = fields.get("region")
        with _disable_current_modes():
            fake = self._new_fake(source if region is None else region.of(source))
        node = make(Input(self._name(name), type_of(fake)))
        self.names[node], self.fakes[node] = node.op.label, fake  # type: ignore[attr-defined]
        ref = Ref(fake, Storage(placeholder=len(self.placeholders)), node)
        self.placeholders.append(Placeholder(node, **fields))
        self.sources.append(source)
        self.roots.append(ref)
        self.refs[id(fake)] = ref
        return ref

    def _new_fake(self, real: torch.Tensor) -> FakeTensor:
        if type(real) not in PLAIN or real.layout is not torch.strided or real.is_quantized:
            raise CaptureError(f"a {type(real).__name__} with layout {real.layout}")
        if real.is_conj() or real.is_neg():
            raise CaptureError("a tensor with a lazy conjugate or negation")
        with torch._C._DisableTorchDispatch():
            meta = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device="meta")
        fake = FakeTensor(self.fake_mode, meta, real.device)
        fake.requires_grad_(real.requires_grad and not self.differentiates)
        return fake

    def _lift(self, real: torch.Tensor) -> Ref:
        """A tensor that is neither input nor result: a literal of the program."""
        return self.refs.setdefault(id(real), self.placeholder(real, "constant", tensor=real))

    def _literal(self, real: torch.Tensor) -> torch.Tensor:
        """torch.tensor(...) inside the program: a fresh tensor of known numbers."""
        if real.dim() == 0:
            number = self._item(real)
            value = self.emit(aten.full.default, [], number, dtype=real.dtype, device=real.device)
        else:
            value = self.emit(aten.clone.default, self._lift(real).value)
        fake = self.fakes[value]
        self.known[id(fake)] = real
        return fake

    def _number(self, ref: Ref) -> Any:
        if id(ref.fake) in self.known and ref.storage.version == 0:
            return self._item(self.known[id(ref.fake)])
        outside = ref.storage.placeholder
        if outside is not None and ref.root is ref and ref.storage.version == 0:
            position, source = self.placeholders[outside].position, self.sources[outside]
            if position is not None and not isinstance(source, FakeTensor):
                self.numbers[position] = self._item(source)
                return self.numbers[position]
        raise CaptureError("the program reads a tensor's number to decide what to do")

    def _item(self, real: torch.Tensor) -> Any:
        with _disable_current_modes():
            return real.item()

    def _view(self, op: OpOverload, args: Any, kwargs: dict[str, Any]) -> Any:
        parent = self.ref(args[0])
        if op is aten.as_strided.default:
            offset = [a for a in args[3:] if a is not None] or [parent.fake.storage_offset()]
            args, parent = (*args[:3], *offset), self._strided_parent(parent)
        # how many pieces a free axis has is torch's to say, by a guard: their lengths are told
        if op is aten.split.Tensor and parent.fake._has_symbolic_sizes_strides:
            op, dim = aten.split_with_sizes.default, [*args[2:], kwargs.get("dim", 0)][0]
            lengths = [t.shape[dim] for t in parent.fake.split(args[1], dim)]
            args, kwargs = (args[0], lengths, dim), {}
        value = read(parent, self.emit)
        outs = self.call(op, self._fakes(args), kwargs)
        if op in schema.IDENTITY:
            fake = tree_leaves(outs)[0]
            made: list[Node | None] = [self._stopped(value, fake) if self._stops(op) else value]
        else:
            # A write may have left the value with strides that do not allow this view.
            moved = value.type != type_of(parent.fake)
            reshaped = aten.reshape.default if op is aten.view.default and moved else op
            made = self.add(reshaped, (value, *args[1:]), kwargs, outs)
        for i, (fake, new) in enumerate(zip(tree_leaves(outs), made, strict=True)):
            if fake is parent.fake:
                continue
            assert new is not None
            step = Step(op, args[1:], kwargs, i)
            version = parent.storage.version
            self.refs[id(fake)] = Ref(fake, parent.storage, new, version, parent, step)
        return outs

    def _strided_parent(self, ref: Ref) -> Ref:
        root = ref.root
        value = read(root, self.emit)
        if value.type != type_of(root.fake) or not is_dense(value.type):
            raise CaptureError("as_strided of a tensor that is itself strided")
        outside = root.storage.placeholder
        if outside is not None and self.sources[outside].storage_offset() != 0:
            raise CaptureError("as_strided of an input that is a view")
        return root

    def _write(self, op: OpOverload, args: Any, kwargs: dict[str, Any]) -> Any:
        where = schema.written_argument(op)
        argument = op._schema.arguments[where]
        target = args[where] if where < len(args) else kwargs[argument.name]
        ref = self.ref(target)
        rest = {k: v for k, v in kwargs.items() if not (argument.is_out and k == argument.name)}
        if op is aten.copy_.default:
            new = args[1]
        else:
            outs = self.record(schema.functional(op), schema.with_defaults(op, args, rest), rest)
            new = tree_leaves(outs)[0]
        value = self._converted(self.value(new), ref.fake)
        if self.differentiates and ref.fake.is_floating_point():
            value = self._unseen(ref, value)
        write(ref, value, self.emit)
        return target

    def _unseen(self, ref: Ref, value: Node) -> Node:
        """What is written: where gradients are off, to them it is what was there, as in torch."""
        above: Ref | None = ref
        while above is not None:
            if above.step is not None and above.step.op is aten.detach.default:
                raise CaptureError("a write to a detached tensor, in a function to differentiate")
            above = above.parent
        if self.through or torch.is_grad_enabled():
            return value
        self.marks += 1
        before = read(ref, self.emit)
        op = torch.ops.weft.straight_through.default
        return self.emit(op, before, value, number=self.marks - 1)

    def _converted(self, value: Node, like: torch.Tensor) -> Node:
        """`value` as something of this shape and dtype holds it."""
        held = self.fakes[value]
        if held.dtype != like.dtype or held.device != like.device:
            value = self.emit(aten._to_copy.default, value, dtype=like.dtype, device=like.device)
        if held.shape != like.shape:
            if held.dim() > like.dim() or 0 in like.shape:
                raise CaptureError("an out= tensor that has to grow")
            value = self.emit(aten.expand.default, value, list(like.shape))
        return value

    def _reshape(self, op: OpOverload, args: Any, kwargs: dict[str, Any]) -> Any:
        """x.unsqueeze_(0): x becomes a view of what it was."""
        ref = self.ref(args[0])
        if ref.parent is None and ref.storage.placeholder is not None:
            raise CaptureError(f"{op} changes the shape of an input")
        fake = ref.fake
        # what it was goes on under another fake tensor: earlier views are views of that
        ref.fake = before = self.call(aten.alias.default, (fake,), {})
        self.refs[id(before)] = ref
        for node in [n for n, held in self.fakes.items() if held is fake]:
            self.fakes[node] = before
        value = self.emit(schema.functional(op), read(ref, self.emit), *args[1:], **kwargs)
        self.call(op, (fake, *args[1:]), kwargs)
        step = Step(schema.functional(op), args[1:], kwargs, 0)
        self.refs[id(fake)] = Ref(fake, ref.storage, value, ref.version, ref, step)
        return args[0]

    def _batch_norm(self, op: OpOverload, args: Any) -> Any:
        """Batch norm writes its running statistics without saying so in its schema."""
        x, weight, bias, mean, var, training, momentum, eps = args[:8]
        plain = aten._native_batch_norm_legit.no_stats
        kept = aten._native_batch_norm_legit_functional.default
        known = () if mean is None else (mean, var)
        call = (x, weight, bias, *known, training, momentum, eps)
        outs = self.record(kept if known else plain, call, {})
        for tensor, new in zip(known, outs[3:], strict=True) if training else ():
            write(self.ref(tensor), self.value(new), self.emit)
        return (*outs[:3], *[outs[2]] * (len(op._schema.returns) - 3))  # cudnn's workspace too

    # Names and places

    def _name(self, base: str) -> str:
        base = "".join(c if c.isalnum() else "_" for c in base).strip("_")
        name = base
        while name in self._used:
            self._used[base] += 1
            name = f"{base}_{self._used[base]}"
        self._used[name] = 0
        return name
