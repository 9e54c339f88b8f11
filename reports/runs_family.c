/* reports/runs_family.c: which software ran a row, and what its flags change. */
#include "reports/runs_row.h"

#include <math.h>

/* First match wins. What rows leave unsaid is what the software's users leave
 * at its default, or what its papers say. */
static const struct mcp_run_family families[] = {
    {"vTrain", "megatron-deepspeed", true, true, false, false, 0},
    {"BigScience", "bigscience", true, true, false, false, 1},
    {"BLOOM", "bigscience", true, true, false, false, 1},
    {"Megatron-LM README", "megatron-2021", true, true, false, false, 0},
    {"Megatron-Turing", "megatron-2021", true, true, false, false, 0},
    {"Reducing Activation", "megatron-2021", true, true, false, false, 0},
    {"MegaScale", "megatron-2021", true, true, false, true, 1},
    {"MosaicML", "llm-foundry", false, true, false, false, 3},
    {"torchtitan", "torchtitan", false, false, false, true, 3},
    {"IBM fms-fsdp", "fsdp", false, false, false, false, 3},
    {"NeMo AutoModel", "fsdp", false, false, false, true, 3},
    {"InternEvo", "internevo", false, false, true, false, 1},
    {"nanotron", "nanotron", false, false, false, true, 1},
    {"SimuMax", "megatron-core-plain", false, false, false, true, 1},
    {"MLPerf", "megatron-core-mlperf", false, false, true, true, 1},
    {"Megatron-Bridge performance summary (NeMo container 26", "megatron-bridge", false, false,
     true, true, 1},
    {"Megatron-LM functional-test", "megatron-core", true, true, false, false, 0},
    {"", "megatron-core", false, false, true, true, 1},
};

const struct mcp_run_family *mcp_run_family_of(const struct mcp_run_row *row)
{
    const char *source = mcp_row_cell(row, "source");
    const struct mcp_run_family *family = families;
    while (!mcp_starts_with(source, family->source))
        family++;
    return family;
}

/* Profiles that a row's words choose inside its family. */
static const struct {
    const char *stack, *column, *says, *instead;
} variants[] = {
    {"megatron-core", "notes", "MaxText", "maxtext"},
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
    if (mcp_same(name, "torchtitan") && !mcp_row_says(row, "overlap_flags", "compile"))
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

/* A graph that a row's flags name; they win over the stack's habit. */
static void apply_graph(const struct mcp_run_row *row, struct mcp_stack *stack)
{
    if (mcp_row_says(row, "overlap_flags", "no CUDA graph"))
        stack->cuda_graph = false;
    else if (mcp_row_says(row, "overlap_flags", "CUDA graph") ||
             mcp_row_says(row, "overlap_flags", "cudagraph="))
        stack->cuda_graph = true;
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
    apply_graph(row, out);
    if (mcp_row_says(row, "overlap_flags", "deepep") ||
        mcp_row_says(row, "overlap_flags", "hybridep"))
        out->deduplicated_dispatch = true;
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
