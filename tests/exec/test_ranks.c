/* tests/exec/test_ranks.c: every layout trains to the losses and gradients of one rank, in
 * the bytes that were planned. */
#include "core/arena.h"
#include "core/text.h"
#include "tests/exec/ranks.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of losses over ten steps, and of the first gradients, tensor by tensor. */
static const double loss_tolerance = 1e-5, gradient_tolerance = 1e-4;

struct answer {
    int number, read;
    double loss, norm, gradient, beyond, first, last;
    char which[64];
};

static const char *program_path(struct mcp_arena *arena)
{
    const char *mcpplan = getenv("MCPPLAN");
    if (mcpplan == NULL)
        return NULL;
    const char *slash = strrchr(mcpplan, '/');
    return mcp_format(arena, "%.*s/tests/ranks", (int)(slash - mcpplan), mcpplan);
}

/* mpirun, as it must be asked inside containers and as root. */
static int run_ranks(struct mcp_arena *arena, int world, const char *file)
{
    const char *command =
        mcp_format(arena,
                   "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                   "OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none "
                   "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 "
                   "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 " /* Open MPI leaks */
                   "mpirun --oversubscribe --bind-to none -np %d %s %s",
                   world, program_path(arena), file);
    return system(command);
}

static void judge_case(const char *line, int world)
{
    struct answer answer = {.number = -1}, *a = &answer;
    a->read = sscanf(line, "%d %lf %lf %lf %lf %lf %lf %63s", &a->number, &a->loss, &a->norm,
                     &a->gradient, &a->beyond, &a->first, &a->last, a->which);
    cr_assert(a->number >= 0 && a->number < (ranks_full() ? ranks_product : ranks_num_cases));
    struct ranks_case of_product;
    const struct ranks_case *c = ranks_full() ? &of_product : &ranks_cases[a->number];
    if (ranks_full())
        ranks_of_product(a->number, world, &of_product);
    cr_expect(a->read == 8, "case %d was refused, or has not ended", a->number);
    cr_expect(a->loss <= loss_tolerance, "case %d (t %d c %d p %d d %d): losses are %g apart",
              a->number, c->tensor, c->context, c->pipeline, c->data, a->loss);
    cr_expect(a->norm <= gradient_tolerance, "case %d: gradient norms are %g apart", a->number,
              a->norm);
    cr_expect(a->gradient <= gradient_tolerance, "case %d: the gradient of %s is %g apart",
              a->number, a->which, a->gradient);
    cr_expect(a->beyond == 0, "case %d: %g bytes beyond what was planned", a->number, a->beyond);
    cr_expect(a->last < a->first, "case %d: it has not learnt: %g, then %g", a->number, a->first,
              a->last);
}

