"""Verify a loop program: the invariants of weft/scalar/verify.py, and

1. no loop is bound to hardware (the binds of LOOP).
"""

from weft.loop.ops import LOOP

verify = LOOP.verify
