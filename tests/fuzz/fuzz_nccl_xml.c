/* tests/fuzz/fuzz_nccl_xml.c: any bytes as NCCL's topology XML. */
#include "tests/fuzz/node.h"
#include "topologies/nccl_xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_xml(data, size, mcp_nccl_xml);
    return 0;
}
