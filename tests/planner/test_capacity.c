/* tests/planner/test_capacity.c: sizes, what follows from a plan, the knee, the answer. */
#include "planner/capacity.h"
#include "tests/planner/question.h"

#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

enum { MOST = 16 };

static bool near(double value, double want, double within_frac)
{
    return fabs(value - want) <= within_frac * fabs(want);
}

/* A plan of 16,384 H100 that reaches MFU 0.41 by the 6 N D count. */
static struct mcp_capacity_row published_row(const struct loaded *q)
{
    double tokens = (double)(q->job.global_batch_size * q->job.sequence_length);
    double flops = 6 * 405e9 * tokens;
    return (struct mcp_capacity_row){.gpus = 16384,
                                     .model_flops_utilization = 0.41,
                                     .iteration_s = flops / (16384 * 989e12 * 0.41),
                                     .uncertainty_frac = 0.05};
}

/* 405B x 15.6T tokens on 16,384 H100, MFU 0.41, ETTR 0.90: about 73 days, whether from
 * work or from the time of an iteration. */
Test(capacity, days_of_llama_405b)
{
    struct loaded q;
    load_question(&q, "llama-3.1-405b", "dgx-h100:2048", 2048, 8192);
    struct mcp_capacity_ask ask = mcp_capacity_ask_default();
    struct mcp_capacity_row row = published_row(&q);
    ask.tokens = 15600000000000;
    mcp_capacity_finish(&ask, &q.question, &row);
    double days = row.busy_s / 0.90 / 86400;
    cr_expect(near(days, 73.4, 0.001), "%g days", days);
    cr_expect(near(days, mcp_training_days(6 * 405e9 * 15.6e12, 16384, 989e12, 0.41, 0.90), 1e-6));
    cr_expect(row.steps == 929833 && near(row.time_s * row.ettr, row.busy_s, 1e-12));
    cr_expect(row.low_s < row.time_s * 0.951 && row.high_s > row.time_s * 1.05);
    mcp_arena_free(q.arena);
}

/* With the worked case's failures: 2,048 nodes at 3.79, C 30 s, R 10 min: 0.880. */
Test(capacity, failures_spares_and_storage)
{
    struct loaded q;
    load_question(&q, "llama-3.1-405b", "dgx-h100:2048", 2048, 8192);
    struct mcp_capacity_ask ask = mcp_capacity_ask_default();
    struct mcp_capacity_row row = published_row(&q);
    ask.tokens = 15600000000000;
    ask.stall_s = 30;
    mcp_capacity_finish(&ask, &q.question, &row);
    cr_expect(near(row.ettr, 0.880, 0.0005), "%g", row.ettr);
    cr_expect(row.spares == 35 && row.nodes == 2048);
    /* 14 bytes a parameter: 5.7 TB; at 2 TB/s it takes 2.8 s */
    cr_expect(near(row.checkpoint_bytes, 5.7e12, 0.01), "%g", row.checkpoint_bytes);
    cr_expect(near(row.storage_bytes, 2 * row.checkpoint_bytes, 1e-12));
    cr_expect(near(row.checkpoint_bytes_per_s, 2e12, 1e-9));
    ask.stall_s = (double)NAN;
    mcp_capacity_finish(&ask, &q.question, &row);
    cr_expect(near(row.restart.stall_s, 2.84, 0.01), "%g", row.restart.stall_s);
    ask.checkpoint_bytes_per_s = 200e9;
    mcp_capacity_finish(&ask, &q.question, &row);
    cr_expect(near(row.restart.stall_s, 28.4, 0.01), "%g", row.restart.stall_s);
    mcp_arena_free(q.arena);
}

/* 100,000 H100 draw 140 to 150 MW, and a price nobody stated stays unknown. */
Test(capacity, power_and_price)
{
    struct loaded q;
    load_question(&q, "llama-3.1-405b", "dgx-h100:12500", 2048, 8192);
    struct mcp_capacity_ask ask = mcp_capacity_ask_default();
    struct mcp_capacity_row row = {.gpus = 100000, .iteration_s = 1};
    ask.tokens = 1000000000000;
    ask.power_watts = 1e6;
    ask.budget = 1e12;
    mcp_capacity_finish(&ask, &q.question, &row);
    cr_expect(row.site_watts >= 140e6 && row.site_watts <= 150e6, "%g", row.site_watts);
    cr_expect(near(row.energy_joules, row.site_watts * row.time_s, 1e-12));
    cr_expect(isnan(row.price) && row.breaks[MCP_LIMIT_BUDGET] && row.breaks[MCP_LIMIT_POWER]);
    cr_expect(!row.breaks[MCP_LIMIT_DEADLINE] && !mcp_capacity_meets(&row));
    q.cluster.gpu.price_per_gpu_hour = 2;
    mcp_capacity_finish(&ask, &q.question, &row);
    cr_expect(near(row.price, (12500.0 + row.spares) * 8 * 2 * row.time_s / 3600, 1e-12));
    cr_expect(!row.breaks[MCP_LIMIT_BUDGET]);
    mcp_arena_free(q.arena);
}

