/* reports/runs_plan.c: a row's layout: degrees, recompute, overlap, chunks. */
#include "reports/runs_row.h"

#include "reports/runs_layout.h"
#include "step/pipeline.h"

#include <string.h>

/* What recompute does in every chunk. */
struct pattern {
    enum mcp_recompute recompute;
    int first;      /* only so many layers of each chunk; 0: all */
    bool alternate; /* every other layer */
};

static const struct {
    const char *says;
    unsigned module;
} modules[] = {
    {"attention core", MCP_RECOMPUTE_ATTENTION_CORE},
    {"core_attn", MCP_RECOMPUTE_ATTENTION_CORE},
    {"norm", MCP_RECOMPUTE_NORM},
    {"activation modules", MCP_RECOMPUTE_ACTIVATION},
    {"moe_act", MCP_RECOMPUTE_ACTIVATION},
    {"moe modules", MCP_RECOMPUTE_ACTIVATION},
    {"mla_up_proj", MCP_RECOMPUTE_MLA_UP},
    {"modules: mlp", MCP_RECOMPUTE_MLP},
    {"shared_expert", MCP_RECOMPUTE_MLP},
    {"per-op", MCP_RECOMPUTE_ALTERNATE_MATMULS},
};

/* Modules that the row names; the stack's own list when it names none. */
static void read_modules(const struct mcp_run_row *row, struct mcp_stack *stack)
{
    unsigned mask = 0;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (mcp_row_says(row, "recompute_detail", modules[i].says))
            mask |= modules[i].module;
    if (mask != 0)
        stack->selective_modules = mask;
}

/* What is assumed may be wrong: published runs that leave recompute out lie a
 * third farther from their predictions. */
static void assume_no_recompute(struct mcp_run_row *row)
{
    row->run->stack.uncertainty_frac *= 4.0 / 3;
    row->run->stack.moe_uncertainty_frac *= 4.0 / 3;
    mcp_row_note(row, "recompute not stated: none assumed");
}

static enum mcp_status read_recompute(struct mcp_run_row *row, struct pattern *out,
                                      struct mcp_error *err)
{
    const char *text = mcp_row_cell(row, "recompute");
    const char *detail = mcp_row_cell(row, "recompute_detail");
    *out = (struct pattern){.recompute = MCP_RECOMPUTE_NONE};
    if (text[0] == '\0')
        assume_no_recompute(row);
    if (text[0] == '\0' || mcp_same(text, "none"))
        return MCP_OK;
    if (mcp_same(text, "full") || mcp_contains_ignoring_case(detail, "every other layer")) {
        out->recompute = MCP_RECOMPUTE_FULL;
        out->alternate = mcp_contains_ignoring_case(detail, "every other layer");
        if (strstr(detail, "first ") != NULL)
            (void)mcp_number_before(detail, "layers", &out->first);
        return MCP_OK;
    }
    if (!mcp_same(text, "selective"))
        return mcp_fail(err, MCP_INVALID, "recompute \"%.40s\" is not none, selective or full",
                        text);
    if (!mcp_contains_ignoring_case(detail, "list empty"))
        out->recompute = MCP_RECOMPUTE_SELECTIVE;
    read_modules(row, &row->run->stack);
    return MCP_OK;
}

static void add_run(struct mcp_chunk *chunk, enum mcp_recompute recompute, int layers)
{
    if (layers > 0)
        chunk->runs[chunk->num_runs++] = (struct mcp_recompute_run){recompute, layers};
}

static void set_runs(struct mcp_arena *arena, struct mcp_chunk *chunk,
                     const struct pattern *pattern)
{
    const int layers = chunk->num_layers;
    const int some = pattern->first > 0 && pattern->first < layers ? pattern->first : layers;
    chunk->runs = MCP_ARRAY(arena, layers + 2, struct mcp_recompute_run);
    chunk->num_runs = 0;
    for (int i = 0; pattern->alternate && i < layers; i++)
        add_run(chunk, i % 2 == 0 ? pattern->recompute : MCP_RECOMPUTE_NONE, 1);
    if (pattern->alternate)
        return;
    add_run(chunk, pattern->recompute, some);
    add_run(chunk, MCP_RECOMPUTE_NONE, layers - some);
}

