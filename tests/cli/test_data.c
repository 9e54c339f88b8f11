/* tests/cli/test_data.c: text into files of tokens, through the program. */
#include "child.h"
#include "core/text.h"
#include "exec/tokens.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPT2 "tests/golden/tokenizers/gpt2.json"

struct case_tokenize {
    struct child_case run; /* "@" is the text */
    char text[120];
    char suffix[8]; /* of the text's name */
};
ParameterizedTestParameters(data_cli, tokenize)
{
    static struct case_tokenize cases[] = {
        {{"bytes", {"data", "tokenize", "@", "-o", "#", "~"}, MCP_OK, "6 tokens of 2 bytes", ""},
         "hello",
         ""},
        {{"words",
          {"data", "tokenize", "@", "--tokenizer", GPT2, "--json", "-o", "#", "~"},
          MCP_OK,
          "\"vocab_size\": 703",
          ""},
         "the cat",
         ""},
        {{"lines",
          {"data", "tokenize", "@", "--json", "-o", "#", "~"},
          MCP_OK,
          "\"documents\": 2",
          ""},
         "{\"text\": \"a\"}\n\n{\"text\": \"bc\", \"id\": 3}\n",
         ".jsonl"},
        {{"another key",
          {"data", "tokenize", "@", "--text-key", "t", "-o", "#", "~"},
          MCP_OK,
          "2 tokens",
          ""},
         "{\"t\": \"a\"}",
         ".jsonl"},
        {{"a line without it",
          {"data", "tokenize", "@", "-o", "#", "~"},
          MCP_FORMAT,
          "",
          ".jsonl:2: text: missing"},
         "{\"text\": \"a\"}\n{\"t\": \"a\"}\n",
         ".jsonl"},
        {{"another end",
          {"data", "tokenize", "@", "--tokenizer", GPT2, "--end-of-document=<tool>", "--json", "-o",
           "#", "~"},
          MCP_OK,
          "\"end_of_document\": 701",
          ""},
         "a",
         ""},
        {{"no such end",
          {"data", "tokenize", "@", "--end-of-document", "<x>", "-o", "#", "~"},
          MCP_INVALID,
          "",
          "bytes has no token \"<x>\""},
         "a",
         ""},
        {{"no text", {"data", "tokenize", "@", "-o", "#", "~"}, MCP_INVALID, "", "no text in it"},
         "",
         ""},
        {{"not UTF-8",
          {"data", "tokenize", "@", "--tokenizer", GPT2, "-o", "#", "~"},
          MCP_FORMAT,
          "",
          "byte 1 is 0xff"},
         "a\xff",
         ""},
        {{"no output", {"data", "tokenize", "@", "~"}, MCP_USAGE, "", "needs -o FILE"}, "a", ""},
        {{"onto the text",
          {"data", "tokenize", "@", "-o", "@", "~"},
          MCP_USAGE,
          "",
          "is a file that data reads"},
         "a",
         ""},
        {{"another verb", {"data", "show", "@", "~"}, MCP_USAGE, "", "data tokenize is"}, "a", ""},
        {{"no tokenizer",
          {"data", "tokenize", "@", "--tokenizer", "none.json", "-o", "#", "~"},
          MCP_IO,
          "",
          "none.json"},
         "a",
         ""},
    };
    return cr_make_param_array(struct case_tokenize, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_tokenize *c, data_cli, tokenize)
{
    char text[] = "/tmp/mcp-test-text-XXXXXX", out[] = "/tmp/mcp-test-out-XXXXXX";
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_token_file file;
    struct mcp_error err = {0};
    close(mkstemp(text));
    const char *name = mcp_format(arena, "%s%s", text, c->suffix);
    close(mkstemp(out));
    unlink(out);
    cr_assert(eq(int, mcp_file_replace(name, c->text, strlen(c->text), &err), MCP_OK));
    for (int i = 0; i < MAX_WORDS; i++)
        if (strcmp(c->run.words[i], "#") == 0)
            snprintf(c->run.words[i], WORD, "%s", out);
    child_check(&c->run, mcp_strdup(arena, name));
    if (c->run.want == MCP_OK)
        cr_expect(eq(int, mcp_token_file_open(arena, out, &file, &err), MCP_OK), "%s", err.text);
    else
        cr_expect(ne(int, access(out, F_OK), 0), "a failure left tokens behind");
    unlink(out);
    unlink(text);
    unlink(name);
    mcp_arena_free(arena);
}
