/* tests/exec/test_save.c: what one layout saves every other loads, bit by bit. */
#include "exec/half.h"
#include "exec/train.h"
#include "tests/exec/layouts.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <unistd.h>

enum { SEED = 11, OTHER_SEED = 12, STEP = 40 };

static char folder[64];

static void set_up(void)
{
    snprintf(folder, sizeof folder, "/tmp/mcp-test-save-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(folder), NULL));
}

static void tear_down(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect(eq(int, system(command), 0));
}

/* Moments that tell elements apart: twice the weight, and its square. */
static void set_moments(const struct still_rank *own)
{
    struct mcp_flat_place places[MCP_NUM_FLATS];
    for (int layer = 0; layer < own->rank.program->num_layers; layer++) {
        const int count = mcp_flat_places(own->saved.interpreter, own->saved.rank, layer, places);
        for (int k = 0; k < count; k++) {
            const struct mcp_flat_place *p = &places[k];
            const float *truth = (const float *)(p->has_master ? p->state : p->weights) +
                                 (p->has_master ? 0 : p->first - p->held_first);
            float *moments = (float *)p->state + (p->has_master ? p->state_stride : 0);
            for (int64_t i = 0; i < p->count; i++) {
                moments[i] = 2 * truth[i];
                moments[p->state_stride + i] = truth[i] * truth[i];
            }
        }
    }
}

static void save_all(const struct layout *l)
{
    struct setup s;
    struct mcp_program program;
    const struct mcp_checkpoint_state state = {STEP, 320, SEED, STEP, STEP, 65536, 7, 0};
    layout_build(&s, l, &program);
    layout_save(&program, folder, &state, set_moments);
    mcp_arena_free(s.arena);
}

static bool is_table(const struct mcp_weight *weight)
{
    return strcmp(weight->name, "embedding") == 0 || strncmp(weight->name, "head", 4) == 0;
}

static float value_at(const struct mcp_flat_place *p, int64_t x)
{
    if (p->dtype == MCP_F32)
        return ((const float *)p->weights)[x - p->held_first];
    return mcp_from_bf16(((const uint16_t *)p->weights)[x - p->held_first]);
}

/* Element x of a place is what new weights of the seed have there. */
static bool is_loaded(const struct mcp_flat_place *p, int64_t x, float want)
{
    const float rounded = p->dtype == MCP_F32 ? want : mcp_from_bf16(mcp_to_bf16(want));
    const float *state = (const float *)p->state;
    if (x >= p->held_first && x < p->held_first + p->held_count && value_at(p, x) != rounded)
        return false;
    if (x < p->first || x >= p->first + p->count)
        return true;
    const int64_t i = x - p->first;
    if (p->has_master && state[i] != want)
        return false;
    state += p->has_master ? p->state_stride : 0;
    return state[i] == 2 * want && state[p->state_stride + i] == want * want;
}

static int64_t check_part(const struct mcp_rank *rank, const struct mcp_layer_type *type, int part,
                          int copy, const struct mcp_flat_place *p, const float *want)
{
    const struct mcp_weight *w = &type->weights[part];
    const int t = rank->program->plan.tensor_parallel;
    const int64_t start = mcp_weight_offset(type, part, copy) - mcp_flat_first(type, p->flat);
    int64_t bad = 0;
    for (int64_t row = 0; row < w->rows; row++) {
        const int64_t at = mcp_weight_global_index(w, rank->at.tensor, t, row, 0);
        const bool padding =
            is_table(w) && at / mcp_weight_global_columns(w, t) >= type->facts.vocab_size;
        for (int64_t column = 0; !padding && column < w->columns; column++) {
            const int64_t x = start + row * w->columns + column;
            bad += !is_loaded(p, x, want[x]);
        }
    }
    return bad;
}

static int64_t check_layer(const struct mcp_interpreter *interpreter, const struct mcp_rank *rank,
                           int layer)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_flat_place places[MCP_NUM_FLATS];
    const int count = mcp_flat_places(interpreter, rank, layer, places);
    int64_t bad = 0;
    for (int k = 0; k < count; k++) {
        const struct mcp_layer_type *type =
            &rank->program->types[mcp_pool_type(mcp_interpreter_pool(interpreter), layer)];
        float *want = MCP_ARRAY(arena, places[k].elements, float);
        mcp_init_flat(rank, layer, type, places[k].flat, SEED, want);
        for (int part = 0; part < type->num_weights; part++)
            for (int copy = 0; mcp_weight_flat(&type->weights[part]) == places[k].flat &&
                               copy < type->weights[part].copies;
                 copy++)
                bad += check_part(rank, type, part, copy, &places[k], want);
    }
    mcp_arena_free(arena);
    return bad;
}

