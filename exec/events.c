/* exec/events.c: TensorBoard's records, written by hand. */
#include "exec/events.h"

#include "core/crc32c.h"
#include "core/text.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- histograms --- */

enum { LOWEST_HALF_OCTAVE = -96 }; /* 2^(-96 / 2): nearer to 0 is the middle bucket */

struct mcp_histogram mcp_histogram_new(void)
{
    return (struct mcp_histogram){.min = INFINITY, .max = -INFINITY};
}

/* The magnitude's bucket on its side: i holds from 2^((i - 96) / 2) up to the next. */
static int side_bucket(double magnitude)
{
    int exponent;
    const double fraction = frexp(magnitude, &exponent); /* in [1/2, 1) */
    const int half_octaves = 2 * (exponent - 1) + (fraction >= sqrt(0.5));
    const int bucket = half_octaves - LOWEST_HALF_OCTAVE;
    return bucket < 0 ? -1 : bucket < MCP_HISTOGRAM_SIDE ? bucket : MCP_HISTOGRAM_SIDE - 1;
}

void mcp_histogram_add(struct mcp_histogram *histogram, const float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const double x = values[i];
        if (!isfinite(x))
            continue;
        const int side = x == 0 ? -1 : side_bucket(fabs(x));
        histogram->buckets[MCP_HISTOGRAM_SIDE + (x < 0 ? -1 - side : 1 + side)]++;
        histogram->min = fmin(histogram->min, x);
        histogram->max = fmax(histogram->max, x);
        histogram->count++;
        histogram->sum += x;
        histogram->sum_squares += x * x;
    }
}

void mcp_histogram_merge(struct mcp_histogram *histogram, const struct mcp_histogram *other)
{
    histogram->min = fmin(histogram->min, other->min);
    histogram->max = fmax(histogram->max, other->max);
    histogram->count += other->count;
    histogram->sum += other->sum;
    histogram->sum_squares += other->sum_squares;
    for (int i = 0; i < MCP_HISTOGRAM_BUCKETS; i++)
        histogram->buckets[i] += other->buckets[i];
}

double mcp_histogram_limit(int bucket)
{
    const int side = bucket - MCP_HISTOGRAM_SIDE; /* 0: the middle */
    if (side == MCP_HISTOGRAM_SIDE)
        return DBL_MAX;
    if (side >= 0)
        return exp2((side + LOWEST_HALF_OCTAVE) / 2.0);
    return -exp2((-side - 1 + LOWEST_HALF_OCTAVE) / 2.0);
}

/* --- protocol buffers (developers.google.com/protocol-buffers: encoding) --- */

enum wire { WIRE_VARINT = 0, WIRE_DOUBLE = 1, WIRE_BYTES = 2, WIRE_FLOAT = 5 };

static void put_varint(struct mcp_text *out, uint64_t value)
{
    char byte;
    for (; value >= 0x80; value >>= 7) {
        byte = (char)(value | 0x80);
        mcp_text_append(out, &byte, 1);
    }
    byte = (char)value;
    mcp_text_append(out, &byte, 1);
}

static void put_key(struct mcp_text *out, int field, enum wire wire)
{
    put_varint(out, (uint64_t)field << 3 | (uint64_t)wire);
}

static void put_double(struct mcp_text *out, int field, double value)
{
    put_key(out, field, WIRE_DOUBLE);
    mcp_text_append(out, (const char *)&value, sizeof value);
}

static void put_bytes(struct mcp_text *out, int field, const char *bytes, size_t length)
{
    put_key(out, field, WIRE_BYTES);
    put_varint(out, length);
    mcp_text_append(out, bytes, length);
}

/* --- records --- */

struct mcp_events {
    struct mcp_arena *arena; /* its own: rewound at each flush */
    const char *path;
    int file;
    struct mcp_text summary;
    struct mcp_mark mark;
};

