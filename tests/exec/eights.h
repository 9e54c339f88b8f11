/* tests/exec/eights.h: numbers of 8 bits by their definition, slowly. */
#ifndef TESTS_EXEC_EIGHTS_H
#define TESTS_EXEC_EIGHTS_H

#include "exec/eight.h"

#include <math.h>

static inline unsigned eights_largest(bool is_e5m2)
{
    return is_e5m2 ? 0x7b : 0x7e;
}

/* OCP OFP8 1.0, tables 1 and 2. */
static inline double eights_value(bool is_e5m2, uint8_t x)
{
    const int mantissa_bits = is_e5m2 ? 2 : 3, bias = is_e5m2 ? 15 : 7;
    const int mantissa = x & ((1 << mantissa_bits) - 1), exponent = (x & 0x7f) >> mantissa_bits;
    const double sign = (x & 0x80) != 0 ? -1 : 1, fraction = ldexp(mantissa, -mantissa_bits);
    if ((x & 0x7fu) > eights_largest(is_e5m2))
        return is_e5m2 && mantissa == 0 ? sign * (double)INFINITY : (double)NAN;
    return exponent == 0 ? sign * ldexp(fraction, 1 - bias)
                         : sign * ldexp(1 + fraction, exponent - bias);
}

/* Of all that are finite; of two as near, the even one. */
static inline uint8_t eights_nearest(bool is_e5m2, double value)
{
    const double largest = eights_value(is_e5m2, (uint8_t)eights_largest(is_e5m2));
    const double magnitude = fmin(fabs(value), largest);
    unsigned best = 0;
    if (!isfinite(value))
        return 0x7f;
    for (unsigned x = 1; x <= eights_largest(is_e5m2); x++) {
        double apart = fabs(eights_value(is_e5m2, (uint8_t)x) - magnitude);
        double before = fabs(eights_value(is_e5m2, (uint8_t)best) - magnitude);
        if (apart < before || (apart == before && x % 2 == 0))
            best = x;
    }
    return (uint8_t)(best | (signbit(value) ? 0x80 : 0));
}

#endif
