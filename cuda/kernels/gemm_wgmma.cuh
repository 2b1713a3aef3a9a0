/*
 * Products on Hopper's tensor cores (wgmma, sm_90a): f16 and bf16 whose rows are runs of 16 bytes.
 *
 * One block a multiprocessor walks the tiles of 128 x BN. A warp of its first warpgroup finds the tiles, ahead of their
 * turn, and has the copy engine bring boxes of A and B into a ring of stages in shared memory; the two other warpgroups
 * multiply, 64 rows each, straight from there, whichever way the factors lie. While they finish a tile, the ring fills
 * with the next one, and with what the products are added to. The copy engine also takes most tiles to C: the consumers
 * only put them into shared memory, and they leave while the next tile is multiplied (gemm_wgmma_finish.cuh).
 *
 * The second warpgroup of the two begins a tile when the first has multiplied a stage of it, and so ends it later:
 * while one takes its sums to shared memory, the tensor cores are the other's. (Each with a tile of its own, in turns,
 * would overlap all of that; but two sets of sums leave room for 128 x 128 only, for which L2 would have to bring 48 or
 * 64 bytes a clock, and there are 39.)
 *
 * Where there are enough rows, blocks work in pairs (clusters of two): on tiles one below the other, which have their
 * part of B in common. Each block loads half of it, to both, and so reads 32 KiB a stage from L2 where it read 48. The
 * rings of the two go in step: a stage is loaded again when the consumers of both have read it. The second of the last
 * tiles of a product, or of a group of rows, may have no rows; it is multiplied all the same, and not stored.
 */
#ifndef NN_KERNELS_GEMM_WGMMA_CUH
#define NN_KERNELS_GEMM_WGMMA_CUH

#include "kernels/gemm_wgmma_gate.cuh"

