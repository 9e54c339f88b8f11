/* core/file.c: large files, mapped and written in parts. */
#include "core/file.h"

#include "core/crc32c.h"
#include "core/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of a large file what is written goes to the disk now and then, so that no single sync takes
 * long. */
enum { WRITER_BUFFER_BYTES = 1 << 20, SYNC_BYTES = 64 << 20, TEMPORARY_NAMES = 100 };

static enum mcp_status fail_errno(const char *path, struct mcp_error *err)
{
    return mcp_fail(err, MCP_IO, "%s: %s", path, strerror(errno));
}

/* --- reading --- */

struct mapping {
    void *data;
    size_t length;
};

static void unmap(void *handle)
{
    struct mapping *mapping = handle;
    munmap(mapping->data, mapping->length);
}

static enum mcp_status map_open_file(struct mcp_arena *arena, int file, const char *path,
                                     struct mcp_file_view *out, struct mcp_error *err)
{
    struct stat info;
    if (fstat(file, &info) != 0)
        return fail_errno(path, err);
    if (!S_ISREG(info.st_mode))
        return mcp_fail(err, MCP_IO, "%s: expected a regular file", path);
    *out = (struct mcp_file_view){NULL, (size_t)info.st_size};
    if (out->length == 0)
        return MCP_OK;
    void *data = mmap(NULL, out->length, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED)
        return fail_errno(path, err);
    struct mapping *mapping = MCP_NEW(arena, struct mapping);
    *mapping = (struct mapping){data, out->length};
    mcp_defer(arena, unmap, mapping);
    out->data = data;
    return MCP_OK;
}

enum mcp_status mcp_file_map(struct mcp_arena *arena, const char *path, struct mcp_file_view *out,
                             struct mcp_error *err)
{
    /* Opening a named pipe must not wait for its writer. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return fail_errno(path, err);
    enum mcp_status status = map_open_file(arena, file, path, out, err);
    close(file);
    return status;
}

struct mcp_file_digest mcp_file_digest(const struct mcp_file_view *view)
{
    return (struct mcp_file_digest){(int64_t)view->length, mcp_crc32c(0, view->data, view->length)};
}

/* --- writing --- */

static const char *folder_of(struct mcp_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? mcp_strndup(arena, path, (size_t)(slash - path)) : ".";
}

/* With a reason in errno. */
static bool can_hold_files(struct mcp_arena *arena, const char *folder)
{
    return access(mcp_format(arena, "%s/.", folder), W_OK | X_OK) == 0;
}

enum mcp_status mcp_file_check_place(struct mcp_arena *arena, const char *path,
                                     struct mcp_error *err)
{
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return S_ISDIR(info.st_mode)
                   ? mcp_fail(err, MCP_IO, "%s: is a directory, expected a file's name", path)
                   : MCP_OK; /* written in place */
    return can_hold_files(arena, folder_of(arena, path)) ? MCP_OK : fail_errno(path, err);
}

enum mcp_status mcp_file_check_folder(struct mcp_arena *arena, const char *path,
                                      struct mcp_error *err)
{
    struct stat info;
    const char *last = path + strlen(path);
    while (last > path && last[-1] == '/')
        last--;
    const char *name = last > path ? mcp_strndup(arena, path, (size_t)(last - path)) : "/";
    const bool is_there = stat(name, &info) == 0;
    return can_hold_files(arena, is_there ? name : folder_of(arena, name)) ? MCP_OK
                                                                           : fail_errno(path, err);
}

struct mcp_file_writer {
    const char *path;
    const char *temporary; /* NULL once renamed or removed, and where `path` is no file */
    int file;              /* -1 once closed */
    unsigned char *buffer;
    size_t used;
    size_t unsynced;
    struct mcp_file_digest digest;
};

static void abandon(void *handle)
{
    struct mcp_file_writer *writer = handle;
    if (writer->file >= 0)
        close(writer->file);
    if (writer->temporary != NULL)
        unlink(writer->temporary);
    writer->file = -1;
    writer->temporary = NULL;
}

/* A device or a pipe stays what it is. */
static bool is_written_in_place(const char *path)
{
    struct stat old;
    return stat(path, &old) == 0 && !S_ISREG(old.st_mode);
}

/* A process's own names: another may be writing beside us. */
static int open_temporary(struct mcp_arena *arena, struct mcp_file_writer *writer)
{
    int file = -1;
    for (int i = 0; file < 0 && i < TEMPORARY_NAMES; i++) {
        writer->temporary = mcp_format(arena, "%s.%ld.%d.tmp", writer->path, (long)getpid(), i);
        file = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && errno != EEXIST)
            break;
    }
    if (file < 0)
        writer->temporary = NULL;
    return file;
}

