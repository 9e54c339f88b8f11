/* tests/step/test_extents.c: what is said of a program whose sizes contradict each other. */
#include "tests/step/setup.h"

#include "core/text.h"
#include "step/extents.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { EMBEDDING = 0, LAYER = 1, HEAD = 3 }; /* of models cut to two layers */

static void build(const char *model, struct setup *s, struct mcp_program *program)
{
    char file[64];
    snprintf(file, sizeof file, "tests/exec/models/%s.json", model);
    setup_load(s, file, "dgx-h100", "mcpplan-cpu");
    setup_cut(s, 2);
    s->job.sequence_length = 16;
    s->job.attention = "flash2";
    s->plan.microbatch_size = 2;
    setup_finish(s, 1, MCP_RECOMPUTE_NONE);
    setup_program(s, program);
}

static struct mcp_layer_type *type_of(struct mcp_program *program, int layer)
{
    return &program->types[mcp_program_layer_type(program, layer) - program->types];
}

static void expect_refused(const struct mcp_program *program, const char *says, const char *name)
{
    struct mcp_error err = {""};
    cr_expect(eq(int, (int)mcp_program_check_extents(program, &err), MCP_INVALID), "%s", name);
    cr_expect(strstr(err.text, says) != NULL, "%s: %s", name, err.text);
}

static void expect_taken(const struct mcp_program *program)
{
    struct mcp_error err = {""};
    cr_assert(eq(int, (int)mcp_program_check_extents(program, &err), MCP_OK), "%s", err.text);
}

/* --- facts --- */

struct case_fact {
    char model[16];
    int layer;
    size_t fact;
    int64_t value;
    char says[112];
};

#define FACT(name) offsetof(struct mcp_layer_facts, name)

ParameterizedTestParameters(extents, facts)
{
    static struct case_fact cases[] = {
        {"llama-tiny", LAYER, FACT(kv_heads), 0, "kv_heads=0 must be a divisor of heads"},
        {"llama-tiny", LAYER, FACT(kv_heads), 3, "kv_heads=3 must be a divisor of heads"},
        {"llama-tiny", LAYER, FACT(heads), 0, "heads=0 must be at least 1"},
        {"llama-tiny", LAYER, FACT(heads), 16, "rotary_forward: 4608 numbers of 'qkv', where"},
        {"llama-tiny", LAYER, FACT(head_dim), 4096, "head_dim=4096 must be from 1 to 256"},
        {"llama-tiny", LAYER, FACT(head_dim), 8, "numbers of 'qkv', where its buffer has 3072"},
        {"llama-tiny", LAYER, FACT(value_head_dim), 257, "value_head_dim=257 must be from 1"},
        {"llama-tiny", LAYER, FACT(rotary_dim), 5, "rotary_dim=5 must be even, and no more"},
        {"llama-tiny", LAYER, FACT(rotary_dim), 8, "rotary_dim=8 must be even, and no more"},
        {"llama-tiny", LAYER, FACT(microbatch_size), 3, "microbatch_size=3 must be the plan's"},
        {"llama-tiny", LAYER, FACT(sequence_local), 32, "sequence_local=32 must be sequence_len"},
        {"llama-tiny", HEAD, FACT(sequence_length), 32, "sequence_length=32 must be that of the"},
        {"llama-tiny", LAYER, FACT(zigzag), 2, "zigzag=2 must be 0, or 1 where sequence_local"},
        {"llama-tiny", EMBEDDING, FACT(vocab_local), 257, "numbers of 'weights', where its"},
        {"llama-tiny", HEAD, FACT(vocab_local), 257, "from 1 to the columns of the logits"},
        {"gpt2-tiny", EMBEDDING, FACT(positions_part), 3, "positions_part=3 must be a part of"},
        {"moe-tiny", LAYER, FACT(num_experts), 8, "local_experts=4 must be num_experts / expert"},
        {"moe-tiny", LAYER, FACT(num_experts), 0, "num_experts=0 must be from 1 to 4096"},
        {"moe-tiny", LAYER, FACT(local_experts), 2, "expert_up=4 must be as many copies as there"},
        {"moe-tiny", LAYER, FACT(experts_per_token), 5, "experts_per_token=5 must be from 1 to"},
        {"moe-tiny", LAYER, FACT(experts_per_token), 3, "permute: 4608 numbers of 'dispatched'"},
    };
    return cr_make_param_array(struct case_fact, cases, MCP_COUNT_OF(cases));
}

