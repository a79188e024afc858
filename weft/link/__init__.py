"""From emitted text to what can be called: a program's buffers meet the runtime's.

cpu.py gpu.py simulator.py   link(emitted, ...) for where a program runs; relink(key) from the cache
program.py                   what these share: the launch spec, and the linked program itself
places.py                    which devices a target's kernels reach
key.py                       what the cache finds a program by
"""
