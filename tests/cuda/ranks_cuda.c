/* tests/cuda/ranks_cuda.c: the layouts of tests/exec on the CUDA backend: ranks are threads on
 * a fake GPU each, and every step runs its streams in another order.
 *
 *     ranks FILE [CASE | NAME]
 *
 * writes a line a case: its number, how far its losses and gradients' norms are from those of one
 * rank on CPUs, and its last loss. Without CASE or NAME before them: "lacks NAME FORMAT" for what
 * one backend has a kernel for and the other has none; "eight", of layouts in 8 bits; "mixed", as a
 * case, of embeddings in fp32 beside bf16; "uneven", of shards of unequal lengths; "histogram", how
 * far a GPU's is from the host's; what drops of waits do (ranks_drops.c), of one plan by NAME. */
#include "exec/cuda_backend.h"
#include "exec/events.h"
#include "tests/cuda/ranks_world.h"

#include <math.h>
#include <string.h>

/* Steps: enough for a gradient to move a weight, and for the new weights' loss. */
enum { SHORT = 2, SHORT_SEQUENCE = 16, ORDERS = 10 };

/* Step by step: orders as such, then each stream of the program held back. */
static const struct fake_policy policies[ORDERS] = {
    {.order = FAKE_FIFO, .lazy = true},
    {.order = FAKE_TRANSFERS_LAST},
    {.order = FAKE_TRANSFERS_FIRST, .lazy = true},
    {.order = FAKE_KERNELS_LAST},
    {.order = FAKE_NEWEST, .lazy = true},
    {.order = FAKE_STREAM_LAST, .stream = MCP_STREAM_COMPUTE},
    {.order = FAKE_STREAM_LAST, .stream = MCP_STREAM_TENSOR, .lazy = true},
    {.order = FAKE_RANDOM, .seed = 1},
    {.order = FAKE_RANDOM, .seed = 2, .lazy = true},
    {.order = FAKE_FIFO},
};

struct training {
    int number, steps;
    double losses[RANKS_STEPS], norms[RANKS_STEPS]; /* rank 0's */
};

static void live(struct world *world, struct run *run, int rank)
{
    struct training *training = world->context;
    struct mcp_step_report report;
    begin_training(run, rank);
    for (int step = 0; step < training->steps; step++) {
        pthread_barrier_wait(&world->barrier);
        if (rank == 0)
            fake_set_policy(&policies[(training->number * SHORT + step) % ORDERS]);
        fake_join(world->ranks);
        train_step(run, step, &report);
        fake_leave();
        if (rank == 0) {
            training->losses[step] = report.loss;
            training->norms[step] = report.grad_norm;
        }
    }
}

/* What one rank makes of a plan on a CPU. */
static void train_on_cpu(struct run *run, struct mcp_cpu_world *cpu, int steps, double *losses,
                         double *norms)
{
    struct mcp_step_report report;
    begin(run, cpu, true, 0);
    for (int step = 0; step < steps; step++) {
        train_step(run, step, &report);
        losses[step] = report.loss;
        norms[step] = report.grad_norm;
    }
    end(run);
}

struct reference { /* of a model */
    bool made;
    double losses[RANKS_STEPS], norms[RANKS_STEPS];
};

static const struct reference *reference_of(struct mcp_cpu_world *cpu, struct reference *all,
                                            int model)
{
    const struct ranks_case alone = ranks_alone(model);
    struct run run;
    if (!all[model].made) {
        all[model].made = plan_model(&run, &alone, NULL, SHORT_SEQUENCE);
        build_program(&run);
        train_on_cpu(&run, cpu, RANKS_STEPS, all[model].losses, all[model].norms);
    }
    return &all[model];
}

/* The largest relative difference of the first `count`; what NaN fails. */
static double apart(const double *a, const double *b, int count)
{
    double worst = 0;
    for (int i = 0; i < count; i++)
        worst = ranks_worse(worst, fabs(a[i] - b[i]) / fabs(b[i]));
    return worst;
}

static void run_case(int number, int steps, const struct reference *want, FILE *out)
{
    struct run run;
    struct training got = {.number = number, .steps = steps};
    struct world world = {.planned = &run,
                          .ranks = ranks_world(&ranks_cases[number]),
                          .ahead = number % 3 == 2 ? 2 : 0,
                          .live = live,
                          .context = &got};
    fprintf(out, "%d", number);
    fflush(out);
    if (plan_model(&run, &ranks_cases[number], NULL, SHORT_SEQUENCE)) {
        run.stack.fused_epilogues = ranks_is_fused(&ranks_cases[number]);
        build_program(&run);
        run_world(&world);
        fprintf(out, " %.3g %.3g %.6f", apart(got.losses, want->losses, steps),
                apart(got.norms, want->norms, steps), got.losses[steps - 1]);
    }
    fprintf(out, "\n");
    mcp_arena_free(run.arena);
}

/* --- embeddings in fp32 for a step, then half of what bf16 makes of them --- */