ParameterizedTest(struct case_fact *c, extents, facts)
{
    struct setup s;
    struct mcp_program program;
    build(c->model, &s, &program);
    expect_taken(&program);
    char *facts = (char *)&type_of(&program, c->layer)->facts;
    memcpy(facts + c->fact, &c->value, sizeof c->value);
    expect_refused(&program, c->says, c->says);
    mcp_arena_free(s.arena);
}

/* --- ops --- */

struct case_op {
    char model[16];
    int layer, function, dim;
    int64_t value;
    char says[112];
};

ParameterizedTestParameters(extents, ops)
{
    static struct case_op cases[] = {
        {"llama-tiny", LAYER, MCP_FN_RESIDUAL_FORWARD, 0, 0, "residual_forward: dimension 0 is 0"},
        {"llama-tiny", LAYER, MCP_FN_RESIDUAL_FORWARD, 0, 33, "1584 numbers of 'attention_out'"},
        {"llama-tiny", LAYER, MCP_FN_MATMUL_NT, 2, 0, "matmul_nt: dimension 2 is 0"},
        {"llama-tiny", LAYER, MCP_FN_NORM_FORWARD, 0, 16, "16 rows of 48 numbers of 'x', which"},
        {"llama-tiny", LAYER, MCP_FN_NORM_BACKWARD, 1, 49,
         "32 rows of 49 numbers of 'middle', which"},
        {"llama-tiny", LAYER, MCP_FN_ROTARY_FORWARD, 0, 33, "numbers of 'qkv', where its buffer"},
        {"llama-tiny", LAYER, MCP_FN_SWIGLU_BACKWARD, 1, 73, "2336 numbers of 'd_active', where"},
        {"llama-tiny", LAYER, MCP_FN_ADAM, 2, 1, "adam: 1 weights from 0 of 'weights' on, where"},
        {"llama-tiny", LAYER, MCP_FN_ADAM, 4, 8, "numbers of 'optimizer', where its buffer has"},
        {"llama-tiny", LAYER, MCP_FN_SUM_SQUARES, 3, 8, "numbers of 'gradients', where its buf"},
        {"llama-tiny", LAYER, MCP_FN_ZERO, 3, 8, "zero: 17384 numbers of 'gradients', where"},
        {"gpt2-tiny", EMBEDDING, MCP_FN_LOAD_MICROBATCH, 2, 2, "tokens 2 ahead, where a batch"},
        {"gpt2-tiny", EMBEDDING, MCP_FN_EMBEDDING_FORWARD, 0, 33, "33 numbers of 'token_ids'"},
        {"gpt2-tiny", HEAD, MCP_FN_LOSS_FORWARD, 0, 33, "99 numbers of 'loss_numbers', where"},
        {"gpt2-tiny", HEAD, MCP_FN_LOSS_MAX, 2, 257, "8224 numbers of 'logits', where its"},
        {"gpt2-tiny", LAYER, MCP_FN_BIAS_BACKWARD, 0, 33, "numbers of 'd_query', where its buffer"},
        {"moe-tiny", LAYER, MCP_FN_ROUTER_TOP_K, 0, 16, "chances of 16 tokens for 4 experts in"},
        {"moe-tiny", LAYER, MCP_FN_ROUTER_TOP_K, 1, 5, "num_experts=4 must be the columns of"},
        {"moe-tiny", LAYER, MCP_FN_PERMUTE, 1, 49, "permute: 1568 numbers of 'mlp_norm', where"},
        {"moe-tiny", LAYER, MCP_FN_GROUPED_NT, 3, 2, "grouped_nt: rows of 2 experts, where the"},
        {"moe-tiny", LAYER, MCP_FN_GROUPED_NT, 4, 90, "numbers of 'expert_weights', where its"},
        {"moe-tiny", LAYER, MCP_FN_GROUPED_NN, 2, 96, "6144 numbers of 'd_expert_out', where"},
        {"moe-tiny", LAYER, MCP_FN_GROUPED_TN_ACCUMULATE, 1, 96, "6144 numbers of 'expert_active'"},
    };
    return cr_make_param_array(struct case_op, cases, MCP_COUNT_OF(cases));
}

