// weft_math_f64.h: the f64 functions of weft_math.h, which includes this for every width.
//
// Within 2 ulp; tan, asin and acos within 3. Sources of the polynomials and of the splits that keep
// the last bits: fdlibm (log and its family, sin, cos, atan, asin), Cephes (tanh, erf), the Taylor
// series (exp and its family).

#if defined(WEFT_AVX512) && WEFT_LANES >= 2 && !defined(__clang__)
WEFT_MAP_CHUNKS_2(scale, f64, 8)
#else
WEFT_FN V(f64) F(scale, f64)(V(f64) p, V(f64) n) {
    V(f64) h = FMA(f64, n, 0.5, 0x1.8p52) - 0x1.8p52;
    V(i64) low = AS(i64, h + (0x1.8p52 + 1023)) << 52;
    V(i64) high = AS(i64, (n - h) + (0x1.8p52 + 1023)) << 52;
    p = F(select, f64)(F(lt, f64)(n, SPLAT(f64, WEFT_SCALE_F64_ZERO)), SPLAT(f64, 0), p);
    return p * AS(f64, low) * AS(f64, high);
}
#endif

// ---- exp and its family: x = n ln 2 + r with |r| <= ln 2 / 2

// e^r - 1.
WEFT_FN V(f64) F(expm1_near, f64)(V(f64) r) {
    V(f64) q = FMA(f64, r, 1 / 6227020800., 1 / 479001600.);
    q = FMA(f64, q, r, 1 / 39916800.);
    q = FMA(f64, q, r, 1 / 3628800.);
    q = FMA(f64, q, r, 1 / 362880.);
    q = FMA(f64, q, r, 1 / 40320.);
    q = FMA(f64, q, r, 1 / 5040.);
    q = FMA(f64, q, r, 1 / 720.);
    q = FMA(f64, q, r, 1 / 120.);
    q = FMA(f64, q, r, 1 / 24.);
    q = FMA(f64, q, r, 1 / 6.);
    q = FMA(f64, q, r, 0.5);
    return FMA(f64, q * r, r, r);
}
// e^x is 2^n (1 + m) for |x| < 1e9: returns m.
WEFT_FN V(f64) F(exp_parts, f64)(V(f64) x, V(f64) *n) {
    *n = FMA(f64, x, 1.4426950408889634, 0x1.8p52) - 0x1.8p52;
    V(f64) r = FMA(f64, *n, -6.93147180369123816490e-01, x);
    return F(expm1_near, f64)(FMA(f64, *n, -1.90821492927058770002e-10, r));
}

