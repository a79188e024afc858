// weft_gpu_checks.h: checked functions for languages that have no variables of a device: a kernel
// with checks has a parameter weft_fault, which these pass on.
#pragma once

#define checked_index_i64(i, n) weft_checked_index_i64(weft_fault, i, n)
#define checked_divisor_i8(b) weft_checked_divisor_i8(weft_fault, b)
#define checked_divisor_i16(b) weft_checked_divisor_i16(weft_fault, b)
#define checked_divisor_i32(b) weft_checked_divisor_i32(weft_fault, b)
#define checked_divisor_i64(b) weft_checked_divisor_i64(weft_fault, b)
#define checked_divisor_u8(b) weft_checked_divisor_u8(weft_fault, b)
