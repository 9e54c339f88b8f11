/* tests/cuda/ranks_drops.c: what happens without a wait of the program: each of a plan's in
 * turn, under orders that hold back what was to be waited for. */
#include "tests/cuda/ranks_world.h"

#include "exec/cuda_backend.h"
#include "step/verify.h"

#include <string.h>

enum { STEPS = 2, ORDERS = 4, MAX_WAITS = 1024, SHORT_SEQUENCE = 8 };

/* --- an op that waits for nothing of a stream, whoever asked for it --- */

/* Memory that ops take over from each other makes the interpreter wait too (step/pool.h): a wait
 * of the program may then be there twice. */
static _Thread_local struct {
    struct {
        enum mcp_stream stream;
        struct mcp_ticket ticket;
    } waits[64]; /* of the op to come */
    int num_waits;
    const struct mcp_op *op; /* that does not wait; NULL: none */
    int stream;
} deaf;

static void note_wait(struct mcp_backend *backend, enum mcp_stream stream, struct mcp_ticket ticket)
{
    (void)backend;
    if (deaf.num_waits < 64) {
        deaf.waits[deaf.num_waits].stream = stream;
        deaf.waits[deaf.num_waits++].ticket = ticket;
    }
}

static enum mcp_status launch_deaf(struct mcp_backend *backend, const struct mcp_launch *launch,
                                   struct mcp_ticket *ticket, struct mcp_error *err)
{
    for (int i = 0; i < deaf.num_waits; i++)
        if (launch->op != deaf.op || deaf.waits[i].ticket.stream != deaf.stream)
            mcp_cuda_backend.wait(backend, deaf.waits[i].stream, deaf.waits[i].ticket);
    deaf.num_waits = 0;
    return mcp_cuda_backend.launch(backend, launch, ticket, err);
}

/* --- trials --- */

/* What steps came to; equal to the bit whatever the order, if the program is sound. */
struct outcome {
    double losses[MAX_RANKS][STEPS], norms[MAX_RANKS][STEPS];
};

/* A wait of the program; or where `wait` is CASTS, what an op waits for since the data stream has
 * cast what it reads. */
enum { CASTS = -1 };
struct place {
    int type, role, op, wait;
};

struct trial {
    const struct mcp_op *op; /* that lacks a wait */
    unsigned short waits_for;
    int stream; /* of what was waited for */
    struct outcome outcome;
};

struct drops {
    const char *name;
    FILE *out;
    struct trial trial;
    struct outcome sound;
    bool finding; /* the sound outcome */
    struct place places[MAX_WAITS];
    int waits, redundant, doubled, unseen;
};

static void set_order(int order, int stream)
{
    const struct fake_policy policies[ORDERS] = {
        {.order = FAKE_STREAM_LAST, .stream = stream, .lazy = true},
        {.order = FAKE_STREAM_LAST, .stream = stream},
        {.order = FAKE_NEWEST, .lazy = true},
        {.order = FAKE_RANDOM, .seed = 3},
    };
    fake_set_policy(&policies[order]);
}

static bool is_sound(const struct drops *drops)
{
    return memcmp(&drops->trial.outcome, &drops->sound, sizeof drops->sound) == 0;
}

/* New weights and a step or two, on all ranks: the second unless the first is wrong already. */
static void try_once(struct world *world, struct run *run, int rank, int order)
{
    struct drops *drops = world->context;
    struct outcome *outcome = &drops->trial.outcome;
    struct mcp_step_report report;
    bool goes_on = true;
    if (rank == 0) {
        set_order(order, drops->trial.stream);
        *outcome = drops->sound;
    }
    begin_training(run, rank);
    pthread_barrier_wait(&world->barrier);
    for (int step = 0; step < STEPS && goes_on; step++) {
        fake_join(world->ranks);
        train_step(run, step, &report);
        fake_leave();
        outcome->losses[rank][step] = report.loss;
        outcome->norms[rank][step] = report.grad_norm;
        pthread_barrier_wait(&world->barrier);
        goes_on = is_sound(drops) || drops->finding;
        pthread_barrier_wait(&world->barrier);
    }
}

