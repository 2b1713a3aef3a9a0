#include "kernels/number.cuh"
#include "kernels/rope_workspace.h"

constexpr int THREADS = 256, BLOCKS_PER_SM = 8; /* by count */

/* ---- tables ---- */

/* What a position is multiplied by for the angle of each pair. Without factors, and with a scale of 1, nothing rounds
 * besides the power. */
__global__ void __launch_bounds__(THREADS)
    frequency_kernel(double *frequency, const float *factors, int64_t half, double head_dim, double base,
                     double ntk_alpha, double scale, nn_rule rule) {
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i < half) {
    const double b = ntk_alpha == 1.0 ? base : base * pow(ntk_alpha, head_dim / (head_dim - 2.0));
    const double factor = factors == nullptr ? 1.0 : (double)factors[i];
    if (!(factor > 0.0 && factor <= 3.402823466385288598e38)) {
      rule.broken(i, factor);
    }
    frequency[i] = scale * pow(b, -2.0 * (double)i / head_dim) / factor;
  }
}

/*
 * Cosine and sine of an angle in f64: those of pi * t, where t is angle / pi less the nearest even number. The quotient
 * is taken to twice the precision of f64, for of a large angle only the last bits matter.
 */
__device__ __forceinline__ void circle(double angle, double *cosine, double *sine) {
  const double per_pi = 0x1.45f306dc9c883p-2, rest = -0x1.6b01ec5417056p-56; /* 1 / pi */
  const double high = angle * per_pi, low = fma(angle, rest, fma(angle, per_pi, -high));
  const double turns = 2.0 * rint(0.5 * high);
  sincospi(high - turns + low, sine, cosine);
}

__global__ void __launch_bounds__(THREADS)
    freqs_kernel(const double *frequency, float *cosine, float *sine, int64_t first, int64_t n, int64_t half) {
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
    double c, s;
    circle((double)(first + i / half) * frequency[i % half], &c, &s);
    cosine[i] = (float)c;
    sine[i] = (float)s;
  }
}

static int32_t make_tables(nncuda_ctx *ctx, const nn_rope_freqs_scaled_args &a) {
  const int64_t half = a.head_dim / 2, n = a.positions * half;
  double *frequency = nn_rope_lay_out(a.head_dim, nn_workspace_of(ctx));
  const int32_t status = nn_launch(ctx, frequency_kernel, dim3((unsigned)nn_ceil_div(half, THREADS)), dim3(THREADS), 0,
                                   frequency, a.factors, half, (double)a.head_dim, a.base, a.ntk_alpha, a.scale,
                                   nn_rule_of(ctx, "factors", "finite and above 0"));
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  return nn_launch(ctx, freqs_kernel, dim3(nn_blocks(ctx, n, THREADS, BLOCKS_PER_SM)), dim3(THREADS), 0,
                   static_cast<const double *>(frequency), a.cosine, a.sine, a.first, n, half);
}

NN_KERNEL(rope_freqs) {
  return make_tables(ctx,
                     {nullptr, a->cosine, a->sine, a->first, a->positions, a->head_dim, a->base, a->ntk_alpha, 1.0});
}

NN_KERNEL(rope_freqs_scaled) { return make_tables(ctx, *a); }

/* ---- rotation ---- */

/* Heads that are rotated by their token's angles. */
struct heads {
  const void *x;
  void *y; /* may be x */
  int64_t ld_x, ld_y, count;
};

struct rotation {
  heads q, k; /* q's first, then k's; k may have none */
  const float *cosine, *sine;
  const int32_t *positions;
  int64_t head_dim, work; /* work: pieces in all */
  float direction;        /* -1 rotates by the opposite angle */
};

/* N pairs' cosines and sines. */
template <bool WIDE, int N> __device__ __forceinline__ void load_table(float (&to)[N], const float *from) {
  constexpr int each = WIDE ? N < 4 ? N : 4 : 1;
#pragma unroll
  for (int i = 0; i < N; i += each) {
    float some[each];
    nn_load(some, from + i);
#pragma unroll
    for (int e = 0; e < each; e++) {
      to[i + e] = some[e];
    }
  }
}

/*
 * A thread takes a piece of one head: in the half layout N elements of its first half and the N that they are paired
 * with, in the interleaved one N elements, which are N/2 pairs. WIDE: 16 bytes; else one pair. The tables come from the
 * first cache for all heads of a token but the first. INDEX is 32 bits wide where the pieces can be counted so, since
 * divisions by 64 bits would cost more than all the rest.
 */