static uint32_t masked(const void *data, size_t length)
{
    const uint32_t crc = mcp_crc32c(0, data, length);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* One write: a reader that follows the file sees a record or none of it. */
static enum mcp_status write_record(struct mcp_events *events, const struct mcp_text *payload,
                                    struct mcp_error *err)
{
    struct mcp_text record = mcp_text_new(events->arena);
    const uint64_t length = payload->length;
    const uint32_t length_crc = masked(&length, sizeof length);
    const uint32_t crc = masked(payload->data, payload->length);
    mcp_text_append(&record, (const char *)&length, sizeof length);
    mcp_text_append(&record, (const char *)&length_crc, sizeof length_crc);
    mcp_text_append(&record, payload->data, payload->length);
    mcp_text_append(&record, (const char *)&crc, sizeof crc);
    const ssize_t done = write(events->file, record.data, record.length);
    if (done != (ssize_t)record.length)
        return mcp_fail(err, MCP_IO, "%s: %s", events->path,
                        done < 0 ? strerror(errno) : "no room for the record");
    return MCP_OK;
}

static void begin_summary(struct mcp_events *events)
{
    mcp_arena_rewind(events->arena, events->mark);
    events->summary = mcp_text_new(events->arena);
}

static void close_events(void *handle)
{
    struct mcp_events *events = handle;
    close(events->file);
    mcp_arena_free(events->arena);
}

/* Two runs may begin in one second: the second one's file has a number. */
static bool create_file(struct mcp_arena *arena, const char *folder, long long wall_s,
                        struct mcp_events *events)
{
    enum { MOST = 1000 };
    events->file = -1;
    for (int i = 0; i < MOST && events->file < 0; i++) {
        events->path = mcp_format(arena,
                                  i == 0 ? "%s/events.out.tfevents.%010lld.mcpplan"
                                         : "%s/events.out.tfevents.%010lld.mcpplan.%d",
                                  folder, wall_s, i);
        events->file = open(events->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (events->file < 0 && errno != EEXIST)
            break;
    }
    return events->file >= 0;
}

enum mcp_status mcp_events_open(struct mcp_arena *arena, const char *folder, double wall_s,
                                struct mcp_events **out, struct mcp_error *err)
{
    static const char version[] = "brain.Event:2";
    struct mcp_events *events = MCP_NEW(arena, struct mcp_events);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return mcp_fail(err, MCP_IO, "%s: %s", folder, strerror(errno));
    if (!create_file(arena, folder, (long long)wall_s, events))
        return mcp_fail(err, MCP_IO, "%s: %s", events->path, strerror(errno));
    events->arena = mcp_arena_new();
    events->mark = mcp_arena_mark(events->arena);
    mcp_defer(arena, close_events, events);
    struct mcp_text event = mcp_text_new(events->arena);
    put_double(&event, 1, wall_s);
    put_bytes(&event, 3, version, sizeof version - 1);
    *out = events;
    MCP_TRY(write_record(events, &event, err));
    begin_summary(events);
    return MCP_OK;
}

/* --- values --- */

/* Summary.Value: 1 tag, 2 simple_value, 5 histo. */
void mcp_events_scalar(struct mcp_events *events, const char *tag, double value)
{
    const float number = (float)value;
    struct mcp_text text = mcp_text_new(events->arena);
    put_bytes(&text, 1, tag, strlen(tag));
    put_key(&text, 2, WIRE_FLOAT);
    mcp_text_append(&text, (const char *)&number, sizeof number);
    put_bytes(&events->summary, 1, text.data, text.length);
}

/* Doubles one after the other; neighbours of full buckets are kept, so that their lower
 * edges show. */
static void put_buckets(struct mcp_text *out, const struct mcp_histogram *histogram)
{
    struct mcp_text limits = mcp_text_new(out->arena), counts = mcp_text_new(out->arena);
    for (int i = 0; i < MCP_HISTOGRAM_BUCKETS; i++) {
        const double limit = mcp_histogram_limit(i), count = histogram->buckets[i];
        const bool is_edge = i + 1 < MCP_HISTOGRAM_BUCKETS && histogram->buckets[i + 1] > 0;
        if (count == 0 && !is_edge)
            continue;
        mcp_text_append(&limits, (const char *)&limit, sizeof limit);
        mcp_text_append(&counts, (const char *)&count, sizeof count);
    }
    put_bytes(out, 6, limits.data, limits.length);
    put_bytes(out, 7, counts.data, counts.length);
}

/* HistogramProto: 1 min, 2 max, 3 num, 4 sum, 5 sum_squares, 6 bucket_limit, 7 bucket. */
void mcp_events_histogram(struct mcp_events *events, const char *tag,
                          const struct mcp_histogram *histogram)
{
    struct mcp_text text = mcp_text_new(events->arena), value = mcp_text_new(events->arena);
    if (histogram->count == 0)
        return;
    put_double(&value, 1, histogram->min);
    put_double(&value, 2, histogram->max);
    put_double(&value, 3, histogram->count);
    put_double(&value, 4, histogram->sum);
    put_double(&value, 5, histogram->sum_squares);
    put_buckets(&value, histogram);
    put_bytes(&text, 1, tag, strlen(tag));
    put_bytes(&text, 5, value.data, value.length);
    put_bytes(&events->summary, 1, text.data, text.length);
}

/* Event: 1 wall_time, 2 step, 5 summary. */
enum mcp_status mcp_events_flush(struct mcp_events *events, double wall_s, int64_t step,
                                 struct mcp_error *err)
{
    struct mcp_text event = mcp_text_new(events->arena);
    if (events->summary.length == 0)
        return MCP_OK;
    put_double(&event, 1, wall_s);
    put_key(&event, 2, WIRE_VARINT);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, 5, events->summary.data, events->summary.length);
    MCP_TRY(write_record(events, &event, err));
    begin_summary(events);
    return MCP_OK;
}
