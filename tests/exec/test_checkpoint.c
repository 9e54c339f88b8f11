/* tests/exec/test_checkpoint.c: a checkpoint is whole or not there; pieces of any cut come
 * back from pieces of another. */
#include "core/text.h"
#include "exec/checkpoint.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ROWS = 6, COLUMNS = 5 };

static struct mcp_arena *arena;
static char folder[64];

static void set_up(void)
{
    arena = mcp_arena_new();
    snprintf(folder, sizeof folder, "/tmp/mcp-test-checkpoint-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(folder), NULL));
}

static void tear_down(void)
{
    cr_expect(eq(int, system(mcp_format(arena, "rm -r %s", folder)), 0));
    mcp_arena_free(arena);
}

/* A new file, as the old one may be mapped; without syncing, as there are many. */
static void put_file(const char *name, const char *data, size_t length)
{
    unlink(name);
    FILE *file = fopen(name, "wb");
    cr_assert(ne(ptr, file, NULL));
    cr_assert(eq(sz, fwrite(data, 1, length, file), length));
    cr_assert(eq(int, fclose(file), 0));
}

/* A rectangle of tensor "w", whose element (r, c) is 10 r + c. */
static struct mcp_piece piece_of(int first_row, int rows, int first_column, int columns)
{
    struct mcp_piece piece = {.tensor_rows = ROWS,
                              .tensor_columns = COLUMNS,
                              .first_row = first_row,
                              .rows = rows,
                              .first_column = first_column,
                              .columns = columns};
    snprintf(piece.name, sizeof piece.name, "w");
    return piece;
}

static float element(const struct mcp_piece *piece, int64_t i)
{
    return (float)(10 * (piece->first_row + i / piece->columns) + piece->first_column +
                   i % piece->columns);
}

static struct mcp_checkpoint_part part_of(const struct mcp_piece *piece, int64_t begin,
                                          int64_t count)
{
    float *data = MCP_ARRAY(arena, count, float);
    for (int64_t i = 0; i < count; i++)
        data[i] = element(piece, begin + i);
    return (struct mcp_checkpoint_part){{MCP_VALUE_WEIGHTS, piece, begin, count}, data};
}

/* Two ranks that halve the columns; of the right half the first rank has two shards. */
static void write_set(int64_t step, bool finish)
{
    const struct mcp_piece left = piece_of(0, ROWS, 0, 2), right = piece_of(0, ROWS, 2, 3);
    struct mcp_checkpoint_part first[] = {part_of(&left, 0, 12), part_of(&right, 0, 7)};
    struct mcp_checkpoint_part second[] = {part_of(&right, 7, 11)};
    const struct mcp_checkpoint_parts of_first = {first, 2, NULL}, of_second = {second, 1, NULL};
    const struct mcp_checkpoint_state state = {
        step, 16 * step, 0xfedcba9876543210, step - 1, 1, 32768, 5, 77};
    struct mcp_file_digest digests[2];
    struct mcp_error err = {0};
    cr_assert(eq(int, mcp_checkpoint_begin(arena, folder, step, &err), MCP_OK), "%s", err.text);
    cr_assert(eq(int,
                 mcp_checkpoint_write(arena, &(struct mcp_checkpoint_file){folder, step, 0},
                                      &of_first, &digests[0], &err),
                 MCP_OK),
              "%s", err.text);
    cr_assert(eq(int,
                 mcp_checkpoint_write(arena, &(struct mcp_checkpoint_file){folder, step, 1},
                                      &of_second, &digests[1], &err),
                 MCP_OK),
              "%s", err.text);
    if (finish)
        cr_assert(eq(int, mcp_checkpoint_commit(arena, folder, &state, 2, digests, &err), MCP_OK),
                  "%s", err.text);
}

static const struct mcp_checkpoint *newest(struct mcp_text *passed_over)
{
    const struct mcp_checkpoint *checkpoint;
    struct mcp_error err = {0};
    *passed_over = mcp_text_new(arena);
    cr_assert(
        eq(int, mcp_checkpoint_newest(arena, folder, NULL, &checkpoint, passed_over, &err), MCP_OK),
        "%s", err.text);
    return checkpoint;
}

Test(checkpoint, state, .init = set_up, .fini = tear_down)
{
    struct mcp_text passed_over;
    write_set(3, true);
    const struct mcp_checkpoint *checkpoint = newest(&passed_over);
    cr_assert(ne(ptr, (void *)checkpoint, NULL));
    const struct mcp_checkpoint_state state = mcp_checkpoint_state(checkpoint);
    cr_expect(eq(i64, state.step, 3));
    cr_expect(eq(i64, state.sequences_seen, 48));
    cr_expect(eq(u64, state.seed, 0xfedcba9876543210));
    cr_expect(eq(i64, state.updates, 2));
    cr_expect(eq(i64, state.variance_updates, 1));
    cr_expect(state.loss_scale == 32768);
    cr_expect(eq(i64, state.steps_since_skip, 5));
    cr_expect(eq(i64, state.data_sequences, 77));
}

/* Every rectangle, in full and from every element on, comes back. */
Test(checkpoint, any_piece, .init = set_up, .fini = tear_down)
{
    struct mcp_text passed_over;
    struct mcp_error err = {0};
    float out[ROWS * COLUMNS];
    write_set(1, true);
    const struct mcp_checkpoint *checkpoint = newest(&passed_over);
    for (int cut = 0; cut < ROWS * ROWS * COLUMNS * COLUMNS; cut++) {
        const int row = cut % ROWS, rows = cut / ROWS % ROWS + 1;
        const int column = cut / (ROWS * ROWS) % COLUMNS,
                  columns = cut / (ROWS * ROWS * COLUMNS) + 1;
        if (row + rows > ROWS || column + columns > COLUMNS)
            continue;
        const struct mcp_piece piece = piece_of(row, rows, column, columns);
        const int64_t all = (int64_t)rows * columns;
        for (int64_t begin = 0; begin <= all; begin += 2) {
            cr_assert(eq(int,
                         mcp_checkpoint_read(checkpoint,
                                             &(struct mcp_value_range){MCP_VALUE_WEIGHTS, &piece,
                                                                       begin, all - begin},
                                             out, &err),
                         MCP_OK),
                      "%s", err.text);
            for (int64_t i = 0; i < all - begin; i++)
                if (out[i] != element(&piece, begin + i))
                    cr_fail("%d rows from %d, %d columns from %d, element %d", rows, row, columns,
                            column, (int)(begin + i));
        }
    }
}

Test(checkpoint, what_is_not_in_it, .init = set_up, .fini = tear_down)
{
    struct mcp_text passed_over;
    struct mcp_error err = {0};
    float out[64];
    write_set(1, true);
    const struct mcp_checkpoint *checkpoint = newest(&passed_over);
    struct mcp_piece piece = piece_of(0, ROWS, 0, COLUMNS);
    cr_expect(eq(int,
                 mcp_checkpoint_read(
                     checkpoint, &(struct mcp_value_range){MCP_VALUE_FIRST_MOMENT, &piece, 0, 30},
                     out, &err),
                 MCP_INVALID));
    cr_expect(ne(ptr, strstr(err.text, "no first_moment of w at row 0, column 0"), NULL), "%s",
              err.text);
    piece.tensor_rows = 7;
    cr_expect(eq(int,
                 mcp_checkpoint_read(checkpoint,
                                     &(struct mcp_value_range){MCP_VALUE_WEIGHTS, &piece, 0, 30},
                                     out, &err),
                 MCP_INVALID));
    cr_expect(ne(ptr, strstr(err.text, "w is [6, 5], the model's is [7, 5]"), NULL), "%s",
              err.text);
}

Test(checkpoint, nothing_yet, .init = set_up, .fini = tear_down)
{
    struct mcp_text passed_over;
    cr_expect(eq(ptr, (void *)newest(&passed_over), NULL));
    write_set(2, false);
    cr_expect(eq(ptr, (void *)newest(&passed_over), NULL));
    cr_expect(ne(ptr, strstr(passed_over.data, "was not finished"), NULL), "%s", passed_over.data);
    write_set(3, false);
    cr_expect(eq(ptr, (void *)newest(&passed_over), NULL));
    cr_expect(ne(ptr, strstr(passed_over.data, "3: was not finished; "), NULL), "%s",
              passed_over.data);
    cr_expect(eq(ptr, strchr(passed_over.data, '\n'), NULL), "%s", passed_over.data);
}

Test(checkpoint, an_unfinished_one_is_passed_over, .init = set_up, .fini = tear_down)
{
    struct mcp_text passed_over;
    write_set(1, true);
    write_set(2, false);
    const struct mcp_checkpoint *checkpoint = newest(&passed_over);
    cr_assert(ne(ptr, (void *)checkpoint, NULL));
    cr_expect(eq(i64, mcp_checkpoint_state(checkpoint).step, 1));
    cr_expect(ne(ptr, strstr(passed_over.data, "000002: was not finished"), NULL), "%s",
              passed_over.data);
}

/* Beginning again takes the old one away: it must not look whole while it is replaced. */
/* A file that may not grow is refused like one on a full disk: the set before is the newest. */
Test(checkpoint, no_room_for_a_file, .init = set_up, .fini = tear_down)
{
    const struct mcp_piece left = piece_of(0, ROWS, 0, 2);
    struct mcp_checkpoint_part part = part_of(&left, 0, 12);
    const struct mcp_checkpoint_parts parts = {&part, 1, NULL};
    struct mcp_file_digest digest;
    struct mcp_text passed_over;
    struct mcp_error err = {0};
    struct rlimit before, small;
    write_set(3, true);
    cr_assert(eq(int, mcp_checkpoint_begin(arena, folder, 6, &err), MCP_OK), "%s", err.text);
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){64, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    enum mcp_status got = mcp_checkpoint_write(arena, &(struct mcp_checkpoint_file){folder, 6, 0},
                                               &parts, &digest, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    cr_expect(eq(int, got, MCP_IO));
    cr_expect(ne(ptr, strstr(err.text, "File too large"), NULL), "%s", err.text);
    cr_expect(ne(ptr, strstr(err.text, "rank-00000"), NULL), "%s", err.text);
    const struct mcp_checkpoint *checkpoint = newest(&passed_over);
    cr_assert(ne(ptr, (void *)checkpoint, NULL));
    cr_expect(eq(i64, mcp_checkpoint_state(checkpoint).step, 3));
}

Test(checkpoint, begun_again, .init = set_up, .fini = tear_down)
{
    struct mcp_text passed_over;
    write_set(1, true);
    write_set(2, true);
    write_set(2, false);
    cr_expect(eq(i64, mcp_checkpoint_state(newest(&passed_over)).step, 1));
    write_set(2, true);
    cr_expect(eq(i64, mcp_checkpoint_state(newest(&passed_over)).step, 2));
}

Test(checkpoint, pruning, .init = set_up, .fini = tear_down)
{
    static const bool left[] = {false, false, true, false, true, true};
    struct mcp_error err = {0};
    for (int step = 0; step < 6; step++)
        write_set(step, step != 3 && step != 5); /* 3 and 5 were never finished */
    cr_assert(eq(int, mcp_checkpoint_prune(arena, folder, 2, &err), MCP_OK), "%s", err.text);
    for (int step = 0; step < 6; step++) {
        const char *path = mcp_format(arena, "%s/step-%012d", folder, step);
        /* 3 lies between the two that are kept: the next pruning takes it */
        cr_expect(eq(int, access(path, F_OK) == 0, left[step] || step == 3), "step %d", step);
    }
    write_set(6, true);
    cr_assert(eq(int, mcp_checkpoint_prune(arena, folder, 2, &err), MCP_OK), "%s", err.text);
    cr_expect(ne(int, access(mcp_format(arena, "%s/step-%012d", folder, 3), F_OK), 0));
}

struct case_damage {
    char file[32];
    long keep;     /* bytes of it; < 0: so many less */
    long flip;     /* byte to change, from the end when < 0; 1 << 20: none */
    char says[40]; /* "": harmless */
};
enum { NO_FLIP = 1 << 20 };
ParameterizedTestParameters(checkpoint, damage)
{
    static struct case_damage cases[] = {
        {"rank-00000.safetensors", 0, NO_FLIP, "0 bytes, its manifest says"},
        {"rank-00000.safetensors", -1, NO_FLIP, "its manifest says"},
        {"rank-00001.safetensors", 20, NO_FLIP, "20 bytes, its manifest says"},
        {"rank-00000.safetensors", NO_FLIP, -1, "its checksum is another"},
        {"rank-00001.safetensors", NO_FLIP, -20, "its checksum is another"},
        {"rank-00001.safetensors", NO_FLIP, 0, "its checksum is another"},
        {"rank-00001.safetensors", NO_FLIP, 60, "its checksum is another"},
        {"manifest.json", 0, NO_FLIP, "empty"},
        {"manifest.json", -30, NO_FLIP, "manifest.json: line"},
        {"manifest.json", NO_FLIP, 5, "manifest.json"},
    };
    return cr_make_param_array(struct case_damage, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_damage *c, checkpoint, damage, .init = set_up, .fini = tear_down)
{
    struct mcp_text whole, passed_over;
    struct mcp_error err = {0};
    write_set(1, true);
    write_set(2, true);
    const char *path = mcp_format(arena, "%s/step-%012d/%s", folder, 2, c->file);
    cr_assert(eq(int, mcp_file_read(arena, path, 1 << 20, &whole, &err), MCP_OK));
    const long length = (long)whole.length;
    const long kept = c->keep < 0 ? length + c->keep : c->keep < length ? c->keep : length;
    if (c->flip != NO_FLIP)
        whole.data[c->flip < 0 ? length + c->flip : c->flip] ^= 1;
    put_file(path, whole.data, (size_t)kept);
    const struct mcp_checkpoint *checkpoint = newest(&passed_over);
    cr_assert(ne(ptr, (void *)checkpoint, NULL));
    cr_expect(eq(i64, mcp_checkpoint_state(checkpoint).step, 1));
    cr_expect(ne(ptr, strstr(passed_over.data, c->says), NULL), "%s", passed_over.data);
    cr_assert(eq(int, system(mcp_format(arena, "rm -r %s/step-%012d", folder, 1)), 0));
    cr_expect(eq(int, mcp_checkpoint_newest(arena, folder, NULL, &checkpoint, &passed_over, &err),
                 MCP_FORMAT));
    cr_expect(ne(ptr, strstr(err.text, "all 1 checkpoints in it are damaged"), NULL), "%s",
              err.text);
}

/* No flipped bit of a manifest gives another state. */
Test(checkpoint, manifest_bits, .init = set_up, .fini = tear_down)
{
    struct mcp_text whole;
    struct mcp_error err = {0};
    write_set(2, true);
    const char *path = mcp_format(arena, "%s/step-%012d/manifest.json", folder, 2);
    cr_assert(eq(int, mcp_file_read(arena, path, 1 << 20, &whole, &err), MCP_OK));
    for (size_t bit = 0; bit < 8 * whole.length; bit += 9) {
        const struct mcp_checkpoint *checkpoint;
        whole.data[bit / 8] ^= (char)(1 << bit % 8);
        put_file(path, whole.data, whole.length);
        if (mcp_checkpoint_open(arena, folder, 2, false, &checkpoint, &err) == MCP_OK) {
            const struct mcp_checkpoint_state state = mcp_checkpoint_state(checkpoint);
            cr_expect(state.step == 2 && state.sequences_seen == 32 && state.loss_scale == 32768 &&
                          state.seed == 0xfedcba9876543210 && state.steps_since_skip == 5 &&
                          state.updates == 1 && state.variance_updates == 1 &&
                          state.data_sequences == 77,
                      "bit %zu", bit);
        }
        whole.data[bit / 8] ^= (char)(1 << bit % 8);
    }
}

Test(checkpoint, a_missing_file, .init = set_up, .fini = tear_down)
{
    struct mcp_text passed_over;
    write_set(1, true);
    write_set(2, true);
    unlink(mcp_format(arena, "%s/step-%012d/rank-00001.safetensors", folder, 2));
    cr_expect(eq(i64, mcp_checkpoint_state(newest(&passed_over)).step, 1));
    cr_expect(ne(ptr, strstr(passed_over.data, "rank-00001.safetensors: No such"), NULL), "%s",
              passed_over.data);
}