/* Is the loss of the wait seen under one of the orders? All ranks agree: they see one outcome. */
static bool is_seen(struct world *world, struct run *run, int rank, bool is_deaf)
{
    const struct drops *drops = world->context;
    deaf.op = is_deaf ? drops->trial.op : NULL;
    deaf.stream = drops->trial.stream;
    for (int order = 0; order < ORDERS; order++) {
        try_once(world, run, rank, order);
        bool sound = is_sound(drops);
        pthread_barrier_wait(&world->barrier);
        if (!sound)
            return true;
    }
    return false;
}

static struct mcp_op *ops_of(const struct run *run, const struct place *at)
{
    return run->program.types[at->type].blocks[at->role].ops;
}

static void tell(const struct drops *drops, const char *what, const struct run *run,
                 const struct place *at)
{
    const struct mcp_op *ops = ops_of(run, at);
    const int waits_for = drops->trial.waits_for;
    fprintf(drops->out, "%s %s %s: %s: %s, op %d, need not wait for %s, op %d\n", what, drops->name,
            run->program.types[at->type].name, mcp_block_role_names[at->role],
            mcp_functions[ops[at->op].function].name, at->op,
            at->wait == CASTS ? "casts" : mcp_functions[ops[waits_for].function].name, waits_for);
}

/* Rank 0 changes the program that all ranks run. */
static void drop(struct drops *drops, const struct run *run, const struct place *at)
{
    struct mcp_op *ops = ops_of(run, at), *op = &ops[at->op];
    drops->trial = (struct trial){.op = op, .stream = MCP_STREAM_DATA};
    if (at->wait == CASTS)
        return;
    unsigned short waits_for = op->waits[at->wait];
    drops->trial =
        (struct trial){.op = op, .waits_for = waits_for, .stream = ops[waits_for].stream};
    op->waits[at->wait] = op->waits[--op->num_waits];
}

static void restore(const struct drops *drops, const struct run *run, const struct place *at)
{
    struct mcp_op *op = &ops_of(run, at)[at->op];
    if (at->wait == CASTS)
        return;
    op->waits[op->num_waits++] = op->waits[at->wait];
    op->waits[at->wait] = drops->trial.waits_for;
}

static void try_wait(struct world *world, struct run *run, int rank, const struct place *at)
{
    struct drops *drops = world->context;
    if (rank == 0)
        drop(drops, run, at);
    pthread_barrier_wait(&world->barrier);
    bool alone = at->wait != CASTS && is_seen(world, run, rank, false);
    bool seen = alone || is_seen(world, run, rank, true);
    deaf.op = NULL;
    if (rank == 0) {
        bool redundant =
            at->wait != CASTS && mcp_program_verify(run->arena, &run->program, NULL) == MCP_OK;
        drops->redundant += redundant;
        drops->doubled += seen && !alone;
        drops->unseen += !seen;
        if (redundant || !seen)
            tell(drops, redundant ? "redundant" : "unseen", run, at);
        restore(drops, run, at);
    }
    pthread_barrier_wait(&world->barrier);
}

static void live(struct world *world, struct run *run, int rank)
{
    struct drops *drops = world->context;
    run->calls.wait = note_wait;
    run->calls.launch = launch_deaf;
    try_once(world, run, rank, 0);
    if (rank == 0) {
        drops->sound = drops->trial.outcome;
        drops->finding = false;
    }
    pthread_barrier_wait(&world->barrier);
    for (int i = 0; i < drops->waits; i++)
        try_wait(world, run, rank, &drops->places[i]);
}

static bool reads_cast_weights(const struct mcp_op *op)
{
    for (int i = 0; i < op->num_reads; i++)
        if (op->reads[i].space == MCP_SPACE_LAYER && op->reads[i].index >= MCP_LAYER_CAST_WEIGHTS)
            return true;
    return false;
}

