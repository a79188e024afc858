"""The C-like languages of GPU kernels: a row says what each spells in its own way.

CUDA.barrier         # __syncthreads();
OPENCL.barrier       # barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
A new one is a row here, and a prelude in runtime/gpu/ with the functions of scalar/ops.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.core.types import DType, f32, f64

# Of the preludes, beyond what Names knows by its form.
OURS = "barrier shuffle_xor load store mma atomic_add atomic_maximum atomic_minimum"
CPP = (
    "alignas alignof and and_eq bitand bitor bool catch class compl concept const_cast consteval "
    "constexpr constinit co_await co_return co_yield decltype delete dynamic_cast explicit export "
    "false friend mutable namespace new noexcept not not_eq nullptr operator or or_eq private "
    "protected public reinterpret_cast requires static_assert static_cast template this "
    "thread_local throw true try typeid typename using virtual wchar_t xor xor_eq"
)


def words(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


@dataclass(frozen=True, kw_only=True)
class Language:
    """The spellings of one language. {fields} are filled in; "" where it has no such word."""

    title: str  # for people
    prelude: str  # the header that says the rest
    kernel: str  # its head: {symbol}, {parameters}, {threads} of a block
    buffer: str  # a parameter: {const}, {type}, {name}, {number}
    pointer: str = ""  # a variable for one, where that is spelt otherwise
    size: str = "const i64 {name}"  # a size that the call decides, by value: {name}, {number}
    faults: str = ""  # the parameter where faults go, if they need one: {number}
    block: str  # which of the grid's this is
    thread: str  # which of the block's
    barrier: str
    exchange: str = ""  # what another thread of the warp has: {value}, {distance}
    products: str = ""  # function of a warp that multiplies matrices
    groups: str = ""  # functions of a warpgroup that multiplies matrices in shared memory
    copies: str = ""  # functions that copy to shared memory, past registers
    boxes: str = ""  # functions of a copy engine
    spaces: Mapping[str, str]  # before an array or a pointer, by where that is
    # before an array that starts at a multiple of {bytes}
    aligned: str = "__attribute__((aligned({bytes}))) "
    dynamic: str = ""  # shared memory that the launch asks for: where it begins
    outermost: bool = False  # shared arrays stand where the kernel begins, and nowhere inside
    vector: str = "{type}{{{values}}}"  # elements side by side
    lane: str = "{vector}.at[{lane}]"  # one of them
    load: str = "*(const {space}{type} *)({at})"  # all of them
    store: str = "*({space}{type} *)({at}) = {value};"
    bits: Mapping[DType, str]  # the float of these bits: infinities and NaN
    reserved: frozenset[str]  # what a name must not be, beyond C's words

    def lacks(self, dtype: DType) -> bool:
        """Whether it has no such type."""
        return dtype in (f32, f64) and dtype not in self.bits


CUDA = Language(
    title="CUDA",
    prelude="weft_cuda.cuh",
    # one block to a multiprocessor is enough: asked for none, the compiler spills to fit three
    kernel='extern "C" __global__ void __launch_bounds__({threads}, 1) {symbol}({parameters})',
    buffer="{const}{type} *__restrict__ {name}",
    block="blockIdx.x",
    thread="threadIdx.x",
    barrier="__syncthreads();",
    exchange="shuffle_xor({value}, {distance})",
    products="mma",
    groups="wgmma",
    copies="cp_async",
    boxes="tma_load",
    dynamic="dynamic_shared()",
    spaces={"global": "", "shared": "__shared__ ", "local": ""},
    aligned="__align__({bytes}) ",
    lane="{vector}[{lane}]",
    load="load<{type}>({at})",
    store="store({at}, {value});",
    bits={f32: "__int_as_float({:#x})", f64: "__longlong_as_double({:#x})"},
    reserved=words(OURS, CPP, "threadIdx blockIdx blockDim gridDim warpSize"),
)
LACKING = {"products": "", "groups": "", "copies": "", "boxes": ""}
HIP = replace(CUDA, title="HIP", prelude="weft_hip.cuh", **LACKING)
OPENCL = Language(
    title="OpenCL C",
    prelude="weft_opencl.cl",
    kernel="__kernel __attribute__((reqd_work_group_size({threads}, 1, 1))) "
    "void {symbol}({parameters})",
    buffer="__global {const}{type} *restrict {name}",
    faults="volatile __global i32 *weft_fault",
    block="get_group_id(0)",
    thread="(i32)get_local_id(0)",  # PoCL 3.1 runs loops that begin at the size_t without end
    barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    spaces={"global": "__global ", "shared": "__local ", "local": ""},
    outermost=True,
    vector="({type}){{{{{values}}}}}",
    bits={f32: "as_float({:#x})", f64: "as_double({:#x}L)"},
    reserved=words(
        OURS,
        "bool complex constant event_t false generic global half imaginary kernel local pipe "
        "private quad read_only read_write true uchar uint ulong uniform ushort vec_step "
        "write_only",
    ),
)
METAL = Language(
    title="Metal",
    prelude="weft_metal.h",
    kernel="[[kernel, max_total_threads_per_threadgroup({threads})]] void {symbol}({parameters}, "
    "u32 weft_block [[threadgroup_position_in_grid]], "
    "u32 weft_thread [[thread_position_in_threadgroup]])",
    buffer="device {const}{type} *{name} [[buffer({number})]]",
    pointer="device {const}{type} *{name}",
    size="constant i64 &{name} [[buffer({number})]]",
    faults="device atomic_int *weft_fault [[buffer({number})]]",
    block="weft_block",
    thread="weft_thread",
    barrier="threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);",
    spaces={"global": "device ", "shared": "threadgroup ", "local": ""},
    outermost=True,
    bits={f32: "as_type<f32>({:#x})"},  # no f64
    reserved=words(
        OURS, CPP, "constant device fragment half kernel metal object_data ray_data sampler "
        "texture thread threadgroup threadgroup_imageblock uchar uint ulong ushort vertex",
    ),
)  # fmt: skip

LANGUAGES = {"cuda": CUDA, "hip": HIP, "opencl": OPENCL, "metal": METAL}
