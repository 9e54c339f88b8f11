/* exec/rooflines.c: shares of rooflines, as numbers, a table and JSON. */
#include "exec/rooflines.h"

#include "step/measured.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Aims on one H200, with tensor cores driven by mma.sync. */
static const struct aim {
    const char *name, *text;
    double frac;
} aims[MCP_NUM_ROOFLINE_KINDS] = {
    [MCP_ROOFLINE_PRODUCT] = {"products", "matrix products", 0.85},
    [MCP_ROOFLINE_MEMORY] = {"memory", "memory-bound kernels", 0.85},
    [MCP_ROOFLINE_ATTENTION_FORWARD] = {"attention_forward", "attention, forward", 0.45},
    [MCP_ROOFLINE_ATTENTION_BACKWARD] = {"attention_backward", "attention, backward", 0.38},
};

static enum mcp_roofline_kind kind_of(const struct mcp_op *op)
{
    const int code = mcp_functions[op->function].code;
    const bool forward =
        op->function == MCP_FN_ATTENTION_FORWARD || op->function == MCP_FN_ATTENTION_STEP_FORWARD;
    if (code == MCP_ATTENTION)
        return forward ? MCP_ROOFLINE_ATTENTION_FORWARD : MCP_ROOFLINE_ATTENTION_BACKWARD;
    return code == MCP_MATMUL ? MCP_ROOFLINE_PRODUCT : MCP_ROOFLINE_MEMORY;
}

/* --- ops --- */

static bool is_same_size(const struct mcp_sample *a, const struct mcp_sample *b)
{
    bool same = mcp_same(a->function, b->function) && mcp_same(a->dtype, b->dtype);
    for (int i = 0; i < MCP_SAMPLE_SIZES; i++)
        same = same && a->sizes[i] == b->sizes[i];
    return same;
}

struct mcp_roofline_op *mcp_rooflines_find(struct mcp_arena *arena, struct mcp_rooflines *rooflines,
                                           const struct mcp_program *program,
                                           const struct mcp_layer_type *type,
                                           const struct mcp_op *op)
{
    struct mcp_sample sample;
    if (mcp_op_is_transfer(op) || !mcp_op_sample(op, &program->plan, &sample))
        return NULL;
    for (size_t i = 0; i < rooflines->num_ops; i++)
        if (is_same_size(&rooflines->ops[i].sample, &sample))
            return &rooflines->ops[i];
    rooflines->ops = mcp_grow(arena, rooflines->ops, rooflines->num_ops, &rooflines->capacity,
                              sizeof *rooflines->ops);
    struct mcp_roofline_op *found = &rooflines->ops[rooflines->num_ops++];
    *found = (struct mcp_roofline_op){.op = op,
                                      .sample = sample,
                                      .flops = mcp_op_kernel_flops(op),
                                      .bytes = mcp_op_kernel_bytes(program, type, op)};
    return found;
}

static double step_s(const struct mcp_roofline_op *op)
{
    return op->launches * op->median_s;
}

/* Ties by what tells ops apart, or the table would depend on how they are sorted. */
static int by_step_time(const void *x, const void *y)
{
    const struct mcp_roofline_op *a = x, *b = y;
    if (step_s(a) != step_s(b))
        return step_s(a) > step_s(b) ? -1 : 1;
    const int names = strcmp(a->sample.function, b->sample.function);
    const int dtypes = strcmp(a->sample.dtype, b->sample.dtype);
    const int sizes = memcmp(a->sample.sizes, b->sample.sizes, sizeof a->sample.sizes);
    return names != 0 ? names : dtypes != 0 ? dtypes : sizes;
}

void mcp_rooflines_sort(struct mcp_rooflines *rooflines)
{
    if (rooflines->num_ops > 0)
        qsort(rooflines->ops, rooflines->num_ops, sizeof *rooflines->ops, by_step_time);
}

/* --- shares --- */

static double product_s(const struct mcp_rooflines *rooflines, const struct mcp_roofline_op *op)
{
    const double rate = rooflines->peak_flops_per_s[op->op->dtype];
    return rate > 0 ? op->flops / rate : 0;
}

static double memory_s(const struct mcp_rooflines *rooflines, const struct mcp_roofline_op *op)
{
    const double rate = rooflines->copy_bytes_per_s;
    return rate > 0 ? op->bytes / rate : 0;
}

double mcp_roofline_least_s(const struct mcp_rooflines *rooflines, const struct mcp_roofline_op *op)
{
    return fmax(product_s(rooflines, op), memory_s(rooflines, op));
}

