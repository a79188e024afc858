"""Verify a loop program: the invariants of weft/scalar/verify.py, and

1. no loop is bound to hardware (the binds of LOOP).
"""

from weft.loop.ops import LOOP
from weft.scalar.nest import Program
from weft.scalar.verify import verify_program


def verify(program: Program) -> None:
    """Raise VerifyError unless it is a valid loop program."""
    verify_program(program, LOOP)
