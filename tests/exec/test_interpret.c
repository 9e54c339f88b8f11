/* tests/exec/test_interpret.c: programs that a rank is asked to turn to. */
#include "tests/exec/layouts.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

struct case_other {
    int zero_stage, microbatch_size, num_microbatches, sequence_length;
    char says[128]; /* "": nothing */
};

ParameterizedTestParameters(interpret, others)
{
    static struct case_other cases[] = {
        {0, 1, 2, 32, ""},
        {3, 1, 2, 32, "the program to turn to keeps other buffers than the one to begin with"},
        {0, 2, 2, 32, "turn to has 2 microbatches of 2 x 32 tokens, the one to begin with 2 of 1"},
        {0, 1, 1, 32, "turn to has 1 microbatches of 1 x 32 tokens, the one to begin with 2 of 1"},
        {0, 1, 2, 16, "turn to has 2 microbatches of 1 x 16 tokens, the one to begin with 2 of 1"},
    };
    return cr_make_param_array(struct case_other, cases, sizeof cases / sizeof *cases);
}

static void build(struct setup *s, const struct case_other *c, struct mcp_program *out)
{
    setup_load(s, "tests/exec/models/llama-tiny.json", "dgx-a100", "mcpplan-cpu");
    s->job.sequence_length = c->sequence_length;
    s->job.precision = MCP_PRECISION_FP32;
    s->plan.data_parallel = 2;
    s->plan.zero_stage = c->zero_stage;
    s->plan.microbatch_size = c->microbatch_size;
    setup_finish(s, c->num_microbatches, MCP_RECOMPUTE_NONE);
    mcp_program_build(s->arena, &s->question, &s->plan, out);
}

/* A rank has memory and sequences for the program that it begins with. */
ParameterizedTest(struct case_other *c, interpret, others)
{
    const struct case_other begins = {0, 1, 2, 32, ""};
    struct setup first, second;
    struct mcp_program program, other;
    struct mcp_interpreter *interpreter;
    struct mcp_error err = {""};
    build(&first, &begins, &program);
    build(&second, c, &other);
    struct mcp_rank rank = {.program = &program};
    const struct mcp_interpret_options options = {.others = {&other}};
    enum mcp_status status =
        mcp_interpreter_new(first.arena, &rank, &still_calls, (struct mcp_backend *)first.arena,
                            &options, &interpreter, &err);
    cr_expect(eq(int, (int)status, *c->says == '\0' ? MCP_OK : MCP_INVALID));
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s", err.text);
    mcp_arena_free(first.arena);
    mcp_arena_free(second.arena);
}
