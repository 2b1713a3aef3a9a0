/*
 * Gradients of attention on the tensor cores by mma.sync, for f16 from sm_75 and bf16 from sm_80.
 *
 * The kernel over keys computes the transposes of S and dP, that over rows S and dP themselves: either way a warp has
 * 16 or 32 rows of them in registers and all that they are multiplied by next, so that P and dS go from the registers
 * of one product to those of the next, and warps exchange nothing.
 *
 * P and dS are each multiplied as two 16-bit numbers: their rounding to 16 bits, and what that drops. Rounding them
 * alone costs as much as the rounding of the outputs wherever few terms make a sum (a short sequence, or a long one
 * whose attention is sharp): all three gradients then miss the bar of the golden fixtures, by up to 1.4 times. Operands
 * from memory are read once for both, so that products alone are added: the kernel over keys has 6 in place of 4 (those
 * of dV and dK twice), the one over rows 4 in place of 3.
 */
#ifndef NN_KERNELS_ATTENTION_BACKWARD_MMA_CUH
#define NN_KERNELS_ATTENTION_BACKWARD_MMA_CUH

#include "kernels/attention_backward.cuh"
#include "kernels/attention_mma.cuh"

/*
 * By padded head_dim, for the kernel over keys and that over rows: 16-row parts of a warp, and how many rows of the
 * other side it takes at a time (twice that are in shared memory). A block has four warps.
 *
 * Sums take 2 * PARTS * COLUMNS / 2 registers for keys, PARTS * D / 2 for rows; S and dP PARTS * 8 each for keys, where
 * 16 of the other rows are taken at a time, PARTS * OTHER / 2 each for rows. What stays in registers decides the rest.
 * With 256 columns dK and dV are too many: two blocks compute half the columns each, and both compute S and dP. All but
 * 256 columns fit in sm_75's 64 KiB of shared memory, and those in the 99 KiB of sm_86. By count.
 */
template <int D> struct nn_backward_mma_tile;
template <> struct nn_backward_mma_tile<64> {
  static constexpr int KEY_PARTS = 2, KEY_OTHER = 32, COLUMNS = 64, ROW_PARTS = 2, ROW_OTHER = 32;
};
template <> struct nn_backward_mma_tile<128> {
  static constexpr int KEY_PARTS = 1, KEY_OTHER = 16, COLUMNS = 128, ROW_PARTS = 1, ROW_OTHER = 32;
};
template <> struct nn_backward_mma_tile<256> {
  static constexpr int KEY_PARTS = 1, KEY_OTHER = 16, COLUMNS = 128, ROW_PARTS = 1, ROW_OTHER = 16;
};

constexpr int NN_BACKWARD_WARPS = 4, NN_BACKWARD_THREADS = 32 * NN_BACKWARD_WARPS;

/* sums += A B for A in registers as sums of a product, in two 16-bit parts, and B's COUNT * 8 columns from unit `unit`
 * of a tile on. */
template <class T, int D, int PARTS, int INNER, int COUNT>
__device__ __forceinline__ void nn_mma_onward(float (&sums)[PARTS][COUNT][4], const float (&from)[PARTS][INNER][4],
                                              const nn_mma_lane<D> &place, uint32_t b_tile, int unit) {
#pragma unroll
  for (int m = 0; m < INNER / 2; m++) {
    uint32_t a[PARTS][4], dropped[PARTS][4];
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
      nn_sums_to_a<T>(a[part], dropped[part], from[part][2 * m], from[part][2 * m + 1]);
    }
#pragma unroll
    for (int n = 0; n < COUNT / 2; n++) {
      uint32_t b[4];
      place.load_b_rows(b, b_tile, 16 * m, unit / 2 + n);
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
        nn_mma_m16n8k16<T>(sums[part][2 * n], a[part], b[0], b[1]);
        nn_mma_m16n8k16<T>(sums[part][2 * n + 1], a[part], b[2], b[3]);
        nn_mma_m16n8k16<T>(sums[part][2 * n], dropped[part], b[0], b[1]);
        nn_mma_m16n8k16<T>(sums[part][2 * n + 1], dropped[part], b[2], b[3]);
      }
    }
  }
}

/* ---- dK and dV ---- */

