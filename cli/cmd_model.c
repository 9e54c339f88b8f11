/* cli/cmd_model.c: mcpplan model: what a model weighs and costs, before any plan. */
#include "cli/commands.h"
#include "cli/diff.h"
#include "cli/model_picture.h"
#include "core/model.h"
#include "core/precision.h"
#include "core/preset.h"
#include "core/units.h"
#include "reports/bars.h"
#include "reports/table.h"

#define DEFAULT_SEQUENCE_LENGTH 4096

struct part {
    const char *key;
    const char *label; /* for people */
    int64_t parameters;
};
#define NUM_PARTS 11

/* In the order of a token's way. */
static void list_parts(const struct mcp_parameters *p, struct part parts[NUM_PARTS])
{
    const struct part list[NUM_PARTS] = {
        {"embedding", "embedding", p->embedding},
        {"positions", "positions", p->positions},
        {"attention", "attention", p->attention},
        {"mlp", "dense MLP", p->mlp},
        {"router", "router", p->router},
        {"experts", "routed experts", p->experts},
        {"shared_experts", "shared experts", p->shared_experts},
        {"norms", "norms of layers", p->norms},
        {"final_norm", "final norm", p->final_norm},
        {"head", "output head", p->head},
        {"mtp", "MTP modules (not in the total)", p->mtp},
    };
    for (int i = 0; i < NUM_PARTS; i++)
        parts[i] = list[i];
}

static const enum mcp_dtype shown_dtypes[] = {MCP_F32, MCP_BF16, MCP_F8, MCP_F4};

static double layer_kv_bytes(const struct mcp_layer_kind *kind)
{
    return (double)mcp_layer_kv_elements_per_token(kind) * mcp_dtype_bytes(MCP_BF16);
}

static double model_kv_bytes(const struct mcp_model *model)
{
    return (double)mcp_model_kv_elements_per_token(model) * mcp_dtype_bytes(MCP_BF16);
}

/* Of one sequence, whatever its length. */
static double model_state_bytes(const struct mcp_model *model)
{
    return (double)mcp_model_state_elements(model) * mcp_dtype_bytes(MCP_BF16);
}

/* JSON ---------------------------------------------------------------------- */

static void put_kinds(const struct mcp_model *model, int64_t sequence_length,
                      struct mcp_json *object)
{
    struct mcp_json *list = mcp_json_set_array(object, "kinds");
    for (int i = 0; i < model->num_kinds; i++) {
        const struct mcp_layer_kind *kind = &model->kinds[i];
        const struct mcp_parameters count = mcp_layer_parameters(model, kind);
        struct mcp_json *row = mcp_json_add_object(list);
        mcp_json_set_int(row, "num_layers", mcp_model_layers_of_kind(model, i));
        mcp_json_set_int(row, "parameters", mcp_parameters_total(&count));
        mcp_json_set_int(row, "active_parameters", mcp_layer_active_parameters(model, kind));
        mcp_json_set_double(row, "flops_per_token_forward",
                            mcp_layer_flops_per_token_forward(model, kind, sequence_length));
        mcp_json_set_double(row, "kv_bytes_per_token_bf16", layer_kv_bytes(kind));
    }
}

static void put_derived(const struct mcp_model *model, int64_t sequence_length,
                        struct mcp_json *object)
{
    struct part parts[NUM_PARTS];
    const struct mcp_parameters count = mcp_model_parameters(model);
    const double total = (double)mcp_parameters_total(&count);
    struct mcp_json *by_part = mcp_json_set_object(object, "parameters");
    list_parts(&count, parts);
    for (int i = 0; i < NUM_PARTS; i++)
        mcp_json_set_int(by_part, parts[i].key, parts[i].parameters);
    struct mcp_json *bytes = mcp_json_set_object(object, "weights_bytes");
    for (size_t i = 0; i < MCP_COUNT_OF(shown_dtypes); i++)
        mcp_json_set_double(bytes, mcp_dtype_names[shown_dtypes[i]],
                            total * mcp_dtype_bytes(shown_dtypes[i]));
    mcp_json_set_double(object, "kv_bytes_per_token_bf16", model_kv_bytes(model));
    mcp_json_set_double(object, "state_bytes_per_sequence_bf16", model_state_bytes(model));
    put_kinds(model, sequence_length, object);
}

