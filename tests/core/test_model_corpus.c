/* tests/core/test_model_corpus.c: other people's config.json and Megatron arguments,
 * against what their index says. They lie outside the repository: where they are not,
 * the test says so. Hand-made files of every family are in test_model_hf.c. */
#include "core/csv.h"
#include "core/model.h"
#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder's index; false, with a word about it, when there is none. */
static bool open_index(struct mcp_arena *arena, const char *name, const char **folder,
                       struct mcp_csv *index)
{
    struct mcp_error err = {0};
    const char *shared = getenv("MCP_SHARED");
    *folder = mcp_format(arena, "%s/corpus/%s", shared != NULL ? shared : "../shared", name);
    const char *path = mcp_format(arena, "%s/index.csv", *folder);
    if (access(path, R_OK) != 0) {
        fprintf(stderr, "skipped: no %s; set MCP_SHARED\n", path);
        return false;
    }
    cr_assert(mcp_csv_read(arena, path, index, &err) == MCP_OK, "%s", err.text);
    cr_assert(index->num_rows > 0);
    return true;
}

/* --- what must be refused, and with which words --- */

static const char *const refused[][2] = {
    {"bert-base.json", "only decoder-only models"},
    {"t5-v1_1-xxl.json", "only decoder-only models"},
    {"llm-analysis-schema-gpt2.json", "another tool's keys"},
    {"neox-notes-8196-broken.json", "line 1, column 16"},
};

static const char *refusal_of(const char *file)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (mcp_same(file, refused[i][0]))
            return refused[i][1];
    return NULL;
}

/* --- totals --- */

/* Where nobody has counted: what was published, what of it we leave out (the encoders
 * of images and sound), and how far its rounding may be off; billions. Active figures of
 * Qwen3-Next leave out both vocabularies. */
static const struct published {
    const char *file;
    double total, total_within, active, active_within;
} published[] = {
    {"qwen3.5-397b-a17b.json", 397 - 0.46, 0.5, 17, 0.5},
    {"qwen3-next-80b-a3b.json", 80, 0.5, 3 + 2 * 0.311, 0.5},
    {"nemotron-h-56b.json", 56, 0.5, 56, 0.5},
    {"llama-3.3-nemotron-super-49b.json", 49.5, 0.5, 49.5, 0.5},
    {"gemma-4-26b-a4b.json", 25.2, 0.05, 3.8, 0.05},
    {"mimo-v2-flash.json", 309, 0.5, 15, 0.5},
    {"llama-3.2-11b-vision.json", 10.6 - 0.86, 0.05, 10.6 - 0.86, 0.05},
    {"qwen2-audio.json", 8.4 - 0.64, 0.05, 8.4 - 0.64, 0.05},
};

static void expect_published(const char *file, double total, double active)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const struct published *p = &published[i];
        if (!mcp_same(p->file, file))
            continue;
        cr_expect(fabs(total / 1e9 - p->total) <= p->total_within, "%s: %.0f", file, total);
        cr_expect(fabs(active / 1e9 - p->active) <= p->active_within, "%s: %.0f", file, active);
        return;
    }
    cr_expect(false, "%s: the index has no figure and this test has none", file);
}

static void expect_cell(const struct mcp_csv *index, size_t row, const char *column, double got)
{
    double want;
    if (mcp_csv_double(index, row, column, &want))
        cr_expect(eq(dbl, got, want), "%s: %s", mcp_csv_cell(index, row, "file"), column);
}

/* head_dim of the index is that of queries; of MLA, without and with rotary. */
static void expect_shapes(const struct mcp_csv *index, size_t row, const struct mcp_model *model)
{
    expect_cell(index, row, "layers", model->num_layers);
    expect_cell(index, row, "hidden", model->hidden_size);
    const struct mcp_layer_kind *kind = NULL, *sparse = NULL;
    for (int i = 0; i < model->num_layers; i++) {
        const struct mcp_layer_kind *at = mcp_model_layer(model, i);
        if (mcp_has_softmax(at) && (kind == NULL || at->sliding_window > 0))
            kind = at;
        sparse = at->mlp == MCP_MLP_EXPERTS ? at : sparse;
    }
    if (kind != NULL && !mcp_same(mcp_csv_cell(index, row, "model_type"), "mimo_v2_flash")) {
        expect_cell(index, row, "heads", kind->num_attention_heads);
        expect_cell(index, row, "kv_heads_effective", kind->num_kv_heads);
        expect_cell(index, row, "head_dim", kind->head_dim);
    }
    expect_cell(index, row, "experts", sparse != NULL ? sparse->num_experts : 0);
    expect_cell(index, row, "topk", sparse != NULL ? sparse->experts_per_token : 0);
}

