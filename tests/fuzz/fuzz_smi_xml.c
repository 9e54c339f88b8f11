/* tests/fuzz/fuzz_smi_xml.c: any bytes as what nvidia-smi -q -x prints. */
#include "tests/fuzz/node.h"
#include "topologies/nvidia_smi.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_xml(data, size, mcp_nvidia_smi_xml);
    return 0;
}
