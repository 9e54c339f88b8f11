/* exec/tokens.c: files of token ids, written and mapped. */
#include "exec/tokens.h"

#include "core/crc32c.h"
#include "core/file.h"
#include "core/text.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENDING ".tokens"

/* The last 64 bytes of a file. Fields lie without padding. */
struct tail {
    char magic[8];
    uint32_t version, token_bytes;
    int64_t num_tokens, num_documents;
    int32_t vocab_size, end_of_document;
    char zeros[20];
    uint32_t crc32c; /* of the 60 bytes before it */
};
_Static_assert(sizeof(struct tail) == 64, "the tail has no padding");

static const char magic[8] = {'M', 'C', 'P', 'T', 'O', 'K', 'E', 'N'};
enum { VERSION = 1, CRC_BYTES = 60, BUFFER_IDS = 8192 };

static int bytes_of_token(int vocab_size)
{
    return vocab_size <= 65536 ? 2 : 4;
}

/* --- reading --- */

static enum mcp_status check_tail(const struct tail *tail, const char *path, size_t length,
                                  struct mcp_error *err)
{
    if (memcmp(tail->magic, magic, sizeof magic) != 0)
        return mcp_fail(err, MCP_FORMAT,
                        "%s: no file of tokens, or cut short: mcpplan data tokenize makes them",
                        path);
    if (tail->crc32c != mcp_crc32c(0, tail, CRC_BYTES))
        return mcp_fail(err, MCP_FORMAT, "%s: its last 64 bytes are damaged", path);
    if (tail->version != VERSION)
        return mcp_fail(err, MCP_FORMAT, "%s: version %u, expected %d", path, tail->version,
                        VERSION);
    const bool is_sound = tail->vocab_size > 0 && tail->num_tokens >= 0 &&
                          (int)tail->token_bytes == bytes_of_token(tail->vocab_size);
    if (!is_sound || (uint64_t)tail->num_tokens != (length - sizeof *tail) / tail->token_bytes ||
        (length - sizeof *tail) % tail->token_bytes != 0)
        return mcp_fail(err, MCP_FORMAT, "%s: %zu bytes are not those of %lld tokens of %u", path,
                        length, (long long)tail->num_tokens, tail->token_bytes);
    return MCP_OK;
}

enum mcp_status mcp_token_file_open(struct mcp_arena *arena, const char *path,
                                    struct mcp_token_file *out, struct mcp_error *err)
{
    struct mcp_file_view view;
    struct tail tail = {.magic = ""};
    MCP_TRY(mcp_file_map(arena, path, &view, err));
    if (view.length >= sizeof tail)
        memcpy(&tail, view.data + view.length - sizeof tail, sizeof tail);
    MCP_TRY(check_tail(&tail, path, view.length, err));
    out->path = mcp_strdup(arena, path);
    out->ids = view.data;
    out->facts = (struct mcp_token_facts){tail.num_tokens, tail.num_documents, tail.vocab_size,
                                          tail.end_of_document, (int)tail.token_bytes};
    return MCP_OK;
}

static int64_t id_at(const struct mcp_token_file *file, int64_t at)
{
    if (file->facts.token_bytes == 2)
        return ((const uint16_t *)file->ids)[at];
    return ((const uint32_t *)file->ids)[at];
}

enum mcp_status mcp_token_file_copy(const struct mcp_token_file *file, int64_t first, int64_t count,
                                    int vocab_size, int32_t *out, struct mcp_error *err)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t id = id_at(file, first + i);
        if (id >= vocab_size)
            return mcp_fail(err, MCP_FORMAT,
                            "%s: token %lld has the id %lld, beyond a vocabulary of %d", file->path,
                            (long long)first + i, (long long)id, vocab_size);
        out[i] = (int32_t)id;
    }
    return MCP_OK;
}

/* --- writing --- */

