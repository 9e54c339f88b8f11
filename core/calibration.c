/* core/calibration.c: measured ops: their order, their file, and what lies between them. */
#include "core/calibration.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Octaves, squared, beyond which nothing measured is near. */
static const double far_away = 16;

static int by_group(const struct mcp_sample *a, const struct mcp_sample *b)
{
    int order = strcmp(a->function, b->function);
    return order != 0 ? order : strcmp(a->dtype, b->dtype);
}

static int by_place(const void *x, const void *y)
{
    const struct mcp_sample *a = x, *b = y;
    int order = by_group(a, b);
    for (int i = 0; i < MCP_SAMPLE_SIZES && order == 0; i++)
        order = (a->sizes[i] > b->sizes[i]) - (a->sizes[i] < b->sizes[i]);
    return order;
}

void mcp_calibration_sort(struct mcp_calibration *calibration)
{
    if (calibration->num_samples > 0)
        qsort(calibration->samples, (size_t)calibration->num_samples, sizeof *calibration->samples,
              by_place);
}

/* Of the first sample that is not before the group of `wanted`. */
static int first_of(const struct mcp_calibration *calibration, const struct mcp_sample *wanted)
{
    int low = 0, high = calibration->num_samples;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (by_group(&calibration->samples[middle], wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static double distance(const struct mcp_sample *a, const struct mcp_sample *b)
{
    double sum = 0;
    for (int i = 0; i < MCP_SAMPLE_SIZES; i++)
        if (a->sizes[i] != b->sizes[i]) {
            double octaves = log2(a->sizes[i] / b->sizes[i]);
            sum += octaves * octaves;
        }
    return sum;
}

bool mcp_calibration_seconds(const struct mcp_calibration *calibration,
                             const struct mcp_sample *wanted, double *seconds)
{
    double sum = 0, weights = 0, best = INFINITY, nearest = INFINITY;
    int i = first_of(calibration, wanted);
    for (; i < calibration->num_samples; i++) {
        const struct mcp_sample *sample = &calibration->samples[i];
        if (by_group(sample, wanted) != 0)
            break;
        double d = distance(sample, wanted), rate = sample->seconds / sample->work;
        best = fmin(best, rate);
        nearest = fmin(nearest, d);
        if (d == 0) {
            *seconds = rate * wanted->work;
            return true;
        }
        sum += rate / (d * d);
        weights += 1 / (d * d);
    }
    if (weights > 0)
        *seconds = wanted->work * (nearest > far_away ? best : sum / weights);
    return weights > 0;
}

/* --- many times of an op become one --- */

static bool same_op(const struct mcp_sample *a, const struct mcp_sample *b)
{
    return by_place(a, b) == 0;
}

static int by_seconds(const void *x, const void *y)
{
    const struct mcp_sample *a = x, *b = y;
    return (a->seconds > b->seconds) - (a->seconds < b->seconds);
}

void mcp_calibration_reduce(struct mcp_arena *arena, struct mcp_calibration *times,
                            struct mcp_calibration *out, double *spread_frac)
{
    const struct mcp_calibration all = *times;
    double low_s = 0, high_s = 0;
    mcp_calibration_sort(times);
    out->num_samples = 0;
    out->samples = MCP_ARRAY(arena, times->num_samples, struct mcp_sample);
    for (int first = 0, end = 0; first < all.num_samples; first = end) {
        while (end < all.num_samples && same_op(&all.samples[first], &all.samples[end]))
            end++;
        int count = end - first;
        qsort(&all.samples[first], (size_t)count, sizeof *all.samples, by_seconds);
        const struct mcp_sample *low = &all.samples[first + count / 4];
        low_s += low->seconds * count;
        high_s += all.samples[first + count / 2].seconds * count;
        out->samples[out->num_samples++] = *low;
    }
    *spread_frac = low_s > 0 ? high_s / low_s - 1 : 0;
}

/* --- files --- */

static enum mcp_status positive(struct mcp_json *at, const char *what, double value,
                                struct mcp_error *err)
{
    if (isfinite(value) && value > 0)
        return MCP_OK;
    return mcp_json_fail(at, err, "%s=%g is no positive number", what, value);
}

static enum mcp_status read_sizes(struct mcp_json *item, struct mcp_sample *out,
                                  struct mcp_error *err)
{
    struct mcp_json *sizes;
    MCP_TRY(mcp_json_array(item, "sizes", &sizes, err));
    if (mcp_json_count(sizes) > MCP_SAMPLE_SIZES)
        return mcp_json_fail(sizes, err, "%zu sizes; an op has at most %d", mcp_json_count(sizes),
                             MCP_SAMPLE_SIZES);
    for (size_t i = 0; i < MCP_SAMPLE_SIZES; i++) {
        out->sizes[i] = 1;
        if (i < mcp_json_count(sizes))
            MCP_TRY(mcp_json_as_double(mcp_json_at(sizes, i), &out->sizes[i], err));
        MCP_TRY(positive(sizes, "size", out->sizes[i], err));
    }
    return MCP_OK;
}

static enum mcp_status read_sample(struct mcp_json *item, struct mcp_sample *out,
                                   struct mcp_error *err)
{
    MCP_TRY(mcp_json_string(item, "function", &out->function, err));
    MCP_TRY(mcp_json_string(item, "dtype", &out->dtype, err));
    MCP_TRY(mcp_json_double(item, "work", &out->work, err));
    MCP_TRY(mcp_json_double(item, "seconds", &out->seconds, err));
    MCP_TRY(positive(item, "work", out->work, err));
    MCP_TRY(positive(item, "seconds", out->seconds, err));
    return read_sizes(item, out, err);
}

enum mcp_status mcp_calibration_from_json(struct mcp_arena *arena, struct mcp_json *list,
                                          struct mcp_calibration *out, struct mcp_error *err)
{
    size_t count = mcp_json_count(list);
    if (count > MCP_MAX_SAMPLES)
        return mcp_json_fail(list, err, "%zu samples; at most %d", count, MCP_MAX_SAMPLES);
    out->num_samples = (int)count;
    out->samples = MCP_ARRAY(arena, count, struct mcp_sample);
    for (size_t i = 0; i < count; i++)
        MCP_TRY(read_sample(mcp_json_at(list, i), &out->samples[i], err));
    mcp_calibration_sort(out);
    return MCP_OK;
}

static void add_number(struct mcp_json *list, double value)
{
    mcp_json_add_int(list, (int64_t)llround(value));
}

/* Sizes are whole numbers. */
void mcp_calibration_to_json(const struct mcp_calibration *calibration, struct mcp_json *list)
{
    for (int i = 0; i < calibration->num_samples; i++) {
        const struct mcp_sample *sample = &calibration->samples[i];
        struct mcp_json *item = mcp_json_add_object(list);
        mcp_json_set_string(item, "function", sample->function);
        mcp_json_set_string(item, "dtype", sample->dtype);
        struct mcp_json *sizes = mcp_json_set_array(item, "sizes");
        for (int k = 0; k < MCP_SAMPLE_SIZES; k++)
            add_number(sizes, sample->sizes[k]);
        mcp_json_set_double(item, "work", sample->work);
        mcp_json_set_double(item, "seconds", sample->seconds);
    }
}
