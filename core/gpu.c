/* core/gpu.c: one GPU as data: its file read, written and checked. */
#include "core/cluster.h"

#include "core/preset.h"
#include "core/text.h"

#include <math.h>

#define PLAIN (-1) /* a number without a unit */

/* The scalar values of a GPU, in the order of the file. */
struct field {
    const char *key;
    size_t offset;    /* of a double in struct mcp_gpu */
    int dimension;    /* enum mcp_dimension, or PLAIN */
    bool required;    /* for a plan; the others may stay unknown */
    double low, high; /* what is physical */
};

static const struct field fields[] = {
    {"memory_bandwidth_bytes_per_s", offsetof(struct mcp_gpu, memory_bandwidth_bytes_per_s),
     MCP_BYTES_PER_SECOND, true, 1e6, 1e15},
    {"sustained_clock_frac", offsetof(struct mcp_gpu, sustained_clock_frac), PLAIN, true, 0.01, 1},
    {"grouped_matmul_frac", offsetof(struct mcp_gpu, grouped_matmul_frac), PLAIN, true, 0.01, 4},
    {"nvlink_bytes_per_s", offsetof(struct mcp_gpu, nvlink_bytes_per_s), MCP_BYTES_PER_SECOND,
     false, 1e6, 1e15},
    {"nvlink_efficiency_frac", offsetof(struct mcp_gpu, nvlink_efficiency_frac), PLAIN, false,
     0.001, 1},
    {"pcie_bytes_per_s", offsetof(struct mcp_gpu, pcie_bytes_per_s), MCP_BYTES_PER_SECOND, false,
     1e6, 1e15},
    {"power_watts", offsetof(struct mcp_gpu, power_watts), MCP_WATTS, false, 0.1, 1e6},
    {"price_per_gpu_hour", offsetof(struct mcp_gpu, price_per_gpu_hour), PLAIN, false, 0, 1e6},
};
#define NUM_FIELDS (sizeof fields / sizeof *fields)

static double *field_of(struct mcp_gpu *gpu, const struct field *field)
{
    return (double *)(void *)((char *)gpu + field->offset);
}

static double field_value(const struct mcp_gpu *gpu, const struct field *field)
{
    return *(const double *)(const void *)((const char *)gpu + field->offset);
}

enum mcp_status mcp_json_maybe_amount(struct mcp_json *json, const char *key,
                                      enum mcp_dimension dimension, double *out,
                                      struct mcp_error *err)
{
    double number;
    if (!mcp_json_has(json, key))
        return MCP_OK;
    if (mcp_json_double(json, key, &number, NULL) != MCP_OK)
        return mcp_json_quantity(json, key, dimension, out, err);
    *out = number;
    return MCP_OK;
}

static enum mcp_status read_fields(struct mcp_json *json, struct mcp_gpu *gpu,
                                   struct mcp_error *err)
{
    for (size_t i = 0; i < NUM_FIELDS; i++) {
        const struct field *field = &fields[i];
        double *value = field_of(gpu, field);
        if (field->required && !mcp_json_has(json, field->key))
            return mcp_json_fail(json, err, "%s is missing", field->key);
        if (field->dimension == PLAIN)
            MCP_TRY(mcp_json_maybe_double(json, field->key, value, err));
        else
            MCP_TRY(mcp_json_maybe_amount(json, field->key, (enum mcp_dimension)field->dimension,
                                          value, err));
    }
    return MCP_OK;
}

static enum mcp_status read_memory(struct mcp_json *json, int64_t *memory_bytes,
                                   struct mcp_error *err)
{
    double bytes = 0;
    if (!mcp_json_has(json, "memory_bytes"))
        return mcp_json_fail(json, err, "memory_bytes is missing");
    MCP_TRY(mcp_json_maybe_amount(json, "memory_bytes", MCP_BYTES, &bytes, err));
    if (!(bytes >= 1 && bytes <= 0x1p50))
        return mcp_json_fail(json, err, "memory_bytes=%g is not between 1 byte and 1 PiB", bytes);
    *memory_bytes = (int64_t)llround(bytes);
    return MCP_OK;
}

