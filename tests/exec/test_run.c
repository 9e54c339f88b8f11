/* tests/exec/test_run.c: options as words, learning rates, new weights. */
#include "core/arena.h"
#include "core/text.h"
#include "exec/init.h"
#include "exec/run_options.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct case_rate {
    char name[40];
    struct mcp_learning_rate rate;
    int64_t step;
    double want;
};
ParameterizedTestParameters(run, rates)
{
    static struct case_rate cases[] = {
        {"the first step of a warm-up", {5e-5, 0, 5000, 0, MCP_DECAY_CONSTANT}, 0, 1e-8},
        {"half of the warm-up", {4, 0, 10, 0, MCP_DECAY_CONSTANT}, 4, 2},
        {"the end of the warm-up", {4, 0, 10, 0, MCP_DECAY_CONSTANT}, 9, 4},
        {"constant for ever", {4, 1, 10, 5, MCP_DECAY_CONSTANT}, 1000, 4},
        {"no warm-up", {4, 0, 0, 0, MCP_DECAY_CONSTANT}, 0, 4},
        {"a quarter along a line", {4, 0, 10, 100, MCP_DECAY_LINEAR}, 35, 3},
        {"the floor of a line", {4, 1, 10, 100, MCP_DECAY_LINEAR}, 110, 1},
        {"below no floor", {4, 1, 10, 100, MCP_DECAY_LINEAR}, 500, 1},
        {"half of a cosine", {4, 2, 0, 100, MCP_DECAY_COSINE}, 50, 3},
        {"the end of a cosine", {4, 2, 0, 100, MCP_DECAY_COSINE}, 100, 2},
        {"no steps to fall in", {4, 2, 3, 0, MCP_DECAY_COSINE}, 3, 2},
    };
    return cr_make_param_array(struct case_rate, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct case_rate *c, run, rates)
{
    double got = mcp_learning_rate_at(&c->rate, c->step);
    cr_expect(fabs(got - c->want) <= 1e-12, "%s: %g, not %g", c->name, got, c->want);
}

struct case_words {
    char name[40];
    char words[6][24];
    enum mcp_status want;
    char says[48];
};
ParameterizedTestParameters(run, words)
{
    static struct case_words cases[] = {
        {"program and data are enough", {"--program", "p", "--data", "d"}, MCP_OK, ""},
        {"a flag", {"--program", "p", "--data", "d", "--no-verify"}, MCP_OK, ""},
        {"nothing", {""}, MCP_USAGE, "--program and --data are needed"},
        {"an unknown option", {"--program", "p", "--speed", "9"}, MCP_USAGE, "'--speed'"},
        {"a word that is no option", {"program"}, MCP_USAGE, "'program'"},
        {"a value left out", {"--program"}, MCP_USAGE, "--program needs a value"},
        {"an option for a value",
         {"--data", "d", "--metrics", "--resume"},
         MCP_USAGE,
         "is an option and no value; a file of that"},
        {"dashes that are no option", {"--program", "--p", "--data", "./--resume"}, MCP_OK, ""},
        {"twice", {"--data", "d", "--data", "e"}, MCP_USAGE, "--data is there twice"},
        {"a count that is none", {"--steps", "many"}, MCP_USAGE, "--steps many"},
        {"a negative rate", {"--learning-rate", "-1"}, MCP_USAGE, "--learning-rate -1"},
        {"no rate of forgetting", {"--beta1", "1"}, MCP_USAGE, "--beta1 1: not a number of 0"},
        {"nor this", {"--beta2", "1.5"}, MCP_USAGE, "below 1"},
        {"division by nothing", {"--epsilon", "0"}, MCP_USAGE, "--epsilon 0: not a number above 0"},
        {"a scale of nothing", {"--initial-loss-scale", "0"}, MCP_USAGE, "above 0"},
        {"a freeze of nothing",
         {"--program", "p", "--data", "d", "--freeze-step", "3"},
         MCP_USAGE,
         "go together"},
        {"an unknown decay", {"--decay", "steep"}, MCP_USAGE, "constant, linear or cosine"},
    };
    return cr_make_param_array(struct case_words, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct case_words *c, run, words)
{
    char program[] = "mcpplan-exec-cpu";
    char *argv[8] = {program};
    int argc = 1;
    struct mcp_error err = {""};
    struct mcp_run_options options = mcp_run_options_default();
    while (argc < 7 && c->words[argc - 1][0] != '\0') {
        argv[argc] = c->words[argc - 1];
        argc++;
    }
    enum mcp_status got = mcp_run_options_parse(argc, argv, &options, &err);
    cr_expect(eq(int, (int)got, (int)c->want), "%s: %s", c->name, err.text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->name, err.text);
}

/* Which every file would be, and none is. */
Test(run, no_file_is_called_nothing)
{
    static const char *const paths[] = {"program",        "frozen-program", "data",
                                        "eval-program",   "eval-data",      "metrics",
                                        "timeline",       "summary",        "tensorboard-dir",
                                        "checkpoint-dir", "export",         "init-from"};
    for (size_t i = 0; i < MCP_COUNT_OF(paths); i++) {
        char name[24], empty[] = "", program[] = "x";
        char *argv[] = {program, name, empty};
        struct mcp_run_options options = mcp_run_options_default();
        struct mcp_error err = {""};
        snprintf(name, sizeof name, "--%s", paths[i]);
        cr_expect(eq(int, (int)mcp_run_options_parse(3, argv, &options, &err), MCP_USAGE));
        cr_expect(mcp_starts_with(err.text, name), "%s", err.text);
        cr_expect(ne(ptr, strstr(err.text, ": '' is empty"), NULL), "%s", err.text);
    }
}

/* A rate that falls does so until the last step, unless it is told when. */
Test(run, decay_takes_the_rest_of_steps)
{
    static const struct {
        char *words[6]; /* until NULL */
        int64_t want;
    } cases[] = {
        {{"--decay", "cosine"}, 90},
        {{"--decay", "linear", "--decay-steps", "7"}, 7},
        {{"--decay", "linear", "--warmup-steps", "200"}, 1},
        {{"--decay", "constant"}, 0},
    };
    for (size_t i = 0; i < MCP_COUNT_OF(cases); i++) {
        char *argv[16] = {"x", "--program", "p", "--data", "d", "--steps", "100"};
        int argc = 7;
        struct mcp_run_options options = mcp_run_options_default();
        struct mcp_error err = {""};
        options.warmup_steps = 10;
        for (int k = 0; cases[i].words[k] != NULL; k++)
            argv[argc++] = cases[i].words[k];
        cr_assert(mcp_run_options_parse(argc, argv, &options, &err) == MCP_OK, "%s", err.text);
        cr_expect(eq(i64, options.decay_steps, cases[i].want), "%s", cases[i].words[1]);
    }
}

struct case_fault {
    char name[40];
    char words[8][24];
    char says[64];
};
ParameterizedTestParameters(run, faults)
{
    static struct case_fault cases[] = {
        {"saved nowhere", {"--checkpoint-every", "5"}, "need --checkpoint-dir"},
        {"gone on from nothing", {"--resume"}, "need --checkpoint-dir"},
        {"exported from nothing", {"--export", "e"}, "need --checkpoint-dir"},
        {"evaluated on nothing", {"--eval-every", "5"}, "need --eval-data"},
        {"an end without a fall", {"--decay-steps", "9"}, "of --decay linear or cosine"},
        {"a floor without a fall", {"--min-learning-rate", "1e-6"}, "linear or cosine"},
        {"a floor above the peak",
         {"--decay", "linear", "--decay-steps", "9", "--min-learning-rate", "1"},
         "above --learning-rate"},
    };
    return cr_make_param_array(struct case_fault, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct case_fault *c, run, faults)
{
    char words[5][24] = {"x", "--program", "p", "--data", "d"};
    char *argv[13];
    int argc = 0;
    struct mcp_error err = {""};
    struct mcp_run_options options = mcp_run_options_default();
    for (int i = 0; i < 5; i++)
        argv[argc++] = words[i];
    for (int i = 0; i < 8 && c->words[i][0] != '\0'; i++)
        argv[argc++] = c->words[i];
    cr_expect(eq(int, (int)mcp_run_options_parse(argc, argv, &options, &err), MCP_USAGE));
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->name, err.text);
}

/* What cli hands over is what the ranks read. */
Test(run, options_there_and_back)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_run_options given = mcp_run_options_default(), got = mcp_run_options_default();
    struct mcp_error err = {""};
    const char **words;
    char *argv[64];
    given.program = "a program.json";
    given.data = "d";
    given.checkpoint_dir = "c";
    given.steps = 1LL << 40;
    given.resume = true;
    given.learning_rate = 0.1 + 0.2;
    given.min_learning_rate = 1e-300;
    given.decay = MCP_DECAY_COSINE;
    given.decay_steps = 1LL << 41;
    given.clip_norm = 0;
    int count = mcp_run_options_words(arena, &given, &words);
    cr_assert(count < 63);
    argv[0] = mcp_strdup(arena, "x");
    for (int i = 0; i < count; i++)
        argv[i + 1] = mcp_strdup(arena, words[i]);
    cr_assert(mcp_run_options_parse(count + 1, argv, &got, &err) == MCP_OK, "%s", err.text);
    cr_expect(eq(str, (char *)got.program, (char *)given.program));
    cr_expect(eq(str, (char *)got.checkpoint_dir, (char *)given.checkpoint_dir));
    cr_expect(got.timeline == NULL);
    got.program = given.program;
    got.data = given.data;
    got.checkpoint_dir = given.checkpoint_dir;
    cr_expect(memcmp(&got, &given, sizeof got) == 0);
    mcp_arena_free(arena);
}

/* Standard normal to the moments that 200,000 numbers show, and no two tensors alike. */
Test(run, new_weights_are_normal)
{
    enum { COUNT = 200000 };
    const uint64_t keys[] = {mcp_init_key(1, "qkv", 1, 0), mcp_init_key(1, "qkv", 2, 0),
                             mcp_init_key(2, "qkv", 1, 0), mcp_init_key(1, "out", 1, 0),
                             mcp_init_key(1, "qkv", 1, 1)};
    for (size_t k = 0; k < MCP_COUNT_OF(keys); k++) {
        double sum = 0, squares = 0, fourths = 0, lag = 0, across = 0;
        for (int64_t x = 0; x < COUNT; x++) {
            double value = (double)mcp_init_normal(keys[k], x);
            sum += value;
            squares += value * value;
            fourths += value * value * value * value;
            lag += value * (double)mcp_init_normal(keys[k], x + 1);
            across += value * (double)mcp_init_normal(keys[(k + 1) % MCP_COUNT_OF(keys)], x);
        }
        cr_expect(fabs(sum / COUNT) <= 0.012, "key %zu: mean %g", k, sum / COUNT);
        cr_expect(fabs(squares / COUNT - 1) <= 0.02, "key %zu: variance %g", k, squares / COUNT);
        cr_expect(fabs(fourths / COUNT - 3) <= 0.2, "key %zu: kurtosis %g", k, fourths / COUNT);
        cr_expect(fabs(lag / COUNT) <= 0.012, "key %zu: lag %g", k, lag / COUNT);
        cr_expect(fabs(across / COUNT) <= 0.012, "key %zu: across %g", k, across / COUNT);
    }
}