struct mcp_token_writer {
    struct mcp_arena *arena;
    const char *path;
    int64_t shard_tokens;         /* 0: one file */
    struct mcp_token_facts facts; /* of the file being written */
    struct mcp_token_facts total;
    int num_files;
    const char **parts; /* [num_parts] of a folder's files that wait for their names */
    size_t num_parts, parts_capacity;
    bool made_folder;
    int32_t last; /* id of the document being written; -1 at its start */
    struct mcp_file_writer *file;
    uint16_t shorts[BUFFER_IDS];
};

static const char *shard_name(const struct mcp_token_writer *writer, int number)
{
    return mcp_format(writer->arena, "%s/%05d" ENDING, writer->path, number);
}

/* A folder's files get their names, by which they are read, all at the end. */
static const char *file_name(const struct mcp_token_writer *writer)
{
    if (writer->shard_tokens == 0)
        return writer->path;
    return mcp_format(writer->arena, "%s.part", shard_name(writer, writer->num_files));
}

static enum mcp_status open_file(struct mcp_token_writer *writer, struct mcp_error *err)
{
    writer->facts.num_tokens = writer->facts.num_documents = 0;
    return mcp_file_writer_open(writer->arena, file_name(writer), &writer->file, err);
}

static enum mcp_status finish_file(struct mcp_token_writer *writer, struct mcp_error *err)
{
    const struct mcp_token_facts *facts = &writer->facts;
    struct tail tail = {.version = VERSION,
                        .token_bytes = (uint32_t)facts->token_bytes,
                        .num_tokens = facts->num_tokens,
                        .num_documents = facts->num_documents,
                        .vocab_size = facts->vocab_size,
                        .end_of_document = facts->end_of_document};
    memcpy(tail.magic, magic, sizeof magic);
    tail.crc32c = mcp_crc32c(0, &tail, CRC_BYTES);
    MCP_TRY(mcp_file_writer_add(writer->file, &tail, sizeof tail, err));
    MCP_TRY(mcp_file_writer_finish(writer->file, NULL, err));
    if (writer->shard_tokens > 0) {
        writer->parts = mcp_grow(writer->arena, writer->parts, writer->num_parts,
                                 &writer->parts_capacity, sizeof *writer->parts);
        writer->parts[writer->num_parts++] = file_name(writer);
    }
    writer->total.num_tokens += facts->num_tokens;
    writer->total.num_documents += facts->num_documents;
    writer->num_files++;
    return MCP_OK;
}

/* What was not finished leaves nothing. */
static void discard(void *handle)
{
    const struct mcp_token_writer *writer = handle;
    for (size_t i = 0; i < writer->num_parts; i++)
        unlink(writer->parts[i]);
    if (writer->made_folder)
        rmdir(writer->path); /* unless there is something in it */
}

/* A new folder. Files that another run left in it would be read as of this one. */
static enum mcp_status make_folder(struct mcp_token_writer *writer, struct mcp_error *err)
{
    const char *path = writer->path;
    struct dirent *entry = NULL;
    mcp_defer(writer->arena, discard, writer);
    if (mkdir(path, 0777) == 0) {
        writer->made_folder = true;
        return MCP_OK;
    }
    DIR *folder = errno == EEXIST ? opendir(path) : NULL;
    if (folder == NULL)
        return mcp_fail(err, MCP_IO, "%s: %s", path, strerror(errno));
    while ((entry = readdir(folder)) != NULL && !mcp_ends_with(entry->d_name, ENDING))
        continue;
    const enum mcp_status status =
        entry == NULL ? MCP_OK
                      : mcp_fail(err, MCP_INVALID,
                                 "%s holds %s already, which would be read with what is written "
                                 "now: choose another folder, or remove its files",
                                 path, entry->d_name);
    closedir(folder);
    return status;
}