/* {"bf16": "989TFLOP/s", ...}: what is absent or null the GPU cannot do. */
static enum mcp_status read_precisions(struct mcp_json *json, struct mcp_gpu *gpu,
                                       struct mcp_error *err)
{
    struct mcp_json *peaks, *fracs;
    MCP_TRY(mcp_json_object(json, "peak_flops_per_s", &peaks, err));
    MCP_TRY(mcp_json_object(json, "matmul_frac", &fracs, err));
    for (int i = 0; i < MCP_NUM_PRECISIONS; i++) {
        const char *name = mcp_precision_names[i];
        MCP_TRY(mcp_json_maybe_amount(peaks, name, MCP_FLOPS_PER_SECOND, &gpu->peak_flops_per_s[i],
                                      err));
        MCP_TRY(mcp_json_maybe_double(fracs, name, &gpu->matmul_frac[i], err));
    }
    return MCP_OK;
}

static enum mcp_status read_kernels(struct mcp_json *json, struct mcp_gpu *gpu,
                                    struct mcp_error *err)
{
    struct mcp_json *list;
    if (!mcp_json_has(json, "attention_kernels"))
        return MCP_OK;
    MCP_TRY(mcp_json_array(json, "attention_kernels", &list, err));
    if (mcp_json_count(list) > MCP_MAX_ATTENTION_KERNELS)
        return mcp_json_fail(list, err, "%zu kernels, at most %d", mcp_json_count(list),
                             MCP_MAX_ATTENTION_KERNELS);
    gpu->num_attention_kernels = (int)mcp_json_count(list);
    for (int i = 0; i < gpu->num_attention_kernels; i++) {
        struct mcp_json *item = mcp_json_at(list, (size_t)i);
        struct mcp_attention_kernel *kernel = &gpu->attention_kernels[i];
        MCP_TRY(mcp_json_string(item, "name", &kernel->name, err));
        MCP_TRY(mcp_json_double(item, "forward_frac", &kernel->forward_frac, err));
        MCP_TRY(mcp_json_double(item, "backward_frac", &kernel->backward_frac, err));
        MCP_TRY(mcp_json_double(item, "ramp_tokens", &kernel->ramp_tokens, err));
    }
    return MCP_OK;
}

/* "source" tells where the file comes from, "sources" each value. */
static enum mcp_status read_sources(struct mcp_json *json, struct mcp_gpu *gpu,
                                    struct mcp_error *err)
{
    struct mcp_json *sources;
    const char *key, *sentence;
    MCP_TRY(mcp_json_maybe_string(json, "source", &gpu->source, err));
    MCP_TRY(mcp_json_maybe_string(json, "note", &sentence, err));
    MCP_TRY(mcp_json_maybe_int(json, "num_fitted", &gpu->num_fitted, err));
    if (!mcp_json_has(json, "sources"))
        return MCP_OK;
    MCP_TRY(mcp_json_object(json, "sources", &sources, err));
    for (size_t i = 0; i < mcp_json_count(sources); i++) {
        MCP_TRY(mcp_json_as_string(mcp_json_member(sources, i, &key), &sentence, err));
        gpu->num_fitted += mcp_starts_with(sentence, "fitted");
    }
    return MCP_OK;
}

/* True when `product` is one of the names that the file lists. */
static enum mcp_status read_products(struct mcp_json *json, const char *product, bool *found,
                                     struct mcp_error *err)
{
    struct mcp_json *list;
    const char *name;
    *found = false;
    if (!mcp_json_has(json, "products"))
        return MCP_OK;
    MCP_TRY(mcp_json_array(json, "products", &list, err));
    for (size_t i = 0; i < mcp_json_count(list); i++) {
        MCP_TRY(mcp_json_as_string(mcp_json_at(list, i), &name, err));
        *found = *found || mcp_same(name, product);
    }
    return MCP_OK;
}

