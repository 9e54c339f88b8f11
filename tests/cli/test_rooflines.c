/* tests/cli/test_rooflines.c: mcpplan-exec-cuda --rooflines on a fake GPU: every op of a program is
 * timed, and what is wrong is said. Times mean nothing there. */
#include "core/json.h"
#include "core/text.h"
#include "tests/cli/place.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

/* $p plans, $e is the executor, $small makes the yardsticks short. */
static int run(const struct place *at, const char *commands)
{
    return place_shell(
        at, mcp_format(at->arena,
                       "p=%s; e=$(dirname $p)/tests/cuda/executor; small='--product-size 16 "
                       "--copy-bytes 4096 --flush-bytes 4096'; export "
                       "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0; { %s; } > @/out 2> @/said",
                       at->program, commands));
}

#define PLAN                                                                                       \
    "$p plan --model @/model.json --cluster dgx-h100 --global-batch-size 4 --sequence-length 16 "  \
    "--stack mcpplan-cuda --dump-program @/step.json > @/planned "

/* Of two microbatches: what runs in each is launched twice as often as what runs in a step. */
Test(rooflines_cuda, every_op_of_a_step_is_timed)
{
    static const char *const functions[] = {"matmul_nt",
                                            "matmul_nn",
                                            "matmul_tn_accumulate",
                                            "attention_forward",
                                            "attention_backward",
                                            "norm_forward",
                                            "norm_backward",
                                            "swiglu_forward",
                                            "residual_forward",
                                            "embedding_forward",
                                            "embedding_backward",
                                            "loss_forward",
                                            "loss_backward",
                                            "sum_squares",
                                            "adam",
                                            "zero",
                                            "rotary_forward"};
    const struct place at = place_new();
    struct mcp_error err = {""};
    struct mcp_json *json, *list;
    const int status = run(
        &at, PLAN "--gpus 1 --microbatch-size 2 && $e --rooflines --program @/step.json --output "
                  "@/rooflines.json --repeats 2 $small");
    cr_assert(eq(int, status, 0), "%s", place_content(&at, "said"));
    const char *table = place_content(&at, "out");
    for (size_t i = 0; i < MCP_COUNT_OF(functions); i++)
        cr_expect(strstr(table, mcp_format(at.arena, "\n  %s ", functions[i])) != NULL,
                  "no %s in %s", functions[i], table);
    cr_assert(mcp_json_read(at.arena, mcp_format(at.arena, "%s/rooflines.json", at.folder), &json,
                            &err) == MCP_OK,
              "%s", err.text);
    cr_assert(mcp_json_array(json, "ops", &list, &err) == MCP_OK, "%s", err.text);
    for (size_t i = 0; i < mcp_json_count(list); i++) {
        struct mcp_json *op = mcp_json_at(list, i);
        const char *name;
        int launches;
        double least_s, median_s;
        cr_assert(mcp_json_string(op, "function", &name, &err) == MCP_OK);
        cr_assert(mcp_json_int(op, "launches", &launches, &err) == MCP_OK);
        cr_assert(mcp_json_double(op, "min_s", &least_s, &err) == MCP_OK);
        cr_assert(mcp_json_double(op, "median_s", &median_s, &err) == MCP_OK);
        cr_expect(least_s > 0 && median_s >= least_s, "%s: %g, %g s", name, least_s, median_s);
        if (mcp_same(name, "attention_forward"))
            cr_expect(eq(int, launches, 4 * 2)); /* layers, microbatches */
        if (mcp_same(name, "loss_forward"))
            cr_expect(eq(int, launches, 2));
    }
    place_leave(&at);
}

