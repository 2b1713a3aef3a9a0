/*
 * Products of one row of x with stored weights in blocks, from sm_80 on: decoding one sequence. They read all of the
 * weights once, and what takes time beside that is waiting: for memory, for the kernels before, for x.
 *
 * So the weights pass through shared memory. Each warp has a ring of stages, a stage 32 parts of up to four rows, which
 * its lanes copy asynchronously and none but it reads; several stages are under way while it multiplies one. No kernel
 * that starts before its predecessors have ended writes weights (nn_gpu_launches_ahead), and so the first stages are on
 * their way before the block waits for those, and while it makes codes of x, once for all its rows.
 *
 * Of a stage a lane takes a part of each row and leaves the whole product and its unit; then a lane for each row adds
 * these in order, while other warps multiply.
 */
#include "kernels/instructions_copy.cuh"
#include "kernels/quant_one_row.cuh"
#include "kernels/quant_stream.cuh"

constexpr int WARPS = STREAM_WARPS, ROWS = STREAM_ROWS;

template <int FORMAT> struct stream_layout {
  using S = nn_stored<FORMAT>;
  static constexpr int BYTES = NN_WARP * NN_PART / S::BLOCK * S::BYTES; /* of a row in a stage */
  /* Runs of 16 bytes that they touch: rows begin at one, parts of them perhaps not. */
  static constexpr int RUNS = BYTES % 16 == 0 ? BYTES / 16 : BYTES / 16 + 2;
  static constexpr int STAGE = ROWS * RUNS * 16, FIT = STREAM_RING_BYTES / (STREAM_WARPS * STAGE);
  static constexpr int STAGES = FIT < 2 ? 2 : FIT > 4 ? 4 : FIT;
  /* A term is the unit and the whole product of a part, and the same of its minimum. Rows apart by 4 banks. */
  static constexpr int TERMS = NN_WARP + 2, KINDS = quant_has_second<FORMAT> ? 2 : 1;
  static constexpr int terms = WARPS * STAGES * STAGE, codes = terms + WARPS * KINDS * ROWS * TERMS * 8;
};

/* The copies of a warp's stages. Eight lanes have a row, of which they copy 128 bytes at a time. */
template <int FORMAT> struct block_copies {
  using L = stream_layout<FORMAT>;
  using S = typename L::S;
  static constexpr int LANES = NN_WARP / STREAM_ROWS;
  const quant_product &p;
  const stream_plan &plan;
  const int32_t parts, steps;
  stream_place place;
  const uint8_t *row; /* the lane's; null where there is none */

  __device__ __forceinline__ block_copies(const quant_product &product, const stream_plan &cut, int32_t all)
      : p(product), plan(cut), parts(all), steps((all + NN_WARP - 1) / NN_WARP), place(stream_place::first()) {
    row = stream_row(p, plan, place.group, row_of_lane());
  }
  static __device__ __forceinline__ int row_of_lane() { return threadIdx.x % NN_WARP / LANES; }

  /* Starts the next stage, and closes its group. */
  __device__ __forceinline__ void next(unsigned char *stage) {
    if (row != nullptr) {
      const int from = place.step * L::BYTES, skip = from % 16;
      const int left = parts * NN_PART / S::BLOCK * S::BYTES - from, bytes = left < L::BYTES ? left : L::BYTES;
      const int lane = threadIdx.x % LANES * 16;
      const uint8_t *const source = row + (from - skip + lane);
      const uint32_t to = nn_shared_address(stage + row_of_lane() * (L::RUNS * 16) + lane);
#pragma unroll
      for (int at = 0; at < L::RUNS * 16; at += LANES * 16) {
        if (at + lane < skip + bytes) {
          nn_copy_async<16>(to + at, source + at);
        }
      }
    }
    nn_copy_async_commit();
    if (place.next(steps)) {
      row = stream_row(p, plan, place.group, row_of_lane());
    }
  }
};

