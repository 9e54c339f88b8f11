/* tests/core/test_model_megatron.c: Megatron's arguments in every form, good and bad. */
#include "core/model_megatron.h"
#include "core/shell_words.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum mcp_status read_text(struct mcp_arena *arena, const char *text, struct mcp_model *model,
                                 struct mcp_error *err)
{
    MCP_TRY(mcp_model_from_megatron(arena, "run.sh", text, model, err));
    return mcp_model_check(model, err);
}

/* --- one model, said in several ways --- */

#define LLAMA_7B                                                                                   \
    " --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32"         \
    " --vocab-size 32000 --swiglu --normalization RMSNorm --disable-bias-linear"                   \
    " --position-embedding-type rope --untie-embeddings-and-output-weights"

struct good_case {
    char name[64];
    char text[1200];
    int64_t parameters;
    char note[96];
};
ParameterizedTestParameters(megatron, good)
{
    static struct good_case cases[] = {
        {"a shell script",
         "#!/bin/bash\n# Llama 2 7B\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\nNUM_LAYERS=32\n"
         "ARGS=\"--foo\"\ntorchrun pretrain_gpt.py \\\n  --num-layers $NUM_LAYERS \\\n"
         "  --hidden-size 4096 \\\n  --ffn-hidden-size=11008 \\\n  --num-attention-heads 32 \\\n"
         "  --tensor-model-parallel-size $TP --seq-length ${SEQ} # tokens\\\n"
         "  --vocab-size ${VOCAB:-32000} --swiglu --normalization RMSNorm \\\n"
         "  --disable-bias-linear --use-rotary-position-embeddings \\\n"
         "  --untie-embeddings-and-output-weights\n",
         6738415616, "SEQ"},
        {"one line", LLAMA_7B, 6738415616, ""},
        {"a list of arguments",
         "args = [\"--num-layers\", \"32\", \"--hidden-size\", \"4096\", \"--ffn-hidden-size\", "
         "\"11008\",\n\"--num-attention-heads\", \"32\", \"--vocab-size\", \"32000\", "
         "\"--swiglu\",\n"
         "'--normalization', 'RMSNorm', '--disable-bias-linear', '--position-embedding-type', "
         "'rope', '--untie-embeddings-and-output-weights']",
         6738415616, ""},
        {"YAML of flags",
         "MODEL_ARGS:\n  # sizes\n  --num-layers: 32\n  --hidden-size: 4096\n"
         "  --ffn-hidden-size: 11008\n  --num-attention-heads: 32\n  --vocab-size: 32000\n"
         "  --swiglu: true\n  --normalization: RMSNorm\n  --disable-bias-linear: true\n"
         "  --position-embedding-type: rope\n  --untie-embeddings-and-output-weights: true\n"
         "  # --num-experts: 8\n  --group-query-attention: false\n  --load: ${LOAD_PATH}\n",
         6738415616, "LOAD_PATH"},
        {"YAML of keys",
         "num_layers: 32\nhidden_size: 4096\nffn_hidden_size: 11008\nnum_attention_heads: 32\n"
         "vocab_size: 32000\nswiglu: true\nnormalization: RMSNorm\ndisable_bias_linear: true\n"
         "position_embedding_type: rope\nuntie_embeddings_and_output_weights: true\n",
         6738415616, ""},
        {"Windows line ends",
         "--num-layers 32 \\\r\n--hidden-size 4096 \\\r\n--ffn-hidden-size 11008 \\\r\n"
         "--num-attention-heads 32 \\\r\n--vocab-size 32000 \\\r\n--swiglu \\\r\n"
         "--normalization RMSNorm \\\r\n--disable-bias-linear \\\r\n"
         "--position-embedding-type rope \\\r\n--untie-embeddings-and-output-weights\r\n",
         6738415616, ""},
        /* GPT-2 124M with 50304 rows: all of Megatron's own defaults */
        {"defaults: biases, LayerNorm, learned positions, tied, 4 h",
         "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --max-position-embeddings "
         "1024 "
         "--tokenizer-type GPT2BPETokenizer",
         124439808 + 768 * (50304 - 50257), ""},
        /* Qwen2-57B-A14B as in its config.json, without the gate of the shared expert */
        {"experts in every layer",
         "--num-layers 28 --hidden-size 3584 --ffn-hidden-size 2560 --num-attention-heads 28 "
         "--group-query-attention --num-query-groups 4 --num-experts 64 --moe-router-topk 8 "
         "--moe-shared-expert-intermediate-size 20480 --swiglu --normalization RMSNorm "
         "--disable-bias-linear --add-qkv-bias --use-rotary-position-embeddings "
         "--untie-embeddings-and-output-weights --tokenizer-model Qwen/Qwen2-57B-A14B",
         57408558592, ""},
        {"rotary positions need no number, a window is named",
         "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --vocab-size 50304 "
         "--position-embedding-type rope --max-position-embeddings $SEQ --window-size 128,0",
         124439808 + 768 * (50304 - 50257) - 768 * 1024,
         "--window-size (read as full attention), variables that nothing sets (SEQ)"},
    };
    return cr_make_param_array(struct good_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct good_case *c, megatron, good)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_model model;
    cr_expect(mcp_is_megatron(c->text), "%s", c->name);
    cr_assert(read_text(arena, c->text, &model, &err) == MCP_OK, "%s: %s", c->name, err.text);
    const struct mcp_parameters count = mcp_model_parameters(&model);
    cr_expect(eq(i64, mcp_parameters_total(&count), c->parameters), "%s", c->name);
    cr_expect(strstr(model.ignored, c->note) != NULL, "%s: %s", c->name, model.ignored);
    cr_expect(strstr(model.ignored, "NUM_LAYERS") == NULL, "%s: %s", c->name, model.ignored);
    mcp_arena_free(arena);
}

