/* core/numerics.h: a model's arithmetic beside its shapes: what costs nothing that is
 * counted, and what training must know all the same. */
#ifndef MCP_CORE_NUMERICS_H
#define MCP_CORE_NUMERICS_H

#include "core/error.h"
#include "core/json.h"

#include <stdbool.h>

enum mcp_activation {
    MCP_ACTIVATION_UNSAID, /* silu in gated MLPs, gelu_tanh in others */
    MCP_ACTIVATION_SILU,
    MCP_ACTIVATION_GELU_TANH, /* GPT-2's approximation by tanh */
    MCP_ACTIVATION_GELU,      /* by erf */
    MCP_ACTIVATION_RELU,
    MCP_ACTIVATION_OTHER, /* one that is not trained here */
    MCP_NUM_ACTIVATIONS
};
/* How rotary frequencies change for sequences longer than those first trained on. */
enum mcp_rotary_scaling {
    MCP_ROTARY_PLAIN,
    MCP_ROTARY_LINEAR, /* all of them divided by the factor */
    MCP_ROTARY_LLAMA3, /* slow ones divided, fast ones not, between them a mixture */
    MCP_ROTARY_OTHER,  /* yarn, longrope ..: not trained here */
    MCP_NUM_ROTARY_SCALINGS
};
extern const char *const mcp_activation_names[MCP_NUM_ACTIVATIONS];         /* "" "silu" ... */
extern const char *const mcp_rotary_scaling_names[MCP_NUM_ROTARY_SCALINGS]; /* "" "linear" ... */

/* All zero: what most models have. */
struct mcp_numerics {
    double norm_epsilon;  /* 0: 1e-5 */
    double rotary_base;   /* 0: 10000 */
    double rotary_frac;   /* of a head's columns that turn; 0: all */
    double rotary_factor; /* of the scaling, as the three below */
    double rotary_low_factor, rotary_high_factor;
    double rotary_original_length; /* tokens */
    double init_std;               /* of new weights; 0: 0.02 */
    bool raw_top_k;                /* the chosen experts' shares are not made to sum to 1 */
    enum mcp_activation activation;
    enum mcp_rotary_scaling rotary_scaling;
};

/* From Hugging Face's config.json, under its spellings; what is absent stays. */
enum mcp_status mcp_numerics_from_config(struct mcp_json *config, struct mcp_numerics *out,
                                         struct mcp_error *err);
/* The object "numerics" of our own files: keys as fields, zeros unsaid; not written at all
 * when everything is zero. */
enum mcp_status mcp_numerics_from_json(struct mcp_json *model, struct mcp_numerics *out,
                                       struct mcp_error *err);
void mcp_numerics_to_json(const struct mcp_numerics *numerics, struct mcp_json *model);

#endif
