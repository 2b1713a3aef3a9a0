/*
 * Products on Hopper's tensor cores (wgmma, sm_90a): f16 and bf16 whose rows are runs of 16 bytes.
 *
 * One block a multiprocessor walks the tiles of 128 x BN. A warp of its first warpgroup finds the tiles, ahead of their
 * turn, and has the copy engine bring boxes of A and B into a ring of stages in shared memory; the two other warpgroups
 * multiply, 64 rows each, straight from there, whichever way the factors lie. While they finish a tile, the ring fills
 * with the next one. The copy engine also takes a plain tile, of nothing but rounded sums, to C: the consumers only put
 * it into shared memory, and it leaves while they multiply the next one.
 */
#ifndef NN_KERNELS_GEMM_WGMMA_CUH
#define NN_KERNELS_GEMM_WGMMA_CUH

#include "kernels/gemm.cuh"
#include "kernels/tensormap.cuh"
#include "kernels/wgmma_kernel.cuh"

/* What the producer tells the consumers of a tile; `more` is 0 after the last. */
struct alignas(8) gemm_wgmma_turn {
  gemm_place place;
  int32_t more;
};

/*
 * 128 x 256 is the largest tile whose sums fit the registers: it reads 1.5 bytes of shared memory for 128 products,
 * which leaves the tensor cores the limit. 128 x 128 serves products with few tiles. The ring takes 192 KiB, and 4 KiB
 * a warp are for what is on its way to C: two boxes, or sums. setmaxnreg: 128 * 56 + 256 * 224 = 64512 registers. By
 * count, not measured on a GPU yet.
 */