static struct mcp_op *find_op(struct mcp_layer_type *type, int function)
{
    for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
        for (int i = 0; i < type->blocks[role].num_ops; i++)
            if (type->blocks[role].ops[i].function == function)
                return &type->blocks[role].ops[i];
    return NULL;
}

ParameterizedTest(struct case_op *c, extents, ops)
{
    struct setup s;
    struct mcp_program program;
    build(c->model, &s, &program);
    struct mcp_op *op = find_op(type_of(&program, c->layer), c->function);
    cr_assert(ne(ptr, op, NULL), "%s", c->says);
    op->dims[c->dim] = c->value;
    expect_refused(&program, c->says, c->says);
    mcp_arena_free(s.arena);
}

/* --- buffers --- */

struct case_buffer {
    char model[16];
    int layer, space;
    char buffer[24];
    int dtype; /* or its own */
    int64_t bytes;
    char says[112];
};
enum { ITS_OWN = MCP_NUM_DTYPES };

ParameterizedTestParameters(extents, buffers)
{
    static struct case_buffer cases[] = {
        {"llama-tiny", LAYER, MCP_SPACE_FRAME, "statistics", ITS_OWN, 1020,
         "attention_forward: 256 numbers of 'statistics', where its buffer has 255"},
        {"llama-tiny", LAYER, MCP_SPACE_FRAME, "kv", ITS_OWN, 2048,
         "rotary_forward: 1536 numbers of 'kv', where its buffer has 1024"},
        {"llama-tiny", LAYER, MCP_SPACE_FRAME, "x", ITS_OWN, 64,
         "has 3072 bytes, where others' have 64"},
        {"llama-tiny", LAYER, MCP_SPACE_BLOCK, "d_norm", ITS_OWN, 64, "of 'd_norm', where"},
        {"llama-tiny", LAYER, MCP_SPACE_LAYER, "weights", ITS_OWN, 64,
         "17376 weights in 'weights', which has 64 bytes"},
        {"llama-tiny", LAYER, MCP_SPACE_LAYER, "optimizer", ITS_OWN, 64, "of 'optimizer', where"},
        {"llama-tiny", HEAD, MCP_SPACE_FRAME, "targets", ITS_OWN, 64,
         "numbers of 'targets', where"},
        {"llama-tiny", HEAD, MCP_SPACE_FRAME, "targets", MCP_F32, 128,
         "load_microbatch: 'targets' is in f32, which it cannot read or write"},
        {"llama-tiny", LAYER, MCP_SPACE_FRAME, "query", MCP_F4, 4096,
         "rotary_forward: 'query' is in f4, which it cannot read or write"},
        {"moe-tiny", LAYER, MCP_SPACE_FRAME, "routing", ITS_OWN, 2048,
         "router_top_k: chances of 32 tokens for 4 experts in 'routing', which has 2048 bytes"},
        {"moe-tiny", LAYER, MCP_SPACE_FRAME, "sizes", ITS_OWN, 16, "8 numbers of 'sizes', where"},
        {"moe-tiny", LAYER, MCP_SPACE_FRAME, "combined", ITS_OWN, 64, "of 'combined', where"},
    };
    return cr_make_param_array(struct case_buffer, cases, MCP_COUNT_OF(cases));
}

