/* exec/run_options.h: what a training run is asked for: the options that `mcpplan train`
 * hands to the executor's ranks, as text and back, by one table. */
#ifndef MCP_EXEC_RUN_OPTIONS_H
#define MCP_EXEC_RUN_OPTIONS_H

#include "core/text.h"
#include "exec/train.h"

struct mcp_run_options {
    const char *program;         /* file of the step program */
    const char *frozen_program;  /* of 1-bit Adam, from freeze_step on; NULL: none */
    const char *data;            /* file or folder of tokens */
    const char *eval_program;    /* of eval_data: the program's forwards (step/build.h) */
    const char *eval_data;       /* nothing is learnt from; NULL: none */
    const char *metrics;         /* one JSON object a step; NULL: none */
    const char *timeline;        /* of the fastest step; NULL: none */
    const char *summary;         /* the run's facts, at its end; NULL: none */
    const char *tensorboard_dir; /* event files; NULL: none */
    const char *checkpoint_dir;  /* NULL: none */
    const char *export_path;     /* safetensors of Hugging Face's names, at the end; NULL: none */
    const char *init_from;       /* a Hugging Face model's weights; NULL: new ones */
    int64_t steps;
    int64_t freeze_step;      /* first step of frozen_program, from 1 on */
    int64_t checkpoint_every; /* steps; 0: at the end alone */
    int64_t eval_every;       /* steps; 0: at the end alone */
    int64_t eval_steps;       /* batches of each evaluation; 0: all that eval_data holds */
    int64_t watch_every;      /* steps between looks at groups and activations; 0: never */
    bool resume;              /* from the newest checkpoint of checkpoint_dir */
    bool no_verify;           /* run the program unseen */
    int64_t seed;
    double learning_rate, min_learning_rate;
    int64_t warmup_steps;
    int64_t decay_steps; /* after those; 0 and a rate that falls: the rest of steps */
    int64_t decay;       /* enum mcp_decay */
    double beta1, beta2, epsilon, weight_decay, clip_norm;
    double initial_loss_scale;  /* of programs that store fp16 */
    int64_t loss_scale_window;  /* steps without overflow after which it doubles */
    double residual_init_scale; /* of what new residual projections begin with */
    double timeout_s;       /* of what waits for other ranks and does not move; 0: waits for ever */
    double flops_per_token; /* of the model, training; 0: unknown */
    double peak_flops_per_s; /* of all ranks together; 0: unknown */
    /* what the plan's cluster has, which executors on GPUs compare with what they find */
    const char *planned_gpu; /* NULL: unknown, as the two that follow are then */
    int64_t planned_memory_bytes, planned_gpus_per_node;
};

struct mcp_run_options mcp_run_options_default(void);
/* MCP_USAGE where an option needs another that is not given. */
enum mcp_status mcp_run_options_check(const struct mcp_run_options *options, struct mcp_error *err);

/* From argv[1] on: "--learning-rate 1e-4", "--resume". MCP_USAGE names what is unknown, twice
 * there, or no value of its kind. decay_steps is filled in where it is left out. */
enum mcp_status mcp_run_options_parse(int argc, char **argv, struct mcp_run_options *out,
                                      struct mcp_error *err);
/* Those that differ from the defaults, as words of a command line; returns how many. */
int mcp_run_options_words(struct mcp_arena *arena, const struct mcp_run_options *options,
                          const char ***words);

/* All of them, one a line: "  --steps N". */
void mcp_run_options_list(struct mcp_text *out);

struct mcp_train_options mcp_run_train_options(const struct mcp_run_options *options);

#endif
