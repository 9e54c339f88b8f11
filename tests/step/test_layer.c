/* tests/step/test_layer.c: what layers send and keep, against worked numbers and formulas. */
#include "step/layer.h"

#include "core/mesh.h"
#include "step/build.h"
#include "step/price.h"
#include "tests/step/setup.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdbool.h>

/* Bytes a rank sends over the groups of `axes` in one run of a block. */
static double sent_bytes(const struct setup *s, const struct mcp_block *block, unsigned axes)
{
    double bytes = 0;
    for (int i = 0; i < block->num_ops; i++)
        if (block->ops[i].group == axes)
            bytes += mcp_op_sent_bytes(&block->ops[i], mcp_group_size(&s->plan, axes));
    return bytes;
}

/* GPT-2 with four sequences of 64 tokens in fp32: A = 4 x 4 x 64 x 768 = 786,432 bytes. */
static void small_gpt(struct setup *s)
{
    setup_load(s, "gpt2", "dgx-a100", "megatron-core");
    s->job.precision = MCP_PRECISION_FP32;
    s->stack.gradient_reduce_bytes = 4;
    s->job.sequence_length = 64;
    s->plan.microbatch_size = 4;
}

struct case_sent {
    char name[56];
    int kind; /* layer kind, or one of the ends */
    int tensor;
    bool sequence_parallel;
    int context;
    enum mcp_context_kind ring;
    enum mcp_block_role role;
    unsigned axes;
    double bytes;
};