ParameterizedTest(struct case_buffer *c, extents, buffers)
{
    struct setup s;
    struct mcp_program program;
    bool found = false;
    build(c->model, &s, &program);
    struct mcp_layer_type *type = type_of(&program, c->layer);
    for (int i = 0; i < type->num_buffers[c->space]; i++) {
        struct mcp_buffer *buffer = &type->buffers[c->space][i];
        if (!mcp_same(buffer->name, c->buffer))
            continue;
        found = true;
        buffer->bytes = buffer->capacity_bytes = c->bytes;
        if (c->dtype != ITS_OWN)
            buffer->dtype = (unsigned char)c->dtype;
    }
    cr_assert(found, "%s", c->says);
    expect_refused(&program, c->says, c->says);
    mcp_arena_free(s.arena);
}

/* --- operands --- */

/* Chances that no router wrote could choose more rows than there is room for. */
Test(extents, routing_is_what_the_router_wrote)
{
    struct setup s;
    struct mcp_program program;
    build("moe-tiny", &s, &program);
    struct mcp_layer_type *type = type_of(&program, LAYER);
    const struct mcp_op *attention = find_op(type, MCP_FN_ATTENTION_FORWARD);
    struct mcp_op *permute = find_op(type, MCP_FN_PERMUTE);
    permute->reads[1] = attention->writes[1];
    expect_refused(&program,
                   "permute: reads 'statistics', which no router_top_k of the layer writes",
                   "routing");
    mcp_arena_free(s.arena);
}

Test(extents, operands_are_all_there)
{
    struct setup s;
    struct mcp_program program;
    build("llama-tiny", &s, &program);
    find_op(type_of(&program, LAYER), MCP_FN_ATTENTION_FORWARD)->num_writes = 1;
    expect_refused(&program,
                   "attention_forward: 2 operands read and 1 written, where it has 0 and 2",
                   "operands");
    mcp_arena_free(s.arena);
}

/* --- transfers --- */

struct case_sum {
    double held, sent; /* bytes of a gradient */
    int zero_stage;
    char says[80]; /* "": nothing */
};

ParameterizedTestParameters(extents, sums)
{
    static struct case_sum cases[] = {
        {4, 4, 0, ""},
        {2, 2, 2, ""},
        {6, 4, 1, ""},
        {4, 2, 0, "all_reduce: adds up numbers of bf16 in 'gradients', which holds f32"},
        {6, 2, 2, "reduce_scatter: adds up numbers of bf16 in 'gradients', which holds f32"},
        {2, 4, 0, "all_reduce: adds up numbers of f32 in 'gradients', which holds bf16"},
    };
    return cr_make_param_array(struct case_sum, cases, MCP_COUNT_OF(cases));
}

/* Bits of other numbers would be added up where a stack sends gradients otherwise than it holds
 * them: it is priced, and not trained. */
ParameterizedTest(struct case_sum *c, extents, sums)
{
    struct setup s;
    struct mcp_program program;
    setup_load(&s, "tests/exec/models/llama-tiny.json", "dgx-h100", "megatron-core");
    s.stack.gradient_bytes = c->held;
    s.stack.gradient_reduce_bytes = c->sent;
    s.job.sequence_length = 16;
    s.job.attention = "flash2";
    s.plan.data_parallel = 2;
    s.plan.zero_stage = c->zero_stage;
    setup_finish(&s, 1, MCP_RECOMPUTE_NONE);
    setup_program(&s, &program);
    if (*c->says == '\0')
        expect_taken(&program);
    else
        expect_refused(&program, c->says, c->says);
    mcp_arena_free(s.arena);
}
