/* sim/noise.c: counter-based random numbers. */
#include "sim/noise.h"

#include <math.h>

/* Steele, Lea and Flood 2014: one step of SplitMix64. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Box and Muller 1958, from the two halves of one number. */
double mcp_sim_normal(uint64_t seed, int rank, int slot)
{
    const double two_pi = 6.283185307179586, unit = 1.0 / 4294967296.0;
    uint64_t bits = mix(mix(seed) ^ ((uint64_t)(uint32_t)rank << 32 | (uint32_t)slot));
    double radius = ((double)(bits >> 32) + 1) * unit; /* above 0 */
    double angle = (double)(bits & 0xffffffffu) * unit;
    return sqrt(-2 * log(radius)) * cos(two_pi * angle);
}