static void expect_row(struct mcp_arena *arena, const struct mcp_csv *index, size_t row,
                       const char *folder)
{
    struct mcp_error err = {0};
    struct mcp_model model;
    double total = 0, active = 0;
    const char *file = mcp_csv_cell(index, row, "file"), *says = refusal_of(file);
    const char *path = mcp_format(arena, "%s/%s", folder, file);
    const enum mcp_status got = mcp_model_load(arena, path, &model, &err);
    if (says != NULL) {
        cr_expect(got == MCP_FORMAT && strstr(err.text, says) != NULL, "%s: %s", file, err.text);
        return;
    }
    cr_expect(got == MCP_OK, "%s", err.text);
    if (got != MCP_OK)
        return;
    const struct mcp_parameters count = mcp_model_parameters(&model);
    const double got_total = (double)mcp_parameters_total(&count);
    const double got_active = (double)mcp_model_active_parameters(&model);
    expect_shapes(index, row, &model);
    if (!mcp_csv_double(index, row, "computed_total", &total)) {
        expect_published(file, got_total, got_active);
        return;
    }
    cr_assert(mcp_csv_double(index, row, "computed_active", &active));
    cr_expect(fabs(got_total / total - 1) < 0.001, "%s: %.0f, want %.0f", file, got_total, total);
    cr_expect(fabs(got_active / active - 1) < 0.005, "%s: %.0f, want %.0f", file, got_active,
              active);
}

Test(model_corpus, configs_count_as_the_index_says)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *folder;
    struct mcp_csv index;
    if (open_index(arena, "hf-configs", &folder, &index))
        for (size_t row = 0; row < index.num_rows; row++)
            expect_row(arena, &index, row, folder);
    mcp_arena_free(arena);
}

/* --- Megatron's arguments --- */

static int sparse_layers(const struct mcp_model *model, const struct mcp_layer_kind **sparse,
                         const struct mcp_layer_kind **dense)
{
    int count = 0;
    *sparse = *dense = NULL;
    for (int i = 0; i < model->num_layers; i++) {
        const struct mcp_layer_kind *kind = mcp_model_layer(model, i);
        bool experts = kind->mlp == MCP_MLP_EXPERTS;
        *(experts ? sparse : dense) = kind;
        count += experts;
    }
    return count;
}

static void expect_arguments(const struct mcp_csv *index, size_t row, const struct mcp_model *model)
{
    const struct mcp_layer_kind *sparse, *dense, *any;
    int experts = sparse_layers(model, &sparse, &dense);
    any = sparse != NULL ? sparse : dense;
    bool latent = any->attention == MCP_ATTENTION_LATENT;
    expect_cell(index, row, "num-layers", model->num_layers);
    expect_cell(index, row, "hidden-size", model->hidden_size);
    expect_cell(index, row, "num-attention-heads", any->num_attention_heads);
    expect_cell(index, row, "num-query-groups", any->num_kv_heads);
    expect_cell(index, row, "q-lora-rank", any->q_lora_rank);
    expect_cell(index, row, "kv-lora-rank", any->kv_lora_rank);
    expect_cell(index, row, "mtp-num-layers", model->num_mtp_layers);
    if (!latent)
        expect_cell(index, row, "kv-channels", any->head_dim);
    if (dense != NULL)
        expect_cell(index, row, "ffn-hidden-size", dense->ffn_hidden_size);
    expect_cell(index, row, "num-experts", sparse->num_experts);
    expect_cell(index, row, "moe-router-topk", sparse->experts_per_token);
    expect_cell(index, row, "moe-ffn-hidden-size", sparse->moe_ffn_hidden_size);
    expect_cell(index, row, "moe-shared-expert-intermediate-size",
                sparse->shared_expert_ffn_hidden_size);
    cr_expect(
        eq(int, !model->tied_embeddings,
           mcp_same(mcp_csv_cell(index, row, "untie-embeddings-and-output-weights"), "true")));
    cr_expect(
        eq(int, latent, mcp_same(mcp_csv_cell(index, row, "multi-latent-attention"), "true")));
    int leading = mcp_same(mcp_csv_cell(index, row, "moe-layer-freq"), "-")             ? 0
                  : strstr(mcp_csv_cell(index, row, "moe-layer-freq"), "[0]*3") != NULL ? 3
                                                                                        : 1;
    cr_expect(eq(int, experts, model->num_layers - leading));
}