/* And a large product in each format. */
Test(rooflines_cuda, products_in_8_bits)
{
    static const char *const found[] = {
        "16 x 16 x 16 in bf16\n",           "16 x 16 x 16 in f8\n",
        "\n  matmul_nt               f8  ", "\n  matmul_nn               f8  ",
        "\n  matmul_tn_accumulate    f8  ", "\n  cast_rows               bf16",
        "\n  cast_columns            bf16", "\n  cast_both               bf16"};
    const struct place at = place_new();
    const int status = run(&at, PLAN "--gpus 1 --precision fp8 && $e --rooflines --program "
                                     "@/step.json --repeats 1 $small");
    cr_assert(eq(int, status, 0), "%s", place_content(&at, "said"));
    const char *table = place_content(&at, "out");
    for (size_t i = 0; i < MCP_COUNT_OF(found); i++)
        cr_expect(strstr(table, found[i]) != NULL, "no %s in %s", found[i], table);
    place_leave(&at);
}

/* All that it may be told; the shell's loop stops where one is told that it does not exist. */
Test(rooflines_cuda, its_options_are_listed)
{
    const struct place at = place_new();
    cr_expect(
        eq(int,
           run(&at, "$e --rooflines --help > @/help && for o in $(sed -n 's/^  \\(--[a-z-]*\\) "
                    ".*/\\1/p' @/help); do $e --rooflines $o '' 2>&1 | grep 'no option' && "
                    "exit 9; done; grep -c '^  --' @/help"),
           0),
        "%s", place_content(&at, "said"));
    cr_expect(eq(str, (char *)(void *)(uintptr_t)place_content(&at, "out"), "6\n"));
    place_leave(&at);
}

struct fault_case {
    char name[40];
    char command[384];
    int status;
    char says[96];
};

ParameterizedTestParameters(rooflines_cuda, faults)
{
    static struct fault_case cases[] = {
        {"no program", "$e --rooflines", 2, "--program is needed"},
        {"an unknown option", "$e --rooflines --programm x", 2, "no option '--programm'"},
        {"no value", "$e --rooflines --program", 2, "--program needs a value"},
        {"an empty file", "$e --rooflines --program ''", 2, "--program: '' is empty"},
        {"an option for a value", "$e --rooflines --output --repeats 2", 2,
         "'--repeats' is no value; a file of that name is ./--repeats"},
        {"no repeats", "$e --rooflines --repeats 0 --program x", 2, "--repeats 0: not a number"},
        {"a size that is none", "$e --rooflines --product-size 1e9 --program x", 2,
         "--product-size 1e9: not a number"},
        {"no such file", "$e --rooflines --program @/none", 3, "none"},
        {"a full disk takes no help", "$e --rooflines --help > /dev/full", 3,
         "cannot write to standard output"},
        {"nowhere to write", "$e --rooflines --program x --output @/none/x", 3, "none/x"},
        {"two ranks", PLAN "--gpus 2 && $e --rooflines --program @/step.json", 5,
         "the program is for 2 ranks: plan with --gpus 1"},
        {"more than the device has",
         PLAN "--gpus 1 && $e --rooflines --program @/step.json --copy-bytes 2000000000", 7,
         "bytes free, and 2000000000 more are needed"},
        {"a size that 8 bits have not",
         PLAN "--gpus 1 --precision fp8 && $e --rooflines --program @/step.json $small "
              "--product-size 24",
         2, "--product-size 24: products in 8 bits are of multiples of 16"},
        {"weights in between 16 bytes",
         "sed -i 's/\"gated_mlp\"/\"qk_norm\": true, &/' @/model.json && " PLAN
         "--gpus 1 --precision fp8 && $e --rooflines --program @/step.json",
         7, "follow others whose number is no multiple of 8, and products in 8 bits are of"},
        {"a GPU without them",
         PLAN "--gpus 1 --precision fp8 && FAKE_CAPABILITY=86 $e --rooflines --program @/step.json",
         7, "Fake H100 has no products in 8 bits, which the plan's precision fp8 needs"},
    };
    return cr_make_param_array(struct fault_case, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct fault_case *c, rooflines_cuda, faults)
{
    const struct place at = place_new();
    const int status = run(&at, c->command);
    const char *said = place_content(&at, "said");
    cr_expect(eq(int, status, c->status), "%s: %s", c->name, said);
    cr_expect(strstr(said, "mcpplan-exec-cuda: ") != NULL, "%s: %s", c->name, said);
    cr_expect(strstr(said, c->says) != NULL, "%s: %s", c->name, said);
    place_leave(&at);
}