/* Zeros where a row does not see a key: `key` is the lane's first, in row g of the first part. */
template <int PARTS, int COUNT>
__device__ __forceinline__ void nn_hide_keys(float (&x)[PARTS][COUNT][4], const float4 *row_sums, int key) {
#pragma unroll
  for (int n = 0; n < COUNT; n++) {
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const float4 sums = row_sums[8 * n + 2 * (threadIdx.x % 4) + e];
      const int seen = __float_as_int(sums.w) - key, start = __float_as_int(sums.y) - key;
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          if (16 * part + 8 * half >= seen || 16 * part + 8 * half < start) {
            x[part][n][2 * half + e] = 0.0f;
          }
        }
      }
    }
  }
}

template <int D> struct nn_backward_mma_keys_layout {
  using TILE = nn_backward_mma_tile<D>;
  static constexpr int PARTS = TILE::KEY_PARTS, ROWS = 16 * PARTS, N = NN_BACKWARD_WARPS * ROWS, M = TILE::KEY_OTHER;
  static constexpr int COLUMNS = TILE::COLUMNS, SHARES = D / COLUMNS;
  static constexpr int v_at = nn_mma_tile<D>::bytes(N), stages_at = 2 * v_at;
  static constexpr int dout_at = nn_mma_tile<D>::bytes(M), sums_at = 2 * dout_at; /* within a stage */
  static constexpr int stage = (sums_at + 16 * M + 1023) / 1024 * 1024;
  static constexpr size_t bytes = stages_at + 2 * stage;
};

