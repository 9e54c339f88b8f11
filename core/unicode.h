/* core/unicode.h: UTF-8 and the classes of characters that tokenizers split at.
 *
 * Unicode 16.0: \p{L} and \p{N} are general categories L and N, \s is White_Space. */
#ifndef MCP_CORE_UNICODE_H
#define MCP_CORE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mcp_unicode_range {
    uint32_t first, last;
};
extern const struct mcp_unicode_range mcp_unicode_letters[];
extern const int mcp_num_unicode_letters;
extern const struct mcp_unicode_range mcp_unicode_numbers[];
extern const int mcp_num_unicode_numbers;

bool mcp_is_letter(uint32_t code);
bool mcp_is_number(uint32_t code);
bool mcp_is_space(uint32_t code);

/* The character at `text`, which has `length` > 0 bytes: its code point in *code.
 * Returns its bytes; 0 when no well-formed UTF-8 character begins there (surrogates,
 * overlong and cut forms). */
size_t mcp_utf8_decode(const char *text, size_t length, uint32_t *code);
/* Writes 1 to 4 bytes; returns how many. */
size_t mcp_utf8_encode(uint32_t code, char out[4]);
/* The first byte where text is not UTF-8; `length` when all is. */
size_t mcp_utf8_check(const char *text, size_t length);

#endif
