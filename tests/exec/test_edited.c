/* tests/exec/test_edited.c: programs with one number changed at random: what is not refused runs a
 * step, and touches nothing outside its operands. MCP_EDITS=n tries n changes of each program. */
#include "guarded.h"

#include "core/text.h"
#include "exec/train.h"
#include "step/dump.h"
#include "step/extents.h"
#include "step/verify.h"
#include "tests/step/setup.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <omp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NUM_EDITS = 40, SEQUENCE = 16, NUM_SEQUENCES = 4, LONGEST_S = 30 };
static const int64_t most_bytes = INT64_C(8) << 20;

/* --- programs --- */

struct shape {
    char model[48];
    int precision, saved_bits, recompute;
    bool more;   /* norms of heads; a shared expert and a router with biases */
    bool frozen; /* 1-bit Adam's second phase */
};

static void plan_shape(const struct shape *c, struct setup *s)
{
    setup_load(s, c->model, "dgx-h100", "mcpplan-cpu");
    struct mcp_layer_kind *kind = &s->model.kinds[0];
    setup_cut(s, 2);
    if (c->more && kind->mlp == MCP_MLP_EXPERTS) {
        kind->shared_expert_ffn_hidden_size = 24;
        kind->router_bias = true;
    } else if (c->more) {
        kind->qk_norm = true;
    }
    s->job.precision = (enum mcp_precision)c->precision;
    s->job.saved_activation_bits = c->saved_bits;
    s->job.sequence_length = SEQUENCE;
    s->job.attention = "flash2";
    if (c->frozen) {
        s->job.optimizer = MCP_OPTIMIZER_ONE_BIT_ADAM;
        s->job.phase = MCP_PHASE_FROZEN;
    }
    s->plan.microbatch_size = 2;
    setup_finish(s, NUM_SEQUENCES / 2, (enum mcp_recompute)c->recompute);
}

/* --- one change --- */

static uint64_t next(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int below(uint64_t *state, int count)
{
    return (int)(next(state) % (uint64_t)count);
}

static int64_t other_value(uint64_t *state, int64_t value)
{
    switch (below(state, 8)) {
    case 0:
        return 0;
    case 1:
        return 1;
    case 2:
        return 2 * value;
    case 3:
        return 16 * value;
    case 4:
        return INT64_C(1) << 31;
    case 5:
        return INT64_C(1) << 40;
    case 6:
        return value + 1;
    default:
        return value - 1;
    }
}

static char told[256]; /* what was changed, for whoever looks at a crash */

static void change(uint64_t *state, int64_t *value, const char *where, const char *what)
{
    const int64_t old = *value;
    *value = other_value(state, old);
    snprintf(told + strlen(told), sizeof told - strlen(told), "%.60s %.60s: %lld -> %lld\n", where,
             what, (long long)old, (long long)*value);
}

static void change_op(uint64_t *state, struct mcp_layer_type *type)
{
    struct mcp_block *block = &type->blocks[below(state, MCP_NUM_BLOCK_ROLES)];
    if (block->num_ops == 0)
        return;
    struct mcp_op *op = &block->ops[below(state, block->num_ops)];
    change(state, &op->dims[below(state, 6)], type->name, mcp_functions[op->function].name);
}

static void change_fact(uint64_t *state, struct mcp_layer_type *type)
{
#define FACT(name)                                                                                 \
    {                                                                                              \
        offsetof(struct mcp_layer_facts, name), #name                                              \
    }
    static const struct {
        size_t offset;
        const char *name;
    } facts[] = {
        FACT(microbatch_size), FACT(sequence_length), FACT(sequence_local),
        FACT(zigzag),          FACT(hidden_size),     FACT(heads),
        FACT(kv_heads),        FACT(head_dim),        FACT(value_head_dim),
        FACT(sliding_window),  FACT(rotary_dim),      FACT(attention_chunk_size),
        FACT(gated),           FACT(num_experts),     FACT(local_experts),
        FACT(raw_top_k),       FACT(vocab_size),      FACT(experts_per_token),
        FACT(vocab_local),     FACT(positions_part),  FACT(norm_centers),
    };
    const int i = below(state, (int)MCP_COUNT_OF(facts));
    change(state, (int64_t *)(void *)((char *)&type->facts + facts[i].offset), type->name,
           facts[i].name);
}

/* What is there and what there is room for; or the latter alone. */
static void change_buffer(uint64_t *state, struct mcp_program *program, struct mcp_layer_type *type)
{
    const int space = below(state, MCP_NUM_SPACES);
    const bool rank = space == MCP_SPACE_RANK;
    const int count = rank ? program->num_rank_buffers : type->num_buffers[space];
    if (count == 0)
        return;
    struct mcp_buffer *buffer =
        &(rank ? program->rank_buffers : type->buffers[space])[below(state, count)];
    change(state, &buffer->capacity_bytes, type->name, buffer->name);
    if (below(state, 2) == 0)
        buffer->bytes = buffer->capacity_bytes;
}

static void change_weight(uint64_t *state, struct mcp_layer_type *type)
{
    if (type->num_weights == 0)
        return;
    struct mcp_weight *weight = &type->weights[below(state, type->num_weights)];
    int64_t copies = weight->copies;
    int64_t *const sizes[] = {&weight->rows, &weight->columns, &copies};
    change(state, sizes[below(state, 3)], type->name, weight->name);
    weight->copies = (int)copies;
}

static void change_one(uint64_t *state, struct mcp_program *program)
{
    struct mcp_layer_type *type = &program->types[below(state, program->num_types)];
    switch (below(state, 6)) {
    case 0:
        change_fact(state, type);
        return;
    case 1:
        change_buffer(state, program, type);
        return;
    case 2:
        change_weight(state, type);
        return;
    default:
        change_op(state, type);
    }
}

/* --- what becomes of it --- */

static const int32_t *sequence(void *context, int64_t index)
{
    int32_t *ids = context;
    for (int i = 0; i <= SEQUENCE; i++)
        ids[i] = (int32_t)((index * 7 + i * 13) % 200);
    return ids;
}

/* Too large to try is as if the machine had no room. */
static bool is_small(struct mcp_arena *arena, const struct mcp_program *program)
{
    struct mcp_pool *pool;
    struct mcp_error err;
    return mcp_pool_new(arena, program, 0, &pool, &err) == MCP_OK &&
           mcp_pool_bytes(pool) <= most_bytes;
}

static void train(struct mcp_arena *arena, struct mcp_backend *backend,
                  const struct mcp_program *program)
{
    int32_t ids[SEQUENCE + 1];
    const struct mcp_batch batch = {sequence, ids};
    const struct mcp_train_options options = mcp_train_options_default();
    struct mcp_trainer *trainer;
    struct mcp_step_report report;
    struct mcp_error err = {""};
    if (mcp_trainer_new(arena, program, 0, &guarded_calls, backend, &batch, &options, &trainer,
                        &err) == MCP_OK)
        (void)mcp_trainer_step(trainer, &report, &err);
    cr_expect(guarded_is_damaged(backend) == false, "%s", told);
}

static bool is_taken(struct mcp_arena *arena, struct mcp_program *program)
{
    struct mcp_program *loaded = MCP_NEW(arena, struct mcp_program);
    struct mcp_error err = {""};
    struct mcp_json *json = mcp_program_to_json(arena, program);
    if (mcp_program_from_json(arena, json, loaded, &err) != MCP_OK)
        return false;
    *program = *loaded;
    return mcp_program_verify(arena, program, &err) == MCP_OK &&
           mcp_program_check_extents(program, &err) == MCP_OK;
}

/* Has it run? Each program has changes of its own. */
static bool try_edit(struct mcp_backend *backend, const struct mcp_program *program, uint64_t edit)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_program edited;
    struct mcp_error err = {""};
    uint64_t state = edit + ((uint64_t)program->types[1].facts.hidden_size << 32) +
                     ((uint64_t)program->types[2].blocks[MCP_FORWARD].num_ops << 40);
    cr_assert(mcp_program_from_json(arena, mcp_program_to_json(arena, program), &edited, &err) ==
                  MCP_OK,
              "%s", err.text);
    snprintf(told, sizeof told, "edit %llu: ", (unsigned long long)edit);
    if (edit > 0)
        change_one(&state, &edited);
    alarm(LONGEST_S);
    const bool taken = is_taken(arena, &edited), runs = taken && is_small(arena, &edited);
    guarded_begin(backend, arena);
    if (runs)
        train(arena, backend, &edited);
    alarm(0);
    mcp_arena_free(arena);
    return runs;
}

