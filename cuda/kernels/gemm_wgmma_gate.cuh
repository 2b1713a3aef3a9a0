/*
 * From the sums of a warp, 16 rows, through SwiGLU or its gradient to memory: of gemm_wgmma.cuh.
 *
 * Sums are rounded on their way to boxes in shared memory. There a lane meets the 16 bytes of gates and of ups that
 * belong together, since boxes are swizzled alike; unrolled over the sums in registers, a gate's code would be there
 * once for each of a lane's. Gates and ups leave by boxes; y, a third thing, goes to memory from registers, in runs of
 * 128 bytes, since there is no room for a third box.
 */
#ifndef NN_KERNELS_GEMM_WGMMA_GATE_CUH
#define NN_KERNELS_GEMM_WGMMA_GATE_CUH

#include "kernels/gemm_wgmma_finish.cuh"

/* Vector i of the box's 128 of 16 bytes: row i / 8; which 8 columns, the swizzle hides. */
__device__ __forceinline__ int32_t gemm_wgmma_column(int32_t i) { return ((i % 8) ^ (i / 8 % 8)) * 8; }

template <class T, class TILE>
__device__ __forceinline__ void gemm_wgmma_swiglu(const gemm_problem &p, const gemm_place &place,
                                                  const gemm_wgmma_way &way, const gemm_wgmma_maps &maps, int32_t row,
                                                  const float (&sum)[TILE::BN / 2], unsigned char *own) {
  constexpr int N = 8, VECTORS = TILE::C_BOX / 16;
  static_assert(sizeof(T) == 2, "a vector is 8 columns");
  const int lane = threadIdx.x % NN_WARP;
  const int32_t in_c = (int32_t)(place.row + place.first) + row;
  const float2 none[8] = {};
#pragma unroll
  for (int j = 0; j < TILE::BN / 128; j++) {
    if (64 * j < place.columns) {
      if (lane == 0) {
        nn_tensor_store_wait<0>();
      }
      __syncwarp();
      gemm_wgmma_box<T, true>(p, way, sum + 32 * j, own, nullptr, nullptr, none);
      gemm_wgmma_box<T, true>(p, way, sum + TILE::BN / 4 + 32 * j, own + TILE::C_BOX, nullptr, nullptr, none);
      nn_fence_async_shared();
      __syncwarp();
      const int32_t column = (int32_t)place.column + 64 * j;
      if (lane == 0) {
        nn_tensor_store(&maps.c, nn_shared_address(own), column, in_c, 0);
        nn_tensor_store(&maps.up, nn_shared_address(own + TILE::C_BOX), column, in_c, 0);
        nn_tensor_store_commit();
      }
      const int32_t left = place.columns - 64 * j;
      T *const y = static_cast<T *>(p.gated) + (int64_t)in_c * p.n + column;
#pragma unroll 1
      for (int32_t i = lane; i < VECTORS; i += NN_WARP) {
        const int32_t c = gemm_wgmma_column(i);
        if (c < left) {
          float gate[N], up[N];
          nn_load(gate, reinterpret_cast<const T *>(own + 16 * i));
          nn_load(up, reinterpret_cast<const T *>(own + TILE::C_BOX + 16 * i));
#pragma unroll
          for (int e = 0; e < N; e++) {
            gate[e] = silu_of<T>(gate[e]) * up[e];
          }
          nn_store(y + (int64_t)(i / 8) * p.n + c, gate);
        }
      }
      __syncwarp(); /* before the boxes are written again */
    }
  }
}

/* `puts`: whether the warp has rows that go by boxes; the ring, which gates and ups come by, is emptied all the same.
 */
template <class T, class TILE>
__device__ __forceinline__ void
gemm_wgmma_slopes(const gemm_problem &p, const gemm_place &place, const gemm_wgmma_way &way,
                  const gemm_wgmma_maps &maps, int32_t row, const float (&sum)[TILE::BN / 2], bool puts,
                  unsigned char *memory, const gemm_wgmma_barriers<TILE> &barriers, gemm_ring<TILE::STAGES> &ring) {
  constexpr int N = 8, VECTORS = TILE::C_BOX / 16, PER_STAGE = TILE::OLD_BOXES;
  static_assert(sizeof(T) == 2, "a vector is 8 columns");
  const int lane = threadIdx.x % NN_WARP;
  const int32_t in_c = (int32_t)(place.row + place.first) + row;
  unsigned char *const own = memory + TILE::C_AT + row / 16 * TILE::C_BYTES;
  const float2 none[8] = {};
  const unsigned char *gates = nullptr, *ups = nullptr;
  int32_t stages[2] = {};
#pragma unroll
  for (int j = 0; j < TILE::BN / 64; j++) {
    if (64 * j < place.columns) {
      if (j % PER_STAGE == 0) {
#pragma unroll
        for (int which = 0; which < 2; which++) {
          nn_mbarrier_wait(barriers.full + 8 * ring.stage, ring.parity);
          stages[which] = ring.stage;
          (which == 0 ? gates : ups) = memory + ring.stage * TILE::STAGE_BYTES + row * 128;
          ring.advance();
        }
      }
      if (puts) {
        if (lane == 0) {
          nn_tensor_store_wait<0>();
        }
        __syncwarp();
        gemm_wgmma_box<T, true>(p, way, sum + 32 * j, own, nullptr, nullptr, none);
        __syncwarp();
        const int at = j % PER_STAGE * TILE::OLD_BOX;
#pragma unroll 1
        for (int32_t i = lane; i < VECTORS; i += NN_WARP) {
          float slope[N], dup[N], gate[N], up[N];
          nn_load(slope, reinterpret_cast<const T *>(own + 16 * i));
          nn_load(gate, reinterpret_cast<const T *>(gates + at + 16 * i));
          nn_load(up, reinterpret_cast<const T *>(ups + at + 16 * i));
#pragma unroll
          for (int e = 0; e < N; e++) {
            swiglu_slopes<T>(slope[e], dup[e], gate[e], up[e]);
          }
          uint32_t words[4];
          nn_pack<T>(words, slope);
          *reinterpret_cast<uint4 *>(own + 16 * i) = make_uint4(words[0], words[1], words[2], words[3]);
          nn_pack<T>(words, dup);
          *reinterpret_cast<uint4 *>(own + TILE::C_BOX + 16 * i) = make_uint4(words[0], words[1], words[2], words[3]);
        }
        nn_fence_async_shared();
        __syncwarp();
        if (lane == 0) {
          const int32_t column = (int32_t)place.column + 64 * j;
          nn_tensor_store(&maps.c, nn_shared_address(own), column, in_c, 0);
          nn_tensor_store(&maps.up, nn_shared_address(own + TILE::C_BOX), column, in_c, 0);
          nn_tensor_store_commit();
        }
      }
      if (j % PER_STAGE == PER_STAGE - 1 || 64 * (j + 1) >= place.columns) {
        __syncwarp();
        barriers.give_back(stages[0]);
        barriers.give_back(stages[1]);
      }
    }
  }
}

#endif
