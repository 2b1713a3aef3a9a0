/* What both engines' elementwise kernels share. */
#ifndef NN_ABI_ELEMENTWISE_H
#define NN_ABI_ELEMENTWISE_H

#include "abi/generated/elementwise.h"

/* The values of x for which x + by is an i32. */
static inline int64_t nn_increment_low(int32_t by) { return by < 0 ? (int64_t)INT32_MIN - by : INT32_MIN; }
static inline int64_t nn_increment_high(int32_t by) { return by > 0 ? (int64_t)INT32_MAX - by : INT32_MAX; }

#endif
