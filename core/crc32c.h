/* core/crc32c.h: the checksum of checkpoints and of TensorBoard's records.
 *
 * CRC-32C (Castagnoli), RFC 3720 section 12.1: reflected polynomial 0x82f63b78,
 * initial value and final complement all ones. */
#ifndef MCP_CORE_CRC32C_H
#define MCP_CORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what `crc` is the checksum of, followed by `length` bytes more; 0 is
 * that of nothing. */
uint32_t mcp_crc32c(uint32_t crc, const void *data, size_t length);

#endif
