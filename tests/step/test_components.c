/* tests/step/test_components.c: parts of a layer's time, and the slowest stage, against those
 * that an independent prototype of the cost model gave for published runs. */
#include "core/text.h"
#include "reports/runs.h"
#include "step/layer_price.h"
#include "step/price_parts.h"
#include "tests/step/setup.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum part { GEMM, ATTENTION, ELEMENTWISE, TENSOR, EXPERT, NUM_PARTS };
static const char *const part_names[NUM_PARTS] = {"gemm", "attention", "element-wise", "tensor",
                                                  "expert"};

struct reference {
    char id[72];
    double elementwise_factor; /* the prototype's for this software; ours is refitted at times */
    double stage_ms;           /* the slowest, one microbatch forward and backward */
    double forward_ms[NUM_PARTS], backward_ms[NUM_PARTS];
};

/* Output of the prototype on published runs: model against model, no measurements. */
static const struct reference references[] = {
    {"korthikanti-175b-full",
     1.43,
     278.4,
     {4.10, 0.56, 0.55, 0.87, 0},
     {7.97, 0.81, 0.75, 0.87, 0}},
    {"korthikanti-175b-selective",
     1.43,
     205.1,
     {4.10, 0.56, 0.13, 0.92, 0},
     {7.97, 0.81, 0.17, 1.32, 0}},
    {"korthikanti-1000b-selective",
     1.43,
     125.3,
     {16.51, 0.99, 0.27, 1.77, 0},
     {32.92, 1.47, 0.36, 2.54, 0}},
    {"sc21-39.1b", 1.43, 1074.2, {6.86, 1.48, 1.47, 2.18, 0}, {13.70, 2.14, 2.00, 2.18, 0}},
    {"vtrain-39.1b-512g-tp8dp8pp8-mbs4-gbs1536",
     1.33,
     271.8,
     {6.76, 1.41, 1.37, 2.18, 0},
     {13.49, 2.04, 1.86, 2.18, 0}},
    {"bigsci-02-25-14336h72l64a-dp8tp8pp6-mbs4-gbs2048",
     1.82,
     1432.5,
     {20.48, 1.98, 3.27, 3.75, 0},
     {41.05, 2.91, 4.45, 3.75, 0}},
    {"internevo-nock-ga4-128g", 2.22, 927.0, {7.66, 0.46, 1.01, 0, 0}, {15.27, 1.15, 1.44, 0, 0}},
    {"mpt-h100-80gb-13b-s2048-128g-amp-bf16-83",
     1.49,
     6756.5,
     {32.61, 3.31, 4.11, 0, 0},
     {65.94, 14.47, 5.61, 0, 0}},
    {"dgxc-35a9aec-h100-llama3-70b-bf16-1024g",
     1.30,
     223.0,
     {2.74, 0.30, 0.18, 0.27, 0},
     {5.46, 0.92, 0.27, 0.27, 0}},
    {"dgxc-741c886-h100-llama3-70b-fp8-64g",
     1.30,
     161.6,
     {2.91, 0.59, 0.71, 0.49, 0},
     {5.76, 1.83, 0.89, 0.49, 0}},
    {"mlperf-v5.0-nvidia-eos-dfw-n64-ngc25.01-nemo-llama31-405b",
     1.30,
     188.9,
     /* the prototype casts weights again for every fourth microbatch, we once a step */
     {2.73, 0.30, NAN, 0.58, 0},
     {5.46, 0.92, 0.51, 0.58, 0}},
    {"simumax-llama3-70b-tp2-pp1-dp4-l12-mbc8-cef",
     2.5,
     169.0,
     {3.51, 0.15, 0.30, 0.33, 0},
     {7.03, 0.45, 0.44, 0.47, 0}},
    {"simumax-deepseekv3-l4-tp1-ep8-pp1-dp8-mbc8-cef",
     2.5,
     119.2,
     {4.25, 0.74, 1.85, 0, 1.33},
     {8.51, 2.21, 2.69, 0, 1.33}},
    {"titan-h100-70b-256g-2506-bf16-vanilla",
     1.61,
     28914.9,
     {54.92, 9.73, 5.11, 21.01, 0},
     {110.31, 28.00, 7.58, 30.21, 0}},
    {"mbr-26.06-dgx-gb200-deepseek-v3-256g-mxfp8-pretrain",
     1.09,
     223.8,
     {1.78, 0.66, 1.11, 0, 0.45},
     {3.52, 1.97, 1.53, 0, 0.45}},
};
enum { NUM_REFERENCES = sizeof references / sizeof *references };