/* What ranks tell of themselves beside their cases: "KIND NAME VALUE". */
struct told {
    const char *kind, *name;
    double low, high;
    bool or_nan; /* it may be no number at all */
};
static const struct told told[] = {
    /* a program changed by hand: exact changes change no bit */
    {"edit", "swapped", 0, 1e-6, false},
    {"edit", "dropped", 1e-5, INFINITY, true}, /* losses without a wait */
    {"edit", "recompute_differs", 0, 0, false},
    {"edit", "recompute_ops", 1, INFINITY, false},
    {"edit", "recompute_bytes", -INFINITY, -1, false},
    {"edit", "zero_differs", 0, 0, false},
    {"edit", "zero_1_differs", 0, 0, false},
    {"edit", "zero_3_differs", 0, 0, false},
    {"edit", "zero_2_apart", 0, 1e-6, false},
    {"edit", "schedule_differs", 0, 0, false},
    {"edit", "csv_differs", 0, 0, false},
    {"edit", "csv_halves_apart", 0, 1e-6, false},
    /* 1-bit Adam: until it freezes it is Adam; then its signs are those of one process, what it
     * sends is what signs and scales take, and it goes on learning as Adam does */
    {"bits", "warm_differs", 0, 0, false},
    {"bits", "loss", 0.9, 1.05, false}, /* of Adam's, over the last steps */
    {"bits", "learnt", 0, 0.9, false},  /* of the loss at the freeze */
    {"bits", "replicas_apart", 0, 0, false},
    {"bits", "masked_moved", 0, 0, false},
    {"bits", "masked", 1536, 1536, false}, /* 32 positions beyond the sequence, 48 wide */
    {"bits", "signs_differ", 0, 0, false},
    {"bits", "moments_apart", 0, 1e-6, false},
    {"bits", "bytes_beyond", 0, 0, false},
    {"bits", "bytes_less", 31.5, 32, false}, /* 32 but for scales and padding */
    /* saved activations of 8 bits: forward is exact, gradients are not */
    {"bits", "kept_first_differs", 0, 0, false},
    {"bits", "kept_all_same", 0, 0, false},
    {"bits", "kept_losses_apart", 1e-9, 1e-3, false},
    {"bits", "kept_bytes_beyond", 0, 0, false},
    {"bits", "kept_bytes_share", 0.5, 0.9, false},
    {"bits", "input_bytes_share", 0.9, 0.98, false}, /* of full recompute, which keeps no more */
    /* fp16: gradients overflow at first, on all ranks in the same steps; then it learns */
    {"numbers", "fp16_skips", 3, 8, false}, /* of ten steps */
    {"numbers", "fp16_skips_apart", 0, 0, false},
    {"numbers", "fp16_losses_apart", 0, 2e-3, false},
    {"numbers", "fp16_learnt", 0, 0.99, false},
    {"numbers", "fp16_bytes_beyond", 0, 0, false},
    /* forwards alone: the step's loss to the bit, and nothing else changes */
    {"numbers", "eval_differs", 0, 0, false},
    {"numbers", "eval_changes", 0, 0, false},
    {"numbers", "eval_bytes_beyond", 0, 0, false},
    /* embeddings in fp32 for some steps, then mixed, beside bf16 */
    {"numbers", "embed_losses_apart", 0, 5e-3, false},
    {"numbers", "embed_plain_differs", 1, 1, false},
    {"numbers", "embed_learnt", 0, 0.99, false},
    {"numbers", "embed_bytes_beyond", 0, 0, false},
    /* frozen 1-bit Adam goes on from a checkpoint to the bit */
    {"numbers", "frozen_differs", 0, 0, false},
    {"numbers", "frozen_has_norm", 1, 1, false},
    /* products of 8 bits: as one rank's, in so far as rounding lets them; not bf16's, and they
     * learn as much as bf16 does. A step by weights of the step before would be 1e-2 apart */
    {"eight", "first_loss_apart", 0, 1e-4, false},
    {"eight", "first_norm_apart", 0, 5e-3, false},
    {"eight", "losses_apart", 0, 5e-3, false},
    {"eight", "same_losses_apart", 0, 1e-3, false},
    {"eight", "beside_bf16", 1e-5, 5e-3, false},
    {"eight", "learnt", 0.97, 1.03, false},
    {"eight", "eval_differs", 0, 0, false},
    {"eight", "bytes_beyond", 0, 0, false},
};

static void judge_told(const char *line)
{
    char kind[16], name[32];
    double value = NAN;
    bool known = false;
    cr_assert(sscanf(line, "%15s %31s %lf", kind, name, &value) == 3, "%s", line);
    for (size_t i = 0; i < MCP_COUNT_OF(told); i++) {
        const struct told *want = &told[i];
        if (!mcp_same(kind, want->kind) || !mcp_same(name, want->name))
            continue;
        known = true;
        const bool is_good =
            isnan(value) ? want->or_nan : value >= want->low && value <= want->high;
        cr_expect(is_good, "%s: %g", name, value);
    }
    cr_expect(known, "%s", name);
}

enum { NUM_EDITS = 12 }; /* on two ranks */

/* By world: five of each case in fp16, three of each that is evaluated, four of embeddings in
 * fp32, two of 1-bit Adam. */
static const int num_numbers[] = {[1] = 3 + 4, [2] = 15 + 6 + 4 + 4, [4] = 10 + 9 + 8 + 2, [8] = 0};

/* By world: cases of 1-bit Adam, three of two ranks and three of four; five of 8 bits. */
static const int num_bits[] = {[1] = 15, [2] = 22 + 2 * 5, [4] = 17 + 5, [8] = 0};

