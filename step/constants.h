/* step/constants.h: the physics of prices: numbers that belong to no GPU, fabric or
 * stack. Sources in docs/COST_MODEL.md; none is fitted to training runs. */
#ifndef MCP_STEP_CONSTANTS_H
#define MCP_STEP_CONSTANTS_H

/* Device memory bandwidth that streaming kernels reach over the datasheet's
 * (published stream-type kernels on A100, H100, B200: 0.78-0.83). */
#define MCP_MEMORY_FRAC 0.80
/* Start-up of one kernel on the device (micro-benchmarks of small products). */
#define MCP_KERNEL_START_S 3e-6
/* Depth at which a product reaches half its rate, 16 bit; 8 and 4 bit products
 * finish a tile in less time and need three times that (micro-benchmarks). */
#define MCP_MATMUL_RAMP_DEPTH 100.0
#define MCP_MATMUL_RAMP_LOW_PRECISION 3.0
/* Attention kernels: start-up, and head sizes below the tensor cores' comfort
 * (micro-benchmarks; rate over that of head_dim 128). */
#define MCP_ATTENTION_FORWARD_START_S 5e-6
#define MCP_ATTENTION_BACKWARD_START_S 10e-6
#define MCP_ATTENTION_HEAD_RAMP 14.0
/* Backward of fused attention: five products instead of two. */
#define MCP_ATTENTION_BACKWARD_PRODUCTS 2.5
/* Bytes per score that unfused attention moves besides its products. */
#define MCP_SCORES_FORWARD_BYTES 4.0
#define MCP_SCORES_BACKWARD_BYTES 6.0
#define MCP_SCORES_DROPOUT_BYTES 5.0
/* Bytes per element of a chunk's state between a scan's kernels: written in fp32, read
 * and written again where chunks pass it on. */
#define MCP_SCAN_STATE_BYTES 12.0
/* Half-width of predictions of what no published run has measured: scans, indexers. */
#define MCP_UNMEASURED_FRAC 0.5
/* Collectives (nccl-tests inside a node): start, per further rank in a domain,
 * ramp of the pipelined chunks, and the all-reduce's longer start. */
#define MCP_COLLECTIVE_START_S 12e-6
#define MCP_COLLECTIVE_RANK_S 1e-6
#define MCP_COLLECTIVE_RAMP_S 15e-6
#define MCP_COLLECTIVE_RAMP_BYTES 4e6
#define MCP_ALL_REDUCE_START 1.6
/* Rate of a GPU's port while its switches add up, over that in a ring: nccl-tests with
 * NVLS on 8 H100 reach 480 GB/s of bus bandwidth, rings 370. */
#define MCP_IN_SWITCH_FRAC 0.84
/* Point to point: start, and one pair's share of the NVLink bandwidth. */
#define MCP_SEND_START_S 20e-6
#define MCP_SEND_DOMAIN_FRAC 0.6
/* Of a stack's extra expert-routing launches, those that cost device time too. */
#define MCP_MOE_DEVICE_LAUNCHES 20
/* 8 bit experts: backward launches over forward launches. */
#define MCP_MOE_BACKWARD_LAUNCHES 1.5
/* A backward all-reduce of tensor parallelism runs beside the weight gradient in
 * stacks that overlap at all; this share of it stays exposed. */
#define MCP_BULK_ALL_REDUCE_EXPOSED 0.8
/* Bytes of an element of a layer's input that is kept quantised: itself, its scales,
 * and the share that is kept in both layouts. */
#define MCP_QUANTISED_INPUT_BYTES 1.15

#endif
