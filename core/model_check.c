/* core/model_check.c: is a model one that can exist: ranges and consistency. */
#include "core/model_fields.h"
#include "core/text.h"
#include "core/units.h"

#include <inttypes.h>

/* Larger totals are no longer exact in JSON. */
#define MAX_PARAMETERS ((int64_t)1 << 53)

static int nearest_divisor(int number, int wanted)
{
    for (int distance = 0; distance < number; distance++) {
        if (wanted - distance >= 1 && number % (wanted - distance) == 0)
            return wanted - distance;
        if (wanted + distance <= number && number % (wanted + distance) == 0)
            return wanted + distance;
    }
    return 1;
}

static enum mcp_status check_latent(const struct mcp_layer_kind *kind, struct mcp_error *err)
{
    if (kind->kv_lora_rank < 1)
        return mcp_fail(err, MCP_INVALID, "kv_lora_rank=%d: latent attention needs at least 1",
                        kind->kv_lora_rank);
    if (kind->qk_rope_head_dim > kind->head_dim)
        return mcp_fail(err, MCP_INVALID,
                        "qk_rope_head_dim=%d is a part of head_dim=%d and cannot exceed it",
                        kind->qk_rope_head_dim, kind->head_dim);
    return MCP_OK;
}

static enum mcp_status check_grouped(const struct mcp_layer_kind *kind, struct mcp_error *err)
{
    if (kind->num_attention_heads % kind->num_kv_heads != 0)
        return mcp_fail(err, MCP_INVALID,
                        "num_kv_heads=%d does not divide num_attention_heads=%d; the nearest that "
                        "does is %d",
                        kind->num_kv_heads, kind->num_attention_heads,
                        nearest_divisor(kind->num_attention_heads, kind->num_kv_heads));
    if (kind->kv_lora_rank != 0 || kind->q_lora_rank != 0)
        return mcp_fail(err, MCP_INVALID,
                        "kv_lora_rank and q_lora_rank belong to attention "
                        "\"latent\", this is \"grouped\"");
    if (kind->keys_are_values && kind->head_dim != kind->value_head_dim)
        return mcp_fail(err, MCP_INVALID,
                        "keys_are_values, but head_dim=%d and value_head_dim=%d differ",
                        kind->head_dim, kind->value_head_dim);
    return MCP_OK;
}

static enum mcp_status check_recurrent(const struct mcp_layer_kind *kind, struct mcp_error *err)
{
    if (kind->num_kv_heads != 0 || kind->value_head_dim != kind->head_dim)
        return mcp_fail(err, MCP_INVALID,
                        "num_kv_heads=%d, value_head_dim=%d: a recurrent layer keeps no keys, and "
                        "its values are head_dim=%d wide",
                        kind->num_kv_heads, kind->value_head_dim, kind->head_dim);
    if (kind->num_attention_heads % kind->num_groups != 0)
        return mcp_fail(err, MCP_INVALID,
                        "num_groups=%d does not divide num_attention_heads=%d; the nearest that "
                        "does is %d",
                        kind->num_groups, kind->num_attention_heads,
                        nearest_divisor(kind->num_attention_heads, kind->num_groups));
    if (kind->attention == MCP_ATTENTION_MAMBA && (kind->num_groups != 1 || kind->head_dim != 1))
        return mcp_fail(err, MCP_INVALID,
                        "head_dim=%d, num_groups=%d: Mamba's heads are channels of 1 in one group",
                        kind->head_dim, kind->num_groups);
    if (kind->sliding_window != 0 || kind->index_topk != 0 || kind->attention_sinks)
        return mcp_fail(err, MCP_INVALID,
                        "sliding_window, index_topk and attention_sinks belong to attention "
                        "\"grouped\" or \"latent\"");
    return MCP_OK;
}

/* What each way of mixing needs at least one of. */
static enum mcp_status check_needed(const struct mcp_layer_kind *kind, struct mcp_error *err)
{
    const bool softmax = mcp_has_softmax(kind), recurrent = mcp_is_recurrent(kind);
    const bool mamba = kind->attention == MCP_ATTENTION_MAMBA;
    const struct {
        const char *key;
        int value;
        bool needed;
    } needs[] = {
        {"num_attention_heads", kind->num_attention_heads, softmax || recurrent},
        {"num_kv_heads", kind->num_kv_heads, softmax},
        {"head_dim", kind->head_dim, softmax || recurrent},
        {"value_head_dim", kind->value_head_dim, softmax || recurrent},
        {"state_size", kind->state_size, recurrent},
        {"num_groups", kind->num_groups, recurrent},
        {"chunk_size", kind->chunk_size, recurrent},
        {"time_step_rank", kind->time_step_rank, mamba},
    };
    for (size_t i = 0; i < MCP_COUNT_OF(needs); i++) {
        if (needs[i].needed && needs[i].value < 1)
            return mcp_fail(err, MCP_INVALID, "%s=%d must lie in 1..65536", needs[i].key,
                            needs[i].value);
        if (kind->attention == MCP_ATTENTION_NONE && needs[i].value != 0)
            return mcp_fail(err, MCP_INVALID, "%s=%d, but attention is \"none\"", needs[i].key,
                            needs[i].value);
    }
    return MCP_OK;
}

