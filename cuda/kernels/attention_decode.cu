/*
 * Attention of one query a sequence over its cache (Dao et al. 2023, "Flash-Decoding"): the keys are cut into pieces by
 * the sizes alone, and the pieces into at most 64 runs by the number of keys (attention_workspace.h). Each run leaves
 * its maximum, sum and output in scratch, merged piece by piece as in attention_paged.cu, and a second kernel combines
 * the runs in order. What limits it is reading the cache, which happens once for all the heads of a group (of up to
 * 16).
 */
#include "kernels/attention_decode.cuh"

/* ---- the second kernel ---- */

constexpr int COMBINE_THREADS = 128;

// sass: combine_kernel<nn_bf16> on sm_90a: at least 12 LDG under way
/* A block has one row: a query head of a sequence. */
template <class T> __global__ void __launch_bounds__(COMBINE_THREADS) combine_kernel(nn_decode p) {
  static_assert(NN_DECODE_RUNS <= COMBINE_THREADS);
  __shared__ float shares[NN_DECODE_RUNS], found[COMBINE_THREADS / NN_WARP];
  const int64_t row = blockIdx.x, sequence = row / p.heads, length = p.lengths[sequence];
  if (!p.range.holds(sequence, length)) {
    return;
  }
  const int runs = (int)nn_decode_runs(p, length).count, ld = p.dim + 2;
  const float *const partial = p.partial + row * p.most_runs * ld;
  const float own = (int)threadIdx.x < runs ? partial[threadIdx.x * ld + p.dim] : nn_lowest();
  const float peak = nn_block_max<COMBINE_THREADS>(own, found);
  if ((int)threadIdx.x < runs) {
    shares[threadIdx.x] = nn_exp2_approx(own - peak);
  }
  __syncthreads();
  constexpr int PARTS = 256 / COMBINE_THREADS;
  float sum = 0.0f, out[PARTS] = {};
#pragma unroll 8
  for (int i = 0; i < runs; i++) {
    const float *const x = partial + i * ld;
    sum = fmaf(x[p.dim + 1], shares[i], sum);
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
      const int d = threadIdx.x + part * COMBINE_THREADS;
      if (d < p.dim) {
        out[part] = fmaf(x[d], shares[i], out[part]);
      }
    }
  }
#pragma unroll
  for (int part = 0; part < PARTS; part++) {
    const int d = threadIdx.x + part * COMBINE_THREADS;
    if (d < p.dim) {
      static_cast<T *>(p.out)[row * p.dim + d] = nn_from_float<T>(runs > 0 ? out[part] / sum : 0.0f);
    }
  }
}

/* ---- a piece, on the ordinary cores ---- */

constexpr int THREADS = 128, HEADS = 4, MOST_HEADS = 16; /* query heads of a thread at a time, and of a block */

static_assert(THREADS == NN_DECODE_PIECE_KEYS);

/* Rows in shared memory are an odd number of 16 bytes apart: eight rows at the same column meet all banks. */
template <class T> __host__ __device__ constexpr int row_ld(int dim) { return (dim / nn_per_16<T> | 1) * nn_per_16<T>; }

template <class T> struct piece_layout {
  int ld, chunks;                  /* chunks of HEADS heads */
  size_t v, q, probs, sums, bytes; /* K lies at 0; `sums` takes the place of K */
  piece_layout(const nn_decode &p) {
    ld = row_ld<T>(p.dim);
    chunks = (int)nn_ceil_div(p.group < MOST_HEADS ? p.group : MOST_HEADS, HEADS);
    const size_t tile = (size_t)p.piece_keys * ld * sizeof(T), outputs = sizeof(float) * THREADS * HEADS * nn_per_16<T>;
    v = tile > outputs ? tile : outputs;
    q = v + tile;
    probs = q + sizeof(float) * chunks * HEADS * p.dim;
    bytes = probs + sizeof(float) * chunks * HEADS * p.piece_keys;
  }
};

