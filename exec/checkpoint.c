/* exec/checkpoint.c: writes sets of files that are whole or not there. */
#include "exec/checkpoint.h"

#include "core/crc32c.h"
#include "core/json.h"
#include "exec/checkpoint_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_TRIES = 20 }; /* a second */

const char *const mcp_value_kind_names[MCP_NUM_VALUE_KINDS] = {"weights", "first_moment",
                                                               "second_moment", "error"};

/* --- names of files --- */

const char *mcp_checkpoint_path(struct mcp_arena *arena, const char *folder, int64_t step)
{
    return mcp_format(arena, "%s/step-%012" PRId64, folder, step);
}

static const char *shard_path(struct mcp_arena *arena, const struct mcp_checkpoint_file *file)
{
    return mcp_format(arena, "%s/%s", mcp_checkpoint_path(arena, file->folder, file->step),
                      mcp_checkpoint_shard_name(arena, file->rank));
}

const char *mcp_checkpoint_shard_name(struct mcp_arena *arena, int rank)
{
    return mcp_format(arena, "rank-%05d.safetensors", rank);
}

const char *mcp_checkpoint_manifest(struct mcp_arena *arena, const char *folder, int64_t step)
{
    return mcp_format(arena, "%s/manifest.json", mcp_checkpoint_path(arena, folder, step));
}

static enum mcp_status fail_errno(const char *path, struct mcp_error *err)
{
    return mcp_fail(err, MCP_IO, "%s: %s", path, strerror(errno));
}

static int compare_steps(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

/* -1 for a name that is no step's. */
static int64_t step_of(const char *name)
{
    int64_t step;
    if (!mcp_starts_with(name, "step-") || !mcp_parse_int64(name + 5, &step) || step < 0)
        return -1;
    return step;
}

enum mcp_status mcp_checkpoint_steps(struct mcp_arena *arena, const char *folder, int64_t **steps,
                                     int *count, struct mcp_error *err)
{
    size_t capacity = 0;
    struct dirent *entry;
    DIR *listing = opendir(folder);
    *steps = NULL;
    *count = 0;
    if (listing == NULL)
        return fail_errno(folder, err);
    while ((entry = readdir(listing)) != NULL) {
        const int64_t step = step_of(entry->d_name);
        if (step < 0)
            continue;
        *steps = mcp_grow(arena, *steps, (size_t)*count, &capacity, sizeof **steps);
        (*steps)[(*count)++] = step;
    }
    closedir(listing);
    if (*count > 0)
        qsort(*steps, (size_t)*count, sizeof **steps, compare_steps);
    return MCP_OK;
}

static bool is_finished(struct mcp_arena *arena, const char *folder, int64_t step)
{
    return access(mcp_checkpoint_manifest(arena, folder, step), F_OK) == 0;
}

int64_t mcp_checkpoint_finished(struct mcp_arena *arena, const char *folder)
{
    struct mcp_error err;
    int64_t *steps;
    int count;
    if (mcp_checkpoint_steps(arena, folder, &steps, &count, &err) != MCP_OK)
        return -1;
    for (int i = 0; i < count; i++)
        if (is_finished(arena, folder, steps[i]))
            return steps[i];
    return -1;
}

/* --- one run at a time --- */

struct lock {
    const char *folder;
    int file;
};

static void unlock(void *handle)
{
    struct lock *lock = handle;
    close(lock->file);
    rmdir(lock->folder); /* unless there is something in it */
}

/* A run that is ending may have it a moment longer. Where files know no locks there is none. */
static bool is_taken(int file)
{
    for (int tries = 0; flock(file, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK)
            return false;
        if (tries == LOCK_TRIES)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return false;
}

enum mcp_status mcp_checkpoint_lock(struct mcp_arena *arena, const char *folder,
                                    struct mcp_error *err)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return fail_errno(folder, err);
    const int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0)
        return fail_errno(folder, err);
    struct lock *lock = MCP_NEW(arena, struct lock);
    *lock = (struct lock){mcp_strdup(arena, folder), file};
    mcp_defer(arena, unlock, lock);
    if (is_taken(file))
        return mcp_fail(err, MCP_IO,
                        "%s: another run keeps its checkpoints there: wait for its end, or name "
                        "another --checkpoint-dir",
                        folder);
    return MCP_OK;
}

/* --- removing --- */

static bool is_ours(const char *name)
{
    return mcp_starts_with(name, "rank-") || mcp_starts_with(name, "manifest.json");
}

/* The manifest goes first: what is half removed must not look whole. */
static enum mcp_status remove_files(struct mcp_arena *arena, const char *folder, int64_t step,
                                    struct mcp_error *err)
{
    const char *path = mcp_checkpoint_path(arena, folder, step);
    const char *manifest = mcp_checkpoint_manifest(arena, folder, step);
    struct dirent *entry;
    if (unlink(manifest) != 0 && errno != ENOENT)
        return fail_errno(manifest, err);
    mcp_file_sync_folder(manifest);
    DIR *listing = opendir(path);
    if (listing == NULL)
        return fail_errno(path, err);
    while ((entry = readdir(listing)) != NULL)
        if (is_ours(entry->d_name))
            unlink(mcp_format(arena, "%s/%s", path, entry->d_name));
    closedir(listing);
    return MCP_OK;
}

enum mcp_status mcp_checkpoint_begin(struct mcp_arena *arena, const char *folder, int64_t step,
                                     struct mcp_error *err)
{
    const char *path = mcp_checkpoint_path(arena, folder, step);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return fail_errno(folder, err);
    if (mkdir(path, 0777) == 0)
        return MCP_OK;
    return errno == EEXIST ? remove_files(arena, folder, step, err) : fail_errno(path, err);
}