/* What finds the tiles and copies the boxes: one warp, of which one lane gives the orders. */
template <bool TRANS_A, bool TRANS_B, class TILE, int GATE>
__device__ __forceinline__ void gemm_wgmma_produce(const gemm_problem &p, const gemm_wgmma_way &way,
                                                   const gemm_wgmma_maps &maps, unsigned char *memory,
                                                   const gemm_wgmma_barriers<TILE> &barriers) {
  const CUtensorMap *const map_a = &maps.a, *const map_b = &maps.b;
  const int32_t shift = p.c_f32 ? 5 : 6, width = 1 << shift; /* columns of a box of C */
  const uint32_t shared = nn_shared_address(memory);
  const bool elected = nn_elect();
  const uint64_t policy = elected ? nn_l2_evict_normal() : 0;
  gemm_ring<TILE::STAGES> ring;
  gemm_ring<TILE::TURNS> turns;
  gemm_place place;
  int64_t group = 0, before = 0;
  bool more = true;
  const int32_t paired = way.paired, rank = paired ? (int32_t)nn_cluster_rank() : 0;
  const auto load = [&](uint32_t to, const CUtensorMap *map, uint32_t barrier, int32_t c0, int32_t c1, int32_t c2) {
    if (paired) {
      nn_tensor_load_all(to, map, barrier, 3, policy, c0, c1, c2);
    } else {
      nn_tensor_load(to, map, barrier, policy, c0, c1, c2);
    }
  };
  for (int64_t tile = blockIdx.x >> paired; more; tile += gridDim.x >> paired) {
    more =
        gemm_find<gemm_columns<GATE, TILE::BN>, uint32_t>(p, gemm_log2<TILE::BM> + paired, tile, group, before, place);
    if (more) {
      place.row += rank * TILE::BM;
      place.rows = place.rows - rank * TILE::BM < TILE::BM ? place.rows - rank * TILE::BM : TILE::BM;
    }
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
#pragma unroll
        for (int half = 0; half < 2; half++) {
          if (!paired || half == rank) {
            const uint32_t to = b + half * TILE::HALF_B_BYTES;
            const int32_t from = column + half * (GATE == GEMM_SWIGLU ? (int32_t)p.up : TILE::HALF_B);
            if (TRANS_B) {
              load(to, map_b, barrier, k, from, product_b);
            } else if (!TILE::WHOLE_BOXES) {
#pragma unroll
              for (int i = 0; i < TILE::BN / 64; i++) {
                load(b + i * TILE::BOX + half * (TILE::BOX / 2), map_b, barrier, column + 64 * i, k + 32 * half,
                     product_b);
              }
            } else {
#pragma unroll
              for (int i = 0; i < TILE::HALF_B / 64; i++) {
                load(to + i * TILE::BOX, map_b, barrier, from + 64 * i, k, product_b);
              }
            }
          }
        }
      }
      ring.advance();
    }
    for (int32_t j = 0; way.reads() != 0 && j * width < place.columns; j += TILE::OLD_BOXES) {
      const int32_t left = ((place.columns + width - 1) >> shift) - j,
                    boxes = left < TILE::OLD_BOXES ? left : TILE::OLD_BOXES;
#pragma unroll
      for (int which = 0; which < 2; which++) {
        if (which == 0 ? way.old_c : way.residual) {
          if (elected) {
            const uint32_t barrier = barriers.full + 8 * ring.stage;
            nn_mbarrier_wait(barriers.empty + 8 * ring.stage, ring.parity ^ 1);
            nn_mbarrier_arrive_expect(barrier, boxes * TILE::OLD_BOX);
            for (int32_t i = 0; i < boxes; i++) {
              nn_tensor_load(shared + ring.stage * TILE::STAGE_BYTES + i * TILE::OLD_BOX,
                             which == 0 ? &maps.old_c : &maps.residual, barrier, policy, column + (j + i) * width, row,
                             p.ragged == NN_GEMM_RAGGED_M ? 0 : product);
            }
          }
          ring.advance();
        }
      }
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
template <class T, bool TRANS_A, bool TRANS_B, class TILE, int GATE>
__device__ __forceinline__ void gemm_wgmma_consume(const gemm_problem &p, const gemm_wgmma_way &way,
                                                   const gemm_wgmma_maps &maps, unsigned char *memory,
                                                   const gemm_wgmma_barriers<TILE> &barriers) {
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
    gemm_wgmma_bias<BN> bias = {};
    if (way.boxes && p.bias != nullptr) {
      if (p.c_f32) {
        bias.template load<float>(p, turn.place);
      } else {
        bias.template load<T>(p, turn.place);
      }
    }
    float sum[BN / 2];
#pragma unroll
    for (int i = 0; i < BN / 2; i++) {
      sum[i] = 0.0f;
    }
    const int32_t depth = (int32_t)(turn.place.k_end - turn.place.k_begin);
    const bool apart = depth >= TILE::APART * BK;
    if (apart && consumer == 1) {
      nn_barrier_sync(2, 128 * TILE::CONSUMERS);
    }
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
      if (apart && consumer == 0 && at == BK) {
        nn_barrier_arrive(2, 128 * TILE::CONSUMERS);
      }
      if (previous >= 0) {
        barriers.give_back(previous);
      }
      previous = ring.stage;
      ring.advance();
    }
    nn_wgmma_wait<0>();
    nn_wgmma_hold(sum);
    if (previous >= 0) {
      barriers.give_back(previous);
    }
    const gemm_place place = turn.place;
    __syncwarp();
    if (lane == 0) {
      nn_mbarrier_arrive(barriers.turn_empty + 8 * turns.stage);
    }
    turns.advance();
    const int32_t rows = place.rows - row;
    /* The rows after those of a group are another's. */
    const bool by_boxes = way.boxes && (p.ragged != NN_GEMM_RAGGED_M || rows >= 16);
    if constexpr (GATE == GEMM_SWIGLU) {
      if (by_boxes && rows > 0) {
        gemm_wgmma_swiglu<T, TILE>(p, place, way, maps, row, sum, own);
      }
    } else if constexpr (GATE == GEMM_SWIGLU_BACKWARD) {
      if (way.boxes) {
        gemm_wgmma_slopes<T, TILE>(p, place, way, maps, row, sum, by_boxes && rows > 0, memory, barriers, ring);
      }
    } else if (way.boxes && p.c_f32) {
      gemm_wgmma_store<float, TILE>(p, place, way, &maps.c, row, sum, bias, by_boxes && rows > 0, memory, barriers,
                                    ring, place_of_box);
    } else if (way.boxes) {
      gemm_wgmma_store<T, TILE>(p, place, way, &maps.c, row, sum, bias, by_boxes && rows > 0, memory, barriers, ring,
                                place_of_box);
    }
    if (!by_boxes) {
      if (way.boxes && lane == 0) {
        nn_tensor_store_wait<0>();
      }
      __syncwarp();
      gemm_wgmma_put<T, TILE, GATE>(p, place, row, sum, reinterpret_cast<float *>(own));
      nn_fence_async_shared(); /* boxes may come to this place */
    }
  }
  if (lane == 0) {
    nn_tensor_store_wait<0>();
  }
}