const char *mcp_gpu_preset(struct mcp_arena *arena, const char *product)
{
    for (size_t i = 0; i < mcp_preset_count("gpus"); i++) {
        const char *name = mcp_preset_at("gpus", i)->name;
        struct mcp_json *json;
        bool found;
        if (mcp_preset_read(arena, "gpus", name, &json, NULL) == MCP_OK &&
            read_products(json, product, &found, NULL) == MCP_OK && found)
            return name;
    }
    return NULL;
}

static struct mcp_gpu unknown_gpu(void)
{
    struct mcp_gpu gpu = {.source = ""};
    for (int i = 0; i < MCP_NUM_PRECISIONS; i++)
        gpu.peak_flops_per_s[i] = gpu.matmul_frac[i] = (double)NAN;
    for (size_t i = 0; i < NUM_FIELDS; i++)
        *field_of(&gpu, &fields[i]) = (double)NAN;
    return gpu;
}

enum mcp_status mcp_gpu_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                  struct mcp_gpu *out, struct mcp_error *err)
{
    static const char *const schema = "mcpplan.gpu/1";
    struct mcp_gpu gpu = unknown_gpu();
    int index;
    bool found;
    (void)arena;
    if (mcp_json_has(json, "schema"))
        MCP_TRY(mcp_json_choice(json, "schema", &schema, 1, &index, err));
    MCP_TRY(mcp_json_string(json, "name", &gpu.name, err));
    MCP_TRY(read_precisions(json, &gpu, err));
    MCP_TRY(read_memory(json, &gpu.memory_bytes, err));
    MCP_TRY(mcp_json_int(json, "num_multiprocessors", &gpu.num_multiprocessors, err));
    MCP_TRY(read_fields(json, &gpu, err));
    MCP_TRY(read_kernels(json, &gpu, err));
    MCP_TRY(mcp_json_maybe_int(json, "num_nvlinks", &gpu.num_nvlinks, err));
    MCP_TRY(mcp_json_bool(json, "host_is_slow", &gpu.host_is_slow, err));
    MCP_TRY(read_products(json, NULL, &found, err));
    MCP_TRY(read_sources(json, &gpu, err));
    *out = gpu;
    return MCP_OK;
}

enum mcp_status mcp_gpu_load(struct mcp_arena *arena, const char *name_or_path, struct mcp_gpu *out,
                             struct mcp_error *err)
{
    struct mcp_json *json;
    MCP_TRY(mcp_preset_read(arena, "gpus", name_or_path, &json, err));
    MCP_TRY(mcp_gpu_from_json(arena, json, out, err));
    MCP_TRY(mcp_json_done(json, err));
    return mcp_gpu_check(out, err);
}

static void write_kernels(const struct mcp_gpu *gpu, struct mcp_json *object)
{
    struct mcp_json *list = mcp_json_set_array(object, "attention_kernels");
    for (int i = 0; i < gpu->num_attention_kernels; i++) {
        const struct mcp_attention_kernel *kernel = &gpu->attention_kernels[i];
        struct mcp_json *item = mcp_json_add_object(list);
        mcp_json_set_string(item, "name", kernel->name);
        mcp_json_set_double(item, "forward_frac", kernel->forward_frac);
        mcp_json_set_double(item, "backward_frac", kernel->backward_frac);
        mcp_json_set_double(item, "ramp_tokens", kernel->ramp_tokens);
    }
}