static void load_all(const struct layout *l)
{
    struct setup s;
    struct mcp_program program;
    struct mcp_error err = {0};
    layout_build(&s, l, &program);
    struct mcp_text passed_over = mcp_text_new(s.arena);
    for (int r = 0; r < mcp_plan_world(&program.plan); r++) {
        struct mcp_arena *arena = mcp_arena_new();
        const struct mcp_checkpoint *checkpoint;
        struct still_rank own;
        still_rank_new(arena, &program, r, OTHER_SEED, &own);
        cr_assert(eq(int,
                     mcp_checkpoint_newest(arena, folder, NULL, &checkpoint, &passed_over, &err),
                     MCP_OK),
                  "%s", err.text);
        cr_assert(ne(ptr, (void *)checkpoint, NULL));
        cr_expect(eq(i64, mcp_checkpoint_state(checkpoint).sequences_seen, 320));
        cr_assert(eq(int, mcp_load_rank(&own.saved, checkpoint, &err), MCP_OK), "%s: %s",
                  layout_name(arena, l), err.text);
        for (int layer = 0; layer < program.num_layers; layer++) {
            const int64_t bad = check_layer(own.saved.interpreter, &own.rank, layer);
            cr_expect(eq(i64, bad, 0), "%s, rank %d, layer %d", layout_name(arena, l), r, layer);
        }
        mcp_arena_free(arena);
    }
    mcp_arena_free(s.arena);
}

