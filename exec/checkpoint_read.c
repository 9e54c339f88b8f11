/* exec/checkpoint_read.c: opens checkpoints, and finds pieces of tensors in them. */
#include "core/crc32c.h"
#include "core/json.h"
#include "core/minmax.h"
#include "exec/checkpoint.h"
#include "exec/checkpoint_parts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUM_BYTES = 16 << 20 }; /* read at once */

/* A part as some rank wrote it. */
struct stored {
    enum mcp_value_kind kind;
    struct mcp_piece piece; /* names and places; offset and owned are not kept */
    int64_t begin, count;
    const void *data; /* fp32, not aligned */
};

struct mcp_checkpoint {
    const char *path; /* of the step's folder */
    struct mcp_checkpoint_state state;
    struct stored *stored; /* by kind and name */
    size_t num_stored, capacity;
};

struct opening {
    struct mcp_arena *arena;
    const char *folder;
    int64_t step;
    bool checksums;
    struct mcp_votes *votes;
    struct mcp_checkpoint *out;
    uint32_t seal; /* of what was read of the manifest */
};

/* --- one file --- */

static enum mcp_status fail_note(const struct mcp_safetensors *file,
                                 const struct mcp_tensor *tensor, struct mcp_error *err)
{
    return mcp_fail(err, MCP_FORMAT, "%s: %.120s: no part of a checkpoint", file->path,
                    tensor->name);
}

/* KIND:TENSOR:NUMBER */
static bool read_name(const char *name, struct stored *out)
{
    const char *first = strchr(name, ':'), *last = strrchr(name, ':');
    if (first == NULL || last == first || last - first > MCP_TENSOR_NAME)
        return false;
    memcpy(out->piece.name, first + 1, (size_t)(last - first - 1));
    for (int kind = 0; kind < MCP_NUM_VALUE_KINDS; kind++) {
        const char *wanted = mcp_value_kind_names[kind];
        if (strlen(wanted) == (size_t)(first - name) && mcp_starts_with(name, wanted)) {
            out->kind = (enum mcp_value_kind)kind;
            return true;
        }
    }
    return false;
}

/* Seven numbers with a space between. */
static bool read_numbers(const char *text, int64_t numbers[7])
{
    for (int i = 0; i < 7; i++) {
        char *end;
        numbers[i] = strtoll(text, &end, 10);
        if (end == text || *end != (i < 6 ? ' ' : '\0') || numbers[i] < 0)
            return false;
        text = end + 1;
    }
    return true;
}

static bool is_within(int64_t first, int64_t count, int64_t all)
{
    return first <= all && count <= all - first;
}

/* The rectangle lies in its tensor, and the elements in the rectangle. */
static bool is_sound(const struct stored *part)
{
    const struct mcp_piece *p = &part->piece;
    int64_t elements;
    return is_within(p->first_row, p->rows, p->tensor_rows) &&
           is_within(p->first_column, p->columns, p->tensor_columns) &&
           !__builtin_mul_overflow(p->rows, p->columns, &elements) &&
           is_within(part->begin, part->count, elements);
}

static enum mcp_status add_stored(const struct opening *o, const struct mcp_safetensors *file,
                                  const struct mcp_tensor *tensor, struct mcp_error *err)
{
    struct stored part = {.data = tensor->data, .count = tensor->shape[0]};
    int64_t n[7];
    const char *note = mcp_safetensors_note(file, tensor->name);
    if (tensor->dtype != MCP_F32 || tensor->num_dims != 1 || note == NULL ||
        !read_name(tensor->name, &part) || !read_numbers(note, n))
        return fail_note(file, tensor, err);
    part.piece.tensor_rows = n[0];
    part.piece.tensor_columns = n[1];
    part.piece.first_row = n[2];
    part.piece.rows = n[3];
    part.piece.first_column = n[4];
    part.piece.columns = n[5];
    part.begin = n[6];
    if (!is_sound(&part))
        return fail_note(file, tensor, err);
    struct mcp_checkpoint *c = o->out;
    c->stored = mcp_grow(o->arena, c->stored, c->num_stored, &c->capacity, sizeof *c->stored);
    c->stored[c->num_stored++] = part;
    return MCP_OK;
}

