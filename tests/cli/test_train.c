/* tests/cli/test_train.c: plan, train, stop, go on in another layout; and what is refused. */
#include "core/json.h"
#include "core/text.h"
#include "core/version.h"
#include "tests/cli/place.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* A number of every step of a run.jsonl that has it; returns how many. */
static int numbers(const struct place *at, const char *name, const char *key, double *out, int room)
{
    struct mcp_text text = mcp_text_new(at->arena);
    struct mcp_error err = {""};
    const char *path = mcp_format(at->arena, "%s/%s", at->folder, name);
    int count = 0;
    cr_assert(mcp_file_read(at->arena, path, 1 << 20, &text, &err) == MCP_OK, "%s", err.text);
    for (const char *line = text.data, *end; *line != '\0' && count < room; line = end + 1) {
        struct mcp_json *json;
        end = strchr(line, '\n');
        cr_assert(end != NULL);
        cr_assert(mcp_json_parse(at->arena, path, line, (size_t)(end - line), &json, &err) ==
                      MCP_OK,
                  "%s", err.text);
        if (!mcp_json_has(json, key))
            continue;
        cr_assert(mcp_json_double(json, key, &out[count++], &err) == MCP_OK, "%s", err.text);
    }
    return count;
}

/* Of two runs, `count` numbers alike. */
static void check_alike(const struct place *at, const char *key, int count)
{
    double whole[8], parts[8];
    cr_assert(eq(int, numbers(at, "whole.jsonl", key, whole, 8), count));
    cr_assert(eq(int, numbers(at, "parts.jsonl", key, parts, 8), count));
    for (int i = 0; i < count; i++)
        cr_expect(fabs(whole[i] - parts[i]) <= 1e-5 * whole[i], "%s %d: %g and %g", key, i,
                  whole[i], parts[i]);
    cr_expect(whole[count - 1] < whole[0], "it has not learnt: %g, then %g", whole[0],
              whole[count - 1]);
}

/* Two stages, of which each has cores or none: but not one of them alone. */
static void check_places(const struct place *at)
{
    struct mcp_text text = mcp_text_new(at->arena);
    struct mcp_error err = {""};
    const char *path = mcp_format(at->arena, "%s/places.json", at->folder);
    cr_assert(mcp_file_read(at->arena, path, 1 << 20, &text, &err) == MCP_OK, "%s", err.text);
    const char *first = strstr(text.data, "\"pipeline\": 0");
    const char *second = first == NULL ? NULL : strstr(first, "\"pipeline\": 1");
    cr_assert(second != NULL, "%s", text.data);
    first = strstr(first, "\"cores\": ");
    second = strstr(second, "\"cores\": ");
    cr_assert(first != NULL && second != NULL);
    const bool bound = strstr(text.data, "\"not_bound_because\": null") != NULL;
    cr_expect(eq(int, first[9] != 'n', bound));
    cr_expect(eq(int, second[9] != 'n', bound));
}