/* "...; pp_layout=Et*4|(t*4|)*14tmL" and what may follow a ';'. */
static const char *stated_layout(const struct mcp_run_row *row)
{
    const char *text = strstr(mcp_run_flags(row), "pp_layout=");
    if (text == NULL)
        return NULL;
    text += strlen("pp_layout=");
    return mcp_strndup(row->arena, text, strcspn(text, "; "));
}

static enum mcp_status make_chunks(struct mcp_run_row *row, const struct pattern *pattern,
                                   struct mcp_plan *plan, struct mcp_error *err)
{
    const int layers = row->run->model.num_layers;
    const int64_t product = (int64_t)plan->pipeline_parallel * plan->virtual_stages;
    const char *layout = stated_layout(row);
    if (product > layers + 2)
        return mcp_fail(err, MCP_INVALID, "pp=%d x vpp=%d is more than layers=%d and two slots",
                        plan->pipeline_parallel, plan->virtual_stages, layers);
    const int stages = (int)product;
    int *counts = MCP_ARRAY(row->arena, stages, int);
    if (layout != NULL)
        MCP_TRY(mcp_layout_parse(row->arena, layout, layers, stages, counts, err));
    else
        mcp_layout_spread(layers, stages, counts);
    plan->chunks = MCP_ARRAY(row->arena, stages, struct mcp_chunk);
    for (int k = 0, layer = 0; k < stages; layer += counts[k++]) {
        plan->chunks[k] = (struct mcp_chunk){.first_layer = layer, .num_layers = counts[k]};
        set_runs(row->arena, &plan->chunks[k], pattern);
    }
    return MCP_OK;
}

static enum mcp_status read_degrees(struct mcp_run_row *row, struct mcp_plan *plan,
                                    struct mcp_error *err)
{
    MCP_TRY(mcp_row_need(row, "tp", &plan->tensor_parallel, err));
    MCP_TRY(mcp_row_int(row, "cp", 1, &plan->context_parallel, err));
    MCP_TRY(mcp_row_need(row, "pp", &plan->pipeline_parallel, err));
    MCP_TRY(mcp_row_need(row, "dp", &plan->data_parallel, err));
    MCP_TRY(mcp_row_int(row, "ep", 1, &plan->expert_parallel, err));
    MCP_TRY(mcp_row_int(row, "vpp", 1, &plan->virtual_stages, err));
    MCP_TRY(mcp_row_need(row, "mbs", &plan->microbatch_size, err));
    if (!mcp_row_has(row, "ep") && mcp_row_has(row, "experts"))
        return mcp_fail(err, MCP_INVALID, "ep is not stated");
    if (plan->context_parallel < 1 || plan->expert_parallel < 1 || plan->virtual_stages < 1)
        return mcp_fail(err, MCP_INVALID, "cp, ep and vpp are at least 1");
    plan->schedule = plan->virtual_stages > 1 ? MCP_INTERLEAVED : MCP_1F1B;
    return MCP_OK;
}