/* An op's own seconds by part; transfers count what their stack leaves exposed. The
 * prototype leaves launches out of element-wise work, and merges no ring's parts. */
static void add_parts(const struct mcp_pricing *pricing, const struct mcp_block *block,
                      double parts_ms[NUM_PARTS])
{
    for (int i = 0; i < block->num_ops; i++) {
        const struct mcp_op *op = &block->ops[i];
        double ms = 1e3 * mcp_op_seconds(pricing, op);
        switch (mcp_functions[op->function].code) {
        case MCP_MATMUL:
            parts_ms[GEMM] += ms;
            break;
        case MCP_ATTENTION:
            parts_ms[ATTENTION] += ms;
            break;
        case MCP_MAP:
            ms -= 1e3 * mcp_op_start_seconds(pricing, op);
            parts_ms[ELEMENTWISE] += op->function == MCP_FN_MERGE ? 0 : ms;
            break;
        case MCP_COLLECTIVE:
            ms *= mcp_op_exposed_frac(pricing, op);
            parts_ms[TENSOR] += op->stream == MCP_STREAM_TENSOR ? ms : 0;
            parts_ms[EXPERT] += op->stream == MCP_STREAM_EXPERT ? ms : 0;
            break;
        default:
            break;
        }
    }
}

static double slowest_stage_ms(struct mcp_arena *arena, const struct mcp_question *question,
                               const struct mcp_plan *plan)
{
    struct mcp_price_cache *cache =
        mcp_price_cache_new(arena, question, &(struct mcp_price_cache_options){false, NULL});
    double slowest = 0;
    for (int r = 0; r < plan->pipeline_parallel; r++) {
        int64_t ns = 0;
        for (int c = 0; c < plan->virtual_stages; c++) {
            int first, count;
            mcp_chunk_extent(question, plan, c * plan->pipeline_parallel + r, &first, &count);
            for (int i = first; i < first + count; i++) {
                struct mcp_layer_spec spec = mcp_layer_spec_at(question, plan, i);
                const struct mcp_layer_price *price = mcp_layer_price(cache, plan, &spec);
                ns += price->forward_ns + price->backward_ns + price->recompute_ns;
            }
        }
        slowest = fmax(slowest, (double)ns * 1e-6);
    }
    return slowest;
}

static void compare(const char *id, const char *part, const char *pass, double ours, double theirs)
{
    /* the reference is printed with two decimals */
    bool near = isnan(theirs) || fabs(ours - theirs) <= 0.15 * theirs + 0.005;
    cr_expect(near, "%s, %s %s: %.3f ms, reference %.3f ms", id, part, pass, ours, theirs);
}

static void compare_run(struct mcp_arena *arena, const struct mcp_question *question,
                        const struct mcp_plan *plan, const struct reference *want)
{
    struct mcp_stack stack = *question->stack;
    struct mcp_question pinned = *question;
    stack.elementwise_factor = want->elementwise_factor;
    pinned.stack = &stack;
    const struct mcp_pricing pricing = {&pinned, plan};
    struct mcp_layer_spec spec = mcp_layer_spec_at(&pinned, plan, question->model->num_layers);
    struct mcp_layer_type type;
    double forward[NUM_PARTS] = {0}, backward[NUM_PARTS] = {0};
    mcp_layer_build(arena, &pinned, plan, &spec, &type);
    add_parts(&pricing, &type.blocks[MCP_FORWARD], forward);
    add_parts(&pricing, &type.blocks[MCP_BACKWARD], backward);
    for (int i = 0; i < NUM_PARTS; i++) {
        compare(want->id, part_names[i], "forward", forward[i], want->forward_ms[i]);
        compare(want->id, part_names[i], "backward", backward[i], want->backward_ms[i]);
    }
    compare(want->id, "slowest", "stage", slowest_stage_ms(arena, &pinned, plan), want->stage_ms);
}

static const struct reference *find(const char *id)
{
    for (int i = 0; i < NUM_REFERENCES; i++)
        if (mcp_same(references[i].id, id))
            return &references[i];
    return NULL;
}

