/* tests/reports/test_runs.c: what a row of a table of runs means, cell by cell. */
#include "core/text.h"
#include "reports/runs.h"
#include "reports/runs_layout.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads the only row of a table with these columns and cells. */
static void read_row(struct mcp_arena *arena, const char *columns, const char *cells,
                     struct mcp_run *run)
{
    char path[] = "/tmp/mcpplan-runs-XXXXXX";
    const char *text = mcp_format(arena, "%s\n%s\n", columns, cells);
    struct mcp_runs *runs;
    struct mcp_error err = {{0}};
    const int file = mkstemp(path);
    cr_assert(file >= 0);
    cr_assert(eq(sz, (size_t)write(file, text, strlen(text)), strlen(text)));
    close(file);
    const enum mcp_status status = mcp_runs_open(arena, path, NULL, &runs, &err);
    unlink(path);
    cr_assert(eq(int, (int)status, MCP_OK), "%s", err.text);
    mcp_run_read(arena, runs, 0, run);
}

#define COLUMNS                                                                                    \
    "id,source,gpu,gpus,gpus_per_node,inter_node_link,model,layers,hidden,heads,kv_heads,"         \
    "ffn_hidden,vocab,seq,gated_mlp,tp,cp,pp,vpp,dp,mbs,gbs,recompute,recompute_detail,precision," \
    "attention,overlap_flags"

struct case_row {
    char name[56];
    char cells[320];
    char reason[64]; /* part of it; "" when the row is predictable */
    char stack[24];
    char gpu[24];
    double network_bytes_per_s;
    int selective_modules;
    int recompute_first; /* of the first chunk */
};

