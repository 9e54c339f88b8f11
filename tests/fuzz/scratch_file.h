/* tests/fuzz/scratch_file.h: bytes as a file, for readers that map theirs. */
#ifndef MCP_TESTS_FUZZ_SCRATCH_FILE_H
#define MCP_TESTS_FUZZ_SCRATCH_FILE_H

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* The same file each time; nothing of it may be mapped any more. */
static inline void scratch_file(char path[64], const void *data, size_t size)
{
    snprintf(path, 64, "/tmp/mcp-fuzz-%ld", (long)getpid());
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert(file >= 0);
    assert(write(file, data, size) == (ssize_t)size);
    close(file);
}

#endif
