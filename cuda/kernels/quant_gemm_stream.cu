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

/* False leaves the products to quant_gemm_rows.cu: the same bits, to compare times. */
constexpr bool STREAMS = true;

/* Two blocks a multiprocessor, and room for those of the next kernel, whose weights come meanwhile. By count. */
constexpr int WARPS = 8, THREADS = WARPS * NN_WARP, BLOCKS_PER_SM = 2;
constexpr int ROWS = 4; /* of a stage: its sums are as many lanes, and what a warp waits for is shared by them */
constexpr int RING_BYTES = 56 << 10; /* of a block, as far as two stages need no more */

template <int FORMAT> struct stream_layout {
  using S = nn_stored<FORMAT>;
  static constexpr int BYTES = NN_WARP * NN_PART / S::BLOCK * S::BYTES; /* of a row in a stage */
  /* Runs of 16 bytes that they touch: rows begin at one, parts of them perhaps not. */
  static constexpr int RUNS = BYTES % 16 == 0 ? BYTES / 16 : BYTES / 16 + 2;
  static constexpr int STAGE = ROWS * RUNS * 16, FIT = RING_BYTES / (WARPS * STAGE);
  static constexpr int STAGES = FIT < 2 ? 2 : FIT > 4 ? 4 : FIT;
  /* A term is the unit and the whole product of a part, and the same of its minimum. Rows apart by 4 banks. */
  static constexpr int TERMS = NN_WARP + 2, KINDS = S::HAS_MINIMUM ? 2 : 1;
  static constexpr int terms = WARPS * STAGES * STAGE, codes = terms + WARPS * KINDS * ROWS * TERMS * 8;
};

/* How the rows of all matrices are cut: groups of `each` columns, of one row of weights or, with a gate, two. */
struct stream_plan {
  int32_t each, groups;
};

/* Some columns of y, which a warp makes together, and the rows of a stage that they take. */
struct stream_group {
  int32_t which, column, columns, rows;

  __device__ __forceinline__ stream_group(const quant_product &p, const stream_plan &plan, int32_t group)
      : which(quant_matrix_of(p, group)) {
    const quant_weights &matrix = p.matrix[which];
    column = (group - (int32_t)matrix.first_tile) * plan.each;
    const int32_t left = (int32_t)matrix.n - column;
    columns = left < plan.each ? left : plan.each;
    rows = p.combine == NN_QUANT_SWIGLU ? 2 * plan.each : columns;
  }
};

/* The way of a warp through its work: 32 parts after another, of one group after another. */
struct stream_place {
  int32_t group, part;

  /* Whether a group ends. */
  __device__ __forceinline__ bool next(int32_t parts, int32_t stride) {
    part += NN_WARP;
    if (part < parts) {
      return false;
    }
    part = 0;
    group += stride;
    return true;
  }
};

/* The copies of a warp's stages. Eight lanes have a row, of which they copy 128 bytes at a time. */
template <int FORMAT> struct stream_copies {
  using L = stream_layout<FORMAT>;
  using S = typename L::S;
  const quant_product &p;
  const stream_plan &plan;
  const int32_t parts, stride;
  stream_place place;
  const uint8_t *row; /* the lane's; null where there is none */

  __device__ __forceinline__ stream_copies(const quant_product &product, const stream_plan &cut, int32_t all,
                                           int32_t step, const stream_place &first)
      : p(product), plan(cut), parts(all), stride(step), place(first) {
    find();
  }
  static __device__ __forceinline__ int row_of_lane() { return threadIdx.x % NN_WARP / (NN_WARP / ROWS); }
  static __device__ __forceinline__ int run_of_lane() { return threadIdx.x % (NN_WARP / ROWS); }

  __device__ __forceinline__ void find() {
    row = nullptr;
    if (place.group < plan.groups) {
      const stream_group group(p, plan, place.group);
      const int r = row_of_lane(), of_gate = r < plan.each ? r : r - plan.each;
      const quant_weights &matrix = p.matrix[group.which + (r < plan.each ? 0 : p.combine)];
      if (r < group.rows && of_gate < group.columns) {
        row = matrix.w + (int64_t)(group.column + of_gate) * matrix.row_bytes;
      }
    }
  }

  /* Starts the next stage, and closes its group. */
  __device__ __forceinline__ void next(unsigned char *stage) {
    if (row != nullptr) {
      const int from = place.part * NN_PART / S::BLOCK * S::BYTES, skip = from % 16;
      const int left = parts * NN_PART / S::BLOCK * S::BYTES - from, bytes = left < L::BYTES ? left : L::BYTES;
      const int lane = run_of_lane() * 16;
      const uint8_t *const source = row + (from - skip + lane);
      const uint32_t to = nn_shared_address(stage + row_of_lane() * (L::RUNS * 16) + lane);
#pragma unroll
      for (int at = 0; at < L::RUNS * 16; at += NN_WARP / ROWS * 16) {
        if (at + lane < skip + bytes) {
          nn_copy_async<16>(to + at, source + at);
        }
      }
    }
    nn_copy_async_commit();
    if (place.next(parts, stride)) {
      find();
    }
  }
};

