/* exec/hugging_face_names.c: which tensor of Hugging Face's a row of a part belongs to. */
#include "core/text.h"
#include "exec/hugging_face.h"

#include <stdio.h>
#include <string.h>

const char *const mcp_hf_naming_names[MCP_NUM_HF_NAMINGS] = {"gpt2", "llama", "mixtral",
                                                             "qwen_moe"};

enum { GPT2 = 1 << MCP_HF_GPT2, LLAMA = 1 << MCP_HF_LLAMA, MIXTRAL = 1 << MCP_HF_MIXTRAL };
enum { QWEN_MOE = 1 << MCP_HF_QWEN_MOE, LLAMAS = LLAMA | MIXTRAL | QWEN_MOE };
enum { MAX_TENSORS = 3 };

/* A part, and its tensors from the first row down. %d is the decoder layer, then the
 * expert. */
struct row {
    unsigned namings;
    bool transposed;
    char part[16];
    char tensors[MAX_TENSORS][64];
};

#define LAYER "model.layers.%d."
static const struct row rows[] = {
    {GPT2, false, "embedding", {"wte.weight"}},
    {GPT2, false, "positions", {"wpe.weight"}},
    {GPT2, false, "attention_norm", {"h.%d.ln_1.weight", "h.%d.ln_1.bias"}},
    {GPT2, true, "qkv", {"h.%d.attn.c_attn.weight"}},
    {GPT2, false, "qkv_bias", {"h.%d.attn.c_attn.bias"}},
    {GPT2, true, "out", {"h.%d.attn.c_proj.weight"}},
    {GPT2, false, "out_bias", {"h.%d.attn.c_proj.bias"}},
    {GPT2, false, "mlp_norm", {"h.%d.ln_2.weight", "h.%d.ln_2.bias"}},
    {GPT2, true, "up", {"h.%d.mlp.c_fc.weight"}},
    {GPT2, false, "up_bias", {"h.%d.mlp.c_fc.bias"}},
    {GPT2, true, "down", {"h.%d.mlp.c_proj.weight"}},
    {GPT2, false, "down_bias", {"h.%d.mlp.c_proj.bias"}},
    {GPT2, false, "final_norm", {"ln_f.weight", "ln_f.bias"}},
    {GPT2 | LLAMAS, false, "head", {"lm_head.weight"}},
    {LLAMAS, false, "embedding", {"model.embed_tokens.weight"}},
    {LLAMAS, false, "attention_norm", {LAYER "input_layernorm.weight"}},
    {LLAMAS,
     false,
     "qkv",
     {LAYER "self_attn.q_proj.weight", LAYER "self_attn.k_proj.weight",
      LAYER "self_attn.v_proj.weight"}},
    {LLAMAS,
     false,
     "qkv_bias",
     {LAYER "self_attn.q_proj.bias", LAYER "self_attn.k_proj.bias", LAYER "self_attn.v_proj.bias"}},
    {LLAMAS, false, "qk_norm", {LAYER "self_attn.q_norm.weight", LAYER "self_attn.k_norm.weight"}},
    {LLAMAS, false, "out", {LAYER "self_attn.o_proj.weight"}},
    {LLAMAS, false, "out_bias", {LAYER "self_attn.o_proj.bias"}},
    {LLAMAS, false, "mlp_norm", {LAYER "post_attention_layernorm.weight"}},
    {LLAMAS, false, "up", {LAYER "mlp.gate_proj.weight", LAYER "mlp.up_proj.weight"}},
    {LLAMAS, false, "up_bias", {LAYER "mlp.gate_proj.bias", LAYER "mlp.up_proj.bias"}},
    {LLAMAS, false, "down", {LAYER "mlp.down_proj.weight"}},
    {LLAMAS, false, "down_bias", {LAYER "mlp.down_proj.bias"}},
    {LLAMAS, false, "final_norm", {"model.norm.weight"}},
    {MIXTRAL, false, "router", {LAYER "block_sparse_moe.gate.weight"}},
    {MIXTRAL,
     false,
     "expert_up",
     {LAYER "block_sparse_moe.experts.%d.w1.weight",
      LAYER "block_sparse_moe.experts.%d.w3.weight"}},
    {MIXTRAL, false, "expert_down", {LAYER "block_sparse_moe.experts.%d.w2.weight"}},
    {QWEN_MOE, false, "router", {LAYER "mlp.gate.weight"}},
    {QWEN_MOE,
     false,
     "expert_up",
     {LAYER "mlp.experts.%d.gate_proj.weight", LAYER "mlp.experts.%d.up_proj.weight"}},
    {QWEN_MOE, false, "expert_down", {LAYER "mlp.experts.%d.down_proj.weight"}},
};