/* What a run says of the step that its timeline is of is what a comparison reads from that. */
static void check_shares(const struct place *at, const char *metrics, const char *comparison)
{
    static const char *const keys[] = {"bubble_frac", "exposed_comm_frac"};
    struct mcp_error err = {""};
    struct mcp_json *file, *measured;
    double steps[2][8], want[2] = {-1, -1};
    const char *path = mcp_format(at->arena, "%s/%s", at->folder, comparison);
    bool found = false;
    cr_assert(mcp_json_read(at->arena, path, &file, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_json_object(file, "b", &measured, &err) == MCP_OK, "%s", err.text);
    int count = numbers(at, metrics, keys[0], steps[0], 8);
    cr_assert(eq(int, numbers(at, metrics, keys[1], steps[1], 8), count));
    for (int k = 0; k < 2; k++)
        cr_assert(mcp_json_double(measured, keys[k], &want[k], &err) == MCP_OK, "%s", err.text);
    for (int i = 0; i < count; i++)
        found = found || (fabs(steps[0][i] - want[0]) < 1e-6 && fabs(steps[1][i] - want[1]) < 1e-6);
    cr_expect(found, "no step has a bubble of %g and exposed communication of %g", want[0],
              want[1]);
    cr_expect(want[0] > 0 && want[1] > 0 && want[0] + want[1] < 1);
}

#define EVALUATE "--eval-data @/other.tokens --eval-every 2 --eval-steps 3 "
#define TRAIN "--data @/text.tokens --learning-rate 3e-3 --warmup-steps 3 "

static void make_plans(const struct place *at)
{
    place_must(at, "data tokenize examples/text/fables.txt -o @/other.tokens");
    place_must(at, PLACE_PLAN "--pipeline-parallel 2 -o @/pipeline.json "
                              "--dump-program @/program.json");
    place_must(at, PLACE_PLAN "--tensor-parallel 2 -o @/tensor.json");
}

/* What a run says of itself: where it began, how many steps it did, its checkpoint; and the loss
 * that its metrics end with. */
static void check_facts(const struct place *at, const char *name, const int64_t *want,
                        const char *metrics)
{
    static const char *const keys[] = {"first_step", "steps", "checkpoint_step"};
    struct mcp_json *json;
    struct mcp_error err = {""};
    struct mcp_text text = mcp_text_new(at->arena);
    const char *path = mcp_format(at->arena, "%s/%s", at->folder, name);
    double loss = -1, seconds = -1;
    cr_assert(mcp_json_read(at->arena, path, &json, &err) == MCP_OK, "%s", err.text);
    for (int i = 0; i < 3; i++) {
        int64_t got = -1; /* null */
        if (mcp_json_has(json, keys[i]))
            cr_expect(mcp_json_int64(json, keys[i], &got, &err) == MCP_OK);
        cr_expect(eq(i64, got, want[i]), "%s: %s", name, keys[i]);
    }
    cr_assert(mcp_json_double(json, "loss", &loss, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_json_double(json, "seconds", &seconds, &err) == MCP_OK && seconds > 0);
    cr_expect(mcp_json_has(json, "eval_loss"));
    path = mcp_format(at->arena, "%s/%s", at->folder, metrics);
    cr_assert(mcp_file_read(at->arena, path, 1 << 20, &text, &err) == MCP_OK);
    const char *last = strstr(text.data, "\"step\":5,\"loss\":");
    double logged = -2;
    cr_assert(last != NULL && sscanf(last, "\"step\":5,\"loss\":%lf", &logged) == 1);
    cr_expect(loss / logged - 1 < 1e-6 && logged / loss - 1 < 1e-6, "%.9g, %.9g", loss, logged);
}

/* What a run tells of memory is what was planned for the fullest stage, here the second one. */
static void check_memory(const struct place *at, const char *plan, const char *metrics)
{
    static const char *const parts[] = {"weights_bytes", "gradients_bytes", "optimizer_bytes",
                                        "activations_bytes", "buffers_bytes"};
    struct mcp_error err = {""};
    struct mcp_json *file, *predicted, *memory;
    double planned = 0, told[8];
    cr_assert(mcp_json_read(at->arena, mcp_format(at->arena, "%s/%s", at->folder, plan), &file,
                            &err) == MCP_OK);
    cr_assert(mcp_json_object(file, "predicted", &predicted, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_json_object(predicted, "memory", &memory, &err) == MCP_OK, "%s", err.text);
    for (size_t i = 0; i < MCP_COUNT_OF(parts); i++) {
        double bytes = NAN;
        cr_assert(mcp_json_double(memory, parts[i], &bytes, &err) == MCP_OK, "%s", err.text);
        planned += bytes;
    }
    cr_assert(ge(int, numbers(at, metrics, "peak_memory_bytes", told, 8), 1));
    cr_expect(told[0] == planned, "%.0f bytes were planned, %.0f are told of", planned, told[0]);
}

/* The last line of what a run said: a note that begins and ends so. */
static void check_last_line(const struct place *at, const char *begins, const char *ends)
{
    const char *said = place_content(at, "said"), *last = said;
    for (const char *end = said; (end = strchr(end, '\n')) != NULL && end[1] != '\0';)
        last = ++end;
    cr_expect(mcp_starts_with(last, mcp_format(at->arena, "mcpplan: note: trained %s", begins)),
              "%s", said);
    ends = place_spelled(at, ends);
    cr_expect(strlen(last) > strlen(ends) && mcp_same(last + strlen(last) - strlen(ends), ends),
              "%s", said);
}

/* Six steps at once; or four in one layout and two in another: the same losses, those of
 * evaluations too. */
Test(train, goes_on_in_another_layout)
{
    struct place at = place_new();
    make_plans(&at);
    place_must(&at, "train @/pipeline.json " TRAIN EVALUATE "--steps 6 --metrics @/whole.jsonl "
                    "--program @/program.json --timeline @/timeline.json -o @/all_facts.json");
    place_must(&at, "train @/pipeline.json " TRAIN EVALUATE "--steps 4 --metrics @/parts.jsonl "
                    "--checkpoint-dir @/run --checkpoint-every 3");
    check_last_line(&at, "steps 1 to 4 of 4: 1,024 tokens in ",
                    " in all; the checkpoint of step 4 in @/run; metrics in @/parts.jsonl\n");
    cr_expect(ne(ptr, strstr(place_content(&at, "said"), ", evaluation "), NULL));
    place_must(&at, "train @/tensor.json " TRAIN EVALUATE "--steps 6 --metrics @/parts.jsonl "
                    "--checkpoint-dir @/run --resume --json");
    cr_expect(eq(ptr, strstr(place_content(&at, "said"), "trained"), NULL), "it is in the JSON");
    check_facts(&at, "all_facts.json", (int64_t[]){0, 6, -1}, "whole.jsonl");
    check_facts(&at, "out", (int64_t[]){4, 2, 6}, "parts.jsonl");
    place_must(&at, "train @/tensor.json " TRAIN "--steps 6 --checkpoint-dir @/run --resume");
    check_last_line(&at, "no steps; ", " in all; the checkpoint of step 6 in @/run\n");
    check_memory(&at, "pipeline.json", "whole.jsonl");
    check_alike(&at, "loss", 6);
    check_alike(&at, "eval_loss", 3);
    place_must(&at, "train @/pipeline.json --dry-run --json -o @/places.json");
    check_places(&at);
    place_must(&at, "compare @/pipeline.json @/timeline.json --json -o @/comparison.json");
    check_shares(&at, "whole.jsonl", "comparison.json");
    place_leave(&at);
}

/* One sentence, and the exit code of its kind. */
struct wrong {
    const char *command;
    int code;
    const char *says;
};

static void check_wrong(const struct place *at, const struct wrong *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int code = place_run(at, cases[i].command);
        const char *text = place_content(at, "said");
        cr_expect(eq(sz, strcspn(text, "\n") + 1, strlen(text)), "%s: not one sentence: %s",
                  cases[i].command, text);
        cr_expect(eq(int, code, cases[i].code), "%s: %s", cases[i].command, text);
        cr_expect(ne(ptr, strstr(text, cases[i].says), NULL), "%s: %s", cases[i].command, text);
    }
}

Test(train, says_what_is_wrong)
{
    static const struct wrong cases[] = {
        {"train", 2, "PLAN"},
        {"train @/pipeline.json --steps 1", 2, "--data"},
        {"train @/pipeline.json --data @/text.tokens", 2, "--steps"},
        {"train @/none.json " TRAIN "--steps 1", 3, "none.json"},
        {"train @/model.json " TRAIN "--steps 1", 4, "schema"},
        {"train @/pipeline.json " TRAIN "--steps 1 --program @/tensor.json", 4, "tensor.json"},
        {"train @/pipeline.json " TRAIN "--steps 1 --eval-steps 2", 2, "--eval-data"},
        {"train @/dropout.json " TRAIN "--steps 1", 5, "dropout"},
        {"train @/one.json --data @/spoilt.tokens --steps 9 --warmup-steps 9", 4,
         "mcpplan-exec-cpu: "},
    };
    struct place at = place_new();
    make_plans(&at);
    place_must(&at, PLACE_PLAN "--pipeline-parallel 2 --dropout -o @/dropout.json");
    place_must(&at, "plan --model @/model.json --cluster dgx-a100 --gpus 1 --global-batch-size 8 "
                    "--sequence-length 32 --precision fp32 --stack mcpplan-cpu --attention flash2 "
                    "-o @/one.json");
    cr_assert(place_shell(&at, "cd @; (head -c -64 text.tokens | tr '\\0-\\377' '\\377'; "
                               "tail -c 64 text.tokens) > spoilt.tokens") == 0);
    check_wrong(&at, cases, MCP_COUNT_OF(cases));
    cr_expect(ne(ptr, strstr(place_content(&at, "said"), "beyond a vocabulary"), NULL));
    place_leave(&at);
}

#define EIGHT                                                                                      \
    "plan --model @/model.json --cluster dgx-h100 --gpus 1 --global-batch-size 8 "                 \
    "--sequence-length 32 --attention flash2 --microbatch-size 2 "

/* Products of 8 bits are run where the stack's programs cast for them; they are not bf16's. */
Test(train, multiplies_in_8_bits)
{
    static const struct wrong others[] = {
        {"train @/other.json " TRAIN "--steps 4", 5, "casts_operands"},
    };
    struct place at = place_new();
    double eight[8], half[8];
    place_must(&at, EIGHT "--precision fp8 --stack mcpplan-cpu -o @/eight.json");
    place_must(&at, EIGHT "--precision bf16 --stack mcpplan-cpu -o @/half.json");
    place_must(&at, EIGHT "--precision fp8 --stack megatron-core -o @/other.json");
    place_must(&at, "train @/eight.json " TRAIN "--steps 4 --metrics @/eight.jsonl");
    place_must(&at, "train @/half.json " TRAIN "--steps 4 --metrics @/half.jsonl");
    cr_assert(eq(int, numbers(&at, "eight.jsonl", "loss", eight, 8), 4));
    cr_assert(eq(int, numbers(&at, "half.jsonl", "loss", half, 8), 4));
    for (int i = 0; i < 4; i++)
        cr_expect(eight[i] != half[i] && fabs(eight[i] - half[i]) <= 5e-3 * half[i], "%d: %g, %g",
                  i, eight[i], half[i]);
    cr_expect(eight[3] < eight[0], "it has not learnt: %g, then %g", eight[0], eight[3]);
    check_wrong(&at, others, MCP_COUNT_OF(others));
    place_leave(&at);
}

/* What can be seen is seen before ranks start: here there is no mpirun to start them. */
Test(train, looks_before_it_starts)
{
#define LOOK "train @/pipeline.json " TRAIN "--steps 1 "
    static const struct wrong cases[] = {
        {"train @/pipeline.json --data @/none.tokens --steps 1", 3, "none.tokens"},
        {"train @/pipeline.json --data @ --steps 1", 4, "cut.tokens"},
        {"train @/pipeline.json --data @/model.json --steps 1", 4, "model.json"},
        {"train @/small.json --data @/text.tokens --steps 1", 5, "vocab_size"},
        {"train @/long.json --data @/text.tokens --steps 1", 5, "hold no sequence of 60000"},
        {LOOK "--eval-data @/none.tokens", 3, "none.tokens"},
        {LOOK "--eval-data @/other.tokens --eval-steps 9999", 5, "at most --eval-steps"},
        {LOOK "--program @/none.json", 3, "none.json"},
        {LOOK "--init-from @/none", 3, "none"},
        {LOOK "--init-from tests/golden/hugging_face/llama", 5, "the model's is [260, 48]"},
        {LOOK "--timeline @/none/t.json", 3, "none/t.json"},
        {LOOK "--metrics @/model.json", 5, "choose another --metrics"},
        {LOOK "--metrics @/none/m.jsonl", 3, "none/m.jsonl"},
        {LOOK "--tensorboard-dir @/none/here", 3, "none/here"},
        {LOOK "--checkpoint-dir @/model.json", 3, "Not a directory"},
        {LOOK "--checkpoint-dir @/new --metrics @/new.jsonl", 7, "cannot start mpirun"},
    };
    struct place at = place_new();
    make_plans(&at);
    cr_assert(place_shell(&at,
                          "cd @; sed 's/\"vocab_size\": 260/\"vocab_size\": 200/' "
                          "pipeline.json > small.json; "
                          "sed 's/\"sequence_length\": 32/\"sequence_length\": 60000/' "
                          "pipeline.json > long.json; "
                          "(head -c 64 text.tokens; tail -c 64 text.tokens) > cut.tokens") == 0);
    setenv("PATH", "/nowhere", 1);
    check_wrong(&at, cases, MCP_COUNT_OF(cases));
    setenv("PATH", "/usr/bin:/bin", 1);
    cr_expect(place_shell(&at, "test -e @/new -o -e @/new.jsonl") != 0, "looking has made files");
    place_leave(&at);
}

/* What the executors are, without any launcher. */
Test(train, executors_tell_about_themselves)
{
    static const char *const names[] = {"mcpplan-exec-cpu", "tests/cuda/executor"};
    struct place at = place_new();
    for (size_t i = 0; i < MCP_COUNT_OF(names); i++) {
        const char *program = place_program(&at, names[i]);
        cr_expect(place_shell(&at, mcp_format(at.arena, "%s --help > @/out", program)) == 0);
        cr_expect(ne(ptr, strstr(place_content(&at, "out"), "\n  --steps N\n"), NULL));
        cr_expect(place_shell(&at, mcp_format(at.arena, "%s --version > @/out", program)) == 0);
        cr_expect(ne(ptr, strstr(place_content(&at, "out"), MCP_VERSION "\n"), NULL));
    }
    place_leave(&at);
}
