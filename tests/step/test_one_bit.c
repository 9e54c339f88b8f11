/* tests/step/test_one_bit.c: 1-bit Adam: bytes to the number, both phases sound, one memory. */
#include "tests/step/setup.h"
#include "tests/step/sound.h"

#include "core/mesh.h"
#include "step/build.h"
#include "step/estimate.h"
#include "step/verify.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

static void one_bit(struct mcp_job *job, enum mcp_phase phase)
{
    job->optimizer = MCP_OPTIMIZER_ONE_BIT_ADAM;
    job->phase = phase;
}

/* 124,475,904 parameters with tied embeddings: whole bytes of signs for two ranks and four. */
static void small_gpt(struct setup *s, int data, enum mcp_phase phase)
{
    setup_load(s, "gpt2", "dgx-h100", "megatron-core");
    s->job.sequence_length = 64;
    s->stack.gradient_reduce_bytes = 4;
    s->plan.data_parallel = data;
    one_bit(&s->job, phase);
}

/* Bytes that a rank sends over its data group, of transfers with more elements than `above`. */
static double sent(const struct setup *s, const struct mcp_program *program, int64_t above)
{
    double bytes = 0;
    for (int i = 0; i < program->classes[0].num_slots; i++) {
        const struct mcp_entry_list *list = &program->lists[program->classes[0].slots[i].list];
        for (int e = 0; e < list->num_entries; e++) {
            const struct mcp_entry *entry = &list->entries[e];
            const struct mcp_block *block = &program->types[entry->type].blocks[entry->role];
            for (int o = 0; entry->layer < program->num_layers && o < block->num_ops; o++) {
                const struct mcp_op *op = &block->ops[o];
                if (op->stream == MCP_STREAM_DATA && op->dims[0] > above)
                    bytes += mcp_op_sent_bytes(op, mcp_group_size(&s->plan, op->group));
            }
        }
    }
    return bytes;
}

static int64_t parameters(const struct mcp_program *program)
{
    int64_t sum = 0;
    for (int layer = 0; layer < program->num_layers; layer++) {
        const struct mcp_program_class *class = &program->classes[0];
        const struct mcp_entry_list *last =
            &program->lists[class->slots[class->num_slots - 1].list];
        for (int e = 0; e < last->num_entries; e++)
            if (last->entries[e].layer == layer && last->entries[e].role == MCP_OPTIMIZER)
                sum += mcp_layer_type_parameters(&program->types[last->entries[e].type], false);
    }
    return sum;
}

struct case_sent {
    char name[32];
    int data;
    double signs; /* bytes of one rank and step */
};

ParameterizedTestParameters(one_bit, sent)
{
    static struct case_sent cases[] = {
        {"two ranks", 2, 15559488},
        {"four ranks", 4, 1.5 * 15559488},
        {"one rank sends nothing", 1, 0},
    };
    return cr_make_param_array(struct case_sent, cases, sizeof cases / sizeof *cases);
}

/* 2 (k - 1) / k n / 8 of signs and 8 (k - 1) of scales for each flat part. */
ParameterizedTest(struct case_sent *c, one_bit, sent)
{
    struct setup s;
    struct mcp_program program;
    small_gpt(&s, c->data, MCP_PHASE_FROZEN);
    setup_finish(&s, 2, MCP_RECOMPUTE_NONE);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    const double parts = s.model.num_layers + 3; /* embedding's positions, table, final norm */
    const double scales = 8.0 * (c->data - 1) * parts;
    cr_expect(eq(i64, parameters(&program), INT64_C(124475904)));
    cr_expect(eq(dbl, sent(&s, &program, 64), c->signs), "%s", c->name);
    cr_expect(eq(dbl, sent(&s, &program, 0), c->signs + scales), "%s", c->name);
    mcp_arena_free(s.arena);
}

Test(one_bit, is_a_32nd_of_an_all_reduce_in_fp32)
{
    struct setup s;
    struct mcp_program warm, frozen;
    small_gpt(&s, 2, MCP_PHASE_WARM);
    setup_finish(&s, 2, MCP_RECOMPUTE_NONE);
    mcp_program_build(s.arena, &s.question, &s.plan, &warm);
    s.job.phase = MCP_PHASE_FROZEN;
    mcp_program_build(s.arena, &s.question, &s.plan, &frozen);
    cr_expect(eq(dbl, sent(&s, &warm, 64), 497903616.0));
    cr_expect(eq(dbl, sent(&s, &frozen, 64) * 32, sent(&s, &warm, 64)));
    mcp_arena_free(s.arena);
}

Test(one_bit, keeps_errors_and_moments_whole)
{
    struct setup s;
    struct mcp_prediction one, adam;
    small_gpt(&s, 4, MCP_PHASE_FROZEN);
    setup_finish(&s, 2, MCP_RECOMPUTE_NONE);
    mcp_estimate(mcp_pricer_new(s.arena, &s.question), &s.plan, &one);
    s.job.optimizer = MCP_OPTIMIZER_ADAM;
    s.job.phase = MCP_PHASE_WARM;
    mcp_estimate(mcp_pricer_new(s.arena, &s.question), &s.plan, &adam);
    const int64_t errors = INT64_C(124475904) * 4 * 5 / 4; /* 4 n + 4 n / k */
    cr_expect(eq(i64, one.memory.optimizer_bytes - adam.memory.optimizer_bytes, errors));
    mcp_arena_free(s.arena);
}