template <class T, bool TRANS_A, bool TRANS_B, class TILE, int GATE>
__device__ __forceinline__ void gemm_wgmma_block(const gemm_problem &p, const gemm_wgmma_way &way,
                                                 const gemm_wgmma_maps &maps) {
  if constexpr (NN_HAS_WGMMA) {
    NN_SHARED_BYTES(memory);
    const gemm_wgmma_barriers<TILE> barriers(nn_shared_address(memory), way.paired);
    if (threadIdx.x == 0) {
      nn_tensor_prefetch(&maps.a);
      nn_tensor_prefetch(&maps.b);
      if (way.boxes) {
        nn_tensor_prefetch(&maps.c);
      }
      if (way.old_c) {
        nn_tensor_prefetch(&maps.old_c);
      }
      if (way.residual) {
        nn_tensor_prefetch(&maps.residual);
      }
      if (GATE != GEMM_PLAIN && way.boxes) {
        nn_tensor_prefetch(&maps.up);
      }
      for (int i = 0; i < TILE::STAGES; i++) {
        nn_mbarrier_init(barriers.full + 8 * i, 1);
        nn_mbarrier_init(barriers.empty + 8 * i, TILE::WARPS << way.paired);
      }
      for (int i = 0; i < TILE::TURNS; i++) {
        nn_mbarrier_init(barriers.turn_full + 8 * i, 1);
        nn_mbarrier_init(barriers.turn_empty + 8 * i, TILE::WARPS);
      }
      nn_fence_mbarrier_init();
    }
    const bool holds = p.ragged == NN_GEMM_EVEN || gemm_offsets_hold(p);
    if (way.paired) {
      nn_cluster_sync();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
      nn_registers_lower<56>();
      if (holds && threadIdx.x < NN_WARP) {
        gemm_wgmma_produce<TRANS_A, TRANS_B, TILE, GATE>(p, way, maps, memory, barriers);
      }
    } else {
      nn_registers_raise<224>();
      if (holds) {
        gemm_wgmma_consume<T, TRANS_A, TRANS_B, TILE, GATE>(p, way, maps, memory, barriers);
      }
    }
    if (way.paired) {
      nn_cluster_sync(); /* the other block may still tell this one's barriers */
    }
  }
}

