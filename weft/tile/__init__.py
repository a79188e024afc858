"""The tile level: a kernel's loop nest, scheduled for one machine.

schedule.py       the passes of each machine, in the order in which they run
passes/programs/  passes over whole programs: they merge, split or change kernels together
passes/cpu/       passes over a kernel for CPUs: caches, panels, vector lanes, threads
passes/gpu/       passes over a kernel for GPUs: grid, shared memory, registers, tensor cores
passes/both/      passes over a kernel that both machines run
analysis/         what a nest is and touches, read from it: changes nothing
price/            what a nest costs, in microseconds, bytes and bank conflicts
moves/            changes to nests that several passes are made of
lower/            to the kernel level: register and vector axes become straight code
ops.py verify.py  what the level adds to the loop level, and its invariants

Words used throughout:
nest      a statement of a kernel: a loop with all that is in it
tile      a nest whose results are spread over two or more loops of threads
chunk     a part of a tile's sum, for which operands are staged in shared memory
slab      a tile of an operand in shared memory, one for each chunk
box       a slab, or a part of it, that one TMA command copies
fragment  the elements of a matrix that one thread holds for tensor cores
strip     consecutive elements that a thread takes, to make its accesses wide
panel     an operand's columns packed side by side for a CPU's register tile
"""
