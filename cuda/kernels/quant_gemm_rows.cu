/*
 * Products with stored weights on the ordinary cores, a few rows of x at a time: decoding. It is bound by reading the
 * weights, once for the rows of a tile. A warp has a few rows of the weights and all of k: with a block format a lane
 * takes every 32nd part, whose whole products it leaves, with their units, in shared memory; then each sum goes through
 * the parts in order on a lane of its own.
 */
#include "kernels/quant_interleaved.cuh"
#include "kernels/quant_one_row.cuh"
#include "kernels/quant_prepare.cuh"

constexpr int THREADS = 128, WARPS = THREADS / NN_WARP;

/*
 * For M rows of x: R rows of the weights a warp, and runs of 32 parts whose loads are under way together. 8 parts a
 * lane (for M = 8: 2, which leaves registers for the sums) are 32 words under way, 4 KiB a warp; more rows a warp would
 * leave too few warps for the small matrices of a model. By count.
 */
template <int M> struct rows_shape {
  static constexpr int R = M <= 4 ? 4 : 2;
  static_assert(R * WARPS >= QUANT_LEAST_COLUMNS);
  static constexpr int RUNS = M == 1 ? 2 : 1, SUMS = R * M;
};

/* The whole product and the unit of a part, and the same of its minimum. Rows of 33 (65), so that sums meet no bank
 * twice. */
template <int M> using quant_terms = float2[2][rows_shape<M>::SUMS][rows_shape<M>::RUNS * NN_WARP + 1];

/* Rows `row` .. of a matrix of which there are `valid`. Where they lie side by side, from row `row_of_sixteen` of the
 * sixteen rows at w on; a warp's are all of one sixteen. */
struct weight_rows {
  const uint8_t *w;
  int64_t row_bytes;
  int32_t valid, row_of_sixteen;
  bool wide;

  __device__ __forceinline__ int there(int r) const { return r < valid ? r : valid - 1; }
  __device__ __forceinline__ const uint8_t *at(int r) const { return w + there(r) * row_bytes; }
};

template <int FORMAT, bool INTERLEAVED>
__device__ __forceinline__ void load_part(nn_part &to, const weight_rows &weights, int r, int32_t part) {
  if constexpr (INTERLEAVED) {
    nn_load_interleaved_part<FORMAT>(to, weights.w, weights.row_of_sixteen + weights.there(r), part);
  } else {
    nn_load_part<FORMAT>(to, weights.at(r), part);
  }
}

/* ---- sums ---- */

/* Sum number `lane` of R x M (weight row lane / M, row lane % M of x), where there is one. */
template <int FORMAT, bool INTERLEAVED, int M>
__device__ __forceinline__ float block_sums(const quant_product &p, const weight_rows &weights, const quant_rows &rows,
                                            const quant_row_codes &row_of_x, quant_terms<M> &terms) {
  using S = rows_shape<M>;
  constexpr int RUNS = INTERLEAVED ? 1 : S::RUNS; /* words that lie apart take an address each */
  const int lane = threadIdx.x % NN_WARP;
  const int32_t parts = (int32_t)(p.k / NN_PART);
  float sum = 0.0f;
  for (int32_t first = 0; first < parts; first += RUNS * NN_WARP) {
    nn_part part[RUNS][S::R];
#pragma unroll
    for (int u = 0; u < RUNS; u++) {
      const int32_t mine = first + u * NN_WARP + lane;
#pragma unroll
      for (int r = 0; r < S::R; r++) {
        load_part<FORMAT, INTERLEAVED>(part[u][r], weights, r, mine < parts ? mine : 0);
      }
    }
#pragma unroll
    for (int m = 0; m < M; m++) {
      const int64_t row = rows.first + (m < rows.count ? m : rows.count - 1);
#pragma unroll
      for (int u = 0; u < RUNS; u++) {
        const int32_t mine = first + u * NN_WARP + lane;
        const int64_t at = (M == 1 ? 0 : row * parts) + (mine < parts ? mine : 0);
        const uint4 *const from = reinterpret_cast<const uint4 *>(p.codes + at * NN_PART);
        const uint4 a = M == 1 ? row_of_x.low[at] : from[0], b = M == 1 ? row_of_x.high[at] : from[1];
        const uint32_t codes[NN_PART_WORDS] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        const quant_unit unit = M == 1 ? row_of_x.units[at] : p.units[at];
#pragma unroll
        for (int r = 0; r < S::R; r++) {
          const float product = (float)quant_part_product<FORMAT>(part[u][r], codes, unit);
          terms[0][r * M + m][u * NN_WARP + lane] = make_float2(__fmul_rn(unit.d, part[u][r].scale), product);
          if constexpr (quant_has_second<FORMAT>) {
            terms[1][r * M + m][u * NN_WARP + lane] = quant_second_term<FORMAT>(part[u][r], unit);
          }
        }
      }
    }
    __syncwarp();
    if (lane < S::SUMS) {
      const int count = parts - first < RUNS * NN_WARP ? parts - first : RUNS * NN_WARP;
#pragma unroll 8
      for (int i = 0; i < count; i++) {
        const float2 x = terms[0][lane][i];
        sum = fmaf(x.x, x.y, sum);
        if constexpr (quant_has_second<FORMAT>) {
          const float2 y = terms[1][lane][i];
          sum = fmaf(y.x, y.y, sum);
        }
      }
    }
    __syncwarp();
  }
  return sum;
}