template <class T, class INDEX, bool HALF, bool WIDE>
__global__ void __launch_bounds__(THREADS) rotate_kernel(rotation a, nn_range positions) {
  constexpr int N = WIDE ? nn_per_16<T> : HALF ? 1 : 2;
  const INDEX across = (INDEX)((HALF ? a.head_dim / 2 : a.head_dim) / N);
  const INDEX row = across * (INDEX)(a.q.count + a.k.count);
  const int64_t half = a.head_dim / 2;
  for (INDEX i = (INDEX)blockIdx.x * THREADS + threadIdx.x; i < (INDEX)a.work; i += (INDEX)gridDim.x * THREADS) {
    const INDEX token = i / row, head = i % row / across, column = i % across * N;
    const int64_t position = a.positions[token];
    if (!positions.holds(token, position)) {
      continue;
    }
    const bool is_q = head < (INDEX)a.q.count;
    const heads h = is_q ? a.q : a.k;
    const int64_t begin = (int64_t)(is_q ? head : head - (INDEX)a.q.count) * a.head_dim + column;
    const T *x = static_cast<const T *>(h.x) + (int64_t)token * h.ld_x + begin;
    T *y = static_cast<T *>(h.y) + (int64_t)token * h.ld_y + begin;
    if constexpr (HALF) {
      float u[N], v[N], c[N], s[N];
      nn_load(u, x);
      nn_load(v, x + half);
      load_table<WIDE>(c, a.cosine + position * half + column);
      load_table<WIDE>(s, a.sine + position * half + column);
#pragma unroll
      for (int e = 0; e < N; e++) {
        const float sine = s[e] * a.direction, first = u[e];
        u[e] = fmaf(first, c[e], -__fmul_rn(v[e], sine));
        v[e] = fmaf(v[e], c[e], __fmul_rn(first, sine));
      }
      nn_store(y, u);
      nn_store(y + half, v);
    } else {
      float x_pairs[N], c[N / 2], s[N / 2];
      if constexpr (WIDE) {
        nn_load(x_pairs, x);
      } else {
        x_pairs[0] = nn_to_float(x[0]);
        x_pairs[1] = nn_to_float(x[1]);
      }
      load_table<WIDE>(c, a.cosine + position * half + column / 2);
      load_table<WIDE>(s, a.sine + position * half + column / 2);
#pragma unroll
      for (int e = 0; e < N / 2; e++) {
        const float sine = s[e] * a.direction, u = x_pairs[2 * e], v = x_pairs[2 * e + 1];
        x_pairs[2 * e] = fmaf(u, c[e], -__fmul_rn(v, sine));
        x_pairs[2 * e + 1] = fmaf(v, c[e], __fmul_rn(u, sine));
      }
      if constexpr (WIDE) {
        nn_store(y, x_pairs);
      } else {
        y[0] = nn_from_float<T>(x_pairs[0]);
        y[1] = nn_from_float<T>(x_pairs[1]);
      }
    }
  }
}

template <class T, bool HALF, bool WIDE>
static int32_t rotate_launch(nncuda_ctx *ctx, rotation a, int64_t tokens, int64_t max_position) {
  const int64_t each = WIDE ? nn_per_16<T> : HALF ? 1 : 2;
  a.work = tokens * (a.q.count + a.k.count) * ((HALF ? a.head_dim / 2 : a.head_dim) / each);
  const unsigned blocks = nn_blocks(ctx, a.work, THREADS, BLOCKS_PER_SM);
  const nn_range positions = nn_range_of(ctx, "positions", 0, max_position - 1);
  const bool narrow = a.work + (int64_t)blocks * THREADS <= UINT32_MAX; /* the last step must not wrap */
  return nn_launch(ctx, narrow ? rotate_kernel<T, uint32_t, HALF, WIDE> : rotate_kernel<T, uint64_t, HALF, WIDE>,
                   dim3(blocks), dim3(THREADS), 0, a, positions);
}

/* Whether all pieces of the heads lie on multiples of 16 bytes. */
static bool wide(const heads &h, int64_t each) {
  return h.count == 0 || (nn_aligned_16(h.x, h.y) && h.ld_x % each == 0 && h.ld_y % each == 0);
}

static int32_t rotate(nncuda_ctx *ctx, const rotation &a, int64_t tokens, int64_t max_position, int32_t layout,
                      int32_t dtype) {
  const bool halves = layout == NNCUDA_ROPE_HALF;
  const int64_t each = dtype == NNCUDA_F32 ? 4 : 8, run = halves ? a.head_dim / 2 : a.head_dim;
  if (run % each == 0 && wide(a.q, each) && wide(a.k, each) && nn_aligned_16(a.cosine, a.sine)) {
    NN_SWITCH_FLOATS(dtype, return (halves ? rotate_launch<T, true, true>(ctx, a, tokens, max_position)
                                           : rotate_launch<T, false, true>(ctx, a, tokens, max_position)));
  }
  NN_SWITCH_FLOATS(dtype, return (halves ? rotate_launch<T, true, false>(ctx, a, tokens, max_position)
                                         : rotate_launch<T, false, false>(ctx, a, tokens, max_position)));
}

static int32_t rotate_one(nncuda_ctx *ctx, const nn_rope_forward_args *a, float direction) {
  const rotation r = {
      {a->x, a->y, a->ld_x, a->ld_y, a->heads}, {}, a->cosine, a->sine, a->positions, a->head_dim, 0, direction};
  return rotate(ctx, r, a->tokens, a->max_position, a->layout, a->dtype);
}

NN_KERNEL(rope_forward) { return rotate_one(ctx, a, 1.0f); }

NN_KERNEL(rope_backward) { return rotate_one(ctx, a, -1.0f); }

NN_KERNEL(rope_qk) {
  const rotation r = {{a->q, a->q, a->ld_q, a->ld_q, a->heads},
                      {a->k, a->k, a->ld_k, a->ld_k, a->kv_heads},
                      a->cosine,
                      a->sine,
                      a->positions,
                      a->head_dim,
                      0,
                      1.0f};
  return rotate(ctx, r, a->tokens, a->max_position, a->layout, a->dtype);
}
