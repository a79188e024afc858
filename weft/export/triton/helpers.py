"""Functions that a printed file has where its kernels call them: what Triton has no function for.

HELPERS["floordiv"]      # its text, a @triton.jit function
"""

_TEXTS = '''
def maximum(x, y):
    """The greater one; NaN where either is."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)

def minimum(x, y):
    """The lesser one; NaN where either is."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)

def floordiv(x, y):
    """The quotient rounded down; 0 by 0."""
    by = tl.where(y == 0, 1, y)
    whole = x // by
    rest = x - whole * by
    return tl.where(y == 0, 0, tl.where((rest != 0) & ((rest < 0) != (by < 0)), whole - 1, whole))

def truncdiv(x, y):
    """The quotient rounded towards 0; 0 by 0."""
    return tl.where(y == 0, 0, x // tl.where(y == 0, 1, y))

def floormod(x, y):
    """The rest with the sign of y; 0 by 0."""
    by = tl.where(y == 0, 1, y)
    rest = x % by
    return tl.where(y == 0, 0, tl.where((rest != 0) & ((rest < 0) != (by < 0)), rest + by, rest))

def rest(x, y):
    """The rest with the sign of x; 0 by 0."""
    return tl.where(y == 0, 0, x % tl.where(y == 0, 1, y))

def floormod_float(x, y):
    """The rest with the sign of y."""
    rest = libdevice.fmod(x, y)
    return tl.where((rest != 0.0) & ((rest < 0.0) != (y < 0.0)), rest + y, rest)

def shift_left(x, y, bits: tl.constexpr):
    """0 where it shifts by all bits."""
    return tl.where((y >= 0) & (y < bits), x << tl.where((y >= 0) & (y < bits), y, 0), x * 0)

def shift_right(x, y, bits: tl.constexpr):
    """The sign where it shifts by all bits."""
    return x >> tl.where((y >= 0) & (y < bits), y, bits - 1)

def shift_right_unsigned(x, y, bits: tl.constexpr):
    """0 where it shifts by all bits."""
    return tl.where(y < bits, x >> tl.where(y < bits, y, 0), x * 0)

def integer_power(x, y):
    """By squares; 1 where the exponent is negative."""
    power = tl.where(y < 0, 0, y)
    x = x + power * 0
    result = x * 0 + 1
    for _ in range(64):
        result = tl.where(power % 2 == 1, result * x, result)
        x = x * x
        power = power // 2
    return result

def to_integer(x):
    """Towards 0; 0 where no int64 holds it."""
    x = tl.cast(x, tl.float32) if x.dtype.primitive_bitwidth < 32 else x
    fits = (x >= -9223372036854775808.0) & (x < 9223372036854775808.0)
    return tl.cast(tl.where(fits, x, 0.0), tl.int64)

def philox(seed, counter):
    """64 random bits: two words of Philox4x32-10."""
    low: tl.constexpr = 4294967295
    c0, c1 = tl.cast(counter & low, tl.uint32), tl.cast((counter >> 32) & low, tl.uint32)
    k0, k1 = tl.cast(seed & low, tl.uint32), tl.cast((seed >> 32) & low, tl.uint32)
    none = c0 * 0
    c0, c1, c2, c3 = tl.philox_impl(c0, c1, none, none, k0, k1)
    return tl.cast(c0, tl.int64) | (tl.cast(c1, tl.int64) << 32)
'''
HELPERS = {
    text.partition("(")[0].removeprefix("def "): f"@triton.jit\n{text.strip()}\n"
    for text in _TEXTS.strip().split("\n\n")
}
