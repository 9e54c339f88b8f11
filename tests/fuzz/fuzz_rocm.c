/* tests/fuzz/fuzz_rocm.c: any bytes as what rocm-smi --showtopo prints. */
#include "tests/fuzz/node.h"
#include "topologies/rocm_smi.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_text(data, size, mcp_rocm_smi_topo);
    return 0;
}