struct case_save {
    struct layout from;
    struct layout to[4]; /* until one without a model */
};
ParameterizedTestParameters(save, layouts)
{
    static struct case_save cases[] = {
        {{"gpt2-tiny", 1, 1, 1, 1, 1, 0, false},
         {{"gpt2-tiny", 1, 1, 1, 1, 1, 0, false},
          {"gpt2-tiny", 2, 1, 1, 2, 1, 1, false},
          {"gpt2-tiny", 1, 2, 2, 1, 1, 3, true}}},
        {{"gpt2-tiny", 2, 1, 2, 2, 1, 2, false},
         {{"gpt2-tiny", 4, 1, 1, 1, 1, 0, false},
          {"gpt2-tiny", 1, 1, 1, 3, 1, 3, false},
          {"gpt2-tiny", 1, 1, 4, 1, 1, 0, true}}},
        {{"llama-tiny", 2, 2, 1, 2, 1, 3, true},
         {{"llama-tiny", 1, 1, 1, 1, 1, 0, true},
          {"llama-tiny", 1, 1, 2, 3, 1, 1, false},
          {"llama-tiny", 2, 1, 1, 1, 1, 0, true}}},
        {{"moe-tiny", 1, 1, 1, 4, 4, 1, false},
         {{"moe-tiny", 2, 1, 1, 2, 2, 0, false},
          {"moe-tiny", 1, 2, 2, 1, 2, 2, true},
          {"moe-tiny", 1, 1, 1, 1, 1, 0, false}}},
        {{"moe-tiny", 2, 1, 2, 2, 2, 3, true},
         {{"moe-tiny", 1, 1, 1, 8, 2, 3, true}, {"moe-tiny", 4, 1, 1, 1, 4, 0, false}}},
    };
    return cr_make_param_array(struct case_save, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_save *c, save, layouts, .init = set_up, .fini = tear_down)
{
    save_all(&c->from);
    for (int i = 0; i < 4 && c->to[i].model[0] != '\0'; i++)
        load_all(&c->to[i]);
}

/* A world of one goes all the way: two are kept, the newest whole one is found. */
Test(save, run, .init = set_up, .fini = tear_down)
{
    const struct layout layout = {"gpt2-tiny", 1, 1, 1, 1, 1, 0, false};
    struct setup s;
    struct mcp_program program;
    struct still_rank own;
    struct mcp_error err = {0};
    const struct mcp_checkpoint *checkpoint;
    layout_build(&s, &layout, &program);
    struct mcp_text passed_over = mcp_text_new(s.arena);
    still_rank_new(s.arena, &program, 0, SEED, &own);
    cr_assert(eq(int, mcp_load_newest(s.arena, &own.saved, folder, &checkpoint, &passed_over, &err),
                 MCP_OK));
    cr_expect(eq(ptr, (void *)checkpoint, NULL));
    for (int64_t step = 1; step <= 4; step++) {
        const struct mcp_checkpoint_state state = {step, 8 * step, SEED, step, step, 1, 0, 0};
        cr_assert(eq(int, mcp_save_run(&own.saved, folder, &state, &err), MCP_OK), "%s", err.text);
    }
    cr_assert(eq(int, mcp_load_newest(s.arena, &own.saved, folder, &checkpoint, &passed_over, &err),
                 MCP_OK),
              "%s", err.text);
    cr_assert(ne(ptr, (void *)checkpoint, NULL));
    cr_expect(eq(i64, mcp_checkpoint_state(checkpoint).step, 4));
    cr_expect(eq(int, mcp_load_rank(&own.saved, checkpoint, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(sz, passed_over.length, (size_t)0));
    cr_expect(eq(int, mcp_checkpoint_open(s.arena, folder, 3, true, &checkpoint, &err), MCP_OK));
    cr_expect(ne(int, mcp_checkpoint_open(s.arena, folder, 2, true, &checkpoint, &err), MCP_OK));
    mcp_arena_free(s.arena);
}

/* What a run in fp16 goes on with, by what the one before had; and what others say of theirs. */
Test(save, loss_scales)
{
    static const struct {
        enum mcp_precision precision;
        double saved, want;
    } cases[] = {
        {MCP_PRECISION_FP16, 512, 512},
        {MCP_PRECISION_FP16, 1, 1},
        {MCP_PRECISION_FP16, 0, 65536}, /* nothing was scaled */
        {MCP_PRECISION_FP32, 512, 0},
    };
    const struct mcp_train_options options = mcp_train_options_default();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup s;
        struct mcp_program program;
        struct mcp_trainer *trainer;
        struct mcp_error err = {0};
        setup_load(&s, "tests/exec/models/gpt2-tiny.json", "dgx-a100", "megatron-core");
        s.job.sequence_length = 32;
        s.job.precision = cases[i].precision;
        setup_finish(&s, 2, MCP_RECOMPUTE_NONE);
        mcp_program_build(s.arena, &s.question, &s.plan, &program);
        cr_assert(eq(int,
                     mcp_trainer_new(s.arena, &program, 0, &still_calls,
                                     (struct mcp_backend *)s.arena, NULL, &options, &trainer, &err),
                     MCP_OK),
                  "%s", err.text);
        mcp_trainer_go_on(trainer, &(struct mcp_trainer_state){.loss_scale = cases[i].saved});
        cr_expect(eq(dbl, mcp_trainer_state(trainer).loss_scale, cases[i].want));
        mcp_arena_free(s.arena);
    }
}