// sass: gemm_wgmma_kernel on sm_90a: at least 8 STSM, at least 2 UTMASTG, at least 16 LDSM, no I2F.U64
// A pair's loads, what keeps its warpgroups apart, and no fence of the whole GPU but at its begin and end.
// sass: gemm_wgmma_kernel on sm_90a: at least 2 UTMALDG.MULTICAST, at least 1 BAR.ARV, no MEMBAR.GPU in loops
// setmaxnreg moves registers among exactly these: with fewer, the consumers would wait for ever.
// sass: gemm_wgmma_kernel on sm_90a: at least 168 registers, at most 168 registers
template <class T, bool TRANS_A, bool TRANS_B, class TILE>
__global__ void __launch_bounds__(NN_HAS_WGMMA ? TILE::THREADS : NN_WARP, 1)
    gemm_wgmma_kernel(gemm_problem p, gemm_wgmma_way way, const __grid_constant__ gemm_wgmma_maps maps) {
  gemm_wgmma_block<T, TRANS_A, TRANS_B, TILE, GEMM_PLAIN>(p, way, maps);
}

// sass: gemm_wgmma_gate_kernel on sm_90a: at least 4 STSM, at least 2 UTMASTG, no I2F.U64
// sass: gemm_wgmma_gate_kernel on sm_90a: at least 2 UTMALDG.MULTICAST, at least 1 BAR.ARV, no MEMBAR.GPU in loops
// sass: gemm_wgmma_gate_kernel on sm_90a: at least 168 registers, at most 168 registers
template <class T, class TILE, int GATE>
__global__ void __launch_bounds__(NN_HAS_WGMMA ? TILE::THREADS : NN_WARP, 1)
    gemm_wgmma_gate_kernel(gemm_problem p, gemm_wgmma_way way, const __grid_constant__ gemm_wgmma_maps maps) {
  gemm_wgmma_block<T, false, GATE == GEMM_SWIGLU, TILE, GATE>(p, way, maps);
}

/* A map of a matrix: `contiguous` by `rows` elements, `count` of them. Boxes are 128 bytes of the contiguous side by
 * `box` rows. */
inline bool gemm_wgmma_map(CUtensorMap &map, int32_t dtype, const void *base, int64_t contiguous, int64_t rows,
                           int64_t ld, int64_t count, int64_t step, int32_t box) {
  const int64_t dims[3] = {contiguous, rows, count}, strides[2] = {ld, count > 1 ? step : rows * ld};
  const int32_t boxes[3] = {dtype == NNCUDA_F32 ? 32 : 64, box, 1};
  return nn_tensor_map(&map, dtype, 3, base, dims, strides, boxes, NN_SWIZZLE_128);
}

/*
 * Whether blocks work in pairs: where that takes no more rounds of tiles over the multiprocessors, and few blocks have
 * no rows to multiply, which is so with an even number of tiles one below the other, or at least PAIR_TILES; in groups,
 * whose lengths only the device knows, with that many tiles a group on average. A stage takes the tensor cores 1024
 * clocks, in which L2 has 38 KiB for each multiprocessor (5120 bytes a clock): alone a block reads 48, in a pair 32. Of
 * narrow tiles it is 32 and 24 in 512 clocks. No sum hangs on it. By count.
 */
constexpr int64_t GEMM_PAIR_TILES = 16;

template <class TILE, int COLUMNS> inline bool gemm_wgmma_pairs(nncuda_ctx *ctx, gemm_problem &p) {
  const int64_t sms = nn_gpu_sms(ctx);
  if (sms < 2) {
    return false;
  }
  if (p.ragged == NN_GEMM_RAGGED_M) {
    return p.m >= p.count * GEMM_PAIR_TILES * TILE::BM;
  }
  gemm_count_tiles<TILE::BM, COLUMNS>(p);
  const int64_t rounds = nn_ceil_div(p.tiles, sms);
  const bool few_lost = p.tiles_m % 2 == 0 || p.tiles_m >= GEMM_PAIR_TILES;
  gemm_count_tiles<2 * TILE::BM, COLUMNS>(p);
  return few_lost && nn_ceil_div(p.tiles, sms / 2) <= rounds;
}

