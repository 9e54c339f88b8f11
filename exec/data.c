/* exec/data.c: files of tokens as an endless, shuffled list of sequences. */
#include "exec/data.h"

#include "core/text.h"
#include "exec/tokens.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ROUNDS = 4 };

struct file {
    struct mcp_token_file tokens;
    int64_t first; /* sequences in the files before it */
};

struct mcp_data {
    struct mcp_data_options options;
    int num_files;
    size_t capacity;
    struct file *files;
    int64_t num_sequences, num_tokens;
};

/* --- order --- */

/* splitmix64's finaliser (Steele, Lea and Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A permutation of the numbers of 2 x half_bits bits. */
static uint64_t feistel(uint64_t key, int half_bits, uint64_t x)
{
    const uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t left = x >> half_bits, right = x & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const uint64_t next = left ^ (mix(mix(key + round) ^ right) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

int64_t mcp_permute(uint64_t key, int64_t n, int64_t x)
{
    int half_bits = 1;
    while (half_bits < 31 && (int64_t)1 << 2 * half_bits < n)
        half_bits++;
    uint64_t y = (uint64_t)x;
    do
        y = feistel(key, half_bits, y);
    while (y >= (uint64_t)n);
    return (int64_t)y;
}

int64_t mcp_data_place(const struct mcp_data *data, int64_t position)
{
    const int64_t n = data->num_sequences, epoch = position / n, x = position % n;
    if (data->options.in_order)
        return x;
    return mcp_permute(mix(data->options.seed) ^ (uint64_t)epoch, n, x);
}

/* --- files --- */

static int64_t sequences_in(const struct mcp_data *data, const struct mcp_token_file *file)
{
    const int64_t tokens = file->facts.num_tokens;
    return tokens > 0 ? (tokens - 1) / data->options.sequence_length : 0;
}

static enum mcp_status add_file(struct mcp_arena *arena, struct mcp_data *data, const char *path,
                                struct mcp_error *err)
{
    data->files =
        mcp_grow(arena, data->files, (size_t)data->num_files, &data->capacity, sizeof *data->files);
    struct file *file = &data->files[data->num_files];
    MCP_TRY(mcp_token_file_open(arena, path, &file->tokens, err));
    if (file->tokens.facts.vocab_size > data->options.vocab_size)
        return mcp_fail(err, MCP_INVALID,
                        "%s: made for a vocabulary of %d, but the model's vocab_size is %d", path,
                        file->tokens.facts.vocab_size, data->options.vocab_size);
    if (file->tokens.facts.vocab_size != data->files[0].tokens.facts.vocab_size)
        return mcp_fail(err, MCP_INVALID,
                        "%s: made for a vocabulary of %d, the files before it of %d", path,
                        file->tokens.facts.vocab_size, data->files[0].tokens.facts.vocab_size);
    file->first = data->num_sequences;
    data->num_sequences += sequences_in(data, &file->tokens);
    data->num_tokens += file->tokens.facts.num_tokens;
    data->num_files++;
    return MCP_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void list_folder(struct mcp_arena *arena, DIR *folder, const char *path, const char ***names,
                        size_t *count)
{
    size_t capacity = 0;
    struct dirent *entry;
    *count = 0;
    *names = NULL;
    while ((entry = readdir(folder)) != NULL) {
        if (!mcp_ends_with(entry->d_name, ".tokens"))
            continue;
        *names = mcp_grow(arena, *names, *count, &capacity, sizeof **names);
        (*names)[(*count)++] = mcp_format(arena, "%s/%s", path, entry->d_name);
    }
    if (*count > 0)
        qsort(*names, *count, sizeof **names, compare_names);
}

static enum mcp_status add_folder(struct mcp_arena *arena, struct mcp_data *data, const char *path,
                                  struct mcp_error *err)
{
    const char **names;
    size_t count;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return mcp_fail(err, MCP_IO, "%s: %s", path, strerror(errno));
    list_folder(arena, folder, path, &names, &count);
    closedir(folder);
    if (count == 0)
        return mcp_fail(err, MCP_IO, "%s: no file named *.tokens in it", path);
    for (size_t i = 0; i < count; i++)
        MCP_TRY(add_file(arena, data, names[i], err));
    return MCP_OK;
}

enum mcp_status mcp_data_open(struct mcp_arena *arena, const char *const *paths, int num_paths,
                              const struct mcp_data_options *options, const struct mcp_data **out,
                              struct mcp_error *err)
{
    struct mcp_data *data = MCP_NEW(arena, struct mcp_data);
    struct stat info;
    data->options = *options;
    *out = data;
    for (int i = 0; i < num_paths; i++) {
        const bool is_folder = stat(paths[i], &info) == 0 && S_ISDIR(info.st_mode);
        MCP_TRY(is_folder ? add_folder(arena, data, paths[i], err)
                          : add_file(arena, data, paths[i], err));
    }
    if (data->num_sequences == 0)
        return mcp_fail(err, MCP_INVALID,
                        "%s: %lld tokens hold no sequence of %lld and its target: give more data, "
                        "or a smaller sequence_length",
                        num_paths > 0 ? paths[0] : "data", (long long)data->num_tokens,
                        (long long)options->sequence_length);
    return MCP_OK;
}

int64_t mcp_data_sequences(const struct mcp_data *data)
{
    return data->num_sequences;
}

/* The last file that begins at or before a sequence; files without any begin where the
 * next does. */
static const struct file *file_of(const struct mcp_data *data, int64_t sequence)
{
    int low = 0, high = data->num_files;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (data->files[middle].first <= sequence)
            low = middle;
        else
            high = middle;
    }
    return &data->files[low];
}

enum mcp_status mcp_data_sequence(const struct mcp_data *data, int64_t position, int32_t *out,
                                  struct mcp_error *err)
{
    const int64_t sequence = mcp_data_place(data, position);
    const struct file *file = file_of(data, sequence);
    const int64_t length = data->options.sequence_length;
    return mcp_token_file_copy(&file->tokens, (sequence - file->first) * length, length + 1,
                               data->options.vocab_size, out, err);
}
