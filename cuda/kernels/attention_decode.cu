/*
 * Attention of one query a sequence over its cache (Dao et al. 2023, "Flash-Decoding"): the keys are cut into pieces by
 * the sizes alone, and the pieces into at most 64 runs by the number of keys (attention_workspace.h). Each run leaves
 * its maximum, sum and output in scratch, merged piece by piece as in attention_paged.cu, and the block that ends last
 * combines the runs in order. What limits it is reading the cache, which happens once for all the heads of a group (of
 * up to 16).
 */
#include "kernels/attention_decode.cuh"
#include "kernels/shared_work.cuh"

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

/* What combines runs, in shared memory: the share of each run of each head. */
using run_shares = float[MOST_HEADS][NN_DECODE_RUNS];

static_assert(NN_DECODE_RUNS == 2 * NN_WARP, "two runs a lane");

/* The last block of some heads, whose runs begin at `partial`, puts them together in order: to `out`, the output of the
 * first of them. */
template <class T>
__device__ __forceinline__ void combine(const nn_decode &p, const float *partial, int runs, int group, T *out,
                                        run_shares &shares) {
  const int lane = threadIdx.x % NN_WARP, ld = p.dim + 2;
  for (int h = threadIdx.x / NN_WARP; h < group; h += THREADS / NN_WARP) {
    float peaks[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int run = lane + half * NN_WARP;
      peaks[half] = run < runs ? nn_from_others(partial + (h * p.most_runs + run) * ld + p.dim) : nn_lowest();
    }
    const float peak = nn_warp_max(nn_larger::of(peaks[0], peaks[1]));
#pragma unroll
    for (int half = 0; half < 2; half++) {
      shares[h][lane + half * NN_WARP] = nn_exp2_approx(peaks[half] - peak);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < group * p.dim; i += THREADS) {
    const int h = i / p.dim, d = i % p.dim;
    const float *const x = partial + h * p.most_runs * ld;
    float sum = 0.0f, total = 0.0f;
    constexpr int AHEAD = 8;
    for (int first = 0; first < runs; first += AHEAD) {
      float sums[AHEAD], outs[AHEAD];
#pragma unroll
      for (int j = 0; j < AHEAD; j++) {
        const int run = first + j < runs ? first + j : runs - 1; /* so that no load waits for a condition */
        sums[j] = nn_from_others(x + run * ld + p.dim + 1);
        outs[j] = nn_from_others(x + run * ld + d);
      }
#pragma unroll
      for (int j = 0; j < AHEAD; j++) {
        if (first + j < runs) {
          sum = fmaf(sums[j], shares[h][first + j], sum);
          total = fmaf(outs[j], shares[h][first + j], total);
        }
      }
    }
    out[i] = nn_from_float<T>(runs > 0 ? total / sum : 0.0f);
  }
}

// sass: run_kernel<nn_bf16> on sm_90a: at least 12 LDG under way
/* A block has up to MOST_HEADS heads of a group, and every gridDim.y-th run of their sequence. */
template <class T>
__global__ void __launch_bounds__(THREADS, 4) run_kernel(nn_decode p, int v_at, int q_at, int probs_at) {
  constexpr int E = nn_per_16<T>;
  NN_SHARED_BYTES(shared);
  __shared__ run_state state;
  nn_let_next_start();
  nn_wait_for_kernels();
  const int64_t part = blockIdx.x, pair = part / p.parts, sequence = pair / p.kv_heads;
  const int kv_head = (int)(pair - sequence * p.kv_heads), first_member = (int)(part - pair * p.parts) * MOST_HEADS;
  const int group = p.group - first_member < MOST_HEADS ? p.group - first_member : MOST_HEADS;
  const int64_t first_head = sequence * p.heads + (int64_t)kv_head * p.group + first_member;

  const int64_t length = p.lengths[sequence];
  if (!p.range.holds(sequence, length)) {
    return;
  }
  const nn_decode_runs runs(p, length);
  if (blockIdx.y > 0 && blockIdx.y >= runs.count) {
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
  const int64_t blocks = runs.count < gridDim.y ? runs.count : gridDim.y;
  if (nn_is_last_block(p.arrivals + blockIdx.x, (unsigned)blocks, reinterpret_cast<int *>(shared))) {
    combine(p, p.partial + first_head * p.most_runs * partial_ld, (int)runs.count, group,
            static_cast<T *>(p.out) + first_head * p.dim, *reinterpret_cast<run_shares *>(shared));
  }
}

/* Where there are more heads than places to count at, a block has all runs of its heads. */
template <class T> static int32_t decode(nncuda_ctx *ctx, nn_decode p) {
  const piece_layout<T> l(p);
  p.parts = (int32_t)nn_ceil_div(p.group, MOST_HEADS);
  const int64_t others = p.parts * p.batch * p.kv_heads;
  const unsigned runs = others > NN_ARRIVALS ? 1 : nn_run_blocks(ctx, p.most_runs, others);
  return nn_launch_ahead(ctx, run_kernel<T>, dim3((unsigned)others, runs), dim3(THREADS), l.bytes, p, (int)l.v,
                         (int)l.q, (int)l.probs);
}

NN_KERNEL(attention_decode) {
  const nn_decode_pieces pieces = nn_decode_lay_out(a, nn_workspace_of(ctx));
  const nn_decode p = {a->q,
                       a->k_cache,
                       a->v_cache,
                       a->lengths,
                       a->out,
                       pieces.partial,
                       nn_gpu_arrivals(ctx),
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
