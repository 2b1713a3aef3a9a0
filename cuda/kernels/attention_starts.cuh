/*
 * The first keys that the queries of packed sequences see: `starts` of flash_attention, of q_len = kv_len queries.
 *
 * They are checked by a kernel of their own, in front. Those that call for it take what they read for what it should
 * be: starts that are not valid give other numbers, and never another address.
 */
#ifndef NN_KERNELS_ATTENTION_STARTS_CUH
#define NN_KERNELS_ATTENTION_STARTS_CUH

#include "kernels/attention.cuh"

/* The first key that a query, counted over all sequences, sees. */
__device__ __forceinline__ int32_t nn_first_key(const int32_t *starts, int64_t query) {
  return starts == nullptr ? 0 : starts[query];
}

/* The first key of the tile of N keys where row `row` of a tile of rows begins to see: those after it begin there or
 * later. */
template <int N>
__device__ __forceinline__ int32_t nn_first_tile(const int32_t *starts, const nn_query_rows &rows, int32_t row = 0) {
  const int32_t on = row == 0 ? 0 : rows.further(row), first = nn_first_key(starts, rows.sequence_query + on);
  return first < 0 || first > rows.query + on ? 0 : first / N * N;
}

/* Queries of a sequence before the first that sees none of the keys below `end`; all if there are no starts. */
__device__ __forceinline__ int64_t nn_queries_seeing(const int32_t *starts, const nn_attention_sizes &s,
                                                     int64_t sequence, int64_t end) {
  int64_t low = 0, high = s.q_len;
  while (starts != nullptr && low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (starts[sequence * s.q_len + middle] < end) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return high;
}

/* Has the starts checked, if there are any; a status. In attention_documents.cu. */
int32_t nn_check_starts(nncuda_ctx *ctx, const int32_t *starts, const nn_attention_shape &s);

#endif
