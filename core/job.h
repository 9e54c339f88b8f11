/* core/job.h: what one step must do, whoever runs it. */
#ifndef MCP_CORE_JOB_H
#define MCP_CORE_JOB_H

#include "core/arena.h"
#include "core/error.h"
#include "core/json.h"
#include "core/model.h"
#include "core/precision.h"

#include <stdbool.h>
#include <stdint.h>

enum mcp_optimizer {
    MCP_OPTIMIZER_ADAM,
    MCP_OPTIMIZER_ONE_BIT_ADAM, /* Tang et al. 2021 (arXiv 2102.02888) */
    MCP_NUM_OPTIMIZERS
};
extern const char *const mcp_optimizer_names[MCP_NUM_OPTIMIZERS]; /* "adam", "one_bit_adam" */

/* Ranges of a run's steps. 1-bit Adam starts as Adam (warm); from freeze_step on (frozen)
 * its variance stays as it is and signs of the momentum are sent in place of gradients.
 * Others have one phase, warm. */
enum mcp_phase { MCP_PHASE_WARM, MCP_PHASE_FROZEN, MCP_NUM_PHASES };
extern const char *const mcp_phase_names[MCP_NUM_PHASES]; /* "warm", "frozen" */

/* Are gradients clipped by their norm over all ranks? By default whenever there is one. */
enum mcp_clip { MCP_CLIP_BY_DEFAULT, MCP_CLIP_OFF, MCP_CLIP_ON };

struct mcp_job {
    int64_t global_batch_size; /* sequences per step */
    int64_t sequence_length;   /* tokens per sequence */
    enum mcp_precision precision;
    bool dropout;             /* masks are made, saved and applied */
    const char *attention;    /* a kernel of the GPU's list, or "unfused"; "" = stack's */
    double memory_limit_frac; /* of usable memory; default 0.94 */
    enum mcp_optimizer optimizer;
    enum mcp_phase phase; /* of the step that is planned */
    int64_t freeze_step;  /* steps of the warm phase; 0: not told */
    int64_t num_steps;    /* of the run; 0: not told */
    enum mcp_clip clip_global_norm;
    /* The table of embeddings, what is tied to it, and learned positions are kept and looked up in
     * fp32: exactly so in the run's first steps, so many; over as many steps again what is looked
     * up becomes, in even parts, what the job's precision would make of it. 0: they are as the
     * rest. */
    int64_t fp32_embedding_steps;
    int saved_activation_bits; /* of what decoder layers keep for their backward; 0: as computed */
};
/* Does a step keep its embeddings in fp32 beside 16 bit weights? */
bool mcp_job_embeds_in_fp32(const struct mcp_job *job);
/* The only other one that there is: blocks of MCP_QUANTISED_BLOCK numbers with one scale. */
#define MCP_SAVED_ACTIVATION_BITS 8

struct mcp_job mcp_job_default(void);
/* Is a step of this job one with frozen variance and compressed momentum? */
bool mcp_job_is_frozen(const struct mcp_job *job);
/* Does its step clip by the global norm, and so find it? Not where momentum is compressed: no
 * rank has the whole gradient then, and to ask for it is not legal (step/legal.h). */
bool mcp_job_clips(const struct mcp_job *job);
/* Does its step find a norm of the gradients? To clip; in fp16 to see that scaled gradients
 * did not overflow; where momentum is compressed to see that they are finite: it is that of
 * what each rank has by itself then, root mean square over a group. */
bool mcp_job_finds_norm(const struct mcp_job *job);
/* Share of the run's steps in the warm phase: freeze_step / num_steps, or
 * MCP_WARM_FRAC where they are not told; 1 under Adam. */
double mcp_job_warm_frac(const struct mcp_job *job);
/* In the middle of the 15 to 25 % that DeepSpeed's documentation advises. */
#define MCP_WARM_FRAC 0.2

enum mcp_status mcp_job_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                  struct mcp_job *out, struct mcp_error *err);
void mcp_job_to_json(const struct mcp_job *job, struct mcp_json *object);
enum mcp_status mcp_job_check(const struct mcp_job *job, struct mcp_error *err);

#endif