WEFT_FN V(f64) F(exp, f64)(V(f64) x) {
    V(f64) n, m;
    x = F(lesser, f64)(SPLAT(f64, 710), F(greater, f64)(SPLAT(f64, -746), x));
    m = F(exp_parts, f64)(x, &n);
    return F(scale, f64)(m + 1, n);
}
static inline V(f64) F(exp2, f64)(V(f64) x) {
    x = F(lesser, f64)(SPLAT(f64, 1025), F(greater, f64)(SPLAT(f64, -1076), x));
    V(f64) n = (x + 0x1.8p52) - 0x1.8p52, r = x - n;
    V(f64) low = r * 2.319046813846299558e-17;  // ln 2 in two parts
    return F(scale, f64)(F(expm1_near, f64)(FMA(f64, r, 0.693147180559945309, low)) + 1, n);
}
// 2^n m + (2^n - 1), at half size since 2^1024 is no f64.
WEFT_FN V(f64) F(expm1_of, f64)(V(f64) m, V(f64) n) {
    V(f64) half = AS(f64, AS(i64, n + (0x1.8p52 + 1022)) << 52);
    return FMA(f64, m, half, half - 0.5) * 2;
}
static inline V(f64) F(expm1, f64)(V(f64) x) {
    V(f64) n, a = F(lesser, f64)(SPLAT(f64, 710), F(greater, f64)(SPLAT(f64, -40), x));
    V(f64) m = F(exp_parts, f64)(a, &n), y = F(expm1_of, f64)(m, n);
    return F(select, f64)(F(lt, f64)(F(abs, f64)(x), SPLAT(f64, 1e-20)), x, y);
}
static inline V(f64) F(cosh, f64)(V(f64) x) {
    V(f64) n, m = F(exp_parts, f64)(F(lesser, f64)(SPLAT(f64, 712), F(abs, f64)(x)), &n);
    V(f64) half = F(scale, f64)(m + 1, n - 1);
    return half + 0.25 / half;
}
// (e^a - e^-a) / 2; below 1 by e^a - 1, which has no cancellation.
static inline V(f64) F(sinh, f64)(V(f64) x) {
    V(f64) n, a = F(lesser, f64)(SPLAT(f64, 712), F(abs, f64)(x)), m = F(exp_parts, f64)(a, &n);
    V(f64) half = F(scale, f64)(m + 1, n - 1), less = F(expm1_of, f64)(m, n);
    BOOL small = F(lt, f64)(a, SPLAT(f64, 1));
    V(f64) quotient = F(select, f64)(small, less, SPLAT(f64, -0.5)) /
                      F(select, f64)(small, less + 1, half);
    V(f64) y = (F(select, f64)(small, less, half * 2) + quotient) * 0.5;
    y = F(select, f64)(F(gt, f64)(half, SPLAT(f64, 0x1p1000)), half, y);
    y = F(select, f64)(F(lt, f64)(a, SPLAT(f64, 1e-20)), a, y);
    return F(copysign, f64)(y, x);
}

// ---- log and its family: x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)]

// log(1 + f) is f - (f f / 2 - rest): returns the rest.
WEFT_FN V(f64) F(log1p_rest, f64)(V(f64) f, V(f64) half) {
    V(f64) s = f / (f + 2), z = s * s, w = z * z;
    V(f64) odd = FMA(f64, w, 1.531383769920937332e-01, 2.222219843214978396e-01);
    odd = FMA(f64, odd, w, 3.999999999940941908e-01);
    V(f64) even = FMA(f64, w, 1.479819860511658591e-01, 1.818357216161805012e-01);
    even = FMA(f64, even, w, 2.857142874366239149e-01);
    even = FMA(f64, even, w, 6.666666666666735130e-01);
    return s * FMA(f64, even, z, FMA(f64, odd, w, half));
}
// 1024 + k of a positive x, from the bits; as an f64 by the exponent of 2^52.
WEFT_FN V(u64) F(log_exponent, f64)(V(f64) x) {
    return (AS(u64, x) - 0x3fe6a09e667f3bcdull + (1024ull << 52)) >> 52;
}
WEFT_FN V(f64) F(log_float, f64)(V(u64) e) {
    return AS(f64, e | 0x4330000000000000ull) - (0x1p52 + 1024);
}
// f, and k.
WEFT_FN V(f64) F(log_parts, f64)(V(f64) x, V(f64) *k) {
    BOOL subnormal = F(lt, f64)(x, SPLAT(f64, 0x1p-1022));
    V(f64) a = F(select, f64)(subnormal, x * 0x1p54, x);
    V(u64) e = F(log_exponent, f64)(a);
    *k = F(log_float, f64)(e);
    *k = F(select, f64)(subnormal, *k - 54, *k);
    return AS(f64, AS(u64, a) - (e << 52) + (1024ull << 52)) - 1;
}
// k ln 2 + log(1 + f).
WEFT_FN V(f64) F(log_sum, f64)(V(f64) k, V(f64) f) {
    V(f64) half = f * f * 0.5;
    V(f64) rest = FMA(f64, k, 1.90821492927058770002e-10, F(log1p_rest, f64)(f, half));
    return FMA(f64, k, 6.93147180369123816490e-01, f - (half - rest));
}
// (k + log2(1 + f)) in units of `two`: each constant is high + low, high of 32 bits or fewer.
WEFT_FN V(f64) F(log_scaled, f64)(V(f64) k, V(f64) f, f64 two, f64 two_low, f64 e, f64 e_low) {
    V(f64) half = f * f * 0.5, rest = F(log1p_rest, f64)(f, half);
    V(f64) high = AS(f64, AS(u64, f - half) & 0xffffffff00000000ull);
    V(f64) low = ((f - high) - half) + rest;
    V(f64) whole = k * two, part = high * e, sum = whole + part;
    low = FMA(f64, k, two_low, FMA(f64, low + high, e_low, low * e));
    return sum + (low + ((whole - sum) + part));
}
// y where x is positive and finite.
WEFT_FN V(f64) F(log_special, f64)(V(f64) x, V(f64) y) {
    V(f64) zero = SPLAT(f64, 0), inf = SPLAT(f64, __builtin_inf());
    V(f64) other = F(select, f64)(F(lt, f64)(x, zero), SPLAT(f64, __builtin_nan("")), x);
    other = F(select, f64)(F(eq, f64)(x, zero), -inf, other);
    return F(select, f64)(F(gt, f64)(x, zero) & F(lt, f64)(x, inf), y, other);
}