/* Eight elements of a dtype, as they lie in memory. */
template <class F> struct eight {
  static constexpr int EACH = nn_per_16<F>;
  nn_vector<F, EACH> run[8 / EACH];

  __device__ __forceinline__ void load(const uint8_t *from) {
#pragma unroll
    for (int i = 0; i < 8 / EACH; i++) {
      run[i] = nn_load_raw<EACH>(reinterpret_cast<const F *>(from) + i * EACH);
    }
  }
  __device__ __forceinline__ float operator[](int e) const { return nn_to_float(run[e / EACH].x[e % EACH]); }
};

/* The same of weights that are of a dtype. X is the type of x, each number of which is rounded to F: f32 where it comes
 * as it is. */
template <class F, class X, int M>
__device__ __forceinline__ float dtype_sums(const quant_product &p, const weight_rows &weights, const quant_rows &rows,
                                            const void *of, int64_t first, bool x_wide) {
  using S = rows_shape<M>;
  constexpr int64_t SIZE = sizeof(F), X_SIZE = sizeof(X);
  const int lane = threadIdx.x % NN_WARP;
  const uint8_t *const x_rows = static_cast<const uint8_t *>(of) + first * p.k * X_SIZE;
  const auto x_at = [&](int m) { return x_rows + (m < rows.count ? m : rows.count - 1) * p.k * X_SIZE; };
  const bool wide = weights.wide && x_wide;
  float sums[S::R][M] = {};
  for (int64_t i = lane * 8; i < p.k; i += NN_WARP * 8) {
    if (wide && i + 8 <= p.k) { /* all loads, then all conversions */
      eight<F> w[S::R];
      eight<X> x[M];
#pragma unroll
      for (int r = 0; r < S::R; r++) {
        w[r].load(weights.at(r) + i * SIZE);
      }
#pragma unroll
      for (int m = 0; m < M; m++) {
        x[m].load(x_at(m) + i * X_SIZE);
      }
#pragma unroll
      for (int r = 0; r < S::R; r++) {
#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll
          for (int e = 0; e < 8; e++) {
            sums[r][m] = fmaf(nn_rounded<F>(x[m][e]), w[r][e], sums[r][m]);
          }
        }
      }
      continue;
    }
#pragma unroll 1
    for (int64_t e = i; e < i + 8; e++) { /* zeros past the end */
      float w[S::R];
#pragma unroll
      for (int r = 0; r < S::R; r++) {
        w[r] = e < p.k ? nn_number_at<F>(weights.at(r) + e * SIZE) : 0.0f;
      }
#pragma unroll
      for (int m = 0; m < M; m++) {
        const float x = e < p.k ? nn_rounded<F>(nn_number_at<X>(x_at(m) + e * X_SIZE)) : 0.0f;
#pragma unroll
        for (int r = 0; r < S::R; r++) {
          sums[r][m] = fmaf(x, w[r], sums[r][m]);
        }
      }
    }
  }
  float mine = 0.0f;
