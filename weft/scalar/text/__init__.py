"""Text of the loop and tile levels; the kernel level adds its own forms in kernel/text.py.

show_nest(LOOP, program)    # program loop main ... kernel relu(x: f32[4]) -> relu: f32[4] ...
"""

from weft.core.text.level import Level
from weft.scalar.text.parser import read_nest
from weft.scalar.text.printer import show_nest
from weft.scalar.text.statements import NEST_FORMS

LOOP = Level("loop", ("scalar", "loop"), show_nest, read_nest, forms=NEST_FORMS)
TILE = Level("tile", ("scalar", "loop", "tile"), show_nest, read_nest, forms=NEST_FORMS)