WEFT_FN V(f64) F(log, f64)(V(f64) x) {
    V(f64) k, f = F(log_parts, f64)(x, &k);
    return F(log_special, f64)(x, F(log_sum, f64)(k, f));
}
static inline V(f64) F(log2, f64)(V(f64) x) {
    V(f64) k, f = F(log_parts, f64)(x, &k);
    return F(log_special, f64)(x, F(log_scaled, f64)(k, f, 1, 0, 1.44269504072144627571e+00,
                                                     1.67517131648865118353e-10));
}
static inline V(f64) F(log10, f64)(V(f64) x) {
    V(f64) k, f = F(log_parts, f64)(x, &k);
    V(f64) y = F(log_scaled, f64)(k, f, 3.01029995663611771306e-01, 3.69423907715893078616e-13,
                                  4.34294481878168880939e-01, 2.50829467116452752298e-11);
    return F(log_special, f64)(x, y);
}
// 1 + f = 2^-k (1 + x) without forming 1 + x: 2^-k x is exact, and so is 2^-k - 1 where it matters.
static inline V(f64) F(log1p, f64)(V(f64) x) {
    V(u64) e = F(log_exponent, f64)(x + 1);
    V(f64) four = AS(f64, (2049 - e) << 52);  // 4 2^-k
    V(f64) f = AS(f64, AS(u64, x) - (e << 52) + (1024ull << 52)) + FMA(f64, four, 0.25, -1);
    V(f64) y = F(copysign, f64)(F(log_sum, f64)(F(log_float, f64)(e), f), x);
    V(f64) u = F(log_special, f64)(x + 1, x);
    return F(select, f64)(F(eq, f64)(u, x) & F(lt, f64)(x, SPLAT(f64, __builtin_inf())), y, u);
}
static inline V(f64) F(asinh, f64)(V(f64) x) {
    V(f64) a = F(abs, f64)(x), s = a * a;
    BOOL large = F(gt, f64)(a, SPLAT(f64, 1e18));
    V(f64) y = F(log1p, f64)(F(select, f64)(large, a, a + s / (F(sqrt, f64)(s + 1) + 1)));
    return F(copysign, f64)(y + F(select, f64)(large, SPLAT(f64, 0.693147180559945309),
                                               SPLAT(f64, 0)), x);
}
static inline V(f64) F(acosh, f64)(V(f64) x) {
    V(f64) t = x - 1;
    BOOL large = F(gt, f64)(x, SPLAT(f64, 1e18));
    V(f64) y = F(log1p, f64)(F(select, f64)(large, x, t + F(sqrt, f64)(t * (t + 2))));
    y = y + F(select, f64)(large, SPLAT(f64, 0.693147180559945309), SPLAT(f64, 0));
    return F(select, f64)(F(lt, f64)(x, SPLAT(f64, 1)), SPLAT(f64, __builtin_nan("")), y);
}
static inline V(f64) F(atanh, f64)(V(f64) x) {
    V(f64) a = F(abs, f64)(x);
    return F(copysign, f64)(F(log1p, f64)(a * 2 / (1 - a)) * 0.5, x);
}