// Weights in q4_0 (10) and q8_0 (14):
// sass: stream_kernel<10> on sm_90: at least 5 LDGSTS, at most 80 registers
// sass: stream_kernel<14> on sm_90: at least 9 LDGSTS, at most 80 registers
template <int FORMAT>
__global__ void __launch_bounds__(STREAM_THREADS, 3) stream_kernel(quant_product p, stream_plan plan) {
  using L = stream_layout<FORMAT>;
  NN_SHARED_BYTES(shared);
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  const int32_t parts = (int32_t)(p.k / NN_PART), steps = (parts + NN_WARP - 1) / NN_WARP;
  unsigned char *const ring = shared + warp * (L::STAGES * L::STAGE);
  float2 *const terms = reinterpret_cast<float2 *>(shared + L::terms) + warp * (L::KINDS * ROWS * L::TERMS);
  const quant_row_codes codes(shared + L::codes, parts);
  nn_let_next_start();
  block_copies<FORMAT> copies(p, plan, parts);
#pragma unroll 1
  for (int i = 0; i < L::STAGES; i++) {
    copies.next(ring + i * L::STAGE);
  }
  stream_prefetch_gains(p);
  nn_wait_for_kernels();
  quant_fetch_row<STREAM_THREADS>(p, 0, codes);
  __syncthreads();
  int stage = 0;
  float sum = 0.0f;
  for (stream_place place = stream_place::first(); place.group < plan.groups; place.next(steps)) {
    const stream_group group(p, plan, place.group);
    const int part_0 = place.step * NN_WARP, left = parts - part_0, count = left < NN_WARP ? left : NN_WARP;
    const int mine = lane < count ? lane : 0;
    const uint4 a = codes.low[part_0 + mine], b = codes.high[part_0 + mine];
    const uint32_t words[NN_PART_WORDS] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    const quant_unit unit = codes.units[part_0 + mine];
    unsigned char *const here = ring + stage * L::STAGE;
    const uint8_t *const from = here + place.step * L::BYTES % 16;
    nn_copy_async_wait<L::STAGES - 1>();
    __syncwarp();
#pragma unroll 1
    for (int first = 0; first < group.rows; first += 2) {
#pragma unroll
      for (int i = 0; i < 2; i++) { /* where rows are odd, what lies in the place of the last is multiplied, too */
        const int r = first + i;
        nn_part part;
        nn_load_part<FORMAT>(part, from + r * (L::RUNS * 16), mine, nn_read_brought{});
        const float product = (float)quant_part_product<FORMAT>(part, words, unit);
        terms[r * L::TERMS + lane] = make_float2(__fmul_rn(unit.d, part.scale), product);
        if constexpr (quant_has_second<FORMAT>) {
          terms[(ROWS + r) * L::TERMS + lane] = quant_second_term<FORMAT>(part, unit);
        }
      }
    }
    __syncwarp();
    copies.next(here);
    stage = stage + 1 == L::STAGES ? 0 : stage + 1;
    sum = place.step == 0 ? 0.0f : sum;
    if (lane < group.rows) {
      const float2 *const x = terms + lane * L::TERMS, *const y = x + ROWS * L::TERMS;
      if (count == NN_WARP) {
        const float4 *const two = reinterpret_cast<const float4 *>(x), *const low = reinterpret_cast<const float4 *>(y);
#pragma unroll
        for (int i = 0; i < NN_WARP / 2; i++) {
          const float4 t = two[i];
          if constexpr (quant_has_second<FORMAT>) {
            const float4 u = low[i];
            sum = fmaf(t.x, t.y, sum);
            sum = fmaf(u.x, u.y, sum);
            sum = fmaf(t.z, t.w, sum);
            sum = fmaf(u.z, u.w, sum);
          } else {
            sum = fmaf(t.x, t.y, sum);
            sum = fmaf(t.z, t.w, sum);
          }
        }
      } else {
        for (int i = 0; i < count; i++) {
          sum = fmaf(x[i].x, x[i].y, sum);
          if constexpr (quant_has_second<FORMAT>) {
            sum = fmaf(y[i].x, y[i].y, sum);
          }
        }
      }
    }
    if (place.step + 1 == steps) {
      stream_finish(p, plan, group, sum);
    }
    __syncwarp(); /* the terms are free */
  }
  nn_copy_async_wait<0>();
}

template <int FORMAT> static int32_t start(nncuda_ctx *ctx, quant_product &p) {
  return stream_start(ctx, stream_kernel<FORMAT>, p, stream_layout<FORMAT>::codes + quant_row_codes::bytes(p.k));
}

int32_t quant_run_stream(nncuda_ctx *ctx, quant_product &p) {
  if (nn_is_dtype(p.matrix[0].format)) {
    return quant_run_stream_dtype(ctx, p);
  }
  NN_SWITCH_BLOCKS(p.matrix[0].format, return (start<FORMAT>(ctx, p)));
  return NNCUDA_ERROR_INTERNAL;
}
