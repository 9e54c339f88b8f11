/* exec/main_cpu.c: mcpplan-exec-cpu: the ranks of a training run on CPUs.
 *
 * Started once per rank: by mcpplan train through mpirun, or by anybody's mpirun or srun.
 *     mpirun -np 4 mcpplan-exec-cpu --program step.json --data text.tokens --steps 100 */
#include "core/text.h"
#include "exec/cpu_backend.h"
#include "exec/run.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

struct teller {
    int rank, world;
    bool terminal;
    const struct mcp_run_options *options;
    bool open_line; /* the cursor stands behind a step */
};

static void tell_step(void *context, const struct mcp_step_report *report)
{
    struct teller *teller = context;
    bool last = report->step + 1 == teller->options->steps;
    if (teller->rank != 0)
        return;
    teller->open_line = teller->terminal && !last;
    fprintf(stderr, "%sstep %lld/%lld  loss %.4f  gradient %.3f  rate %.2e  %.0f tokens/s",
            teller->terminal ? "\r" : "", (long long)report->step + 1,
            (long long)teller->options->steps, report->loss, report->grad_norm,
            report->learning_rate, (double)report->tokens / report->step_s);
    if (teller->world > 1)
        fprintf(stderr, "  bubble %.1f %%  exposed communication %.1f %%",
                100 * report->bubble_frac, 100 * report->exposed_comm_frac);
    fputs(teller->open_line ? "" : "\n", stderr);
    fflush(stderr);
}

static void tell_note(void *context, const char *sentence)
{
    struct teller *teller = context;
    fprintf(stderr, "%smcpplan-exec-cpu: note: %s\n", teller->open_line ? "\n" : "", sentence);
    teller->open_line = false;
}

/* SIGTERM is blocked; has it come? */
static bool asks_to_stop(void *context)
{
    (void)context;
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGTERM) == 1;
}

static double wall_clock(void *context)
{
    (void)context;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Who fails first says why; those that only follow are silent. */
static enum mcp_status settle(struct mcp_cpu_world *world, enum mcp_status status,
                              struct mcp_error *err)
{
    double first = status == MCP_OK ? mcp_cpu_world_size(world) : mcp_cpu_world_rank(world);
    double worst = status;
    MCP_TRY(mcp_cpu_world_agree(world, &first, 1, '<', err));
    MCP_TRY(mcp_cpu_world_agree(world, &worst, 1, '>', err));
    if ((int)first == mcp_cpu_world_rank(world))
        fprintf(stderr, "mcpplan-exec-cpu: %s\n", err->text);
    return (enum mcp_status)(int)worst;
}

/* Why this rank ends; where another is to blame, which one. */
static void tell_end(const struct mcp_cpu_world *world, enum mcp_status status,
                     const struct mcp_error *err)
{
    char lost[80];
    if (status == MCP_RUN_FAILURE && mcp_cpu_world_find_lost(world, lost, sizeof lost))
        fprintf(stderr, "mcpplan-exec-cpu: %s: %s\n", lost, err->text);
    else
        fprintf(stderr, "mcpplan-exec-cpu: %s\n", err->text);
}

static enum mcp_status check_world(const struct mcp_cpu_world *world,
                                   const struct mcp_program *program, struct mcp_error *err)
{
    int want = mcp_plan_world(&program->plan), have = mcp_cpu_world_size(world);
    if (want == have)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID, "the program is for %d ranks, and %d have been started", want,
                    have);
}

static enum mcp_status prepare(struct mcp_arena *arena, struct mcp_cpu_world *world, int argc,
                               char **argv, struct mcp_run_options *options,
                               struct mcp_program *program, struct mcp_error *err)
{
    *options = mcp_run_options_default();
    MCP_TRY(mcp_run_options_parse(argc, argv, options, err));
    MCP_TRY(mcp_run_load(arena, options, program, err));
    return check_world(world, program, err);
}

static enum mcp_status open_run(struct mcp_arena *arena, struct mcp_cpu_world *world,
                                struct mcp_run_setting *setting, struct mcp_run **out,
                                struct mcp_error *err)
{
    const struct mcp_cpu_options cpu = {.timeout_s = setting->options->timeout_s};
    mcp_cpu_world_limit(world, setting->options->timeout_s);
    setting->rank = mcp_cpu_world_rank(world);
    setting->calls = &mcp_cpu_backend;
    MCP_TRY(mcp_cpu_backend_open(arena, world, setting->program, &cpu, &setting->backend, err));
    return mcp_run_open(arena, setting, out, err);
}

static enum mcp_status run_rank(struct mcp_arena *arena, struct mcp_cpu_world *world, int argc,
                                char **argv)
{
    struct mcp_run_options options;
    struct mcp_program program;
    struct mcp_run *run = NULL;
    struct mcp_error err = {""};
    struct teller teller = {mcp_cpu_world_rank(world), mcp_cpu_world_size(world),
                            isatty(STDERR_FILENO) == 1, &options, false};
    struct mcp_run_setting setting = {
        .options = &options,
        .program = &program,
        .observer = {tell_step, tell_note, asks_to_stop, wall_clock, &teller}};
    MCP_TRY(settle(world, prepare(arena, world, argc, argv, &options, &program, &err), &err));
    MCP_TRY(settle(world, mcp_run_load_frozen(arena, &options, &setting.frozen, &err), &err));
    MCP_TRY(settle(world, open_run(arena, world, &setting, &run, &err), &err));
    enum mcp_status status = mcp_run_steps(run, &err);
    if (status != MCP_OK) {            /* others wait for this rank */
        if (status == MCP_RUN_FAILURE) /* who has a reason of its own speaks first */
            nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        tell_end(world, status, &err);
        mcp_cpu_world_abort(world, (int)status);
    }
    return status;
}

int main(int argc, char **argv)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_cpu_world *world = NULL;
    struct mcp_error err = {""};
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL); /* before any thread: a checkpoint, then the end */
    signal(SIGXFSZ, SIG_IGN);            /* a file that may not grow is an error like a full disk */
    enum mcp_status status = mcp_cpu_world_open(arena, &argc, &argv, &world, &err);
    if (status == MCP_OK)
        status = run_rank(arena, world, argc, argv);
    else
        fprintf(stderr, "mcpplan-exec-cpu: %s\n", err.text);
    mcp_arena_free(arena);
    return (int)status;
}
