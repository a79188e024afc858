// weft_gpu_vectors.h: the vector types of every language, f32x2 to u8x16: of 8 bytes, of 16, and the
// shorter ones of short elements. WEFT_VECTOR(T, n) defines one; WEFT_F64(text) is where f64 is.
#pragma once

#define WEFT_2(T) WEFT_VECTOR(T, 2)
#define WEFT_4(T) WEFT_2(T) WEFT_VECTOR(T, 4)
#define WEFT_8(T) WEFT_4(T) WEFT_VECTOR(T, 8)
#define WEFT_16(T) WEFT_8(T) WEFT_VECTOR(T, 16)
WEFT_F64(WEFT_2(f64)) WEFT_2(i64) WEFT_2(u64)
WEFT_4(f32) WEFT_4(i32) WEFT_4(u32)
WEFT_8(f16) WEFT_8(bf16) WEFT_8(i16) WEFT_8(u16)
WEFT_16(i8) WEFT_16(u8) WEFT_16(f8e4m3fn) WEFT_16(f8e5m2)