double mcp_roofline_frac(const struct mcp_rooflines *rooflines, enum mcp_roofline_kind kind)
{
    double least_s = 0, all_s = 0;
    for (size_t i = 0; i < rooflines->num_ops; i++) {
        const struct mcp_roofline_op *op = &rooflines->ops[i];
        const double one_s = mcp_roofline_least_s(rooflines, op);
        if (kind_of(op->op) != kind || one_s <= 0)
            continue;
        least_s += op->launches * one_s;
        all_s += step_s(op);
    }
    return all_s > 0 ? least_s / all_s : (double)NAN;
}

/* Of what an op does in a second; NaN: nothing is known. */
static double rate_of(double work, double seconds)
{
    return work > 0 && seconds > 0 ? work / seconds : (double)NAN;
}

static double frac_of(const struct mcp_rooflines *rooflines, const struct mcp_roofline_op *op)
{
    return rate_of(mcp_roofline_least_s(rooflines, op), op->median_s);
}

/* --- as text --- */

/* "16384 x 2048 x 8192": of attention heads, queries and columns; else rows and columns. */
static void put_shape(const struct mcp_sample *sample, enum mcp_roofline_kind kind,
                      char shape[static 64])
{
    const double *s = sample->sizes;
    char groups[24] = "";
    if (kind == MCP_ROOFLINE_MEMORY)
        snprintf(shape, 64, "%.0f x %.0f", s[0], s[1]);
    else if (kind != MCP_ROOFLINE_PRODUCT)
        snprintf(shape, 64, "%.0f x %.0f x %.0f", s[0], s[3], s[2]);
    else {
        if (s[3] > 1)
            snprintf(groups, sizeof groups, "%.0f of ", s[3]);
        snprintf(shape, 64, "%s%.0f x %.0f x %.0f", groups, s[0], s[1], s[2]);
    }
}

/* A number in so many columns; "-" where it is unknown. */
static void put_number(struct mcp_text *out, int width, int digits, double value)
{
    if (isnan(value))
        mcp_text_add(out, " %*s", width, "-");
    else
        mcp_text_add(out, " %*.*f", width, digits, value);
}

static void put_op(const struct mcp_rooflines *rooflines, const struct mcp_roofline_op *op,
                   struct mcp_text *out)
{
    char shape[64];
    const double products_s = product_s(rooflines, op), bytes_s = memory_s(rooflines, op);
    const double frac = frac_of(rooflines, op);
    put_shape(&op->sample, kind_of(op->op), shape);
    mcp_text_add(out, "  %-23s %-5s %24s %8d", op->sample.function, op->sample.dtype, shape,
                 op->launches);
    put_number(out, 10, 1, 1e6 * op->min_s);
    put_number(out, 10, 1, 1e6 * op->median_s);
    put_number(out, 8, 0, 1e-9 * rate_of(op->bytes, op->median_s));
    put_number(out, 8, 1, 1e-12 * rate_of(op->flops, op->median_s));
    put_number(out, 8, 1, 100 * frac);
    mcp_text_add(out, "  %s\n", isnan(frac) ? "-" : products_s > bytes_s ? "products" : "memory");
}

static void put_device(const struct mcp_rooflines *rooflines, struct mcp_text *out)
{
    mcp_text_add(out, "%s reaches\n", rooflines->device);
    mcp_text_add(out, "  %8.0f GB/s     read and written by a copy of %lld MiB\n",
                 1e-9 * rooflines->copy_bytes_per_s, (long long)(rooflines->copy_bytes >> 20));
    for (int d = 0; d < MCP_NUM_DTYPES; d++)
        if (rooflines->peak_flops_per_s[d] > 0)
            mcp_text_add(out, "  %8.1f TFLOP/s  in a product of %lld x %lld x %lld in %s\n",
                         1e-12 * rooflines->peak_flops_per_s[d], (long long)rooflines->product_size,
                         (long long)rooflines->product_size, (long long)rooflines->product_size,
                         mcp_dtype_names[d]);
}

static double all_ops_s(const struct mcp_rooflines *rooflines)
{
    double all_s = 0;
    for (size_t i = 0; i < rooflines->num_ops; i++)
        all_s += step_s(&rooflines->ops[i]);
    return all_s;
}

static const char *verdict(double frac, double aim_frac)
{
    return isnan(frac) ? "not there" : frac >= aim_frac ? "met" : "not met";
}