static enum mcp_status check_file(const struct opening *o, const char *path,
                                  const struct mcp_file_digest *wanted, struct mcp_error *err)
{
    struct mcp_file_view view;
    MCP_TRY(mcp_file_map(o->arena, path, &view, err));
    if ((int64_t)view.length != wanted->bytes)
        return mcp_fail(err, MCP_FORMAT, "%s: %zu bytes, its manifest says %lld", path, view.length,
                        (long long)wanted->bytes);
    if (!o->checksums)
        return MCP_OK;
    uint32_t crc32c = 0;
    for (size_t at = 0; at < view.length; at += SUM_BYTES) {
        const size_t left = view.length - at;
        crc32c = mcp_crc32c(crc32c, view.data + at, left < SUM_BYTES ? left : SUM_BYTES);
        MCP_TRY(mcp_votes_busy(o->votes, err));
    }
    return crc32c == wanted->crc32c
               ? MCP_OK
               : mcp_fail(err, MCP_FORMAT, "%s: damaged, its checksum is another", path);
}

static enum mcp_status open_file(struct opening *o, struct mcp_json *json, int rank,
                                 struct mcp_error *err)
{
    struct mcp_file_digest digest;
    struct mcp_safetensors file;
    const char *name = NULL;
    int64_t crc32c = 0;
    MCP_TRY(mcp_json_string(json, "name", &name, err));
    MCP_TRY(mcp_json_int64(json, "bytes", &digest.bytes, err));
    MCP_TRY(mcp_json_int64(json, "crc32c", &crc32c, err));
    digest.crc32c = (uint32_t)crc32c;
    o->seal = mcp_checkpoint_seal_file(o->seal, &digest);
    if (!mcp_same(name, mcp_checkpoint_shard_name(o->arena, rank)))
        return mcp_json_fail(json, err, "name \"%.80s\", expected %s", name,
                             mcp_checkpoint_shard_name(o->arena, rank));
    const char *path = mcp_format(o->arena, "%s/%s", o->out->path, name);
    MCP_TRY(check_file(o, path, &digest, err));
    MCP_TRY(mcp_safetensors_read(o->arena, path, &file, err));
    for (int i = 0; i < file.num_tensors; i++)
        MCP_TRY(add_stored(o, &file, &file.tensors[i], err));
    return MCP_OK;
}

/* --- the set --- */

static enum mcp_status read_seed(struct mcp_json *json, uint64_t *seed, struct mcp_error *err)
{
    const char *text = NULL;
    char *end;
    MCP_TRY(mcp_json_string(json, "seed", &text, err));
    *seed = strtoull(text, &end, 16);
    if (end == text || *end != '\0')
        return mcp_json_fail(json, err, "seed \"%.40s\", expected a hexadecimal number", text);
    return MCP_OK;
}

static enum mcp_status read_manifest(struct opening *o, struct mcp_json *json,
                                     struct mcp_json **files, struct mcp_error *err)
{
    struct mcp_checkpoint_state *state = &o->out->state;
    const char *schema = NULL;
    MCP_TRY(mcp_json_string(json, "schema", &schema, err));
    if (!mcp_same(schema, MCP_CHECKPOINT_SCHEMA))
        return mcp_json_fail(json, err, "schema \"%.60s\", expected \"%s\"", schema,
                             MCP_CHECKPOINT_SCHEMA);
    MCP_TRY(mcp_json_int64(json, "step", &state->step, err));
    MCP_TRY(mcp_json_int64(json, "sequences_seen", &state->sequences_seen, err));
    MCP_TRY(read_seed(json, &state->seed, err));
    MCP_TRY(mcp_json_int64(json, "updates", &state->updates, err));
    MCP_TRY(mcp_json_int64(json, "variance_updates", &state->variance_updates, err));
    MCP_TRY(mcp_json_double(json, "loss_scale", &state->loss_scale, err));
    MCP_TRY(mcp_json_int64(json, "steps_since_skip", &state->steps_since_skip, err));
    MCP_TRY(mcp_json_int64(json, "data_sequences", &state->data_sequences, err));
    if (state->step != o->step)
        return mcp_json_fail(json, err, "it is of step %lld", (long long)state->step);
    o->seal = mcp_checkpoint_seal(state);
    return mcp_json_array(json, "files", files, err);
}