static const struct row *find_row(enum mcp_hf_naming naming, const char *part)
{
    for (size_t i = 0; i < MCP_COUNT_OF(rows); i++)
        if ((rows[i].namings & 1u << naming) != 0 && mcp_same(rows[i].part, part))
            return &rows[i];
    return NULL;
}

static int count_tensors(const struct row *row)
{
    int count = 0;
    while (count < MAX_TENSORS && row->tensors[count][0] != '\0')
        count++;
    return count;
}

static int count_bands(const struct mcp_weight *weight)
{
    int count = 0;
    while (count < MCP_MAX_BANDS && weight->bands[count] > 0)
        count++;
    return count;
}

/* How many tensors the part is, 0 when its bands are not those of the naming, or a norm has
 * biases that it has no name for. A part that is not gated has the last of two names. */
static int tensors_of_part(const struct row *row, const struct mcp_weight *weight,
                           const struct mcp_piece *piece, int *skipped)
{
    const int names = count_tensors(row), bands = count_bands(weight);
    *skipped = 0;
    if (weight->init == MCP_INIT_NORM && names < piece->tensor_rows)
        return 0;
    if (names == 1)
        return 1;
    if (bands == 1) {
        *skipped = names - 1;
        return 1;
    }
    if (bands > 0)
        return bands == names ? names : 0;
    return piece->tensor_rows < names ? (int)piece->tensor_rows : names;
}

/* The index-th tensor's share of the rows. Bands are a rank's: all ranks have the same. */
static int64_t rows_of_tensor(const struct mcp_weight *weight, const struct mcp_piece *piece,
                              int tensors, int index)
{
    if (tensors > 1 && count_bands(weight) == tensors)
        return weight->bands[index] * (piece->tensor_rows / weight->rows);
    return piece->tensor_rows / tensors;
}

static void set_name(const char *format, int layer, const struct mcp_piece *piece,
                     struct mcp_hf_tensor *out)
{
    int number = layer - 1; /* of the decoder; then the expert */
    size_t length = 0;
    for (; *format != '\0' && length + 12 < sizeof out->name; format++) {
        if (format[0] != '%') {
            out->name[length++] = *format;
            continue;
        }
        length += (size_t)snprintf(out->name + length, 12, "%d", number);
        number = piece->expert;
        format++;
    }
    out->name[length] = '\0';
}

bool mcp_hf_find(enum mcp_hf_naming naming, const struct mcp_layer_type *type, int layer,
                 const struct mcp_piece *piece, int64_t row, struct mcp_hf_tensor *out)
{
    const struct mcp_weight *weight = &type->weights[piece->part];
    const struct row *found = find_row(naming, weight->twin ? "embedding" : weight->name);
    int skipped = 0;
    const int tensors = found != NULL ? tensors_of_part(found, weight, piece, &skipped) : 0;
    *out = (struct mcp_hf_tensor){.columns = piece->tensor_columns};
    for (int i = 0; i < tensors; i++) {
        out->rows = rows_of_tensor(weight, piece, tensors, i);
        if (row < out->first_row + out->rows) {
            out->transposed = found->transposed;
            set_name(found->tensors[i + skipped], layer, piece, out);
            return true;
        }
        out->first_row += out->rows;
    }
    return false;
}
