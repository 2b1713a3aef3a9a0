/* What grad_norm of both engines is run with. */
#ifndef NN_ABI_OPTIMIZER_H
#define NN_ABI_OPTIMIZER_H

#include <stdint.h>

/* Gradients whose squares are added up at once. On a GPU each thread of a block takes 128 of them, with loads of 16
 * bytes under way; by count. */
enum { NN_GRAD_CHUNK_CPU = 1 << 14, NN_GRAD_CHUNK_GPU = 1 << 15 };

/* The norm has two parts: the sum of squares of each chunk, and the root of their sum. One call does both, unless the
 * gradients are shared out over ranks: then `squares` is given, and a call does the first for the chunks from `first`
 * to before `last`, or the end, and the second if `norm` is given. */
typedef struct nn_grad_norm_args {
  const void *grad;
  float *norm;
  int64_t n;
  int32_t dtype;
  double *squares; /* of each chunk, or null */
  int64_t first, last;
} nn_grad_norm_args;

#endif