static enum mcp_status check_attention(const struct mcp_layer_kind *kind, struct mcp_error *err)
{
    MCP_TRY(check_needed(kind, err));
    if (kind->attention == MCP_ATTENTION_LATENT)
        return check_latent(kind, err);
    if (kind->attention == MCP_ATTENTION_GROUPED)
        return check_grouped(kind, err);
    return mcp_is_recurrent(kind) ? check_recurrent(kind, err) : MCP_OK;
}

static enum mcp_status check_mlp(const struct mcp_layer_kind *kind, struct mcp_error *err)
{
    if (kind->mlp == MCP_MLP_NONE) {
        if (kind->num_experts != 0 || kind->ffn_hidden_size != 0)
            return mcp_fail(err, MCP_INVALID,
                            "num_experts=%d, ffn_hidden_size=%d, but mlp is \"none\"",
                            kind->num_experts, kind->ffn_hidden_size);
        if (kind->attention == MCP_ATTENTION_NONE)
            return mcp_fail(err, MCP_INVALID, "a layer needs attention or an mlp, it has neither");
        return MCP_OK;
    }
    if (kind->mlp == MCP_MLP_DENSE) {
        if (kind->ffn_hidden_size < 1)
            return mcp_fail(err, MCP_INVALID, "ffn_hidden_size=0: a dense MLP needs at least 1");
        if (kind->num_experts != 0)
            return mcp_fail(err, MCP_INVALID,
                            "num_experts=%d belongs to mlp \"experts\", this is "
                            "\"dense\"",
                            kind->num_experts);
        return MCP_OK;
    }
    if (kind->num_experts < 1 || kind->moe_ffn_hidden_size < 1)
        return mcp_fail(err, MCP_INVALID,
                        "num_experts=%d and moe_ffn_hidden_size=%d: mlp \"experts\" needs at least "
                        "1 of both",
                        kind->num_experts, kind->moe_ffn_hidden_size);
    if (kind->experts_per_token < 1 || kind->experts_per_token > kind->num_experts)
        return mcp_fail(err, MCP_INVALID, "experts_per_token=%d must lie in 1..num_experts=%d",
                        kind->experts_per_token, kind->num_experts);
    return MCP_OK;
}

static enum mcp_status check_kinds(const struct mcp_model *model, struct mcp_error *err)
{
    if (model->num_kinds < 1 || model->num_kinds > MCP_MAX_LAYER_KINDS)
        return mcp_fail(err, MCP_INVALID, "%d kinds of layers; 1..%d are possible",
                        model->num_kinds, MCP_MAX_LAYER_KINDS);
    for (int i = 0; i < model->num_kinds; i++) {
        const struct mcp_layer_kind *kind = &model->kinds[i];
        MCP_TRY(mcp_fields_check(kind, mcp_kind_fields, MCP_COUNT_OF(mcp_kind_fields), err));
        MCP_TRY(check_attention(kind, err));
        MCP_TRY(check_mlp(kind, err));
    }
    for (int layer = 0; layer < model->num_layers; layer++)
        if (model->layer_kind[layer] >= model->num_kinds)
            return mcp_fail(err, MCP_INVALID, "layer %d is of kind %d, but there are %d kinds",
                            layer, model->layer_kind[layer], model->num_kinds);
    if (model->num_mtp_layers > 0 && (model->mtp_kind < 0 || model->mtp_kind >= model->num_kinds))
        return mcp_fail(err, MCP_INVALID, "mtp_kind=%d, but there are %d kinds of layers",
                        model->mtp_kind, model->num_kinds);
    return MCP_OK;
}

/* The largest layer as often as there are layers, an upper bound of the total. */
static enum mcp_status check_total(const struct mcp_model *model, struct mcp_error *err)
{
    int64_t largest = 0;
    for (int i = 0; i < model->num_kinds; i++) {
        const struct mcp_parameters count = mcp_layer_parameters(model, &model->kinds[i]);
        const int64_t layer = mcp_parameters_total(&count);
        largest = layer > largest ? layer : largest;
    }
    const int64_t layers = (int64_t)model->num_layers + 2 * (int64_t)model->num_mtp_layers;
    int64_t total;
    if (!mcp_multiply(largest, layers, &total) || total > MAX_PARAMETERS)
        return mcp_fail(err, MCP_INVALID,
                        "too large: num_layers=%d layers of %" PRId64
                        " parameters exceed 2^53 parameters",
                        model->num_layers, largest);
    return MCP_OK;
}

enum mcp_status mcp_model_check(const struct mcp_model *model, struct mcp_error *err)
{
    MCP_TRY(mcp_fields_check(model, mcp_model_fields, MCP_COUNT_OF(mcp_model_fields), err));
    if (model->position == MCP_POSITION_LEARNED && model->max_sequence_length < 1)
        return mcp_fail(err, MCP_INVALID,
                        "max_sequence_length=0: learned positions need their number");
    MCP_TRY(check_kinds(model, err));
    return check_total(model, err);
}