// ---- sin, cos, tan: x = j pi/2 + r by Cody and Waite for |x| <= 1e6; libm beyond

// r, and what rounding took from it. The parts of pi/2 have 33 bits: their products with n are exact.
WEFT_FN V(f64) F(trig_reduce, f64)(V(f64) x, V(i64) *j, V(f64) *low) {
    V(f64) n = FMA(f64, x, 0.636619772367581343, 0x1.8p52);
    *j = AS(i64, n);  // the low bits count quadrants
    n = n - 0x1.8p52;
    V(f64) t = x - n * 1.57079632673412561417e+00;
    V(f64) w = n * 6.07710050630396597660e-11, u = t - w, lost = (t - u) - w;
    V(f64) v = n * 2.02226624871116645580e-21, r = u - v;
    *low = (((u - r) - v) + lost) - n * 8.47842766036889956997e-32;
    return r;
}
WEFT_FN V(f64) F(sin_near, f64)(V(f64) r, V(f64) low) {
    V(f64) z = r * r, q = FMA(f64, z, 1.58969099521155010221e-10, -2.50507602534068634195e-08);
    q = FMA(f64, q, z, 2.75573137070700676789e-06);
    q = FMA(f64, q, z, -1.98412698298579493134e-04);
    q = FMA(f64, q, z, 8.33333333332248946124e-03);
    q = FMA(f64, q, z, -1.66666666666666324348e-01);
    return r + FMA(f64, q * z, r, FMA(f64, z * -0.5, low, low));
}
WEFT_FN V(f64) F(cos_near, f64)(V(f64) r, V(f64) low) {
    V(f64) z = r * r, q = FMA(f64, z, -1.13596475577881948265e-11, 2.08757232129817482790e-09);
    q = FMA(f64, q, z, -2.75573143513906633035e-07);
    q = FMA(f64, q, z, 2.48015872894767294178e-05);
    q = FMA(f64, q, z, -1.38888888888741095749e-03);
    q = FMA(f64, q, z, 4.16666666666666019037e-02);
    V(f64) half = z * 0.5, w = 1 - half;
    return w + (((1 - w) - half) + FMA(f64, q * z, z, -(r * low)));
}
// sin of quadrant j at r: the cosine in odd quadrants, negated in the upper half.
WEFT_FN V(f64) F(sin_quadrant, f64)(V(f64) r, V(f64) low, V(i64) j) {
    V(f64) y = F(select, f64)(F(ne, i64)(j & 1, SPLAT(i64, 0)), F(cos_near, f64)(r, low),
                              F(sin_near, f64)(r, low));
    return AS(f64, AS(i64, y) ^ ((j & 2) << 62));
}

#define WEFT_F64_NEAR 1e6
WEFT_FAR(sin, f64, , WEFT_F64_NEAR)
WEFT_FAR(cos, f64, , WEFT_F64_NEAR)
WEFT_FAR(tan, f64, , WEFT_F64_NEAR)

static inline V(f64) F(sin, f64)(V(f64) x) {
    V(i64) j, sign = AS(i64, x) & (i64)(1ull << 63);  // by |x|, which keeps sin(-0) = -0
    V(f64) low, r = F(trig_reduce, f64)(F(abs, f64)(x), &j, &low);
    V(f64) y = AS(f64, AS(i64, F(sin_quadrant, f64)(r, low, j)) ^ sign);
    WEFT_NEAR_OR_FAR(sin, f64, WEFT_F64_NEAR, x, y)
}
static inline V(f64) F(cos, f64)(V(f64) x) {
    V(i64) j;
    V(f64) low, r = F(trig_reduce, f64)(x, &j, &low), y = F(sin_quadrant, f64)(r, low, j + 1);
    WEFT_NEAR_OR_FAR(cos, f64, WEFT_F64_NEAR, x, y)
}
static inline V(f64) F(tan, f64)(V(f64) x) {
    V(i64) j, sign = AS(i64, x) & (i64)(1ull << 63);
    V(f64) low, r = F(trig_reduce, f64)(F(abs, f64)(x), &j, &low);
    V(f64) y = F(sin_quadrant, f64)(r, low, j) / F(sin_quadrant, f64)(r, low, j + 1);
    y = AS(f64, AS(i64, y) ^ sign);
    WEFT_NEAR_OR_FAR(tan, f64, WEFT_F64_NEAR, x, y)
}