/* The world is the GPU count, batches are whole: what makes a plan a plan. */
static enum mcp_status check_world(const struct mcp_run_row *row, const struct mcp_plan *plan,
                                   struct mcp_error *err)
{
    const int64_t gpus = mcp_cluster_gpus(&row->run->cluster);
    const int64_t model = (int64_t)plan->tensor_parallel * plan->context_parallel;
    const int64_t group = (int64_t)plan->data_parallel * plan->microbatch_size;
    const int64_t batch = row->run->job.global_batch_size;
    if (plan->pipeline_parallel > MCP_MAX_PIPELINE)
        return mcp_fail(err, MCP_INVALID, "pp=%d is more than %d", plan->pipeline_parallel,
                        MCP_MAX_PIPELINE);
    if (model > gpus || model * plan->pipeline_parallel > gpus ||
        model * plan->pipeline_parallel * plan->data_parallel != gpus)
        return mcp_fail(err, MCP_INVALID, "tp=%d x cp=%d x pp=%d x dp=%d is not gpus=%d",
                        plan->tensor_parallel, plan->context_parallel, plan->pipeline_parallel,
                        plan->data_parallel, (int)gpus);
    if (batch % group != 0)
        return mcp_fail(err, MCP_INVALID, "gbs=%d is no multiple of dp=%d x mbs=%d", (int)batch,
                        plan->data_parallel, plan->microbatch_size);
    return MCP_OK;
}

static void read_overlap(const struct mcp_run_row *row, struct mcp_plan *plan)
{
    const char *flags = mcp_run_flags(row);
    const bool off = mcp_starts_with(flags, "none");
    const bool on = mcp_run_family_of(row)->overlaps && !off;
    plan->overlap.tensor = (on && !mcp_contains_ignoring_case(flags, "no TP comm overlap")) ||
                           mcp_contains_ignoring_case(flags, "async TP");
    plan->overlap.data = on || (plan->zero_stage == 3 && !off) ||
                         mcp_contains_ignoring_case(flags, "overlap-grad-reduce");
    plan->overlap.gather = plan->overlap.data;
    plan->overlap.pipeline = on;
    plan->overlap.expert =
        mcp_contains_ignoring_case(flags, "EP a2a overlap") ||
        mcp_contains_ignoring_case(flags, "EP overlap on") ||
        (mcp_contains_ignoring_case(flags, "EP overlap") && strstr(flags, "off") == NULL) ||
        mcp_contains_ignoring_case(flags, "overlap-moe-expert");
}

static enum mcp_status read_sharding(struct mcp_run_row *row, struct mcp_plan *plan,
                                     struct mcp_error *err)
{
    const struct mcp_run_family *family = mcp_run_family_of(row);
    int sequence;
    const bool usual = family->sequence_parallel || mcp_row_has(row, "experts");
    MCP_TRY(mcp_row_int(row, "zero_stage", family->zero_stage, &plan->zero_stage, err));
    MCP_TRY(mcp_row_int(row, "sp", usual, &sequence, err));
    if (plan->zero_stage > 3)
        return mcp_fail(err, MCP_INVALID, "zero_stage=%d is not 0..3", plan->zero_stage);
    if (!mcp_row_has(row, "sp") && plan->tensor_parallel > 1)
        mcp_row_note(row, "sequence parallelism not stated: %s assumed", usual ? "on" : "off");
    if (!mcp_row_has(row, "zero_stage"))
        mcp_row_note(row, "ZeRO stage not stated: %d assumed", plan->zero_stage);
    plan->sequence_parallel = sequence != 0 && plan->tensor_parallel > 1;
    plan->reshard_after_forward = plan->zero_stage == 3;
    if (mcp_run_flagged(row, "CP via all-to-all"))
        plan->context_parallel_kind = MCP_CONTEXT_ALL_TO_ALL;
    return MCP_OK;
}

enum mcp_status mcp_run_read_plan(struct mcp_run_row *row, struct mcp_plan *out,
                                  struct mcp_error *err)
{
    struct mcp_plan plan = mcp_plan_default();
    struct pattern pattern;
    MCP_TRY(read_degrees(row, &plan, err));
    MCP_TRY(check_world(row, &plan, err));
    MCP_TRY(read_sharding(row, &plan, err));
    MCP_TRY(read_recompute(row, &pattern, err));
    read_overlap(row, &plan);
    MCP_TRY(make_chunks(row, &pattern, &plan, err));
    *out = plan;
    return MCP_OK;
}
