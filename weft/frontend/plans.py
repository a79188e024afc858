"""What Dynamo's code of a call does, as data: where its program's inputs are, and what it returns.

plan = plan_of(code, "__compiled_fn_1", {})     # of "return [fn(args[0], self.x)[0]][0]" and such
plan.reads      # ((TUPLE_ITEM, 0, 0), (ATTRIBUTE, 2, 0)): kind, of which value, which key
plan.inputs     # (3, 4): values by number, after the call's args, kwargs and fn
plan.result     # 0: the first of the program's results

Code that does anything else than that has no plan. C follows it (runtime/weft_calls.c).
"""

from __future__ import annotations

import dis
import sys
import types
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GIVEN = {"args": 0, "kwargs": 1, "fn": 2}
OBJECT, TUPLE_ITEM, ATTRIBUTE, ITEM = range(4)
ALL_RESULTS, NO_RESULT = -1, -2
MOST = 128  # values
METHODS = sys.version_info >= (3, 12)  # whether LOAD_ATTR may load one for a call
NOTHING = ("RESUME", "COPY_FREE_VARS", "NOP", "CACHE", "PRECALL")


@dataclass(frozen=True)
class Plan:
    """`result` is the number of one, ALL_RESULTS of `count`, or NO_RESULT: the constant keys[0]."""

    reads: tuple[tuple[int, int, int], ...]
    keys: tuple[Any, ...]
    inputs: tuple[int, ...]
    result: int
    count: int = 1

    def packed(self) -> bytes:
        """As C reads it."""
        numbers = [len(self.reads), *(n for read in self.reads for n in read)]
        numbers += [len(self.inputs), *self.inputs, self.result, self.count]
        return array("i", numbers).tobytes()


@dataclass(frozen=True)
class Value:
    number: int


@dataclass(frozen=True)
class Constant:
    value: Any


@dataclass(frozen=True)
class Result:
    """A result of the program by number, or all of them."""

    number: int | None = None


class Differs(Exception):
    """The code does something else."""


@dataclass
class _Code:
    """Straight-line code, followed on values that stand for what it computes."""

    name: str
    scope: Mapping[str, Any]
    reads: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    keys: list[Any] = field(default_factory=list[Any])
    inputs: tuple[int, ...] | None = None
    stack: list[Any] = field(default_factory=list[Any])
    names: dict[str, Any] = field(
        default_factory=lambda: {name: Value(i) for name, i in GIVEN.items()}
    )

    def read(self, kind: int, of: int, key: Any) -> Value:
        number = key
        if kind != TUPLE_ITEM:
            number = len(self.keys)
            self.keys.append(key)
        self.reads.append((kind, of, number))
        return Value(len(GIVEN) + len(self.reads) - 1)

    def item(self, of: Any, key: Any) -> Any:
        if not isinstance(key, Constant):
            raise Differs
        at = key.value
        if isinstance(of, Result) and of.number is None and type(at) is int and at >= 0:
            return Result(at)
        if not isinstance(of, Value):
            raise Differs
        is_argument = of.number == GIVEN["args"] and type(at) is int and at >= 0
        return self.read(TUPLE_ITEM if is_argument else ITEM, of.number, at)

    def call(self, count: int) -> Result:
        given = [self.stack.pop() for _ in range(count)][::-1]
        function, null = self.stack.pop(), self.stack.pop()
        alone = function == self.name and null is None and self.inputs is None
        if not alone or not all(isinstance(value, Value) for value in given):
            raise Differs
        self.inputs = tuple(value.number for value in given)
        return Result()

    def run(self, code: types.CodeType) -> Any:
        """What it returns."""
        for step in dis.get_instructions(code):
            if step.opname == "RETURN_VALUE":
                return self.stack.pop()
            if step.is_jump_target:
                raise Differs
            if step.opname not in NOTHING:
                self.step(step.opname, step.argval, step.arg or 0)
        raise Differs

    def step(self, op: str, value: Any, count: int) -> None:
        stack = self.stack
        if op in ("LOAD_FAST", "LOAD_DEREF"):
            stack.append(self.names[value])
        elif op == "STORE_FAST":
            self.names[value] = stack.pop()
        elif op == "DELETE_FAST":
            del self.names[value]
        elif op == "LOAD_CONST":
            stack.append(Constant(value))
        elif op == "LOAD_GLOBAL":
            stack += [None] if count & 1 else []
            stack.append(value if value == self.name else self.read(OBJECT, 0, self.scope[value]))
        elif op == "PUSH_NULL":
            stack.append(None)
        elif op == "LOAD_ATTR" and isinstance(stack[-1], Value) and not (METHODS and count & 1):
            stack.append(self.read(ATTRIBUTE, stack.pop().number, value))
        elif op == "BINARY_SUBSCR":
            key = stack.pop()
            stack.append(self.item(stack.pop(), key))
        elif op == "CALL":
            stack.append(self.call(count))
        else:
            self.arrange(op, count)

    def arrange(self, op: str, count: int) -> None:
        """What makes lists and tuples, and moves what is on the stack."""
        stack = self.stack
        if op in ("BUILD_LIST", "BUILD_TUPLE"):
            made = [stack.pop() for _ in range(count)][::-1]
            stack.append(made if op == "BUILD_LIST" else tuple(made))
        elif op == "LIST_EXTEND" and isinstance(stack[-1], (list, tuple)):
            more: Any = stack.pop()
            stack[-count].extend(more)
        elif op == "COPY":
            stack.append(stack[-count])
        elif op == "SWAP":
            stack[-1], stack[-count] = stack[-count], stack[-1]
        elif op == "POP_TOP":
            stack.pop()
        elif op == "UNPACK_SEQUENCE" and isinstance(stack[-1], list) and len(stack[-1]) == count:
            stack += stack.pop()[::-1]
        else:
            raise Differs


def plan_of(code: types.CodeType, name: str, scope: Mapping[str, Any]) -> Plan | None:
    """What the code does beside its one call of `name`; None where it does more than a plan."""
    own = _Code(name, scope)
    try:
        returned = own.run(code)
    except (Differs, KeyError, IndexError, TypeError, AttributeError):
        return None
    inputs, keys = own.inputs, own.keys
    if inputs is None or max(len(own.reads) + len(GIVEN), len(inputs)) > MOST:
        return None
    result, count = NO_RESULT, 1
    if isinstance(returned, Result) and returned.number is not None:
        result = returned.number
    elif isinstance(returned, tuple) and returned == tuple(map(Result, range(len(returned)))):
        result, count = ALL_RESULTS, len(returned)
    elif isinstance(returned, Constant):
        reads = [read if read[0] == TUPLE_ITEM else (*read[:2], read[2] + 1) for read in own.reads]
        return Plan(tuple(reads), (returned.value, *keys), inputs, result)
    else:
        return None
    return Plan(tuple(own.reads), tuple(keys), inputs, result, count)