// ---- inverse trigonometric

// atan(a) is atan(c) + atan((a - c) / (1 + a c)), for c of 0, 1/2, 1, 3/2 and infinity.
static inline V(f64) F(atan, f64)(V(f64) x) {
    V(f64) a = F(abs, f64)(x), one = SPLAT(f64, 1), num = a, den = one;
    V(f64) high = SPLAT(f64, 0), low = high;
#define WEFT_FROM(least, n, d, h, l)                                                               \
    {                                                                                              \
        BOOL from = F(ge, f64)(a, SPLAT(f64, least));                                              \
        num = F(select, f64)(from, n, num), den = F(select, f64)(from, d, den);                    \
        high = F(select, f64)(from, SPLAT(f64, h), high);                                          \
        low = F(select, f64)(from, SPLAT(f64, l), low);                                            \
    }
    WEFT_FROM(0.4375, a * 2 - 1, a + 2, 4.63647609000806093515e-01, 2.26987774529616870924e-17)
    WEFT_FROM(0.6875, a - 1, a + 1, 7.85398163397448278999e-01, 3.06161699786838301793e-17)
    WEFT_FROM(1.1875, a - 1.5, FMA(f64, a, 1.5, 1), 9.82793723247329054082e-01,
              1.39033110312309984516e-17)
    WEFT_FROM(2.4375, -one, a, 1.57079632679489655800e+00, 6.12323399573676603587e-17)
#undef WEFT_FROM
    V(f64) t = num / den, z = t * t, w = z * z;
    V(f64) even = FMA(f64, w, 1.62858201153657823623e-02, 4.97687799461593236017e-02);
    even = FMA(f64, even, w, 6.66107313738753120669e-02);
    even = FMA(f64, even, w, 9.09088713343650656196e-02);
    even = FMA(f64, even, w, 1.42857142725034663711e-01);
    even = FMA(f64, even, w, 3.33333333333329318027e-01);
    V(f64) odd = FMA(f64, w, -3.65315727442169155270e-02, -5.83357013379057348645e-02);
    odd = FMA(f64, odd, w, -7.69187620504482999495e-02);
    odd = FMA(f64, odd, w, -1.11111104054623557880e-01);
    odd = FMA(f64, odd, w, -1.99999999998764832476e-01);
    V(f64) lost = t * FMA(f64, even, z, odd * w);
    return F(copysign, f64)(high - ((lost - low) - t), x);
}