static int compare_stored(const void *a, const void *b)
{
    const struct stored *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return strcmp(x->piece.name, y->piece.name);
}

static enum mcp_status open_set(struct opening *o, struct mcp_error *err)
{
    struct mcp_json *json = NULL, *files = NULL;
    int64_t seal = 0;
    const char *manifest = mcp_checkpoint_manifest(o->arena, o->folder, o->step);
    MCP_TRY(mcp_json_read(o->arena, manifest, &json, err));
    MCP_TRY(read_manifest(o, json, &files, err));
    for (size_t i = 0; i < mcp_json_count(files); i++)
        MCP_TRY(open_file(o, mcp_json_at(files, i), (int)i, err));
    MCP_TRY(mcp_json_int64(json, "seal", &seal, err));
    MCP_TRY(mcp_json_done(json, err));
    if (seal != o->seal)
        return mcp_json_fail(json, err, "damaged, its seal is another");
    if (o->out->num_stored > 0)
        qsort(o->out->stored, o->out->num_stored, sizeof *o->out->stored, compare_stored);
    return MCP_OK;
}

static enum mcp_status open_step(struct opening opening, const struct mcp_checkpoint **out,
                                 struct mcp_error *err)
{
    opening.out = MCP_NEW(opening.arena, struct mcp_checkpoint);
    opening.out->path = mcp_checkpoint_path(opening.arena, opening.folder, opening.step);
    *out = opening.out;
    return open_set(&opening, err);
}

enum mcp_status mcp_checkpoint_open(struct mcp_arena *arena, const char *folder, int64_t step,
                                    bool checksums, const struct mcp_checkpoint **out,
                                    struct mcp_error *err)
{
    return open_step(
        (struct opening){.arena = arena, .folder = folder, .step = step, .checksums = checksums},
        out, err);
}

/* All reasons are one sentence. */
static void pass_over(struct mcp_text *reasons, const char *reason)
{
    mcp_text_add(reasons, "%s%s", reasons->length > 0 ? "; " : "", reason);
}

enum mcp_status mcp_checkpoint_newest(struct mcp_arena *arena, const char *folder,
                                      struct mcp_votes *votes, const struct mcp_checkpoint **out,
                                      struct mcp_text *passed_over, struct mcp_error *err)
{
    struct opening opening = {.arena = arena, .folder = folder, .checksums = true, .votes = votes};
    int64_t *steps;
    int count, damaged = 0;
    *out = NULL;
    if (access(folder, F_OK) != 0)
        return MCP_OK;
    MCP_TRY(mcp_checkpoint_steps(arena, folder, &steps, &count, err));
    for (int i = 0; i < count; i++) {
        struct mcp_error why = {0};
        const char *path = mcp_checkpoint_path(arena, folder, steps[i]);
        if (access(mcp_checkpoint_manifest(arena, folder, steps[i]), F_OK) != 0) {
            pass_over(passed_over, mcp_format(arena, "%s: was not finished", path));
            continue;
        }
        opening.step = steps[i];
        const enum mcp_status status = open_step(opening, out, &why);
        if (status == MCP_OK)
            return MCP_OK;
        if (status == MCP_RUN_FAILURE) /* another rank is lost: the files may be good */
            return mcp_fail(err, status, "%s", why.text);
        pass_over(passed_over, why.text);
        damaged++;
    }
    *out = NULL;
    if (damaged == 0)
        return MCP_OK;
    return mcp_fail(err, MCP_FORMAT, "%s: all %d checkpoints in it are damaged: %s", folder,
                    damaged, passed_over->data);
}

struct mcp_checkpoint_state mcp_checkpoint_state(const struct mcp_checkpoint *checkpoint)
{
    return checkpoint->state;
}