ParameterizedTestParameters(layer, sent)
{
    static const double A = 786432; /* also KV of two context ranks: 2 x 4 x 4 x 32 x 768 */
    static const struct case_sent cases[] = {
        {"TP forward", 0, 2, false, 1, 0, MCP_FORWARD, MCP_TENSOR, 1572864},
        {"TP backward", 0, 2, false, 1, 0, MCP_BACKWARD, MCP_TENSOR, 1572864},
        {"SP forward", 0, 2, true, 1, 0, MCP_FORWARD, MCP_TENSOR, 1572864},
        {"SP backward", 0, 2, true, 1, 0, MCP_BACKWARD, MCP_TENSOR, 2359296},
        {"TP 4 forward: 4 x 3/4 A", 0, 4, false, 1, 0, MCP_FORWARD, MCP_TENSOR, 3 * A},
        {"SP 4 backward: 6 x 3/4 A", 0, 4, true, 1, 0, MCP_BACKWARD, MCP_TENSOR, 4.5 * A},
        {"TP 1 is silent", 0, 1, false, 1, 0, MCP_BACKWARD, MCP_TENSOR, 0},
        {"ring forward", 0, 1, false, 2, MCP_CONTEXT_RING, MCP_FORWARD, MCP_CONTEXT, 786432},
        {"ring backward", 0, 1, false, 2, MCP_CONTEXT_RING, MCP_BACKWARD, MCP_CONTEXT, 1572864},
        {"ring 4 forward: 3 KV", 0, 1, false, 4, MCP_CONTEXT_RING, MCP_FORWARD, MCP_CONTEXT,
         1.5 * A},
        {"ring 4 backward: 6 KV", 0, 1, false, 4, MCP_CONTEXT_RING, MCP_BACKWARD, MCP_CONTEXT,
         3 * A},
        {"ring 4, TP 2: half the heads", 0, 2, true, 4, MCP_CONTEXT_RING, MCP_BACKWARD, MCP_CONTEXT,
         1.5 * A},
        {"all-gather 2 forward: KV", 0, 1, false, 2, MCP_CONTEXT_ALL_GATHER, MCP_FORWARD,
         MCP_CONTEXT, A},
        {"all-gather 2 backward: gather and scatter", 0, 1, false, 2, MCP_CONTEXT_ALL_GATHER,
         MCP_BACKWARD, MCP_CONTEXT, 2 * A},
        {"all-gather 4 backward: 6 KV", 0, 1, false, 4, MCP_CONTEXT_ALL_GATHER, MCP_BACKWARD,
         MCP_CONTEXT, 3 * A},
        /* (c - 1) / c of Q, K, V and the output: 4 x A / c */
        {"all-to-all 2 forward", 0, 1, false, 2, MCP_CONTEXT_ALL_TO_ALL, MCP_FORWARD, MCP_CONTEXT,
         A},
        {"all-to-all 2 backward", 0, 1, false, 2, MCP_CONTEXT_ALL_TO_ALL, MCP_BACKWARD, MCP_CONTEXT,
         A},
        {"all-to-all 4, TP 3", 0, 3, false, 4, MCP_CONTEXT_ALL_TO_ALL, MCP_FORWARD, MCP_CONTEXT,
         0.25 * A},
        {"embedding forward reduces A", MCP_KIND_EMBEDDING, 2, false, 1, 0, MCP_FORWARD, MCP_TENSOR,
         A},
        {"embedding backward is silent", MCP_KIND_EMBEDDING, 2, false, 1, 0, MCP_BACKWARD,
         MCP_TENSOR, 0},
        {"SP: embedding forward scatters A", MCP_KIND_EMBEDDING, 2, true, 1, 0, MCP_FORWARD,
         MCP_TENSOR, A / 2},
        {"SP: embedding backward gathers A", MCP_KIND_EMBEDDING, 2, true, 1, 0, MCP_BACKWARD,
         MCP_TENSOR, A / 2},
        /* three fp32 numbers of 256 tokens; never the logits */
        {"head forward: loss alone", MCP_KIND_HEAD, 2, false, 1, 0, MCP_FORWARD, MCP_TENSOR, 3072},
        {"head backward reduces A", MCP_KIND_HEAD, 2, false, 1, 0, MCP_BACKWARD, MCP_TENSOR, A},
        {"SP: head forward gathers A", MCP_KIND_HEAD, 2, true, 1, 0, MCP_FORWARD, MCP_TENSOR,
         A / 2 + 3072},
        {"SP: head backward gathers and scatters A", MCP_KIND_HEAD, 2, true, 1, 0, MCP_BACKWARD,
         MCP_TENSOR, A},
        {"loss of 128 tokens on a context rank", MCP_KIND_HEAD, 2, false, 2, 0, MCP_FORWARD,
         MCP_TENSOR, 1536},
    };
    return cr_make_param_array(struct case_sent, (struct case_sent *)cases,
                               sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_sent *c, layer, sent)
{
    struct setup s;
    small_gpt(&s);
    s.plan.tensor_parallel = c->tensor;
    s.plan.sequence_parallel = c->sequence_parallel;
    s.plan.context_parallel = c->context;
    s.plan.context_parallel_kind = c->ring;
    struct mcp_layer_type type = setup_layer(&s, c->kind, MCP_RECOMPUTE_NONE);
    cr_expect(eq(dbl, sent_bytes(&s, &type.blocks[c->role], c->axes), c->bytes), "%s", c->name);
    mcp_arena_free(s.arena);
}

/* Two of each direction and pass, a token's k copies of h elements each. */
Test(layer, experts_exchange_every_copy)
{
    struct setup s;
    setup_load(&s, "mixtral-8x7b", "dgx-h100", "megatron-core");
    s.job.sequence_length = 4096;
    s.plan.data_parallel = s.plan.expert_parallel = 4;
    struct mcp_layer_type type = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    double once = 3.0 / 4 * 4096 * 2 * 4096 * 2;
    cr_expect(eq(dbl, sent_bytes(&s, &type.blocks[MCP_FORWARD], MCP_EXPERT), 2 * once));
    cr_expect(eq(dbl, sent_bytes(&s, &type.blocks[MCP_BACKWARD], MCP_EXPERT), 2 * once));
    double sorted = 0; /* and sorts them: 8 (1 + k) T h bytes */
    for (int i = 0; i < type.blocks[MCP_FORWARD].num_ops; i++) {
        const struct mcp_op *op = &type.blocks[MCP_FORWARD].ops[i];
        bool sorts = op->function == MCP_FN_PERMUTE || op->function == MCP_FN_UNPERMUTE;
        sorted += sorts ? mcp_op_moved_bytes(op) : 0;
    }
    cr_expect(eq(dbl, sorted, 8.0 * (1 + 2) * 4096 * 4096));
    mcp_arena_free(s.arena);
}

/* --- a whole step --- */

/* Bytes that all ranks of one replica send in entries of `role` over `axes`. */
static double step_bytes(const struct setup *s, const struct mcp_program *program,
                         enum mcp_block_role role, unsigned axes)
{
    double bytes = 0;
    for (int r = 0; r < program->num_classes; r++)
        for (int i = 0; i < program->classes[r].num_slots; i++) {
            const struct mcp_entry_list *list = &program->lists[program->classes[r].slots[i].list];
            for (int e = 0; e < list->num_entries; e++)
                if (list->entries[e].role == role)
                    bytes +=
                        sent_bytes(s, &program->types[list->entries[e].type].blocks[role], axes);
        }
    return bytes;
}

Test(layer, messages_of_two_stages_and_four_microbatches)
{
    struct setup s;
    struct mcp_program program;
    small_gpt(&s);
    s.plan.pipeline_parallel = 2;
    setup_finish(&s, 4, MCP_RECOMPUTE_NONE);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    cr_expect(eq(dbl, step_bytes(&s, &program, MCP_SEND_FORWARD, MCP_PIPELINE), 3145728));
    cr_expect(eq(dbl, step_bytes(&s, &program, MCP_SEND_BACKWARD, MCP_PIPELINE), 3145728));
    mcp_arena_free(s.arena);
}

Test(layer, interleaving_multiplies_messages)
{
    struct setup s;
    struct mcp_program program;
    small_gpt(&s);
    s.plan.pipeline_parallel = 2;
    s.plan.virtual_stages = 3;
    s.plan.schedule = MCP_INTERLEAVED;
    setup_finish(&s, 4, MCP_RECOMPUTE_NONE);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    double want = 4 * (2 * 3 - 1) * 786432.0; /* m (p v - 1) A */
    cr_expect(eq(dbl, step_bytes(&s, &program, MCP_SEND_FORWARD, MCP_PIPELINE), want));
    cr_expect(eq(dbl, step_bytes(&s, &program, MCP_SEND_BACKWARD, MCP_PIPELINE), want));
    mcp_arena_free(s.arena);
}

/* A stack that scatters sends 1/t and gathers; sequence parallelism sends shards. */
struct case_message {
    char name[32];
    char stack[24];
    int tensor;
    bool sequence_parallel;
    double sent, gathered;
};

ParameterizedTestParameters(layer, message)
{
    static const struct case_message cases[] = {
        {"whole on every tensor rank", "megatron-core", 4, false, 786432, 0},
        {"shards under SP", "megatron-core", 4, true, 196608, 0},
        {"scatter and gather", "megatron-2021", 4, false, 196608, 589824},
        {"nothing to gather under SP", "megatron-2021", 4, true, 196608, 0},
        {"nothing to scatter alone", "megatron-2021", 1, false, 786432, 0},
    };
    return cr_make_param_array(struct case_message, (struct case_message *)cases,
                               sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_message *c, layer, message)
{
    struct setup s;
    small_gpt(&s);
    struct mcp_error err = {""};
    cr_assert(mcp_stack_load(s.arena, c->stack, &s.stack, &err) == MCP_OK, "%s", err.text);
    s.plan.tensor_parallel = c->tensor;
    s.plan.sequence_parallel = c->sequence_parallel;
    struct mcp_layer_type type = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    for (int backward = 0; backward < 2; backward++) {
        const struct mcp_block *send =
            &type.blocks[backward ? MCP_SEND_BACKWARD : MCP_SEND_FORWARD];
        const struct mcp_block *receive =
            &type.blocks[backward ? MCP_RECEIVE_BACKWARD : MCP_RECEIVE_FORWARD];
        cr_expect(eq(dbl, sent_bytes(&s, send, MCP_PIPELINE), c->sent), "%s", c->name);
        cr_expect(eq(dbl, sent_bytes(&s, receive, MCP_TENSOR), c->gathered), "%s", c->name);
    }
    mcp_arena_free(s.arena);
}

/* P = 124,475,904 tied; 163,109,376 with a head of its own. */
struct case_data {
    char name[40];
    enum mcp_precision precision;
    int data, zero_stage, num_microbatches;
    bool tied, reshard;
    double bytes;
};

ParameterizedTestParameters(layer, data)
{
    static const double P = 163109376;
    static const struct case_data cases[] = {
        {"ZeRO-0", MCP_PRECISION_FP32, 2, 0, 1, true, true, 497903616},
        {"ZeRO-0, four microbatches: once", MCP_PRECISION_FP32, 2, 0, 4, true, true, 497903616},
        {"ZeRO-1, fp32 weights, tied", MCP_PRECISION_FP32, 2, 1, 1, true, true, 497903616},
        {"ZeRO-1, bf16 weights, tied", MCP_PRECISION_BF16, 2, 1, 4, true, true, 373427712},
        {"ZeRO-1, fp32 weights", MCP_PRECISION_FP32, 2, 1, 1, false, true, 4 * P},
        {"ZeRO-1, bf16 weights", MCP_PRECISION_BF16, 2, 1, 4, false, true, 3 * P},
        {"ZeRO-1 on four", MCP_PRECISION_BF16, 4, 1, 4, false, true, 0.75 * (4 + 2) * P},
        {"ZeRO-2 reduces each microbatch", MCP_PRECISION_BF16, 2, 2, 4, false, true,
         0.5 * (4 * 4 + 2) * P},
        {"ZeRO-3 gathers twice each", MCP_PRECISION_BF16, 2, 3, 4, false, true,
         0.5 * (4 * 4 + 2 * 4 * 2) * P},
        {"ZeRO-3 that keeps weights: once", MCP_PRECISION_BF16, 2, 3, 4, false, false,
         0.5 * (4 * 4 + 2) * P},
        {"alone", MCP_PRECISION_BF16, 1, 1, 4, true, true, 0},
    };
    return cr_make_param_array(struct case_data, (struct case_data *)cases,
                               sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_data *c, layer, data)
{
    struct setup s;
    struct mcp_program program;
    small_gpt(&s);
    s.job.precision = c->precision;
    s.model.tied_embeddings = c->tied;
    s.plan.data_parallel = c->data;
    s.plan.zero_stage = c->zero_stage;
    s.plan.reshard_after_forward = c->reshard;
    setup_finish(&s, c->num_microbatches, MCP_RECOMPUTE_NONE);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    unsigned axes = (unsigned)MCP_DATA | MCP_CONTEXT;
    double bytes = 0;
    for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++)
        bytes += step_bytes(&s, &program, (enum mcp_block_role)role, axes);
    cr_expect(eq(dbl, bytes, c->bytes), "%s", c->name);
    mcp_arena_free(s.arena);
}

/* Once a step under SP: gradients of norms, 4 (2 h L + h) bytes for RMSNorm. */
Test(layer, norm_gradients_meet_once_a_step)
{
    struct setup s;
    struct mcp_program program;
    setup_load(&s, "llama-3.1-8b", "dgx-h100", "megatron-core");
    s.job.sequence_length = 4096;
    s.plan.tensor_parallel = 2;
    s.plan.sequence_parallel = true;
    s.plan.data_parallel = 4;
    setup_finish(&s, 2, MCP_RECOMPUTE_NONE);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    double bytes = 4.0 * (2 * 4096 * 32 + 4096);
    cr_expect(eq(dbl, step_bytes(&s, &program, MCP_REDUCE, MCP_TENSOR), bytes));
    s.plan.sequence_parallel = false;
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    cr_expect(eq(dbl, step_bytes(&s, &program, MCP_REDUCE, MCP_TENSOR), 0));
    mcp_arena_free(s.arena);
}

/* LayerNorms have biases too, and biases after row-parallel products are replicas. */
Test(layer, replicated_biases_meet_too)
{
    struct setup s;
    small_gpt(&s);
    s.plan.tensor_parallel = 2;
    s.plan.sequence_parallel = true;
    struct mcp_layer_type type = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    cr_expect(eq(dbl, sent_bytes(&s, &type.blocks[MCP_REDUCE], MCP_TENSOR), 4.0 * (4 + 2) * 768));
    mcp_arena_free(s.arena);
}

/* Not positions: the embedding's backward has gathered their whole gradient. */
Test(layer, learned_positions_are_whole_everywhere)
{
    struct setup s;
    small_gpt(&s);
    s.plan.tensor_parallel = 2;
    s.plan.sequence_parallel = true;
    struct mcp_layer_type type = setup_layer(&s, MCP_KIND_EMBEDDING, MCP_RECOMPUTE_NONE);
    cr_expect(eq(dbl, sent_bytes(&s, &type.blocks[MCP_REDUCE], MCP_TENSOR), 0));
    mcp_arena_free(s.arena);
}

/* Tied weights on two stages: their gradients meet once, e_g V h / t. */
Test(layer, tied_gradients_meet_at_the_ends)
{
    struct setup s;
    struct mcp_program program;
    small_gpt(&s);
    s.plan.pipeline_parallel = 2;
    s.plan.tensor_parallel = 3;
    setup_finish(&s, 4, MCP_RECOMPUTE_NONE);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    double each = 4.0 * 131 * 128 * 768; /* 50,257 rows padded to 3 x 131 x 128 */
    cr_expect(eq(dbl, step_bytes(&s, &program, MCP_EPILOGUE, MCP_ENDS), 2 * each));
    mcp_arena_free(s.arena);
}

/* --- saved for backward --- */

/* Frames that forward leaves behind: X and what it writes of its own. */
static int64_t kept_bytes(const struct mcp_layer_type *type)
{
    const struct mcp_block *forward = &type->blocks[MCP_FORWARD];
    bool kept[256] = {false};
    kept[MCP_FRAME_X] = true;
    for (int i = 0; i < forward->num_ops; i++)
        for (int w = 0; w < forward->ops[i].num_writes; w++) {
            const struct mcp_operand at = forward->ops[i].writes[w];
            if (at.space == MCP_SPACE_FRAME && at.layer_offset == 0)
                kept[at.index] = true;
        }
    int64_t bytes = 0;
    for (int f = 0; f < type->num_buffers[MCP_SPACE_FRAME]; f++)
        bytes += kept[f] ? type->buffers[MCP_SPACE_FRAME][f].bytes : 0;
    return bytes;
}

struct case_saved {
    char name[48];
    char model[24], stack[24];
    int b, s, tensor;
    bool sequence_parallel;
    int context;
    bool dropout;
    unsigned selective;
    enum mcp_recompute recompute;
    double bytes;
};

/* h 8192, f 28672, 64 and 8 heads */
#define LLAMA(s, t, x, f)                                                                          \
    ((s) / (t) * (8192.0 * ((x) + 4.0 * 8 / 64) + (f)*28672.0) + 4.0 * 64 * (s) / (t))
#define GPT(s, t, x) ((x) * (s) / (t)*12288.0)

ParameterizedTestParameters(layer, saved)
{
    enum { NORM_ACT = MCP_RECOMPUTE_NORM | MCP_RECOMPUTE_ACTIVATION };
    static const struct case_saved cases[] = {
        {"Llama 70B, s 8192, TP 8 + SP", "llama-3.1-70b", "megatron-core", 1, 8192, 8, true, 1,
         false, 0, MCP_RECOMPUTE_NONE, 281280512},
        {"... on a ring of four", "llama-3.1-70b", "megatron-core", 1, 8192, 8, true, 4, false, 0,
         MCP_RECOMPUTE_NONE, 70320128},
        {"Llama by formula", "llama-3.1-70b", "megatron-core", 1, 4096, 1, false, 1, false, 0,
         MCP_RECOMPUTE_NONE, LLAMA(4096.0, 1, 12, 6)},
        {"two sequences", "llama-3.1-70b", "megatron-core", 2, 4096, 4, true, 1, false, 0,
         MCP_RECOMPUTE_NONE, LLAMA(8192.0, 4, 12, 6)},
        {"TP without SP keeps X, norms and middle whole", "llama-3.1-70b", "megatron-core", 1, 4096,
         8, false, 1, false, 0, MCP_RECOMPUTE_NONE, LLAMA(4096.0, 8, 4, 6) + 8 * 4096.0 * 8192},
        {"norms and product dropped", "llama-3.1-70b", "megatron-core", 1, 4096, 8, true, 1, false,
         NORM_ACT, MCP_RECOMPUTE_SELECTIVE, LLAMA(4096.0, 8, 8, 4)},
        {"full keeps X alone", "llama-3.1-70b", "megatron-core", 1, 4096, 8, true, 1, false, 0,
         MCP_RECOMPUTE_FULL, 2 * 4096.0 / 8 * 8192},
        {"GPT: 32 b s h and statistics", "gpt3-175b", "megatron-core", 1, 2048, 1, false, 1, false,
         0, MCP_RECOMPUTE_NONE, GPT(2048.0, 1, 32) + 4.0 * 96 * 2048},
        {"GPT, TP 8 + SP", "gpt3-175b", "megatron-core", 1, 2048, 8, true, 1, false, 0,
         MCP_RECOMPUTE_NONE, GPT(2048.0, 8, 32) + 4.0 * 96 * 2048 / 8},
        /* Korthikanti et al. 2022, eq. 4: s b h (34 + 5 a s / h) / t; statistics besides */
        {"GPT with dropout, unfused", "gpt3-175b", "megatron-2021", 1, 2048, 8, true, 1, true, 0,
         MCP_RECOMPUTE_NONE, GPT(2048.0, 8, 34) + 5.0 * 96 * 2048 * 2048 / 8 + 4.0 * 96 * 2048 / 8},
        {"... without dropout: probabilities", "gpt3-175b", "megatron-2021", 1, 2048, 8, true, 1,
         false, 0, MCP_RECOMPUTE_NONE,
         GPT(2048.0, 8, 32) + 2.0 * 96 * 2048 * 2048 / 8 + 4.0 * 96 * 2048 / 8},
        {"attention core dropped: 34 s b h / t", "gpt3-175b", "megatron-2021", 1, 2048, 8, true, 1,
         true, MCP_RECOMPUTE_ATTENTION_CORE, MCP_RECOMPUTE_SELECTIVE, GPT(2048.0, 8, 34)},
    };
    return cr_make_param_array(struct case_saved, (struct case_saved *)cases,
                               sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_saved *c, layer, saved)
{
    struct setup s;
    setup_load(&s, c->model, "dgx-h100:16", c->stack);
    s.job.sequence_length = c->s;
    s.job.dropout = c->dropout;
    s.stack.selective_modules = c->selective;
    s.plan.microbatch_size = c->b;
    s.plan.tensor_parallel = c->tensor;
    s.plan.sequence_parallel = c->sequence_parallel;
    s.plan.context_parallel = c->context;
    struct mcp_layer_type type = setup_layer(&s, 0, c->recompute);
    cr_expect(eq(i64, kept_bytes(&type), (int64_t)c->bytes), "%s", c->name);
    mcp_arena_free(s.arena);
}

/* Mixture of experts: k copies of a token with input, up, gate, product and output,
 * two numbers a token and expert for the router, two counts an expert. */
struct case_moe {
    char name[24];
    int tensor, data, expert;
    double bytes;
};

ParameterizedTestParameters(layer, saved_experts)
{
    enum { T = 4096, H = 4096, E = 8, F = 14336 }; /* Mixtral 8x7B, top 2, 32 and 8 heads */
    static const double attention = 2.0 * T * H * (2 + 2 + 2 + 2 * 8.0 / 32) + 4.0 * 32 * T;
    static const double experts = T * 2.0 * (2.0 * H + F * 6.0 + 2.0 * H) + 8.0 * T * E;
    static const struct case_moe cases[] = {
        {"alone", 1, 1, 1, attention + experts + 8 * E},
        {"experts apart", 1, 8, 8, attention + experts + 8 * E},
        {"TP 4 + SP", 4, 2, 8, (attention + experts) / 4 + 8 * E},
    };
    return cr_make_param_array(struct case_moe, (struct case_moe *)cases,
                               sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_moe *c, layer, saved_experts)
{
    struct setup s;
    setup_load(&s, "mixtral-8x7b", "dgx-h100", "megatron-core");
    s.job.sequence_length = 4096;
    s.plan.tensor_parallel = c->tensor;
    s.plan.sequence_parallel = c->tensor > 1;
    s.plan.data_parallel = c->data;
    s.plan.expert_parallel = c->expert;
    struct mcp_layer_type type = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    cr_expect(eq(i64, kept_bytes(&type), (int64_t)c->bytes), "%s", c->name);
    mcp_arena_free(s.arena);
}

/* 8 bit inputs weigh 1.15 bytes an element: two norms and the product. */
Test(layer, eight_bit_keeps_quantised_inputs)
{
    struct setup s;
    setup_load(&s, "llama-3.1-70b", "dgx-h100", "megatron-core");
    s.job.sequence_length = 4096;
    s.job.precision = MCP_PRECISION_FP8;
    struct mcp_layer_type type = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    double want = 4096.0 * (8192 * (8 + 2 * 1.15 + 0.5) + 28672 * (4 + 1.15)) + 4.0 * 64 * 4096;
    cr_expect(epsilon_eq(dbl, (double)kept_bytes(&type), want, 3));
    mcp_arena_free(s.arena);
}

/* --- recompute --- */

struct case_again {
    char name[48];
    bool sequence_parallel, whole;
    int context;
    double tensor_share; /* of forward's bytes */
};

ParameterizedTestParameters(layer, recompute)
{
    static const struct case_again cases[] = {
        {"stops before the last reduce-scatter", true, false, 1, 0.75},
        {"stops before the last all-reduce", false, false, 1, 0.5},
        {"a stack that runs all of it", true, true, 1, 1},
        {"... on a ring: the ring again", true, true, 4, 1},
        {"on a ring, not all of it: every part again", true, false, 4, 0.75},
    };
    return cr_make_param_array(struct case_again, (struct case_again *)cases,
                               sizeof cases / sizeof *cases);
}

static int count_of(const struct mcp_block *block, enum mcp_function function)
{
    int count = 0;
    for (int i = 0; i < block->num_ops; i++)
        count += block->ops[i].function == function;
    return count;
}

ParameterizedTest(struct case_again *c, layer, recompute)
{
    struct setup s;
    setup_load(&s, "llama-3.1-70b", "dgx-h100:4", "megatron-core");
    s.job.sequence_length = 4096;
    s.stack.recompute_whole_layer = c->whole;
    s.plan.tensor_parallel = 8;
    s.plan.sequence_parallel = c->sequence_parallel;
    s.plan.context_parallel = c->context;
    struct mcp_layer_type full = setup_layer(&s, 0, MCP_RECOMPUTE_FULL);
    const struct mcp_block *again = &full.blocks[MCP_RECOMPUTE];
    const struct mcp_block *forward = &full.blocks[MCP_FORWARD];
    cr_expect(eq(dbl, sent_bytes(&s, again, MCP_TENSOR),
                 c->tensor_share * sent_bytes(&s, forward, MCP_TENSOR)),
              "%s", c->name);
    cr_expect(eq(dbl, sent_bytes(&s, again, MCP_CONTEXT), sent_bytes(&s, forward, MCP_CONTEXT)),
              "%s", c->name);
    cr_expect(eq(int, count_of(again, MCP_FN_MERGE), c->context - 1), "%s", c->name);
    struct mcp_layer_type none = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    cr_expect(eq(int, none.blocks[MCP_RECOMPUTE].num_ops, 0));
    cr_expect(eq(int, none.blocks[MCP_BACKWARD].num_ops, full.blocks[MCP_BACKWARD].num_ops),
              "backward is the same block either way");
    mcp_arena_free(s.arena);
}

/* Parts of the ring that are merged have statistics of every head. */
Test(layer, ring_parts_have_whole_statistics)
{
    struct setup s;
    small_gpt(&s);
    s.plan.context_parallel = 2;
    struct mcp_layer_type type = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    const struct mcp_block *forward = &type.blocks[MCP_FORWARD];
    int merges = 0;
    for (int i = 0; i < forward->num_ops; i++) {
        const struct mcp_op *op = &forward->ops[i];
        if (op->function != MCP_FN_MERGE)
            continue;
        merges++;
        cr_expect(
            eq(i64, type.buffers[op->reads[1].space][op->reads[1].index].bytes, 4 * 12 * 128));
        cr_expect(
            eq(i64, type.buffers[op->reads[3].space][op->reads[3].index].bytes, 4 * 12 * 128));
    }
    cr_expect(eq(int, merges, 1));
    mcp_arena_free(s.arena);
}

/* --- parameters and FLOPs, counted twice --- */

struct case_model {
    char model[24];
};

ParameterizedTestParameters(layer, sizes)
{
    static const struct case_model cases[] = {
        {"gpt2"},      {"gpt3-175b"},   {"llama-3.1-8b"},      {"llama-3.1-70b"}, {"mixtral-8x7b"},
        {"qwen3-32b"}, {"deepseek-v2"}, {"moonlight-16b-a3b"}, {"qwen3-30b-a3b"}, {"gpt-oss-120b"},
    };
    return cr_make_param_array(struct case_model, (struct case_model *)cases,
                               sizeof cases / sizeof *cases);
}

static double block_flops(const struct mcp_block *block)
{
    double flops = 0;
    for (int i = 0; i < block->num_ops; i++)
        flops += mcp_op_flops(&block->ops[i]);
    return flops;
}

/* A layer's weights and FLOPs are those that core/model.h counts by formula. */
ParameterizedTest(struct case_model *c, layer, sizes)
{
    struct setup s;
    setup_load(&s, c->model, "dgx-h100", "megatron-core");
    s.job.sequence_length = 2560; /* whole tokens for every expert */
    for (int k = 0; k < s.model.num_kinds; k++) {
        const struct mcp_layer_kind *kind = &s.model.kinds[k];
        struct mcp_layer_type type = setup_layer(&s, k, MCP_RECOMPUTE_NONE);
        struct mcp_parameters parameters = mcp_layer_parameters(&s.model, kind);
        cr_expect(
            eq(i64,
               mcp_layer_type_parameters(&type, false) + mcp_layer_type_parameters(&type, true),
               mcp_parameters_total(&parameters)),
            "%s kind %d", c->model, k);
        cr_expect(eq(i64, mcp_layer_type_parameters(&type, true), parameters.experts), "%s",
                  c->model);
        double flops = 2560 * mcp_layer_flops_per_token_forward(&s.model, kind, 2560);
        cr_expect(epsilon_eq(dbl, block_flops(&type.blocks[MCP_FORWARD]) / flops, 1, 1e-9), "%s",
                  c->model);
        cr_expect(epsilon_eq(dbl, block_flops(&type.blocks[MCP_BACKWARD]) / flops, 2, 1e-9), "%s",
                  c->model);
    }
    mcp_arena_free(s.arena);
}
