/* Where the parts of a block's shared memory lie, and how its warps take turns: of gemm_wgmma.cuh. */
#ifndef NN_KERNELS_GEMM_WGMMA_TILE_CUH
#define NN_KERNELS_GEMM_WGMMA_TILE_CUH

#include "kernels/gemm_gate.cuh"
#include "kernels/tensormap.cuh"
#include "kernels/wgmma_kernel.cuh"

/* What the producer tells the consumers of a tile; `more` is 0 after the last. */
struct alignas(8) gemm_wgmma_turn {
  gemm_place place;
  int32_t more;
};

/*
 * 128 x 256 is the largest tile whose sums fit the registers: it reads 1.5 bytes of shared memory for 128 products,
 * which leaves the tensor cores the limit. 128 x 192 and 128 x 128 serve products whose tiles would leave
 * multiprocessors without one. The ring takes 192 KiB, and 4 KiB a warp are for what is on its way to C: two boxes, or
 * sums. setmaxnreg: 128 * 56 + 256 * 224 = 64512 registers. From APART stages on the warpgroups begin a tile one after
 * the other; a tile must have as many as the ring, so that the first cannot be a tile ahead. By count. (Measured on an
 * H200: two stages apart, or four boxes of C with a ring of three stages, are no faster.)
 */
template <int BN_> struct gemm_wgmma_tile {
  static constexpr int BM = 128, BN = BN_, BK = 64, CONSUMERS = 2, WARPS = 4 * CONSUMERS;
  static constexpr int BOX = 64 * 128; /* 64 rows of 128 bytes: what repeats along the side that is not k */
  static constexpr int A_BYTES = BM / 64 * BOX, STAGE_BYTES = A_BYTES + BN / 64 * BOX, STAGES = 196608 / STAGE_BYTES;
  /* B comes in halves, a block of a pair each: of the columns, or, where they would cut a box, of k. */
  static constexpr int HALF_B = BN / 2, HALF_B_BYTES = HALF_B * 128;
  static constexpr bool WHOLE_BOXES = HALF_B % 64 == 0;
  static constexpr int APART = 8;
  static constexpr int CHUNK = 32, SUMS_LD = CHUNK + 8;       /* columns of sums that a warp writes at once */
  static constexpr int C_BOX = 16 * 128, C_BYTES = 2 * C_BOX; /* 16 rows of 128 bytes; of a warp */
  static constexpr int OLD_BOX = BM * 128, OLD_BOXES = STAGE_BYTES / OLD_BOX; /* what a stage has of C or residual */
  static constexpr int C_AT = STAGES * STAGE_BYTES, TURNS = 4, TURNS_AT = C_AT + WARPS * C_BYTES;
  static constexpr int BARRIERS_AT = TURNS_AT + TURNS * (int)sizeof(gemm_wgmma_turn);
  static constexpr int SHARED = BARRIERS_AT + 2 * (STAGES + TURNS) * 8;
  static constexpr int THREADS = 128 + 128 * CONSUMERS;
  static_assert(APART >= STAGES, "the first warpgroup must not be a tile ahead");
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

/* Addresses of barriers: `full` and `empty` of each stage, then those of each turn. In a pair of blocks (see
 * gemm_wgmma.cuh) lanes 0 and 1 of a warp tell both that a stage is empty. */
template <class TILE> struct gemm_wgmma_barriers {
  uint32_t full, empty, turn_full, turn_empty;
  uint32_t told; /* `empty` of the block that this lane tells */
  bool tells;

  __device__ __forceinline__ gemm_wgmma_barriers(uint32_t shared, int32_t paired)
      : full(shared + TILE::BARRIERS_AT), empty(full + 8 * TILE::STAGES), turn_full(empty + 8 * TILE::STAGES),
        turn_empty(turn_full + 8 * TILE::TURNS), told(empty), tells((int)threadIdx.x % NN_WARP <= paired) {
    if (paired) {
      told = nn_cluster_address(empty, threadIdx.x % 2);
    }
  }
  /* By a warp of the consumers that has read the stage. */
  __device__ __forceinline__ void give_back(int32_t stage) const {
    if (tells) {
      nn_mbarrier_arrive_in_cluster(told + 8 * stage);
    }
  }
};

/* How sums go to C: see gemm_wgmma_finish.cuh. */
struct gemm_wgmma_way {
  int32_t boxes, plain;    /* by boxes; and nothing but alpha and a rounding happens to them */
  int32_t old_c, residual; /* whether boxes of the old C, and of the residual, come by the ring */
  int32_t paired;          /* 1: blocks are in pairs, 0: they are not */

  __host__ __device__ __forceinline__ int32_t reads() const { return old_c + residual; }
};

/* Maps of what boxes are loaded and stored: C by 16 rows; C as it was and the residual by the rows of a tile. Where C
 * is gates and ups, c has the gates and `up` the ups; for their gradients, old_c and residual are both as they were. */
struct gemm_wgmma_maps {
  CUtensorMap a, b, c, old_c, residual, up;
};

#endif