enum mcp_status mcp_checkpoint_prune(struct mcp_arena *arena, const char *folder, int keep,
                                     struct mcp_error *err)
{
    int64_t *steps;
    int count, finished = 0;
    MCP_TRY(mcp_checkpoint_steps(arena, folder, &steps, &count, err));
    for (int i = 0; i < count; i++) {
        if (finished < keep || finished == 0) {
            finished += is_finished(arena, folder, steps[i]);
            continue;
        }
        MCP_TRY(remove_files(arena, folder, steps[i], err));
        rmdir(mcp_checkpoint_path(arena, folder, steps[i])); /* what is not ours stays */
    }
    return MCP_OK;
}

/* --- writing --- */

uint32_t mcp_checkpoint_seal(const struct mcp_checkpoint_state *state)
{
    uint32_t seal = mcp_crc32c(0, &state->step, sizeof state->step);
    seal = mcp_crc32c(seal, &state->sequences_seen, sizeof state->sequences_seen);
    seal = mcp_crc32c(seal, &state->seed, sizeof state->seed);
    seal = mcp_crc32c(seal, &state->updates, sizeof state->updates);
    seal = mcp_crc32c(seal, &state->variance_updates, sizeof state->variance_updates);
    seal = mcp_crc32c(seal, &state->loss_scale, sizeof state->loss_scale);
    seal = mcp_crc32c(seal, &state->steps_since_skip, sizeof state->steps_since_skip);
    return mcp_crc32c(seal, &state->data_sequences, sizeof state->data_sequences);
}

uint32_t mcp_checkpoint_seal_file(uint32_t seal, const struct mcp_file_digest *digest)
{
    seal = mcp_crc32c(seal, &digest->bytes, sizeof digest->bytes);
    return mcp_crc32c(seal, &digest->crc32c, sizeof digest->crc32c);
}

/* A tensor of one dimension; what it is of which whole is a note under its name. */
static void describe(struct mcp_arena *arena, const struct mcp_checkpoint_part *part, int index,
                     struct mcp_tensor *tensor, struct mcp_tensor_note *note)
{
    const struct mcp_value_range *range = &part->range;
    const struct mcp_piece *piece = range->piece;
    *tensor =
        (struct mcp_tensor){.name = mcp_format(arena, "%s:%s:%d", mcp_value_kind_names[range->kind],
                                               piece->name, index),
                            .dtype = MCP_F32,
                            .num_dims = 1,
                            .shape = {range->count},
                            .data = part->data};
    note->key = tensor->name;
    note->value = mcp_format(
        arena, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
        piece->tensor_rows, piece->tensor_columns, piece->first_row, piece->rows,
        piece->first_column, piece->columns, range->begin);
}

enum mcp_status mcp_checkpoint_write(struct mcp_arena *arena,
                                     const struct mcp_checkpoint_file *file,
                                     const struct mcp_checkpoint_parts *parts,
                                     struct mcp_file_digest *digest, struct mcp_error *err)
{
    struct mcp_safetensors out = {
        .path = shard_path(arena, file), .num_tensors = parts->count, .num_notes = parts->count};
    out.tensors = MCP_ARRAY(arena, parts->count + 1, struct mcp_tensor);
    out.notes = MCP_ARRAY(arena, parts->count + 1, struct mcp_tensor_note);
    for (int i = 0; i < parts->count; i++)
        describe(arena, &parts->items[i], i, &out.tensors[i], &out.notes[i]);
    return parts->source == NULL ? mcp_safetensors_write(arena, &out, digest, err)
                                 : mcp_safetensors_stream(arena, &out, parts->source, digest, err);
}

enum mcp_status mcp_checkpoint_commit(struct mcp_arena *arena, const char *folder,
                                      const struct mcp_checkpoint_state *state, int world,
                                      const struct mcp_file_digest *digests, struct mcp_error *err)
{
    struct mcp_json *json = mcp_json_new_object(arena);
    mcp_json_set_string(json, "schema", MCP_CHECKPOINT_SCHEMA);
    mcp_json_set_int(json, "step", state->step);
    mcp_json_set_int(json, "sequences_seen", state->sequences_seen);
    mcp_json_set_string(json, "seed", mcp_format(arena, "%" PRIx64, state->seed));
    mcp_json_set_int(json, "updates", state->updates);
    mcp_json_set_int(json, "variance_updates", state->variance_updates);
    mcp_json_set_double(json, "loss_scale", state->loss_scale);
    mcp_json_set_int(json, "steps_since_skip", state->steps_since_skip);
    mcp_json_set_int(json, "data_sequences", state->data_sequences);
    struct mcp_json *files = mcp_json_set_array(json, "files");
    uint32_t seal = mcp_checkpoint_seal(state);
    for (int rank = 0; rank < world; rank++) {
        struct mcp_json *file = mcp_json_add_object(files);
        mcp_json_set_string(file, "name", mcp_checkpoint_shard_name(arena, rank));
        mcp_json_set_int(file, "bytes", digests[rank].bytes);
        mcp_json_set_int(file, "crc32c", digests[rank].crc32c);
        seal = mcp_checkpoint_seal_file(seal, &digests[rank]);
    }
    mcp_json_set_int(json, "seal", seal);
    return mcp_json_write(mcp_checkpoint_manifest(arena, folder, state->step), json, err);
}
