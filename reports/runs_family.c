/* reports/runs_family.c: which software ran a row, and what its flags change. */
#include "reports/runs_row.h"

#include <math.h>

/* First match wins. What rows leave unsaid is what the software's users leave
 * at its default, or what its papers say. */
static const struct mcp_run_family families[] = {
    {"vTrain", "megatron-deepspeed", true, true, false, false, 0, NULL},
    {"BigScience", "bigscience", true, true, false, false, 1, NULL},
    {"BLOOM", "bigscience", true, true, false, false, 1, NULL},
    {"Megatron-LM README", "megatron-2021", true, true, false, false, 0, NULL},
    {"Megatron-Turing", "megatron-2021", true, true, false, false, 0, NULL},
    {"Reducing Activation", "megatron-2021", true, true, false, false, 0, NULL},
    {"MegaScale", "megatron-2021", true, true, false, true, 1, NULL},
    {"MosaicML", "llm-foundry", false, true, false, false, 3, NULL},
    {"torchtitan", "torchtitan", false, false, false, true, 3, NULL},
    {"IBM fms-fsdp", "fsdp", false, false, false, false, 3, NULL},
    {"NeMo AutoModel", "fsdp", false, false, false, true, 3, NULL},
    {"InternEvo", "internevo", false, false, true, false, 1, NULL},
    {"nanotron", "nanotron", false, false, false, true, 1, NULL},
    {"SimuMax", "megatron-core-plain", false, false, false, true, 1, NULL},
    {"MLPerf", "megatron-core-mlperf", false, false, true, true, 1, NULL},
    {"Megatron-Bridge performance summary (NeMo container 26.06", "megatron-bridge", false, false,
     true, true, 1, "dispatcher=hybridep; EP a2a overlap; cudagraph=full_iteration"},
    {"Megatron-Bridge performance summary (NeMo container 26.08", "megatron-bridge", false, false,
     true, true, 1, "dispatcher=hybridep; EP a2a overlap; cudagraph=full_iteration"},
    {"Megatron-Bridge performance summary (NeMo container 26", "megatron-bridge", false, false,
     true, true, 1, "dispatcher=hybridep"},
    {"Megatron-Bridge measured", "megatron-core", false, false, true, true, 1, "dispatcher=deepep"},
    {"Megatron-LM functional-test", "megatron-core", true, true, false, false, 0, NULL},
    {"", "megatron-core", false, false, true, true, 1, NULL},
};

const struct mcp_run_family *mcp_run_family_of(const struct mcp_run_row *row)
{
    const char *source = mcp_row_cell(row, "source");
    const struct mcp_run_family *family = families;
    while (!mcp_starts_with(source, family->source))
        family++;
    return family;
}

const char *mcp_run_flags(const struct mcp_run_row *row)
{
    const char *usual = mcp_run_family_of(row)->expert_flags;
    const char *gpu = mcp_row_cell(row, "gpu");
    const bool blackwell = mcp_starts_with(gpu, "B") || mcp_starts_with(gpu, "GB");
    if (!mcp_row_has(row, "overlap_flags") && mcp_row_has(row, "experts") && usual != NULL)
        return blackwell ? usual : "dispatcher=deepep";
    return mcp_row_cell(row, "overlap_flags");
}

bool mcp_run_flagged(const struct mcp_run_row *row, const char *part)
{
    return mcp_contains_ignoring_case(mcp_run_flags(row), part);
}

/* Profiles that a row's words choose inside its family. */
static const struct {
    const char *stack, *column, *says, *instead;
} variants[] = {
    {"megatron-core", "notes", "MaxText", "maxtext"},
    {"megatron-core", "gpu", "B200-", "megatron-core-blackwell"},
    {"megatron-core", "gpu", "B300-", "megatron-core-blackwell"},
    {"bigscience", "precision", "bf16", "bigscience-bf16"},
    {"llm-foundry", "precision", "PURE", "llm-foundry-pure"},
    {"torchtitan", "precision", "rowwise", "torchtitan-rowwise"},
};

static const char *stack_name(const struct mcp_run_row *row)
{
    if (mcp_row_has(row, "stack"))
        return mcp_row_cell(row, "stack");
    const char *name = mcp_run_family_of(row)->stack;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        if (mcp_same(name, variants[i].stack) &&
            mcp_row_says(row, variants[i].column, variants[i].says))
            return variants[i].instead;
    if (mcp_same(name, "torchtitan") && !mcp_run_flagged(row, "compile"))
        return "torchtitan-eager";
    return name;
}

static enum mcp_status find_stack(const struct mcp_run_row *row, const char *name,
                                  struct mcp_stack *out, struct mcp_error *err)
{
    const struct mcp_runs *runs = row->runs;
    for (int i = 0; i < runs->num_stacks; i++) {
        if (mcp_same(runs->stack_names[i], name)) {
            *out = runs->stacks[i];
            return MCP_OK;
        }
    }
    return mcp_fail(err, MCP_INVALID, "stack \"%.40s\" is none of the %d of stacks/", name,
                    runs->num_stacks);
}

/* Flags win over the stack's habit. A graph of the whole iteration leaves no host
 * in the loop; one of some modules leaves the others to it. */
