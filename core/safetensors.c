/* core/safetensors.c: tensors in a file, read and written. */
#include "core/safetensors.h"

#include "core/json.h"
#include "core/text.h"
#include "core/units.h"

#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "files hold little-endian numbers, and nothing here swaps them"
#endif

enum { PREFIX_BYTES = 8, MAX_HEADER_BYTES = 100000000, PIECE_BYTES = 1 << 20 };

struct format {
    char name[16];
    int dtype;
    int bytes;
};

static const struct format formats[] = {
    {"F32", MCP_F32, 4},
    {"BF16", MCP_BF16, 2},
    {"F16", MCP_F16, 2},
    {"I32", MCP_I32, 4},
    {"U8", MCP_U8, 1},
    {"F8_E4M3", MCP_F8, 1},
    {"F64", MCP_DTYPE_OTHER, 8},
    {"I64", MCP_DTYPE_OTHER, 8},
    {"U64", MCP_DTYPE_OTHER, 8},
    {"U32", MCP_DTYPE_OTHER, 4},
    {"I16", MCP_DTYPE_OTHER, 2},
    {"U16", MCP_DTYPE_OTHER, 2},
    {"I8", MCP_DTYPE_OTHER, 1},
    {"F8_E5M2", MCP_DTYPE_OTHER, 1},
    {"F8_E8M0", MCP_DTYPE_OTHER, 1},
    {"BOOL", MCP_DTYPE_OTHER, 1},
};

/* While the header is read. */
struct reader {
    struct mcp_arena *arena;
    struct mcp_safetensors *out;
    const unsigned char *data; /* behind the header */
    int64_t data_bytes;
};

/* --- reading --- */

static const struct format *find_format(const char *name)
{
    for (size_t i = 0; i < MCP_COUNT_OF(formats); i++)
        if (mcp_same(formats[i].name, name))
            return &formats[i];
    return NULL;
}

static enum mcp_status read_shape(struct mcp_json *json, struct mcp_tensor *tensor,
                                  int64_t *elements, struct mcp_error *err)
{
    struct mcp_json *shape = NULL;
    MCP_TRY(mcp_json_array(json, "shape", &shape, err));
    const size_t count = mcp_json_count(shape);
    if (count > MCP_TENSOR_MAX_DIMS)
        return mcp_json_fail(shape, err, "%zu dimensions, at most %d are read", count,
                             MCP_TENSOR_MAX_DIMS);
    tensor->num_dims = (int)count;
    *elements = 1;
    for (size_t i = 0; i < count; i++) {
        MCP_TRY(mcp_json_as_int64(mcp_json_at(shape, i), &tensor->shape[i], err));
        if (!mcp_multiply(*elements, tensor->shape[i], elements))
            return mcp_json_fail(shape, err, "more elements than a 64 bit number counts");
    }
    return MCP_OK;
}

static enum mcp_status read_offsets(const struct reader *reader, struct mcp_json *json,
                                    struct mcp_tensor *tensor, struct mcp_error *err)
{
    struct mcp_json *offsets = NULL;
    int64_t begin = 0, end = 0;
    MCP_TRY(mcp_json_array(json, "data_offsets", &offsets, err));
    if (mcp_json_count(offsets) != 2)
        return mcp_json_fail(offsets, err, "%zu numbers, expected [begin, end]",
                             mcp_json_count(offsets));
    MCP_TRY(mcp_json_as_int64(mcp_json_at(offsets, 0), &begin, err));
    MCP_TRY(mcp_json_as_int64(mcp_json_at(offsets, 1), &end, err));
    if (begin > end || end > reader->data_bytes)
        return mcp_json_fail(offsets, err, "[%lld, %lld] is no range within %lld bytes of data",
                             (long long)begin, (long long)end, (long long)reader->data_bytes);
    tensor->data = reader->data + begin;
    tensor->bytes = end - begin;
    return MCP_OK;
}