ParameterizedTestParameters(runs, rows)
{
    static struct case_row cases[] = {
        {"BigScience: Omni-Path, full recompute",
         "a,BigScience sweep,A100-SXM-80GB,384,8,Omni-Path 4x100Gb/s per node,GPT,72,14336,112,112,"
         "57344,250880,2048,0,8,1,6,1,8,4,2048,full,every layer,fp16,no flash,none",
         "", "bigscience", "a100-sxm4-80gb", 6.25e9, 1, MCP_RECOMPUTE_FULL},
        {"an A100 of unknown memory is the larger one",
         "a,vTrain artifact,A100-SXM,16,8,InfiniBand HDR 4x200Gb/s per node,GPT,24,2048,16,16,8192,"
         "50257,1024,0,2,1,2,1,4,1,64,full,,fp16,,",
         "", "megatron-deepspeed", "a100-sxm4-80gb", 12.5e9, 1, MCP_RECOMPUTE_FULL},
        {"a rate per GPU, per-operator recompute",
         "a,torchtitan benchmarks,H100-SXM-96GB-HBM2e-500W,16,8,400 Gb/s RDMA per GPU (CX),Llama,"
         "32,4096,32,8,14336,128256,8192,1,1,1,1,1,16,2,32,selective,per-op selective AC,bf16,"
         "SDPA flash,FSDP2; torch.compile",
         "", "torchtitan", "h100-sxm-96gb", 50e9, MCP_RECOMPUTE_ALTERNATE_MATMULS,
         MCP_RECOMPUTE_SELECTIVE},
        {"without torch.compile it is eager",
         "a,torchtitan "
         "benchmarks,H100-SXM-80GB,8,8,,Llama,32,4096,32,8,14336,128256,8192,1,1,1,1,1,"
         "8,2,16,none,,bf16,SDPA flash,FSDP2",
         "", "torchtitan-eager", "h100-sxm-80gb", 50e9, MCP_RECOMPUTE_ALTERNATE_MATMULS,
         MCP_RECOMPUTE_NONE},
        {"a list of modules",
         "a,Megatron-Bridge performance summary (NeMo container "
         "26.06),GB200,64,4,,Llama,32,4096,32,"
         "8,14336,128256,8192,1,1,1,2,1,32,1,64,selective,modules: layernorm+moe_act,mxfp8,fused,",
         "", "megatron-bridge", "gb200", 50e9, MCP_RECOMPUTE_NORM | MCP_RECOMPUTE_ACTIVATION,
         MCP_RECOMPUTE_SELECTIVE},
        {"an unknown GPU",
         "a,x,TPUv4,8,8,,Llama,32,4096,32,8,14336,128256,8192,1,1,1,1,1,8,1,8,none,,bf16,flash,",
         "no GPU file describes a \"TPUv4\"", "", "", 0, 0, 0},
        {"a missing microbatch",
         "a,x,H100-SXM-80GB,8,8,,Llama,32,4096,32,8,14336,128256,8192,1,1,1,1,1,8,,8,none,,bf16,,",
         "mbs is not stated", "", "", 0, 0, 0},
        {"a world that is not the machine",
         "a,x,H100-SXM-80GB,16,8,,Llama,32,4096,32,8,14336,128256,8192,1,1,1,1,1,8,1,8,none,,bf16,"
         ",",
         "is not gpus=16", "", "", 0, 0, 0},
        {"a batch that does not divide",
         "a,x,H100-SXM-80GB,8,8,,Llama,32,4096,32,8,14336,128256,8192,1,1,1,1,1,8,3,8,none,,bf16,,",
         "gbs=8 is no multiple of dp=8 x mbs=3", "", "", 0, 0, 0},
        {"a number that is none",
         "a,x,H100-SXM-80GB,8,8,,Llama,32,-4,32,8,14336,128256,8192,1,1,1,1,1,8,1,8,none,,bf16,,",
         "hidden \"-4\" is no whole number", "", "", 0, 0, 0},
        {"more stages than layers and slots",
         "a,x,H100-SXM-80GB,8,8,,Llama,4,4096,32,8,14336,128256,8192,1,1,1,8,1,1,1,8,none,,bf16,,",
         "is more than layers=4", "", "", 0, 0, 0},
    };
    return cr_make_param_array(struct case_row, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_row *c, runs, rows)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_run run;
    read_row(arena, COLUMNS, c->cells, &run);
    if (c->reason[0] != '\0') {
        cr_assert(ne(ptr, (void *)run.reason, NULL), "%s: no reason", c->name);
        cr_expect(ne(ptr, strstr(run.reason, c->reason), NULL), "%s: %s", c->name, run.reason);
        mcp_arena_free(arena);
        return;
    }
    cr_assert(eq(ptr, (void *)run.reason, NULL), "%s: %s", c->name, run.reason);
    cr_expect(eq(str, (char *)run.stack.name, c->stack), "%s", c->name);
    cr_expect(eq(str, (char *)run.cluster.gpu.name, c->gpu), "%s", c->name);
    cr_expect(eq(dbl, run.cluster.tiers[run.cluster.num_tiers - 1].bandwidth_bytes_per_s,
                 c->network_bytes_per_s),
              "%s", c->name);
    cr_expect(eq(int, (int)run.stack.selective_modules, c->selective_modules), "%s", c->name);
    cr_expect(eq(int, (int)mcp_plan_recompute(&run.plan, 0, 0), c->recompute_first), "%s", c->name);
    mcp_arena_free(arena);
}

Test(runs, latent_attention_and_shared_experts_come_from_the_model_of_that_name)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_run run;
    read_row(
        arena, COLUMNS ",experts,topk,moe_ffn_hidden,ep,notes",
        "a,x,GB200,8,4,,DeepSeek-V3 (4 layers),4,7168,128,128,18432,129280,4096,1,1,1,1,1,8,1,8,"
        "none,,bf16,fused,,256,8,2048,8,first layer dense",
        &run);
    cr_assert(eq(ptr, (void *)run.reason, NULL), "%s", run.reason);
    const struct mcp_layer_kind *first = mcp_model_layer(&run.model, 0);
    const struct mcp_layer_kind *second = mcp_model_layer(&run.model, 1);
    cr_expect(eq(int, (int)first->mlp, MCP_MLP_DENSE));
    cr_expect(eq(int, (int)second->mlp, MCP_MLP_EXPERTS));
    cr_expect(eq(int, (int)second->attention, MCP_ATTENTION_LATENT));
    cr_expect(eq(int, second->kv_lora_rank, 512));
    cr_expect(eq(int, second->shared_expert_ffn_hidden_size, 2048));
    cr_expect(eq(int, run.model.num_mtp_layers, 0));
    mcp_arena_free(arena);
}

