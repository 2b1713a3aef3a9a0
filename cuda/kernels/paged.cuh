/*
 * Paged caches of keys and values: what their kernels know of the sequences of a call, and what they ask of offsets,
 * lengths and page tables. A page is [kv_heads, 128, head_dim] rows in a format, bytes that may lie at any address.
 *
 * The first block of a kernel looks at all offsets and lengths and reports the first bad one. Each block asks of those
 * it uses what keeps it inside the tensors, and leaves out what fails that.
 */
#ifndef NN_KERNELS_PAGED_CUH
#define NN_KERNELS_PAGED_CUH

#include "kernels/quant_format.cuh"

struct nn_paged_sequence {
  int64_t index, first, fresh, length; /* new tokens: the first one, how many; rows with them */
};

struct nn_paged {
  const int32_t *offsets; /* null: one new token each */
  const int32_t *lengths, *page_table;
  int64_t tokens, batch, max_pages;
  nn_rule first_offset;
  nn_range other_offsets, length, page;
  int64_t least_length = 0; /* of a sequence, where offsets are null */

  /* Sequence i; false when it has no new tokens, or when its offsets or length are invalid. */
  __device__ __forceinline__ bool at(int64_t i, nn_paged_sequence &to) const {
    const int64_t from = offsets == nullptr ? i : offsets[i], end = offsets == nullptr ? i + 1 : offsets[i + 1];
    to = {i, from, end - from, lengths[i]};
    return from >= 0 && to.fresh > 0 && end <= tokens && to.length >= (offsets == nullptr ? least_length : to.fresh) &&
           to.length <= length.high;
  }

  /* The sequence of a token, if it is in one. */
  __device__ __forceinline__ bool of_token(int64_t token, nn_paged_sequence &to) const {
    int64_t low = 0, high = batch; /* offsets[low] <= token, and not offsets[high] */
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (offsets[middle] <= token ? low : high) = middle;
    }
    return at(low, to) && token >= to.first && token < to.first + to.fresh;
  }

  /* Tile number `index` of up to `each` new tokens, counted through the sequences: which of its sequence's it is. A
   * whole warp calls it; false after the last. */
  __device__ __forceinline__ bool tile_at(int64_t index, int32_t each, nn_paged_sequence &to, int64_t &tile) const {
    if (offsets == nullptr) {
      tile = 0;
      return index < batch && at(index, to);
    }
    const int lane = threadIdx.x % NN_WARP;
    int64_t before = 0;
    for (int64_t first = 0; first < batch; first += NN_WARP) {
      nn_paged_sequence mine;
      const bool there = first + lane < batch && at(first + lane, mine);
      const int32_t tiles = there ? (int32_t)nn_ceil_div(mine.fresh, each) : 0;
      const int32_t through = nn_warp_scan(tiles);
      const unsigned later = __ballot_sync(NN_ALL_LANES, index < before + through);
      if (later != 0) {
        const int found = __ffs((int)later) - 1;
        tile = index - before - __shfl_sync(NN_ALL_LANES, through - tiles, found);
        return at(first + found, to);
      }
      before += __shfl_sync(NN_ALL_LANES, through, NN_WARP - 1);
    }
    return false;
  }

  /* The page of a sequence's rows from 128 * i on; false when its number is out of range. */
  __device__ __forceinline__ bool page_at(int64_t sequence, int64_t i, int64_t &to) const {
    const int64_t at = sequence * max_pages + i;
    to = page_table[at];
    return page.holds(at, to);
  }

  /* By all threads of a block, once a call. */
  __device__ __forceinline__ void check() const {
    if (blockIdx.x != 0 || blockIdx.y != 0 || blockIdx.z != 0) {
      return;
    }
    for (int64_t i = threadIdx.x; i < batch; i += blockDim.x) {
      const int64_t from = offsets == nullptr ? 0 : offsets[i], end = offsets == nullptr ? 0 : offsets[i + 1];
      if (i == 0 && from != 0) {
        first_offset.broken_by(0, from);
      }
      nn_range range = other_offsets;
      range.low = from;
      if (from < 0 || from > range.high) { /* that one is the bad one */
        continue;
      }
      if (offsets == nullptr || range.holds(i + 1, end)) {
        range = length;
        range.low = offsets == nullptr ? least_length : end - from;
        range.holds(i, lengths[i]);
      }
    }
  }
};

/* Numbers of the pages first .. end - 1 of a sequence, one after another: the lanes of a warp read and check 32 at a
 * time. Every warp of a block has its own. */
struct nn_page_numbers {
  const nn_paged &sequences;
  int64_t sequence, unread, end;
  int32_t mine = 0, used = NN_WARP; /* this lane's number; how many of the 32 have been given */
  bool bad = false;                 /* one that was read is out of range */

  __device__ __forceinline__ nn_page_numbers(const nn_paged &all, int64_t of, int64_t first, int64_t to)
      : sequences(all), sequence(of), unread(first), end(to) {}

  /* The next one; false after the last, or where one of those that were read with it is out of range. */
  __device__ __forceinline__ bool next(int64_t &page) {
    if (used == NN_WARP) {
      const int64_t i = unread + threadIdx.x % NN_WARP;
      int64_t number = 0;
      const bool holds = i >= end || sequences.page_at(sequence, i, number);
      mine = (int32_t)number;
      bad = __ballot_sync(NN_ALL_LANES, !holds) != 0;
      unread += NN_WARP;
      used = 0;
    }
    if (bad || unread - NN_WARP + used >= end) {
      return false;
    }
    page = __shfl_sync(NN_ALL_LANES, mine, used++);
    return true;
  }
};

inline nn_paged nn_paged_of(nncuda_ctx *ctx, const int32_t *offsets, const int32_t *lengths, const int32_t *page_table,
                            int64_t tokens, int64_t batch, int64_t max_pages, int64_t pages) {
  /* A table may have more columns than lengths can count. */
  const int64_t most = INT32_MAX / NN_PAGE_TOKENS, room = max_pages > most ? INT32_MAX : max_pages * NN_PAGE_TOKENS;
  return {offsets,
          lengths,
          page_table,
          tokens,
          batch,
          max_pages,
          nn_rule_of(ctx, "offsets", "0"),
          nn_range_of(ctx, "offsets", 0, tokens).noted("the number of tokens"),
          nn_range_of(ctx, "lengths", 0, room).noted("the new tokens to 128 * max_pages"),
          nn_range_of(ctx, "page_table", 0, pages - 1).in_rows_of(max_pages)};
}

/* Stands for blocks of q8_0 where the type of a page's elements is asked for. */
struct nn_q8_0 {};
template <class F> constexpr bool nn_in_blocks = false;
template <> constexpr bool nn_in_blocks<nn_q8_0> = true;

/* Runs `statement` with F the type of a page's elements. */
#define NN_SWITCH_PAGES(format, ...)                                                                                   \
  switch (format) {                                                                                                    \
    NN_CASE(case NNCUDA_FORMAT_F32, using F = float, __VA_ARGS__)                                                      \
    NN_CASE(case NNCUDA_FORMAT_F16, using F = nn_f16, __VA_ARGS__)                                                     \
    NN_CASE(case NNCUDA_FORMAT_BF16, using F = nn_bf16, __VA_ARGS__)                                                   \
    NN_CASE(case NNCUDA_FORMAT_E4M3, using F = nn_e4m3, __VA_ARGS__)                                                   \
    NN_CASE(default, using F = nn_q8_0, __VA_ARGS__)                                                                   \
  }

#endif
