/* core/job.c: what one step must do: defaults, range checks, JSON. */
#include "core/job.h"

const char *const mcp_optimizer_names[MCP_NUM_OPTIMIZERS] = {"adam", "one_bit_adam"};
const char *const mcp_phase_names[MCP_NUM_PHASES] = {"warm", "frozen"};

static const int64_t max_count = INT64_C(1) << 31;

struct mcp_job mcp_job_default(void)
{
    return (struct mcp_job){
        .global_batch_size = 1,
        .sequence_length = 2048,
        .precision = MCP_PRECISION_BF16,
        .attention = "",
        .memory_limit_frac = 0.94,
    };
}

bool mcp_job_is_frozen(const struct mcp_job *job)
{
    return job->optimizer == MCP_OPTIMIZER_ONE_BIT_ADAM && job->phase == MCP_PHASE_FROZEN;
}

bool mcp_job_clips(const struct mcp_job *job)
{
    return job->clip_global_norm != MCP_CLIP_OFF && !mcp_job_is_frozen(job);
}

bool mcp_job_finds_norm(const struct mcp_job *job)
{
    return mcp_job_clips(job) || mcp_job_is_frozen(job) || job->precision == MCP_PRECISION_FP16;
}

bool mcp_job_embeds_in_fp32(const struct mcp_job *job)
{
    return job->fp32_embedding_steps > 0 && mcp_activation_dtype(job->precision) != MCP_F32;
}

double mcp_job_warm_frac(const struct mcp_job *job)
{
    if (job->optimizer == MCP_OPTIMIZER_ADAM)
        return 1;
    if (job->freeze_step == 0 || job->num_steps == 0)
        return MCP_WARM_FRAC;
    return (double)job->freeze_step / (double)job->num_steps;
}

static enum mcp_status read_precision(struct mcp_json *json, struct mcp_job *job,
                                      struct mcp_error *err)
{
    if (!mcp_json_has(json, "precision"))
        return MCP_OK;
    int index;
    MCP_TRY(
        mcp_json_choice(json, "precision", mcp_precision_names, MCP_NUM_PRECISIONS, &index, err));
    job->precision = (enum mcp_precision)index;
    return MCP_OK;
}

/* The frozen phase is most of a run: the one that is meant where none is named. */
static enum mcp_status read_optimizer(struct mcp_json *json, struct mcp_job *job,
                                      struct mcp_error *err)
{
    int index;
    if (mcp_json_has(json, "optimizer")) {
        MCP_TRY(mcp_json_choice(json, "optimizer", mcp_optimizer_names, MCP_NUM_OPTIMIZERS, &index,
                                err));
        job->optimizer = (enum mcp_optimizer)index;
    }
    if (job->optimizer == MCP_OPTIMIZER_ONE_BIT_ADAM)
        job->phase = MCP_PHASE_FROZEN;
    if (mcp_json_has(json, "phase")) {
        MCP_TRY(mcp_json_choice(json, "phase", mcp_phase_names, MCP_NUM_PHASES, &index, err));
        job->phase = (enum mcp_phase)index;
    }
    if (mcp_json_has(json, "freeze_step"))
        MCP_TRY(mcp_json_int64(json, "freeze_step", &job->freeze_step, err));
    if (mcp_json_has(json, "num_steps"))
        MCP_TRY(mcp_json_int64(json, "num_steps", &job->num_steps, err));
    return MCP_OK;
}

static enum mcp_status read_clip(struct mcp_json *json, struct mcp_job *job, struct mcp_error *err)
{
    bool clips;
    if (!mcp_json_has(json, "clip_global_norm"))
        return MCP_OK;
    MCP_TRY(mcp_json_bool(json, "clip_global_norm", &clips, err));
    job->clip_global_norm = clips ? MCP_CLIP_ON : MCP_CLIP_OFF;
    return MCP_OK;
}