/* --- pieces --- */

/* Those of one tensor, as a range. */
struct found {
    const struct stored *first;
    size_t count;
};

static struct found find(const struct mcp_checkpoint *c, enum mcp_value_kind kind,
                         const struct mcp_piece *piece)
{
    struct stored wanted = {.kind = kind, .piece = *piece};
    size_t low = 0, high = c->num_stored;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_stored(&c->stored[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    struct found found = {c->stored + low, 0};
    while (low + found.count < c->num_stored &&
           compare_stored(&c->stored[low + found.count], &wanted) == 0)
        found.count++;
    return found;
}

bool mcp_checkpoint_has(const struct mcp_checkpoint *checkpoint, enum mcp_value_kind kind,
                        const struct mcp_piece *piece)
{
    return find(checkpoint, kind, piece).count > 0;
}

static enum mcp_status check_shape(const struct mcp_checkpoint *c, const struct found *found,
                                   const struct mcp_piece *piece, struct mcp_error *err)
{
    for (size_t i = 0; i < found->count; i++) {
        const struct mcp_piece *have = &found->first[i].piece;
        if (have->tensor_rows != piece->tensor_rows ||
            have->tensor_columns != piece->tensor_columns)
            return mcp_fail(err, MCP_INVALID, "%s: %s is [%lld, %lld], the model's is [%lld, %lld]",
                            c->path, piece->name, (long long)have->tensor_rows,
                            (long long)have->tensor_columns, (long long)piece->tensor_rows,
                            (long long)piece->tensor_columns);
    }
    return MCP_OK;
}

/* `run` elements of a part, from its at-th on. */
struct held {
    const struct stored *part;
    int64_t at, run;
};

/* What a part holds of a row, from (row, column) on. */
static struct held held_from(const struct stored *part, int64_t row, int64_t column)
{
    const struct mcp_piece *p = &part->piece;
    if (row < p->first_row || row >= p->first_row + p->rows || column < p->first_column ||
        column >= p->first_column + p->columns)
        return (struct held){0};
    const int64_t at = (row - p->first_row) * p->columns + (column - p->first_column) - part->begin;
    if (at < 0 || at >= part->count)
        return (struct held){0};
    const int64_t in_row = p->first_column + p->columns - column, left = part->count - at;
    return (struct held){part, at, in_row < left ? in_row : left};
}

/* The part that holds (row, column), looked for from the last one that held anything. */
static struct held holder(const struct found *found, size_t *last, int64_t row, int64_t column)
{
    for (size_t i = 0; i < found->count; i++) {
        const size_t index = (*last + i) % found->count;
        const struct held held = held_from(&found->first[index], row, column);
        if (held.part != NULL) {
            *last = index;
            return held;
        }
    }
    return (struct held){0};
}

enum mcp_status mcp_checkpoint_read(const struct mcp_checkpoint *checkpoint,
                                    const struct mcp_value_range *range, float *out,
                                    struct mcp_error *err)
{
    const struct mcp_piece *piece = range->piece;
    const struct found found = find(checkpoint, range->kind, piece);
    size_t last = 0;
    MCP_TRY(check_shape(checkpoint, &found, piece, err));
    for (int64_t done = 0; done < range->count;) {
        const int64_t in_piece = range->begin + done;
        const int64_t row = piece->first_row + in_piece / piece->columns;
        const int64_t column = piece->first_column + in_piece % piece->columns;
        const int64_t left =
            mcp_min_int64(range->count - done, piece->columns - in_piece % piece->columns);
        const struct held held = holder(&found, &last, row, column);
        if (held.part == NULL)
            return mcp_fail(err, MCP_INVALID,
                            "%s: no %s of %s at row %lld, column %lld: it is of another model",
                            checkpoint->path, mcp_value_kind_names[range->kind], piece->name,
                            (long long)row, (long long)column);
        const int64_t run = mcp_min_int64(held.run, left);
        memcpy(out + done, (const char *)held.part->data + held.at * 4, (size_t)run * 4);
        done += run;
    }
    return MCP_OK;
}