static void apply_flags(struct mcp_run_row *row, struct mcp_stack *stack)
{
    if (mcp_run_flagged(row, "no CUDA graph"))
        stack->cuda_graph = false;
    else if (mcp_run_flagged(row, "CUDA graph") || mcp_run_flagged(row, "cudagraph="))
        stack->cuda_graph = true;
    if (mcp_run_flagged(row, "full_iteration") || mcp_run_flagged(row, "full CUDA graph"))
        stack->moe_sync_s = 0;
    if (mcp_run_family_of(row)->expert_flags != NULL || mcp_run_flagged(row, "deepep") ||
        mcp_run_flagged(row, "hybridep"))
        stack->deduplicated_dispatch = !mcp_run_flagged(row, "all-to-all dispatcher");
    if (mcp_run_flags(row) != mcp_row_cell(row, "overlap_flags"))
        mcp_row_note(row, "flags not stated: %s assumed", mcp_run_flags(row));
}

/* ZeRO inside a shard group smaller than the data group has fewer owners. */
static enum mcp_status apply_shard_group(const struct mcp_run_row *row, struct mcp_stack *stack,
                                         struct mcp_error *err)
{
    int data, shard = 0;
    MCP_TRY(mcp_row_need(row, "dp", &data, err));
    if (!mcp_number_before(mcp_row_cell(row, "notes"), "(one node)", &shard) || shard >= data)
        return MCP_OK;
    stack->broadcast_s_per_rank *= (double)shard / data;
    return MCP_OK;
}

enum mcp_status mcp_run_read_stack(struct mcp_run_row *row, struct mcp_stack *out,
                                   struct mcp_error *err)
{
    MCP_TRY(find_stack(row, stack_name(row), out, err));
    apply_flags(row, out);
    return apply_shard_group(row, out, err);
}

static const struct {
    const char *says;
    enum mcp_precision precision;
} precisions[] = {
    {"mxfp8", MCP_PRECISION_MXFP8}, {"nvfp4", MCP_PRECISION_NVFP4}, {"fp8-mx", MCP_PRECISION_MXFP8},
    {"fp8", MCP_PRECISION_FP8},     {"bf16", MCP_PRECISION_BF16},   {"fp16", MCP_PRECISION_FP16},
    {"fp32", MCP_PRECISION_FP32},
};

static enum mcp_status read_precision(const struct mcp_run_row *row, enum mcp_precision *out,
                                      struct mcp_error *err)
{
    const char *column = mcp_row_has(row, "precision_class") ? "precision_class" : "precision";
    if (!mcp_row_has(row, column))
        return mcp_fail(err, MCP_INVALID, "precision is not stated");
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        if (mcp_row_says(row, column, precisions[i].says)) {
            *out = precisions[i].precision;
            if (*out == MCP_PRECISION_MXFP8 &&
                isnan(row->run->cluster.gpu.peak_flops_per_s[MCP_PRECISION_MXFP8]))
                *out = MCP_PRECISION_FP8; /* block scaling in software */
            return MCP_OK;
        }
    }
    return mcp_fail(err, MCP_INVALID, "precision \"%.40s\" is not known",
                    mcp_row_cell(row, column));
}

static bool has_kernel(const struct mcp_gpu *gpu, const char *name)
{
    for (int i = 0; i < gpu->num_attention_kernels; i++)
        if (mcp_same(gpu->attention_kernels[i].name, name))
            return true;
    return false;
}

/* "flash" alone is whatever flash kernel the stack uses; sinks had no fused
 * kernel in Transformer Engine while these tables were measured. */
static const char *attention_kernel(struct mcp_run_row *row)
{
    const struct mcp_run *run = row->run;
    const char *text = mcp_row_cell(row, "attention"), *kernel = run->stack.attention;
    if (mcp_starts_with(text, "unfused") || mcp_contains_ignoring_case(text, "no flash"))
        kernel = "unfused";
    else if (mcp_contains_ignoring_case(text, "SDPA") || mcp_starts_with(text, "flash2"))
        kernel = "flash2";
    else if (mcp_contains_ignoring_case(text, "TE") || mcp_starts_with(text, "fused"))
        kernel = "fused";
    for (int i = 0; i < run->model.num_kinds; i++)
        if (run->model.kinds[i].attention_sinks && mcp_same(kernel, "fused"))
            kernel = "unfused";
    if (mcp_same(kernel, "unfused") || has_kernel(&run->cluster.gpu, kernel))
        return kernel;
    return has_kernel(&run->cluster.gpu, "fused") ? "fused" : "unfused";
}

enum mcp_status mcp_run_read_job(struct mcp_run_row *row, struct mcp_job *out,
                                 struct mcp_error *err)
{
    int batch, sequence;
    *out = mcp_job_default();
    MCP_TRY(mcp_row_need(row, "gbs", &batch, err));
    MCP_TRY(mcp_row_need(row, "seq", &sequence, err));
    MCP_TRY(read_precision(row, &out->precision, err));
    out->global_batch_size = batch;
    out->sequence_length = sequence;
    out->dropout = mcp_run_family_of(row)->dropout || mcp_row_says(row, "attention", "dropout on");
    out->attention = attention_kernel(row);
    return mcp_job_check(out, err);
}