static struct mcp_json *model_json(struct mcp_arena *arena, const struct mcp_model *model,
                                   int64_t sequence_length)
{
    struct mcp_json *object = mcp_json_new_object(arena);
    const struct mcp_parameters count = mcp_model_parameters(model);
    const double forward = mcp_model_flops_per_token_forward(model, sequence_length);
    mcp_model_to_json(model, object);
    mcp_json_set_int(object, "parameters", mcp_parameters_total(&count));
    mcp_json_set_int(object, "active_parameters", mcp_model_active_parameters(model));
    mcp_json_set_int(object, "sequence_length", sequence_length);
    mcp_json_set_double(object, "flops_per_token_forward", forward);
    mcp_json_set_double(object, "flops_per_token_training", 3.0 * forward);
    put_derived(model, sequence_length, mcp_json_set_object(object, "derived"));
    return object;
}

/* Text ---------------------------------------------------------------------- */

static const char *show_flops(struct mcp_arena *arena, double flops)
{
    static const char *const units[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"};
    size_t unit = 0;
    for (; flops >= 999.5 && unit + 1 < MCP_COUNT_OF(units); unit++)
        flops /= 1000.0;
    return mcp_format(arena, flops >= 99.95 ? "%.0f %s" : "%.3g %s", flops, units[unit]);
}

static const char *describe_state(struct mcp_arena *arena, const struct mcp_layer_kind *kind)
{
    const char *name = mcp_attention_names[kind->attention];
    if (kind->attention == MCP_ATTENTION_MAMBA)
        return mcp_format(arena, "%s: %d channels, state %d", name, kind->num_attention_heads,
                          kind->state_size);
    return mcp_format(arena, "%s: %d heads of %d, %d groups, state %d", name,
                      kind->num_attention_heads, kind->head_dim, kind->num_groups,
                      kind->state_size);
}

static const char *describe_attention(struct mcp_arena *arena, const struct mcp_layer_kind *kind)
{
    struct mcp_text text = mcp_text_new(arena);
    if (kind->attention == MCP_ATTENTION_NONE)
        return "none";
    if (mcp_is_recurrent(kind))
        return describe_state(arena, kind);
    if (kind->attention == MCP_ATTENTION_LATENT)
        mcp_text_add(&text, "latent: %d heads of %d, ranks q %d kv %d", kind->num_attention_heads,
                     kind->head_dim, kind->q_lora_rank, kind->kv_lora_rank);
    else
        mcp_text_add(&text, "%d heads of %d, %d kv", kind->num_attention_heads, kind->head_dim,
                     kind->num_kv_heads);
    if (kind->sliding_window > 0)
        mcp_text_add(&text, ", window %d", kind->sliding_window);
    if (kind->attention_chunk_size > 0)
        mcp_text_add(&text, ", chunks of %d", kind->attention_chunk_size);
    if (kind->index_topk > 0)
        mcp_text_add(&text, ", %d chosen keys", kind->index_topk);
    return text.data;
}

static const char *describe_mlp(struct mcp_arena *arena, const struct mcp_layer_kind *kind)
{
    const char *shape = kind->gated_mlp ? "gated" : "plain";
    if (kind->mlp == MCP_MLP_NONE)
        return "none";
    if (kind->mlp == MCP_MLP_DENSE)
        return mcp_format(arena, "dense %s, width %d", shape, kind->ffn_hidden_size);
    struct mcp_text text = mcp_text_new(arena);
    mcp_text_add(&text, "%d of %d experts, %s, width %d", kind->experts_per_token,
                 kind->num_experts, shape, kind->moe_ffn_hidden_size);
    if (kind->shared_expert_ffn_hidden_size > 0)
        mcp_text_add(&text, ", shared %d", kind->shared_expert_ffn_hidden_size);
    return text.data;
}

static void write_head(struct mcp_context *ctx, const struct mcp_model *model,
                       int64_t sequence_length, struct mcp_text *out)
{
    struct mcp_arena *arena = ctx->arena;
    const struct mcp_parameters count = mcp_model_parameters(model);
    const double forward = mcp_model_flops_per_token_forward(model, sequence_length);
    mcp_text_add(out, "%s: %d layers, hidden size %d, vocabulary %s\n",
                 mcp_paint(arena, &ctx->style, MCP_BOLD, mcp_printable(arena, model->name)),
                 model->num_layers, model->hidden_size, mcp_show_integer(arena, model->vocab_size));
    mcp_text_add(out, "  parameters      %s\n",
                 mcp_show_integer(arena, mcp_parameters_total(&count)));
    mcp_text_add(out, "  active          %s for each token\n",
                 mcp_show_integer(arena, mcp_model_active_parameters(model)));
    mcp_text_add(out, "  FLOPs per token %s forward, %s in training, at %s tokens\n",
                 show_flops(arena, forward), show_flops(arena, 3.0 * forward),
                 mcp_show_integer(arena, sequence_length));
    mcp_text_add(out, "  key-value cache %s per token in bf16\n",
                 mcp_show(arena, model_kv_bytes(model), MCP_BYTES));
    if (mcp_model_state_elements(model) > 0)
        mcp_text_add(out, "  state           %s per sequence in bf16\n",
                     mcp_show(arena, model_state_bytes(model), MCP_BYTES));
}

static void write_kind(struct mcp_context *ctx, const struct mcp_model *model, int index,
                       int64_t sequence_length, struct mcp_table *table)
{
    struct mcp_arena *arena = ctx->arena;
    const struct mcp_layer_kind *kind = &model->kinds[index];
    const struct mcp_parameters count = mcp_layer_parameters(model, kind);
    const double active = (double)mcp_layer_active_parameters(model, kind);
    const double forward = mcp_layer_flops_per_token_forward(model, kind, sequence_length);
    mcp_table_cell(table, "%d", mcp_model_layers_of_kind(model, index));
    mcp_table_cell(table, "%s", describe_attention(arena, kind));
    mcp_table_cell(table, "%s", describe_mlp(arena, kind));
    mcp_table_cell(table, "%s", mcp_show_count(arena, (double)mcp_parameters_total(&count)));
    mcp_table_cell(table, "%s", mcp_show_count(arena, active));
    mcp_table_cell(table, "%s", show_flops(arena, forward));
    mcp_table_cell(table, "%s", mcp_show(arena, layer_kv_bytes(kind), MCP_BYTES));
}

static void write_kinds(struct mcp_context *ctx, const struct mcp_model *model,
                        int64_t sequence_length, struct mcp_text *out)
{
    static const struct mcp_column columns[] = {
        {"layers", "", MCP_RIGHT},
        {"attention", "", MCP_LEFT},
        {"MLP", "", MCP_LEFT},
        {"parameters", "each", MCP_RIGHT},
        {"active", "each", MCP_RIGHT},
        {"forward", "per token", MCP_RIGHT},
        {"KV cache", "per token", MCP_RIGHT},
    };
    struct mcp_table *table = mcp_table_new(ctx->arena, columns, (int)MCP_COUNT_OF(columns));
    for (int i = 0; i < model->num_kinds; i++)
        write_kind(ctx, model, i, sequence_length, table);
    mcp_heading(out, &ctx->style, "Kinds of layers");
    mcp_table_write(table, MCP_SKIN_TERMINAL, &ctx->style, out);
}

static void write_parts(struct mcp_context *ctx, const struct mcp_model *model,
                        struct mcp_text *out)
{
    struct part parts[NUM_PARTS];
    struct mcp_bar bars[NUM_PARTS];
    const struct mcp_parameters count = mcp_model_parameters(model);
    const int64_t total = mcp_parameters_total(&count);
    int shown = 0;
    list_parts(&count, parts);
    for (int i = 0; i < NUM_PARTS; i++) {
        if (parts[i].parameters == 0)
            continue;
        const double share = 100.0 * (double)parts[i].parameters / (double)total;
        bars[shown++] = (struct mcp_bar){
            .label = parts[i].label,
            .value = (double)parts[i].parameters,
            .text = mcp_format(ctx->arena, "%17s %6.2f %%",
                               mcp_show_integer(ctx->arena, parts[i].parameters), share),
            .color = MCP_BLUE,
        };
    }
    mcp_heading(out, &ctx->style, "Parameters by part");
    mcp_bars_write(out, &ctx->style, bars, shown, (double)total);
}

static void write_bytes(struct mcp_context *ctx, const struct mcp_model *model,
                        struct mcp_text *out)
{
    static const struct mcp_column columns[] = {{"format", "", MCP_LEFT},
                                                {"weights", "", MCP_RIGHT}};
    struct mcp_table *table = mcp_table_new(ctx->arena, columns, (int)MCP_COUNT_OF(columns));
    const struct mcp_parameters count = mcp_model_parameters(model);
    for (size_t i = 0; i < MCP_COUNT_OF(shown_dtypes); i++) {
        const double bytes =
            (double)mcp_parameters_total(&count) * mcp_dtype_bytes(shown_dtypes[i]);
        mcp_table_cell(table, "%s", mcp_dtype_names[shown_dtypes[i]]);
        mcp_table_cell(table, "%s", mcp_show(ctx->arena, bytes, MCP_BYTES));
    }
    mcp_heading(out, &ctx->style, "Weights by number format");
    mcp_table_write(table, MCP_SKIN_TERMINAL, &ctx->style, out);
}

static enum mcp_status show_model(struct mcp_context *ctx, const struct mcp_model *model,
                                  int64_t sequence_length)
{
    struct mcp_text text = mcp_text_new(ctx->arena);
    write_head(ctx, model, sequence_length, &text);
    write_kinds(ctx, model, sequence_length, &text);
    write_parts(ctx, model, &text);
    mcp_model_picture(ctx, model, sequence_length, &text);
    write_bytes(ctx, model, &text);
    if (model->ignored[0] != '\0')
        mcp_note("keys without effect on a plan: %s", model->ignored);
    return mcp_output_result(ctx, &text, model_json(ctx->arena, model, sequence_length));
}

/* All presets --------------------------------------------------------------- */

static enum mcp_status list_presets(struct mcp_context *ctx)
{
    static const struct mcp_column columns[] = {{"model", "", MCP_LEFT},
                                                {"layers", "", MCP_RIGHT},
                                                {"parameters", "", MCP_RIGHT},
                                                {"active", "", MCP_RIGHT}};
    struct mcp_table *table = mcp_table_new(ctx->arena, columns, (int)MCP_COUNT_OF(columns));
    struct mcp_json *json = mcp_json_new_object(ctx->arena);
    mcp_json_set_string(json, "schema", "mcpplan.models/1");
    struct mcp_json *list = mcp_json_set_array(json, "models");
    for (size_t i = 0; i < mcp_preset_count("models"); i++) {
        struct mcp_model model;
        MCP_TRY(mcp_model_load(ctx->arena, mcp_preset_at("models", i)->name, &model, &ctx->err));
        const struct mcp_parameters count = mcp_model_parameters(&model);
        const int64_t total = mcp_parameters_total(&count);
        const int64_t active = mcp_model_active_parameters(&model);
        struct mcp_json *row = mcp_json_add_object(list);
        mcp_json_set_string(row, "name", model.name);
        mcp_json_set_int(row, "num_layers", model.num_layers);
        mcp_json_set_int(row, "parameters", total);
        mcp_json_set_int(row, "active_parameters", active);
        mcp_table_cell(table, "%s", model.name);
        mcp_table_cell(table, "%d", model.num_layers);
        mcp_table_cell(table, "%s", mcp_show_count(ctx->arena, (double)total));
        mcp_table_cell(table, "%s", mcp_show_count(ctx->arena, (double)active));
    }
    struct mcp_text text = mcp_text_new(ctx->arena);
    mcp_table_write(table, MCP_SKIN_TERMINAL, &ctx->style, &text);
    return mcp_output_result(ctx, &text, json);
}

/* 4096 tokens, or what the model was made for where that is less. */
static int64_t default_sequence_length(const struct mcp_model *model)
{
    const int longest = model->max_sequence_length;
    return longest > 0 && longest < DEFAULT_SEQUENCE_LENGTH ? longest : DEFAULT_SEQUENCE_LENGTH;
}

static enum mcp_status check_length(const struct mcp_model *model, int64_t sequence_length,
                                    struct mcp_error *err)
{
    if (model->position != MCP_POSITION_LEARNED || sequence_length <= model->max_sequence_length)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "--sequence-length %lld exceeds the %d learned positions of %s",
                    (long long)sequence_length, model->max_sequence_length, model->name);
}

