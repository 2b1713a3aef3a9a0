/* Puts stored rows side by side: done once, when a model is loaded, a byte at a time. */
#include "abi/quant.h"

#include "kernels/quant_interleaved.cuh"

constexpr int THREADS = 256, BLOCKS_PER_SM = 8;

template <int FORMAT>
__global__ void __launch_bounds__(THREADS)
    interleave_kernel(const uint8_t *x, uint8_t *y, int64_t bytes, int64_t row_bytes) {
  using I = nn_interleaved<FORMAT>;
  constexpr int BYTES = nn_stored<FORMAT>::BYTES;
  const int64_t step = (int64_t)gridDim.x * THREADS, interleaved_bytes = row_bytes * NN_INTERLEAVED_ROWS;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < bytes; i += step) {
    const int64_t first = i / interleaved_bytes * NN_INTERLEAVED_ROWS, at = i % interleaved_bytes;
    const nn_interleaved_place place = I::place((int)(at % (BYTES * NN_INTERLEAVED_ROWS)));
    y[i] = x[(first + place.row) * row_bytes + at / (BYTES * NN_INTERLEAVED_ROWS) * BYTES + place.byte];
  }
}

NN_KERNEL(interleave_rows) {
  const int64_t bytes = a->rows * a->row_bytes;
  const dim3 grid(nn_blocks(ctx, bytes, THREADS, BLOCKS_PER_SM));
  NN_SWITCH_BLOCKS(a->format, return nn_launch(ctx, interleave_kernel<FORMAT>, grid, dim3(THREADS), 0,
                                               static_cast<const uint8_t *>(a->x), static_cast<uint8_t *>(a->y), bytes,
                                               a->row_bytes));
  return NNCUDA_ERROR_INTERNAL; /* the entry knows no other format */
}
