/* tests/step/test_kernel_bytes.c: what kernels must move of the ops that prices count otherwise. */
#include "step/build.h"
#include "step/price.h"
#include "tests/step/setup.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

struct bytes_case {
    char name[40];
    char model[16];
    enum mcp_precision precision;
    enum mcp_function function;
    double each; /* bytes of an element that the op counts */
};

/* Tokens a microbatch, and the logits of each. */
enum { TOKENS = 64 };

static const struct mcp_op *find(const struct mcp_program *program, enum mcp_function function,
                                 const struct mcp_layer_type **type)
{
    for (int t = 0; t < program->num_types; t++)
        for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++) {
            const struct mcp_block *block = &program->types[t].blocks[role];
            *type = &program->types[t];
            for (int i = 0; i < block->num_ops; i++)
                if (block->ops[i].function == function)
                    return &block->ops[i];
        }
    return NULL;
}

ParameterizedTestParameters(kernel_bytes, each)
{
    static struct bytes_case cases[] = {
        {"AdamW with a master", "llama-3.1-8b", MCP_PRECISION_BF16, MCP_FN_ADAM, 4 + 24 + 2},
        {"AdamW of fp32 weights", "llama-3.1-8b", MCP_PRECISION_FP32, MCP_FN_ADAM, 4 + 24},
        {"gradients are fp32", "llama-3.1-8b", MCP_PRECISION_BF16, MCP_FN_SUM_SQUARES, 4},
        {"logits, once", "llama-3.1-8b", MCP_PRECISION_BF16, MCP_FN_LOSS_MAX, 2},
        {"... and their gradients", "llama-3.1-8b", MCP_PRECISION_BF16, MCP_FN_LOSS_FORWARD, 4},
        {"... scaled", "llama-3.1-8b", MCP_PRECISION_BF16, MCP_FN_LOSS_BACKWARD, 4},
        {"logits in fp32", "llama-3.1-8b", MCP_PRECISION_FP32, MCP_FN_LOSS_MAX, 4},
        {"rows of a table", "llama-3.1-8b", MCP_PRECISION_BF16, MCP_FN_EMBEDDING_FORWARD, 4},
        {"... and of positions", "gpt2", MCP_PRECISION_BF16, MCP_FN_EMBEDDING_FORWARD, 6},
        {"their gradients", "llama-3.1-8b", MCP_PRECISION_BF16, MCP_FN_EMBEDDING_BACKWARD, 6},
        {"... and positions'", "gpt2", MCP_PRECISION_BF16, MCP_FN_EMBEDDING_BACKWARD, 10},
        {"what prices count", "gpt2", MCP_PRECISION_BF16, MCP_FN_RESIDUAL_FORWARD, 6},
    };
    return cr_make_param_array(struct bytes_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct bytes_case *c, kernel_bytes, each)
{
    struct setup s;
    struct mcp_program program;
    const struct mcp_layer_type *type;
    setup_load(&s, c->model, "dgx-h100", "mcpplan-cuda");
    setup_cut(&s, 2);
    s.job.precision = c->precision;
    s.job.sequence_length = TOKENS;
    setup_finish(&s, 1, MCP_RECOMPUTE_NONE);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    const struct mcp_op *op = find(&program, c->function, &type);
    cr_assert(op != NULL, "%s", c->name);
    const double columns = (double)op->dims[c->function == MCP_FN_LOSS_MAX ? 2 : 1];
    cr_expect(
        eq(dbl, mcp_op_kernel_bytes(&program, type, op), (double)op->dims[0] * columns * c->each),
        "%s", c->name);
    mcp_arena_free(s.arena);
}
