/* Barriers of some warps, mbarriers by phases, election. */
#include "check.cuh"

/* Warp 0 hands `rounds` rows of 32 words to warps 1 and 2 through 2 buffers; warp 3 meets them only at named barriers.
 */
__global__ void hand_over(uint32_t *out, int rounds) {
  __shared__ uint32_t buffers[2][32];
  __shared__ uint64_t full[2], empty[2];
  __shared__ uint32_t seen[96];
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) {
      nn_mbarrier_init(nn_shared_address(&full[i]), 32);
      nn_mbarrier_init(nn_shared_address(&empty[i]), 2);
    }
    nn_fence_mbarrier_init();
  }
  __syncthreads();
  uint32_t sum = 0;
  if (warp == 0) {
    for (int r = 0; r < rounds; r++) {
      const int slot = r % 2;
      nn_mbarrier_wait(nn_shared_address(&empty[slot]), (uint32_t)(r / 2 + 1) & 1); /* the first round is free */
      buffers[slot][lane] = (uint32_t)(100 * r + lane);
      nn_mbarrier_arrive(nn_shared_address(&full[slot]));
    }
  } else if (warp < 3) {
    for (int r = 0; r < rounds; r++) {
      const int slot = r % 2;
      nn_mbarrier_wait(nn_shared_address(&full[slot]), (uint32_t)(r / 2) & 1);
      sum += buffers[slot][(lane + warp) % 32] * (uint32_t)(r + 1);
      __syncwarp();
      if (nn_elect()) {
        nn_mbarrier_arrive(nn_shared_address(&empty[slot]));
      }
    }
    seen[threadIdx.x - 32] = sum;
    nn_barrier_sync(1, 96);
  } else {
    nn_barrier_sync(1, 96);
    sum = seen[lane] + 3 * seen[lane + 32];
  }
  if (warp == 0 || warp == 3) { /* the other two do not take part */
    nn_barrier_sync(2, 64);
  }
  out[threadIdx.x] = sum;
}

static void test_hand_over() {
  for (int rounds : {0, 1, 2, 3, 17}) {
    array<uint32_t> out(128);
    launch(hand_over, 2, 128, 0, out.device, rounds);
    out.from_device();
    uint32_t sums[2][32] = {};
    for (int r = 0; r < rounds; r++) {
      for (int lane = 0; lane < 32; lane++) {
        sums[0][lane] += (uint32_t)((100 * r + (lane + 1) % 32) * (r + 1));
        sums[1][lane] += (uint32_t)((100 * r + (lane + 2) % 32) * (r + 1));
      }
    }
    for (int lane = 0; lane < 32; lane++) {
      CHECK(out[lane] == 0 && out[32 + lane] == sums[0][lane] && out[64 + lane] == sums[1][lane] &&
                out[96 + lane] == sums[0][lane] + 3 * sums[1][lane],
            "%d rounds, lane %d", rounds, lane);
    }
  }
}

/* `groups` groups of two warps take turns in a circle, one after another, as often as `turns` says: each adds its mark
 * to a number that all share, in its turn only. The last one gives the first its first turn, and the first takes the
 * last one's back. */
__global__ void take_turns(uint32_t *out, uint32_t groups, int turns) {
  __shared__ volatile uint32_t shared[2];
  const uint32_t group = threadIdx.x / 64, next = group + 1 < groups ? group + 1 : 0;
  if (threadIdx.x < 2) {
    shared[threadIdx.x] = 0;
  }
  __syncthreads();
  if (next == 0) {
    nn_barrier_arrive(1, 128);
  }
  for (int i = 0; i < turns; i++) {
    nn_barrier_sync(1 + group, 128);
    if (threadIdx.x % 64 < 2) {
      shared[threadIdx.x % 64] = shared[threadIdx.x % 64] * 5 + group + 1;
    }
    nn_barrier_arrive(1 + next, 128);
  }
  if (group == 0) {
    nn_barrier_sync(1, 128);
    if (threadIdx.x < 2) {
      out[threadIdx.x] = shared[threadIdx.x];
    }
  }
}

static void test_take_turns() {
  for (uint32_t groups = 2; groups <= 4; groups++) {
    for (int turns : {0, 1, 2, 7}) {
      array<uint32_t> out(2);
      launch(take_turns, 1, 64 * (int)groups, 0, out.device, groups, turns);
      out.from_device();
      uint32_t wanted = 0;
      for (uint32_t i = 0; i < groups * (uint32_t)turns; i++) {
        wanted = wanted * 5 + i % groups + 1;
      }
      CHECK(out[0] == wanted && out[1] == wanted, "%u groups, %d turns: %u, %u", groups, turns, out[0], out[1]);
    }
  }
}

/* Warp 1 begins each round when warp 0 has written its number, and warp 0 does not wait for it: it is up to three
 * rounds ahead. */
__global__ void go_ahead(uint32_t *out, int rounds) {
  __shared__ uint32_t numbers[4][32];
  __shared__ uint64_t read[4];
  const int lane = (int)threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4; i++) {
      nn_mbarrier_init(nn_shared_address(&read[i]), 32);
    }
    nn_fence_mbarrier_init();
  }
  __syncthreads();
  uint32_t sum = 0;
  for (int r = 0; r < rounds; r++) {
    const uint32_t barrier = 1 + (uint32_t)r % 4;
    if (threadIdx.x < 32) {
      nn_mbarrier_wait(nn_shared_address(&read[r % 4]), (uint32_t)(r / 4 + 1) & 1);
      numbers[r % 4][lane] = (uint32_t)(r * r + lane);
      nn_barrier_arrive(barrier, 64);
    } else {
      nn_barrier_sync(barrier, 64);
      sum += numbers[r % 4][31 - lane] * (uint32_t)(r + 1);
      nn_mbarrier_arrive(nn_shared_address(&read[r % 4]));
    }
  }
  out[threadIdx.x] = sum;
}

static void test_go_ahead() {
  for (int rounds : {0, 1, 5, 30}) {
    array<uint32_t> out(64);
    launch(go_ahead, 1, 64, 0, out.device, rounds);
    out.from_device();
    for (int lane = 0; lane < 32; lane++) {
      uint32_t sum = 0;
      for (int r = 0; r < rounds; r++) {
        sum += (uint32_t)(r * r + 31 - lane) * (uint32_t)(r + 1);
      }
      CHECK(out[lane] == 0 && out[32 + lane] == sum, "%d rounds, lane %d: %u, not %u", rounds, lane, out[32 + lane],
            sum);
    }
  }
}

__global__ void elect(uint32_t *elected) {
  if (nn_elect()) {
    elected[threadIdx.x / 32] += 1;
  }
  if (nn_elect()) {
    elected[threadIdx.x / 32] += 100 * (threadIdx.x % 32) + 10000;
  }
}

static void test_elect() {
  array<uint32_t> elected(4);
  launch(elect, 1, 128, 0, elected.to_device());
  elected.from_device();
  for (int w = 0; w < 4; w++) {
    CHECK(elected[w] % 100 == 1 && elected[w] / 10000 == 1 && elected[w] == elected[0], "warp %d: %u", w, elected[w]);
  }
}

int main() {
  if (device_arch() >= 90) {
    test_hand_over();
    test_take_turns();
    test_go_ahead();
    test_elect();
  }
  puts("barrier: passed");
}
