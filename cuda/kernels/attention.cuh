/*
 * What the attention kernels share: where rows lie, and how a tile of queries is made of the heads of a group.
 *
 * The `group` query heads that read one key head are taken together: row r of a (sequence, key head) is query r / group
 * of head r % group of the group. So K and V are read once for the whole group, nothing is copied for GQA and MQA, and
 * a tile is full even when there are few queries.
 */
#ifndef NN_KERNELS_ATTENTION_CUH
#define NN_KERNELS_ATTENTION_CUH

#include "kernels/attention_workspace.h"

/* after the ABI's */
#include "kernels/number.cuh"
#include "kernels/reduce.cuh"

constexpr float NN_LN2_HIGH = 0.693147180559945309f, NN_LN2_LOW = (float)(0.693147180559945309 - (double)NN_LN2_HIGH);
constexpr double NN_LOG2E = 1.44269504088896341;

__device__ __forceinline__ float nn_lowest() { return __int_as_float((int)0xff800000); }

/* A factor as the sum of two f32. */
struct nn_split {
  float high, low;
};
inline nn_split nn_split_of(double x) {
  const float high = (float)x;
  return nn_split{high, (float)(x - (double)high)};
}
__device__ __forceinline__ float nn_times(float x, nn_split factor) { return fmaf(x, factor.high, x * factor.low); }

struct nn_attention_sizes {
  int64_t q_len, kv_len, ld_q, ld_kv;
  int32_t heads, kv_heads, group, dim;
  int32_t causal;

  __host__ __device__ __forceinline__ int64_t rows() const { return q_len * group; }
  __device__ __forceinline__ int64_t ld_out() const { return (int64_t)heads * dim; }
};

inline nn_attention_sizes nn_attention_sizes_of(const nn_attention_shape &s, int64_t ld_q, int64_t ld_kv,
                                                int32_t causal) {
  return {s.q_len,
          s.kv_len,
          ld_q,
          ld_kv,
          (int32_t)s.heads,
          (int32_t)s.kv_heads,
          (int32_t)(s.heads / s.kv_heads),
          (int32_t)s.head_dim,
          causal};
}

/* The rows of a (sequence, key head) from `first` on, numbered from 0: their queries and heads. Where rows are known to
 * be few enough, a 32-bit `first` saves a long division. */
struct nn_query_rows {
  int64_t query, sequence_query;      /* of row 0, within its sequence and among all */
  int32_t member, group, head, count; /* row 0's place in its group; the group's first head; rows there are */

  template <class I>
  __device__ __forceinline__ nn_query_rows(const nn_attention_sizes &s, int64_t sequence, int32_t kv_head, I first,
                                           int32_t most) {
    const I of_query = first / (I)s.group;
    query = of_query;
    member = (int32_t)(first - of_query * (I)s.group);
    group = s.group;
    head = kv_head * s.group;
    sequence_query = sequence * s.q_len + query;
    const int64_t left = s.rows() - first;
    count = (int32_t)(left < most ? left : most);
  }
  /* Of row r: queries after row 0's. */
  __device__ __forceinline__ int32_t further(int32_t r) const {
    return group == 1 ? r : (int32_t)((uint32_t)(member + r) / (uint32_t)group);
  }
  /* Offset of row r in a tensor with ld elements between tokens. */
  __device__ __forceinline__ int64_t at(int32_t r, int64_t ld, int32_t dim) const {
    const int32_t on = further(r);
    return (sequence_query + on) * ld + (int64_t)(head + member + r - on * group) * dim;
  }
  /* Offset of row r in [batch, heads, q_len]. */
  __device__ __forceinline__ int64_t at_head(int32_t r, const nn_attention_sizes &s, int64_t sequence) const {
    const int32_t on = further(r);
    return (sequence * s.heads + head + member + r - on * group) * s.q_len + query + on;
  }
};

/* The keys that query i sees are those below this. */
__device__ __forceinline__ int64_t nn_keys_seen(const nn_attention_sizes &s, int64_t query) {
  const int64_t seen = query + s.kv_len - s.q_len + 1;
  return !s.causal || seen > s.kv_len ? s.kv_len : seen < 0 ? 0 : seen;
}

/* N elements of a row, 16 bytes at once where `wide` says that they are aligned. */
template <int N, class T> __device__ __forceinline__ void nn_load_row(float (&to)[N], const T *from, bool wide) {
  if (wide) {
    nn_load(to, from);
  } else {
#pragma unroll
    for (int e = 0; e < N; e++) {
      to[e] = nn_to_float(from[e]);
    }
  }
}

template <int N, class T> __device__ __forceinline__ void nn_store_row(T *to, const float (&from)[N], bool wide) {
  if (wide) {
    nn_store(to, from);
  } else {
#pragma unroll
    for (int e = 0; e < N; e++) {
      to[e] = nn_from_float<T>(from[e]);
    }
  }
}

/*
 * A tile of rows as f32 in shared memory, LD apart, zeros beyond dim up to D and for rows from `count` on. at(r) is the
 * offset of row r.
 */
template <int D, int LD, int THREADS, class T, class AT>
__device__ __forceinline__ void nn_load_tile(float *to, int rows, int count, const T *from, int dim, bool wide, AT at) {
  constexpr int E = nn_per_16<T>, ACROSS = D / E;
  for (int i = threadIdx.x; i < rows * ACROSS; i += THREADS) {
    const int r = i / ACROSS, d = i % ACROSS * E;
    float x[E] = {};
    if (r < count && d < dim) {
      nn_load_row(x, from + at(r) + d, wide);
    }
#pragma unroll
    for (int e = 0; e < E; e += 4) {
      *reinterpret_cast<float4 *>(to + r * LD + d + e) = make_float4(x[e], x[e + 1], x[e + 2], x[e + 3]);
    }
  }
}

__device__ __forceinline__ void nn_load_4(float (&to)[4], const float *from) {
  const float4 v = *reinterpret_cast<const float4 *>(from);
  to[0] = v.x;
  to[1] = v.y;
  to[2] = v.z;
  to[3] = v.w;
}

/* Blocks that take the runs of a row in turn, where there are so many rows: enough to fill the device. */
inline unsigned nn_run_blocks(nncuda_ctx *ctx, int64_t most_runs, int64_t rows) {
  const int64_t per_sm = 8, wanted = nn_ceil_div(nn_gpu_sms(ctx) * per_sm, rows);
  return (unsigned)(wanted < most_runs ? wanted : most_runs);
}

/* What a merge of two parts of a softmax multiplies each by: their maxima and sums become those of both. */
__device__ __forceinline__ float2 nn_merge(float &peak, float &sum, float part_peak, float part_sum) {
  const float top = nn_larger::of(part_peak, peak);
  const float2 by = make_float2(nn_exp2_approx(peak - top), nn_exp2_approx(part_peak - top));
  peak = top;
  sum = fmaf(sum, by.x, __fmul_rn(part_sum, by.y));
  return by;
}

__device__ __forceinline__ float nn_merged(float out, float part, float2 by) {
  return fmaf(out, by.x, __fmul_rn(part, by.y));
}

/* The log-sum-exp, from the maximum in units of ln 2 and the sum of the powers of two below it. */
__device__ __forceinline__ float nn_log_sum(float peak, float sum) {
  return fmaf(peak, NN_LN2_HIGH, fmaf(peak, NN_LN2_LOW, logf(sum)));
}

#endif
