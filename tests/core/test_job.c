/* tests/core/test_job.c: jobs have defaults, limits and a faithful file form. */
#include "core/job.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

static enum mcp_status parse(struct mcp_arena *arena, const char *text, struct mcp_job *out,
                             struct mcp_error *err)
{
    struct mcp_json *json;
    MCP_TRY(mcp_json_parse(arena, "j.json", text, strlen(text), &json, err));
    MCP_TRY(mcp_job_from_json(arena, json, out, err));
    return mcp_json_done(json, err);
}

static const char *written(struct mcp_arena *arena, const struct mcp_job *job)
{
    struct mcp_json *json = mcp_json_new_object(arena);
    mcp_job_to_json(job, json);
    return mcp_json_text(arena, json);
}

Test(job, round_trips)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    const struct mcp_job job = {.global_batch_size = 1536,
                                .sequence_length = 8192,
                                .precision = MCP_PRECISION_MXFP8,
                                .dropout = true,
                                .attention = "flash2",
                                .memory_limit_frac = 0.9,
                                .optimizer = MCP_OPTIMIZER_ONE_BIT_ADAM,
                                .phase = MCP_PHASE_FROZEN,
                                .freeze_step = 150,
                                .num_steps = 1000,
                                .clip_global_norm = MCP_CLIP_OFF,
                                .fp32_embedding_steps = 1000};
    struct mcp_job again;
    const char *text = written(arena, &job);
    cr_assert(eq(int, parse(arena, text, &again, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(str, (char *)written(arena, &again), (char *)text));
    cr_expect(eq(i64, again.global_batch_size, (int64_t)1536));
    cr_expect(eq(int, (int)again.precision, MCP_PRECISION_MXFP8));
    cr_expect(again.dropout);
    cr_expect(mcp_job_is_frozen(&again));
    cr_expect(eq(i64, again.fp32_embedding_steps, (int64_t)1000));
    cr_expect(mcp_job_embeds_in_fp32(&again));
    cr_expect(eq(dbl, mcp_job_warm_frac(&again), 0.15));
    mcp_arena_free(arena);
}

struct case_job {
    char text[160];
    enum mcp_status want;
    char says[80];
};
ParameterizedTestParameters(job, read)
{
    static struct case_job cases[] = {
        {"{\"global_batch_size\": 8, \"sequence_length\": 128}", MCP_OK, ""},
        {"{\"sequence_length\": 128}", MCP_FORMAT, "global_batch_size"},
        {"{\"global_batch_size\": 0, \"sequence_length\": 128}", MCP_INVALID,
         "j.json: global_batch_size=0 is not between 1 and"},
        {"{\"global_batch_size\": 8, \"sequence_length\": 4294967296}", MCP_INVALID,
         "sequence_length=4294967296"},
        {"{\"global_batch_size\": 8.5, \"sequence_length\": 128}", MCP_FORMAT, "global_batch_size"},
        {"{\"global_batch_size\": 8, \"sequence_length\": 128, \"precision\": \"fp18\"}",
         MCP_FORMAT, "fp1"},
        {"{\"global_batch_size\": 8, \"sequence_length\": 128, \"memory_limit_frac\": 1.2}",
         MCP_INVALID, "memory_limit_frac=1.2"},
        {"{\"global_batch_size\": 8, \"sequence_length\": 128, \"fp32_embedding_steps\": -1}",
         MCP_FORMAT, "fp32_embedding_steps: got -1"},
        {"{\"global_batch_size\": 8, \"sequence_length\": 128, \"memory_limit_frac\": 0}",
         MCP_INVALID, "memory_limit_frac=0 "},
        {"{\"global_batch_size\": 8, \"sequence_length\": 128, \"optimizer\": \"one_bit_adam\", "
         "\"phase\": \"warm\"}",
         MCP_OK, ""},
        {"{\"global_batch_size\": 8, \"sequence_length\": 128, \"optimizer\": \"sgd\"}", MCP_FORMAT,
         "one_bit_adam"},
        {"{\"global_batch_size\": 8, \"sequence_length\": 128, \"phase\": \"frozen\"}", MCP_INVALID,
         "phase=frozen is of optimizer one_bit_adam"},
        {"{\"global_batch_size\": 8, \"sequence_length\": 128, \"optimizer\": \"one_bit_adam\", "
         "\"freeze_step\": 9, \"num_steps\": 8}",
         MCP_INVALID, "freeze_step=9 is after the last of num_steps=8"},
        {"{\"global_batch_size\": 8, \"sequence_length\": 128, \"saved_activation_bits\": 8}",
         MCP_OK, ""},
        {"{\"global_batch_size\": 8, \"sequence_length\": 128, \"saved_activation_bits\": 4}",
         MCP_INVALID, "saved_activation_bits=4 is neither 8 nor 0"},
        {"{\"global_batch_size\": 8, \"sequence_length\": 128, \"sequence_lenght\": 1}", MCP_FORMAT,
         "sequence_lenght"},
    };
    return cr_make_param_array(struct case_job, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_job *c, job, read)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {""};
    struct mcp_job job;
    cr_expect(eq(int, parse(arena, c->text, &job, &err), (int)c->want), "%s: %s", c->text,
              err.text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->text, err.text);
    mcp_arena_free(arena);
}

Test(job, defaults_are_legal)
{
    struct mcp_error err = {""};
    const struct mcp_job job = mcp_job_default();
    cr_expect(eq(int, mcp_job_check(&job, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(dbl, job.memory_limit_frac, 0.94));
    cr_expect(eq(dbl, mcp_job_warm_frac(&job), 1.0));
}
