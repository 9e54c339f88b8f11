/* cli/cmd_data.c: mcpplan data: text into files of tokens. */
#include "cli/child.h"
#include "cli/commands.h"
#include "core/file.h"
#include "core/units.h"
#include "exec/tokenizer.h"
#include "exec/tokens.h"

#include <stdio.h>
#include <string.h>

struct data_args {
    const char *tokenizer;
    const char *end_of_document;
    const char *text_key;
    int64_t shard_tokens;
};

struct job {
    struct mcp_context *ctx;
    const struct data_args *args;
    const struct mcp_tokenizer *tokenizer;
    struct mcp_token_writer *writer;
    int64_t bytes; /* of text */
};

/* One document ------------------------------------------------------------- */

static enum mcp_status put_ids(void *context, const int32_t *ids, size_t count,
                               struct mcp_error *err)
{
    if (mcp_child_asked() != 0)
        return mcp_fail(err, MCP_RUN_FAILURE,
                        "ended by signal %d (%s), as asked: nothing is written", mcp_child_asked(),
                        strsignal(mcp_child_asked()));
    return mcp_token_writer_add(((struct job *)context)->writer, ids, count, err);
}

static enum mcp_status add_document(struct job *job, const char *name, const char *text,
                                    size_t length)
{
    const struct mcp_token_sink sink = {put_ids, job};
    if (length == 0)
        return MCP_OK;
    job->bytes += (int64_t)length;
    MCP_TRY(mcp_tokenizer_encode(job->tokenizer, name, text, length, &sink, &job->ctx->err));
    return mcp_token_writer_end_document(job->writer, &job->ctx->err);
}

/* Files -------------------------------------------------------------------- */

static enum mcp_status add_json_line(struct job *job, const char *name, const char *line,
                                     size_t length)
{
    struct mcp_arena *scratch = mcp_arena_new();
    struct mcp_json *json;
    const char *text = NULL;
    enum mcp_status status = mcp_json_parse(scratch, name, line, length, &json, &job->ctx->err);
    if (status == MCP_OK)
        status = mcp_json_string(json, job->args->text_key, &text, &job->ctx->err);
    if (status == MCP_OK)
        status = add_document(job, name, text, strlen(text));
    mcp_arena_free(scratch);
    return status;
}

/* JSON lines: a document each. */
static enum mcp_status add_lines(struct job *job, const char *path, const char *text, size_t length)
{
    const char *end = text + length;
    for (int64_t number = 1; text < end; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *stop = newline != NULL ? newline : end;
        char name[512];
        snprintf(name, sizeof name, "%s:%lld", path, (long long)number);
        if (stop > text)
            MCP_TRY(add_json_line(job, name, text, (size_t)(stop - text)));
        text = stop + 1;
    }
    return MCP_OK;
}

static enum mcp_status add_file(struct job *job, const char *path)
{
    struct mcp_arena *scratch = mcp_arena_new();
    struct mcp_file_view view;
    enum mcp_status status = mcp_file_map(scratch, path, &view, &job->ctx->err);
    if (status == MCP_OK)
        status = mcp_ends_with(path, ".jsonl")
                     ? add_lines(job, path, (const char *)view.data, view.length)
                     : add_document(job, path, (const char *)view.data, view.length);
    mcp_arena_free(scratch);
    return status;
}

/* The command --------------------------------------------------------------- */

static enum mcp_status find_end(struct mcp_context *ctx, const struct data_args *args,
                                const struct mcp_tokenizer *tokenizer, int *id)
{
    *id = mcp_tokenizer_end_of_document(tokenizer);
    if (args->end_of_document != NULL) {
        *id = mcp_tokenizer_id(tokenizer, args->end_of_document);
        if (*id < 0)
            return mcp_fail(&ctx->err, MCP_INVALID, "%s has no token \"%s\" to end documents with",
                            args->tokenizer, mcp_shown(ctx->arena, args->end_of_document));
    } else if (*id < 0) {
        mcp_note("%s has no token that ends documents: they follow one another without, unless "
                 "--end-of-document names one",
                 args->tokenizer);
    }
    return MCP_OK;
}

static struct mcp_json *facts_json(const struct job *job, const struct mcp_token_facts *total,
                                   int num_files)
{
    struct mcp_json *json = mcp_json_new_object(job->ctx->arena);
    mcp_json_set_string(json, "schema", "mcpplan.data/1");
    mcp_json_set_string(json, "path", job->ctx->output_path);
    mcp_json_set_int(json, "files", num_files);
    mcp_json_set_string(json, "tokenizer", job->args->tokenizer);
    mcp_json_set_int(json, "documents", total->num_documents);
    mcp_json_set_int(json, "tokens", total->num_tokens);
    mcp_json_set_int(json, "text_bytes", job->bytes);
    mcp_json_set_int(json, "vocab_size", total->vocab_size);
    mcp_json_set_int(json, "token_bytes", total->token_bytes);
    if (total->end_of_document >= 0)
        mcp_json_set_int(json, "end_of_document", total->end_of_document);
    else
        mcp_json_set_null(json, "end_of_document");
    return json;
}