// Weights in q4_0 (10) and q8_0 (14):
// sass: stream_kernel<10> on sm_90: at least 5 LDGSTS, at most 80 registers
// sass: stream_kernel<14> on sm_90: at least 9 LDGSTS, at most 80 registers
template <int FORMAT>
__global__ void __launch_bounds__(THREADS, 3) stream_kernel(quant_product p, stream_plan plan) {
  using L = stream_layout<FORMAT>;
  using S = typename L::S;
  NN_SHARED_BYTES(shared);
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  const int32_t parts = (int32_t)(p.k / NN_PART), stride = (int32_t)gridDim.x * WARPS;
  unsigned char *const ring = shared + warp * (L::STAGES * L::STAGE);
  float2 *const terms = reinterpret_cast<float2 *>(shared + L::terms) + warp * (L::KINDS * ROWS * L::TERMS);
  const quant_row_codes codes(shared + L::codes, parts);
  stream_place place = {(int32_t)(warp * gridDim.x + blockIdx.x), 0};
  nn_let_next_start();
  stream_copies<FORMAT> copies(p, plan, parts, stride, place);
#pragma unroll 1
  for (int i = 0; i < L::STAGES; i++) {
    copies.next(ring + i * L::STAGE);
  }
  if (p.norm != nullptr) {
    for (int i = threadIdx.x * 32; i < p.k; i += THREADS * 32) {
      nn_prefetch(p.norm + i);
    }
  }
  nn_wait_for_kernels();
  quant_fetch_row<THREADS>(p, 0, codes);
  __syncthreads();
  int stage = 0;
  float sum = 0.0f;
  for (; place.group < plan.groups; place.next(parts, stride)) {
    const stream_group group(p, plan, place.group);
    const int left = parts - place.part, count = left < NN_WARP ? left : NN_WARP;
    const int mine = lane < count ? lane : 0;
    const uint4 a = codes.low[place.part + mine], b = codes.high[place.part + mine];
    const uint32_t words[NN_PART_WORDS] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    const quant_unit unit = codes.units[place.part + mine];
    unsigned char *const here = ring + stage * L::STAGE;
    const uint8_t *const from = here + place.part * NN_PART / S::BLOCK * S::BYTES % 16;
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
        if constexpr (S::HAS_MINIMUM) {
          terms[(ROWS + r) * L::TERMS + lane] = make_float2(unit.total(), part.minimum);
        }
      }
    }
    __syncwarp();
    copies.next(here);
    stage = stage + 1 == L::STAGES ? 0 : stage + 1;
    sum = place.part == 0 ? 0.0f : sum;
    if (lane < group.rows) {
      const float2 *const x = terms + lane * L::TERMS, *const y = x + ROWS * L::TERMS;
      if (count == NN_WARP) {
        const float4 *const two = reinterpret_cast<const float4 *>(x), *const low = reinterpret_cast<const float4 *>(y);
#pragma unroll
        for (int i = 0; i < NN_WARP / 2; i++) {
          const float4 t = two[i];
          if constexpr (S::HAS_MINIMUM) {
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
          if constexpr (S::HAS_MINIMUM) {
            sum = fmaf(y[i].x, y[i].y, sum);
          }
        }
      }
    }
    if (place.part + NN_WARP >= parts) {
      float whole = sum;
      if (p.combine == NN_QUANT_SWIGLU) {
        whole = __shfl_sync(NN_ALL_LANES, sum, (lane + plan.each) % NN_WARP) * quant_silu(sum);
      }
      if (lane < group.columns) {
        quant_finish(p, 0, p.matrix[group.which].column + group.column + lane, whole);
      }
    }
    __syncwarp(); /* the terms are free */
  }
  nn_copy_async_wait<0>();
}

template <int FORMAT> static int32_t start(nncuda_ctx *ctx, quant_product &p) {
  using L = stream_layout<FORMAT>;
  const bool gates = p.combine == NN_QUANT_SWIGLU;
  const int64_t blocks = (int64_t)nn_gpu_sms(ctx) * BLOCKS_PER_SM, most = gates ? ROWS / 2 : ROWS;
  const int64_t wanted = nn_ceil_div(quant_column_tiles(p, 1), blocks * WARPS), each = wanted < most ? wanted : most;
  const int64_t groups = quant_column_tiles(p, each), filled = nn_ceil_div(groups, WARPS);
  return nn_launch_ahead(ctx, stream_kernel<FORMAT>, dim3((unsigned)(filled < blocks ? filled : blocks)), dim3(THREADS),
                         L::codes + quant_row_codes::bytes(p.k), p, {(int32_t)each, (int32_t)groups});
}

/* Of one matrix, so that groups of three are counted in 32 bits. */
constexpr int64_t MOST_ROWS = 1 << 28;

bool quant_streams(nncuda_ctx *ctx, const quant_product &p) {
  bool streams = STREAMS && p.shared.pieces == 0 && nn_gpu_arch(ctx) >= 80 && p.m == 1 && p.offsets == nullptr && p.tokens.row_slot == nullptr &&
                 p.combined.slot_row == nullptr && p.k <= QUANT_ONE_ROW_MOST;
  for (int32_t i = 0; i < p.matrices; i++) {
    const quant_weights &matrix = p.matrix[i];
    streams = streams && !nn_is_dtype(matrix.format) && !matrix.interleaved && matrix.wide &&
              quant_same_form(matrix, p.matrix[0]) && matrix.n <= MOST_ROWS;
  }
  return streams;
}

int32_t quant_run_stream(nncuda_ctx *ctx, quant_product &p) {
  NN_SWITCH_BLOCKS(p.matrix[0].format, return (start<FORMAT>(ctx, p)));
  return NNCUDA_ERROR_INTERNAL;
}
