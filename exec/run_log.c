/* exec/run_log.c: run.jsonl, line by line. */
#include "exec/run_log.h"

#include "core/file.h"
#include "core/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct mcp_run_log {
    const char *path;
    int file;
};

/* --- numbers of a step --- */

enum { NUM_NUMBERS = 12 };
struct number {
    const char *key;
    double value;
};

static void list_numbers(const struct mcp_step_metrics *m, struct number out[NUM_NUMBERS])
{
    const struct number numbers[NUM_NUMBERS] = {
        {"loss", m->loss},
        {"grad_norm", m->grad_norm},
        {"learning_rate", m->learning_rate},
        {"tokens", (double)m->tokens},
        {"step_s", m->step_s},
        {"tokens_per_s", mcp_tokens_per_s(m)},
        {"peak_memory_bytes", (double)m->peak_memory_bytes},
        {"data_wait_s", m->data_wait_s},
        {"loss_scale", m->loss_scale},
        {"model_flops_utilization", mcp_model_flops_utilization(m)},
        {"bubble_frac", m->bubble_frac},
        {"exposed_comm_frac", m->exposed_comm_frac},
    };
    memcpy(out, numbers, sizeof numbers);
}

/* --- lines --- */

static void add_number(struct mcp_text *out, const char *key, double value)
{
    mcp_text_add(out, "\"%s\":", key);
    if (isfinite(value))
        mcp_text_add_number(out, value);
    else
        mcp_text_add(out, "null");
}

static void add_string(struct mcp_text *out, const char *text)
{
    mcp_text_add(out, "\"");
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20)
            mcp_text_add(out, "\\u%04x", (unsigned)*text);
        else
            mcp_text_add(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    mcp_text_add(out, "\"");
}

static void add_groups(struct mcp_text *out, const struct mcp_step_metrics *m)
{
    mcp_text_add(out, ",\"groups\":[");
    for (int i = 0; i < m->num_groups; i++) {
        const struct mcp_group_metrics *group = &m->groups[i];
        mcp_text_add(out, "%s{\"name\":", i > 0 ? "," : "");
        add_string(out, group->name);
        mcp_text_add(out, ",");
        add_number(out, "grad_norm", group->grad_norm);
        mcp_text_add(out, ",");
        add_number(out, "update_ratio", mcp_update_ratio(group));
        mcp_text_add(out, "}");
    }
    mcp_text_add(out, "]");
}

static void add_activations(struct mcp_text *out, const struct mcp_step_metrics *m)
{
    mcp_text_add(out, ",\"activations\":[");
    for (int i = 0; i < m->num_activations; i++) {
        mcp_text_add(out, "%s{\"layer\":%d,", i > 0 ? "," : "", m->activations[i].layer);
        add_number(out, "mean", m->activations[i].mean);
        mcp_text_add(out, ",");
        add_number(out, "variance", m->activations[i].variance);
        mcp_text_add(out, "}");
    }
    mcp_text_add(out, "]");
}

static void add_alarms(struct mcp_text *out, const struct mcp_alarm *alarms, int count)
{
    mcp_text_add(out, ",\"alarms\":[");
    for (int i = 0; i < count; i++) {
        mcp_text_add(out, "%s{\"kind\":\"%s\",\"text\":", i > 0 ? "," : "",
                     mcp_alarm_names[alarms[i].kind]);
        add_string(out, alarms[i].text);
        mcp_text_add(out, "}");
    }
    mcp_text_add(out, "]");
}

void mcp_run_line(struct mcp_text *out, const struct mcp_step_metrics *metrics,
                  const struct mcp_alarm *alarms, int num_alarms)
{
    struct number numbers[NUM_NUMBERS];
    list_numbers(metrics, numbers);
    mcp_text_add(out, "{\"step\":%lld", (long long)metrics->step);
    for (int i = 0; i < NUM_NUMBERS; i++) {
        mcp_text_add(out, ",");
        add_number(out, numbers[i].key, numbers[i].value);
    }
    mcp_text_add(out, ",");
    add_number(out, "grad_norm_per_million",
               mcp_grad_norm_per_million(metrics->grad_norm, metrics->parameters));
    mcp_text_add(out, ",\"skipped\":%s", metrics->skipped ? "true" : "false");
    if (metrics->evaluated) {
        mcp_text_add(out, ",");
        add_number(out, "eval_loss", metrics->eval_loss);
    }
    if (metrics->num_groups > 0)
        add_groups(out, metrics);
    if (metrics->num_activations > 0)
        add_activations(out, metrics);
    if (num_alarms > 0)
        add_alarms(out, alarms, num_alarms);
    mcp_text_add(out, "}\n");
}

