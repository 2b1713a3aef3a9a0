/*
 * Attention over paged caches (Kwon et al. 2023, "PagedAttention"). Each page of 128 keys gives a row (a query of one
 * head) its own maximum m, sum s of the powers of two below it, and output o; pages are merged in their order, from
 * (M, S, O) = (-FLT_MAX, 0, 0): M' = max(M, m), a = 2^(M - M'), b = 2^(m - M'), S' = fma(S, a, s b), O' = fma(O, a, o
 * b), and the result is O / S (Dao 2023, "FlashAttention-2").
 *
 * One kernel does that for prompts, going through the pages of its rows, and for decoding, where a block has a page and
 * a second kernel merges. What a row sums, and in which order, does not depend on the other rows of its block, and keys
 * that it does not see take no part, not even times zero: so a token has the same bits in any company.
 *
 * A block has the rows of one key head, as in attention.cuh, and 128 threads: one a key for the scores; for the output
 * each has 8 columns of some of the rows. Arithmetic is in f32. A page of q8_0 is widened as it is read.
 */
#include "kernels/attention.cuh"
#include "kernels/paged.cuh"

constexpr int THREADS = NN_PAGE_TOKENS, WARPS = THREADS / NN_WARP;
constexpr float LEAST = -3.402823466e38f;

/*
 * Rows of a block, by padded head_dim: as many as leave the sums of a thread, of a page and of all before it, in
 * registers; in decoding, where a group is all there is, fewer. Values pass through shared memory
 * CHUNK keys at a time. By count, not measured on a GPU yet.
 */
template <int D> constexpr int PREFILL_ROWS = D <= 128 ? 32 : 16;
constexpr int DECODE_ROWS = 8, CHUNK = 32;

template <int D, int ROWS> struct paged_layout {
  static constexpr int ACROSS = D / 8, LINES = THREADS / ACROSS; /* threads across a row, and rows at once */
  static constexpr int EACH = (ROWS + LINES - 1) / LINES;        /* rows of a thread */
  static constexpr int LD = NN_PAGE_TOKENS + 4;
  /* Queries, powers, values, and of each row maximum, sum and what the merge multiplies by. */
  static constexpr size_t powers = sizeof(float) * ROWS * D, values = powers + sizeof(float) * ROWS * LD,
                          state = values + sizeof(float) * CHUNK * D, bytes = state + sizeof(float) * ROWS * 6;
};

struct paged_attention {
  nn_paged sequences;
  const void *q;
  const uint8_t *k, *v;
  void *out;
  float *partial; /* [batch][heads][max_pages][dim + 2]: output, maximum, sum of a page; null where blocks merge */
  int64_t ld_q, page_bytes, row_bytes;
  int32_t heads, kv_heads, group, dim, each, parts; /* tokens of a block; blocks that share the heads of a group */
  int32_t dtype;                                    /* of q and out */
  nn_split factor;                                  /* scale * log2(e) */
  bool wide;                                        /* rows of pages are runs of 16 bytes */
};

/* Elements d .. d+7 of a row of a page; zeros past its end. */
template <class F>
__device__ __forceinline__ void page_8(float (&to)[8], const uint8_t *row, int d, const paged_attention &p) {
  if constexpr (nn_in_blocks<F>) {
    using S = nn_stored<NNCUDA_FORMAT_Q8_0>;
    const uint8_t *const block = row + d / S::BLOCK * S::BYTES;
    const float scale = nn_number_at<nn_f16>(block);
    uint32_t quants[2];
    nn_bytes_at<8>(quants, block + 2 + d % S::BLOCK);
#pragma unroll
    for (int e = 0; e < 8; e++) {
      to[e] = scale * (float)(int8_t)(quants[e / 4] >> (8 * (e % 4)));
    }
  } else {
    constexpr int EACH = nn_per_16<F>;
    const uint8_t *const from = row + d * (int)sizeof(F);
    if (p.wide && d + 8 <= p.dim) {
#pragma unroll
      for (int e = 0; e < 8; e += EACH) {
        float some[EACH];
        nn_load(some, reinterpret_cast<const F *>(from) + e);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
          to[e + i] = some[i];
        }
      }
      return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++) {
      to[e] = d + e < p.dim ? nn_number_at<F>(from + e * (int)sizeof(F)) : 0.0f;
    }
  }
}