static enum mcp_status read_tensor(const struct reader *reader, const char *name,
                                   struct mcp_json *json, struct mcp_error *err)
{
    struct mcp_tensor *tensor = &reader->out->tensors[reader->out->num_tensors];
    int64_t elements = 0, bytes = 0;
    tensor->name = name;
    if (!mcp_json_is_object(json))
        return mcp_json_fail(json, err, "expected an object with dtype, shape and data_offsets");
    MCP_TRY(mcp_json_string(json, "dtype", &tensor->dtype_name, err));
    const struct format *format = find_format(tensor->dtype_name);
    if (format == NULL)
        return mcp_json_fail(json, err, "dtype \"%.40s\" is not known", tensor->dtype_name);
    tensor->dtype = format->dtype;
    MCP_TRY(read_shape(json, tensor, &elements, err));
    MCP_TRY(read_offsets(reader, json, tensor, err));
    if (!mcp_multiply(elements, format->bytes, &bytes) || bytes != tensor->bytes)
        return mcp_json_fail(json, err, "%lld bytes of data for %lld elements of %s",
                             (long long)tensor->bytes, (long long)elements, format->name);
    reader->out->num_tensors++;
    return MCP_OK;
}

static enum mcp_status read_notes(struct reader *reader, struct mcp_json *json,
                                  struct mcp_error *err)
{
    const size_t count = mcp_json_count(json);
    if (!mcp_json_is_object(json))
        return mcp_json_fail(json, err, "expected an object of strings");
    struct mcp_tensor_note *notes = MCP_ARRAY(reader->arena, count, struct mcp_tensor_note);
    for (size_t i = 0; i < count; i++) {
        struct mcp_json *value = mcp_json_member(json, i, &notes[i].key);
        MCP_TRY(mcp_json_as_string(value, &notes[i].value, err));
    }
    reader->out->notes = notes;
    reader->out->num_notes = (int)count;
    return MCP_OK;
}

static enum mcp_status read_entries(struct reader *reader, struct mcp_json *header,
                                    struct mcp_error *err)
{
    const size_t count = mcp_json_count(header);
    reader->out->tensors = MCP_ARRAY(reader->arena, count, struct mcp_tensor);
    for (size_t i = 0; i < count; i++) {
        const char *name = NULL;
        struct mcp_json *json = mcp_json_member(header, i, &name);
        if (mcp_same(name, "__metadata__"))
            MCP_TRY(read_notes(reader, json, err));
        else
            MCP_TRY(read_tensor(reader, name, json, err));
    }
    return mcp_json_done(header, err);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct mcp_tensor *)a)->name, ((const struct mcp_tensor *)b)->name);
}

