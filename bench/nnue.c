/* A training step of the NNUE of bench/nnue.py by hand: one core, forward, backward and AdamW.

   The first layer goes by strips of columns: of S columns all 768 rows lie in the second cache, in
   the forward as a table that is read, in the backward as sums that are added to, which AdamW then
   consumes where they are. The lists of a position end at the first 768. No sum is stored but the
   first layer's, by strips. */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { INPUTS = 768, PIECES = 32, S = 128 };

typedef struct {
    float *p, *m, *v;
} Adam; /* parameters, and the means of gradients and of their squares */

typedef struct {
    float rate, shrink, root; /* rate / (1 - b1^t), 1 - rate * decay, 1 / sqrt(1 - b2^t) */
} Rate;

static inline void adam(float *restrict p, float *restrict m, float *restrict v,
                        const float *restrict g, int64_t n, Rate r) {
    for (int64_t i = 0; i < n; i++) {
        float mean = m[i] + (g[i] - m[i]) * 0.1f, square = 0.999f * v[i] + 0.001f * g[i] * g[i];
        m[i] = mean;
        v[i] = square;
        p[i] = p[i] * r.shrink - r.rate * (mean / (sqrtf(square) * r.root + 1e-8f));
    }
}

/* h[i] = bias + the columns of a list; returns the dot product of clamp(h)^2 with w. */
static inline float view(const float *restrict table, int64_t width, const float *restrict bias,
                         const float *restrict w, const int32_t *restrict list,
                         float *restrict h) {
    float sum[S], dot = 0;
    memcpy(sum, bias, sizeof sum);
    for (int k = 0; k < PIECES && list[k] < INPUTS; k++) {
        const float *restrict row = table + list[k] * width;
        for (int i = 0; i < S; i++) sum[i] += row[i];
    }
    for (int i = 0; i < S; i++) {
        h[i] = sum[i];
        float x = fminf(fmaxf(sum[i], 0.0f), 1.0f);
        dot += x * x * w[i];
    }
    return dot;
}

/* Adds what a view gives to the sums of gradients. */
static inline void back(const float *restrict h, float d, const float *restrict w,
                        const int32_t *restrict list, float *restrict sums,
                        float *restrict bias_sum, float *restrict w_sum) {
    float g[S];
    for (int i = 0; i < S; i++) {
        float x = fminf(fmaxf(h[i], 0.0f), 1.0f);
        w_sum[i] += d * x * x;
        g[i] = h[i] >= 0.0f && h[i] <= 1.0f ? d * w[i] * 2.0f * x : 0.0f;
        bias_sum[i] += g[i];
    }
    for (int k = 0; k < PIECES && list[k] < INPUTS; k++) {
        float *restrict row = sums + (int64_t)list[k] * S;
        for (int i = 0; i < S; i++) row[i] += g[i];
    }
}

/* table: INPUTS rows of `width` columns, a multiple of S; w: 2 * width; last: 1; room for
   hidden[2 * width * n] and out[n]. Returns the loss, the mean of (sigmoid(out) - target)^2. */
float step(int64_t n, int64_t width, const int32_t *own, const int32_t *other, const float *target,
           Adam table, Adam bias, Adam w, Adam last, float *hidden, float *out, int64_t number) {
    static float sums[INPUTS * S];
    const float size = 1e-3f;
    Rate r = {size / (1 - powf(0.9f, number)), 1 - size * 0.01f,
              1 / sqrtf(1 - powf(0.999f, number))};
    for (int64_t p = 0; p < n; p++) out[p] = last.p[0];
    for (int64_t at = 0; at < width; at += S)
        for (int64_t p = 0; p < n; p++) {
            float *h = hidden + (at * n + p * S) * 2;
            out[p] += view(table.p + at, width, bias.p + at, w.p + at, own + p * PIECES, h);
            out[p] += view(table.p + at, width, bias.p + at, w.p + width + at, other + p * PIECES,
                           h + S);
        }
    float loss = 0, last_sum = 0;
    for (int64_t p = 0; p < n; p++) {
        float chance = 1 / (1 + expf(-out[p])), apart = chance - target[p];
        loss += apart * apart;
        out[p] = 2 * apart / n * chance * (1 - chance);
        last_sum += out[p];
    }
    for (int64_t at = 0; at < width; at += S) {
        float bias_sum[S] = {0}, w_sum[2][S] = {{0}};
        memset(sums, 0, sizeof sums);
        for (int64_t p = 0; p < n; p++) {
            const float *h = hidden + (at * n + p * S) * 2;
            back(h, out[p], w.p + at, own + p * PIECES, sums, bias_sum, w_sum[0]);
            back(h + S, out[p], w.p + width + at, other + p * PIECES, sums, bias_sum, w_sum[1]);
        }
        for (int64_t row = 0; row < INPUTS; row++) {
            int64_t i = row * width + at;
            adam(table.p + i, table.m + i, table.v + i, sums + row * S, S, r);
        }
        adam(bias.p + at, bias.m + at, bias.v + at, bias_sum, S, r);
        for (int side = 0; side < 2; side++) {
            int64_t i = side * width + at;
            adam(w.p + i, w.m + i, w.v + i, w_sum[side], S, r);
        }
    }
    adam(last.p, last.m, last.v, &last_sum, 1, r);
    return loss / n;
}