/* Seven of each layout. */
static const int num_eight[] = {[1] = 7, [2] = 6 * 7, [4] = 3 * 7, [8] = 7};

struct lines { /* that the ranks wrote */
    int cases, legal, edits, bits, numbers, eight, memory, misplaced;
};

/* What training takes of the machine's memory is what was planned, within a tenth. */
static void judge_memory(const char *line)
{
    char name[32];
    double share = NAN;
    cr_assert(sscanf(line, "memory %31s %lf", name, &share) == 2);
    cr_expect(share > 0.9 && share < 1.1, "%s: %g of the planned bytes are resident", name, share);
}
static const int num_memory[] = {[1] = 2, [2] = 5, [8] = 0};

static void judge_line(const char *line, int world, struct lines *count)
{
    if (mcp_starts_with(line, "edit")) {
        judge_told(line);
        count->edits++;
    } else if (mcp_starts_with(line, "bits")) {
        judge_told(line);
        count->bits++;
    } else if (mcp_starts_with(line, "memory")) {
        judge_memory(line);
        count->memory++;
    } else if (mcp_starts_with(line, "numbers")) {
        judge_told(line);
        count->numbers++;
    } else if (mcp_starts_with(line, "eight")) {
        judge_told(line);
        count->eight++;
    } else if (sscanf(line, "legal %d", &count->legal) != 1 &&
               sscanf(line, "misplaced %d", &count->misplaced) != 1) {
        judge_case(line, world);
        count->cases++;
    }
}

static void judge_lines(char *line, int world, struct lines *count)
{
    while (line != NULL && *line != '\0') {
        char *newline = strchr(line, '\n');
        if (newline != NULL)
            *newline = '\0';
        judge_line(line, world, count);
        line = newline == NULL ? NULL : newline + 1;
    }
}

static int cases_of(int world)
{
    int count = 0;
    for (int i = 0; i < ranks_num_cases; i++)
        count += ranks_world(&ranks_cases[i]) == world && ranks_is_chosen(i);
    return count;
}

static void check_counts(const struct lines *lines, int world)
{
    bool is_whole = !ranks_full() && ranks_every() == 1;
    cr_expect(eq(int, lines->cases, ranks_full() ? lines->legal : cases_of(world)),
              "not every case has run");
    cr_expect(eq(int, lines->edits, world == 2 && is_whole ? NUM_EDITS : 0),
              "not every edit has run");
    cr_expect(eq(int, lines->bits, is_whole ? num_bits[world] : 0),
              "not every case of bits has run");
    cr_expect(eq(int, lines->numbers, is_whole ? num_numbers[world] : 0),
              "not every case of numbers has run");
    cr_expect(eq(int, lines->eight, is_whole ? num_eight[world] : 0),
              "not every case of 8 bits has run");
    cr_expect(eq(int, lines->memory, is_whole ? num_memory[world] : 0),
              "not every layout's memory was looked at");
    cr_expect(lines->cases > 0, "no case has run");
    cr_expect(eq(int, lines->misplaced, 0), "ranks are not on the cores of their places");
    if (ranks_full())
        cr_log_warn("ranks %d: %d cases of the product\n", world, lines->cases);
}

static void check_world(int world)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    char file[] = "/tmp/mcpplan-ranks-XXXXXX";
    int descriptor = mkstemp(file);
    struct lines lines = {.legal = -1, .misplaced = -1};
    cr_assert(descriptor >= 0);
    close(descriptor);
    cr_assert(program_path(arena) != NULL, "MCPPLAN does not name the program");
    int status = run_ranks(arena, world, file);
    bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    cr_expect(ended, "mpirun ended with %d", status);
    struct mcp_text text = mcp_text_new(arena);
    cr_assert(mcp_file_read(arena, file, 64 << 20, &text, &err) == MCP_OK, "%s", err.text);
    judge_lines(text.data, world, &lines);
    check_counts(&lines, world);
    unlink(file);
    mcp_arena_free(arena);
}

Test(ranks, one)
{
    check_world(1);
}

Test(ranks, two)
{
    check_world(2);
}

Test(ranks, four)
{
    check_world(4);
}

Test(ranks, eight)
{
    check_world(8);
}