static enum mcp_status report(const struct job *job, const struct mcp_token_facts *total,
                              int num_files)
{
    struct mcp_context *ctx = job->ctx;
    struct mcp_text text = mcp_text_new(ctx->arena);
    const struct mcp_json *json = facts_json(job, total, num_files);
    if (ctx->json)
        mcp_text_add(&text, "%s", mcp_json_text(ctx->arena, json));
    else
        mcp_text_add(&text,
                     "%s: %s tokens of %d bytes from %s documents, %s of text\n"
                     "  %.2f bytes of text a token; train models with vocab_size >= %d on it\n",
                     mcp_printable(ctx->arena, ctx->output_path),
                     mcp_show_integer(ctx->arena, total->num_tokens), total->token_bytes,
                     mcp_show_integer(ctx->arena, total->num_documents),
                     mcp_show(ctx->arena, (double)job->bytes, MCP_BYTES),
                     (double)job->bytes / (double)total->num_tokens, total->vocab_size);
    return mcp_output_text(&text, &ctx->err);
}

static enum mcp_status tokenize(struct mcp_context *ctx, const struct data_args *args)
{
    struct job job = {.ctx = ctx, .args = args};
    struct mcp_token_facts facts = {0};
    int num_files = 0;
    if (ctx->output_path == NULL)
        return mcp_fail(&ctx->err, MCP_USAGE, "data tokenize needs -o FILE for the tokens");
    MCP_TRY(mcp_tokenizer_load(ctx->arena, args->tokenizer, &job.tokenizer, &ctx->err));
    MCP_TRY(find_end(ctx, args, job.tokenizer, &facts.end_of_document));
    facts.vocab_size = mcp_tokenizer_vocab_size(job.tokenizer);
    mcp_child_watch();
    MCP_TRY(mcp_token_writer_open(ctx->arena, ctx->output_path, args->shard_tokens, &facts,
                                  &job.writer, &ctx->err));
    for (int i = 1; i < ctx->num_operands; i++)
        MCP_TRY(add_file(&job, ctx->operands[i]));
    if (job.bytes == 0)
        return mcp_fail(&ctx->err, MCP_INVALID, "%s: no text in it", ctx->operands[1]);
    MCP_TRY(mcp_token_writer_finish(job.writer, &facts, &num_files, &ctx->err));
    return report(&job, &facts, num_files);
}

enum mcp_status mcp_cmd_data(struct mcp_context *ctx, int argc, char **argv)
{
    struct data_args args = {.tokenizer = "bytes", .text_key = "text"};
    const struct mcp_option options[] = {
        {"tokenizer", MCP_OPT_FILE, &args.tokenizer,
         "bytes, or a tokenizer.json of the GPT-2, Llama or Qwen 2 kind"},
        {"end-of-document", MCP_OPT_STRING, &args.end_of_document,
         "token put after each document; default: <|endoftext|>, <|end_of_text|>, </s> or <eos>, "
         "whichever there is"},
        {"text-key", MCP_OPT_STRING, &args.text_key, "where lines of FILE.jsonl hold their text"},
        {"shard-tokens", MCP_OPT_COUNT64, &args.shard_tokens,
         "write a folder of files with at most so many tokens each"},
    };
    const struct mcp_usage usage = {
        .command = "data",
        .summary = "turn text into the tokens that train reads",
        .synopsis = "tokenize FILE... -o OUT [options]",
        .description =
            "Every FILE is a document, every line of FILE.jsonl is one. The ids are those that "
            "Hugging Face's tokenizers gives, special tokens around a document included; what a "
            "tokenizer.json asks for that is not understood is refused. OUT is written when all "
            "text is read; docs/FORMATS.md says what is in it.",
        .min_operands = 2,
        .max_operands = -1,
        .options = options,
        .num_options = MCP_COUNT_OF(options),
        .examples = "mcpplan data tokenize book.txt -o book.tokens\n"
                    "mcpplan data tokenize *.jsonl --tokenizer llama/tokenizer.json "
                    "--shard-tokens 100000000 -o corpus\n",
    };
    if (!mcp_options_parse(ctx, &usage, argc, argv))
        return ctx->status;
    if (!mcp_same(ctx->operands[0], "tokenize"))
        return mcp_fail(&ctx->err, MCP_USAGE, "data %s is not known, data tokenize is",
                        mcp_shown(ctx->arena, ctx->operands[0]));
    return tokenize(ctx, &args);
}
