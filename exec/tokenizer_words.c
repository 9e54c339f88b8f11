/* exec/tokenizer_words.c: where words end, by the patterns of GPT-2, Llama 3 and Qwen 2.
 *
 * The regular expressions by hand: alternatives in their order, each as greedy as the
 * pattern is. None looks behind, so a word depends on the text from its start only. */
#include "core/text.h"
#include "core/unicode.h"
#include "exec/tokenizer_parts.h"

#include <string.h>
#include <strings.h>

const char *const mcp_word_expressions[MCP_NUM_WORD_PATTERNS] = {
    [MCP_WORDS_GPT2] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                       "\\s+(?!\\S)|\\s+",
    [MCP_WORDS_LLAMA3] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
                         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    [MCP_WORDS_QWEN2] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};

enum class { CLASS_END, CLASS_LETTER, CLASS_NUMBER, CLASS_SPACE, CLASS_OTHER };

struct reading {
    const char *text;
    size_t length;
};

static enum class class_at(const struct reading *in, size_t at, size_t *bytes) {
    uint32_t code; *bytes = 0; if (at >= in->length) return CLASS_END;
    *bytes = mcp_utf8_decode(in->text + at, in->length - at, &code);
    if (mcp_is_letter(code)) return CLASS_LETTER;
    if (mcp_is_number(code)) return CLASS_NUMBER;
    return mcp_is_space(code) ? CLASS_SPACE : CLASS_OTHER;
}

/* The end of the run of `wanted` that begins at `at`, of `most` characters at most. */
static size_t run_end(const struct reading *in, size_t at, enum class wanted, size_t most)
{
    size_t bytes;
    for (; most > 0 && class_at(in, at, &bytes) == wanted; most--)
        at += bytes;
    return at;
}

/* Bytes of 's, 't, 're ... at the start; 0 for none. */
static size_t contraction(const struct reading *in, bool ignore_case)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d", "\xc5\xbf"};
    if (in->text[0] != '\'')
        return 0;
    for (size_t i = 0; i < MCP_COUNT_OF(endings); i++) {
        const size_t length = strlen(endings[i]);
        const bool is_folded = (endings[i][0] & 0x80) != 0; /* long s is a small s in capitals */
        if (in->length <= length || (is_folded && !ignore_case))
            continue;
        if (ignore_case ? strncasecmp(in->text + 1, endings[i], length) == 0
                        : strncmp(in->text + 1, endings[i], length) == 0)
            return 1 + length;
    }
    return 0;
}

/* \s+(?!\S)|\s+ : the last space of a run belongs to what follows it. */
static size_t spaces(const struct reading *in)
{
    const size_t end = run_end(in, 0, CLASS_SPACE, SIZE_MAX);
    size_t last = end;
    if (end == in->length)
        return end;
    do
        last--;
    while ((in->text[last] & 0xc0) == 0x80);
    return last > 0 ? last : end;
}

static size_t gpt2_word(const struct reading *in)
{
    size_t bytes, length = contraction(in, false);
    if (length > 0)
        return length;
    const size_t start = in->text[0] == ' ';
    const enum class class = class_at(in, start, &bytes);
    if (class == CLASS_END || class == CLASS_SPACE)
        return spaces(in);
    return run_end(in, start, class, SIZE_MAX);
}

static bool is_newline(char c)
{
    return c == '\r' || c == '\n';
}

/* \s*[\r\n]+ : up to the last line end of the run of spaces; 0 when it has none. */
static size_t line_ends(const struct reading *in)
{
    size_t end = run_end(in, 0, CLASS_SPACE, SIZE_MAX);
    while (end > 0 && !is_newline(in->text[end - 1]))
        end--;
    return end;
}

/* ?[^\s\p{L}\p{N}]+[\r\n]* ; 0 when there is none. */
static size_t punctuation(const struct reading *in)
{
    const size_t start = in->text[0] == ' ';
    size_t end = run_end(in, start, CLASS_OTHER, SIZE_MAX);
    if (end == start)
        return 0;
    while (end < in->length && is_newline(in->text[end]))
        end++;
    return end;
}

static size_t llama3_word(const struct reading *in, size_t digits)
{
    size_t bytes, next_bytes, length = contraction(in, true);
    if (length > 0)
        return length;
    const enum class class = class_at(in, 0, &bytes);
    if (class == CLASS_LETTER)
        return run_end(in, 0, CLASS_LETTER, SIZE_MAX);
    if (class == CLASS_NUMBER)
        return run_end(in, 0, CLASS_NUMBER, digits);
    if (!is_newline(in->text[0]) && class_at(in, bytes, &next_bytes) == CLASS_LETTER)
        return run_end(in, bytes, CLASS_LETTER, SIZE_MAX);
    if ((length = punctuation(in)) > 0 || (length = line_ends(in)) > 0)
        return length;
    return spaces(in);
}

size_t mcp_word_length(enum mcp_word_pattern pattern, const char *text, size_t length)
{
    const struct reading in = {text, length};
    if (pattern == MCP_WORDS_GPT2)
        return gpt2_word(&in);
    return llama3_word(&in, pattern == MCP_WORDS_LLAMA3 ? 3 : 1);
}