enum mcp_status mcp_file_writer_open(struct mcp_arena *arena, const char *path,
                                     struct mcp_file_writer **out, struct mcp_error *err)
{
    struct mcp_file_writer *writer = MCP_NEW(arena, struct mcp_file_writer);
    writer->path = mcp_strdup(arena, path);
    writer->file = is_written_in_place(path) ? open(path, O_WRONLY | O_CLOEXEC)
                                             : open_temporary(arena, writer);
    if (writer->file < 0)
        return fail_errno(path, err);
    mcp_defer(arena, abandon, writer);
    writer->buffer = MCP_ARRAY(arena, WRITER_BUFFER_BYTES, unsigned char);
    *out = writer;
    return MCP_OK;
}

static enum mcp_status write_all(struct mcp_file_writer *writer, const unsigned char *data,
                                 size_t length, struct mcp_error *err)
{
    while (length > 0) {
        ssize_t done = write(writer->file, data, length);
        if (done < 0 && errno != EINTR)
            return fail_errno(writer->path, err);
        if (done > 0) {
            data += done;
            length -= (size_t)done;
            writer->unsynced += (size_t)done;
        }
    }
    if (writer->unsynced < SYNC_BYTES || writer->temporary == NULL)
        return MCP_OK;
    writer->unsynced = 0;
    return fdatasync(writer->file) == 0 ? MCP_OK : fail_errno(writer->path, err);
}

static enum mcp_status flush_buffer(struct mcp_file_writer *writer, struct mcp_error *err)
{
    const size_t used = writer->used;
    writer->used = 0;
    return write_all(writer, writer->buffer, used, err);
}

enum mcp_status mcp_file_writer_add(struct mcp_file_writer *writer, const void *data, size_t length,
                                    struct mcp_error *err)
{
    if (length == 0)
        return MCP_OK;
    writer->digest.crc32c = mcp_crc32c(writer->digest.crc32c, data, length);
    writer->digest.bytes += (int64_t)length;
    if (writer->used + length > WRITER_BUFFER_BYTES)
        MCP_TRY(flush_buffer(writer, err));
    if (length > WRITER_BUFFER_BYTES)
        return write_all(writer, data, length, err);
    memcpy(writer->buffer + writer->used, data, length);
    writer->used += length;
    return MCP_OK;
}

static bool close_writer(struct mcp_file_writer *writer)
{
    int file = writer->file;
    writer->file = -1;
    return close(file) == 0;
}

enum mcp_status mcp_file_writer_finish(struct mcp_file_writer *writer,
                                       struct mcp_file_digest *digest, struct mcp_error *err)
{
    MCP_TRY(flush_buffer(writer, err));
    const bool in_place = writer->temporary == NULL;
    if ((!in_place && fsync(writer->file) != 0) || !close_writer(writer) ||
        (!in_place && rename(writer->temporary, writer->path) != 0))
        return fail_errno(writer->path, err);
    writer->temporary = NULL;
    if (!in_place)
        mcp_file_sync_folder(writer->path);
    if (digest != NULL)
        *digest = writer->digest;
    return MCP_OK;
}