// (asin(t) - t) / t as a rational function of z = t t <= 1/4.
WEFT_FN V(f64) F(asin_rest, f64)(V(f64) z) {
    V(f64) p = FMA(f64, z, 3.47933107596021167570e-05, 7.91534994289814532176e-04);
    p = FMA(f64, p, z, -4.00555345006794114027e-02);
    p = FMA(f64, p, z, 2.01212532134862925881e-01);
    p = FMA(f64, p, z, -3.25565818622400915405e-01);
    p = FMA(f64, p, z, 1.66666666666666657415e-01);
    V(f64) q = FMA(f64, z, 7.70381505559019352791e-02, -6.88283971605453293030e-01);
    q = FMA(f64, q, z, 2.02094576023350569471e+00);
    q = FMA(f64, q, z, -2.40339491173441421878e+00);
    return z * p / FMA(f64, q, z, 1);
}
// Beyond 1/2 by s = sqrt((1 - a) / 2): asin(a) = pi/2 - 2 asin(s). *lost is what rounding took of s.
WEFT_FN V(f64) F(asin_parts, f64)(V(f64) a, BOOL *far, V(f64) *rest, V(f64) *lost) {
    *far = F(ge, f64)(a, SPLAT(f64, 0.5));
    V(f64) z = F(select, f64)(*far, FMA(f64, a, -0.5, 0.5), a * a);
    V(f64) s = F(sqrt, f64)(z), high = AS(f64, AS(u64, s) & 0xffffffff00000000ull);
    V(f64) t = F(select, f64)(*far, s, a);
    *lost = (z - high * high) / (s + high) - (s - high);
    *lost = F(select, f64)(F(gt, f64)(s, SPLAT(f64, 0)), *lost, SPLAT(f64, 0));
    *rest = t * F(asin_rest, f64)(z);
    return t;
}
static inline V(f64) F(asin, f64)(V(f64) x) {
    BOOL far;
    V(f64) rest, lost, t = F(asin_parts, f64)(F(abs, f64)(x), &far, &rest, &lost);
    V(f64) upper = 1.57079632679489655800e+00 - (t + (lost + rest - 3.06161699786838301793e-17)) * 2;
    return F(copysign, f64)(F(select, f64)(far, upper, t + rest), x);
}
static inline V(f64) F(acos, f64)(V(f64) x) {
    BOOL far, negative = F(lt, f64)(x, SPLAT(f64, 0));
    V(f64) rest, lost, t = F(asin_parts, f64)(F(abs, f64)(x), &far, &rest, &lost);
    V(f64) twice = (t + (lost + rest)) * 2;
    V(f64) below = 3.14159265358979311600e+00 - (twice - 1.22464679914735320717e-16);
    V(f64) sum = F(select, f64)(negative, -(t + rest), t + rest);
    V(f64) near = 1.57079632679489655800e+00 - (sum - 6.12323399573676603587e-17);
    return F(select, f64)(far, F(select, f64)(negative, below, twice), near);
}

// s - a a for s = a a as it was rounded, by parts whose products are exact.
WEFT_FN V(f64) F(lost_of_square, f64)(V(f64) a, V(f64) s) {
#ifdef __FP_FAST_FMA
    return FMA(f64, -a, a, s);
#else
    V(f64) high = AS(f64, AS(u64, a) & 0xfffffffff8000000ull), low = a - high;
    return ((s - high * high) - 2 * high * low) - low * low;
#endif
}

// ---- activations

WEFT_FN V(f64) F(sigmoid, f64)(V(f64) x) {
    V(f64) t = F(exp, f64)(-F(abs, f64)(x)), d = t + 1, lost = (1 - d) + t;
    V(f64) y = F(select, f64)(F(lt, f64)(x, SPLAT(f64, 0)), t, SPLAT(f64, 1)) / d;
    return FMA(f64, -y, lost, y);
}

// Below 0.625 a rational function, above it 1 - 2 / (e^2x + 1): one division serves both.
WEFT_FN V(f64) F(tanh, f64)(V(f64) x) {
    V(f64) a = F(abs, f64)(x), z = a * a, e = F(exp, f64)(a * 2);
    V(f64) p = FMA(f64, z, -9.64399179425052238628e-1, -9.92877231001918586564e1);
    p = FMA(f64, p, z, -1.61468768441708447952e3);
    V(f64) q = FMA(f64, z + 1.12811678491632931402e2, z, 2.23548839060100448583e3);
    q = FMA(f64, q, z, 4.84406305325125486048e3);
    BOOL small = F(lt, f64)(a, SPLAT(f64, 0.625));
    V(f64) ratio = F(select, f64)(small, z * p, SPLAT(f64, -2)) / F(select, f64)(small, q, e + 1);
    return F(copysign, f64)(F(select, f64)(small, FMA(f64, a, ratio, a), ratio + 1), x);
}