static void tell(int number)
{
    (void)number;
    ssize_t written = write(STDERR_FILENO, told, strlen(told));
    (void)written; /* what comes next ends the process: the handler was for once */
}

static void tell_of_crashes(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
    const struct sigaction once = {.sa_handler = tell, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < MCP_COUNT_OF(signals); i++)
        sigaction(signals[i], &once, NULL);
}

static int num_edits(void)
{
    int64_t number = NUM_EDITS;
    const char *given = getenv("MCP_EDITS");
    if (given != NULL)
        cr_assert(mcp_parse_int64(given, &number) && number >= NUM_EDITS && number < INT32_MAX);
    return (int)number;
}

ParameterizedTestParameters(edited, programs)
{
    static struct shape shapes[] = {
        {"tests/exec/models/gpt2-tiny.json", MCP_PRECISION_FP32, 0, MCP_RECOMPUTE_NONE, false,
         false},
        {"tests/exec/models/gpt2-tiny.json", MCP_PRECISION_BF16, 8, MCP_RECOMPUTE_FULL, false,
         false},
        {"tests/exec/models/gpt2-tiny.json", MCP_PRECISION_BF16, 0, MCP_RECOMPUTE_NONE, false,
         true},
        {"tests/exec/models/llama-tiny.json", MCP_PRECISION_BF16, 0, MCP_RECOMPUTE_NONE, true,
         false},
        {"tests/exec/models/llama-even.json", MCP_PRECISION_FP8, 0, MCP_RECOMPUTE_NONE, false,
         false},
        {"tests/exec/models/llama-even.json", MCP_PRECISION_FP8, 8, MCP_RECOMPUTE_NONE, false,
         false},
        {"tests/exec/models/moe-tiny.json", MCP_PRECISION_FP32, 0, MCP_RECOMPUTE_FULL, true, false},
        {"tests/exec/models/moe-tiny.json", MCP_PRECISION_BF16, 8, MCP_RECOMPUTE_NONE, false,
         false},
    };
    return cr_make_param_array(struct shape, shapes, MCP_COUNT_OF(shapes));
}

/* Edit 0 changes nothing. */
ParameterizedTest(struct shape *c, edited, programs)
{
    struct setup s;
    struct mcp_program program;
    const int count = num_edits();
    int run = 0;
    plan_shape(c, &s);
    setup_program(&s, &program);
    omp_set_num_threads(1);
    tell_of_crashes();
    struct mcp_backend *backend = guarded_new(s.arena, most_bytes);
    cr_assert(ne(ptr, backend, NULL));
    cr_assert(try_edit(backend, &program, 0), "%s", c->model);
    for (int edit = 1; edit <= count; edit++)
        run += try_edit(backend, &program, (uint64_t)edit);
    cr_expect(run > count / 20 && run < count * 9 / 10, "%d of %d edits of %s ran", run, count,
              c->model);
    mcp_arena_free(s.arena);
}
