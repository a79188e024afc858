/* Random numbers as torch draws them on a CPU: the seeds of what weft computes from these. */
#include "weft_parts.h"

enum { WORDS = 624, SHIFT = 397 };

void weft_seed_generator(weft_generator *g, uint64_t seed) {
    g->words[0] = (uint32_t)seed;
    for (int i = 1; i < WORDS; i++)
        g->words[i] = 1812433253u * (g->words[i - 1] ^ g->words[i - 1] >> 30) + (uint32_t)i;
    g->next = WORDS;
}

static void renew(weft_generator *g) {
    uint32_t *w = g->words;
    for (int i = 0; i < WORDS; i++) {
        uint32_t y = (w[i] & 0x80000000u) | (w[(i + 1) % WORDS] & 0x7fffffffu);
        w[i] = w[(i + SHIFT) % WORDS] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    g->next = 0;
}

static uint32_t word(weft_generator *g) {
    if (g->next == WORDS) renew(g);
    uint32_t y = g->words[g->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* torch.randint(-2**63, 2**63 - 1, ()) */
int64_t weft_draw(weft_generator *g) {
    uint64_t high = word(g), both = high << 32 | word(g);
    return (int64_t)(both % UINT64_MAX - ((uint64_t)1 << 63));
}