struct case_ladder {
    int unit, low, high;
    int sizes[MOST];
};
ParameterizedTestParameters(capacity, ladder)
{
    static struct case_ladder cases[] = {
        {8, 8, 96, {8, 16, 24, 32, 40, 48, 56, 64, 80, 96}},
        {8, 1, 16, {1, 2, 4, 8, 16}},
        {8, 3, 8, {4, 8}},
        {8, 2, 4, {2, 4}},
        {8, 512, 1024, {512, 640, 768, 896, 1024}},
        {72, 1, 72, {9, 18, 36, 72}},
        {8, 9, 15, {0}},
        {8, 1048575, 1048576, {1048576}},
    };
    return cr_make_param_array(struct case_ladder, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct case_ladder *c, capacity, ladder)
{
    struct mcp_arena *arena = mcp_arena_new();
    int *sizes, want = 0;
    int count = mcp_capacity_ladder(arena, c->unit, c->low, c->high, &sizes);
    while (want < MOST && c->sizes[want] > 0)
        want++;
    cr_expect(count == want, "%d..%d: %d sizes, not %d", c->low, c->high, count, want);
    for (int i = 0; i < count && i < want; i++)
        cr_expect(sizes[i] == c->sizes[i], "%d, not %d", sizes[i], c->sizes[i]);
    mcp_arena_free(arena);
}

/* Days of each size, and what comes of them. 0 ends the list; < 0: no plan. */
struct case_judge {
    char name[48];
    int gpus[6];
    double days[6];
    double deadline_days, power_watts;
    int answer, knee; /* rows; -1: none */
};
ParameterizedTestParameters(capacity, judge)
{
    static struct case_judge cases[] = {
        {"a deadline: the smallest that meets it", {8, 16, 32}, {40, 20, 10}, 20, 0, 1, -1},
        {"a deadline that nothing meets", {8, 16, 32}, {40, 20, 10}, 5, 0, -1, -1},
        {"no limits: the knee", {8, 16, 32, 64}, {40, 20, 12, 11}, 0, 0, 2, 2},
        {"no limits and no knee: the fastest", {8, 16, 32}, {40, 20, 10}, 0, 0, 2, -1},
        {"a cap on power: the fastest under it", {8, 16, 32}, {40, 20, 10}, 0, 23000, 1, -1},
        {"sizes without a plan are passed over", {8, 16, 32}, {40, -1, 10}, 30, 0, 2, -1},
        {"a size that divides badly is no knee",
         {8, 10, 16, 32, 64},
         {40, 39, 20, 11, 10.5},
         0,
         0,
         3,
         3},
        {"the first step does not pay", {8, 16, 32}, {40, 39, 38.5}, 0, 0, 0, 0},
        {"slower with more", {8, 16, 32}, {40, 50, 60}, 0, 0, 0, -1},
    };
    return cr_make_param_array(struct case_judge, cases, MCP_COUNT_OF(cases));
}

static int judged_rows(const struct case_judge *c, const struct mcp_capacity_ask *ask,
                       struct mcp_capacity_row *rows)
{
    int count = 0;
    for (; count < 6 && c->gpus[count] > 0; count++) {
        double watts = 1400.0 * c->gpus[count], time_s = c->days[count] * 86400;
        rows[count] = (struct mcp_capacity_row){.gpus = c->gpus[count],
                                                .reason = time_s < 0 ? "none" : NULL,
                                                .time_s = time_s,
                                                .site_watts = watts,
                                                .price = (double)NAN,
                                                .energy_joules = watts * time_s};
        rows[count].breaks[MCP_LIMIT_DEADLINE] = time_s > ask->deadline_s;
        rows[count].breaks[MCP_LIMIT_POWER] = watts > ask->power_watts;
    }
    return count;
}

ParameterizedTest(struct case_judge *c, capacity, judge)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_capacity_ask ask = mcp_capacity_ask_default();
    struct mcp_capacity_row rows[6];
    if (c->deadline_days > 0)
        ask.deadline_s = c->deadline_days * 86400;
    if (c->power_watts > 0)
        ask.power_watts = c->power_watts;
    struct mcp_capacity capacity = {.num_rows = judged_rows(c, &ask, rows), .rows = rows};
    mcp_capacity_judge(arena, &ask, &capacity);
    int knee = -1;
    for (int i = 0; i < capacity.num_rows; i++)
        knee = rows[i].knee ? i : knee;
    cr_expect(capacity.best == c->answer, "%s: answer %d, not %d", c->name, capacity.best,
              c->answer);
    cr_expect(knee == c->knee, "%s: knee %d, not %d", c->name, knee, c->knee);
    mcp_arena_free(arena);
}

