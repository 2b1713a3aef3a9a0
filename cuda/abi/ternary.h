/* What both engines' kernels on ternary weights share. */
#ifndef NN_ABI_TERNARY_H
#define NN_ABI_TERNARY_H

#include "abi/generated/ternary.h"

/* Rows and columns of packed weights that lie together. */
enum { NN_TERNARY_ROWS = 16, NN_TERNARY_COLUMNS = 16 };

#endif
