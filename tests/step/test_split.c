/* tests/step/test_split.c: backward_input and backward_weight together do what backward does. */
#include "tests/step/random_plan.h"
#include "tests/step/setup.h"

#include "step/build.h"
#include "step/price.h"

#include <criterion/parameterized.h>
#include <string.h>

struct split_case {
    char name[40];
    char model[24];
    int kind; /* of layer */
    int tensor, context, expert;
};

ParameterizedTestParameters(split, does_the_same)
{
    static struct split_case cases[] = {
        {"GPT, one rank", "gpt3-175b", 0, 1, 1, 1},
        {"GPT, tensor and sequence", "gpt3-175b", 0, 8, 1, 1},
        {"Llama, tensor, ring", "llama-3.1-70b", 0, 8, 4, 1},
        {"Qwen3, norms on heads", "qwen3-32b", 0, 4, 1, 1},
        {"Mixtral, experts", "mixtral-8x7b", 0, 2, 1, 4},
        {"DeepSeek, latent, dense", "deepseek-v3", 0, 2, 1, 1},
        {"DeepSeek, latent, experts", "deepseek-v3", 1, 2, 2, 8},
    };
    return cr_make_param_array(struct split_case, cases, sizeof cases / sizeof *cases);
}

static struct mcp_layer_type build(struct setup *s, int kind, bool split)
{
    const struct mcp_layer_spec spec = {.kind = kind, .split_backward = split};
    struct mcp_layer_type type;
    mcp_layer_build(s->arena, &s->question, &s->plan, &spec, &type);
    return type;
}

static double flops_of(const struct mcp_block *block)
{
    double sum = 0;
    for (int i = 0; i < block->num_ops; i++)
        sum += mcp_op_flops(&block->ops[i]);
    return sum;
}

static int weight_gradients(const struct mcp_block *block)
{
    int count = 0;
    for (int i = 0; i < block->num_ops; i++)
        count += block->ops[i].function == MCP_FN_MATMUL_TN_ACCUMULATE ||
                 block->ops[i].function == MCP_FN_GROUPED_TN_ACCUMULATE;
    return count;
}

static bool writes_before(const struct mcp_block *block, int op, unsigned index)
{
    for (int i = 0; i < op; i++)
        for (int w = 0; w < block->ops[i].num_writes; w++)
            if (block->ops[i].writes[w].space == MCP_SPACE_BLOCK &&
                block->ops[i].writes[w].index == index)
                return true;
    return false;
}

/* Scratch of one entry cannot be read by another: what W needs of B is a frame. */
static void expect_own_scratch(const struct mcp_block *block, const char *name)
{
    for (int i = 0; i < block->num_ops; i++)
        for (int r = 0; r < block->ops[i].num_reads; r++) {
            struct mcp_operand at = block->ops[i].reads[r];
            if (at.space == MCP_SPACE_BLOCK)
                cr_expect(writes_before(block, i, at.index), "%s: op %d reads scratch %d", name, i,
                          at.index);
        }
}

static bool reads_or_writes(const struct mcp_operand *places, int count, struct mcp_operand at)
{
    for (int i = 0; i < count; i++)
        if (memcmp(&places[i], &at, sizeof at) == 0)
            return true;
    return false;
}

static bool is_product(const struct mcp_op *op)
{
    return op->function == MCP_FN_MATMUL_TN_ACCUMULATE ||
           op->function == MCP_FN_GROUPED_TN_ACCUMULATE;
}

/* What a weight gradient reads is not written any more when it is put off: a later op of
 * the whole backward that changed it would change W's result. */
static void expect_lasting_inputs(const struct mcp_block *whole, const char *name)
{
    for (int i = 0; i < whole->num_ops; i++)
        for (int r = 0; is_product(&whole->ops[i]) && r < whole->ops[i].num_reads; r++)
            for (int j = i + 1; j < whole->num_ops; j++)
                cr_expect(!reads_or_writes(whole->ops[j].writes, whole->ops[j].num_writes,
                                           whole->ops[i].reads[r]),
                          "%s: op %d changes what op %d reads", name, j, i);
}

/* No gradient of weights is added to before W, so that W's can be reduced at once. */
static void expect_gradients_in_weight_alone(const struct mcp_block *input, const char *name)
{
    for (int i = 0; i < input->num_ops; i++)
        for (int w = 0; w < input->ops[i].num_writes; w++)
            cr_expect(input->ops[i].writes[w].space >= MCP_SPACE_FRAME, "%s: op %d", name, i);
}

ParameterizedTest(struct split_case *c, split, does_the_same)
{
    struct setup s;
    setup_load(&s, c->model, "dgx-h100:8", "megatron-core");
    s.job.sequence_length = 4096;
    s.plan.tensor_parallel = c->tensor;
    s.plan.sequence_parallel = c->tensor > 1;
    s.plan.context_parallel = c->context;
    s.plan.expert_parallel = c->expert;
    s.plan.data_parallel = 8;
    setup_finish(&s, 1, MCP_RECOMPUTE_NONE);
    struct mcp_layer_type fused = build(&s, c->kind, false), split = build(&s, c->kind, true);
    const struct mcp_block *whole = &fused.blocks[MCP_BACKWARD];
    const struct mcp_block *input = &split.blocks[MCP_BACKWARD_INPUT];
    const struct mcp_block *weight = &split.blocks[MCP_BACKWARD_WEIGHT];
    cr_assert(split.blocks[MCP_BACKWARD].num_ops == whole->num_ops, "%s", c->name);
    cr_expect(memcmp(split.blocks[MCP_BACKWARD].ops, whole->ops,
                     (size_t)whole->num_ops * sizeof *whole->ops) == 0,
              "%s: the whole backward is another one", c->name);
    cr_expect(flops_of(input) + flops_of(weight) == flops_of(whole), "%s: FLOPs", c->name);
    cr_expect(weight_gradients(weight) == weight_gradients(whole), "%s: W lacks some", c->name);
    cr_expect(weight_gradients(input) == 0, "%s: B holds some", c->name);
    expect_own_scratch(input, c->name);
    expect_own_scratch(weight, c->name);
    expect_lasting_inputs(whole, c->name);
    expect_gradients_in_weight_alone(input, c->name);
    mcp_arena_free(s.arena);
}

/* The same of whatever layers there are. */
Test(split, any_layer_can_be_split)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan drawn;
        struct mcp_program program;
        random_plan_draw_any(arena, seed, &drawn);
        mcp_program_build(arena, &drawn.question, &drawn.plan, &program);
        const char *says = random_plan_describe(arena, &drawn);
        for (int t = 0; t < program.num_types; t++) {
            expect_lasting_inputs(&program.types[t].blocks[MCP_BACKWARD], says);
            expect_gradients_in_weight_alone(&program.types[t].blocks[MCP_BACKWARD_INPUT], says);
        }
        mcp_arena_free(arena);
    }
}
