/*
 * Blocks of a cluster: copies that go to all of them, barriers of one that others tell, the barrier of all.
 *
 * With an argument, the name of a mistake, the same without what the mistake leaves out; for the emulator alone, since
 * a GPU would hang or go on with anything (tests/emulator/test_mistakes.py).
 */
#include "check.cuh"

#include "interface.h"
#include "kernels/tensormap.cu" /* so that a test is one program */

enum mistake { NONE, NO_FIRST_SYNC, NO_LAST_SYNC, TO_ITSELF_ALONE, TELLS_ITSELF_ALONE, NO_SUCH_BLOCK, NOT_ITS_OWN };
constexpr const char *MISTAKES[] = {
    "none",          "no first sync", "no last sync", "copies to itself alone", "tells itself alone",
    "no such block", "not its own"};

constexpr int ROWS = 8, PART = ROWS * 128, WORDS = PART / 4, STAGES = 2;

/* Each block of a cluster loads every round its own part, of 8 rows of 128 bytes, to all blocks, by warp 0; warp 1 adds
 * up the words of all parts, times the round, and tells every block that the stage is free. */
__global__ void share_parts(const __grid_constant__ CUtensorMap map, int cluster, int rounds, int mistake,
                            uint32_t *out) {
  SHARED_BYTES(memory);
  const uint32_t shared = nn_shared_address(memory), stage_bytes = (uint32_t)(cluster * PART);
  const uint32_t full = shared + STAGES * stage_bytes, empty = full + 8 * STAGES;
  const uint32_t rank = nn_cluster_rank(), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      nn_mbarrier_init(full + 8 * i, 1);
      nn_mbarrier_init(empty + 8 * i, (uint32_t)cluster);
    }
    nn_fence_mbarrier_init();
  }
  __syncthreads();
  if (mistake != NO_FIRST_SYNC) {
    nn_cluster_sync();
  }
  if (threadIdx.x < 32) {
    const bool elected = nn_elect();
    for (int r = 0; r < rounds; r++) {
      const uint32_t stage = (uint32_t)(r % STAGES), to = shared + stage * stage_bytes + rank * PART;
      if (elected) {
        nn_mbarrier_wait(empty + 8 * stage, (uint32_t)(r / STAGES + 1) & 1);
        nn_mbarrier_arrive_expect(full + 8 * stage, stage_bytes);
        const int blocks = mistake == TO_ITSELF_ALONE ? 1 << rank : (1 << cluster) - 1;
        nn_tensor_load_all(to, &map, full + 8 * stage, (uint16_t)blocks, nn_l2_evict_normal(), 0,
                           (int)(r * cluster + (int)rank) * ROWS, (int)(blockIdx.x / (unsigned)cluster));
      }
      __syncwarp();
    }
  } else {
    uint32_t sum = 0;
    for (int r = 0; r < rounds; r++) {
      const uint32_t stage = (uint32_t)(r % STAGES);
      nn_mbarrier_wait(full + 8 * stage, (uint32_t)(r / STAGES) & 1);
      const uint32_t *words = (const uint32_t *)(memory + stage * stage_bytes);
      for (int i = (int)lane; i < cluster * WORDS; i += 32) {
        sum += words[i] * (uint32_t)(r + 1);
      }
      __syncwarp();
      if ((int)lane < cluster) {
        const uint32_t whom = mistake == TELLS_ITSELF_ALONE ? rank : lane + (mistake == NO_SUCH_BLOCK ? 1 : 0);
        const uint32_t barrier = nn_cluster_address(empty + 8 * stage, whom);
        mistake == NOT_ITS_OWN ? nn_mbarrier_arrive(barrier) : nn_mbarrier_arrive_in_cluster(barrier);
      }
    }
    out[blockIdx.x * 32 + lane] = sum;
  }
  if (mistake != NO_LAST_SYNC) {
    nn_cluster_sync();
  }
}

static void test_parts(int cluster, int clusters, int rounds, int mistake) {
  const int64_t each = (int64_t)rounds * cluster * WORDS; /* words of a cluster */
  array<uint32_t> x(each * clusters), out((int64_t)32 * cluster * clusters);
  for (int64_t i = 0; i < x.count; i++) {
    x[i] = (uint32_t)(7 * i + 1);
  }
  x.to_device();
  const int64_t dims[3] = {32, each / 32, clusters}, strides[2] = {32, each};
  const int32_t box[3] = {32, ROWS, 1};
  CUtensorMap map;
  CHECK(nn_tensor_map(&map, NNCUDA_F32, 3, x.device, dims, strides, box, NN_SWIZZLE_NONE), "a map");
  launch_clusters(share_parts, (unsigned)cluster, (unsigned)(cluster * clusters), 64,
                  (size_t)(STAGES * (cluster * PART + 16)), map, cluster, rounds, mistake, out.device);
  out.from_device();
  for (int c = 0; c < clusters; c++) {
    uint32_t sums[32] = {};
    for (int64_t i = 0; i < each; i++) {
      sums[i % 32] += x[c * each + i] * (uint32_t)(i / (cluster * WORDS) + 1);
    }
    for (int i = 0; i < 32 * cluster; i++) {
      CHECK(out[c * 32 * cluster + i] == sums[i % 32], "cluster %d of %d blocks, %d rounds, sum %d: %u, not %u", c,
            cluster, rounds, i, out[c * 32 * cluster + i], sums[i % 32]);
    }
  }
}

/* Barriers of the cluster in places of their own, by threads that take no part in the same loops, and one that ends
 * before. */
__global__ void meet(uint32_t *out) {
  SHARED_BYTES(memory);
  uint32_t *const number = (uint32_t *)memory;
  if (threadIdx.x >= 64) {
    return;
  }
  if (threadIdx.x == 0) {
    *number = 0;
    for (int i = 0; i <= (int)nn_cluster_rank(); i++) {
      *number += (uint32_t)i + blockIdx.x;
    }
    nn_cluster_sync();
  } else {
    nn_cluster_sync();
  }
  out[blockIdx.x * 64 + threadIdx.x] = *number;
}

static void test_meet() {
  array<uint32_t> out(6 * 64);
  launch_clusters(meet, 2, 6, 96, 16, out.device);
  out.from_device();
  for (uint32_t i = 0; i < 6 * 64; i++) {
    const uint32_t block = i / 64, expected = block % 2 == 0 ? block : 2 * block + 1;
    CHECK(out[i] == expected, "block %u, thread %u: %u, not %u", block, i % 64, out[i], expected);
  }
}

int main(int count, char **arguments) {
  CHECK(device_arch() >= 90, "clusters of sm_90");
  for (int i = 1; count > 1 && i < (int)(sizeof MISTAKES / sizeof *MISTAKES); i++) {
    if (!strcmp(arguments[1], MISTAKES[i])) {
      test_parts(2, 3, 5, i);
      puts("went on");
      return 0;
    }
  }
  CHECK(count == 1, "no such mistake: %s", arguments[1]);
  for (int cluster : {1, 2, 4}) {
    for (int rounds : {1, 2, 3, 17}) {
      test_parts(cluster, 3, rounds, NONE);
    }
  }
  test_meet();
  puts("cluster: passed");
}