Test(runs, sums_of_layers_and_stages_hold_in_every_published_row)
{
    const char *shared = getenv("MCP_SHARED");
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_runs *runs;
    struct mcp_error err = {{0}};
    const char *path = mcp_format(arena, "%s/measured/runs.csv", shared ? shared : "../shared");
    if (access(path, R_OK) != 0) {
        fprintf(stderr, "%s is not here: not tested\n", path);
        mcp_arena_free(arena);
        return;
    }
    cr_assert(eq(int, (int)mcp_runs_open(arena, path, NULL, &runs, &err), MCP_OK), "%s", err.text);
    int complete = 0, predictable = 0;
    for (size_t i = 0; i < mcp_runs_csv(runs)->num_rows; i++) {
        struct mcp_run run;
        mcp_run_read(arena, runs, i, &run);
        complete += run.complete;
        predictable += run.complete && run.reason == NULL;
        int layers = 0;
        for (int k = 0;
             run.reason == NULL && k < run.plan.pipeline_parallel * run.plan.virtual_stages; k++)
            layers += run.plan.chunks[k].num_layers;
        cr_expect(run.reason != NULL || layers == run.model.num_layers, "%s", run.id);
    }
    cr_expect(complete > 0 && predictable >= 0.95 * complete, "%d of %d", predictable, complete);
    mcp_arena_free(arena);
}

struct case_layout {
    char name[48];
    char text[40]; /* "": no layout, spread */
    int layers, stages;
    int first, second, last; /* layers of stages 0, 1 and the last; -1: not of the language */
};

ParameterizedTestParameters(runs, layouts)
{
    static struct case_layout cases[] = {
        {"equal", "", 96, 8, 12, 12, 12},
        {"embedding and head take a slot each", "", 70, 12, 5, 6, 5},
        {"two slots and nothing else", "", 126, 128, 0, 1, 0},
        {"filled from the front", "", 78, 12, 7, 7, 1},
        {"filled from the front, one each at the end", "", 61, 16, 4, 4, 1},
        {"evenly where the front would take all", "", 9, 7, 2, 2, 1},
        {"a middle stage without layers", "Et||tL", 2, 3, -1, 0, 0},
        {"Megatron's language", "Et*4|(t*4|)*14tmL", 61, 16, 4, 4, 1},
        {"stages without groups", "Ett|tt|tL", 5, 3, 2, 2, 1},
        {"an unknown letter", "Ex|tL", 2, 2, -1, 0, 0},
        {"an open group", "E(t|*2tL", 3, 3, -1, 0, 0},
        {"too many layers", "Et*9|tL", 4, 2, -1, 0, 0},
        {"too many stages", "Et|t|t|tL", 4, 2, -1, 0, 0},
        {"a repeat that would fill memory", "E(t*60000)*60000|L", 4, 2, -1, 0, 0},
    };
    return cr_make_param_array(struct case_layout, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_layout *c, runs, layouts)
{
    struct mcp_arena *arena = mcp_arena_new();
    int counts[128];
    if (c->text[0] == '\0')
        mcp_layout_spread(c->layers, c->stages, counts);
    else if (mcp_layout_parse(arena, c->text, c->layers, c->stages, counts, NULL) != MCP_OK)
        counts[0] = -1;
    cr_expect(eq(int, counts[0], c->first), "%s", c->name);
    if (c->first >= 0) {
        cr_expect(eq(int, counts[1], c->second), "%s", c->name);
        cr_expect(eq(int, counts[c->stages - 1], c->last), "%s", c->name);
    }
    mcp_arena_free(arena);
}
