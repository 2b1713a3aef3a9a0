#include "kernels/attention_backward_mma.cuh"
#include "kernels/attention_backward_simt.cuh"
#include "kernels/attention_backward_wgmma.cuh"

/* ---- before and after the products ---- */

constexpr int SUM_THREADS = 256, LANES = 8; /* lanes that share a row: 16 bytes each are a row of 64 16-bit elements */

/* A place of row_sums for each group of lanes. Those that no row has get what makes P zero. */
template <class T, bool FIRST_KEYS>
__global__ void __launch_bounds__(SUM_THREADS) row_sums_kernel(nn_flash_backward a, int64_t places) {
  constexpr int E = nn_per_16<T>;
  const nn_attention_sizes &s = a.sizes;
  const int64_t thread = (int64_t)blockIdx.x * SUM_THREADS + threadIdx.x, place = thread / LANES;
  const int64_t tile = place / a.tile_room, in_tile = place - tile * a.tile_room, pair = tile / a.row_tiles;
  const int64_t row = (tile - pair * a.row_tiles) * a.tile_rows + in_tile;
  const bool inside = place < places && in_tile < a.tile_rows && row < s.rows();
  const int lane = threadIdx.x % LANES;
  float sum = 0.0f;
  int64_t at_lse = 0, seen = 0;
  int32_t start = 0;
  if (inside) {
    const int64_t sequence = pair / s.kv_heads;
    const nn_query_rows rows(s, sequence, (int32_t)(pair - sequence * s.kv_heads), row, 1);
    const int64_t at = rows.at(0, s.ld_out(), s.dim);
    at_lse = rows.at_head(0, s, sequence);
    seen = nn_keys_seen(s, rows.query);
    start = nn_first_key(a.starts, rows.sequence_query);
    for (int d = lane * E; d < s.dim; d += LANES * E) {
      float x[E], y[E];
      nn_load_row(x, static_cast<const T *>(a.dout) + at + d, a.wide_out);
      nn_load_row(y, static_cast<const T *>(a.out) + at + d, a.wide_out);
#pragma unroll
      for (int e = 0; e < E; e++) {
        sum = fmaf(x[e], y[e], sum);
      }
    }
  }
  sum = nn_warp_sum<LANES>(sum);
  if (place < places && lane == 0) {
    const nn_split log2e = {1.44269504088896341f, (float)(1.44269504088896341 - (double)1.44269504088896341f)};
    const float lse = inside ? a.lse[at_lse] : nn_lowest(), high = lse * log2e.high;
    const float low = FIRST_KEYS ? __int_as_float(start) : fmaf(lse, log2e.high, -high) + lse * log2e.low;
    const float keys = __int_as_float((int)(seen < INT32_MAX ? seen : INT32_MAX));
    float *const to = reinterpret_cast<float *>(a.row_sums) + 4 * tile * a.tile_room + in_tile;
    to[0] = lse == nn_lowest() ? -nn_lowest() : high;
    to[a.tile_room] = lse == nn_lowest() ? 0.0f : low;
    to[2 * a.tile_room] = sum;
    to[3 * a.tile_room] = keys;
  }
  if (a.turns != nullptr && thread <= a.pairs * a.row_tiles) {
    a.turns[thread] = 0;
  }
}

/* Pieces and shares, in order. Two sides: dK and dV. */
template <class T> __global__ void __launch_bounds__(SUM_THREADS) add_partials_kernel(nn_flash_backward a) {
  const nn_attention_sizes &s = a.sizes;
  const int64_t kv_heads = s.kv_heads / a.shares, pieces = a.pieces * a.shares;
  const int64_t rows = a.key_pairs * s.kv_len, side_size = rows * s.dim, units = 2 * side_size / 4;
  for (int64_t i = (int64_t)blockIdx.x * SUM_THREADS + threadIdx.x; i < units; i += (int64_t)gridDim.x * SUM_THREADS) {
    const int side = 4 * i >= side_size;
    const int64_t at = 4 * i - side * side_size, row = at / s.dim, pair = row / s.kv_len, sequence = pair / kv_heads;
    float sum[4] = {};
    for (int64_t piece = 0; piece < pieces; piece++) {
      float x[4];
      nn_load_4(x, a.partial + (2 * piece + side) * side_size + at);
#pragma unroll
      for (int e = 0; e < 4; e++) {
        sum[e] += x[e];
      }
    }
    if (side == 0) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        sum[e] *= a.scale;
      }
    }
    T *const to = static_cast<T *>(side == 0 ? a.dk : a.dv);
    const int64_t token = sequence * s.kv_len + row - pair * s.kv_len;
    nn_store_row(to + token * s.ld_kv + (pair - sequence * kv_heads) * s.dim + at - row * s.dim, sum, a.wide);
  }
}

/* The products that a form computes, between what comes before and after. */
template <class T, class FORM> static int32_t backward_by(nncuda_ctx *ctx, nn_flash_backward a, const FORM &form) {
  const nn_attention_sizes &s = a.sizes;
  const int64_t places = a.pairs * a.row_tiles * a.tile_room;
  const int64_t blocks = nn_ceil_div(places * LANES, SUM_THREADS);
  int32_t status =
      nn_launch(ctx, row_sums_kernel<T, FORM::FIRST_KEYS>, dim3((unsigned)blocks), dim3(SUM_THREADS), 0, a, places);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  a.tiles = nn_ceil_div(s.kv_len, FORM::N);
  status = form.keys(ctx, a);
  if (status == NNCUDA_SUCCESS && a.partial != nullptr) {
    const unsigned adders =
        nn_blocks(ctx, 2 * a.key_pairs * s.kv_len * s.dim / 4, SUM_THREADS, NN_BACKWARD_BLOCKS_PER_SM);
    status = nn_launch(ctx, add_partials_kernel<T>, dim3(adders), dim3(SUM_THREADS), 0, a);
  }
  return status == NNCUDA_SUCCESS ? form.rows(ctx, a) : status;
}