/* --- rebuilt by hand from the papers, for a clone without tables of runs --- */

struct case_run {
    char id[72];
    char model[24], cluster[24], stack[24];
    enum mcp_precision precision;
    bool dropout;
    int num_layers; /* of the model's; 0: all */
    int sequence, microbatch, num_microbatches;
    int tensor, pipeline, data, virtual_stages, zero_stage;
    bool sequence_parallel;
    enum mcp_recompute recompute;
};

ParameterizedTestParameters(components, by_hand)
{
    static const struct case_run cases[] = {
        {"korthikanti-175b-full", "gpt3-175b", "dgx-a100:8", "megatron-2021", MCP_PRECISION_FP16,
         true, 0, 2048, 1, 64, 8, 8, 1, 3, 0, false, MCP_RECOMPUTE_FULL},
        {"korthikanti-175b-selective", "gpt3-175b", "dgx-a100:8", "megatron-2021",
         MCP_PRECISION_FP16, true, 0, 2048, 1, 64, 8, 8, 1, 3, 0, true, MCP_RECOMPUTE_SELECTIVE},
        {"korthikanti-1000b-selective", "gpt-1t", "dgx-a100:64", "megatron-2021",
         MCP_PRECISION_FP16, true, 0, 2048, 1, 512, 8, 64, 1, 1, 0, true, MCP_RECOMPUTE_SELECTIVE},
        {"sc21-39.1b", "gpt-39b", "dgx-a100:64", "megatron-2021", MCP_PRECISION_FP16, true, 0, 2048,
         4, 12, 8, 2, 32, 1, 0, false, MCP_RECOMPUTE_FULL},
        {"simumax-llama3-70b-tp2-pp1-dp4-l12-mbc8-cef", "llama-3.1-70b", "dgx-b200",
         "megatron-core-plain", MCP_PRECISION_BF16, false, 12, 4096, 1, 8, 2, 1, 4, 1, 1, true,
         MCP_RECOMPUTE_NONE},
    };
    return cr_make_param_array(struct case_run, (struct case_run *)cases,
                               sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_run *c, components, by_hand)
{
    struct setup s;
    setup_load(&s, c->model, c->cluster, c->stack);
    if (c->num_layers > 0)
        setup_cut(&s, c->num_layers);
    s.job.precision = c->precision;
    s.job.dropout = c->dropout;
    s.job.sequence_length = c->sequence;
    s.plan.microbatch_size = c->microbatch;
    s.plan.tensor_parallel = c->tensor;
    s.plan.pipeline_parallel = c->pipeline;
    s.plan.data_parallel = c->data;
    s.plan.virtual_stages = c->virtual_stages;
    s.plan.schedule = c->virtual_stages > 1 ? MCP_INTERLEAVED : MCP_1F1B;
    s.plan.zero_stage = c->zero_stage;
    s.plan.sequence_parallel = c->sequence_parallel;
    s.plan.overlap = (struct mcp_overlap){.context = true};
    setup_finish(&s, c->num_microbatches, c->recompute);
    compare_run(s.arena, &s.question, &s.plan, find(c->id));
    mcp_arena_free(s.arena);
}

/* --- the same from a table of runs --- */

Test(components, published_runs)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_runs *runs;
    struct mcp_error err = {""};
    const char *shared = getenv("MCP_SHARED");
    const char *path = mcp_format(arena, "%s/measured/runs.csv", shared ? shared : "../shared");
    if (mcp_runs_open(arena, path, NULL, &runs, &err) != MCP_OK) {
        fprintf(stderr, "%s: skipped\n", err.text);
        mcp_arena_free(arena);
        return;
    }
    const struct mcp_csv *csv = mcp_runs_csv(runs);
    int found = 0;
    for (size_t row = 0; row < csv->num_rows; row++) {
        const struct reference *want = find(mcp_csv_cell(csv, row, "id"));
        struct mcp_run run;
        if (want == NULL)
            continue;
        mcp_run_read(arena, runs, row, &run);
        cr_assert(run.reason == NULL, "%s: %s", run.id, run.reason);
        const struct mcp_question question = {&run.model, &run.cluster, &run.job, &run.stack};
        compare_run(arena, &question, &run.plan, want);
        found++;
    }
    cr_expect(eq(int, found, NUM_REFERENCES));
    mcp_arena_free(arena);
}
