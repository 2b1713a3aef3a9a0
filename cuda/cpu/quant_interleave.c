/* Stored rows interleaved by sixteens. */
#include "quant_interleave.h"

#include "abi/quant.h"

typedef struct job {
  const nn_interleave_rows_args *args;
  interleave_layout order;
} job;

/* One field of sixteen rows. The sizes are constants, so that each copy is one move. */
NN_INLINE uint8_t *put_field(uint8_t *to, const uint8_t *from, int64_t row_bytes, int64_t bytes) {
  for (int64_t r = 0; r < NN_INTERLEAVED_ROWS; r++, to += bytes, from += row_bytes) {
    memcpy(to, from, (size_t)bytes);
  }
  return to;
}

NN_TASK_OF(interleave_task, job, j, task) {
  const int64_t row_bytes = j->args->row_bytes, begin = task * NN_INTERLEAVED_ROWS * row_bytes;
  const uint8_t *block = (const uint8_t *)j->args->x + begin;
  uint8_t *to = (uint8_t *)j->args->y + begin;
  for (const uint8_t *end = block + row_bytes; block < end; block += j->order.block_bytes) {
    for (int64_t f = 0; f < j->order.fields; f++) {
      const interleave_field field = j->order.field[f];
      if (field.bytes == 4) {
        to = put_field(to, block + field.at, row_bytes, 4);
      } else if (field.bytes == 2) {
        to = put_field(to, block + field.at, row_bytes, 2);
      } else {
        to = put_field(to, block + field.at, row_bytes, 1);
      }
    }
  }
}

int32_t NN_KERNEL(interleave_rows)(nncuda_ctx *ctx, const void *args) {
  const nn_interleave_rows_args *a = args;
  job j = {.args = a, .order = interleave_layout_of(a->format)};
  nn_parallel(ctx, a->rows / NN_INTERLEAVED_ROWS, interleave_task, &j);
  return NNCUDA_SUCCESS;
}