static void plan_mixed(struct run *run, const struct ranks_case *c)
{
    struct mcp_error refused = {"a case of embeddings is not legal"};
    if (!plan_model(run, c, NULL, SHORT_SEQUENCE))
        stop(&refused, "mixed");
    run->job.precision = MCP_PRECISION_BF16;
    run->job.fp32_embedding_steps = 1;
    build_program(run);
}

static void run_mixed(struct mcp_cpu_world *cpu, FILE *out)
{
    const struct ranks_case c = {.model = RANKS_GPT2,
                                 .tensor = 2,
                                 .context = 1,
                                 .pipeline = 1,
                                 .data = 1,
                                 .expert = 1,
                                 .schedule = MCP_1F1B,
                                 .virtual_stages = 1,
                                 .microbatch_size = 2};
    const struct ranks_case alone = ranks_alone(c.model);
    double want[SHORT], norms[SHORT];
    struct run run;
    struct training got = {.steps = SHORT};
    struct world world = {.planned = &run, .ranks = ranks_world(&c), .live = live, .context = &got};
    plan_mixed(&run, &alone);
    train_on_cpu(&run, cpu, SHORT, want, norms);
    plan_mixed(&run, &c);
    run_world(&world);
    fprintf(out, "mixed %.3g\n", apart(got.losses, want, SHORT));
    mcp_arena_free(run.arena);
}

/* --- shards of unequal lengths: ZeRO 2 over two ranks, 3 over four --- */

static void run_uneven(struct mcp_cpu_world *cpu, FILE *out)
{
    static const struct ranks_case cases[] = {
        {0, 1, 1, 1, 1, 1, false, MCP_CONTEXT_RING, 0, false, MCP_1F1B, 1, 2, MCP_RECOMPUTE_NONE},
        {0, 1, 1, 1, 2, 1, false, MCP_CONTEXT_RING, 2, false, MCP_1F1B, 1, 2, MCP_RECOMPUTE_NONE},
        {0, 1, 1, 1, 4, 1, false, MCP_CONTEXT_RING, 3, true, MCP_1F1B, 1, 2, MCP_RECOMPUTE_NONE},
    };
    double losses[SHORT], norms[SHORT], loss = 0, norm = 0;
    struct mcp_error refused = {"a case of uneven shards is not legal"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run;
        struct training got = {.number = (int)i, .steps = SHORT};
        struct world world = {
            .planned = &run, .ranks = ranks_world(&cases[i]), .live = live, .context = &got};
        if (!plan_model(&run, &cases[i], "tests/cuda/models/gpt2-odd.json", SHORT_SEQUENCE))
            stop(&refused, "uneven");
        build_program(&run);
        if (i == 0) {
            train_on_cpu(&run, cpu, SHORT, losses, norms);
            continue;
        }
        run_world(&world);
        loss = ranks_worse(loss, apart(got.losses, losses, SHORT));
        norm = ranks_worse(norm, apart(got.norms, norms, SHORT));
        mcp_arena_free(run.arena);
    }
    fprintf(out, "uneven %.3g %.3g\n", loss, norm);
}

/* --- products in 8 bits --- */

#define EIGHT(t, p, d, sp, zero, reshard, schedule, b, recompute)                                  \
    {                                                                                              \
        RANKS_LLAMA, t, 1, p, d, 1, sp, MCP_CONTEXT_RING, zero, reshard, schedule, 1, b, recompute \
    }
static const struct ranks_case eights[] = {
    EIGHT(1, 1, 1, false, 0, false, MCP_1F1B, 1, MCP_RECOMPUTE_NONE),
    EIGHT(2, 1, 1, true, 0, false, MCP_1F1B, 2, MCP_RECOMPUTE_SELECTIVE),
    EIGHT(1, 1, 2, false, 3, true, MCP_1F1B, 2, MCP_RECOMPUTE_FULL),
    EIGHT(1, 2, 2, false, 1, false, MCP_ZB_H1, 1, MCP_RECOMPUTE_NONE),
    EIGHT(2, 2, 1, true, 0, false, MCP_ZB_H1, 1, MCP_RECOMPUTE_NONE),
};

static void plan_eight(struct run *run, const struct ranks_case *c, enum mcp_precision precision)
{
    struct mcp_error refused = {"a case of 8 bits is not legal"};
    if (!plan_model(run, c, "tests/exec/models/llama-even.json", SHORT_SEQUENCE))
        stop(&refused, "eight");
    run->job.precision = precision;
    run->stack.selective_modules |= MCP_RECOMPUTE_ALTERNATE_MATMULS; /* a product of some rows */
    build_program(run);
}