template <class TILE, int COLUMNS>
inline int32_t gemm_wgmma_launch_tiles(nncuda_ctx *ctx, void (*kernel)(gemm_problem, gemm_wgmma_way, gemm_wgmma_maps),
                                       gemm_problem &p, gemm_wgmma_way way, const gemm_wgmma_maps &maps) {
  way.paired = gemm_wgmma_pairs<TILE, COLUMNS>(ctx, p);
  way.paired ? gemm_count_tiles<2 * TILE::BM, COLUMNS>(p) : gemm_count_tiles<TILE::BM, COLUMNS>(p);
  const int64_t most = nn_gpu_sms(ctx) >> way.paired;
  const auto blocks = (unsigned)(p.tiles < most ? p.tiles : most) << way.paired;
  return nn_launch_clusters(ctx, 1u << way.paired, kernel, dim3(blocks), dim3(TILE::THREADS), TILE::SHARED, p, way,
                            maps);
}

template <class T, bool TRANS_A, bool TRANS_B, class TILE>
inline int32_t gemm_wgmma_start(nncuda_ctx *ctx, gemm_problem &p, int32_t dtype, bool *done) {
  const auto kernel = gemm_wgmma_kernel<T, TRANS_A, TRANS_B, TILE>;
  static int known;
  gemm_wgmma_maps maps = {};
  const bool even = p.ragged == NN_GEMM_EVEN, ragged_k = p.ragged == NN_GEMM_RAGGED_K;
  *done = nn_wgmma_loaded(reinterpret_cast<const void *>(kernel), TILE::THREADS, &known) &&
          gemm_wgmma_map(maps.a, dtype, p.a, TRANS_A ? p.m : p.k, TRANS_A ? p.k : p.m, p.lda, even ? p.count : 1,
                         p.a_step, TRANS_A ? 64 : TILE::BM) &&
          gemm_wgmma_map(maps.b, dtype, p.b, TRANS_B ? p.k : p.n, TRANS_B ? p.n : p.k, p.ldb, ragged_k ? 1 : p.count,
                         p.b_step,
                         TRANS_B             ? TILE::HALF_B
                         : TILE::WHOLE_BOXES ? 64
                                             : 32);
  if (!*done) {
    return NNCUDA_SUCCESS;
  }
  const auto map_of_c = [&](CUtensorMap &map, const void *base, int32_t rows) {
    return gemm_wgmma_map(map, p.c_f32 ? NNCUDA_F32 : dtype, base, p.n, p.m, p.ldc,
                          p.ragged == NN_GEMM_RAGGED_M ? 1 : p.count, p.c_step, rows);
  };
  gemm_wgmma_way way = {};
  way.boxes = p.partial == nullptr && p.activation == NNCUDA_ACTIVATION_NONE &&
              (p.bias == nullptr || (p.c_wide && p.n % 8 == 0)) && map_of_c(maps.c, p.c, 16) &&
              (p.beta == 0.0f || map_of_c(maps.old_c, p.c, TILE::BM)) &&
              (p.residual == nullptr || map_of_c(maps.residual, p.residual, TILE::BM));
  way.old_c = way.boxes && p.beta != 0.0f;
  way.residual = way.boxes && p.residual != nullptr;
  way.plain = way.reads() == 0 && p.bias == nullptr;
  return gemm_wgmma_launch_tiles<TILE, TILE::BN>(ctx, kernel, p, way, maps);
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

/* Products that end with a gate. */
template <class T, class TILE, int GATE>
inline int32_t gemm_wgmma_start_gate(nncuda_ctx *ctx, gemm_problem &p, int32_t dtype, bool *done) {
  const auto kernel = gemm_wgmma_gate_kernel<T, TILE, GATE>;
  constexpr bool FORWARD = GATE == GEMM_SWIGLU;
  static int known;
  gemm_wgmma_maps maps = {};
  *done = nn_wgmma_loaded(reinterpret_cast<const void *>(kernel), TILE::THREADS, &known) &&
          gemm_wgmma_map(maps.a, dtype, p.a, p.k, p.m, p.lda, 1, p.a_step, TILE::BM) &&
          gemm_wgmma_map(maps.b, dtype, p.b, FORWARD ? p.k : p.n, FORWARD ? 2 * p.n : p.k, p.ldb, p.count, p.b_step,
                         FORWARD ? TILE::HALF_B : 64);
  if (!*done) {
    return NNCUDA_SUCCESS;
  }
  T *const gates = static_cast<T *>(p.c), *const ups = gates + p.up;
  const auto half_of_c = [&](CUtensorMap &map, const T *base, int32_t rows) {
    return gemm_wgmma_map(map, dtype, base, p.n, p.m, p.ldc, 1, 0, rows);
  };
  gemm_wgmma_way way = {};
  way.plain = 1;
  way.boxes = p.c_wide && half_of_c(maps.c, gates, 16) && half_of_c(maps.up, ups, 16) &&
              (FORWARD || (half_of_c(maps.old_c, gates, TILE::BM) && half_of_c(maps.residual, ups, TILE::BM)));
  way.old_c = way.residual = !FORWARD && way.boxes;
  return gemm_wgmma_launch_tiles<TILE, gemm_columns<GATE, TILE::BN>>(ctx, kernel, p, way, maps);
}

/* Rounds of tiles over the multiprocessors decide; narrower tiles take somewhat more than their share of a wide one's
 * time (by count of bytes read from shared memory). The sums are the same with all. */
template <class T>
inline int32_t gemm_wgmma_launch(nncuda_ctx *ctx, gemm_problem &p, const gemm_choice &choice, int32_t dtype,
                                 bool *done) {
  constexpr int64_t WIDE_COST = 16, MIDDLE_COST = 13, NARROW_COST = 9;
  const int64_t sms = nn_gpu_sms(ctx);
  const bool half = p.gate == GEMM_SWIGLU; /* of a tile are ups */
  half ? gemm_count_tiles<128, 128>(p) : gemm_count_tiles<128, 256>(p);
  const int64_t wide = nn_ceil_div(p.tiles, sms) * WIDE_COST;
  half ? gemm_count_tiles<128, 64>(p) : gemm_count_tiles<128, 128>(p);
  if (p.tiles > INT32_MAX) { /* they are counted in 32 bits */
    *done = false;
    return NNCUDA_SUCCESS;
  }
  const int64_t narrow = nn_ceil_div(p.tiles, sms) * NARROW_COST;
  if (p.gate == GEMM_SWIGLU) {
    return wide <= narrow ? gemm_wgmma_start_gate<T, gemm_wgmma_tile<256>, GEMM_SWIGLU>(ctx, p, dtype, done)
                          : gemm_wgmma_start_gate<T, gemm_wgmma_tile<128>, GEMM_SWIGLU>(ctx, p, dtype, done);
  }
  if (p.gate == GEMM_SWIGLU_BACKWARD) {
    return wide <= narrow ? gemm_wgmma_start_gate<T, gemm_wgmma_tile<256>, GEMM_SWIGLU_BACKWARD>(ctx, p, dtype, done)
                          : gemm_wgmma_start_gate<T, gemm_wgmma_tile<128>, GEMM_SWIGLU_BACKWARD>(ctx, p, dtype, done);
  }
  gemm_count_tiles<128, 192>(p);
  const int64_t middle = nn_ceil_div(p.tiles, sms) * MIDDLE_COST;
  if (middle < wide && middle <= narrow) {
    return gemm_wgmma_run_tile<T, gemm_wgmma_tile<192>>(ctx, p, choice, dtype, done);
  }
  return wide <= narrow ? gemm_wgmma_run_tile<T, gemm_wgmma_tile<256>>(ctx, p, choice, dtype, done)
                        : gemm_wgmma_run_tile<T, gemm_wgmma_tile<128>>(ctx, p, choice, dtype, done);
}

#endif
