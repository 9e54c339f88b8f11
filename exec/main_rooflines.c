/* exec/main_rooflines.c: the options of --rooflines, a device, a table. */
#include "exec/main_rooflines.h"

#include "core/file.h"
#include "core/mesh.h"
#include "exec/cuda_backend.h"
#include "exec/cuda_rooflines.h"
#include "exec/cuda_runtime.h"
#include "exec/main_shared.h"

#include <stdio.h>

struct settings {
    struct mcp_run_options run; /* the program's name */
    const char *output;
    struct mcp_cuda_rooflines_options measure;
};

/* --- options --- */

static const char usage[] =
    "usage: mcpplan-exec-cuda --rooflines --program FILE [options]\n\n"
    "Times each op of a step program of one rank alone on this GPU, beside a large product and a\n"
    "large copy: docs/GPU.md. FILE is what mcpplan plan --gpus 1 --dump-program wrote.\n\n"
    "  --program FILE\n"
    "  --output FILE      the table as JSON too\n"
    "  --repeats N        launches of an op that are timed (20)\n"
    "  --product-size N   rows, columns and depth of the large product (8192)\n"
    "  --copy-bytes N     of the large copy (512 MiB)\n"
    "  --flush-bytes N    of other memory, read before each op (256 MiB)\n";

/* A number from 1 on, into what takes no more than `most`. */
static enum mcp_status read_count(const char *name, const char *text, int64_t most, int64_t *out,
                                  struct mcp_error *err)
{
    if (mcp_parse_int64(text, out) && *out >= 1 && *out <= most)
        return MCP_OK;
    return mcp_fail(err, MCP_USAGE, "%s %s: not a number from 1 to %lld", name, text,
                    (long long)most);
}

/* No name of an option, which stands there where the value was left out. */
static enum mcp_status read_path(const char *name, const char *text, const char **out,
                                 struct mcp_error *err)
{
    if (*text == '\0')
        return mcp_fail(err, MCP_USAGE, "%s: '' is empty", name);
    if (mcp_starts_with(text, "--"))
        return mcp_fail(err, MCP_USAGE, "%s: '%s' is no value; a file of that name is ./%s", name,
                        text, text);
    *out = text;
    return MCP_OK;
}

static enum mcp_status take(struct settings *s, const char *name, const char *text,
                            struct mcp_error *err)
{
    struct mcp_cuda_rooflines_options *m = &s->measure;
    const struct {
        const char *name;
        int64_t *count, most;
    } counts[] = {{"--product-size", &m->product_size, 1 << 17},
                  {"--copy-bytes", &m->copy_bytes, INT64_C(1) << 40},
                  {"--flush-bytes", &m->flush_bytes, INT64_C(1) << 40}};
    int64_t repeats = 0;
    if (mcp_same(name, "--program"))
        return read_path(name, text, &s->run.program, err);
    if (mcp_same(name, "--output"))
        return read_path(name, text, &s->output, err);
    if (mcp_same(name, "--repeats")) {
        MCP_TRY(read_count(name, text, 1 << 20, &repeats, err));
        m->repeats = (int)repeats;
    } else {
        for (size_t i = 0; i < MCP_COUNT_OF(counts); i++)
            if (mcp_same(name, counts[i].name))
                return read_count(name, text, counts[i].most, counts[i].count, err);
        return mcp_fail(err, MCP_USAGE, "there is no option '%s' of --rooflines", name);
    }
    return MCP_OK;
}

static enum mcp_status parse(int argc, char **argv, struct settings *s, struct mcp_error *err)
{
    for (int i = 2; i < argc; i += 2) {
        if (i + 1 == argc)
            return mcp_fail(err, MCP_USAGE, "%s needs a value", argv[i]);
        MCP_TRY(take(s, argv[i], argv[i + 1], err));
    }
    return s->run.program != NULL ? MCP_OK : mcp_fail(err, MCP_USAGE, "--program is needed");
}

/* --- measuring --- */

static enum mcp_status check_world(const struct mcp_program *program, struct mcp_error *err)
{
    const int world = mcp_plan_world(&program->plan);
    return world == 1 ? MCP_OK
                      : mcp_fail(err, MCP_INVALID,
                                 "rooflines are of one GPU alone, and the program is for %d ranks: "
                                 "plan with --gpus 1",
                                 world);
}

/* The first device that this process sees. */
static enum mcp_status open_device(struct mcp_arena *arena, const struct mcp_program *program,
                                   struct mcp_backend **backend, const char **name,
                                   struct mcp_error *err)
{
    const struct mcp_nccl_place alone = {.rank = 0, .size = 1};
    const struct mcp_cuda_options options = {.timed = false};
    struct mcp_nccl_world *world;
    struct mcp_cuda_facts facts;
    int count;
    MCP_TRY(mcp_cuda_count(&count, err));
    MCP_TRY(mcp_cuda_choose(0, err));
    MCP_TRY(mcp_cuda_facts_of(0, &facts, err));
    *name = mcp_strdup(arena, facts.name);
    MCP_TRY(mcp_nccl_world_open(arena, &alone, &world, err));
    return mcp_cuda_backend_open(arena, world, program, &options, backend, err);
}

static enum mcp_status put(struct mcp_arena *arena, const struct mcp_rooflines *rooflines,
                           const char *output, struct mcp_error *err)
{
    struct mcp_text text = mcp_text_new(arena);
    mcp_rooflines_text(rooflines, &text);
    MCP_TRY(mcp_tell(text.data, err));
    return output == NULL ? MCP_OK
                          : mcp_json_write(output, mcp_rooflines_json(arena, rooflines), err);
}

static enum mcp_status measure(struct mcp_arena *arena, int argc, char **argv,
                               struct mcp_error *err)
{
    struct settings settings = {.run = mcp_run_options_default(),
                                .measure = mcp_cuda_rooflines_default()};
    struct mcp_rooflines rooflines = {.device = NULL};
    struct mcp_program program;
    struct mcp_backend *backend;
    if (argc > 2 && (mcp_same(argv[2], "--help") || mcp_same(argv[2], "-h")))
        return mcp_tell(usage, err);
    MCP_TRY(parse(argc, argv, &settings, err));
    if (settings.output != NULL)
        MCP_TRY(mcp_file_check_place(arena, settings.output, err));
    MCP_TRY(mcp_run_load(arena, &settings.run, &program, err));
    MCP_TRY(check_world(&program, err));
    MCP_TRY(open_device(arena, &program, &backend, &rooflines.device, err));
    MCP_TRY(
        mcp_cuda_rooflines_measure(arena, backend, &program, &settings.measure, &rooflines, err));
    return put(arena, &rooflines, settings.output, err);
}

int mcp_main_rooflines(int argc, char **argv)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    const enum mcp_status status = measure(arena, argc, argv, &err);
    if (status != MCP_OK)
        fprintf(stderr, "mcpplan-exec-cuda: %s\n", err.text);
    mcp_arena_free(arena);
    return (int)status;
}
