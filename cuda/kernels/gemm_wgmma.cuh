/*
 * Products on Hopper's tensor cores (wgmma, sm_90a): f16 and bf16 whose rows are runs of 16 bytes.
 *
 * One block a multiprocessor walks the tiles of 128 x BN. A warp of its first warpgroup has the copy engine bring boxes
 * of A and B into a ring of stages in shared memory; the two other warpgroups multiply, 64 rows each, straight from
 * there, whichever way the factors lie. While they finish a tile, the ring fills with the next one.
 */
#ifndef NN_KERNELS_GEMM_WGMMA_CUH
#define NN_KERNELS_GEMM_WGMMA_CUH

#include "kernels/gemm.cuh"
#include "kernels/tensormap.cuh"
#include "kernels/wgmma_kernel.cuh"

/*
 * 128 x 256 is the largest tile whose sums fit the registers: it reads 1.5 bytes of shared memory for 128 products,
 * which leaves the tensor cores the limit. 128 x 128 serves products with few tiles. The ring takes 192 KiB, the rest
 * of shared memory is for sums on their way to C. setmaxnreg: 128 * 40 + 256 * 232 = 64512 registers. By count, not
 * measured on a GPU yet.
 */
template <int BN_> struct gemm_wgmma_tile {
  static constexpr int BM = 128, BN = BN_, BK = 64, CONSUMERS = 2, WARPS = 4 * CONSUMERS;
  static constexpr int BOX = 64 * 128; /* 64 rows of 128 bytes: what repeats along the side that is not k */
  static constexpr int A_BYTES = BM / 64 * BOX, STAGE_BYTES = A_BYTES + BN / 64 * BOX, STAGES = 196608 / STAGE_BYTES;
  static constexpr int CHUNK = 32, SUMS_LD = CHUNK + 8; /* columns of sums that a warp writes at once */
  static constexpr int SUMS_AT = STAGES * STAGE_BYTES, BARRIERS_AT = SUMS_AT + WARPS * 16 * SUMS_LD * 4;
  static constexpr int SHARED = BARRIERS_AT + 2 * STAGES * 8;
  static constexpr int THREADS = 128 + 128 * CONSUMERS;
};