void mcp_run_scalars(struct mcp_events *events, const struct mcp_step_metrics *metrics)
{
    struct number numbers[NUM_NUMBERS];
    char tag[160];
    list_numbers(metrics, numbers);
    for (int i = 0; i < NUM_NUMBERS; i++)
        if (isfinite(numbers[i].value))
            mcp_events_scalar(events, numbers[i].key, numbers[i].value);
    if (isfinite(metrics->eval_loss))
        mcp_events_scalar(events, "eval_loss", metrics->eval_loss);
    for (int i = 0; i < metrics->num_groups; i++) {
        snprintf(tag, sizeof tag, "grad_norm/%s", metrics->groups[i].name);
        mcp_events_scalar(events, tag, metrics->groups[i].grad_norm);
        snprintf(tag, sizeof tag, "update_ratio/%s", metrics->groups[i].name);
        mcp_events_scalar(events, tag, mcp_update_ratio(&metrics->groups[i]));
    }
    for (int i = 0; i < metrics->num_activations; i++) {
        snprintf(tag, sizeof tag, "activation_mean/layer_%03d", metrics->activations[i].layer);
        mcp_events_scalar(events, tag, metrics->activations[i].mean);
        snprintf(tag, sizeof tag, "activation_variance/layer_%03d", metrics->activations[i].layer);
        mcp_events_scalar(events, tag, metrics->activations[i].variance);
    }
}

/* --- the file --- */

/* Does a whole line tell of a step before `first_step`? */
static bool is_kept(const char *path, const char *line, size_t length, int64_t first_step)
{
    struct mcp_arena *scratch = mcp_arena_new();
    struct mcp_json *json;
    int64_t step = first_step;
    const bool known = mcp_json_parse(scratch, path, line, length, &json, NULL) == MCP_OK &&
                       mcp_json_int64(json, "step", &step, NULL) == MCP_OK;
    mcp_arena_free(scratch);
    return known && step < first_step;
}

/* Where the line that ends before `end` begins. */
static size_t line_before(const char *text, size_t end)
{
    while (end > 0 && text[end - 1] != '\n')
        end--;
    return end;
}

/* How much of a log stays: steps ascend, so that looking back from its end is enough. */
static size_t length_until(const char *path, const struct mcp_file_view *view, int64_t first_step)
{
    const char *text = (const char *)view->data;
    size_t end = line_before(text, view->length); /* a cut line goes */
    while (end > 0) {
        const size_t start = line_before(text, end - 1);
        if (is_kept(path, text + start, end - 1 - start, first_step))
            break;
        end = start;
    }
    return end;
}

static enum mcp_status check_ours(const char *path, const struct mcp_file_view *view,
                                  struct mcp_error *err)
{
    static const char begins[] = "{\"step\":";
    const size_t length = view->length < sizeof begins - 1 ? view->length : sizeof begins - 1;
    if (length == 0 || memcmp(view->data, begins, length) == 0)
        return MCP_OK;
    return mcp_fail(err, MCP_INVALID,
                    "%s is not the metrics of a run, and would be lost: choose another --metrics",
                    path);
}

static enum mcp_status measure(const char *path, int64_t first_step, size_t *kept,
                               struct mcp_error *err)
{
    struct mcp_arena *scratch = mcp_arena_new();
    struct mcp_file_view view;
    enum mcp_status status = mcp_file_map(scratch, path, &view, err);
    if (status == MCP_OK)
        status = check_ours(path, &view, err);
    *kept = status == MCP_OK ? length_until(path, &view, first_step) : 0;
    mcp_arena_free(scratch);
    return status;
}

enum mcp_status mcp_run_log_check(struct mcp_arena *arena, const char *path, struct mcp_error *err)
{
    struct stat info;
    struct mcp_file_view view;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return mcp_file_check_place(arena, path, err);
    MCP_TRY(mcp_file_map(arena, path, &view, err));
    MCP_TRY(check_ours(path, &view, err));
    return access(path, W_OK) == 0 ? MCP_OK
                                   : mcp_fail(err, MCP_IO, "%s: %s", path, strerror(errno));
}

/* A log may be long: what is not kept is cut off. */
static enum mcp_status drop_later(const char *path, int64_t first_step, struct mcp_error *err)
{
    struct stat info;
    size_t kept = 0;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return MCP_OK; /* none yet, or a pipe */
    MCP_TRY(measure(path, first_step, &kept, err));
    if (kept < (size_t)info.st_size && truncate(path, (off_t)kept) != 0)
        return mcp_fail(err, MCP_IO, "%s: %s", path, strerror(errno));
    return MCP_OK;
}

static void close_log(void *handle)
{
    close(((struct mcp_run_log *)handle)->file);
}

enum mcp_status mcp_run_log_open(struct mcp_arena *arena, const char *path, int64_t first_step,
                                 struct mcp_run_log **out, struct mcp_error *err)
{
    struct mcp_run_log *log = MCP_NEW(arena, struct mcp_run_log);
    log->path = mcp_strdup(arena, path);
    MCP_TRY(drop_later(path, first_step, err));
    log->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log->file < 0)
        return mcp_fail(err, MCP_IO, "%s: %s", path, strerror(errno));
    mcp_defer(arena, close_log, log);
    *out = log;
    return MCP_OK;
}

enum mcp_status mcp_run_log_step(struct mcp_run_log *log, const struct mcp_step_metrics *metrics,
                                 const struct mcp_alarm *alarms, int num_alarms,
                                 struct mcp_error *err)
{
    struct mcp_arena *scratch = mcp_arena_new();
    struct mcp_text line = mcp_text_new(scratch);
    mcp_run_line(&line, metrics, alarms, num_alarms);
    const size_t length = line.length;
    const ssize_t done = write(log->file, line.data, length);
    const int reason = errno;
    mcp_arena_free(scratch);
    if (done == (ssize_t)length)
        return MCP_OK;
    return mcp_fail(err, MCP_IO, "%s: %s", log->path,
                    done < 0 ? strerror(reason) : "no room for the line");
}