/* Keys or values of a piece as they are in memory; zeros beyond `count`. */
template <class T>
__device__ __forceinline__ void load_piece(T *to, const T *from, int ld, int count, const nn_decode &p) {
  constexpr int E = nn_per_16<T>;
  const int across = p.dim / E;
  const int64_t from_ld = (int64_t)p.kv_heads * p.dim;
  for (int i = threadIdx.x; i < p.piece_keys * across; i += THREADS) {
    const int r = i / across, d = i % across * E;
    T *const at = to + r * ld + d;
    if (p.wide) {
      nn_copy_async<16>(nn_shared_address(at), from + (r < count ? r * from_ld + d : 0), r < count ? 16 : 0);
    } else {
#pragma unroll
      for (int e = 0; e < E; e++) {
        at[e] = r < count ? from[r * from_ld + d + e] : T{};
      }
    }
  }
  nn_copy_async_commit();
}

/* Of up to MOST_HEADS heads: maximum and sum of the run so far, and what a piece's merge multiplies by. */
struct run_state {
  float peak[MOST_HEADS], sum[MOST_HEADS];
  float2 by[MOST_HEADS];
};

/* A block has up to MOST_HEADS heads of a group, and every gridDim.y-th run of their sequence. */
template <class T>
__global__ void __launch_bounds__(THREADS, 4) run_kernel(nn_decode p, int v_at, int q_at, int probs_at) {
  constexpr int E = nn_per_16<T>;
  NN_SHARED_BYTES(shared);
  __shared__ run_state state;
  const int64_t part = blockIdx.x, pair = part / p.parts, sequence = pair / p.kv_heads;
  const int kv_head = (int)(pair - sequence * p.kv_heads), first_member = (int)(part - pair * p.parts) * MOST_HEADS;
  const int group = p.group - first_member < MOST_HEADS ? p.group - first_member : MOST_HEADS;
  const int64_t first_head = sequence * p.heads + (int64_t)kv_head * p.group + first_member;

  const int64_t length = p.lengths[sequence];
  if (!p.range.holds(sequence, length)) {
    return;
  }
  const nn_decode_runs runs(p, length);
  if (blockIdx.y >= runs.count) {
    return;
  }
  const int keys = (int)p.piece_keys, lane = threadIdx.x % NN_WARP, partial_ld = p.dim + 2;
  const int ld = row_ld<T>(p.dim), chunks = (group + HEADS - 1) / HEADS, across = p.dim / E;
  T *const k = reinterpret_cast<T *>(shared), *const v = reinterpret_cast<T *>(shared + v_at);
  float *const q = reinterpret_cast<float *>(shared + q_at), *const probs =
                                                                 reinterpret_cast<float *>(shared + probs_at);
  float *const sums = reinterpret_cast<float *>(shared);
  for (int i = threadIdx.x; i < chunks * HEADS * p.dim; i += THREADS) {
    const T *const from =
        static_cast<const T *>(p.q) + sequence * p.ld_q + ((int64_t)kv_head * p.group + first_member) * p.dim;
    q[i] = i < group * p.dim ? nn_times(nn_to_float(from[i]), p.factor) : 0.0f;
  }
  for (int64_t run = blockIdx.y; run < runs.count; run += gridDim.y) {
    float *const partial = p.partial + (first_head * p.most_runs + run) * partial_ld;
    const int64_t begin = run * runs.length,
                  end = begin + runs.length < runs.pieces ? begin + runs.length : runs.pieces;
    for (int64_t piece = begin; piece < end; piece++) {
      const int64_t first = piece * keys;
      const int count = (int)(length - first < keys ? length - first : keys);
      const int64_t at = ((sequence * p.capacity + first) * p.kv_heads + kv_head) * p.dim;
      load_piece(k, static_cast<const T *>(p.k) + at, ld, count, p);
      load_piece(v, static_cast<const T *>(p.v) + at, ld, count, p);
      nn_copy_async_wait<1>();
      __syncthreads();
      /* A thread has one key and HEADS heads at a time. */
      for (int i = threadIdx.x; i < keys * chunks; i += THREADS) {
        const int key = i % keys, head = i / keys * HEADS;
        float score[HEADS] = {};
        for (int c = 0; c < across; c++) {
          float x[E];
          nn_load(x, k + key * ld + c * E);
#pragma unroll
          for (int h = 0; h < HEADS; h++) {
#pragma unroll
            for (int e = 0; e < E; e += 4) {
              float y[4];
              nn_load_4(y, q + (head + h) * p.dim + c * E + e);
#pragma unroll
              for (int n = 0; n < 4; n++) {
                score[h] = fmaf(x[e + n], y[n], score[h]);
              }
            }
          }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
          probs[(head + h) * keys + key] = key < count ? score[h] : nn_lowest();
        }
      }
      __syncthreads();
      for (int h = threadIdx.x / NN_WARP; h < group; h += THREADS / NN_WARP) {
        float peak = nn_lowest(), sum = 0.0f;
        for (int i = lane; i < keys; i += NN_WARP) {
          peak = nn_larger::of(probs[h * keys + i], peak);
        }
        peak = nn_warp_max(peak);
        for (int i = lane; i < keys; i += NN_WARP) {
          const float power = nn_exp2_approx(probs[h * keys + i] - peak);
          probs[h * keys + i] = power;
          sum += power;
        }
        sum = nn_warp_sum(sum);
        if (lane == 0) {
          if (piece == begin) {
            state.peak[h] = peak;
            state.sum[h] = sum;
          } else {
            state.by[h] = nn_merge(state.peak[h], state.sum[h], peak, sum);
          }
          if (piece + 1 == end) {
            float *const to = partial + h * p.most_runs * partial_ld + p.dim;
            to[0] = state.peak[h];
            to[1] = state.sum[h];
          }
        }
      }
      nn_copy_async_wait<0>();
      __syncthreads();
      /* A thread has 16 bytes of the values of every `lines`-th key; the sums over lines are added in order. */
      const int lines = THREADS / across, line = threadIdx.x / across, column = threadIdx.x % across;
      for (int chunk = 0; chunk < chunks; chunk++) {
        float out[HEADS][E] = {};
        if (line < lines) {
          for (int key = line; key < count; key += lines) {
            float x[E];
            nn_load(x, v + key * ld + column * E);
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
              const float share = probs[(chunk * HEADS + h) * keys + key];
#pragma unroll
              for (int e = 0; e < E; e++) {
                out[h][e] = fmaf(share, x[e], out[h][e]);
              }
            }
          }
#pragma unroll
          for (int h = 0; h < HEADS; h++) {
#pragma unroll
            for (int e = 0; e < E; e++) {
              sums[(line * HEADS + h) * p.dim + column * E + e] = out[h][e];
            }
          }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < HEADS * p.dim; i += THREADS) {
          const int head = chunk * HEADS + i / p.dim;
          float total = 0.0f;
          for (int n = 0; n < lines; n++) {
            total += sums[n * HEADS * p.dim + i];
          }
          if (head < group) {
            /* Each thread finds what it wrote itself. */
            float &to = partial[head * p.most_runs * partial_ld + i % p.dim];
            to = piece == begin ? total : nn_merged(to, total, state.by[head]);
          }
        }
        __syncthreads();
      }
    }
  }
}

