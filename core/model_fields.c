/* core/model_fields.c: the table of core/model_fields.h. */
#include "core/model_fields.h"

/* Limits that keep every product of one layer below 2^62. */
#define MAX_WIDTH (1 << 22)
#define MAX_HEADS (1 << 16)
#define MAX_EXPERTS (1 << 14)
#define MAX_VOCAB (1 << 30)
#define MAX_TOKENS (1 << 30)

#define SIZE(name, low, high)                                                                      \
    {                                                                                              \
#name, offsetof(struct mcp_layer_kind, name), false, low, high                             \
    }
#define FLAG(name)                                                                                 \
    {                                                                                              \
#name, offsetof(struct mcp_layer_kind, name), true, 0, 1                                   \
    }
const struct mcp_model_field mcp_kind_fields[MCP_NUM_KIND_FIELDS] = {
    SIZE(num_attention_heads, 0, MAX_HEADS),
    SIZE(num_kv_heads, 0, MAX_HEADS),
    SIZE(head_dim, 0, MAX_HEADS),
    SIZE(value_head_dim, 0, MAX_HEADS),
    SIZE(q_lora_rank, 0, MAX_WIDTH),
    SIZE(kv_lora_rank, 0, MAX_WIDTH),
    SIZE(qk_rope_head_dim, 0, MAX_HEADS),
    SIZE(sliding_window, 0, MAX_TOKENS),
    SIZE(attention_chunk_size, 0, MAX_TOKENS),
    SIZE(index_num_heads, 0, MAX_EXPERTS),
    SIZE(index_head_dim, 0, MAX_EXPERTS),
    SIZE(index_topk, 0, MAX_TOKENS),
    SIZE(state_size, 0, MAX_EXPERTS),
    SIZE(num_groups, 0, MAX_HEADS),
    SIZE(conv_kernel, 0, 256),
    SIZE(chunk_size, 0, MAX_HEADS),
    SIZE(time_step_rank, 0, MAX_HEADS),
    FLAG(conv_bias),
    FLAG(attention_output_gate),
    FLAG(keys_are_values),
    FLAG(attention_sinks),
    FLAG(attention_bias),
    FLAG(attention_output_bias),
    FLAG(qk_norm),
    FLAG(qk_layernorm_full),
    FLAG(gated_mlp),
    FLAG(mlp_bias),
    SIZE(ffn_hidden_size, 0, MAX_WIDTH),
    SIZE(num_experts, 0, MAX_EXPERTS),
    SIZE(experts_per_token, 0, MAX_EXPERTS),
    SIZE(moe_ffn_hidden_size, 0, MAX_WIDTH),
    SIZE(shared_expert_ffn_hidden_size, 0, MAX_WIDTH),
    FLAG(shared_expert_gate),
    FLAG(router_bias),
    FLAG(router_correction_bias),
    FLAG(expert_bias),
};
#undef SIZE
#undef FLAG

#define SIZE(name, low, high)                                                                      \
    {                                                                                              \
#name, offsetof(struct mcp_model, name), false, low, high                                  \
    }
#define FLAG(name)                                                                                 \
    {                                                                                              \
#name, offsetof(struct mcp_model, name), true, 0, 1                                        \
    }
const struct mcp_model_field mcp_model_fields[MCP_NUM_MODEL_FIELDS] = {
    SIZE(num_layers, 1, MCP_MAX_LAYERS),
    SIZE(hidden_size, 1, MAX_WIDTH),
    SIZE(vocab_size, 1, MAX_VOCAB),
    SIZE(max_sequence_length, 0, MAX_TOKENS),
    SIZE(extra_positions, 0, 1024),
    SIZE(norms_per_layer, 1, 8),
    SIZE(num_mtp_layers, 0, 64),
    FLAG(head_bias),
    FLAG(embedding_norm),
};
#undef SIZE
#undef FLAG

int mcp_field_int(const void *object, const struct mcp_model_field *field)
{
    return *(const int *)(const void *)((const char *)object + field->offset);
}

bool mcp_field_bool(const void *object, const struct mcp_model_field *field)
{
    return *(const bool *)(const void *)((const char *)object + field->offset);
}

enum mcp_status mcp_fields_check(const void *object, const struct mcp_model_field *fields,
                                 size_t count, struct mcp_error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (fields[i].is_bool)
            continue;
        const int value = mcp_field_int(object, &fields[i]);
        if (value < fields[i].low || value > fields[i].high)
            return mcp_fail(err, MCP_INVALID, "%s=%d must lie in %d..%d", fields[i].key, value,
                            fields[i].low, fields[i].high);
    }
    return MCP_OK;
}
