/*
 * From the sums of a warp, 16 rows, to C: of gemm_wgmma.cuh.
 *
 * Most go by boxes of 128 bytes of each row, which the copy engine takes to C. What a product reads for them, C as it
 * was where beta is not 0, and the residual, the producer loads through the ring behind the last factors of the tile:
 * it is there, or under way, when the products end, so that no box waits for a load of its own. The bias is loaded
 * before the products begin, 4 bytes of every eighth of 8 columns a lane.
 *
 * Pieces of k, the last rows of a group, what is not made of runs of 16 bytes, and activations, whose code would be
 * there once for each element of a lane, go by way of sums in shared memory. The arithmetic is that of gemm_finish: the
 * same bits.
 */
#ifndef NN_KERNELS_GEMM_WGMMA_FINISH_CUH
#define NN_KERNELS_GEMM_WGMMA_FINISH_CUH

#include "kernels/gemm_wgmma_tile.cuh"

/* Two neighbouring elements of C in a lane: how they lie in a box, and in registers. */
template <class C> struct gemm_wgmma_pair;
template <> struct gemm_wgmma_pair<float> {
  using word = float2;
  static __device__ __forceinline__ float2 widen(float2 x) { return x; }
};
template <> struct gemm_wgmma_pair<nn_f16> {
  using word = uint32_t;
  static __device__ __forceinline__ float2 widen(uint32_t x) {
    return make_float2(nn_f16_to_f32((uint16_t)x), nn_f16_to_f32((uint16_t)(x >> 16)));
  }
};
template <> struct gemm_wgmma_pair<nn_bf16> {
  using word = uint32_t;
  static __device__ __forceinline__ float2 widen(uint32_t x) {
    return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
  }
};

/* The bias of a tile's columns: lane 4g + t has pair t of the groups of 8 columns g, g + 8, and so on. */
template <int BN> struct gemm_wgmma_bias {
  static constexpr int PAIRS = BN / 64;
  float2 pairs[PAIRS];

  template <class C> __device__ __forceinline__ void load(const gemm_problem &p, const gemm_place &place) {
    using word = typename gemm_wgmma_pair<C>::word;
    const int lane = threadIdx.x % NN_WARP;
    const C *const from = static_cast<const C *>(p.bias) + place.column;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
      const int32_t column = 64 * i + 8 * (lane / 4) + 2 * (lane % 4);
      pairs[i] = column < place.columns ? gemm_wgmma_pair<C>::widen(*reinterpret_cast<const word *>(from + column))
                                        : make_float2(0.0f, 0.0f);
    }
  }
  /* Of this lane's pair among the columns 8 * group .. 8 * group + 7. A whole warp calls it. */
  __device__ __forceinline__ float2 of(int group) const {
    const int lane = group % 8 * 4 + threadIdx.x % 4;
    return make_float2(__shfl_sync(NN_ALL_LANES, pairs[group / 8].x, lane),
                       __shfl_sync(NN_ALL_LANES, pairs[group / 8].y, lane));
  }
};

/* alpha, beta, bias and residual for pairs of elements, as gemm_finish has them for one. PLAIN: alpha
 * alone. */
template <bool PLAIN, int N>
__device__ __forceinline__ void gemm_wgmma_apply(const gemm_problem &p, const gemm_wgmma_way &way, float2 (&x)[N],
                                                 const float2 (&old)[N], const float2 (&bias)[N],
                                                 const float2 (&residual)[N]) {
#pragma unroll
  for (float2 &pair : x) {
    pair = make_float2(__fmul_rn(pair.x, p.alpha), __fmul_rn(pair.y, p.alpha));
  }
  if constexpr (!PLAIN) {
    if (way.old_c) {
#pragma unroll
      for (int i = 0; i < N; i++) {
        x[i] = make_float2(fmaf(p.beta, old[i].x, x[i].x), fmaf(p.beta, old[i].y, x[i].y));
      }
    }
    if (p.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < N; i++) {
        x[i] = make_float2(__fadd_rn(x[i].x, bias[i].x), __fadd_rn(x[i].y, bias[i].y));
      }
    }
    if (way.residual) {
#pragma unroll
      for (int i = 0; i < N; i++) {
        x[i] = make_float2(__fadd_rn(x[i].x, residual[i].x), __fadd_rn(x[i].y, residual[i].y));
      }
    }
  }
}