void mcp_gpu_to_json(const struct mcp_gpu *gpu, struct mcp_json *object)
{
    struct mcp_json *peaks, *fracs;
    mcp_json_set_string(object, "name", gpu->name);
    peaks = mcp_json_set_object(object, "peak_flops_per_s");
    fracs = mcp_json_set_object(object, "matmul_frac");
    for (int i = 0; i < MCP_NUM_PRECISIONS; i++) {
        mcp_json_set_double(peaks, mcp_precision_names[i], gpu->peak_flops_per_s[i]);
        mcp_json_set_double(fracs, mcp_precision_names[i], gpu->matmul_frac[i]);
    }
    mcp_json_set_int(object, "memory_bytes", gpu->memory_bytes);
    mcp_json_set_int(object, "num_multiprocessors", gpu->num_multiprocessors);
    mcp_json_set_int(object, "num_nvlinks", gpu->num_nvlinks);
    for (size_t i = 0; i < NUM_FIELDS; i++)
        mcp_json_set_double(object, fields[i].key, field_value(gpu, &fields[i]));
    write_kernels(gpu, object);
    mcp_json_set_bool(object, "host_is_slow", gpu->host_is_slow);
    mcp_json_set_string(object, "source", gpu->source);
    mcp_json_set_int(object, "num_fitted", gpu->num_fitted);
}

/* NaN is not within. */
static bool within(double value, double low, double high)
{
    return value >= low && value <= high;
}

static enum mcp_status check_precisions(const struct mcp_gpu *gpu, struct mcp_error *err)
{
    int known = 0;
    for (int i = 0; i < MCP_NUM_PRECISIONS; i++) {
        const char *name = mcp_precision_names[i];
        if (isnan(gpu->peak_flops_per_s[i]))
            continue;
        known++;
        if (!within(gpu->peak_flops_per_s[i], 1e6, 1e18))
            return mcp_fail(err, MCP_INVALID,
                            "gpu %s: peak_flops_per_s.%s=%g is not between 1e6 and 1e18", gpu->name,
                            name, gpu->peak_flops_per_s[i]);
        if (!within(gpu->matmul_frac[i], 0.001, 1))
            return mcp_fail(err, MCP_INVALID,
                            "gpu %s: matmul_frac.%s=%g is not between 0.001 and 1", gpu->name, name,
                            gpu->matmul_frac[i]);
    }
    if (known == 0)
        return mcp_fail(err, MCP_INVALID, "gpu %s: peak_flops_per_s names no precision", gpu->name);
    return MCP_OK;
}

static enum mcp_status check_kernels(const struct mcp_gpu *gpu, struct mcp_error *err)
{
    for (int i = 0; i < gpu->num_attention_kernels; i++) {
        const struct mcp_attention_kernel *kernel = &gpu->attention_kernels[i];
        if (!within(kernel->forward_frac, 0.001, 1) || !within(kernel->backward_frac, 0.001, 1) ||
            !within(kernel->ramp_tokens, 0, 1e6))
            return mcp_fail(
                err, MCP_INVALID,
                "gpu %s: attention kernel %s: forward_frac=%g and backward_frac=%g must "
                "lie between 0.001 and 1, ramp_tokens=%g between 0 and 1e6",
                gpu->name, kernel->name, kernel->forward_frac, kernel->backward_frac,
                kernel->ramp_tokens);
    }
    return MCP_OK;
}

enum mcp_status mcp_gpu_check(const struct mcp_gpu *gpu, struct mcp_error *err)
{
    MCP_TRY(check_precisions(gpu, err));
    MCP_TRY(check_kernels(gpu, err));
    for (size_t i = 0; i < NUM_FIELDS; i++) {
        double value = field_value(gpu, &fields[i]);
        if (!fields[i].required && isnan(value))
            continue;
        if (!within(value, fields[i].low, fields[i].high))
            return mcp_fail(err, MCP_INVALID, "gpu %s: %s=%g is not between %g and %g", gpu->name,
                            fields[i].key, value, fields[i].low, fields[i].high);
    }
    if (gpu->memory_bytes < 1 || gpu->num_multiprocessors < 1)
        return mcp_fail(err, MCP_INVALID,
                        "gpu %s: memory_bytes=%lld and num_multiprocessors=%d must be positive",
                        gpu->name, (long long)gpu->memory_bytes, gpu->num_multiprocessors);
    return MCP_OK;
}