static enum mcp_status name_parts(struct mcp_token_writer *writer, struct mcp_error *err)
{
    for (size_t i = 0; i < writer->num_parts; i++) {
        const char *name = shard_name(writer, (int)i);
        if (rename(writer->parts[i], name) != 0)
            return mcp_fail(err, MCP_IO, "%s: %s", name, strerror(errno));
    }
    if (writer->num_parts > 0)
        mcp_file_sync_folder(writer->parts[0]);
    writer->num_parts = 0;
    return MCP_OK;
}

enum mcp_status mcp_token_writer_open(struct mcp_arena *arena, const char *path,
                                      int64_t shard_tokens, const struct mcp_token_facts *facts,
                                      struct mcp_token_writer **out, struct mcp_error *err)
{
    struct mcp_token_writer *writer = MCP_NEW(arena, struct mcp_token_writer);
    writer->arena = arena;
    writer->path = mcp_strdup(arena, path);
    writer->shard_tokens = shard_tokens;
    writer->facts = writer->total =
        (struct mcp_token_facts){.vocab_size = facts->vocab_size,
                                 .end_of_document = facts->end_of_document,
                                 .token_bytes = bytes_of_token(facts->vocab_size)};
    writer->last = -1;
    *out = writer;
    if (shard_tokens > 0)
        MCP_TRY(make_folder(writer, err));
    return open_file(writer, err);
}

static enum mcp_status add_ids(struct mcp_token_writer *writer, const int32_t *ids, size_t count,
                               struct mcp_error *err)
{
    writer->facts.num_tokens += (int64_t)count;
    if (writer->facts.token_bytes == 4)
        return mcp_file_writer_add(writer->file, ids, count * sizeof *ids, err);
    while (count > 0) {
        const size_t part = count < BUFFER_IDS ? count : BUFFER_IDS;
        for (size_t i = 0; i < part; i++)
            writer->shorts[i] = (uint16_t)ids[i];
        MCP_TRY(mcp_file_writer_add(writer->file, writer->shorts, part * 2, err));
        ids += part;
        count -= part;
    }
    return MCP_OK;
}

/* Goes on to the next file when this one is full; *count is cut to what fits. */
static enum mcp_status make_room(struct mcp_token_writer *writer, size_t *count,
                                 struct mcp_error *err)
{
    if (writer->shard_tokens == 0)
        return MCP_OK;
    if (writer->facts.num_tokens == writer->shard_tokens) {
        MCP_TRY(finish_file(writer, err));
        MCP_TRY(open_file(writer, err));
    }
    const int64_t room = writer->shard_tokens - writer->facts.num_tokens;
    if ((int64_t)*count > room)
        *count = (size_t)room;
    return MCP_OK;
}

enum mcp_status mcp_token_writer_add(struct mcp_token_writer *writer, const int32_t *ids,
                                     size_t count, struct mcp_error *err)
{
    if (count > 0)
        writer->last = ids[count - 1];
    while (count > 0) {
        size_t part = count;
        MCP_TRY(make_room(writer, &part, err));
        MCP_TRY(add_ids(writer, ids, part, err));
        ids += part;
        count -= part;
    }
    return MCP_OK;
}

enum mcp_status mcp_token_writer_end_document(struct mcp_token_writer *writer,
                                              struct mcp_error *err)
{
    const int32_t end = writer->facts.end_of_document;
    if (end >= 0 && writer->last != end)
        MCP_TRY(mcp_token_writer_add(writer, &end, 1, err));
    writer->facts.num_documents++;
    writer->last = -1;
    return MCP_OK;
}

enum mcp_status mcp_token_writer_finish(struct mcp_token_writer *writer,
                                        struct mcp_token_facts *total, int *num_files,
                                        struct mcp_error *err)
{
    MCP_TRY(finish_file(writer, err));
    MCP_TRY(name_parts(writer, err));
    if (total != NULL)
        *total = writer->total;
    if (num_files != NULL)
        *num_files = writer->num_files;
    return MCP_OK;
}
