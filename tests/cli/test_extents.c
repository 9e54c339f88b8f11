/* tests/cli/test_extents.c: programs that executors refuse: ops that were given other sizes by hand
 * than their buffers have, and ops without a kernel. */
#include "core/text.h"
#include "tests/cli/place.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

/* $p plans, $e is an executor. */
static int run(const struct place *at, const char *executor, const char *edit)
{
    return place_shell(
        at,
        mcp_format(
            at->arena,
            "p=%s; e=$(dirname $p)/%s; [ -x $e ] || exit 99; "
            "export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 OMP_NUM_THREADS=1 "
            "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; "
            "seq 900 > @/text && $p data tokenize @/text -o @/tokens > @/out 2>&1 && "
            "sed s/200,/300,/ tests/exec/models/gpt2-tiny.json > @/gpt2.json && "
            "$p plan --model @/gpt2.json --cluster dgx-h100 --gpus 1 --stack mcpplan-cuda "
            "--global-batch-size 2 --sequence-length 16 --dump-program @/step.json > @/out 2>&1 && "
            "sed '%s' @/step.json > @/edited.json && ! cmp -s @/step.json @/edited.json && "
            "$e --program @/edited.json --data @/tokens --steps 1 > @/out 2> @/said",
            at->program, executor, edit));
}

/* What no backend has a kernel for, and what to plan with instead. */
Test(extents, what_is_lacking_has_another_way)
{
    static const char *const cases[][2] = {
        {"--precision fp8",
         "cannot run cast in bf16, which layers of type 'layer0' need: plan with "
         "--precision bf16, fp16 or fp32"},
        {"--attention unfused", "layers of type 'layer0' need: plan with --attention flash2"},
        {"--dropout", "layers of type 'layer0' need: plan without --dropout"},
    };
    const struct place at = place_new();
    for (size_t i = 0; i < MCP_COUNT_OF(cases); i++) {
        place_must(&at, mcp_format(at.arena,
                                   "plan --model gpt2 --cluster dgx-h100 --gpus 1 "
                                   "--global-batch-size 1 --sequence-length 16 %s "
                                   "--dump-program @/step.json",
                                   cases[i][0]));
        cr_expect(eq(int,
                     place_shell(&at, mcp_format(at.arena,
                                                 "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 "
                                                 "$(dirname %s)/tests/cuda/executor --rooflines "
                                                 "--program @/step.json > @/out 2> @/said",
                                                 at.program)),
                     MCP_INVALID));
        cr_expect(strstr(place_content(&at, "said"), cases[i][1]) != NULL, "%s",
                  place_content(&at, "said"));
    }
    place_leave(&at);
}

struct edit_case {
    char name[48];
    char edit[128]; /* sed's */
    char says[128];
};

ParameterizedTestParameters(extents, edits)
{
    static struct edit_case cases[] = {
        {"more rows than its operand has",
         "/\"matmul_nt_bias\".*frame.query/s/32, 48, 48/33, 48, 48/",
         "matmul_nt_bias: 33 x 48 numbers of 'attention_norm', where its buffer has 1536"},
        {"more rows of the weights", "/\"matmul_nt_bias\".*frame.query/s/32, 48, 48/1, 100000, 48/",
         "matmul_nt_bias: 100000 x 48 numbers of 'weights', where its buffer has "},
        {"a deeper sum", "/\"matmul_nt_gelu\"/s/32, 96, 48/32, 96, 1099511627776/",
         "matmul_nt_gelu: 32 x 1099511627776 numbers of 'mlp_norm'"},
        {"rows of the weights that end behind them",
         "/\"matmul_nt_gelu\"/s/48, 1, 0, 9/48, 1, 9007199254740992, 9/",
         "matmul_nt_gelu: 9007199254741088 x 48 numbers of 'weights'"},
        {"a larger result", "/\"matmul_nt\".*\"out\"/s/32, 48, 48/48, 48, 32/",
         "matmul_nt: 48 x 48 numbers of 'attention_out', where its buffer has 1536"},
        {"no place for what GELU is of",
         "/\"matmul_nt_gelu\"/s/frame.up frame.active/frame.active/", "reads frame 'up'"},
        {"a product without an epilogue", "/\"matmul_nt\".*\"out\"/s/32, 48, 48/32, 48, 480/",
         "matmul_nt: 32 x 480 numbers of 'attention'"},
        {"a gradient of activations", "/\"matmul_nn\".*d_active/s/32, 96, 48/32, 960, 4/",
         "matmul_nn: 32 x 960 numbers of 'd_active', where its buffer has 3072"},
        {"more columns than any buffer has", "/\"norm_forward\"/s/32, 48/32, 100000/",
         "norm_forward: 32 rows of 100000 numbers of 'x', which has room for rows of 48"},
        {"more zeros than there is room for", "/\"zero\", \"compute/s/, 1, /, 2147483647, /",
         "zero: 6597069763584 numbers of 'gradients', where its buffer has 3072"},
        {"a gradient of weights", "/\"matmul_tn_acc.*\"down\"/s/48, 96, 32/48, 96, 3200/",
         "matmul_tn_accumulate: 3200 x 48 numbers of 'd_branch', where its buffer has 1536"},
    };
    return cr_make_param_array(struct edit_case, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct edit_case *c, extents, edits)
{
    static const char *const executors[] = {"mcpplan-exec-cpu", "tests/cuda/executor"};
    const struct place at = place_new();
    for (size_t i = 0; i < MCP_COUNT_OF(executors); i++) {
        const int status = run(&at, executors[i], c->edit);
        if (status == 99)
            continue; /* no MPI here */
        const char *said = place_content(&at, "said");
        cr_expect(eq(int, status, MCP_INVALID), "%s: %s: %s", c->name, executors[i], said);
        cr_expect(strstr(said, c->says) != NULL, "%s: %s: %s", c->name, executors[i], said);
    }
    place_leave(&at);
}
