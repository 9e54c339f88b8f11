/* reports/runs_model.c: a row's model: its columns, and what tables leave out. */
#include "reports/runs_row.h"

#include "core/preset.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* Letters and digits of a name in lower case, without what is in parentheses:
 * "Llama3.1-405B (proxy, 21 layers)" is llama31405b. */
static void plain_name(const char *name, char *out, size_t size)
{
    size_t length = 0;
    for (; *name != '\0' && *name != '(' && length + 1 < size; name++)
        if (isalnum((unsigned char)*name))
            out[length++] = (char)tolower((unsigned char)*name);
    out[length] = '\0';
}

/* The built-in model of the row's name and width, which knows more of its shape
 * than the columns say. */
static bool find_published(const struct mcp_run_row *row, int hidden, struct mcp_model *out)
{
    char wanted[64], name[64];
    plain_name(mcp_row_cell(row, "model"), wanted, sizeof wanted);
    for (size_t i = 0; wanted[0] != '\0' && i < mcp_preset_count("models"); i++) {
        const char *preset = mcp_preset_at("models", i)->name;
        plain_name(preset, name, sizeof name);
        const bool same = mcp_starts_with(name, wanted) || mcp_starts_with(wanted, name);
        if (!same || mcp_model_load(row->arena, preset, out, NULL) != MCP_OK)
            continue;
        if (out->hidden_size == hidden)
            return true;
    }
    return false;
}

static const struct mcp_layer_kind *kind_with(const struct mcp_model *model, enum mcp_mlp_kind mlp)
{
    for (int i = 0; model != NULL && i < model->num_kinds; i++)
        if (model->kinds[i].mlp == mlp)
            return &model->kinds[i];
    return NULL;
}

/* Attention of the columns over that of `kind`, which a preset may have filled. */
static enum mcp_status read_attention(struct mcp_run_row *row, int hidden,
                                      struct mcp_layer_kind *kind, struct mcp_error *err)
{
    MCP_TRY(mcp_row_need(row, "heads", &kind->num_attention_heads, err));
    if (kind->attention == MCP_ATTENTION_LATENT) {
        kind->num_kv_heads = kind->num_attention_heads;
        return MCP_OK;
    }
    MCP_TRY(mcp_row_int(row, "kv_heads", kind->num_attention_heads, &kind->num_kv_heads, err));
    MCP_TRY(mcp_row_int(row, "head_dim", hidden / kind->num_attention_heads, &kind->head_dim, err));
    kind->value_head_dim = kind->head_dim;
    return MCP_OK;
}

static enum mcp_status read_experts(struct mcp_run_row *row, struct mcp_layer_kind *kind,
                                    struct mcp_error *err)
{
    int shared;
    kind->mlp = MCP_MLP_EXPERTS;
    MCP_TRY(mcp_row_need(row, "experts", &kind->num_experts, err));
    MCP_TRY(mcp_row_need(row, "topk", &kind->experts_per_token, err));
    const char *width = mcp_row_has(row, "moe_ffn_hidden") ? "moe_ffn_hidden" : "ffn_hidden";
    MCP_TRY(mcp_row_need(row, width, &kind->moe_ffn_hidden_size, err));
    if (mcp_number_before(mcp_row_cell(row, "notes"), "shared expert", &shared))
        kind->shared_expert_ffn_hidden_size = shared * kind->moe_ffn_hidden_size;
    kind->ffn_hidden_size = 0;
    return MCP_OK;
}

static enum mcp_status read_dense(struct mcp_run_row *row, struct mcp_layer_kind *kind,
                                  struct mcp_error *err)
{
    kind->mlp = MCP_MLP_DENSE;
    kind->num_experts = kind->experts_per_token = 0;
    kind->moe_ffn_hidden_size = kind->shared_expert_ffn_hidden_size = 0;
    kind->router_bias = kind->router_correction_bias = kind->expert_bias = false;
    return mcp_row_need(row, "ffn_hidden", &kind->ffn_hidden_size, err);
}

