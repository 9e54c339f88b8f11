/* tests/fuzz/fuzz_hwloc_xml.c: any bytes as hwloc's XML. */
#include "tests/fuzz/node.h"
#include "topologies/hwloc_xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_xml(data, size, mcp_hwloc_xml);
    return 0;
}