/* The rows of a block: row r is token r / group of head r % group, counted from the first ones. */
struct paged_rows {
  nn_paged_sequence sequence;
  int64_t token; /* of row 0, among all */
  int32_t head, group, count;
  int64_t seen; /* keys that row 0 sees */

  __device__ __forceinline__ int32_t further(int32_t r) const { return (int32_t)((uint32_t)r / (uint32_t)group); }
  __device__ __forceinline__ int64_t sees(int32_t r) const { return seen + further(r); }
  __device__ __forceinline__ int64_t at(int32_t r, int64_t ld, int32_t dim) const {
    const int32_t on = further(r);
    return (token + on) * ld + (int64_t)(head + r - on * group) * dim;
  }
};

/* What a merge of two parts multiplies each by. */
__device__ __forceinline__ float2 merge(float &peak, float &sum, float part_peak, float part_sum) {
  const float top = nn_larger::of(part_peak, peak);
  const float2 by = make_float2(nn_exp2_approx(peak - top), nn_exp2_approx(part_peak - top));
  peak = top;
  sum = fmaf(sum, by.x, __fmul_rn(part_sum, by.y));
  return by;
}

__device__ __forceinline__ float merged(float out, float part, float2 by) {
  return fmaf(out, by.x, __fmul_rn(part, by.y));
}

/* Where the parts of shared memory lie. */
template <int D, int ROWS> struct paged_space {
  using L = paged_layout<D, ROWS>;
  float *q, *powers, *values, *part_peak, *part_sum, *peak, *sum, *old_factor, *part_factor;

  __device__ __forceinline__ explicit paged_space(unsigned char *shared)
      : q(reinterpret_cast<float *>(shared)), powers(reinterpret_cast<float *>(shared + L::powers)),
        values(reinterpret_cast<float *>(shared + L::values)), part_peak(reinterpret_cast<float *>(shared + L::state)),
        part_sum(part_peak + ROWS), peak(part_sum + ROWS), sum(peak + ROWS), old_factor(sum + ROWS),
        part_factor(old_factor + ROWS) {}
};