// spills: nn_backward_mma_keys_kernel on sm_75: where copies pass through registers, none are left for the rows' first
// keys; 24 bytes a thread at head_dim 64
template <class T, int D>
__global__ void __launch_bounds__(NN_BACKWARD_THREADS, D == 256 ? 1 : 2)
    nn_backward_mma_keys_kernel(nn_flash_backward p) {
  using L = nn_backward_mma_keys_layout<D>;
  NN_SHARED_BYTES(shared);
  const nn_attention_sizes &s = p.sizes;
  const int64_t piece = blockIdx.x / L::SHARES % p.pieces, tile = blockIdx.x / L::SHARES / p.pieces % p.tiles;
  const int64_t pair = blockIdx.x / L::SHARES / p.pieces / p.tiles, sequence = pair / s.kv_heads, key = tile * L::N;
  const int first_unit = blockIdx.x % L::SHARES * (L::COLUMNS / 8);
  const int32_t kv_head = (int32_t)(pair - sequence * s.kv_heads);
  const int count = (int)(s.kv_len - key < L::N ? s.kv_len - key : L::N);
  const int lane = threadIdx.x % NN_WARP, first_row = threadIdx.x / NN_WARP * L::ROWS;
  const int64_t at = (sequence * s.kv_len + key) * s.ld_kv + (int64_t)kv_head * s.dim;
  const uint32_t k_tile = nn_shared_address(shared), v_tile = k_tile + L::v_at;
  const nn_mma_lane<D> place;
  const int own_key = (int)key + first_row + lane / 4;
  const nn_backward_span span(p, sequence, key, L::N, piece, L::M);
  const auto token = [&](int r) { return r * s.ld_kv; };
  const auto load_stage = [&](int i) {
    unsigned char *const stage = shared + L::stages_at + (i & 1) * L::stage;
    const nn_query_rows rows(s, sequence, kv_head, (int64_t)i * L::M, L::M);
    nn_mma_load<D, L::M, NN_BACKWARD_THREADS>(stage, static_cast<const T *>(p.q), rows.count, s.dim, p.wide,
                                              [&](int r) { return rows.at(r, s.ld_q, s.dim); });
    nn_mma_load<D, L::M, NN_BACKWARD_THREADS>(stage + L::dout_at, static_cast<const T *>(p.dout), rows.count, s.dim,
                                              p.wide_out, [&](int r) { return rows.at(r, s.ld_out(), s.dim); });
    if ((int)threadIdx.x < L::M) { /* zeros make those that are not rows see no key */
      const bool inside = (int)threadIdx.x < rows.count;
      const float4 *const from = p.row_sums + pair * s.rows() + (int64_t)i * L::M;
      nn_copy_async<16>(nn_shared_address(stage + L::sums_at) + 16 * threadIdx.x, from + (inside ? threadIdx.x : 0),
                        inside ? 16 : 0);
    }
    nn_copy_async_commit();
  };
  float dk[L::PARTS][L::COLUMNS / 8][4] = {}, dv[L::PARTS][L::COLUMNS / 8][4] = {};
  if (span.first < span.end) {
    nn_mma_load_rows<D, L::N, NN_BACKWARD_THREADS>(shared, static_cast<const T *>(p.k) + at, s.ld_kv, count, s.dim,
                                                   p.wide);
    nn_mma_load_rows<D, L::N, NN_BACKWARD_THREADS>(shared + L::v_at, static_cast<const T *>(p.v) + at, s.ld_kv, count,
                                                   s.dim, p.wide);
    load_stage(span.first);
  }
  for (int i = span.first; i < span.end; i++) {
    if (i + 1 < span.end) {
      load_stage(i + 1);
      nn_copy_async_wait<1>();
    } else {
      nn_copy_async_wait<0>();
    }
    __syncthreads();
    const unsigned char *const stage = shared + L::stages_at + (i & 1) * L::stage;
    const uint32_t q_tile = nn_shared_address(stage), dout_tile = q_tile + L::dout_at;
    const float4 *const row_sums = reinterpret_cast<const float4 *>(stage + L::sums_at);
    /* Some row may not see all of these keys: those of the first and last tiles, and
     * those of a tile where a document begins. */
    const bool partly = (int64_t)(i + 1) * L::M > s.rows() || __float_as_int(row_sums[0].w) < key + L::N ||
                        __float_as_int(row_sums[L::M - 1].y) > key;
    /* 16 rows at a time, one after another: registers */
#pragma unroll 1
    for (int m = 0; m < L::M / 16; m++) {
      const uint32_t further = nn_mma_tile<D>::bytes(16 * m);
      const float4 *const sums = row_sums + 16 * m + 2 * (lane % 4);
      float prob[L::PARTS][2][4] = {}, ds[L::PARTS][2][4] = {};
      nn_mma_scores<T>(prob, place, k_tile, first_row, q_tile + further);
#pragma unroll
      for (int n = 0; n < 2; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float lse = sums[8 * n + e].x;
#pragma unroll
          for (int part = 0; part < L::PARTS; part++) {
            prob[part][n][e] = nn_exp2_approx(fmaf(prob[part][n][e], p.factor.high, -lse));
            prob[part][n][2 + e] = nn_exp2_approx(fmaf(prob[part][n][2 + e], p.factor.high, -lse));
          }
        }
      }
      if (partly) {
        nn_hide_keys(prob, row_sums + 16 * m, own_key);
      }
      nn_mma_onward<T>(dv, prob, place, dout_tile + further, first_unit);
      nn_mma_scores<T>(ds, place, v_tile, first_row, dout_tile + further);
#pragma unroll
      for (int n = 0; n < 2; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float delta = sums[8 * n + e].z;
#pragma unroll
          for (int part = 0; part < L::PARTS; part++) {
            ds[part][n][e] = prob[part][n][e] * (ds[part][n][e] - delta);
            ds[part][n][2 + e] = prob[part][n][2 + e] * (ds[part][n][2 + e] - delta);
          }
        }
      }
      if (partly) {
        nn_hide_keys(ds, row_sums + 16 * m, own_key);
      }
      nn_mma_onward<T>(dk, ds, place, q_tile + further, first_unit);
    }
    __syncthreads(); /* the stage may be overwritten */
  }
  if (p.partial != nullptr) {
#pragma unroll
    for (int part = 0; part < L::PARTS; part++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int r = first_row + 16 * part + 8 * half + lane / 4;
#pragma unroll
        for (int n = 0; n < L::COLUMNS / 8; n++) {
          const int d = 8 * (first_unit + n) + 2 * (lane % 4);
          if (r < count && d < s.dim) {
            *reinterpret_cast<float2 *>(p.partial + nn_partial_at(p, piece, 0, pair, key + r) + d) =
                make_float2(dk[part][n][2 * half], dk[part][n][2 * half + 1]);
            *reinterpret_cast<float2 *>(p.partial + nn_partial_at(p, piece, 1, pair, key + r) + d) =
                make_float2(dv[part][n][2 * half], dv[part][n][2 * half + 1]);
          }
        }
      }
    }
    return;
  }
  /* Through the places of K and V, of which each warp has read its own rows alone. */
  const float scales[2] = {p.scale, p.scale}, ones[2] = {1.0f, 1.0f};
