/* tests/cuda/test_ranks_cuda.c: the CUDA backend on fakes trains every layout to the losses of
 * one rank on CPUs, whatever the order of its streams, and needs each wait of its programs. */
#include "core/arena.h"
#include "core/text.h"
#include "tests/exec/ranks.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 4, PLANS = 11, EIGHTS = 5 };
static const double loss_tolerance = 1e-5, norm_tolerance = 1e-4, mixed_tolerance = 1e-4;

static void judge_case(const char *line)
{
    int number = -1;
    double loss, norm, last;
    int read = sscanf(line, "%d %lf %lf %lf", &number, &loss, &norm, &last);
    cr_assert(number >= 0 && number < ranks_num_cases);
    const struct ranks_case *c = &ranks_cases[number];
    cr_assert(read == 4, "case %d was refused, or has not ended", number);
    cr_expect(loss <= loss_tolerance, "case %d (t %d c %d p %d d %d): losses are %g apart", number,
              c->tensor, c->context, c->pipeline, c->data, loss);
    cr_expect(norm <= norm_tolerance, "case %d: gradient norms are %g apart", number, norm);
}

static void judge_drops(const char *line)
{
    char plan[32];
    int waits, redundant, doubled, unseen;
    cr_assert(
        sscanf(line, "dropped %31s %d %d %d %d", plan, &waits, &redundant, &doubled, &unseen) == 5);
    cr_expect(gt(int, waits, 0), "%s", plan);
    cr_expect(eq(int, redundant, 0), "%s: the program has waits that it need not have", plan);
    cr_expect(eq(int, unseen, 0), "%s: of %d waits", plan, waits);
}

/* In bf16, where the orders of sums differ. */
static int judge_mixed(const char *line)
{
    double apart;
    cr_assert(sscanf(line, "mixed %lf", &apart) == 1);
    cr_expect(apart <= mixed_tolerance, "embeddings in fp32: losses are %g apart", apart);
    return 1;
}

static int judge_uneven(const char *line)
{
    double loss, norm;
    cr_assert(sscanf(line, "uneven %lf %lf", &loss, &norm) == 2);
    cr_expect(loss <= loss_tolerance, "uneven shards: losses are %g apart", loss);
    cr_expect(norm <= norm_tolerance, "uneven shards: gradient norms are %g apart", norm);
    return 1;
}

/* Where sums of another order are rounded to a neighbour in bf16, the cast of it can be one in 8
 * bits, which is 16 or 32 times as far. Tensor ranks add up in bf16; other layouts round as one GPU
 * does. And it is no run in bf16. */
static int judge_eight(const char *line)
{
    int tensor;
    double loss, norm, half, half_norm, one, one_norm;
    cr_assert(sscanf(line, "eight %d %lf %lf %lf %lf %lf %lf", &tensor, &loss, &norm, &half,
                     &half_norm, &one, &one_norm) == 7);
    cr_expect(loss <= 1e-4 && norm <= 3e-3, "8 bits on a CPU are %g and %g apart", loss, norm);
    cr_expect(one <= (tensor > 1 ? 1e-4 : 1e-6) && one_norm <= (tensor > 1 ? 3e-3 : 1e-5),
              "8 bits on one GPU, and of %d tensor ranks, are %g and %g apart", tensor, one,
              one_norm);
    cr_expect(half >= 1.5e-4 && half_norm >= 1e-3, "8 bits and bf16 are %g and %g apart", half,
              half_norm);
    return 1;
}

static int judge_histogram(const char *line)
{
    int differs;
    double sums;
    cr_assert(sscanf(line, "histogram %d %lf", &differs, &sums) == 2);
    cr_expect(not(differs), "a histogram's counts differ");
    cr_expect(sums <= 1e-12, "a histogram's sums are %g apart", sums);
    return 1;
}

static int run_program(struct mcp_arena *arena, const char *file)
{
    const char *mcpplan = getenv("MCPPLAN");
    cr_assert(mcpplan != NULL, "MCPPLAN does not name the program");
    const char *slash = strrchr(mcpplan, '/');
    return system(mcp_format(arena,
                             "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 "
                             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                             "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 " /* Open MPI leaks */
                             "%.*s/tests/cuda/ranks %s",
                             (int)(slash - mcpplan), mcpplan, file));
}

static int count_cases(void)
{
    int count = 0;
    for (int i = 0; i < ranks_num_cases; i++)
        count += ranks_world(&ranks_cases[i]) <= MAX_RANKS && ranks_is_chosen(i);
    return count;
}

Test(ranks_cuda, all)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_text text = mcp_text_new(arena);
    char file[] = "/tmp/mcpplan-ranks-cuda-XXXXXX";
    int descriptor = mkstemp(file), cases = 0, drops = 0, others = 0;
    cr_assert(descriptor >= 0);
    close(descriptor);
    int status = run_program(arena, file);
    bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    cr_expect(ended, "it ended with %d", status);
    cr_assert(mcp_file_read(arena, file, 1 << 20, &text, &err) == MCP_OK, "%s", err.text);
    for (char *line = text.data; line != NULL && *line != '\0';) {
        char *newline = strchr(line, '\n');
        if (newline != NULL)
            *newline = '\0';
        if (mcp_starts_with(line, "dropped")) {
            judge_drops(line);
            drops++;
        } else if (mcp_starts_with(line, "lacks")) {
            cr_expect(false, "the CPU's table and the GPU's differ: %s", line);
        } else if (mcp_starts_with(line, "mixed")) {
            others += judge_mixed(line);
        } else if (mcp_starts_with(line, "uneven")) {
            others += judge_uneven(line);
        } else if (mcp_starts_with(line, "eight")) {
            others += judge_eight(line);
        } else if (mcp_starts_with(line, "histogram")) {
            others += judge_histogram(line);
        } else if (*line >= '0' && *line <= '9') {
            judge_case(line);
            cases++;
        }
        line = newline == NULL ? NULL : newline + 1;
    }
    cr_expect(eq(int, others, 3 + EIGHTS),
              "embeddings in fp32, uneven shards, 8 bits, or histograms have not run");
    cr_expect(eq(int, cases, count_cases()), "not every case has run");
    cr_expect(eq(int, drops, ranks_every() == 1 ? PLANS : 0), "not every plan has run");
    unlink(file);
    mcp_arena_free(arena);
}