/* "unresolved ${...}: A B C; ...": the names that the index lists. */
static void expect_open_names(struct mcp_arena *arena, const struct mcp_csv *index, size_t row,
                              const struct mcp_model *model)
{
    const char *start = strstr(mcp_csv_cell(index, row, "odd"), "unresolved ${...}: ");
    if (start == NULL)
        return;
    start += strlen("unresolved ${...}: ");
    for (const char *at = start; *at != '\0' && *at != ';';) {
        size_t length = strcspn(at, " ;");
        const char *name = mcp_strndup(arena, at, length);
        cr_expect(strstr(model->ignored, name) != NULL, "%s: %s", name, model->ignored);
        at += length + (at[length] == ' ');
    }
}

Test(model_corpus, megatron_arguments_read_as_the_index_says)
{
    struct mcp_arena *arena = mcp_arena_new();
    const char *folder;
    struct mcp_csv index;
    bool there = open_index(arena, "megatron-args", &folder, &index);
    for (size_t row = 0; there && row < index.num_rows; row++) {
        struct mcp_error err = {0};
        struct mcp_model model;
        const char *path = mcp_format(arena, "%s/%s", folder, mcp_csv_cell(&index, row, "file"));
        cr_assert(mcp_model_load(arena, path, &model, &err) == MCP_OK, "%s", err.text);
        expect_arguments(&index, row, &model);
        expect_open_names(arena, &index, row, &model);
    }
    mcp_arena_free(arena);
}

/* --- hostile copies --- */

/* Every file cut at many places, and with bytes changed: an answer each time. */
static void expect_answers(struct mcp_arena *arena, const char *path)
{
    struct mcp_error err = {0};
    struct mcp_text text;
    char copy[] = "/tmp/mcpplan-corpus-XXXXXX";
    int file = mkstemp(copy);
    cr_assert(file >= 0);
    cr_assert(mcp_file_read(arena, path, (size_t)1 << 20, &text, &err) == MCP_OK, "%s", err.text);
    for (size_t at = 0; at < text.length; at += 97) {
        struct mcp_arena *inner = mcp_arena_new();
        struct mcp_model model;
        char kept = text.data[at];
        text.data[at] = (char)(kept ^ (1 << at % 7));
        size_t length = at % 2 == 0 ? at : text.length;
        cr_assert(ftruncate(file, 0) == 0 && pwrite(file, text.data, length, 0) == (ssize_t)length);
        text.data[at] = kept;
        enum mcp_status got = mcp_model_load(inner, copy, &model, &err);
        cr_expect(got == MCP_OK || got == MCP_FORMAT || got == MCP_INVALID, "%s at %zu", path, at);
        mcp_arena_free(inner);
    }
    close(file);
    unlink(copy);
}

Test(model_corpus, cut_and_changed_files_are_answered)
{
    static const char *const folders[] = {"hf-configs", "megatron-args"};
    struct mcp_arena *arena = mcp_arena_new();
    for (size_t i = 0; i < 2; i++) {
        const char *folder;
        struct mcp_csv index;
        bool there = open_index(arena, folders[i], &folder, &index);
        for (size_t row = 0; there && row < index.num_rows; row++)
            expect_answers(arena,
                           mcp_format(arena, "%s/%s", folder, mcp_csv_cell(&index, row, "file")));
    }
    mcp_arena_free(arena);
}