/*
 * A box of a warp, from registers to shared memory. `sum`: its elements as the products leave them, in groups of 8
 * columns: rows g and g + 8, columns 2t and 2t + 1. `old` and `residual`: row 0 of what was loaded for the warp's box;
 * rows are 128 bytes everywhere, swizzled.
 */
template <class C, bool PLAIN>
__device__ __forceinline__ void gemm_wgmma_box(const gemm_problem &p, const gemm_wgmma_way &way, const float *sum,
                                               unsigned char *to, const unsigned char *old,
                                               const unsigned char *residual, const float2 *bias) {
  const int lane = threadIdx.x % NN_WARP;
  if constexpr (sizeof(C) == 2) {
    /* Matrix lane / 8 of 8 x 8: rows 0 to 7 or 8 to 15, the 16 bytes of the left or the right 8 of 16 columns. */
    const uint32_t own = (lane / 8 % 2 * 8 + lane % 8) * 128, right = lane / 16, swizzle = lane % 8;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t at = own + ((2 * i + right) ^ swizzle) * 16;
      uint32_t was[4] = {}, more[4] = {}, pairs[4];
      if (!PLAIN && way.old_c) {
        nn_ldmatrix_x4(was, nn_shared_address(old) + at);
      }
      if (!PLAIN && way.residual) {
        nn_ldmatrix_x4(more, nn_shared_address(residual) + at);
      }
      float2 x[4], a[4], b[4], c[4];
#pragma unroll
      for (int m = 0; m < 4; m++) { /* of the left 8 columns, rows g and g + 8, then of the right 8 */
        x[m] = make_float2(sum[8 * i + 2 * m], sum[8 * i + 2 * m + 1]);
        a[m] = gemm_wgmma_pair<C>::widen(was[m]);
        b[m] = bias[2 * i + m / 2];
        c[m] = gemm_wgmma_pair<C>::widen(more[m]);
      }
      gemm_wgmma_apply<PLAIN>(p, way, x, a, b, c);
#pragma unroll
      for (int m = 0; m < 4; m++) {
        pairs[m] = nn_pair<C>(x[m].x, x[m].y);
      }
      nn_stmatrix_x4(nn_shared_address(to) + at, pairs);
    }
  } else {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int at = g * 128 + ((2 * i + t / 2) ^ g) * 16 + t % 2 * 8;
      float2 x[2], a[2] = {}, b[2] = {bias[i], bias[i]}, c[2] = {};
#pragma unroll
      for (int half = 0; half < 2; half++) {
        x[half] = make_float2(sum[4 * i + 2 * half], sum[4 * i + 2 * half + 1]);
        if (!PLAIN && way.old_c) {
          a[half] = *reinterpret_cast<const float2 *>(old + at + half * 8 * 128);
        }
        if (!PLAIN && way.residual) {
          c[half] = *reinterpret_cast<const float2 *>(residual + at + half * 8 * 128);
        }
      }
      gemm_wgmma_apply<PLAIN>(p, way, x, a, b, c);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        *reinterpret_cast<float2 *>(to + at + half * 8 * 128) = x[half];
      }
    }
  }
}

/*
 * The sums of a warp to C by boxes. A box leaves while the next one is written, and the last two while the next tile is
 * multiplied. `place_of_box`: which of its two places the next box takes, from tile to tile. `puts`: whether the warp
 * has rows that go so; the ring is emptied all the same.
 */