/* A model as --sequence-length says; 0: not at all. */
static enum mcp_status load_model(struct mcp_context *ctx, const char *name,
                                  int64_t *sequence_length, struct mcp_model *model)
{
    MCP_TRY(mcp_model_load(ctx->arena, name, model, &ctx->err));
    if (*sequence_length == 0)
        *sequence_length = default_sequence_length(model);
    return check_length(model, *sequence_length, &ctx->err);
}

static enum mcp_status show_difference(struct mcp_context *ctx, int64_t sequence_length)
{
    static const char *const ignored[] = {"schema", "source", "note", NULL};
    struct mcp_differences differences = {.arena = ctx->arena, .ignored = ignored};
    struct mcp_json *json[2];
    for (int i = 0; i < 2; i++) {
        struct mcp_model model;
        int64_t length = sequence_length;
        MCP_TRY(load_model(ctx, ctx->operands[i], &length, &model));
        json[i] = model_json(ctx->arena, &model, length);
    }
    mcp_diff(&differences, json[0], json[1]);
    return mcp_diff_show(ctx, &differences, ctx->operands[0], ctx->operands[1]);
}

enum mcp_status mcp_cmd_model(struct mcp_context *ctx, int argc, char **argv)
{
    int64_t sequence_length = 0;
    bool diff = false;
    const struct mcp_option options[] = {
        {"sequence-length", MCP_OPT_COUNT64, &sequence_length,
         "tokens in a sequence, for the FLOPs (default: 4096, or the model's limit if less)"},
        {"diff", MCP_OPT_FLAG, &diff, "what differs between two; exit 1 if anything does"},
    };
    const struct mcp_usage usage = {
        .command = "model",
        .summary = "count a model's parameters, FLOPs and bytes, layer by layer",
        .synopsis = "[M] [options]",
        .description =
            "M is a preset's name, a model file, a Hugging Face config.json, or Megatron's "
            "arguments; without "
            "it the presets are listed. Parameters count every trained weight once, "
            "without multi-token prediction modules. FLOPs count causal attention half "
            "and include the output head and multi-token prediction modules.",
        .max_operands = 2,
        .options = options,
        .num_options = MCP_COUNT_OF(options),
        .examples = "mcpplan model llama-3.1-8b --sequence-length 8192\n"
                    "mcpplan model ./config.json --json\n"
                    "mcpplan model --diff llama-3.1-8b ./config.json\n",
    };
    struct mcp_model model;
    if (!mcp_options_parse(ctx, &usage, argc, argv))
        return ctx->status;
    if (diff && ctx->num_operands != 2)
        return mcp_fail(&ctx->err, MCP_USAGE, "model --diff compares two models, not %d",
                        ctx->num_operands);
    if (!diff && ctx->num_operands > 1)
        return mcp_fail(&ctx->err, MCP_USAGE,
                        "unexpected argument '%s': model shows one, --diff compares two",
                        mcp_shown(ctx->arena, ctx->operands[1]));
    if (diff)
        return show_difference(ctx, sequence_length);
    if (ctx->num_operands == 0)
        return list_presets(ctx);
    MCP_TRY(load_model(ctx, ctx->operands[0], &sequence_length, &model));
    return show_model(ctx, &model, sequence_length);
}