/* One page: its maximum and sum of each row in shared memory, its output in `part`. `before`: keys in earlier pages. */
template <class F, int D, int ROWS>
__device__ __forceinline__ void page_part(const paged_attention &p, const paged_rows &rows,
                                          const paged_space<D, ROWS> &space, const uint8_t *keys, const uint8_t *values,
                                          int64_t before, float (&part)[paged_layout<D, ROWS>::EACH][8]) {
  using L = paged_layout<D, ROWS>;
  const int key = threadIdx.x, lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  const int64_t most = rows.sees(rows.count - 1) - before;
  const int count = most < NN_PAGE_TOKENS ? (int)most : (int)NN_PAGE_TOKENS; /* of keys that a row sees */
  float score[ROWS] = {};
  if (key < count) {
    const uint8_t *const row = keys + key * p.row_bytes;
#pragma unroll 2
    for (int d = 0; d < D; d += 8) {
      if (d >= p.dim) {
        break;
      }
      float k[8];
      page_8<F>(k, row, d, p);
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int e = 0; e < 8; e += 4) {
          float q[4];
          nn_load_4(q, space.q + r * D + d + e);
#pragma unroll
          for (int i = 0; i < 4; i++) {
            score[r] = fmaf(q[i], k[e + i], score[r]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    space.powers[r * L::LD + key] = score[r];
  }
  __syncthreads();
  for (int r = warp; r < rows.count; r += WARPS) {
    float *const power = space.powers + r * L::LD;
    const int64_t seen = rows.sees(r) - before;
    float peak = LEAST, sum = 0.0f;
#pragma unroll
    for (int i = lane; i < NN_PAGE_TOKENS; i += NN_WARP) {
      peak = i < seen ? nn_larger::of(power[i], peak) : peak;
    }
    peak = nn_warp_max(peak);
#pragma unroll
    for (int i = lane; i < NN_PAGE_TOKENS; i += NN_WARP) {
      const float x = i < seen ? nn_exp2_approx(power[i] - peak) : 0.0f;
      power[i] = x;
      sum += x;
    }
    sum = nn_warp_sum(sum);
    if (lane == 0) {
      space.part_peak[r] = peak;
      space.part_sum[r] = sum;
    }
  }
#pragma unroll
  for (int i = 0; i < L::EACH; i++) {
#pragma unroll
    for (int e = 0; e < 8; e++) {
      part[i][e] = 0.0f;
    }
  }
  const int column = threadIdx.x % L::ACROSS * 8, line = threadIdx.x / L::ACROSS;
  for (int first = 0; first < count; first += CHUNK) {
    __syncthreads();
    for (int i = threadIdx.x; i < CHUNK * L::ACROSS; i += THREADS) {
      const int n = i / L::ACROSS, d = i % L::ACROSS * 8;
      if (first + n < count && d < p.dim) {
        float x[8];
        page_8<F>(x, values + (first + n) * p.row_bytes, d, p);
        float4 *const to = reinterpret_cast<float4 *>(space.values + n * D + d);
        to[0] = make_float4(x[0], x[1], x[2], x[3]);
        to[1] = make_float4(x[4], x[5], x[6], x[7]);
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < L::EACH; i++) {
      const int r = line + i * L::LINES;
      if (r >= rows.count || column >= p.dim) {
        continue;
      }
      const int64_t left = rows.sees(r) - before - first;
      const int here = (int)(left < 0 ? 0 : left < CHUNK ? left : CHUNK);
#pragma unroll 4
      for (int n = 0; n < here; n++) {
        const float power = space.powers[r * L::LD + first + n];
        float v[4];
#pragma unroll
        for (int e = 0; e < 8; e += 4) {
          nn_load_4(v, space.values + n * D + column + e);
#pragma unroll
          for (int j = 0; j < 4; j++) {
            part[i][e + j] = fmaf(power, v[j], part[i][e + j]);
          }
        }
      }
    }
  }
}

/* One block a multiprocessor is promised, no more: left to itself, ptxas spills a few registers to fit another. */
template <class F, int D, int ROWS> __global__ void __launch_bounds__(THREADS, 1) paged_kernel(paged_attention p) {
  using L = paged_layout<D, ROWS>;
  NN_SHARED_BYTES(shared);
  const paged_space<D, ROWS> space(shared);
  p.sequences.check();
  paged_rows rows;
  const int32_t kv_head = (int32_t)blockIdx.y % p.kv_heads, member = (int32_t)blockIdx.y / p.kv_heads * ROWS;
  int64_t tile; /* of `each` tokens, in its sequence */
  if (!p.sequences.tile_at(blockIdx.x, p.each, rows.sequence, tile)) {
    return;
  }
  const nn_paged_sequence &s = rows.sequence;
  rows.token = s.first + tile * p.each;
  rows.head = kv_head * p.group + member;
  rows.group = p.group - member < ROWS ? p.group - member : ROWS;
  const int64_t tokens = s.fresh - tile * p.each;
  rows.count = rows.group * (int32_t)(tokens < p.each ? tokens : p.each);
  rows.seen = s.length == 0 ? 0 : s.length - s.fresh + tile * p.each + 1;
  const int64_t pages = nn_ceil_div(rows.sees(rows.count - 1), NN_PAGE_TOKENS);
  const bool splits = p.partial != nullptr;
  if (splits && (int64_t)blockIdx.z >= pages) {
    return;
  }
  for (int i = threadIdx.x; i < ROWS * D; i += THREADS) {
    const int r = i / D, d = i % D;
    space.q[i] = r < rows.count && d < p.dim
                     ? nn_times(nn_element_of(p.q, rows.at(r, p.ld_q, p.dim) + d, p.dtype), p.factor)
                     : 0.0f;
  }
  for (int r = threadIdx.x; r < ROWS; r += THREADS) {
    space.peak[r] = LEAST;
    space.sum[r] = 0.0f;
  }
  float out[L::EACH][8] = {};
  const int column = threadIdx.x % L::ACROSS * 8, line = threadIdx.x / L::ACROSS;
  for (int64_t i = splits ? blockIdx.z : 0; i < pages; i++) {
    int64_t page;
    if (!p.sequences.page_at(s.index, i, page)) {
      return;
    }
    const int64_t at = page * p.page_bytes + kv_head * NN_PAGE_TOKENS * p.row_bytes, before = i * NN_PAGE_TOKENS;
    float part[L::EACH][8];
    __syncthreads();
    page_part<F, D, ROWS>(p, rows, space, p.k + at, p.v + at, before, part);
    if (splits) {
#pragma unroll
      for (int j = 0; j < L::EACH; j++) {
        const int r = line + j * L::LINES;
        if (r < rows.count) {
          float *const to = p.partial + ((s.index * p.heads + rows.head + r) * p.sequences.max_pages + i) * (p.dim + 2);
#pragma unroll
          for (int e = 0; e < 8; e++) {
            if (column + e < p.dim) {
              to[column + e] = part[j][e];
            }
          }
          if (column == 0) {
            to[p.dim] = space.part_peak[r];
            to[p.dim + 1] = space.part_sum[r];
          }
        }
      }
      return;
    }
    for (int r = threadIdx.x; r < rows.count; r += THREADS) {
      if (rows.sees(r) > before) {
        const float2 by = merge(space.peak[r], space.sum[r], space.part_peak[r], space.part_sum[r]);
        space.old_factor[r] = by.x;
        space.part_factor[r] = by.y;
      }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < L::EACH; j++) {
      const int r = line + j * L::LINES;
      if (r < rows.count && rows.sees(r) > before) {
        const float2 by = make_float2(space.old_factor[r], space.part_factor[r]);
#pragma unroll
        for (int e = 0; e < 8; e++) {
          out[j][e] = merged(out[j][e], part[j][e], by);
        }
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < L::EACH; j++) {
    const int r = line + j * L::LINES;
    if (r < rows.count) {
      const int64_t to = rows.at(r, (int64_t)p.heads * p.dim, p.dim);
#pragma unroll
      for (int e = 0; e < 8; e++) {
        if (column + e < p.dim) {
          nn_put_element(p.out, to + column + e, out[j][e] / (pages == 0 ? 1.0f : space.sum[r]), p.dtype);
        }
      }
    }
  }
}

/* ---- decoding: the merge of the pages of a row ---- */

constexpr int MERGE_THREADS = 128;

/* A block has one row, a thread the same columns of each page. */
__global__ void __launch_bounds__(MERGE_THREADS) merge_kernel(paged_attention p) {
  nn_paged_sequence s;
  const int64_t row = blockIdx.x;
  if (!p.sequences.at(row / p.heads, s)) {
    return;
  }
  const int64_t pages = nn_ceil_div(s.length, NN_PAGE_TOKENS);
  __shared__ int counts[MERGE_THREADS / NN_WARP];
  int bad = 0; /* page numbers, of which the pages' blocks left out theirs */
  for (int64_t i = threadIdx.x; i < pages; i += MERGE_THREADS) {
    int64_t page;
    bad += !p.sequences.page_at(s.index, i, page);
  }
  if (nn_block_sum<MERGE_THREADS>(bad, counts) != 0) {
    return;
  }
  const float *const partial = p.partial + row * p.sequences.max_pages * (p.dim + 2);
  for (int d = threadIdx.x; d < p.dim; d += MERGE_THREADS) {
    float peak = LEAST, sum = 0.0f, out = 0.0f;
#pragma unroll 4
    for (int64_t i = 0; i < pages; i++) {
      const float *const part = partial + i * (p.dim + 2);
      const float2 by = merge(peak, sum, part[p.dim], part[p.dim + 1]);
      out = merged(out, part[d], by);
    }
    nn_put_element(p.out, row * p.dim + d, out / (pages == 0 ? 1.0f : sum), p.dtype);
  }
}

/* ---- the launch ---- */

template <class F, int D, int ROWS> static int32_t launch(nncuda_ctx *ctx, paged_attention &p) {
  const bool splits = p.partial != nullptr;
  p.each = p.group < ROWS && !splits ? ROWS / p.group : 1;
  p.parts = (int32_t)nn_ceil_div(p.group, ROWS);
  const nn_paged &s = p.sequences;
  const int64_t tiles = splits ? s.batch : s.tokens / p.each + (s.batch < s.tokens ? s.batch : s.tokens);
  return nn_launch(ctx, paged_kernel<F, D, ROWS>,
                   dim3((unsigned)tiles, (unsigned)(p.kv_heads * p.parts), splits ? (unsigned)s.max_pages : 1u),
                   dim3(THREADS), paged_layout<D, ROWS>::bytes, p);
}

template <class F, int D> static int32_t choose_rows(nncuda_ctx *ctx, paged_attention &p) {
  return p.partial == nullptr ? launch<F, D, PREFILL_ROWS<D>>(ctx, p) : launch<F, D, DECODE_ROWS>(ctx, p);
}

template <class F> static int32_t choose_dim(nncuda_ctx *ctx, paged_attention &p) {
  return p.dim <= 64    ? choose_rows<F, 64>(ctx, p)
         : p.dim <= 128 ? choose_rows<F, 128>(ctx, p)
                        : choose_rows<F, 256>(ctx, p);
}

static int32_t start(nncuda_ctx *ctx, const nn_flash_attention_paged_args *a, bool decodes) {
  const int64_t row_bytes = a->page_bytes / (a->kv_heads * NN_PAGE_TOKENS);
  paged_attention p = {nn_paged_of(ctx, decodes ? nullptr : a->offsets, a->lengths, a->page_table,
                                   decodes ? a->batch : a->tokens, a->batch, a->max_pages, a->pages),
                       a->q,
                       static_cast<const uint8_t *>(a->k_pages),
                       static_cast<const uint8_t *>(a->v_pages),
                       a->out,
                       nullptr,
                       a->ld_q,
                       a->page_bytes,
                       row_bytes,
                       (int32_t)a->heads,
                       (int32_t)a->kv_heads,
                       (int32_t)(a->heads / a->kv_heads),
                       (int32_t)a->head_dim,
                       1,
                       1,
                       a->dtype,
                       nn_split_of((double)a->scale * NN_LOG2E),
                       nn_aligned_16(a->k_pages, a->v_pages) && row_bytes % 16 == 0};
  if (decodes) {
    p.partial = nn_decode_paged_lay_out(a, nn_workspace_of(ctx));
  }
  int32_t status = NNCUDA_ERROR_INTERNAL;
  NN_SWITCH_PAGES(a->format, status = choose_dim<F>(ctx, p));
  if (status != NNCUDA_SUCCESS || !decodes) {
    return status;
  }
  return nn_launch(ctx, merge_kernel, dim3((unsigned)(a->batch * a->heads)), dim3(MERGE_THREADS), 0, p);
}

NN_KERNEL(flash_attention_paged) { return start(ctx, a, false); }

NN_KERNEL_OF(attention_decode_paged, nn_flash_attention_paged_args) { return start(ctx, a, true); }