/* Tensors of no bytes first: they lie where their neighbour begins. */
static int compare_places(const void *a, const void *b)
{
    const struct mcp_tensor *x = a, *y = b;
    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Each begins where the one before it ends, and the last ends the file. */
static enum mcp_status check_no_holes(const struct reader *reader, struct mcp_error *err)
{
    struct mcp_safetensors *file = reader->out;
    int64_t end = 0;
    qsort(file->tensors, (size_t)file->num_tensors, sizeof *file->tensors, compare_places);
    for (int i = 0; i < file->num_tensors; i++) {
        const struct mcp_tensor *tensor = &file->tensors[i];
        const int64_t begin = (const unsigned char *)tensor->data - reader->data;
        if (begin != end)
            return mcp_fail(err, MCP_FORMAT,
                            "%s: %.200s: its data begins at byte %lld, where the data before it "
                            "ends at %lld",
                            file->path, mcp_printable(reader->arena, tensor->name),
                            (long long)begin, (long long)end);
        end += tensor->bytes;
    }
    if (end != reader->data_bytes)
        return mcp_fail(err, MCP_FORMAT, "%s: tensors end at byte %lld of %lld bytes of data",
                        file->path, (long long)end, (long long)reader->data_bytes);
    return MCP_OK;
}

static enum mcp_status find_header(const struct mcp_file_view *view, const char *path,
                                   size_t *header_bytes, struct mcp_error *err)
{
    uint64_t length;
    if (view->length < PREFIX_BYTES + 2)
        return mcp_fail(err, MCP_FORMAT, "%s: %zu bytes, too few for a safetensors header", path,
                        view->length);
    memcpy(&length, view->data, sizeof length);
    if (length > MAX_HEADER_BYTES || length > view->length - PREFIX_BYTES)
        return mcp_fail(err, MCP_FORMAT,
                        "%s: no safetensors file, or cut short: a header of %llu bytes in a file "
                        "of %zu",
                        path, (unsigned long long)length, view->length);
    if (view->data[PREFIX_BYTES] != '{')
        return mcp_fail(err, MCP_FORMAT, "%s: the header does not begin with '{'", path);
    *header_bytes = (size_t)length;
    return MCP_OK;
}

enum mcp_status mcp_safetensors_read(struct mcp_arena *arena, const char *path,
                                     struct mcp_safetensors *out, struct mcp_error *err)
{
    struct mcp_file_view view;
    struct mcp_json *header;
    size_t header_bytes = 0;
    MCP_TRY(mcp_file_map(arena, path, &view, err));
    MCP_TRY(find_header(&view, path, &header_bytes, err));
    *out = (struct mcp_safetensors){.path = mcp_strdup(arena, path)};
    struct reader reader = {arena, out, view.data + PREFIX_BYTES + header_bytes,
                            (int64_t)(view.length - PREFIX_BYTES - header_bytes)};
    MCP_TRY(mcp_json_parse(arena, path, (const char *)view.data + PREFIX_BYTES, header_bytes,
                           &header, err));
    MCP_TRY(read_entries(&reader, header, err));
    MCP_TRY(check_no_holes(&reader, err));
    qsort(out->tensors, (size_t)out->num_tensors, sizeof *out->tensors, compare_names);
    return MCP_OK;
}

const struct mcp_tensor *mcp_safetensors_find(const struct mcp_safetensors *file, const char *name)
{
    const struct mcp_tensor wanted = {.name = name};
    if (file->num_tensors == 0)
        return NULL;
    return bsearch(&wanted, file->tensors, (size_t)file->num_tensors, sizeof wanted, compare_names);
}

const char *mcp_safetensors_note(const struct mcp_safetensors *file, const char *key)
{
    for (int i = 0; i < file->num_notes; i++)
        if (mcp_same(file->notes[i].key, key))
            return file->notes[i].value;
    return NULL;
}

/* --- writing --- */

static const struct format *format_of(int dtype)
{
    for (size_t i = 0; i < MCP_COUNT_OF(formats); i++)
        if (formats[i].dtype == dtype)
            return dtype == MCP_DTYPE_OTHER ? NULL : &formats[i];
    return NULL;
}

static enum mcp_status check_names(struct mcp_arena *arena, const struct mcp_safetensors *file,
                                   struct mcp_error *err)
{
    struct mcp_tensor *sorted = MCP_ARRAY(arena, file->num_tensors + 1, struct mcp_tensor);
    for (int i = 0; i < file->num_tensors; i++)
        sorted[i] = file->tensors[i];
    qsort(sorted, (size_t)file->num_tensors, sizeof *sorted, compare_names);
    for (int i = 0; i + 1 < file->num_tensors; i++)
        if (mcp_same(sorted[i].name, sorted[i + 1].name))
            return mcp_fail(err, MCP_INVALID, "%s: two tensors are named \"%.200s\"", file->path,
                            sorted[i].name);
    return MCP_OK;
}

static enum mcp_status tensor_bytes(const struct mcp_safetensors *file,
                                    const struct mcp_tensor *tensor, int64_t *bytes,
                                    struct mcp_error *err)
{
    const struct format *format = format_of(tensor->dtype);
    bool fits = format != NULL && tensor->num_dims <= MCP_TENSOR_MAX_DIMS;
    *bytes = format != NULL ? format->bytes : 0;
    for (int i = 0; fits && i < tensor->num_dims; i++)
        fits = tensor->shape[i] >= 0 && mcp_multiply(*bytes, tensor->shape[i], bytes);
    if (!fits)
        return mcp_fail(err, MCP_INVALID, "%s: tensor %.200s has a dtype or shape no file holds",
                        file->path, tensor->name);
    return MCP_OK;
}

static void put_tensor(struct mcp_json *header, const struct mcp_tensor *tensor, int64_t begin,
                       int64_t bytes)
{
    struct mcp_json *entry = mcp_json_set_object(header, tensor->name);
    mcp_json_set_string(entry, "dtype", format_of(tensor->dtype)->name);
    struct mcp_json *shape = mcp_json_set_array(entry, "shape");
    for (int i = 0; i < tensor->num_dims; i++)
        mcp_json_add_int(shape, tensor->shape[i]);
    struct mcp_json *offsets = mcp_json_set_array(entry, "data_offsets");
    mcp_json_add_int(offsets, begin);
    mcp_json_add_int(offsets, begin + bytes);
}

/* The header, padded so that the data begins at a multiple of eight. */
static enum mcp_status make_header(struct mcp_arena *arena, const struct mcp_safetensors *file,
                                   struct mcp_text *out, struct mcp_error *err)
{
    struct mcp_json *header = mcp_json_new_object(arena);
    int64_t offset = 0, bytes;
    if (file->num_notes > 0) {
        struct mcp_json *notes = mcp_json_set_object(header, "__metadata__");
        for (int i = 0; i < file->num_notes; i++)
            mcp_json_set_string(notes, file->notes[i].key, file->notes[i].value);
    }
    for (int i = 0; i < file->num_tensors; i++) {
        MCP_TRY(tensor_bytes(file, &file->tensors[i], &bytes, err));
        put_tensor(header, &file->tensors[i], offset, bytes);
        offset += bytes;
    }
    *out = mcp_text_new(arena);
    mcp_text_add(out, "%s", mcp_json_text(arena, header));
    while (out->length % PREFIX_BYTES != 0)
        mcp_text_append(out, " ", 1);
    return MCP_OK;
}

static enum mcp_status add_tensor(struct mcp_arena *arena, const struct mcp_safetensors *file,
                                  int index, const struct mcp_tensor_source *source,
                                  struct mcp_file_writer *writer, struct mcp_error *err)
{
    const struct mcp_mark mark = mcp_arena_mark(arena);
    int64_t bytes;
    MCP_TRY(tensor_bytes(file, &file->tensors[index], &bytes, err));
    char *piece = MCP_ARRAY(arena, bytes < PIECE_BYTES ? bytes : PIECE_BYTES, char);
    for (int64_t at = 0; at < bytes; at += PIECE_BYTES) {
        const int64_t length = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        MCP_TRY(source->fetch(source->context, index, at, length, piece, err));
        MCP_TRY(mcp_file_writer_add(writer, piece, (size_t)length, err));
    }
    mcp_arena_rewind(arena, mark);
    return MCP_OK;
}

enum mcp_status mcp_safetensors_stream(struct mcp_arena *arena, const struct mcp_safetensors *file,
                                       const struct mcp_tensor_source *source,
                                       struct mcp_file_digest *digest, struct mcp_error *err)
{
    struct mcp_file_writer *writer;
    struct mcp_text header;
    MCP_TRY(check_names(arena, file, err));
    MCP_TRY(make_header(arena, file, &header, err));
    const uint64_t header_bytes = header.length;
    MCP_TRY(mcp_file_writer_open(arena, file->path, &writer, err));
    MCP_TRY(mcp_file_writer_add(writer, &header_bytes, sizeof header_bytes, err));
    MCP_TRY(mcp_file_writer_add(writer, header.data, header.length, err));
    for (int i = 0; i < file->num_tensors; i++)
        MCP_TRY(add_tensor(arena, file, i, source, writer, err));
    return mcp_file_writer_finish(writer, digest, err);
}

static enum mcp_status fetch_from_memory(void *context, int index, int64_t first, int64_t bytes,
                                         void *out, struct mcp_error *err)
{
    const struct mcp_tensor *tensors = context;
    (void)err;
    memcpy(out, (const char *)tensors[index].data + first, (size_t)bytes);
    return MCP_OK;
}

enum mcp_status mcp_safetensors_write(struct mcp_arena *arena, const struct mcp_safetensors *file,
                                      struct mcp_file_digest *digest, struct mcp_error *err)
{
    const struct mcp_tensor_source memory = {fetch_from_memory, file->tensors};
    return mcp_safetensors_stream(arena, file, &memory, digest, err);
}