enum mcp_status mcp_job_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                  struct mcp_job *out, struct mcp_error *err)
{
    struct mcp_job job = mcp_job_default();
    MCP_TRY(mcp_json_int64(json, "global_batch_size", &job.global_batch_size, err));
    MCP_TRY(mcp_json_int64(json, "sequence_length", &job.sequence_length, err));
    MCP_TRY(read_precision(json, &job, err));
    MCP_TRY(mcp_json_maybe_bool(json, "dropout", &job.dropout, err));
    MCP_TRY(mcp_json_maybe_string(json, "attention", &job.attention, err));
    MCP_TRY(mcp_json_maybe_double(json, "memory_limit_frac", &job.memory_limit_frac, err));
    MCP_TRY(read_optimizer(json, &job, err));
    MCP_TRY(read_clip(json, &job, err));
    if (mcp_json_has(json, "fp32_embedding_steps"))
        MCP_TRY(mcp_json_int64(json, "fp32_embedding_steps", &job.fp32_embedding_steps, err));
    if (mcp_json_has(json, "saved_activation_bits"))
        MCP_TRY(mcp_json_int(json, "saved_activation_bits", &job.saved_activation_bits, err));
    struct mcp_error why;
    if (mcp_job_check(&job, &why) != MCP_OK) {
        mcp_json_fail(json, err, "%s", why.text);
        return MCP_INVALID;
    }
    job.attention = mcp_strdup(arena, job.attention);
    *out = job;
    return MCP_OK;
}

void mcp_job_to_json(const struct mcp_job *job, struct mcp_json *object)
{
    mcp_json_set_int(object, "global_batch_size", job->global_batch_size);
    mcp_json_set_int(object, "sequence_length", job->sequence_length);
    mcp_json_set_string(object, "precision", mcp_precision_names[job->precision]);
    mcp_json_set_bool(object, "dropout", job->dropout);
    mcp_json_set_string(object, "attention", job->attention);
    mcp_json_set_double(object, "memory_limit_frac", job->memory_limit_frac);
    mcp_json_set_string(object, "optimizer", mcp_optimizer_names[job->optimizer]);
    if (job->clip_global_norm != MCP_CLIP_BY_DEFAULT)
        mcp_json_set_bool(object, "clip_global_norm", job->clip_global_norm == MCP_CLIP_ON);
    if (job->fp32_embedding_steps != 0)
        mcp_json_set_int(object, "fp32_embedding_steps", job->fp32_embedding_steps);
    if (job->saved_activation_bits != 0)
        mcp_json_set_int(object, "saved_activation_bits", job->saved_activation_bits);
    if (job->optimizer == MCP_OPTIMIZER_ADAM)
        return;
    mcp_json_set_string(object, "phase", mcp_phase_names[job->phase]);
    mcp_json_set_int(object, "freeze_step", job->freeze_step);
    mcp_json_set_int(object, "num_steps", job->num_steps);
}

static enum mcp_status check_count(const char *name, int64_t value, struct mcp_error *err)
{
    if (value >= 1 && value < max_count)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID, "%s=%lld is not between 1 and %lld", name, (long long)value,
                    (long long)max_count - 1);
}

static enum mcp_status check_phases(const struct mcp_job *job, struct mcp_error *err)
{
    bool adam = job->optimizer == MCP_OPTIMIZER_ADAM;
    if (adam && job->phase != MCP_PHASE_WARM)
        return mcp_fail(err, MCP_INVALID,
                        "phase=%s is of optimizer one_bit_adam; the optimizer is adam",
                        mcp_phase_names[job->phase]);
    if (adam && job->freeze_step != 0)
        return mcp_fail(err, MCP_INVALID,
                        "freeze_step=%lld is of optimizer one_bit_adam; the optimizer is adam",
                        (long long)job->freeze_step);
    if (job->freeze_step < 0 || job->num_steps < 0)
        return mcp_fail(err, MCP_INVALID, "freeze_step=%lld or num_steps=%lld is negative",
                        (long long)job->freeze_step, (long long)job->num_steps);
    if (job->num_steps > 0 && job->freeze_step > job->num_steps)
        return mcp_fail(err, MCP_INVALID, "freeze_step=%lld is after the last of num_steps=%lld",
                        (long long)job->freeze_step, (long long)job->num_steps);
    return MCP_OK;
}

enum mcp_status mcp_job_check(const struct mcp_job *job, struct mcp_error *err)
{
    MCP_TRY(check_count("global_batch_size", job->global_batch_size, err));
    MCP_TRY(check_count("sequence_length", job->sequence_length, err));
    if (!(job->memory_limit_frac > 0 && job->memory_limit_frac <= 1))
        return mcp_fail(err, MCP_INVALID,
                        "memory_limit_frac=%g is not above 0 and at most 1; the default is 0.94",
                        job->memory_limit_frac);
    if (job->saved_activation_bits != 0 && job->saved_activation_bits != MCP_SAVED_ACTIVATION_BITS)
        return mcp_fail(err, MCP_INVALID,
                        "saved_activation_bits=%d is neither 8 nor 0, which keeps them as they are",
                        job->saved_activation_bits);
    return check_phases(job, err);
}