/* One layer kind: the preset's of that sort, else a plain one; then the columns. */
static enum mcp_status read_kind(struct mcp_run_row *row, const struct mcp_model *published,
                                 enum mcp_mlp_kind mlp, struct mcp_model *model,
                                 struct mcp_layer_kind *out, struct mcp_error *err)
{
    const struct mcp_layer_kind *known = kind_with(published, mlp);
    int gated;
    if (known == NULL)
        known = kind_with(published, mlp == MCP_MLP_DENSE ? MCP_MLP_EXPERTS : MCP_MLP_DENSE);
    if (known != NULL)
        *out = *known;
    MCP_TRY(mcp_row_int(row, "gated_mlp", 1, &gated, err));
    out->gated_mlp = gated != 0;
    if (known == NULL && model->position == MCP_POSITION_LEARNED)
        out->attention_bias = out->attention_output_bias = out->mlp_bias = true;
    MCP_TRY(read_attention(row, model->hidden_size, out, err));
    return mlp == MCP_MLP_EXPERTS ? read_experts(row, out, err) : read_dense(row, out, err);
}

/* Dense layers before the first with experts: the notes', else the preset's; a
 * model cut in depth keeps its share of them, one at least. */
static int leading_dense(const struct mcp_run_row *row, const struct mcp_model *published,
                         int layers)
{
    int count = 0;
    if (mcp_row_says(row, "notes", "first layer dense"))
        return 1;
    if (mcp_number_before(mcp_row_cell(row, "notes"), "layers dense", &count))
        return count;
    if (published == NULL)
        return 0;
    while (count < published->num_layers && mcp_model_layer(published, count)->mlp == MCP_MLP_DENSE)
        count++;
    if (count == 0 || published->num_layers <= layers)
        return count;
    const int share = (int)lround((double)count * layers / published->num_layers);
    return share > 1 ? share : 1;
}

/* Every window of the preset becomes a kind of its own, in the preset's order. */
static void add_windows(const struct mcp_model *published, struct mcp_model *model, int first)
{
    for (int layer = first; layer < model->num_layers; layer++) {
        struct mcp_layer_kind kind = *mcp_model_layer(model, layer);
        const int same = layer < published->num_layers ? layer : layer % published->num_layers;
        kind.sliding_window = mcp_model_layer(published, same)->sliding_window;
        const int added = mcp_model_add_kind(model, &kind);
        if (added >= 0)
            model->layer_kind[layer] = (unsigned char)added;
    }
}

static enum mcp_status read_kinds(struct mcp_run_row *row, const struct mcp_model *published,
                                  struct mcp_model *model, struct mcp_error *err)
{
    struct mcp_layer_kind dense = {0}, experts = {0};
    const bool sparse = mcp_row_has(row, "experts");
    const int first = sparse ? leading_dense(row, published, model->num_layers) : model->num_layers;
    model->layer_kind = MCP_ARRAY(row->arena, model->num_layers, unsigned char);
    if (first > 0)
        MCP_TRY(read_kind(row, published, MCP_MLP_DENSE, model, &dense, err));
    if (sparse)
        MCP_TRY(read_kind(row, published, MCP_MLP_EXPERTS, model, &experts, err));
    for (int layer = 0; layer < model->num_layers; layer++)
        model->layer_kind[layer] =
            (unsigned char)mcp_model_add_kind(model, layer < first ? &dense : &experts);
    if (published != NULL)
        add_windows(published, model, 0);
    return MCP_OK;
}

/* MLA's ranks are in no column; DeepSeek-V2 (arXiv 2405.04434), V3 and their
 * descendants share all but the query's. */