#pragma unroll
  for (int r = 0; r < S::R; r++) {
#pragma unroll
    for (int m = 0; m < M; m++) {
      const float whole = nn_warp_sum(sums[r][m]);
      mine = lane == r * M + m ? whole : mine;
    }
  }
  return mine;
}

/* Stands for whatever format a matrix has: for a gate and an up that have not the same. */
constexpr int ANY_FORMAT = -1;

template <class F, int M>
__device__ __forceinline__ float dtype_sums_of(const quant_product &p, const weight_rows &weights,
                                               const quant_rows &rows, int32_t format) {
  if constexpr (M == 1) {
    if (p.raw != nullptr) {
      const int64_t token = p.tokens.of(rows.first);
      return token < 0 ? 0.0f : dtype_sums<F, float, M>(p, weights, rows, p.raw, token, true);
    }
  }
  return dtype_sums<F, F, M>(p, weights, rows, p.x[format], rows.first, p.x_wide[format]);
}

template <int FORMAT, bool INTERLEAVED, int M>
__device__ __forceinline__ float sums_in(const quant_product &p, const weight_rows &weights, const quant_rows &rows,
                                         const quant_row_codes &codes, quant_terms<M> &terms) {
  if constexpr (FORMAT == NNCUDA_FORMAT_F32) {
    return dtype_sums_of<float, M>(p, weights, rows, FORMAT);
  } else if constexpr (FORMAT == NNCUDA_FORMAT_F16) {
    return dtype_sums_of<nn_f16, M>(p, weights, rows, FORMAT);
  } else if constexpr (FORMAT == NNCUDA_FORMAT_BF16) {
    return dtype_sums_of<nn_bf16, M>(p, weights, rows, FORMAT);
  } else {
    return block_sums<FORMAT, INTERLEAVED, M>(p, weights, rows, codes, terms);
  }
}

/* Runs `statement` with FORMAT and INTERLEAVED the form of a matrix. */
#define SWITCH_FORMS(matrix, ...)                                                                                      \
  if ((matrix).interleaved) {                                                                                          \
    constexpr bool INTERLEAVED = true;                                                                                 \
    NN_SWITCH_BLOCKS((matrix).format, __VA_ARGS__)                                                                     \
  } else {                                                                                                             \
    constexpr bool INTERLEAVED = false;                                                                                \
    NN_SWITCH_BLOCKS((matrix).format, __VA_ARGS__)                                                                     \
    switch ((matrix).format) {                                                                                         \
      NN_BLOCK_CASE(NNCUDA_FORMAT_F32, __VA_ARGS__)                                                                    \
      NN_BLOCK_CASE(NNCUDA_FORMAT_F16, __VA_ARGS__)                                                                    \
      NN_BLOCK_CASE(NNCUDA_FORMAT_BF16, __VA_ARGS__)                                                                   \
    default:                                                                                                           \
      break;                                                                                                           \
    }                                                                                                                  \
  }

template <int FORM, bool SIDE_BY_SIDE, int M>
__device__ __forceinline__ float sums_of(const quant_product &p, int which, int64_t column, const quant_rows &rows,
                                         const quant_row_codes &codes, quant_terms<M> &terms) {
  const quant_weights &matrix = p.matrix[which];
  const int64_t remaining = matrix.n - column, first = rows.group * matrix.n + column;
  const int32_t row_of_sixteen = matrix.interleaved ? (int32_t)(first % NN_INTERLEAVED_ROWS) : 0;
  const weight_rows weights = {matrix.w + (first - row_of_sixteen) * matrix.row_bytes, matrix.row_bytes,
                               (int32_t)(remaining < rows_shape<M>::R ? remaining : rows_shape<M>::R), row_of_sixteen,
                               matrix.wide};
  if constexpr (FORM == ANY_FORMAT) {
    SWITCH_FORMS(matrix, return (sums_in<FORMAT, INTERLEAVED, M>(p, weights, rows, codes, terms)));
    return 0.0f; /* there is no other format */
  } else {
    return sums_in<FORM, SIDE_BY_SIDE, M>(p, weights, rows, codes, terms);
  }
}

