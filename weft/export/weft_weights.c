/* Maps a safetensors file: 8 bytes with the length of its header, the header in JSON, the data.

     {"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {...}}

   Every offset is checked against the file before anything of it is used. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weft_parts.h"

/* ---- JSON: a position in a text, NULL once the text is wrong */

typedef struct {
    const char *at, *end;
} json;

typedef struct {
    const char *text;
    size_t length;
} word;

static int next(json *j) {
    while (j->at && j->at < j->end && strchr(" \t\r\n", *j->at) && *j->at) j->at++;
    return j->at && j->at < j->end ? *j->at : 0;
}

static int take(json *j, char what) {
    if (next(j) != what) return 0;
    j->at++;
    return 1;
}

static void expect(json *j, char what) {
    if (!take(j, what)) j->at = NULL;
}

/* A string as it is written, without its quotes. */
static word string(json *j) {
    expect(j, '"');
    const char *start = j->at;
    while (j->at && j->at < j->end && *j->at != '"') j->at += *j->at == '\\' ? 2 : 1;
    if (!j->at || j->at >= j->end) {
        j->at = NULL;
        return (word){"", 0};
    }
    return (word){start, (size_t)(j->at++ - start)};
}

static int is(word w, const char *text) {
    return w.length == strlen(text) && !memcmp(w.text, text, w.length);
}

static unsigned long long number(json *j) {
    unsigned long long n = 0;
    if (next(j) < '0' || next(j) > '9') j->at = NULL;
    for (; j->at && j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++)
        n = n > ~0ull / 16 ? n : 10 * n + (unsigned)(*j->at - '0'); /* too large for any file */
    return n;
}

/* Pass a value that nothing reads: strings count, for they may have brackets. */
static void skip(json *j) {
    int depth = 0;
    do {
        int c = next(j);
        if (c == '"')
            string(j);
        else if (!c)
            j->at = NULL;
        else if (j->at++, c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        if (!depth && (next(j) == ',' || next(j) == '}' || next(j) == ']')) return;
    } while (j->at && depth >= 0);
}

typedef struct {
    word dtype;
    json shape;
    unsigned long long begin, end;
} entry;

static entry tensor(json *j) {
    entry e = {{"", 0}, {NULL, NULL}, 1, 0};
    expect(j, '{');
    while (j->at && next(j) != '}') {
        word key = string(j);
        expect(j, ':');
        if (is(key, "dtype")) {
            e.dtype = string(j);
        } else if (is(key, "data_offsets")) {
            expect(j, '[');
            e.begin = number(j);
            expect(j, ',');
            e.end = number(j);
            expect(j, ']');
        } else {
            if (is(key, "shape")) e.shape = *j;
            skip(j);
        }
        if (!take(j, ',')) break;
    }
    expect(j, '}');
    return e;
}

/* Whether two lists of numbers are the same. */
static int same(json a, const char *text) {
    json b = {text, text + strlen(text)};
    while (next(&a) && next(&a) == next(&b) && *a.at != ']') a.at++, b.at++;
    return next(&a) == ']' && next(&b) == ']';
}

/* ---- the file */

/* The number of the weight of that name, looked for from `first` on, or -1. */
static int find(word name, int first) {
    for (int i = 0; i < weft_weight_count; i++) {
        int n = (first + i) % weft_weight_count;
        if (is(name, weft_weights[n].name)) return n;
    }
    return -1;
}

/* Note where a weight is; what is wrong with it, or NULL. */
static const char *place(weft_map *map, int n, entry e, size_t data) {
    const weft_weight *w = weft_weights + n;
    if (!is(e.dtype, w->dtype)) return "has another dtype";
    if (e.end < e.begin || e.end - e.begin != (unsigned long long)w->bytes)
        return "has another size";
    if (!same(e.shape, w->shape)) return "has another shape";
    if (e.end > map->bytes - data) return "lies behind the end of the file, which is cut short";
    if ((data + e.begin) % (unsigned)w->item_bytes) return "does not lie at a multiple of its items";
    map->at[n] = map->base + data + e.begin;
    return NULL;
}

static int read_header(weft_map *map, const char *path, char *error, size_t room) {
    unsigned long long length = 0;
    for (int i = 8; i-- && map->bytes >= 8;) length = length << 8 | (unsigned char)map->base[i];
    if (map->bytes < 9 || map->base[8] != '{' || length > map->bytes - 8) {
        snprintf(error, room, "%s is no whole safetensors file: its header is missing", path);
        return 1;
    }
    json j = {map->base + 8, map->base + 8 + length};
    int n = -1;
    expect(&j, '{');
    while (j.at && next(&j) != '}') {
        word name = string(&j);
        expect(&j, ':');
        int known = j.at ? find(name, n + 1) : -1;
        if (known < 0) {
            skip(&j);
        } else {
            entry e = tensor(&j);
            const char *wrong = j.at ? place(map, n = known, e, 8 + (size_t)length) : NULL;
            if (wrong) {
                snprintf(error, room, "%s: weight %s %s", path, weft_weights[n].name, wrong);
                return 1;
            }
        }
        if (!take(&j, ',')) break;
    }
    expect(&j, '}');
    if (!j.at) {
        snprintf(error, room, "%s is no safetensors file: its header is no JSON", path);
        return 1;
    }
    for (n = 0; n < weft_weight_count; n++)
        if (!map->at[n]) {
            snprintf(error, room, "%s has no weight %s", path, weft_weights[n].name);
            return 1;
        }
    return 0;
}

int weft_map_weights(weft_map *map, const char *path, char *error, size_t room) {
    *map = (weft_map){0};
    if (!weft_weight_count) return 0;
    struct stat facts;
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0 || fstat(file, &facts)) {
        snprintf(error, room, "cannot open the weights, %s: %s", path ? path : "no path is given",
                 path ? strerror(errno) : "it is the first argument");
        if (file >= 0) close(file);
        return 1;
    }
    map->bytes = (size_t)facts.st_size;
    void *base = map->bytes ? mmap(NULL, map->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0)
                            : MAP_FAILED;
    close(file);
    map->base = base == MAP_FAILED ? NULL : base;
    map->at = calloc((size_t)weft_weight_count, sizeof *map->at);
    if (map->base && map->at && !read_header(map, path, error, room)) return 0;
    if (!map->base || !map->at)
        snprintf(error, room, "cannot map %s: it is empty, or memory is short", path);
    weft_unmap_weights(map);
    return 1;
}

int weft_write_weights(const weft_map *map, const char *path, char *error, size_t room) {
    size_t length = path ? strlen(path) : 0;
    char *beside = path ? malloc(length + 8) : NULL; /* whole, or not there at all */
    if (!beside) {
        snprintf(error, room, path ? "memory is short" : "no path is given to save to");
        return 1;
    }
    memcpy(beside, path, length);
    memcpy(beside + length, ".XXXXXX", 8);
    int file = mkstemp(beside), failed = file < 0 || fchmod(file, 0644);
    for (size_t at = 0; !failed && at < map->bytes;) {
        ssize_t n = write(file, map->base + at, map->bytes - at);
        failed = n <= 0 && !(n < 0 && errno == EINTR);
        at += n > 0 ? (size_t)n : 0;
    }
    failed = failed || rename(beside, path);
    if (failed) snprintf(error, room, "cannot write %s: %s", path, strerror(errno));
    if (failed && file >= 0) unlink(beside);
    if (file >= 0) close(file);
    free(beside);
    return failed;
}

void weft_unmap_weights(weft_map *map) {
    if (map->base) munmap(map->base, map->bytes);
    free(map->at);
    *map = (weft_map){0};
}
