/*
 * A product with ternary weights being computed, as its files share it.
 *
 * A task owns some panels of sixteen rows of weights, that is columns of the result, and some rows of the activations;
 * it leaves their integers in scratch memory and makes the result of them there. Integers are exact, so that the order
 * of additions does not matter; what follows is done element by element, with one rounding an operation.
 *
 * Weights are multiplied as stored, code + 1, so each integer of a task is above the true one by the sum of its row of
 * activations, which is found once a call.
 */
#ifndef NN_CPU_TERNARY_GEMM_JOB_H
#define NN_CPU_TERNARY_GEMM_JOB_H

#include "abi/ternary.h"

#include "kernel.h"

#include <string.h>

enum {
  TERNARY_PANEL = NN_TERNARY_ROWS,
  TERNARY_STEP = NN_TERNARY_COLUMNS,
  TERNARY_STEP_BYTES = TERNARY_PANEL * 4 /* of a panel's weights */
};

/* Sums have the type of the lanes that instructions add in: with another one, compilers keep them in two places. */
typedef int32_t lanes_i32 __attribute__((vector_size(sizeof(vf))));

/* How a call's activations are packed. */
typedef struct ternary_form {
  int32_t tiled;                /* for tile registers */
  int64_t rows, columns, bytes; /* multiples of rows and of columns, bytes each */
} ternary_form;

/* Rows of activations as the backend reads them: see its ternary_pack_row. */
typedef struct ternary_activations {
  const void *x;
  int64_t depth;  /* k rounded up to what is multiplied at once; columns after k are zero */
  int32_t *total; /* [m] sums of the rows */
  int32_t tiled;  /* ternary_form */
} ternary_activations;

/* A task's part of the product: sums[r * ld + c] = row r of the activations times row c of the weights' bits. */
typedef struct ternary_piece {
  const ternary_activations *activations;
  int64_t row, rows;
  const uint8_t *w;
  const uint8_t *next; /* weights that the same worker will probably read then: to be fetched behind the last ones */
  int64_t panels, panel_bytes;
  int32_t *sums; /* rows and columns rounded up to 16 */
  int64_t ld;
  char *work; /* ternary_work_bytes */
} ternary_piece;

/* Panel p of a piece, or as far behind those that are read after it. */
NN_INLINE const uint8_t *panel_after(const ternary_piece *t, int64_t p) {
  return p < t->panels ? t->w + p * t->panel_bytes : t->next + (p - t->panels) * t->panel_bytes;
}

#endif
