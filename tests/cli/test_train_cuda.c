/* tests/cli/test_train_cuda.c: train --backend cuda starts the executor of GPUs, one a rank, and
 * tells it how ranks meet and what was planned. A script stands in its place. */
#include "core/arena.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static const char script[] =
    "#!/bin/sh\n"
    "echo \"$MASTER_ADDR $MASTER_PORT $MCP_TOKEN $*\" > ${0%/*}/rank$OMPI_COMM_WORLD_RANK\n"
    "[ $OMPI_COMM_WORLD_RANK = 0 ] || exit 0\n"
    "echo 'mcpplan-exec-cuda: note: one GPU is another' >&2\n"
    "echo 'mcpplan-exec-cuda: no CUDA device: too old a driver' >&2\n"
    "exit 7\n";

/* A copy of the program in a new folder, the script beside it: there it looks first. */
static const char *new_folder(struct mcp_arena *arena)
{
    const char *given = getenv("MCPPLAN");
    char *folder = mcp_strdup(arena, "/tmp/mcpplan-cuda-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    const char *path = mcp_format(arena, "%s/mcpplan-exec-cuda", folder);
    cr_assert(eq(int, (int)mcp_file_replace(path, script, strlen(script), NULL), MCP_OK));
    const char *command = mcp_format(arena, "chmod +x %s && cp %s %s/mcpplan", path,
                                     given != NULL ? given : "build/release/mcpplan", folder);
    cr_assert(eq(int, system(command), 0), "%s", command);
    return folder;
}

static const char *text_of(struct mcp_arena *arena, const char *folder, const char *name)
{
    struct mcp_text text = mcp_text_new(arena);
    mcp_file_read(arena, mcp_format(arena, "%s/%s", folder, name), 1 << 20, &text, NULL);
    return text.data;
}

static bool holds(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

Test(train_cuda, ranks_are_told_how_to_meet)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *folder = new_folder(arena);
    const char *command = mcp_format(
        arena,
        "cd %s && export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 && ./mcpplan plan --model "
        "gpt2 --cluster dgx-h100 --gpus 2 --global-batch-size 4 --sequence-length 32 "
        "--tensor-parallel 2 -o plan.json > out 2>&1; ./mcpplan train plan.json --backend cuda "
        "--data x --steps 3 > out 2> said",
        folder);
    int status = system(command);
    const char *first = text_of(arena, folder, "rank0"), *second = text_of(arena, folder, "rank1");
    const char *said = text_of(arena, folder, "said");
    cr_expect(eq(int, WIFEXITED(status) ? WEXITSTATUS(status) : 128, MCP_RUN_FAILURE), "%s", said);
    cr_expect(holds(said, "mcpplan: no CUDA device: too old a driver\n"), "%s", said);
    cr_expect(holds(said, "note: one GPU is another\n"), "%s", said);
    cr_expect(holds(first, "127.0.0.1 ") && holds(first, "--steps 3"), "%s", first);
    cr_expect(holds(first, "--planned-gpu h100-sxm-80gb"), "%s", first);
    cr_expect(holds(first, "--planned-gpus-per-node 2"), "%s", first);
    const size_t meeting = strcspn(first, "-"); /* address, port and token */
    cr_expect(meeting > sizeof "127.0.0.1 " + 32, "%s", first);
    cr_expect(eq(int, strncmp(first, second, meeting), 0), "%s %s", first, second);
    cr_expect(eq(int, system(mcp_format(arena, "rm -r %s", folder)), 0));
    mcp_arena_free(arena);
}
