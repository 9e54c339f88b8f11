/* exec/main_shared.c: an executor's words, and what it asks the system. */
#include "exec/main_shared.h"

#include "core/version.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void tell_step(void *context, const struct mcp_step_report *report)
{
    struct mcp_teller *teller = context;
    bool last = report->step + 1 == teller->options->steps;
    if (teller->rank != 0)
        return;
    teller->open_line = teller->terminal && !last && !report->evaluated;
    fprintf(stderr, "%sstep %lld/%lld  loss %.4f  gradient %.3f  rate %.2e  %.0f tokens/s",
            teller->terminal ? "\r" : "", (long long)report->step + 1,
            (long long)teller->options->steps, report->loss, report->grad_norm,
            report->learning_rate, (double)report->tokens / report->step_s);
    if (teller->world > 1)
        fprintf(stderr, "  bubble %.1f %%  exposed communication %.1f %%",
                100 * report->bubble_frac, 100 * report->exposed_comm_frac);
    if (report->evaluated)
        fprintf(stderr, "  evaluation %.4f", report->eval_loss);
    fputs(teller->open_line ? "" : "\n", stderr);
    fflush(stderr);
}

static void tell_note(void *context, const char *sentence)
{
    struct mcp_teller *teller = context;
    fprintf(stderr, "%s%s: note: %s\n", teller->open_line ? "\n" : "", teller->program, sentence);
    teller->open_line = false;
}

/* mpirun passes SIGUSR1 on to all ranks, and after SIGTERM gives them no time. */
static bool asks_to_stop(void *context)
{
    struct mcp_teller *teller = context;
    sigset_t pending;
    sigpending(&pending);
    const bool asked = sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGUSR1) == 1;
    if (asked && teller->open_line) { /* no step follows */
        fputs("\n", stderr);
        teller->open_line = false;
    }
    return asked;
}

static double wall_clock(void *context)
{
    (void)context;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct mcp_teller mcp_teller_of(const char *program, int rank, int world,
                                const struct mcp_run_options *options)
{
    return (struct mcp_teller){.program = program,
                               .rank = rank,
                               .world = world,
                               .terminal = isatty(STDERR_FILENO) == 1,
                               .options = options};
}

struct mcp_run_observer mcp_teller_observer(struct mcp_teller *teller)
{
    return (struct mcp_run_observer){tell_step, tell_note, asks_to_stop, wall_clock, teller};
}

static void add_usage(struct mcp_text *text, const char *program, const char *more)
{
    mcp_text_add(
        text,
        "usage: %s --program FILE --data FILE [options]\n\n"
        "One rank of a training run. mcpplan train starts as many as its plan has; so may\n"
        "anybody's launcher, each with the same words. FILE is a step program that\n"
        "mcpplan plan --dump-program wrote. What options mean: mcpplan train --help.\n\n",
        program);
    mcp_run_options_list(text);
    mcp_text_add(text, "%s", more);
}

enum mcp_status mcp_tell(const char *text, struct mcp_error *err)
{
    if (fputs(text, stdout) >= 0 && fflush(stdout) == 0)
        return MCP_OK;
    return mcp_fail(err, MCP_IO, "cannot write to standard output: %s", strerror(errno));
}

bool mcp_tell_about(const char *program, const char *more, int argc, char **argv, int *code)
{
    const char *word = argc > 1 ? argv[1] : "";
    const bool helps = mcp_same(word, "--help") || mcp_same(word, "-h");
    struct mcp_error err;
    if (!helps && !mcp_same(word, "--version"))
        return false;
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_text text = mcp_text_new(arena);
    if (helps)
        add_usage(&text, program, more);
    else
        mcp_text_add(&text, "%s %s\n", program, MCP_VERSION);
    *code = (int)mcp_tell(text.data, &err);
    if (*code != MCP_OK)
        fprintf(stderr, "%s: %s\n", program, err.text);
    mcp_arena_free(arena);
    return true;
}

void mcp_block_requests(void)
{
    sigset_t requests;
    sigemptyset(&requests);
    sigaddset(&requests, SIGTERM);
    sigaddset(&requests, SIGUSR1);
    sigprocmask(SIG_BLOCK, &requests, NULL);
    signal(SIGXFSZ, SIG_IGN);
}

static enum mcp_status check_world(const struct mcp_program *program, int world,
                                   struct mcp_error *err)
{
    int want = mcp_plan_world(&program->plan);
    if (want == world)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID, "the program is for %d ranks, and %d have been started", want,
                    world);
}

enum mcp_status mcp_load_programs(struct mcp_arena *arena, int world,
                                  struct mcp_run_setting *setting, struct mcp_program *program,
                                  struct mcp_error *err)
{
    const struct mcp_run_options *options = setting->options;
    MCP_TRY(mcp_run_load(arena, options, program, err));
    MCP_TRY(check_world(program, world, err));
    MCP_TRY(mcp_run_load_other(arena, options, options->frozen_program, &setting->frozen, err));
    return mcp_run_load_other(arena, options, options->eval_program, &setting->evaluation, err);
}