#pragma unroll
  for (int part = 0; part < L::PARTS; part++) {
    nn_sums_to_tile<T, D>(shared, first_row + 16 * part, first_unit, dk[part], scales);
    nn_sums_to_tile<T, D>(shared + L::v_at, first_row + 16 * part, first_unit, dv[part], ones);
  }
  __syncwarp();
  nn_tile_to_rows<D, L::ROWS, L::COLUMNS>(static_cast<T *>(p.dk) + at, shared, first_row, first_unit, count, s.dim,
                                          p.wide, token);
  nn_tile_to_rows<D, L::ROWS, L::COLUMNS>(static_cast<T *>(p.dv) + at, shared + L::v_at, first_row, first_unit, count,
                                          s.dim, p.wide, token);
}

/* ---- dQ ---- */

template <int D> struct nn_backward_mma_rows_layout {
  using TILE = nn_backward_mma_tile<D>;
  static constexpr int PARTS = TILE::ROW_PARTS, ROWS = 16 * PARTS, M = NN_BACKWARD_WARPS * ROWS, N = TILE::ROW_OTHER;
  static constexpr int dout_at = nn_mma_tile<D>::bytes(M), stages_at = 2 * dout_at;
  static constexpr int v_at = nn_mma_tile<D>::bytes(N), stage = 2 * v_at; /* within a stage; of a stage */
  static constexpr size_t bytes = stages_at + 2 * stage;
};

