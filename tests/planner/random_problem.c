/* tests/planner/random_problem.c: small questions and spaces of every kind, from a seed. */
#include "tests/planner/random_problem.h"

#include "core/text.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

/* splitmix64 (Steele, Lea & Flood 2014) */
static int between(uint64_t *state, int lowest, int highest)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return lowest + (int)((z ^ z >> 31) % (uint64_t)(highest - lowest + 1));
}

static bool chance(uint64_t *state, int percent)
{
    return between(state, 1, 100) <= percent;
}

/* Mostly 2^n, which many degrees divide, or three times that; else any number. */
static int draw_count(uint64_t *dice, int most)
{
    int value = chance(dice, 20) ? 3 : 1;
    if (chance(dice, 30))
        return between(dice, 1, most);
    while (value * 2 <= most && chance(dice, 80))
        value *= 2;
    return value <= most ? value : 1;
}

/* Nodes of any number of GPUs; links slow enough to matter to tiny models. */
static void draw_pool(struct mcp_arena *arena, uint64_t *dice, const struct problem_size *size,
                      struct mcp_cluster *pool)
{
    static const char *const names[] = {"dgx-a100", "dgx-h100", "dgx-b200"};
    struct mcp_error err;
    enum mcp_status status = mcp_cluster_load(arena, names[between(dice, 0, 2)], pool, &err);
    int last = pool->num_tiers - 1;
    pool->num_nodes = draw_count(dice, size->most_nodes);
    pool->gpus_per_node = draw_count(dice, size->most_gpus);
    pool->tiers[0].ranks = pool->tiers[0].full_ranks = pool->gpus_per_node;
    pool->tiers[last].ranks = pool->num_nodes * pool->gpus_per_node;
    for (int tier = 0; tier <= last; tier++)
        pool->tiers[tier].bandwidth_bytes_per_s /= 1 << 2 * between(dice, 0, 3);
    assert(status == MCP_OK && mcp_cluster_check(pool, &err) == MCP_OK);
}

/* From far too little for the model to more than enough: percent of what its parameters
 * and the activations of one sequence need when spread over all GPUs. */
static void draw_memory(uint64_t *dice, const struct mcp_question *question,
                        struct mcp_cluster *pool)
{
    static const int percent[] = {50, 80, 100, 130, 160, 200, 250, 300, 400, 600, 1000, 10000};
    const struct mcp_model *model = question->model;
    struct mcp_parameters parameters = mcp_model_parameters(model);
    double tokens = (double)question->job->sequence_length,
           gpus = mcp_cluster_gpus(question->cluster);
    double state = (double)mcp_parameters_total(&parameters) * 18 / gpus;
    double kept = tokens * model->hidden_size * 34.0 * model->num_layers / gpus;
    double working = tokens * (model->hidden_size * 40.0 + model->vocab_size * 8.0);
    double need = (state + kept + working) / 100 *
                  percent[between(dice, 0, (int)MCP_COUNT_OF(percent) - 1)] *
                  (1 + question->stack->fragmentation_frac);
    pool->gpu.memory_bytes = (int64_t)(((double)question->stack->reserve_bytes + need) /
                                       question->job->memory_limit_frac);
}

static int most_of(enum mcp_knob knob, const struct mcp_question *question, int gpus)
{
    const int most[MCP_NUM_KNOBS] = {
        [MCP_KNOB_TENSOR] = gpus,
        [MCP_KNOB_CONTEXT] = gpus,
        [MCP_KNOB_PIPELINE] = gpus,
        [MCP_KNOB_DATA] = gpus,
        [MCP_KNOB_EXPERT] = gpus,
        [MCP_KNOB_VIRTUAL_STAGES] = 3,
        [MCP_KNOB_MICROBATCH] = (int)question->job->global_batch_size,
        [MCP_KNOB_ZERO_STAGE] = 3,
        [MCP_KNOB_SEQUENCE_PARALLEL] = 1,
        [MCP_KNOB_CONTEXT_KIND] = MCP_NUM_CONTEXT_KINDS - 1,
        [MCP_KNOB_SCHEDULE] =
            question->stack->schedules > MCP_UNEVEN_SCHEDULES ? MCP_V_MIN : MCP_INTERLEAVED,
        [MCP_KNOB_RECOMPUTE] = MCP_NUM_RECOMPUTES - 1,
        [MCP_KNOB_RESHARD] = 1,
        [MCP_KNOB_RANK_ORDER] = MCP_NUM_RANK_ORDERS - 1,
    };
    return most[knob];
}