/* The first to read them in a step. */
static void list_casts(struct drops *drops, const struct run *run, int type)
{
    const struct mcp_block *block = &run->program.types[type].blocks[MCP_FORWARD];
    for (int i = 0; i < block->num_ops; i++)
        if (reads_cast_weights(&block->ops[i])) {
            drops->places[drops->waits++] = (struct place){type, MCP_FORWARD, i, CASTS};
            return;
        }
}

static void list_waits(struct drops *drops, const struct run *run)
{
    for (int t = 0; t < run->program.num_types; t++) {
        list_casts(drops, run, t);
        for (int role = 0; role < MCP_NUM_BLOCK_ROLES; role++) {
            const struct mcp_block *block = &run->program.types[t].blocks[role];
            for (int i = 0; i < block->num_ops; i++)
                for (int w = 0; w < block->ops[i].num_waits && drops->waits < MAX_WAITS; w++)
                    drops->places[drops->waits++] = (struct place){t, role, i, w};
        }
    }
}

/* --- a small plan for each axis --- */

#define REST 1, 4, MCP_RECOMPUTE_NONE
#define F32 MCP_PRECISION_FP32
#define F8 MCP_PRECISION_FP8
static const struct {
    const char *name, *model;
    enum mcp_precision precision;
    struct ranks_case plan;
} plans[] = {
    {"tensor", "gpt2", F32, {0, 2, 1, 1, 1, 1, false, MCP_CONTEXT_RING, 0, false, MCP_1F1B, REST}},
    {"sequence",
     "llama",
     F32,
     {0, 2, 1, 1, 1, 1, true, MCP_CONTEXT_RING, 0, false, MCP_1F1B, REST}},
    {"ring", "llama", F32, {0, 1, 2, 1, 1, 1, false, MCP_CONTEXT_RING, 0, false, MCP_1F1B, REST}},
    {"gather",
     "gpt2",
     F32,
     {0, 1, 2, 1, 1, 1, false, MCP_CONTEXT_ALL_GATHER, 1, false, MCP_1F1B, REST}},
    {"ulysses",
     "llama",
     F32,
     {0, 1, 2, 1, 1, 1, false, MCP_CONTEXT_ALL_TO_ALL, 2, false, MCP_1F1B, REST}},
    {"pipeline",
     "gpt2",
     F32,
     {0, 1, 1, 2, 1, 1, false, MCP_CONTEXT_RING, 0, false, MCP_1F1B, REST}},
    {"split", "llama", F32, {0, 1, 1, 2, 1, 1, false, MCP_CONTEXT_RING, 0, false, MCP_ZB_H1, REST}},
    {"data", "llama", F32, {0, 1, 1, 1, 2, 1, false, MCP_CONTEXT_RING, 0, false, MCP_1F1B, REST}},
    {"zero", "gpt2", F32, {0, 1, 1, 1, 2, 1, false, MCP_CONTEXT_RING, 3, true, MCP_1F1B, REST}},
    {"expert", "moe", F32, {0, 1, 1, 1, 2, 2, false, MCP_CONTEXT_RING, 1, false, MCP_1F1B, REST}},
    {"eight", "llama", F8, {0, 1, 1, 1, 2, 1, false, MCP_CONTEXT_RING, 1, false, MCP_1F1B, REST}},
};

void run_drops(FILE *out, const char *only)
{
    char file[64];
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        struct run run;
        if (only != NULL && strcmp(only, plans[i].name) != 0)
            continue;
        struct drops drops = {.name = plans[i].name, .out = out, .finding = true};
        struct world world = {
            .planned = &run, .ranks = ranks_world(&plans[i].plan), .live = live, .context = &drops};
        snprintf(file, sizeof file, "tests/cuda/models/%s-two.json", plans[i].model);
        if (plan_model(&run, &plans[i].plan, file, SHORT_SEQUENCE)) {
            run.job.precision = plans[i].precision;
            build_program(&run);
            list_waits(&drops, &run);
            run_world(&world);
        }
        fprintf(out, "dropped %s %d %d %d %d\n", drops.name, drops.waits, drops.redundant,
                drops.doubled, drops.unseen);
        fflush(out);
        mcp_arena_free(run.arena);
    }
}