template <int BN_> struct gemm_wgmma_tile {
  static constexpr int BM = 128, BN = BN_, BK = 64, CONSUMERS = 2, WARPS = 4 * CONSUMERS;
  static constexpr int BOX = 64 * 128; /* 64 rows of 128 bytes: what repeats along the side that is not k */
  static constexpr int A_BYTES = BM / 64 * BOX, STAGE_BYTES = A_BYTES + BN / 64 * BOX, STAGES = 196608 / STAGE_BYTES;
  static constexpr int CHUNK = 32, SUMS_LD = CHUNK + 8;       /* columns of sums that a warp writes at once */
  static constexpr int C_BOX = 16 * 128, C_BYTES = 2 * C_BOX; /* 16 rows of 64 columns; of a warp */
  static constexpr int C_AT = STAGES * STAGE_BYTES, TURNS = 4, TURNS_AT = C_AT + WARPS * C_BYTES;
  static constexpr int BARRIERS_AT = TURNS_AT + TURNS * (int)sizeof(gemm_wgmma_turn);
  static constexpr int SHARED = BARRIERS_AT + 2 * (STAGES + TURNS) * 8;
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

/* Addresses of barriers: `full` and `empty` of each stage, then those of each turn. */
template <class TILE> struct gemm_wgmma_barriers {
  uint32_t full, empty, turn_full, turn_empty;

  __device__ __forceinline__ explicit gemm_wgmma_barriers(uint32_t shared)
      : full(shared + TILE::BARRIERS_AT), empty(full + 8 * TILE::STAGES), turn_full(empty + 8 * TILE::STAGES),
        turn_empty(turn_full + 8 * TILE::TURNS) {}
};

/* What finds the tiles and copies the boxes: one warp, of which one lane gives the orders. */
template <bool TRANS_A, bool TRANS_B, class TILE>
__device__ __forceinline__ void gemm_wgmma_produce(const gemm_problem &p, const CUtensorMap *map_a,
                                                   const CUtensorMap *map_b, unsigned char *memory,
                                                   const gemm_wgmma_barriers<TILE> &barriers) {
  const uint32_t shared = nn_shared_address(memory);
  const bool elected = nn_elect();
  const uint64_t policy = elected ? nn_l2_evict_normal() : 0;
  gemm_ring<TILE::STAGES> ring;
  gemm_ring<TILE::TURNS> turns;
  gemm_place place;
  int64_t group = 0, before = 0;
  bool more = true;
  for (int64_t tile = blockIdx.x; more; tile += gridDim.x) {
    more = gemm_find<TILE::BM, TILE::BN, uint32_t>(p, tile, group, before, place);
    if (elected) {
      nn_mbarrier_wait(barriers.turn_empty + 8 * turns.stage, turns.parity ^ 1);
      gemm_wgmma_turn &turn = reinterpret_cast<gemm_wgmma_turn *>(memory + TILE::TURNS_AT)[turns.stage];
      turn.more = more;
      if (more) {
        turn.place = place;
      }
      nn_mbarrier_arrive(barriers.turn_full + 8 * turns.stage);
    }
    turns.advance();
    if (!more) {
      break;
    }
    const bool even = p.ragged == NN_GEMM_EVEN, ragged_k = p.ragged == NN_GEMM_RAGGED_K;
    const int32_t first = (int32_t)place.first, product = (int32_t)place.product;
    const int32_t row = (int32_t)place.row + (p.ragged == NN_GEMM_RAGGED_M ? first : 0);
    const int32_t column = (int32_t)place.column, product_a = even ? product : 0, product_b = ragged_k ? 0 : product;
    const int32_t k_end = (int32_t)place.k_end, k_first = ragged_k ? first : 0;
    for (int32_t at = (int32_t)place.k_begin; at < k_end; at += TILE::BK) {
      if (elected) {
        const int32_t k = k_first + at;
        const uint32_t a = shared + ring.stage * TILE::STAGE_BYTES, b = a + TILE::A_BYTES,
                       barrier = barriers.full + 8 * ring.stage;
        nn_mbarrier_wait(barriers.empty + 8 * ring.stage, ring.parity ^ 1);
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

/* The sums of a warp, 16 rows, to C by the copy engine, 64 columns a box: alpha and the one rounding. A box leaves
 * while the next one is written, and the last two while the next tile is multiplied. `place_of_box` is which of the two
 * places the next box takes, from tile to tile. */
template <class T, class TILE>
__device__ __forceinline__ void
gemm_wgmma_store(const gemm_problem &p, const gemm_place &place, const CUtensorMap *map_c, int32_t row,
                 const float (&sum)[TILE::BN / 2], uint32_t boxes, uint32_t &place_of_box) {
  const int lane = threadIdx.x % NN_WARP;
  /* Matrix lane / 8 of 8 x 8: rows 0 to 7 or 8 to 15, the 16 bytes of the left or the right 8 of 16 columns. */
  const uint32_t own = (lane / 8 % 2 * 8 + lane % 8) * 128, right = lane / 16, swizzle = lane % 8;
  const int32_t in_c = (int32_t)place.row + row + (p.ragged == NN_GEMM_RAGGED_M ? (int32_t)place.first : 0);
  const int32_t product = p.ragged == NN_GEMM_RAGGED_M ? 0 : (int32_t)place.product;
#pragma unroll
  for (int j = 0; j < TILE::BN / 64; j++) {
    if (64 * j < place.columns) {
      const uint32_t box = boxes + place_of_box * TILE::C_BOX;
      place_of_box ^= 1;
      if (lane == 0) {
        nn_tensor_store_wait<1>();
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float *from = sum + (4 * j + i) * 8;
        const uint32_t pairs[4] = {
            nn_pair<T>(from[0] * p.alpha, from[1] * p.alpha), nn_pair<T>(from[2] * p.alpha, from[3] * p.alpha),
            nn_pair<T>(from[4] * p.alpha, from[5] * p.alpha), nn_pair<T>(from[6] * p.alpha, from[7] * p.alpha)};
        nn_stmatrix_x4(box + own + ((2 * i + right) ^ swizzle) * 16, pairs);
      }
      nn_fence_async_shared();
      __syncwarp();
      if (lane == 0) {
        nn_tensor_store(map_c, box, (int32_t)place.column + 64 * j, in_c, product);
        nn_tensor_store_commit();
      }
    }
  }
}

/* The sums of a warp to C or to `partial`, with all that a product may do to them, by way of shared memory. */
template <class T, class TILE>
__device__ __forceinline__ void gemm_wgmma_put(const gemm_problem &p, const gemm_place &place, int32_t row,
                                               const float (&sum)[TILE::BN / 2], float *sums) {
  constexpr int LANES = TILE::CHUNK / 8, ROWS = NN_WARP / LANES;
  const int lane = threadIdx.x % NN_WARP, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < TILE::BN / TILE::CHUNK; j++) {
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
      gemm_put<T>(p, place, row + r, j * TILE::CHUNK + lane % LANES * 8, x);
    }
    __syncwarp();
  }
}

/* A warpgroup's 64 rows of each tile. `plain`: map_c is a map of C, and C is nothing but rounded sums. */
template <class T, bool TRANS_A, bool TRANS_B, class TILE>
__device__ __forceinline__ void gemm_wgmma_consume(const gemm_problem &p, const CUtensorMap *map_c, bool plain,
                                                   unsigned char *memory, const gemm_wgmma_barriers<TILE> &barriers) {
  constexpr int BN = TILE::BN, BK = TILE::BK;
  const int consumer = threadIdx.x / 128 - 1, lane = threadIdx.x % NN_WARP;
  const int row = threadIdx.x / NN_WARP * 16 - 64; /* the warp's first one in the tile */
  unsigned char *const own = memory + TILE::C_AT + row / 16 * TILE::C_BYTES;
  const uint32_t shared = nn_shared_address(memory);
  gemm_ring<TILE::STAGES> ring;
  gemm_ring<TILE::TURNS> turns;
  uint32_t place_of_box = 0;
  while (true) {
    nn_mbarrier_wait(barriers.turn_full + 8 * turns.stage, turns.parity);
    const gemm_wgmma_turn &turn = reinterpret_cast<const gemm_wgmma_turn *>(memory + TILE::TURNS_AT)[turns.stage];
    if (!turn.more) {
      break;
    }
    float sum[BN / 2];
#pragma unroll
    for (int i = 0; i < BN / 2; i++) {
      sum[i] = 0.0f;
    }
    const int32_t depth = (int32_t)(turn.place.k_end - turn.place.k_begin);
    int32_t previous = -1; /* the stage whose products may still run */
    for (int32_t at = 0; at < depth; at += BK) {
      nn_mbarrier_wait(barriers.full + 8 * ring.stage, ring.parity);
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
        nn_mbarrier_arrive(barriers.empty + 8 * previous);
      }
      previous = ring.stage;
      ring.advance();
    }
    nn_wgmma_wait<0>();
    nn_wgmma_hold(sum);
    if (previous >= 0 && lane == 0) {
      nn_mbarrier_arrive(barriers.empty + 8 * previous);
    }
    const gemm_place place = turn.place;
    __syncwarp();
    if (lane == 0) {
      nn_mbarrier_arrive(barriers.turn_empty + 8 * turns.stage);
    }
    turns.advance();
    const int32_t rows = place.rows - row;
    /* The rows after those of a group are another's. */
    if (plain && (p.ragged != NN_GEMM_RAGGED_M || rows >= 16)) {
      if (rows > 0) {
        gemm_wgmma_store<T, TILE>(p, place, map_c, row, sum, nn_shared_address(own), place_of_box);
      }
    } else {
      if (plain && lane == 0) {
        nn_tensor_store_wait<0>();
      }
      __syncwarp();
      gemm_wgmma_put<T, TILE>(p, place, row, sum, reinterpret_cast<float *>(own));
    }
  }
  if (lane == 0) {
    nn_tensor_store_wait<0>();
  }
}

// sass: gemm_wgmma_kernel on sm_90a: at least 8 STSM, at least 2 UTMASTG, no I2F.U64
// setmaxnreg moves registers among exactly these: with fewer, the consumers would wait for ever.
// sass: gemm_wgmma_kernel on sm_90a: at least 168 registers, at most 168 registers
template <class T, bool TRANS_A, bool TRANS_B, class TILE>
__global__ void __launch_bounds__(NN_HAS_WGMMA ? TILE::THREADS : NN_WARP, 1)
    gemm_wgmma_kernel(gemm_problem p, const __grid_constant__ CUtensorMap map_a,
                      const __grid_constant__ CUtensorMap map_b, const __grid_constant__ CUtensorMap map_c, int plain) {
  if constexpr (NN_HAS_WGMMA) {
    NN_SHARED_BYTES(memory);
    const gemm_wgmma_barriers<TILE> barriers(nn_shared_address(memory));
    if (threadIdx.x == 0) {
      nn_tensor_prefetch(&map_a);
      nn_tensor_prefetch(&map_b);
      if (plain) {
        nn_tensor_prefetch(&map_c);
      }
      for (int i = 0; i < TILE::STAGES; i++) {
        nn_mbarrier_init(barriers.full + 8 * i, 1);
        nn_mbarrier_init(barriers.empty + 8 * i, TILE::WARPS);
      }
      for (int i = 0; i < TILE::TURNS; i++) {
        nn_mbarrier_init(barriers.turn_full + 8 * i, 1);
        nn_mbarrier_init(barriers.turn_empty + 8 * i, TILE::WARPS);
      }
      nn_fence_mbarrier_init();
    }
    const bool holds = p.ragged == NN_GEMM_EVEN || gemm_offsets_hold(p);
    __syncthreads();
    if (threadIdx.x < 128) {
      nn_registers_lower<56>();
      if (holds && threadIdx.x < NN_WARP) {
        gemm_wgmma_produce<TRANS_A, TRANS_B, TILE>(p, &map_a, &map_b, memory, barriers);
      }
    } else {
      nn_registers_raise<224>();
      if (holds) {
        gemm_wgmma_consume<T, TRANS_A, TRANS_B, TILE>(p, &map_c, plain != 0, memory, barriers);
      }
    }
  }
}

/* A map of a matrix: `contiguous` by `rows` elements, `count` of them. Boxes are 64 elements of the contiguous side
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
  CUtensorMap map_a, map_b, map_c = {};
  const bool even = p.ragged == NN_GEMM_EVEN, ragged_k = p.ragged == NN_GEMM_RAGGED_K;
  *done = nn_wgmma_loaded(reinterpret_cast<const void *>(kernel), TILE::THREADS, &known) &&
          gemm_wgmma_map(map_a, dtype, p.a, TRANS_A ? p.m : p.k, TRANS_A ? p.k : p.m, p.lda, even ? p.count : 1,
                         p.a_step, TRANS_A ? 64 : TILE::BM) &&
          gemm_wgmma_map(map_b, dtype, p.b, TRANS_B ? p.k : p.n, TRANS_B ? p.n : p.k, p.ldb, ragged_k ? 1 : p.count,
                         p.b_step, TRANS_B ? TILE::BN : 64);
  if (!*done) {
    return NNCUDA_SUCCESS;
  }
  const bool plain =
      p.partial == nullptr && !p.c_f32 && p.beta == 0.0f && p.bias == nullptr && p.residual == nullptr &&
      p.activation == NNCUDA_ACTIVATION_NONE &&
      gemm_wgmma_map(map_c, dtype, p.c, p.n, p.m, p.ldc, p.ragged == NN_GEMM_RAGGED_M ? 1 : p.count, p.c_step, 16);
  gemm_count_tiles<TILE::BM, TILE::BN>(p);
  const int64_t sms = nn_gpu_sms(ctx);
  return nn_launch(ctx, kernel, dim3((unsigned)(p.tiles < sms ? p.tiles : sms)), dim3(TILE::THREADS), TILE::SHARED, p,
                   map_a, map_b, map_c, (int)plain);
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
  if (p.tiles > INT32_MAX) { /* they are counted in 32 bits */
    *done = false;
    return NNCUDA_SUCCESS;
  }
  const int64_t narrow = nn_ceil_div(p.tiles, sms) * NARROW_COST;
  return wide <= narrow ? gemm_wgmma_run_tile<T, gemm_wgmma_tile<256>>(ctx, p, choice, dtype, done)
                        : gemm_wgmma_run_tile<T, gemm_wgmma_tile<128>>(ctx, p, choice, dtype, done);
}

#endif