/* A value that can be, mostly: of degrees a divisor. */
static int draw_value(uint64_t *dice, enum mcp_knob knob, const struct mcp_question *question)
{
    int gpus = mcp_cluster_gpus(question->cluster);
    int least = knob <= MCP_KNOB_MICROBATCH, value = least;
    int whole = knob == MCP_KNOB_MICROBATCH ? (int)question->job->global_batch_size : gpus;
    for (int attempt = 0; attempt < 8; attempt++) {
        value = between(dice, least, most_of(knob, question, gpus));
        if (knob > MCP_KNOB_MICROBATCH || knob == MCP_KNOB_VIRTUAL_STAGES || whole % value == 0)
            break;
    }
    return value;
}

static void draw_space(uint64_t *dice, const struct problem_size *size,
                       const struct mcp_question *question, struct mcp_plan_space *space)
{
    *space = mcp_space_default();
    space->pipeline_rule = chance(dice, 50);
    space->batch_rule = chance(dice, 50);
    space->overlap = chance(dice, 80);
    space->usual_order = chance(dice, 60);
    for (int k = 0; k < MCP_NUM_KNOBS; k++) {
        struct mcp_interval *interval = &space->knobs[k];
        if (!chance(dice, size->pinned_percent))
            continue;
        interval->given = true;
        interval->low = interval->high = draw_value(dice, (enum mcp_knob)k, question);
        if (chance(dice, 25)) {
            int other = draw_value(dice, (enum mcp_knob)k, question);
            interval->low = other < interval->low ? other : interval->low;
            interval->high = other > interval->high ? other : interval->high;
        }
    }
}

void random_problem_draw(struct mcp_arena *arena, uint64_t seed, const struct problem_size *size,
                         struct random_problem *out)
{
    uint64_t state = seed, *dice = &state;
    struct random_plan *drawn = &out->drawn;
    random_plan_draw(arena, seed, drawn);
    int layers = between(dice, 1, size->most_layers);
    if (layers < drawn->model.num_layers)
        drawn->model.num_layers = layers;
    draw_pool(arena, dice, size, &drawn->cluster);
    if (chance(dice, size->mixed_percent)) {
        draw_pool(arena, dice, size, &out->other);
        drawn->cluster.next = &out->other;
    }
    drawn->job.global_batch_size = draw_count(dice, size->most_sequences);
    if (chance(dice, 20))
        drawn->job.sequence_length = between(dice, 1, 700);
    draw_memory(dice, &drawn->question, &drawn->cluster);
    if (drawn->cluster.next != NULL)
        draw_memory(dice, &drawn->question, &out->other);
    drawn->stack.schedules = MCP_UNEVEN_SCHEDULES;
    if (size->every_schedule) { /* ZB-V stands for V-half and V-min where it is looked at */
        drawn->stack.schedules |= 1u << MCP_ZB_H1 | 1u << MCP_ZB_H2;
        drawn->stack.schedules |=
            seed % 2 == 0 ? 1u << MCP_ZB_V : 1u << MCP_V_HALF | 1u << MCP_V_MIN;
    }
    draw_space(dice, size, &drawn->question, &out->space);
    out->objective = (enum mcp_objective)(chance(dice, 70) ? 0 : between(dice, 0, 2));
    out->uniform = chance(dice, 20);
}

int random_problem_count(int usual)
{
    int64_t count;
    const char *asked = getenv("MCP_PROBLEMS");
    return asked != NULL && mcp_parse_int64(asked, &count) ? (int)count : usual;
}

const char *random_problem_describe(struct mcp_arena *arena, const struct random_problem *problem)
{
    const struct random_plan *drawn = &problem->drawn;
    const struct mcp_cluster *cluster = &drawn->cluster;
    struct mcp_text text = mcp_text_new(arena);
    for (const struct mcp_cluster *pool = cluster; pool != NULL; pool = pool->next)
        mcp_text_add(&text, "%s %d x %d, %lld bytes; ", pool->name, pool->num_nodes,
                     pool->gpus_per_node, (long long)pool->gpu.memory_bytes);
    mcp_text_add(&text, "%d layers, batch %lld x %lld, %s, rules %d%d, usual order %d, %s%s",
                 drawn->model.num_layers, (long long)drawn->job.global_batch_size,
                 (long long)drawn->job.sequence_length, drawn->stack.name,
                 problem->space.pipeline_rule, problem->space.batch_rule,
                 problem->space.usual_order, mcp_objective_names[problem->objective],
                 problem->uniform ? ", uniform" : "");
    for (int k = 0; k < MCP_NUM_KNOBS; k++)
        if (problem->space.knobs[k].given)
            mcp_text_add(&text, ", %s %d..%d", mcp_knob_names[k], problem->space.knobs[k].low,
                         problem->space.knobs[k].high);
    return text.data;
}
