/* Evaluates positions with an exported network, in integers alone.

       cc -O2 -o eval eval.c
       ./eval net.bin positions.bf      one line a position: the sum in units of 1/16320, centipawns
*/
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUTS = 768, IN_UNIT = 255, OUT_UNIT = 64, SCALE = 400, MAGIC = 0x57454654 };

typedef struct {
    int32_t king_buckets, width, out_buckets;
    int16_t *columns, *bias, *weight, *last;
} Net;

typedef struct {
    uint64_t occupied;
    uint8_t pieces[16];
    int16_t score;
    uint8_t result, king, other_king, unused[3];
} Record;

static void fail(const char *path, const char *why) {
    fprintf(stderr, "eval: %s: %s\n", path, why);
    exit(1);
}

static int16_t *numbers(FILE *file, size_t count, const char *path) {
    int16_t *found = malloc(count * sizeof *found);
    if (!found || fread(found, sizeof *found, count, file) != count) fail(path, "cut short");
    return found;
}

static Net load(const char *path) {
    FILE *file = fopen(path, "rb");
    int32_t head[4];
    if (!file) fail(path, "cannot be read");
    if (fread(head, 4, 4, file) != 4 || head[0] != MAGIC) fail(path, "is no network");
    Net net = {.king_buckets = head[1], .width = head[2], .out_buckets = head[3]};
    size_t width = net.width;
    net.columns = numbers(file, (size_t)net.king_buckets * INPUTS * width, path);
    net.bias = numbers(file, width, path);
    net.weight = numbers(file, net.out_buckets * 2 * width, path);
    net.last = numbers(file, net.out_buckets, path);
    if (fgetc(file) != EOF) fail(path, "is too long");
    fclose(file);
    return net;
}

static int king_bucket(int king, int buckets) {
    int right = (king & 7) >> 2, up = king > 7;
    return buckets == 1 ? 0 : buckets == 2 ? right : right + 2 * up;
}

static void add_column(const Net *net, int16_t *view, int input) {
    const int16_t *column = net->columns + (size_t)input * net->width;
    for (int i = 0; i < net->width; i++) view[i] += column[i];
}

static int64_t dot(const Net *net, const int16_t *view, const int16_t *weight) {
    int64_t sum = 0;
    for (int i = 0; i < net->width; i++) {
        int32_t x = view[i] < 0 ? 0 : view[i] > IN_UNIT ? IN_UNIT : view[i];
        sum += (int64_t)(x * x) * weight[i];
    }
    return sum;
}

/* The sum in units of 1 / (IN_UNIT * OUT_UNIT); `views` has room for two. */
static int64_t evaluate(const Net *net, const Record *record, int16_t *views) {
    int16_t *own = views, *other = views + net->width;
    memcpy(own, net->bias, net->width * sizeof *own);
    memcpy(other, net->bias, net->width * sizeof *other);
    int own_base = INPUTS * king_bucket(record->king, net->king_buckets);
    int other_base = INPUTS * king_bucket(record->other_king, net->king_buckets);
    int count = 0;
    for (uint64_t left = record->occupied; left; left &= left - 1, count++) {
        int square = __builtin_ctzll(left);
        int code = record->pieces[count / 2] >> 4 * (count & 1) & 15;
        int kind = 64 * (code & 7), theirs = code >> 3;
        add_column(net, own, own_base + 384 * theirs + kind + square);
        add_column(net, other, other_base + 384 * !theirs + kind + (square ^ 56));
    }
    int bucket = (count - 2) / (32 / net->out_buckets);
    const int16_t *weight = net->weight + (size_t)bucket * 2 * net->width;
    int64_t sum = dot(net, own, weight) + dot(net, other, weight + net->width);
    return sum / IN_UNIT + net->last[bucket];
}

static int valid(const Record *record) {
    int count = __builtin_popcountll(record->occupied);
    if (count < 2 || count > 32 || record->king > 63 || record->other_king > 63) return 0;
    for (int i = 0; i < count; i++)
        if ((record->pieces[i / 2] >> 4 * (i & 1) & 7) > 5) return 0;
    return 1;
}

int main(int count, char **given) {
    if (count != 3) {
        fprintf(stderr, "usage: %s NETWORK POSITIONS\n", given[0]);
        return 2;
    }
    Net net = load(given[1]);
    FILE *file = fopen(given[2], "rb");
    if (!file) fail(given[2], "cannot be read");
    int16_t *views = malloc(2 * net.width * sizeof *views);
    Record record;
    size_t got;
    while ((got = fread(&record, 1, sizeof record, file)) == sizeof record) {
        if (!valid(&record)) fail(given[2], "has a record that is no position");
        int64_t sum = evaluate(&net, &record, views);
        printf("%lld %lld\n", (long long)sum, (long long)(sum * SCALE / (IN_UNIT * OUT_UNIT)));
    }
    if (got) fail(given[2], "cut short");
    return 0;
}