/* Brings the first lines of a warp's rows of the weights to the second cache: no kernel writes them, and so it is done
 * while the kernels before still run. 4 KiB a row are all of it for most models. By count. */
template <int R> __device__ __forceinline__ void prefetch_weights(const quant_product &p, int which, int64_t columns) {
  constexpr int64_t LINE = 128, MOST = 4096;
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  for (int i = 0; i <= p.combine; i++) {
    const quant_weights &matrix = p.matrix[which + i];
    const int64_t first = ((int64_t)blockIdx.x - matrix.first_tile) * columns + warp * R;
    const int64_t bytes = matrix.row_bytes < MOST ? matrix.row_bytes : MOST;
    for (int r = 0; r < R && first + r < matrix.n; r++) {
      for (int64_t at = lane * LINE; at < bytes; at += NN_WARP * LINE) {
        nn_prefetch(matrix.w + (first + r) * matrix.row_bytes + at);
      }
    }
  }
}

/* Columns of all tokens, by the block that is the last one to have made some of them. */
__device__ __forceinline__ void combine_columns(const quant_product &p, int64_t first, int64_t columns) {
  const quant_combine &to = p.combined;
  const float *const rows = static_cast<const float *>(p.y);
  constexpr int AHEAD = 4;
  for (int64_t i = threadIdx.x; i < to.tokens * columns; i += THREADS) {
    const int64_t token = i / columns, column = first + i % columns, slots = token * to.each;
    float sum = 0.0f;
    for (int64_t j = 0; j < to.each; j += AHEAD) {
      int32_t row[AHEAD];
      float value[AHEAD], weight[AHEAD];
#pragma unroll
      for (int n = 0; n < AHEAD; n++) {
        row[n] = j + n < to.each ? to.slot_row[slots + j + n] : -1;
        const bool there = row[n] >= 0 && row[n] <= to.rows.high;
        value[n] = there ? nn_from_others(rows + row[n] * p.n + column) : 0.0f;
        weight[n] = there ? to.weights[slots + j + n] : 0.0f;
      }
#pragma unroll
      for (int n = 0; n < AHEAD; n++) {
        if (row[n] != -1 && to.rows.holds(slots + j + n, row[n])) {
          sum = fmaf(weight[n], value[n], sum);
        }
      }
    }
    const int64_t at = token * p.n + column;
    to.out[at] = to.residual == nullptr ? sum : to.residual[at] + sum;
  }
}

/* A kernel has one form of weights, and the registers that it takes: not those of the widest of all. More than one
 * block a multiprocessor is not asked for: ptxas would make room for it by loading a few words at a time. */