/* Two kinds of machines: the cheaper where prices are known, else the thriftier. */
Test(capacity, chooses_among_machines)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_capacity_ask ask = mcp_capacity_ask_default();
    struct mcp_capacity_row rows[2] = {
        {.machine = 0, .gpus = 64, .time_s = 10, .price = 100, .energy_joules = 5},
        {.machine = 1, .gpus = 32, .time_s = 20, .price = 90, .energy_joules = 7},
    };
    struct mcp_capacity capacity = {.num_rows = 2, .rows = rows};
    ask.deadline_s = 30;
    mcp_capacity_judge(arena, &ask, &capacity);
    cr_expect(capacity.best == 1 && capacity.order == MCP_BY_PRICE);
    rows[0].price = (double)NAN;
    mcp_capacity_judge(arena, &ask, &capacity);
    cr_expect(capacity.best == 0 && capacity.order == MCP_BY_ENERGY);
    rows[0].energy_joules = (double)NAN;
    mcp_capacity_judge(arena, &ask, &capacity);
    cr_expect(capacity.best == 1 && capacity.order == MCP_BY_GPUS);
    mcp_arena_free(arena);
}

/* A mix keeps its ratio, and refuses what has none. */
Test(capacity, sizes_of_mixes)
{
    struct loaded q;
    struct mcp_cluster sized;
    struct mcp_error err = {""};
    load_question(&q, "llama-3.1-8b", "dgx-a100:4+dgx-h100:2", 64, 4096);
    cr_expect(mcp_capacity_unit(&q.cluster) == 24);
    cr_assert(mcp_capacity_size(q.arena, &q.cluster, 72, &sized, &err) == MCP_OK, "%s", err.text);
    cr_expect(sized.num_nodes == 6 && sized.next->num_nodes == 3 && sized.next->next == NULL);
    cr_expect(mcp_capacity_size(q.arena, &q.cluster, 32, &sized, &err) == MCP_INVALID);
    cr_expect(strstr(err.text, "32 GPUs are no multiple of 24") != NULL, "%s", err.text);
    cr_expect(mcp_capacity_size(q.arena, &q.cluster, 8, &sized, &err) == MCP_INVALID);
    cr_expect(q.cluster.num_nodes == 4);
    mcp_arena_free(q.arena);
}

static void count_calls(void *context, const char *what)
{
    (void)what;
    ++*(int *)context;
}

/* A sweep plans as the search does; more machines are faster; twice gives the same. */
Test(capacity, sweeps_what_the_search_finds)
{
    static const int sizes[] = {8, 12, 16, 24, 32};
    struct loaded q;
    struct mcp_answer answer;
    struct mcp_capacity once, again;
    int calls = 0;
    load_question(&q, "llama-3.1-8b", "dgx-h100:2", 64, 4096);
    struct mcp_capacity_ask ask = mcp_capacity_ask_default();
    struct mcp_plan_space space = mcp_space_default();
    const struct mcp_search_options options = {.top = 1};
    const struct mcp_capacity_machine machine = {
        .name = "dgx-h100:4", .question = q.question, .num_sizes = 5, .sizes = sizes};
    const struct mcp_capacity_sweep sweep = {&ask,     1,           &machine, &space,
                                             &options, count_calls, &calls};
    ask.tokens = 1000000000000;
    mcp_search(q.arena, &q.question, &space, &options, &answer);
    mcp_capacity_sweep(q.arena, &sweep, &once);
    mcp_capacity_sweep(q.arena, &sweep, &again);
    cr_assert(once.num_rows == 5 && calls == 10 && again.num_rows == 5 && !once.interrupted);
    cr_expect(once.rows[2].iteration_s == answer.found[0].iteration_s);
    cr_expect(once.rows[1].reason != NULL, "12 of nodes of 8");
    /* 24 GPUs do not divide a batch of 64, but one of 63 or 66 */
    cr_expect(once.rows[3].reason == NULL && once.rows[3].global_batch_size == 63, "batch %d: %s",
              (int)once.rows[3].global_batch_size, once.rows[3].reason);
    for (int i = 0; i < 5; i++)
        cr_expect(once.rows[i].reason != NULL || once.rows[i].time_s == again.rows[i].time_s);
    cr_expect(once.rows[4].time_s < once.rows[2].time_s &&
              once.rows[2].time_s < once.rows[0].time_s);
    mcp_arena_free(q.arena);
}

/* Between the last size that fails a deadline and the first that meets it, others are
 * tried; and a sweep that is stopped says so. */
