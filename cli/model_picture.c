/* cli/model_picture.c: shares of the kinds of layers. */
#include "cli/model_picture.h"

#include "core/units.h"
#include "reports/bars.h"
#include "reports/table.h"

enum quantity { PARAMETERS, ACTIVE, FLOPS, KV_CACHE, STATE, NUM_QUANTITIES };
static const char *const quantity_names[NUM_QUANTITIES] = {"parameters", "active", "FLOPs",
                                                           "KV cache", "state"};
enum { MOST_KINDS = 6, LABELS = 14, MOST_CELLS = 64 };

/* Kinds, those of them that share the last place, and what is outside layers. */
struct shares {
    int count;
    const char *labels[MOST_KINDS + 1];
    struct mcp_bar bars[NUM_QUANTITIES][MOST_KINDS + 1];
    double sums[NUM_QUANTITIES];
};

static const char *short_name(struct mcp_arena *arena, const struct mcp_layer_kind *kind)
{
    struct mcp_text text = mcp_text_new(arena);
    if (kind->attention == MCP_ATTENTION_LATENT || mcp_is_recurrent(kind))
        mcp_text_add(&text, "%s", mcp_attention_names[kind->attention]);
    else if (kind->attention != MCP_ATTENTION_NONE)
        mcp_text_add(&text, "attention");
    if (kind->sliding_window > 0)
        mcp_text_add(&text, " of %d", kind->sliding_window);
    const char *and = text.length > 0 && kind->mlp != MCP_MLP_NONE ? " + " : "";
    if (kind->mlp == MCP_MLP_DENSE)
        mcp_text_add(&text, "%sMLP", and);
    else if (kind->mlp != MCP_MLP_NONE)
        mcp_text_add(&text, "%s%d of %d experts", and, kind->experts_per_token, kind->num_experts);
    return text.data;
}

static void add_kind(struct shares *shares, const struct mcp_model *model, int kind, int place,
                     int64_t sequence_length)
{
    const struct mcp_layer_kind *k = &model->kinds[kind];
    const struct mcp_parameters count = mcp_layer_parameters(model, k);
    const double values[NUM_QUANTITIES] = {
        [PARAMETERS] = (double)mcp_parameters_total(&count),
        [ACTIVE] = (double)mcp_layer_active_parameters(model, k),
        [FLOPS] = mcp_layer_flops_per_token_forward(model, k, sequence_length),
        [KV_CACHE] = (double)mcp_layer_kv_elements_per_token(k),
        [STATE] = (double)mcp_layer_state_elements(k),
    };
    for (int q = 0; q < NUM_QUANTITIES; q++) {
        double all = values[q] * mcp_model_layers_of_kind(model, kind);
        shares->bars[q][place].value += all;
        shares->sums[q] += all;
    }
}

/* What the whole has beyond its layers. */
static void add_rest(struct shares *shares, const struct mcp_model *model, int64_t sequence_length)
{
    const struct mcp_parameters count = mcp_model_parameters(model);
    const double totals[NUM_QUANTITIES] = {
        [PARAMETERS] = (double)mcp_parameters_total(&count),
        [ACTIVE] = (double)mcp_model_active_parameters(model),
        [FLOPS] = mcp_model_flops_per_token_forward(model, sequence_length),
        [KV_CACHE] = (double)mcp_model_kv_elements_per_token(model),
        [STATE] = (double)mcp_model_state_elements(model),
    };
    int place = shares->count++;
    shares->labels[place] = "outside the layers";
    for (int q = 0; q < NUM_QUANTITIES; q++) {
        double rest = totals[q] - shares->sums[q];
        shares->bars[q][place].value = rest > 0 ? rest : 0;
        shares->sums[q] += shares->bars[q][place].value;
    }
}

static void fill_shares(struct mcp_arena *arena, const struct mcp_model *model,
                        int64_t sequence_length, struct shares *shares)
{
    bool fits = model->num_kinds <= MOST_KINDS;
    int named = fits ? model->num_kinds : MOST_KINDS - 1;
    for (int i = 0; i < model->num_kinds; i++) {
        int place = i < named ? i : named;
        shares->labels[place] =
            i < named ? mcp_format(arena, "%d x %s", mcp_model_layers_of_kind(model, i),
                                   short_name(arena, &model->kinds[i]))
                      : "layers of other kinds";
        add_kind(shares, model, i, place, sequence_length);
    }
    shares->count = fits ? named : named + 1;
    add_rest(shares, model, sequence_length);
}

static void put_shares(struct mcp_context *ctx, const struct shares *shares, struct mcp_text *out)
{
    struct mcp_column columns[2 + NUM_QUANTITIES] = {{"", "", MCP_LEFT}, {"part", "", MCP_LEFT}};
    int used[NUM_QUANTITIES], count = 0;
    for (int q = 0; q < NUM_QUANTITIES; q++)
        if (shares->sums[q] > 0) {
            used[count] = q;
            columns[2 + count++] = (struct mcp_column){quantity_names[q], "%", MCP_RIGHT};
        }
    struct mcp_table *table = mcp_table_new(ctx->arena, columns, 2 + count);
    for (int i = 0; i < shares->count; i++) {
        mcp_table_cell(table, "%s", mcp_stacked_fill(ctx->arena, &ctx->style, i));
        mcp_table_cell(table, "%s", shares->labels[i]);
        for (int j = 0; j < count; j++)
            mcp_table_cell(table, "%.1f",
                           100 * shares->bars[used[j]][i].value / shares->sums[used[j]]);
    }
    mcp_table_write(table, MCP_SKIN_TERMINAL, &ctx->style, out);
}

void mcp_model_picture(struct mcp_context *ctx, const struct mcp_model *model,
                       int64_t sequence_length, struct mcp_text *out)
{
    struct shares shares = {0};
    int cells = ctx->style.width - LABELS - 2;
    fill_shares(ctx->arena, model, sequence_length, &shares);
    mcp_heading(out, &ctx->style, "Where it is");
    for (int q = 0; q < NUM_QUANTITIES; q++) {
        if (!(shares.sums[q] > 0))
            continue;
        mcp_text_add(out, "  %-*s", LABELS - 2, quantity_names[q]);
        mcp_stacked_line(out, &ctx->style, shares.bars[q], shares.count, 0,
                         cells < MOST_CELLS ? cells : MOST_CELLS);
        mcp_text_add(out, "\n");
    }
    put_shares(ctx, &shares, out);
}