/* --- which layers have experts --- */

struct pattern_case {
    char freq[48];
    char want[8]; /* E or d of six layers; "" : refused */
};
ParameterizedTestParameters(megatron, pattern)
{
    static struct pattern_case cases[] = {
        {"1", "EEEEEE"},
        {"2", "EdEdEd"},
        {"([0]*2+[1]*4)", "ddEEEE"},
        {"[0]+[1]*5", "dEEEEE"},
        {"[0,1]*3", "dEdEdE"},
        {"\"'([0] * 1 + [1] * 5)'\"", "dEEEEE"},
        {"([0]+([1]+[0])*2+[1])", "dEdEdE"},
        {"[0]*0+[1]*6", "EEEEEE"},
        {"0", ""},
        {"[1]*5", ""},
        {"[1]*7", ""},
        {"[1]*99999999999999999999", ""},
        {"[1]*", ""},
        {"([1]*6", ""},
        {"((((((((((((([1])))))))))))))", ""},
        {"[1]*6)", ""},
        {"lambda: 6", ""},
    };
    return cr_make_param_array(struct pattern_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct pattern_case *c, megatron, pattern)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_model model;
    const char *text =
        mcp_format(arena,
                   "--num-layers 6 --hidden-size 64 --num-attention-heads 8 --vocab-size 100 "
                   "--swiglu --use-rotary-position-embeddings --num-experts 4\n"
                   "--moe-layer-freq=%s\n",
                   c->freq);
    const enum mcp_status got = read_text(arena, text, &model, &err);
    cr_expect(eq(int, got == MCP_OK, c->want[0] != '\0'), "%s: %s", c->freq, err.text);
    for (int i = 0; got == MCP_OK && i < 6; i++)
        cr_expect(eq(int, mcp_model_layer(&model, i)->mlp == MCP_MLP_EXPERTS, c->want[i] == 'E'),
                  "%s, layer %d", c->freq, i);
    if (got != MCP_OK)
        cr_expect(strstr(err.text, "run.sh: --moe-layer-freq") != NULL, "%s", err.text);
    mcp_arena_free(arena);
}