template <class T, int D>
__global__ void __launch_bounds__(NN_BACKWARD_THREADS, D == 256 ? 1 : 2)
    nn_backward_mma_rows_kernel(nn_flash_backward p) {
  using L = nn_backward_mma_rows_layout<D>;
  NN_SHARED_BYTES(shared);
  const nn_attention_sizes &s = p.sizes;
  const int64_t tile = p.tiles - 1 - blockIdx.x % p.tiles, pair = blockIdx.x / p.tiles, sequence = pair / s.kv_heads;
  const int32_t kv_head = (int32_t)(pair - sequence * s.kv_heads);
  const nn_query_rows rows(s, sequence, kv_head, tile * L::M, L::M);
  const int lane = threadIdx.x % NN_WARP, first_row = threadIdx.x / NN_WARP * L::ROWS;
  const int64_t at = sequence * s.kv_len * s.ld_kv + (int64_t)kv_head * s.dim;
  const uint32_t q_tile = nn_shared_address(shared), dout_tile = q_tile + L::dout_at;
  const nn_mma_lane<D> place;
  const int first_seen = (int)nn_keys_seen(s, rows.query);
  const int limit = (int)nn_keys_seen(s, rows.query + rows.further(rows.count - 1));
  const int begin = nn_first_tile<L::N>(p.starts, rows); /* the keys before are seen by none */
  const int last_start = nn_first_key(p.starts, rows.sequence_query + rows.further(rows.count - 1));
  const auto load_stage = [&](int i) {
    unsigned char *const stage = shared + L::stages_at + (i & 1) * L::stage;
    const int key = begin + i * L::N, count = limit - key < L::N ? limit - key : L::N;
    nn_mma_load_rows<D, L::N, NN_BACKWARD_THREADS>(stage, static_cast<const T *>(p.k) + at + (int64_t)key * s.ld_kv,
                                                   s.ld_kv, count, s.dim, p.wide);
    nn_mma_load_rows<D, L::N, NN_BACKWARD_THREADS>(
        stage + L::v_at, static_cast<const T *>(p.v) + at + (int64_t)key * s.ld_kv, s.ld_kv, count, s.dim, p.wide);
    nn_copy_async_commit();
  };
  const int steps = (int)nn_ceil_div(limit - begin, L::N);
  if (steps > 0) {
    nn_mma_load<D, L::M, NN_BACKWARD_THREADS>(shared, static_cast<const T *>(p.q), rows.count, s.dim, p.wide,
                                              [&](int r) { return rows.at(r, s.ld_q, s.dim); });
    nn_mma_load<D, L::M, NN_BACKWARD_THREADS>(shared + L::dout_at, static_cast<const T *>(p.dout), rows.count, s.dim,
                                              p.wide_out, [&](int r) { return rows.at(r, s.ld_out(), s.dim); });
    load_stage(0);
  }
  float lse[L::PARTS][2], delta[L::PARTS][2];
#pragma unroll
  for (int part = 0; part < L::PARTS; part++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int r = first_row + 16 * part + 8 * half + lane / 4;
      const float4 sums = r < rows.count ? p.row_sums[pair * s.rows() + tile * L::M + r] : make_float4(0, 0, 0, 0);
      lse[part][half] = sums.x;
      delta[part][half] = sums.z;
    }
  }
  float dq[L::PARTS][D / 8][4] = {};
  for (int i = 0; i < steps; i++) {
    if (i + 1 < steps) {
      load_stage(i + 1);
      nn_copy_async_wait<1>();
    } else {
      nn_copy_async_wait<0>();
    }
    __syncthreads();
    const uint32_t k_tile = nn_shared_address(shared + L::stages_at + (i & 1) * L::stage), v_tile = k_tile + L::v_at;
    const int key = begin + i * L::N;
    float prob[L::PARTS][L::N / 8][4] = {}, ds[L::PARTS][L::N / 8][4] = {};
    nn_mma_scores<T>(prob, place, q_tile, first_row, k_tile);
    nn_mma_scores<T>(ds, place, dout_tile, first_row, v_tile);
#pragma unroll
    for (int part = 0; part < L::PARTS; part++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int n = 0; n < L::N / 8; n++) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; e++) {
            const float x = nn_exp2_approx(fmaf(prob[part][n][e], p.factor.high, -lse[part][half]));
            ds[part][n][e] = x * (ds[part][n][e] - delta[part][half]);
          }
        }
      }
    }
    if (key + L::N > first_seen || key < last_start) { /* some row does not see all of these keys */
      nn_hide_from_rows(ds, s, p.starts, rows, first_row, key, 0.0f);
    }
    nn_mma_onward<T>(dq, ds, place, k_tile, 0);
    __syncthreads(); /* the stage may be overwritten */
  }
  /* Through the place of Q, of which each warp has read its own rows alone. */
  const float scales[2] = {p.scale, p.scale};
#pragma unroll
  for (int part = 0; part < L::PARTS; part++) {
    nn_sums_to_tile<T, D>(shared, first_row + 16 * part, 0, dq[part], scales);
  }
  __syncwarp();
  nn_tile_to_rows<D, L::ROWS, D>(static_cast<T *>(p.dq), shared, first_row, 0, rows.count, s.dim, p.wide,
                                 [&](int r) { return rows.at(r, s.ld_q, s.dim); });
}

template <class T, int D> struct nn_backward_mma {
  using KEYS = nn_backward_mma_keys_layout<D>;
  using ROWS = nn_backward_mma_rows_layout<D>;
  static constexpr int N = KEYS::N, M = ROWS::M;
  static constexpr bool FIRST_KEYS = true; /* in row_sums */
  static_assert(N == nn_backward_keys(1, D));

  static int32_t keys(nncuda_ctx *ctx, const nn_flash_backward &a) {
    return nn_launch(ctx, nn_backward_mma_keys_kernel<T, D>,
                     dim3((unsigned)(a.pieces * a.tiles * a.pairs * KEYS::SHARES)), dim3(NN_BACKWARD_THREADS),
                     KEYS::bytes, a);
  }
  static int32_t rows(nncuda_ctx *ctx, nn_flash_backward a) {
    a.tiles = nn_ceil_div(a.sizes.rows(), M);
    return nn_launch(ctx, nn_backward_mma_rows_kernel<T, D>, dim3((unsigned)(a.tiles * a.pairs)),
                     dim3(NN_BACKWARD_THREADS), ROWS::bytes, a);
  }
};

#endif