/* Forms whose rows take their places in row_sums one after another. */
template <class T, class FORM> static int32_t backward_of(nncuda_ctx *ctx, nn_flash_backward a) {
  a.row_tiles = a.sizes.rows();
  a.tile_rows = 1;
  a.tile_room = 1;
  return backward_by<T>(ctx, a, FORM{});
}

template <class T, int D, int PARTS>
static int32_t backward_wgmma(nncuda_ctx *ctx, nn_flash_backward a, const nn_backward_space &space, int32_t dtype,
                              bool *done) {
  nn_backward_wgmma<T, D, PARTS> form;
  a.pieces = space.wgmma_pieces;
  a.shares = (int32_t)space.wgmma_shares;
  a.partial = a.pieces * a.shares > 1 ? space.partial : nullptr;
  a.pairs *= a.shares;
  a.sizes.kv_heads *= a.shares;
  a.sizes.group /= a.shares;
  a.dq_sums = space.dq_sums;
  a.turns = space.turns;
  a.tile_queries = nn_backward_wgmma_queries(D, a.sizes.group);
  a.tile_rows = a.tile_queries * a.sizes.group;
  a.tile_room = nn_backward_wgmma_rows(D);
  a.row_tiles = nn_ceil_div(a.sizes.q_len, a.tile_queries);
  *done = form.ready(a, dtype);
  return *done ? backward_by<T>(ctx, a, form) : NNCUDA_SUCCESS;
}

template <class T> static int32_t backward_simt_by_dim(nncuda_ctx *ctx, const nn_flash_backward &a) {
  return a.sizes.dim <= 64    ? backward_of<T, nn_backward_simt<T, 64>>(ctx, a)
         : a.sizes.dim <= 128 ? backward_of<T, nn_backward_simt<T, 128>>(ctx, a)
                              : backward_of<T, nn_backward_simt<T, 256>>(ctx, a);
}

template <class T>
static int32_t backward_by_dim(nncuda_ctx *ctx, const nn_flash_backward &a, const nn_backward_space &space,
                               int32_t dtype) {
  const int32_t dim = a.sizes.dim;
  if (!space.mma) {
    return backward_simt_by_dim<T>(ctx, a);
  }
  if (space.wgmma) {
    bool done = false;
    const bool both = a.sizes.kv_len < NN_BACKWARD_ONE_PART_KEYS || nn_gpu_two_parts(ctx);
    const int32_t status = dim <= 64 ? both ? backward_wgmma<T, 64, 2>(ctx, a, space, dtype, &done)
                                            : backward_wgmma<T, 64, 1>(ctx, a, space, dtype, &done)
                           : both ? backward_wgmma<T, 128, 2>(ctx, a, space, dtype, &done)
                                     : backward_wgmma<T, 128, 1>(ctx, a, space, dtype, &done);
    if (done) {
      return status;
    }
  }
  return dim <= 64    ? backward_of<T, nn_backward_mma<T, 64>>(ctx, a)
         : dim <= 128 ? backward_of<T, nn_backward_mma<T, 128>>(ctx, a)
                      : backward_of<T, nn_backward_mma<T, 256>>(ctx, a);
}

template <>
int32_t backward_by_dim<float>(nncuda_ctx *ctx, const nn_flash_backward &a, const nn_backward_space &, int32_t) {
  return backward_simt_by_dim<float>(ctx, a);
}

NN_KERNEL(flash_attention_backward) {
  const int32_t status = nn_check_starts(ctx, a->starts, a->shape);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  const nn_backward_space space = nn_backward_lay_out(a, nn_workspace_of(ctx));
  nn_flash_backward p = {};
  p.row_sums = static_cast<float4 *>(space.row_sums);
  p.pieces = space.pieces;
  p.shares = 1;
  p.partial = space.pieces > 1 ? space.partial : nullptr;
  p.dout = a->dout;
  p.q = a->q;
  p.k = a->k;
  p.v = a->v;
  p.out = a->out;
  p.lse = a->lse;
  p.starts = a->starts;
  p.dq = a->dq;
  p.dk = a->dk;
  p.dv = a->dv;
  p.sizes = nn_attention_sizes_of(a->shape, a->ld_q, a->ld_kv, a->causal);
  p.factor = nn_split_of((double)a->scale * NN_LOG2E);
  p.scale = a->scale;
  p.pairs = a->shape.batch * a->shape.kv_heads;
  p.key_pairs = p.pairs;
  p.wide = nn_aligned_16(a->q, a->k, a->v, a->dq, a->dk, a->dv) && nn_rows_16(a->ld_kv, a->ld_q, a->dtype);
  p.wide_out = nn_aligned_16(a->dout, a->out);
  NN_SWITCH_FLOATS(a->dtype, return backward_by_dim<T>(ctx, p, space, a->dtype));
}