/* The stage of a ring that comes next, and the parity of its turn. */
template <int STAGES> struct gemm_ring {
  int32_t stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    stage++;
    if (stage == STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/* What copies the boxes: one warp, of which one lane gives the orders. */
template <bool TRANS_A, bool TRANS_B, class TILE>
__device__ __forceinline__ void gemm_wgmma_produce(const gemm_problem &p, const CUtensorMap *map_a,
                                                   const CUtensorMap *map_b, uint32_t shared, uint32_t full,
                                                   uint32_t empty) {
  const bool elected = nn_elect();
  const uint64_t policy = elected ? nn_l2_evict_normal() : 0;
  gemm_ring<TILE::STAGES> ring;
  gemm_place place;
  int64_t group = 0, before = 0;
  for (int64_t tile = blockIdx.x; gemm_find<TILE::BM, TILE::BN>(p, tile, group, before, place); tile += gridDim.x) {
    const bool even = p.ragged == NN_GEMM_EVEN, ragged_k = p.ragged == NN_GEMM_RAGGED_K;
    const int32_t first = (int32_t)place.first, product = (int32_t)place.product;
    const int32_t row = (int32_t)place.row + (p.ragged == NN_GEMM_RAGGED_M ? first : 0);
    const int32_t column = (int32_t)place.column, product_a = even ? product : 0, product_b = ragged_k ? 0 : product;
    const int32_t k_end = (int32_t)place.k_end, k_first = ragged_k ? first : 0;
    for (int32_t at = (int32_t)place.k_begin; at < k_end; at += TILE::BK) {
      if (elected) {
        const int32_t k = k_first + at;
        const uint32_t a = shared + ring.stage * TILE::STAGE_BYTES, b = a + TILE::A_BYTES,
                       barrier = full + 8 * ring.stage;
        nn_mbarrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
        nn_mbarrier_arrive_expect(barrier, TILE::STAGE_BYTES);
        if (TRANS_A) {
#pragma unroll
          for (int i = 0; i < TILE::BM / 64; i++) {
            nn_tensor_load(a + i * TILE::BOX, map_a, barrier, policy, row + 64 * i, k, product_a);
          }
        } else {
          nn_tensor_load(a, map_a, barrier, policy, k, row, product_a);
        }
        if (TRANS_B) {
          nn_tensor_load(b, map_b, barrier, policy, k, column, product_b);
        } else {
#pragma unroll
          for (int i = 0; i < TILE::BN / 64; i++) {
            nn_tensor_load(b + i * TILE::BOX, map_b, barrier, policy, column + 64 * i, k, product_b);
          }
        }
      }
      ring.advance();
    }
    __syncwarp();
  }
}

/* The last rows of a group are followed by those of the next: they are made zeros before they are multiplied. By all
 * consumers; k rows are to stay. */
template <class TILE> __device__ __forceinline__ void gemm_wgmma_clear(unsigned char *stage, int32_t k) {
  const int32_t from = k * 128, each = (TILE::BOX - from) / 16;
  for (int32_t i = threadIdx.x - 128; i < TILE::STAGE_BYTES / TILE::BOX * each; i += 128 * TILE::CONSUMERS) {
    *reinterpret_cast<uint4 *>(stage + i / each * TILE::BOX + from + i % each * 16) = make_uint4(0, 0, 0, 0);
  }
  nn_fence_async_shared();
  nn_barrier_sync(1, 128 * TILE::CONSUMERS);
}

/* A warpgroup's 64 rows of each tile. */
template <class T, bool TRANS_A, bool TRANS_B, class TILE>
__device__ __forceinline__ void gemm_wgmma_consume(const gemm_problem &p, unsigned char *memory, uint32_t full,
                                                   uint32_t empty) {
  constexpr int BN = TILE::BN, BK = TILE::BK, LANES = TILE::CHUNK / 8, ROWS = NN_WARP / LANES;
  const int consumer = threadIdx.x / 128 - 1, lane = threadIdx.x % NN_WARP, g = lane / 4, t = lane % 4;
  const int warp = threadIdx.x % 128 / NN_WARP;
  float *const sums = reinterpret_cast<float *>(memory + TILE::SUMS_AT) + (consumer * 4 + warp) * 16 * TILE::SUMS_LD;
  const uint32_t shared = nn_shared_address(memory);
  gemm_ring<TILE::STAGES> ring;
  gemm_place place;
  int64_t group = 0, before = 0;
  for (int64_t tile = blockIdx.x; gemm_find<TILE::BM, BN>(p, tile, group, before, place); tile += gridDim.x) {
    float sum[BN / 2];
#pragma unroll
    for (int i = 0; i < BN / 2; i++) {
      sum[i] = 0.0f;
    }
    const int32_t depth = (int32_t)(place.k_end - place.k_begin);
    int32_t previous = -1; /* the stage whose products may still run */
    for (int32_t at = 0; at < depth; at += BK) {
      nn_mbarrier_wait(full + 8 * ring.stage, ring.parity);
      if (TRANS_A && !TRANS_B && p.ragged == NN_GEMM_RAGGED_K && depth - at < BK) {
        gemm_wgmma_clear<TILE>(memory + ring.stage * TILE::STAGE_BYTES, depth - at);
      }
      const uint32_t a = shared + ring.stage * TILE::STAGE_BYTES + consumer * TILE::BOX;
      const uint32_t b = shared + ring.stage * TILE::STAGE_BYTES + TILE::A_BYTES;
      const uint64_t of_a = TRANS_A ? nn_wgmma_descriptor_mn_major<NN_SWIZZLE_128>(a, TILE::BOX)
                                    : nn_wgmma_descriptor_k_major<NN_SWIZZLE_128>(a);
      const uint64_t of_b = TRANS_B ? nn_wgmma_descriptor_k_major<NN_SWIZZLE_128>(b)
                                    : nn_wgmma_descriptor_mn_major<NN_SWIZZLE_128>(b, TILE::BOX);
      nn_wgmma_hold(sum);
      nn_wgmma_fence();
#pragma unroll
      for (int j = 0; j < BK / 16; j++) {
        nn_wgmma<T, TRANS_A, !TRANS_B>(sum, nn_wgmma_step(of_a, j * (TRANS_A ? 16 * 128 : 32)),
                                       nn_wgmma_step(of_b, j * (TRANS_B ? 32 : 16 * 128)), true);
      }
      nn_wgmma_commit();
      nn_wgmma_wait<1>();
      nn_wgmma_hold(sum);
      if (previous >= 0 && lane == 0) {
        nn_mbarrier_arrive(empty + 8 * previous);
      }
      previous = ring.stage;
      ring.advance();
    }
    nn_wgmma_wait<0>();
    nn_wgmma_hold(sum);
    if (previous >= 0 && lane == 0) {
      nn_mbarrier_arrive(empty + 8 * previous);
    }
#pragma unroll
    for (int j = 0; j < BN / TILE::CHUNK; j++) {
#pragma unroll
      for (int i = 0; i < TILE::CHUNK / 8; i++) {
        const float *from = sum + (j * (TILE::CHUNK / 8) + i) * 4;
        *reinterpret_cast<float2 *>(sums + g * TILE::SUMS_LD + 8 * i + 2 * t) = make_float2(from[0], from[1]);
        *reinterpret_cast<float2 *>(sums + (g + 8) * TILE::SUMS_LD + 8 * i + 2 * t) = make_float2(from[2], from[3]);
      }
      __syncwarp();
#pragma unroll 1 /* registers are full of sums */
      for (int r = lane / LANES; r < 16; r += ROWS) {
        const float *from = sums + r * TILE::SUMS_LD + lane % LANES * 8;
        const float4 u = *reinterpret_cast<const float4 *>(from), v = *reinterpret_cast<const float4 *>(from + 4);
        const float x[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
        gemm_put<T>(p, place, consumer * 64 + warp * 16 + r, j * TILE::CHUNK + lane % LANES * 8, x);
      }
      __syncwarp();
    }
  }
}

template <class T, bool TRANS_A, bool TRANS_B, class TILE>
__global__ void __launch_bounds__(NN_HAS_WGMMA ? TILE::THREADS : NN_WARP, 1)
    gemm_wgmma_kernel(gemm_problem p, const __grid_constant__ CUtensorMap map_a,
                      const __grid_constant__ CUtensorMap map_b) {
  if constexpr (NN_HAS_WGMMA) {
    NN_SHARED_BYTES(memory);
    const uint32_t shared = nn_shared_address(memory), full = shared + TILE::BARRIERS_AT,
                   empty = full + 8 * TILE::STAGES;
    if (threadIdx.x == 0) {
      nn_tensor_prefetch(&map_a);
      nn_tensor_prefetch(&map_b);
      for (int i = 0; i < TILE::STAGES; i++) {
        nn_mbarrier_init(full + 8 * i, 1);
        nn_mbarrier_init(empty + 8 * i, TILE::WARPS);
      }
      nn_fence_mbarrier_init();
    }
    const bool holds = p.ragged == NN_GEMM_EVEN || gemm_offsets_hold(p);
    __syncthreads();
    if (threadIdx.x < 128) {
      nn_registers_lower<40>();
      if (holds && threadIdx.x < NN_WARP) {
        gemm_wgmma_produce<TRANS_A, TRANS_B, TILE>(p, &map_a, &map_b, shared, full, empty);
      }
    } else {
      nn_registers_raise<232>();
      if (holds) {
        gemm_wgmma_consume<T, TRANS_A, TRANS_B, TILE>(p, memory, full, empty);
      }
    }
  }
}

/* A map of one factor: `contiguous` by `rows` elements, `count` of them. Boxes are 64 elements of the contiguous side
 * by `box` rows. */
inline bool gemm_wgmma_map(CUtensorMap &map, int32_t dtype, const void *base, int64_t contiguous, int64_t rows,
                           int64_t ld, int64_t count, int64_t step, int32_t box) {
  const int64_t dims[3] = {contiguous, rows, count}, strides[2] = {ld, count > 1 ? step : rows * ld};
  const int32_t boxes[3] = {64, box, 1};
  return nn_tensor_map(&map, dtype, 3, base, dims, strides, boxes, NN_SWIZZLE_128);
}

template <class T, bool TRANS_A, bool TRANS_B, class TILE>
inline int32_t gemm_wgmma_start(nncuda_ctx *ctx, gemm_problem &p, int32_t dtype, bool *done) {
  const auto kernel = gemm_wgmma_kernel<T, TRANS_A, TRANS_B, TILE>;
  static int known;
  CUtensorMap map_a, map_b;
  const bool even = p.ragged == NN_GEMM_EVEN, ragged_k = p.ragged == NN_GEMM_RAGGED_K;
  *done = nn_wgmma_loaded(reinterpret_cast<const void *>(kernel), TILE::THREADS, &known) &&
          gemm_wgmma_map(map_a, dtype, p.a, TRANS_A ? p.m : p.k, TRANS_A ? p.k : p.m, p.lda, even ? p.count : 1,
                         p.a_step, TRANS_A ? 64 : TILE::BM) &&
          gemm_wgmma_map(map_b, dtype, p.b, TRANS_B ? p.k : p.n, TRANS_B ? p.n : p.k, p.ldb, ragged_k ? 1 : p.count,
                         p.b_step, TRANS_B ? TILE::BN : 64);
  if (!*done) {
    return NNCUDA_SUCCESS;
  }
  gemm_count_tiles<TILE::BM, TILE::BN>(p);
  const int64_t sms = nn_gpu_sms(ctx);
  return nn_launch(ctx, kernel, dim3((unsigned)(p.tiles < sms ? p.tiles : sms)), dim3(TILE::THREADS), TILE::SHARED, p,
                   map_a, map_b);
}

template <class T, class TILE>
inline int32_t gemm_wgmma_run_tile(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice, int32_t dtype,
                                   bool *done) {
  if (choice.trans_a) {
    return choice.trans_b ? gemm_wgmma_start<T, true, true, TILE>(ctx, p, dtype, done)
                          : gemm_wgmma_start<T, true, false, TILE>(ctx, p, dtype, done);
  }
  return choice.trans_b ? gemm_wgmma_start<T, false, true, TILE>(ctx, p, dtype, done)
                        : gemm_wgmma_start<T, false, false, TILE>(ctx, p, dtype, done);
}

/* Rounds of tiles over the multiprocessors decide; a narrow tile takes somewhat more than half of a wide one's time (by
 * count of bytes read from shared memory, not measured on a GPU yet). The sums are the same with both. */
template <class T>
inline int32_t gemm_wgmma_launch(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice, int32_t dtype,
                                 bool *done) {
  constexpr int64_t WIDE_COST = 16, NARROW_COST = 9;
  const int64_t sms = nn_gpu_sms(ctx);
  gemm_count_tiles<128, 256>(p);
  const int64_t wide = nn_ceil_div(p.tiles, sms) * WIDE_COST;
  gemm_count_tiles<128, 128>(p);
  const int64_t narrow = nn_ceil_div(p.tiles, sms) * NARROW_COST;
  return wide <= narrow ? gemm_wgmma_run_tile<T, gemm_wgmma_tile<256>>(ctx, p, choice, dtype, done)
                        : gemm_wgmma_run_tile<T, gemm_wgmma_tile<128>>(ctx, p, choice, dtype, done);
}

#endif