Test(capacity, refines_and_stops)
{
    static const int sizes[] = {64, 128};
    struct loaded q;
    struct mcp_capacity capacity;
    volatile sig_atomic_t stop = 0;
    load_question(&q, "llama-3.1-8b", "dgx-h100", 128, 4096);
    struct mcp_capacity_ask ask = mcp_capacity_ask_default();
    struct mcp_plan_space space = mcp_space_default();
    const struct mcp_search_options options = {.top = 1, .stop = &stop};
    const struct mcp_capacity_machine machine = {
        .name = "m", .question = q.question, .num_sizes = 2, .sizes = sizes, .refine = true};
    const struct mcp_capacity_sweep sweep = {&ask, 1, &machine, &space, &options, NULL, NULL};
    ask.tokens = 1000000000000;
    mcp_capacity_sweep(q.arena, &sweep, &capacity);
    cr_assert(capacity.num_rows == 2);
    ask.deadline_s = (capacity.rows[0].time_s + 3 * capacity.rows[1].time_s) / 4;
    mcp_capacity_sweep(q.arena, &sweep, &capacity);
    cr_assert(capacity.num_rows == 5, "%d rows", capacity.num_rows);
    for (int i = 0; i < 5; i++)
        cr_expect(capacity.rows[i].gpus == 64 + 16 * i);
    cr_expect(capacity.best >= 0 && capacity.rows[capacity.best].time_s <= ask.deadline_s);
    stop = 1;
    mcp_capacity_sweep(q.arena, &sweep, &capacity);
    cr_expect(capacity.interrupted && capacity.best == -1);
    mcp_arena_free(q.arena);
}

/* Strong scaling of 405B on H100 in fp8, against the steps that MLPerf Training v5.0's logs have
 * (tools/scaling.sh): throughput per GPU against that of 512 GPUs, of the best plan; and the step
 * itself, of the layout that ran. */
struct case_scaling {
    int gpus, batch;
    double step_s; /* published, of layout 8 x 2 x 8 */
    double shape_within, step_within;
};

static double scaling_step_s(const struct case_scaling *p, const struct mcp_plan_space *space)
{
    struct loaded q;
    struct mcp_error err = {""};
    struct mcp_capacity capacity;
    const struct mcp_search_options options = {.top = 1};
    load_question(&q, "llama-3.1-405b", "dgx-h100", p->batch, 8192);
    cr_assert(mcp_stack_load(q.arena, "megatron-core-mlperf", &q.stack, &err) == MCP_OK);
    q.job.precision = MCP_PRECISION_FP8;
    struct mcp_capacity_ask ask = mcp_capacity_ask_default();
    const struct mcp_capacity_machine machine = {
        .name = "dgx-h100", .question = q.question, .num_sizes = 1, .sizes = &p->gpus};
    const struct mcp_capacity_sweep sweep = {&ask, 1, &machine, space, &options, NULL, NULL};
    ask.tokens = 1000000000000;
    ask.batch_slack_frac = 0;
    mcp_capacity_sweep(q.arena, &sweep, &capacity);
    cr_assert(capacity.rows[0].reason == NULL, "%s", capacity.rows[0].reason);
    double step_s = capacity.rows[0].iteration_s;
    mcp_arena_free(q.arena);
    return step_s;
}

Test(capacity, scales_as_mlperf_did)
{
    static const struct case_scaling points[] = {{512, 1152, 55.13, 0, 0.01},
                                                 {2048, 1152, 14.22, 0.025, 0.02},
                                                 {2560, 1120, 11.17, 0.025, 0.02},
                                                 {8192, 1536, 5.18, 0.037, 0.05}};
    struct mcp_plan_space best = mcp_space_default(), own = best;
    double published_first = 0, planned_first = 0;
    own.knobs[MCP_KNOB_TENSOR] = (struct mcp_interval){true, 8, 8};
    own.knobs[MCP_KNOB_CONTEXT] = (struct mcp_interval){true, 2, 2};
    own.knobs[MCP_KNOB_PIPELINE] = (struct mcp_interval){true, 8, 8};
    for (size_t i = 0; i < MCP_COUNT_OF(points); i++) {
        const struct case_scaling *p = &points[i];
        double published = p->batch / p->step_s / p->gpus;
        double planned = p->batch / scaling_step_s(p, &best) / p->gpus;
        double step_s = scaling_step_s(p, &own);
        published_first = i == 0 ? published : published_first;
        planned_first = i == 0 ? planned : planned_first;
        cr_expect(fabs(planned / planned_first - published / published_first) <= p->shape_within,
                  "%d GPUs: %g, not %g", p->gpus, planned / planned_first,
                  published / published_first);
        cr_expect(fabs(step_s / p->step_s - 1) <= p->step_within, "%d GPUs: %g s, not %g", p->gpus,
                  step_s, p->step_s);
    }
}