/* One rank on a CPU in 8 bits and in bf16, one on a GPU; then each layout beside all three. */
static void run_eight(struct mcp_cpu_world *cpu, FILE *out)
{
    enum { EIGHT, BF16, ONE_GPU, OTHERS };
    struct training others[OTHERS] = {{.steps = SHORT}};
    struct run run;
    plan_eight(&run, &eights[0], MCP_PRECISION_FP8);
    train_on_cpu(&run, cpu, SHORT, others[EIGHT].losses, others[EIGHT].norms);
    plan_eight(&run, &eights[0], MCP_PRECISION_BF16);
    train_on_cpu(&run, cpu, SHORT, others[BF16].losses, others[BF16].norms);
    for (size_t i = 0; i < MCP_COUNT_OF(eights); i++) {
        struct training got = {.number = (int)i, .steps = SHORT};
        struct world world = {
            .planned = &run, .ranks = ranks_world(&eights[i]), .live = live, .context = &got};
        plan_eight(&run, &eights[i], MCP_PRECISION_FP8);
        run_world(&world);
        if (i == 0)
            others[ONE_GPU] = got;
        fprintf(out, "eight %d", eights[i].tensor);
        for (int o = 0; o < OTHERS; o++)
            fprintf(out, " %.3g %.3g", apart(got.losses, others[o].losses, SHORT),
                    apart(got.norms, others[o].norms, SHORT));
        fprintf(out, "\n");
        mcp_arena_free(run.arena);
    }
}

/* --- histograms: what the device counts, and what the host does --- */

enum { COUNTED = 3000 };

static void live_histogram(struct world *world, struct run *run, int rank)
{
    (void)rank;
    struct mcp_histogram *both = world->context;
    float *values = MCP_ARRAY(run->arena, COUNTED, float);
    uint32_t state = 1;
    void *memory;
    for (int i = 0; i < COUNTED; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = ldexpf((float)(state >> 8) - 0x1p23f, (int)(state % 61) - 60);
    }
    CHECK(run->calls.allocate(run->backend, COUNTED * sizeof *values, &memory, &err));
    run->calls.write(run->backend, memory, values, COUNTED * sizeof *values);
    for (int part = 0; part < 2; part++) /* the second begins where few do */
        run->calls.histogram(run->backend, (const float *)memory + part * 1001, MCP_F32,
                             part == 0 ? 1001 : COUNTED - 1001, &both[0]);
    mcp_histogram_add(&both[1], values, COUNTED);
}

/* Sums have another order: as far apart as they are, relative to the square root of squares. */
static void run_histogram(FILE *out)
{
    const struct ranks_case alone = ranks_alone(RANKS_GPT2);
    struct mcp_histogram both[2] = {mcp_histogram_new(), mcp_histogram_new()};
    struct run run;
    struct world world = {.planned = &run, .ranks = 1, .live = live_histogram, .context = both};
    if (!plan_model(&run, &alone, NULL, SHORT_SEQUENCE))
        return;
    build_program(&run);
    run_world(&world);
    const double sums = fabs(both[0].sum - both[1].sum) / sqrt(both[1].sum_squares);
    const double squares = both[0].sum_squares / both[1].sum_squares - 1;
    both[0].sum = both[1].sum;
    both[0].sum_squares = both[1].sum_squares;
    fprintf(out, "histogram %d %.3g\n", memcmp(&both[0], &both[1], sizeof both[0]) != 0,
            fmax(sums, fabs(squares)));
    mcp_arena_free(run.arena);
}

/* What runs on CPUs runs on GPUs. */
static void compare_tables(FILE *out)
{
    for (int f = 0; f < MCP_NUM_FUNCTIONS; f++)
        for (int dtype = 0; dtype < MCP_NUM_DTYPES; dtype++)
            if (mcp_cpu_backend.supports((enum mcp_function)f, (enum mcp_dtype)dtype) !=
                mcp_cuda_backend.supports((enum mcp_function)f, (enum mcp_dtype)dtype))
                fprintf(out, "lacks %s %s\n", mcp_functions[f].name, mcp_dtype_names[dtype]);
}

int main(int argc, char **argv)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_cpu_world *cpu = NULL;
    struct reference all[RANKS_MODELS] = {{.made = false}};
    int steps = ranks_full() ? RANKS_STEPS : SHORT;
    char *end = NULL;
    CHECK(mcp_cpu_world_open(arena, &argc, &argv, &cpu, &err));
    long only = argc > 2 ? strtol(argv[2], &end, 10) : -1;
    FILE *out = argc > 1 ? fopen(argv[1], "w") : stdout;
    if (out == NULL)
        return 1;
    if (argc <= 2) {
        compare_tables(out);
        run_eight(cpu, out);
        run_mixed(cpu, out);
        run_uneven(cpu, out);
        run_histogram(out);
    }
    if (argc > 2 ? *end != '\0' : ranks_every() == 1)
        run_drops(out, argc > 2 ? argv[2] : NULL);
    for (int i = 0; i < ranks_num_cases; i++)
        if (ranks_world(&ranks_cases[i]) <= MAX_RANKS &&
            (argc <= 2 ? ranks_is_chosen(i) : *end == '\0' && only == i))
            run_case(i, ranks_cases[i].context > 2 && !ranks_full() ? 1 : steps,
                     reference_of(cpu, all, ranks_cases[i].model), out);
    fclose(out);
    mcp_arena_free(arena);
    return 0;
}
