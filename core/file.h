/* core/file.h: large files: mapped to be read, written part by part.
 *
 * What core/text.h does for text of megabytes, for data of gigabytes: nothing is held
 * in memory, and a file appears under its name only when it is whole. */
#ifndef MCP_CORE_FILE_H
#define MCP_CORE_FILE_H

#include "core/arena.h"
#include "core/error.h"

#include <stddef.h>
#include <stdint.h>

/* The bytes of a file, valid as long as the arena. Reading them after somebody has
 * shortened the file raises SIGBUS: files are replaced, not rewritten. */
struct mcp_file_view {
    const unsigned char *data; /* page aligned; NULL when the file is empty */
    size_t length;
};
/* MCP_IO when it is no readable regular file. */
enum mcp_status mcp_file_map(struct mcp_arena *arena, const char *path, struct mcp_file_view *out,
                             struct mcp_error *err);

/* Whether a file can be put there once there is something to put; MCP_IO says why not. */
enum mcp_status mcp_file_check_place(struct mcp_arena *arena, const char *path,
                                     struct mcp_error *err);

/* The same of files in a folder, which is made once they are there if it is not. */
enum mcp_status mcp_file_check_folder(struct mcp_arena *arena, const char *path,
                                      struct mcp_error *err);

/* What tells two files of one name apart. */
struct mcp_file_digest {
    int64_t bytes;
    uint32_t crc32c;
};
struct mcp_file_digest mcp_file_digest(const struct mcp_file_view *view);

/* A file being written to a temporary name beside its own. The arena removes it when
 * it is freed before finish(). */
struct mcp_file_writer;
enum mcp_status mcp_file_writer_open(struct mcp_arena *arena, const char *path,
                                     struct mcp_file_writer **out, struct mcp_error *err);
enum mcp_status mcp_file_writer_add(struct mcp_file_writer *writer, const void *data, size_t length,
                                    struct mcp_error *err);
/* Syncs, renames, syncs the folder. `digest` may be NULL. */
enum mcp_status mcp_file_writer_finish(struct mcp_file_writer *writer,
                                       struct mcp_file_digest *digest, struct mcp_error *err);

#endif