// Below 1 a rational function, above it 1 - e^-xx P/Q.
static inline V(f64) F(erf, f64)(V(f64) x) {
    V(f64) a = F(lesser, f64)(SPLAT(f64, 6), F(abs, f64)(x)), z = a * a;
    V(f64) t = FMA(f64, z, 9.60497373987051638749e0, 9.00260197203842689217e1);
    t = FMA(f64, t, z, 2.23200534594684319226e3);
    t = FMA(f64, t, z, 7.00332514112805075473e3);
    t = FMA(f64, t, z, 5.55923013010394962768e4);
    V(f64) u = z + 3.35617141647503099647e1;
    u = FMA(f64, u, z, 5.21357949780152679795e2);
    u = FMA(f64, u, z, 4.59432382970980127987e3);
    u = FMA(f64, u, z, 2.26290000613890934246e4);
    u = FMA(f64, u, z, 4.92673942608635921086e4);
    V(f64) p = FMA(f64, a, 2.46196981473530512524e-10, 5.64189564831068821977e-1);
    p = FMA(f64, p, a, 7.46321056442269912687e0);
    p = FMA(f64, p, a, 4.86371970985681366614e1);
    p = FMA(f64, p, a, 1.96520832956077098242e2);
    p = FMA(f64, p, a, 5.26445194995477358631e2);
    p = FMA(f64, p, a, 9.34528527171957607540e2);
    p = FMA(f64, p, a, 1.02755188689515710272e3);
    p = FMA(f64, p, a, 5.57535335369399327526e2);
    V(f64) q = a + 1.32281951154744992508e1;
    q = FMA(f64, q, a, 8.67072140885989742329e1);
    q = FMA(f64, q, a, 3.54937778887819891062e2);
    q = FMA(f64, q, a, 9.75708501743205489753e2);
    q = FMA(f64, q, a, 1.82390916687909736289e3);
    q = FMA(f64, q, a, 2.24633760818710981792e3);
    q = FMA(f64, q, a, 1.65666309194161350182e3);
    q = FMA(f64, q, a, 5.57535340817727675546e2);
    BOOL small = F(lt, f64)(a, SPLAT(f64, 1));
    V(f64) ratio = F(select, f64)(small, t, p) / F(select, f64)(small, u, q);
    V(f64) r = F(select, f64)(small, a * ratio, FMA(f64, -F(exp, f64)(-z), ratio, 1));
    return F(copysign, f64)(r, x);
}

// ---- what pow in f32 is made of

// log2 of an f32 that is not negative, with 37 bits: x = 2^k m, and log2 m is odd in
// s = (m - 1) / (m + 1). The polynomials of both are minimax.
WEFT_FN V(f64) F(pow_log2, f64)(V(f64) x) {
    V(u64) e = F(log_exponent, f64)(x);
    V(f64) f = AS(f64, AS(u64, x) - (e << 52) + (1024ull << 52)) - 1, s = f / (f + 2), z = s * s;
    V(f64) p = FMA(f64, z, 0.34073007227597746, 0.41167272165351299);
    p = FMA(f64, p, z, 0.57708358489075096);
    p = FMA(f64, p, z, 0.96179667334244912);
    p = FMA(f64, FMA(f64, p, z, 2.885390081790085), s, F(log_float, f64)(e));
    p = F(select, f64)(F(eq, f64)(x, SPLAT(f64, 0)), SPLAT(f64, -__builtin_inf()), p);
    return F(select, f64)(F(lt, f64)(x, SPLAT(f64, __builtin_inf())), p, x);
}
// 2^t with 34 bits, as an f64 that is no f32 where the power is none.
WEFT_FN V(f64) F(pow_exp2, f64)(V(f64) t) {
    t = F(lesser, f64)(SPLAT(f64, 200), F(greater, f64)(SPLAT(f64, -200), t));
    V(f64) n = t + 0x1.8p52, r = t - (n - 0x1.8p52);
    V(f64) p = FMA(f64, r, 1.5201898721412151e-05, 0.00015469317949831418);
    p = FMA(f64, p, r, 0.0013333922871990389);
    p = FMA(f64, p, r, 0.0096180271707927509);
    p = FMA(f64, p, r, 0.055504103528050873);
    p = FMA(f64, p, r, 0.24022651198768871);
    p = FMA(f64, p, r, 0.69314718072872783);
    p = FMA(f64, p, r, 0.99999999996162048);
    return AS(f64, AS(u64, p) + (AS(u64, n) << 52));
}