static void assume_latent(struct mcp_run_row *row, struct mcp_model *shape)
{
    static const struct mcp_layer_kind latent = {
        .attention = MCP_ATTENTION_LATENT,
        .head_dim = 192,
        .value_head_dim = 128,
        .q_lora_rank = 1536,
        .kv_lora_rank = 512,
        .qk_rope_head_dim = 64,
    };
    *shape = (struct mcp_model){.norms_per_layer = 2,
                                .norm = MCP_RMSNORM,
                                .position = MCP_POSITION_ROTARY,
                                .num_layers = 1,
                                .num_kinds = 1,
                                .layer_kind = MCP_ARRAY(row->arena, 1, unsigned char)};
    shape->kinds[0] = latent;
    shape->kinds[0].mlp = MCP_MLP_EXPERTS;
    mcp_row_note(row, "MLA ranks as in DeepSeek-V2");
}

/* GPT-2's descendants share input and output embeddings and learn positions. */
static void read_style(struct mcp_run_row *row, const struct mcp_model *published, bool gated,
                       struct mcp_model *model)
{
    const struct mcp_run_family *family = mcp_run_family_of(row);
    const bool gpt = published == NULL && family->learned_positions && !gated;
    model->norms_per_layer = published != NULL ? published->norms_per_layer : 2;
    model->norm = published != NULL ? published->norm : gpt ? MCP_LAYERNORM : MCP_RMSNORM;
    model->position = published != NULL ? published->position
                      : gpt             ? MCP_POSITION_LEARNED
                                        : MCP_POSITION_ROTARY;
    if (mcp_row_says(row, "attention", "ALiBi"))
        model->position = MCP_POSITION_ALIBI;
    model->tied_embeddings = published != NULL ? published->tied_embeddings : gpt;
    if (mcp_row_says(row, "notes", "weight tying") || mcp_row_says(row, "notes", "tied embeddings"))
        model->tied_embeddings = true;
}

/* Multi-token prediction modules only where the row says that it has them. */
static void read_mtp(struct mcp_run_row *row, const struct mcp_model *published,
                     struct mcp_model *model)
{
    if (published == NULL || published->num_mtp_layers == 0 || !mcp_row_says(row, "notes", "MTP") ||
        mcp_row_says(row, "notes", "w/o MTP"))
        return;
    model->num_mtp_layers = published->num_mtp_layers;
    model->mtp_kind = model->layer_kind[model->num_layers - 1];
}

static bool lacks_ranks(const struct mcp_run_row *row, bool found, const struct mcp_model *shape)
{
    return mcp_row_says(row, "notes", "MLA") &&
           !(found && shape->kinds[0].attention == MCP_ATTENTION_LATENT);
}

enum mcp_status mcp_run_read_model(struct mcp_run_row *row, struct mcp_model *out,
                                   struct mcp_error *err)
{
    struct mcp_model model = {
        .name = mcp_row_cell(row, "model"), .family = "", .source = "", .note = "", .ignored = ""};
    struct mcp_model shape;
    int gated, sequence;
    MCP_TRY(mcp_row_need(row, "layers", &model.num_layers, err));
    MCP_TRY(mcp_row_need(row, "hidden", &model.hidden_size, err));
    MCP_TRY(mcp_row_need(row, "vocab", &model.vocab_size, err));
    MCP_TRY(mcp_row_int(row, "gated_mlp", 1, &gated, err));
    MCP_TRY(mcp_row_need(row, "seq", &sequence, err));
    if (model.num_layers > 10000)
        return mcp_fail(err, MCP_INVALID, "layers=%d is more than 10000", model.num_layers);
    bool known = find_published(row, model.hidden_size, &shape);
    if (lacks_ranks(row, known, &shape)) {
        assume_latent(row, &shape);
        known = true;
    }
    const struct mcp_model *published = known ? &shape : NULL;
    read_style(row, published, gated != 0, &model);
    model.max_sequence_length = sequence;
    MCP_TRY(read_kinds(row, published, &model, err));
    read_mtp(row, published, &model);
    MCP_TRY(mcp_model_check(&model, err));
    *out = model;
    return MCP_OK;
}