/* Ops of the layer's update, and how many elements they compress of what all ranks have. */
static int compressions(const struct mcp_layer_type *type, int64_t elements[8])
{
    int count = 0;
    for (int o = 0; o < type->blocks[MCP_OPTIMIZER].num_ops; o++) {
        const struct mcp_op *op = &type->blocks[MCP_OPTIMIZER].ops[o];
        if (op->function == MCP_FN_COMPRESS_SIGNS && op->dims[5] == 1)
            elements[count++] = op->dims[4];
    }
    return count;
}

/* What tensor ranks hold alike must get the same scale on each of them. */
Test(one_bit, compresses_replicas_by_themselves)
{
    for (int tensor = 1; tensor <= 2; tensor++) {
        struct setup s;
        int64_t elements[8] = {0};
        small_gpt(&s, 2, MCP_PHASE_FROZEN);
        s.plan.tensor_parallel = tensor;
        struct mcp_layer_type type = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
        int count = compressions(&type, elements);
        cr_expect(eq(int, count, tensor));
        cr_expect(eq(i64, elements[0] + elements[1], mcp_layer_type_parameters(&type, false)));
        if (tensor == 2) /* two norms with biases, biases of two row-parallel products */
            cr_expect(eq(i64, elements[0], INT64_C(6) * 768));
        mcp_arena_free(s.arena);
    }
}

struct case_norm {
    char name[40];
    enum mcp_optimizer optimizer;
    enum mcp_phase phase;
    enum mcp_clip clip;
    bool legal, norm;
    bool fp16;
};

ParameterizedTestParameters(one_bit, norm)
{
    static struct case_norm cases[] = {
        {"Adam", MCP_OPTIMIZER_ADAM, MCP_PHASE_WARM, MCP_CLIP_BY_DEFAULT, true, true, false},
        {"Adam without", MCP_OPTIMIZER_ADAM, MCP_PHASE_WARM, MCP_CLIP_OFF, true, false, false},
        {"warm", MCP_OPTIMIZER_ONE_BIT_ADAM, MCP_PHASE_WARM, MCP_CLIP_ON, true, true, false},
        {"Adam without, in fp16", MCP_OPTIMIZER_ADAM, MCP_PHASE_WARM, MCP_CLIP_OFF, true, true,
         true},
        {"frozen", MCP_OPTIMIZER_ONE_BIT_ADAM, MCP_PHASE_FROZEN, MCP_CLIP_BY_DEFAULT, true, true,
         false},
        {"frozen with", MCP_OPTIMIZER_ONE_BIT_ADAM, MCP_PHASE_FROZEN, MCP_CLIP_ON, false, true,
         false},
    };
    return cr_make_param_array(struct case_norm, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_norm *c, one_bit, norm)
{
    struct setup s;
    struct mcp_refusals refusals = {0};
    small_gpt(&s, 2, MCP_PHASE_WARM);
    setup_finish(&s, 2, MCP_RECOMPUTE_NONE);
    s.job.optimizer = c->optimizer;
    s.job.phase = c->phase;
    s.job.clip_global_norm = c->clip;
    s.job.precision = c->fp16 ? MCP_PRECISION_FP16 : MCP_PRECISION_BF16;
    cr_expect(eq(int, mcp_legal(s.arena, &s.question, &s.plan, &refusals), c->legal), "%s",
              c->name);
    if (!c->legal)
        cr_expect(
            ne(ptr, strstr(refusals.items[0].text, "nearest legal clip_global_norm=false"), NULL));
    struct mcp_layer_type step = setup_layer(&s, MCP_KIND_STEP, MCP_RECOMPUTE_NONE);
    struct mcp_layer_type layer = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
    int collectives = step.blocks[MCP_EPILOGUE].num_ops - 1; /* beside the scalars */
    cr_expect(eq(int, collectives, c->norm), "%s", c->name);
    cr_expect(eq(int, layer.blocks[MCP_EPILOGUE].num_ops, c->norm), "%s", c->name);
    mcp_arena_free(s.arena);
}

/* --- any plan --- */

enum { NUM_PLANS = 160 };

static bool draw(struct mcp_arena *arena, int seed, struct random_plan *drawn)
{
    struct mcp_refusals refusals;
    random_plan_draw(arena, (uint64_t)seed, drawn);
    one_bit(&drawn->job, MCP_PHASE_FROZEN);
    if (drawn->plan.zero_stage > 0) {
        cr_expect(not(mcp_legal(arena, &drawn->question, &drawn->plan, &refusals)));
        cr_expect(ne(ptr, strstr(refusals.items[0].text, "one_bit_adam"), NULL), "%s",
                  refusals.items[0].text);
        drawn->plan.zero_stage = 0;
    }
    return mcp_legal(arena, &drawn->question, &drawn->plan, &refusals);
}

Test(one_bit, both_phases_are_sound_and_play_as_priced)
{
    int legal = 0;
    for (int seed = 0; seed < NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan *drawn = MCP_NEW(arena, struct random_plan);
        int64_t peak_bytes[MCP_NUM_PHASES] = {0};
        bool is_legal = draw(arena, seed, drawn);
        for (int phase = 0; is_legal && phase < MCP_NUM_PHASES; phase++) {
            struct mcp_program program;
            drawn->job.phase = (enum mcp_phase)phase;
            peak_bytes[phase] = sound_program(arena, drawn, &program);
            legal++;
        }
        cr_expect(eq(i64, peak_bytes[0], peak_bytes[1]), "%s", random_plan_describe(arena, drawn));
        mcp_arena_free(arena);
    }
    cr_expect(ge(int, legal, NUM_PLANS));
}
