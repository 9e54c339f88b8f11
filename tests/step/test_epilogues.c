/* tests/step/test_epilogues.c: what products do as they store, and where they do not. */
#include "step/layer.h"

#include "step/build.h"
#include "step/price.h"
#include "step/verify.h"
#include "tests/step/setup.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

struct case_fused {
    char name[56];
    char model[16];
    bool fused;
    enum mcp_precision precision;
    enum mcp_recompute recompute;
    unsigned dropped;   /* by selective recompute */
    int biases, gelus;  /* products with an epilogue, in forward */
    int passes, remade; /* of biases and GELU by themselves; products in the recompute block */
};

ParameterizedTestParameters(epilogues, fused)
{
    enum { CORE = MCP_RECOMPUTE_ATTENTION_CORE, ACTIVATION = MCP_RECOMPUTE_ACTIVATION };
    static const struct case_fused cases[] = {
        {"passes of their own", "gpt2", false, MCP_PRECISION_BF16, MCP_RECOMPUTE_NONE, CORE, 0, 0,
         2, 0},
        {"none is left", "gpt2", true, MCP_PRECISION_BF16, MCP_RECOMPUTE_NONE, CORE, 2, 1, 0, 0},
        {"all is made again", "gpt2", true, MCP_PRECISION_BF16, MCP_RECOMPUTE_FULL, CORE, 2, 1, 0,
         5},
        {"GELU alone is made again", "gpt2", true, MCP_PRECISION_BF16, MCP_RECOMPUTE_SELECTIVE,
         ACTIVATION, 2, 0, 1, 0},
        {"the MLP is made again", "gpt2", true, MCP_PRECISION_BF16, MCP_RECOMPUTE_SELECTIVE,
         MCP_RECOMPUTE_MLP, 2, 1, 0, 1},
        {"casts come between", "gpt2", true, MCP_PRECISION_FP8, MCP_RECOMPUTE_NONE, CORE, 0, 0, 2,
         0},
        {"rotary takes biases along", "gpt-oss-120b", true, MCP_PRECISION_BF16, MCP_RECOMPUTE_NONE,
         CORE, 0, 0, 0, 0},
    };
    return cr_make_param_array(struct case_fused, (struct case_fused *)cases,
                               sizeof cases / sizeof *cases);
}

static int count_ops(const struct mcp_block *block, enum mcp_function function)
{
    int count = 0;
    for (int i = 0; i < block->num_ops; i++)
        count += block->ops[i].function == function;
    return count;
}

static double block_flops(const struct mcp_block *block)
{
    double flops = 0;
    for (int i = 0; i < block->num_ops; i++)
        flops += mcp_op_flops(&block->ops[i]);
    return flops;
}

static double block_seconds(const struct setup *s, const struct mcp_block *block)
{
    const struct mcp_pricing pricing = {&s->question, &s->plan};
    double seconds = 0;
    for (int i = 0; i < block->num_ops; i++)
        seconds += mcp_op_seconds(&pricing, &block->ops[i]);
    return seconds;
}

ParameterizedTest(struct case_fused *c, epilogues, fused)
{
    struct setup s;
    setup_load(&s, c->model, "dgx-h100", "megatron-core");
    s.job.precision = c->precision;
    s.job.sequence_length = 1024;
    s.stack.selective_modules = c->dropped;
    const struct mcp_layer_type apart = setup_layer(&s, 0, c->recompute);
    s.stack.fused_epilogues = c->fused;
    const struct mcp_layer_type type = setup_layer(&s, 0, c->recompute);
    const struct mcp_block *forward = &type.blocks[MCP_FORWARD];
    const struct mcp_block *again = &type.blocks[MCP_RECOMPUTE];
    cr_expect(eq(int, count_ops(forward, MCP_FN_MATMUL_NT_BIAS), c->biases), "%s", c->name);
    cr_expect(eq(int, count_ops(forward, MCP_FN_MATMUL_NT_GELU), c->gelus), "%s", c->name);
    cr_expect(eq(int,
                 count_ops(forward, MCP_FN_BIAS_FORWARD) + count_ops(forward, MCP_FN_GELU_FORWARD),
                 c->passes),
              "%s", c->name);
    cr_expect(eq(int,
                 count_ops(again, MCP_FN_MATMUL_NT) + count_ops(again, MCP_FN_MATMUL_NT_BIAS) +
                     count_ops(again, MCP_FN_MATMUL_NT_GELU),
                 c->remade),
              "%s", c->name);
    for (int role = MCP_FORWARD; role <= MCP_BACKWARD; role++)
        cr_expect(eq(dbl, block_flops(&type.blocks[role]), block_flops(&apart.blocks[role])), "%s",
                  c->name);
    bool cheaper = block_seconds(&s, forward) < block_seconds(&s, &apart.blocks[MCP_FORWARD]);
    cr_expect(eq(int, cheaper, c->biases + c->gelus > 0), "%s", c->name);
    mcp_arena_free(s.arena);
}

Test(epilogues, a_bias_that_no_part_is_is_refused)
{
    struct setup s;
    struct mcp_program program;
    struct mcp_error err = {""};
    int changed = 0;
    setup_load(&s, "gpt2", "dgx-h100", "megatron-core");
    s.job.sequence_length = 64;
    s.stack.fused_epilogues = true;
    setup_finish(&s, 1, MCP_RECOMPUTE_NONE);
    setup_program(&s, &program);
    for (int t = 0; t < program.num_types; t++) {
        struct mcp_block *forward = &program.types[t].blocks[MCP_FORWARD];
        for (int i = 0; i < forward->num_ops; i++)
            if (forward->ops[i].function == MCP_FN_MATMUL_NT_GELU) {
                forward->ops[i].dims[5] = 100;
                changed++;
            }
    }
    cr_expect(gt(int, changed, 0));
    cr_expect(mcp_program_verify(s.arena, &program, &err) == MCP_INVALID);
    cr_expect(strstr(err.text, "bias 100 of ") != NULL, "%s", err.text);
    mcp_arena_free(s.arena);
}