template <class C, class TILE>
__device__ __forceinline__ void
gemm_wgmma_store(const gemm_problem &p, const gemm_place &place, const gemm_wgmma_way &way, const CUtensorMap *map_c,
                 int32_t row, const float (&sum)[TILE::BN / 2], const gemm_wgmma_bias<TILE::BN> &bias, bool puts,
                 unsigned char *memory, const gemm_wgmma_barriers<TILE> &barriers, gemm_ring<TILE::STAGES> &ring,
                 uint32_t &place_of_box) {
  constexpr int WIDTH = 128 / sizeof(C), GROUPS = WIDTH / 8, PER_STAGE = TILE::OLD_BOXES;
  const int lane = threadIdx.x % NN_WARP;
  const int32_t in_c = (int32_t)place.row + row + (p.ragged == NN_GEMM_RAGGED_M ? (int32_t)place.first : 0);
  const int32_t product = p.ragged == NN_GEMM_RAGGED_M ? 0 : (int32_t)place.product;
  unsigned char *const own = memory + TILE::C_AT + row / 16 * TILE::C_BYTES;
  const unsigned char *old[2] = {}; /* boxes of this stage: of C, of the residual */
  int32_t stages[2] = {};
#pragma unroll
  for (int j = 0; j < TILE::BN / WIDTH; j++) {
    if (WIDTH * j < place.columns) {
      if (j % PER_STAGE == 0) {
#pragma unroll
        for (int which = 0; which < 2; which++) {
          if (which == 0 ? way.old_c : way.residual) {
            nn_mbarrier_wait(barriers.full + 8 * ring.stage, ring.parity);
            stages[which] = ring.stage;
            old[which] = memory + ring.stage * TILE::STAGE_BYTES + row * 128;
            ring.advance();
          }
        }
      }
      if (puts) {
        unsigned char *const box = own + place_of_box * TILE::C_BOX;
        place_of_box ^= 1;
        if (lane == 0) {
          nn_tensor_store_wait<1>();
        }
        __syncwarp();
        float2 some[GROUPS] = {};
        const float *const from = sum + j * GROUPS * 4;
        if (way.plain) {
          gemm_wgmma_box<C, true>(p, way, from, box, nullptr, nullptr, some);
        } else {
          if (p.bias != nullptr) {
#pragma unroll
            for (int i = 0; i < GROUPS; i++) {
              some[i] = bias.of(GROUPS * j + i);
            }
          }
          gemm_wgmma_box<C, false>(p, way, from, box, old[0] + j % PER_STAGE * TILE::OLD_BOX,
                                   old[1] + j % PER_STAGE * TILE::OLD_BOX, some);
        }
        nn_fence_async_shared();
        __syncwarp();
        if (lane == 0) {
          nn_tensor_store(map_c, nn_shared_address(box), (int32_t)place.column + WIDTH * j, in_c, product);
          nn_tensor_store_commit();
        }
      }
      if (way.reads() != 0 && (j % PER_STAGE == PER_STAGE - 1 || WIDTH * (j + 1) >= place.columns)) {
        __syncwarp();
        if (way.old_c) {
          barriers.give_back(stages[0]);
        }
        if (way.residual) {
          barriers.give_back(stages[1]);
        }
      }
    }
  }
}

/* The sums of a warp to C or to `partial`, with all that a product may do to them, by way of shared memory. */
template <class T, class TILE, int GATE>
__device__ __forceinline__ void gemm_wgmma_put(const gemm_problem &p, const gemm_place &place, int32_t row,
                                               const float (&sum)[TILE::BN / 2], float *sums) {
  constexpr int COLUMNS = gemm_columns<GATE, TILE::CHUNK>; /* of a chunk; where it is less, ups follow as many gates */
  constexpr int LANES = COLUMNS / 8, ROWS = NN_WARP / LANES;
  const int lane = threadIdx.x % NN_WARP, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < TILE::BN / TILE::CHUNK; j++) {
#pragma unroll
    for (int i = 0; i < TILE::CHUNK / 8; i++) {
      const int group = i < LANES ? j * LANES + i : TILE::BN / 16 + j * LANES + i - LANES;
      const float *from = sum + group * 4;
      *reinterpret_cast<float2 *>(sums + g * TILE::SUMS_LD + 8 * i + 2 * t) = make_float2(from[0], from[1]);
      *reinterpret_cast<float2 *>(sums + (g + 8) * TILE::SUMS_LD + 8 * i + 2 * t) = make_float2(from[2], from[3]);
    }
    __syncwarp();
#pragma unroll 1 /* registers are full of sums */
    for (int r = lane / LANES; r < 16; r += ROWS) {
      const float *from = sums + r * TILE::SUMS_LD + lane % LANES * 8;
      const float4 u = *reinterpret_cast<const float4 *>(from), v = *reinterpret_cast<const float4 *>(from + 4);
      const float x[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
      const int32_t column = j * COLUMNS + lane % LANES * 8;
      if constexpr (GATE == GEMM_SWIGLU) {
        gemm_put_swiglu_any<T, 8>(p, place, row + r, column, x, from + COLUMNS);
      } else if constexpr (GATE == GEMM_SWIGLU_BACKWARD) {
        gemm_put_slopes_any<T>(p, place, row + r, column, x);
      } else {
        gemm_put<T>(p, place, row + r, column, x);
      }
    }
    __syncwarp();
  }
}

#endif
