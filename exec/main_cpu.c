/* exec/main_cpu.c: mcpplan-exec-cpu: the ranks of a training run on CPUs.
 *
 * Started once per rank: by mcpplan train through mpirun, or by anybody's mpirun or srun.
 *     mpirun -np 4 mcpplan-exec-cpu --program step.json --data text.tokens --steps 100 */
#include "exec/cpu_backend.h"
#include "exec/cpu_binding.h"
#include "exec/main_shared.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define NAME "mcpplan-exec-cpu"

/* Why this rank ends; where another is to blame, which one. */
static void tell_end(const struct mcp_cpu_world *world, enum mcp_status status,
                     const struct mcp_error *err)
{
    char lost[80];
    if (status == MCP_RUN_FAILURE && mcp_cpu_world_find_lost(world, lost, sizeof lost))
        fprintf(stderr, NAME ": %s: %s\n", lost, err->text);
    else
        fprintf(stderr, NAME ": %s\n", err->text);
}

/* Others wait for this rank, or it has waited for them in vain. Who has a reason of its own
 * speaks first, and of those that share one rank 0 does. */
static void end_all(struct mcp_cpu_world *world, enum mcp_status status,
                    const struct mcp_error *err)
{
    if (status == MCP_RUN_FAILURE || mcp_cpu_world_rank(world) > 0)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    tell_end(world, status, err);
    mcp_cpu_world_abort(world, (int)status);
}

/* Who fails first says why; those that only follow are silent. */
static enum mcp_status settle(struct mcp_cpu_world *world, enum mcp_status status,
                              struct mcp_error *err)
{
    struct mcp_error lost;
    double first = status == MCP_OK ? mcp_cpu_world_size(world) : mcp_cpu_world_rank(world);
    double worst = status;
    if (mcp_cpu_world_agree(world, &first, 1, '<', &lost) != MCP_OK ||
        mcp_cpu_world_agree(world, &worst, 1, '>', &lost) != MCP_OK)
        end_all(world, status != MCP_OK ? status : MCP_RUN_FAILURE, status != MCP_OK ? err : &lost);
    if ((int)first == mcp_cpu_world_rank(world))
        fprintf(stderr, NAME ": %s\n", err->text);
    return (enum mcp_status)(int)worst;
}

/* What MPI does without a limit of its own must not wait for ever either: it starts, makes
 * groups of ranks, and ends. */
static void say_stuck(int number)
{
    static const char text[] =
        NAME ": waiting for all ranks to start, or to end, has "
             "taken longer than --timeout-s: one is missing, or has stopped\n";
    (void)number;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(MCP_IO);
    _exit(MCP_RUN_FAILURE);
}

/* From now on, until it is called with 0. */
static void limit_mpi(double timeout_s)
{
    const double most = 1e9; /* seconds */
    signal(SIGALRM, say_stuck);
    alarm((unsigned)ceil(timeout_s < most ? timeout_s : most));
}

/* Of each rank alone: `status` is how its options were. */
static enum mcp_status prepare(struct mcp_arena *arena, struct mcp_cpu_world *world,
                               enum mcp_status status, struct mcp_run_setting *setting,
                               struct mcp_program *program, struct mcp_error *err)
{
    MCP_TRY(status);
    return mcp_load_programs(arena, mcp_cpu_world_size(world), setting, program, err);
}

static enum mcp_status open_run(struct mcp_arena *arena, struct mcp_cpu_world *world,
                                struct mcp_run_setting *setting, struct mcp_run **out,
                                struct mcp_error *err)
{
    const struct mcp_cpu_options cpu = {.timeout_s = setting->options->timeout_s,
                                        .others = {setting->frozen, setting->evaluation}};
    const char *note;
    setting->rank = mcp_cpu_world_rank(world);
    setting->calls = &mcp_cpu_backend;
    MCP_TRY(mcp_cpu_bind(arena, world, &setting->program->plan, &note, err));
    if (note != NULL && setting->rank == 0)
        setting->observer.note(setting->observer.context, note);
    limit_mpi(cpu.timeout_s);
    const enum mcp_status status =
        mcp_cpu_backend_open(arena, world, setting->program, &cpu, &setting->backend, err);
    limit_mpi(0);
    MCP_TRY(status);
    return mcp_run_open(arena, setting, out, err);
}

static enum mcp_status run_rank(struct mcp_arena *arena, struct mcp_cpu_world *world,
                                enum mcp_status status, const struct mcp_run_options *options,
                                struct mcp_error *err)
{
    struct mcp_program program;
    struct mcp_run *run = NULL;
    struct mcp_teller teller =
        mcp_teller_of(NAME, mcp_cpu_world_rank(world), mcp_cpu_world_size(world), options);
    struct mcp_run_setting setting = {
        .options = options, .program = &program, .observer = mcp_teller_observer(&teller)};
    mcp_cpu_world_limit(world, options->timeout_s);
    MCP_TRY(settle(world, prepare(arena, world, status, &setting, &program, err), err));
    MCP_TRY(settle(world, open_run(arena, world, &setting, &run, err), err));
    status = mcp_run_steps(run, err);
    if (status != MCP_OK)
        end_all(world, status, err);
    return status;
}

int main(int argc, char **argv)
{
    int code;
    if (mcp_tell_about(NAME, "", argc, argv, &code))
        return code;
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_cpu_world *world = NULL;
    struct mcp_run_options options = mcp_run_options_default();
    struct mcp_error err = {""};
    mcp_block_requests();
    const enum mcp_status given = mcp_run_options_parse(argc, argv, &options, &err);
    limit_mpi(options.timeout_s);
    enum mcp_status status = mcp_cpu_world_open(arena, &argc, &argv, &world, &err);
    limit_mpi(0);
    if (status == MCP_OK)
        status = run_rank(arena, world, given, &options, &err);
    else
        fprintf(stderr, NAME ": %s\n", err.text);
    limit_mpi(options.timeout_s);
    mcp_arena_free(arena);
    return (int)status;
}