/* --- refusals --- */

struct bad_case {
    char name[48];
    char text[400];
    int want;
    char says[80];
};
ParameterizedTestParameters(megatron, bad)
{
    static struct bad_case cases[] = {
        {"nothing", "", MCP_FORMAT, "--num-layers: missing"},
        {"a variable that nothing sets", "--num-layers ${L} --hidden-size 64", MCP_FORMAT,
         "--num-layers ${L}: nothing in the file says what that is"},
        {"a word", "--num-layers many --hidden-size 64", MCP_FORMAT, "not a number"},
        {"a negative number", "--num-layers -3 --hidden-size 64", MCP_FORMAT, "not a number"},
        {"zero", "--num-layers 0 --hidden-size 64", MCP_FORMAT, "at least 1 is needed"},
        {"a flag without its value", "--num-layers --hidden-size 64", MCP_FORMAT,
         "--num-layers true: not a number"},
        {"more than 2^31", "--num-layers 2 --hidden-size 99999999999", MCP_FORMAT, "not a number"},
        {"too many layers",
         "--num-layers 70000 --hidden-size 64 --num-attention-heads 8 --vocab-size 100", MCP_FORMAT,
         "at most 65536"},
        {"no vocabulary",
         "--num-layers 2 --hidden-size 64 --num-attention-heads 8 --use-rotary-position-embeddings "
         "--tokenizer-model /data/ours",
         MCP_FORMAT, "--tokenizer-model /data/ours is not known: add --vocab-size"},
        {"heads that do not divide",
         "--num-layers 2 --hidden-size 66 --num-attention-heads 8 --vocab-size 100 "
         "--use-rotary-position-embeddings",
         MCP_FORMAT, "does not divide --hidden-size 66"},
        {"groups that do not divide",
         "--num-layers 2 --hidden-size 64 --num-attention-heads 8 --vocab-size 100 "
         "--use-rotary-position-embeddings --group-query-attention --num-query-groups 3",
         MCP_INVALID, "the nearest that does is 2"},
        {"learned positions without their number",
         "--num-layers 2 --hidden-size 64 --num-attention-heads 8 --vocab-size 100", MCP_FORMAT,
         "--max-position-embeddings: missing"},
        {"experts that nothing sets",
         "--num-layers 2 --hidden-size 64 --num-attention-heads 8 --vocab-size 100 "
         "--use-rotary-position-embeddings --num-experts $E",
         MCP_FORMAT, "--num-experts $E: nothing in the file says what that is"},
        {"positions that nothing sets",
         "--num-layers 2 --hidden-size 64 --num-attention-heads 8 --vocab-size 100 "
         "--max-position-embeddings $S",
         MCP_FORMAT, "--max-position-embeddings $S: nothing in the file says what that is"},
        {"another norm",
         "--num-layers 2 --hidden-size 64 --num-attention-heads 8 --vocab-size 100 "
         "--use-rotary-position-embeddings --normalization L2Norm",
         MCP_FORMAT, "--normalization L2Norm: neither LayerNorm nor RMSNorm"},
        {"other positions",
         "--num-layers 2 --hidden-size 64 --num-attention-heads 8 --vocab-size 100 "
         "--position-embedding-type relative",
         MCP_FORMAT, "--position-embedding-type relative: none of learned_absolute, rope"},
    };
    return cr_make_param_array(struct bad_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct bad_case *c, megatron, bad)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_error err = {0};
    struct mcp_model model;
    cr_expect(eq(int, (int)read_text(arena, c->text, &model, &err), c->want), "%s", c->name);
    cr_expect(strstr(err.text, c->says) != NULL, "%s: %s", c->name, err.text);
    mcp_arena_free(arena);
}