static void put_aims(const struct mcp_rooflines *rooflines, struct mcp_text *out)
{
    mcp_text_add(out, "\n  %-44s %9s %8s\n", "share of the roofline, ops of a step together",
                 "reached", "aim");
    for (int k = 0; k < MCP_NUM_ROOFLINE_KINDS; k++) {
        const double frac = mcp_roofline_frac(rooflines, (enum mcp_roofline_kind)k);
        mcp_text_add(out, "  %-44s", aims[k].text);
        put_number(out, 7, 1, 100 * frac);
        mcp_text_add(out, " %% %6.0f %%  %s\n", 100 * aims[k].frac, verdict(frac, aims[k].frac));
    }
}

void mcp_rooflines_text(const struct mcp_rooflines *rooflines, struct mcp_text *out)
{
    put_device(rooflines, out);
    mcp_text_add(out,
                 "\neach op alone: the median of %d times after %d; before each %lld MiB are read, "
                 "so that the L2 holds nothing of it\n\n",
                 rooflines->repeats, rooflines->warmups, (long long)(rooflines->flush_bytes >> 20));
    mcp_text_add(out, "  %-23s %-5s %24s %8s %10s %10s %8s %8s %8s  %s\n", "op", "", "shape",
                 "a step", "least us", "median us", "GB/s", "TFLOP/s", "share %", "bound by");
    for (size_t i = 0; i < rooflines->num_ops; i++)
        put_op(rooflines, &rooflines->ops[i], out);
    mcp_text_add(out, "\n  ops of a step, one after the other: %.2f ms\n",
                 1e3 * all_ops_s(rooflines));
    put_aims(rooflines, out);
}

/* --- as JSON --- */

static void set_op(const struct mcp_rooflines *rooflines, const struct mcp_roofline_op *op,
                   struct mcp_json *object)
{
    mcp_json_set_string(object, "function", op->sample.function);
    mcp_json_set_string(object, "dtype", op->sample.dtype);
    struct mcp_json *sizes = mcp_json_set_array(object, "sizes");
    for (int i = 0; i < MCP_SAMPLE_SIZES; i++)
        mcp_json_add_int(sizes, (int64_t)op->sample.sizes[i]);
    mcp_json_set_int(object, "launches", op->launches);
    mcp_json_set_double(object, "flops", op->flops);
    mcp_json_set_double(object, "bytes", op->bytes);
    mcp_json_set_double(object, "min_s", op->min_s);
    mcp_json_set_double(object, "median_s", op->median_s);
    mcp_json_set_double(object, "flops_per_s", rate_of(op->flops, op->median_s));
    mcp_json_set_double(object, "bytes_per_s", rate_of(op->bytes, op->median_s));
    mcp_json_set_double(object, "roofline_frac", frac_of(rooflines, op));
}

static void set_aim(const struct mcp_rooflines *rooflines, enum mcp_roofline_kind kind,
                    struct mcp_json *object)
{
    const double frac = mcp_roofline_frac(rooflines, kind);
    mcp_json_set_string(object, "name", aims[kind].name);
    mcp_json_set_double(object, "roofline_frac", frac);
    mcp_json_set_double(object, "aim_frac", aims[kind].frac);
    mcp_json_set_bool(object, "met", frac >= aims[kind].frac);
}

struct mcp_json *mcp_rooflines_json(struct mcp_arena *arena, const struct mcp_rooflines *rooflines)
{
    struct mcp_json *json = mcp_json_new_object(arena);
    mcp_json_set_string(json, "schema", "mcpplan.rooflines/1");
    mcp_json_set_string(json, "device", rooflines->device);
    mcp_json_set_double(json, "copy_bytes_per_s", rooflines->copy_bytes_per_s);
    struct mcp_json *peaks = mcp_json_set_object(json, "peak_flops_per_s");
    for (int d = 0; d < MCP_NUM_DTYPES; d++)
        if (rooflines->peak_flops_per_s[d] > 0)
            mcp_json_set_double(peaks, mcp_dtype_names[d], rooflines->peak_flops_per_s[d]);
    mcp_json_set_int(json, "product_size", rooflines->product_size);
    mcp_json_set_int(json, "copy_bytes", rooflines->copy_bytes);
    mcp_json_set_int(json, "flush_bytes", rooflines->flush_bytes);
    mcp_json_set_int(json, "repeats", rooflines->repeats);
    mcp_json_set_int(json, "warmups", rooflines->warmups);
    struct mcp_json *ops = mcp_json_set_array(json, "ops");
    for (size_t i = 0; i < rooflines->num_ops; i++)
        set_op(rooflines, &rooflines->ops[i], mcp_json_add_object(ops));
    struct mcp_json *list = mcp_json_set_array(json, "aims");
    for (int k = 0; k < MCP_NUM_ROOFLINE_KINDS; k++)
        set_aim(rooflines, (enum mcp_roofline_kind)k, mcp_json_add_object(list));
    return json;
}