template <class T> static int32_t decode_simt(nncuda_ctx *ctx, nn_decode p) {
  const piece_layout<T> l(p);
  p.parts = (int32_t)nn_ceil_div(p.group, MOST_HEADS);
  const int64_t others = p.parts * p.batch * p.kv_heads;
  return nn_launch(ctx, run_kernel<T>, dim3((unsigned)others, nn_run_blocks(ctx, p.most_runs, others)), dim3(THREADS),
                   l.bytes, p, (int)l.v, (int)l.q, (int)l.probs);
}

template <class T> static int32_t decode(nncuda_ctx *ctx, const nn_decode &p) {
  const int32_t status = decode_simt<T>(ctx, p);
  return status != NNCUDA_SUCCESS
             ? status
             : nn_launch(ctx, combine_kernel<T>, dim3((unsigned)(p.batch * p.heads)), dim3(COMBINE_THREADS), 0, p);
}

NN_KERNEL(attention_decode) {
  const nn_decode_pieces pieces = nn_decode_lay_out(a, nn_workspace_of(ctx));
  const nn_decode p = {a->q,
                       a->k_cache,
                       a->v_cache,
                       a->lengths,
                       a->out,
                       pieces.partial,
                       a->batch,
                       a->capacity,
                       a->ld_q,
                       pieces.keys,
                       pieces.runs,
                       (int32_t)a->heads,
                       (int32_t)a->kv_heads,
                       (int32_t)(a->heads / a->kv_heads),
                       0,
                       (int32_t)a->head_dim,
                       nn_split_of((double)a->scale * NN_LOG2E),
                       nn_aligned_16(a->k_cache, a->v_cache),
                       nn_range_of(ctx, "lengths", 0, a->capacity).noted("the capacity")};
  NN_SWITCH_FLOATS(a->dtype, return decode<T>(ctx, p));
}