/* Cut anywhere and with any byte changed there is an answer. */
Test(megatron, cut_and_changed_texts_are_answered)
{
    static const char text[] =
        "NUM_LAYERS=6; X=\"$NUM_LAYERS y\" # c\nrun --num-layers "
        "${NUM_LAYERS} --hidden-size ${H:-64} --num-attention-heads '8' \\\n"
        " --moe-layer-freq \"([0]*2+[1]*4)\" --num-experts 4 --vocab-size=99";
    for (size_t at = 0; at < sizeof text; at++) {
        for (int change = 0; change < 3; change++) {
            static const char bytes[] = {'$', '"', '\0'};
            char copy[sizeof text];
            struct mcp_arena *arena = mcp_arena_new();
            struct mcp_error err = {0};
            struct mcp_model model;
            memcpy(copy, text, sizeof text);
            copy[at] = bytes[change];
            copy[sizeof text - 1] = '\0';
            enum mcp_status got = read_text(arena, copy, &model, &err);
            cr_expect(got == MCP_OK || got == MCP_FORMAT || got == MCP_INVALID);
            mcp_arena_free(arena);
        }
    }
}

/* --- words --- */

struct words_case {
    char text[80];
    char words[80]; /* joined by | */
    char open[32];
};
ParameterizedTestParameters(megatron, words)
{
    static struct words_case cases[] = {
        {"a b\tc\nd;e", "a|b|c|d|e", ""},
        {"'a b' \"c d\" e'f'\"g\"", "a b|c d|efg", ""},
        {"a # b\nc#d", "a|c#d", ""},
        {"a \\\nb\\ c", "a|bc", ""},
        {"X=1 $X ${X}2 \"$X\" '$X'", "X=1|1|12|1|$X", ""},
        {"$A ${B} ${A:-3} ${C:-4}", "$A|${B}|3|4", "A B C"},
        {"$ ${ ${} $1", "$|${|${}|$1", ""},
        {"X=$X $X", "X=$X|$X", "X"},
        {"\"unclosed", "unclosed", ""},
    };
    return cr_make_param_array(struct words_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct words_case *c, megatron, words)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_words words = mcp_shell_words(arena, c->text);
    struct mcp_text joined = mcp_text_new(arena);
    for (size_t i = 0; i < words.count; i++)
        mcp_text_add(&joined, "%s%s", i == 0 ? "" : "|", words.items[i]);
    cr_expect(mcp_same(joined.data, c->words), "%s: %s", c->text, joined.data);
    cr_expect(mcp_same(words.open, c->open), "%s: %s", c->text, words.open);
    mcp_arena_free(arena);
}

/* --- a file --- */

/* The loader tells arguments from JSON, and JSON as Python writes it from ours. */
Test(megatron, loader_tells_formats_apart)
{
    static const struct {
        const char *text;
        enum mcp_status want;
        const char *says;
    } files[] = {
        {LLAMA_7B, MCP_OK, ""},
        {"{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":128,"
         "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":100,"
         "\"time_step_limit\":[0.0,Infinity],\"a\":NaN,\"b\":-Infinity,\"c\":\"NaN\"}",
         MCP_OK, "not finite, read as null: 3"},
        {"{\"model_type\":\"llama\",\"hidden_size\":NaN}", MCP_FORMAT, "missing or null"},
        {"\"architectures\": [\"X\"], \"hidden_size\": 64", MCP_FORMAT, "line 1, column 16"},
    };
    struct mcp_arena *arena = mcp_arena_new();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[] = "/tmp/mcpplan-args-XXXXXX";
        struct mcp_error err = {0};
        struct mcp_model model;
        int file = mkstemp(path);
        cr_assert(file >= 0 && write(file, files[i].text, strlen(files[i].text)) > 0);
        close(file);
        enum mcp_status got = mcp_model_load(arena, path, &model, &err);
        unlink(path);
        cr_expect(eq(int, (int)got, (int)files[i].want), "%zu: %s", i, err.text);
        cr_expect(strstr(got == MCP_OK ? model.ignored : err.text, files[i].says) != NULL,
                  "%zu: %s", i, got == MCP_OK ? model.ignored : err.text);
    }
    mcp_arena_free(arena);
}