// Weights in f16 (NNCUDA_FORMAT_F16, 1), q4_0 (10) and q8_0 (14), with one row of x:
// sass: rows_kernel<1, false, 1> on sm_90: at least 4 LDG.128 under way, at most 112 registers
// sass: rows_kernel<10, false, 1> on sm_90: at least 44 LDG under way, at most 144 registers
// sass: rows_kernel<14, false, 1> on sm_90: at least 80 LDG under way, at most 168 registers
template <int FORM, bool SIDE_BY_SIDE, int M>
__global__ void __launch_bounds__(THREADS, 1) rows_kernel(quant_product p, int64_t row_tiles) {
  using S = rows_shape<M>;
  NN_SHARED_BYTES(shared); /* where a matrix is in blocks */
  quant_terms<M> *const terms = reinterpret_cast<quant_terms<M> *>(shared);
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  nn_let_next_start();
  if (p.offsets == nullptr) {
    prefetch_weights<S::R>(p, quant_matrix_of(p, blockIdx.x), WARPS * S::R);
  }
  nn_wait_for_kernels();
  p.check_offsets();
  quant_prepare_rows<THREADS>(p);
  const int which = quant_matrix_of(p, blockIdx.x);
  const quant_weights &matrix = p.matrix[which];
  const int64_t column = ((int64_t)blockIdx.x - matrix.first_tile) * (WARPS * S::R) + warp * S::R;
  constexpr bool FETCHES = M == 1 && FORM >= NNCUDA_FORMAT_Q4_0; /* then its warps meet at barriers */
  const quant_row_codes codes(shared + WARPS * sizeof *terms, p.k / NN_PART);
  const bool combines = p.combined.slot_row != nullptr;
  __shared__ int last;
  if (!FETCHES && !combines && column >= matrix.n) {
    return;
  }
  for (int64_t tile = blockIdx.y; tile < row_tiles; tile += gridDim.y) {
    quant_rows rows;
    if (!quant_find<M>(p, tile, rows)) {
      break;
    }
    if constexpr (FETCHES) {
      quant_fetch_row<THREADS>(p, rows.first, codes);
      __syncthreads();
    }
    float sum = 0.0f, gate = 0.0f;
#pragma unroll 1
    for (int i = 0; i <= p.combine && column < matrix.n; i++) { /* the gate, then the other factor */
      gate = sum;
      sum = sums_of<FORM, SIDE_BY_SIDE, M>(p, which + i, column, rows, codes, terms[warp]);
    }
    if (p.combine == NN_QUANT_SWIGLU) {
      sum *= quant_silu(gate);
    }
    const int r = lane / M, m = lane % M;
    if (lane < S::SUMS && column + r < matrix.n && m < rows.count) {
      quant_finish(p, rows.first + m, matrix.column + column + r, sum);
    }
    if constexpr (FETCHES) {
      __syncthreads(); /* the codes have been used */
    }
  }
  if (combines) {
    if (nn_is_last_block(p.combined.arrivals + blockIdx.x, gridDim.y, &last)) {
      const int64_t first = (int64_t)blockIdx.x * (WARPS * S::R), left = matrix.n - first;
      combine_columns(p, first, left < WARPS * S::R ? left : WARPS * S::R);
    }
  }
}

template <int FORM, bool SIDE_BY_SIDE, int M> static int32_t start(nncuda_ctx *ctx, quant_product &p) {
  const int64_t across = quant_column_tiles(p, WARPS * rows_shape<M>::R), down = quant_row_tiles<M>(p), most = 65535;
  const size_t terms = FORM == ANY_FORMAT           ? (p.codes == nullptr ? 0 : WARPS * sizeof(quant_terms<M>))
                       : FORM >= NNCUDA_FORMAT_Q4_0 ? WARPS * sizeof(quant_terms<M>)
                                                    : 0;
  return nn_launch_ahead(ctx, rows_kernel<FORM, SIDE_BY_SIDE, M>,
                         dim3((unsigned)across, (unsigned)(down < most ? down : most)), dim3(THREADS),
                         terms + (M == 1 && terms > 0 ? quant_row_codes::bytes(p.k) : 0), p, down);
}

/* All matrices have one form. */
template <int M> static int32_t run_form(nncuda_ctx *ctx, quant_product &p) {
  SWITCH_FORMS(p.matrix[0], return (start<FORMAT, INTERLEAVED, M>(ctx, p)));
  return NNCUDA_ERROR_INTERNAL;
}

int32_t quant_run_rows(nncuda_ctx *ctx, quant_product &p, int64_t rows) {
  if (p.combine == NN_QUANT_SWIGLU && !quant_same_form(p.matrix[0], p.matrix[1])) {
    return start<ANY_FORMAT, false, 4>(ctx, p); /* how many rows share a read decides no bits */
  }
  return rows <= 1 && p.k <= QUANT_ONE_ROW_MOST ? run_form<1>(ctx, p)
         : rows <= 2                            ? run_form<2>(ctx, p)
         : rows <= 4                            ? run_form<4>(ctx, p)
                                                : run_form<8>(ctx, p);
}
