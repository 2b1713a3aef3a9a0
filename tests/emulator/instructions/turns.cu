/* Turns of blocks: tickets, numbers that only grow, bulk copies that store and add. */
#include "check.cuh"

constexpr int FLOATS = 96;

/* Each block adds its floats to one place after those with lower tickets, of which the first stores. Additions do not
 * commute: a block's turn shows in the sum. */
__global__ void take_turns(uint32_t *numbers, float *sums, float *copies, uint32_t *tickets) {
  __shared__ __align__(128) float own[FLOATS];
  __shared__ uint32_t ticket;
  if (threadIdx.x == 0) {
    ticket = nn_turn_ticket(numbers);
    tickets[blockIdx.x] = ticket;
  }
  __syncthreads();
  for (int i = (int)threadIdx.x; i < FLOATS; i += 32) {
    own[i] = ticket == 0 ? 1.0f : ticket % 2 == 1 ? 16777216.0f + (float)i : -16777216.0f;
  }
  nn_fence_async_shared();
  __syncthreads();
  if (threadIdx.x == 0) {
    nn_bulk_store(copies + ticket * FLOATS, nn_shared_address(own), 4 * FLOATS);
    nn_tensor_store_commit();
    if (ticket == 0) {
      nn_bulk_store(sums, nn_shared_address(own), 4 * FLOATS);
    } else {
      nn_turn_wait(numbers + 1, ticket);
      nn_bulk_add(sums, nn_shared_address(own), 4 * FLOATS);
    }
    nn_tensor_store_commit();
    nn_bulk_wait<1>(); /* the copy */
    nn_tensor_store_wait<0>();
    nn_bulk_wait<0>();
    nn_turn_raise(numbers + 1, ticket + 1);
    nn_turn_raise(numbers + 1, ticket / 2); /* never lowers it */
  }
}

static void test_turns(int blocks) {
  array<uint32_t> numbers(2), tickets(blocks);
  array<float> sums(FLOATS), copies((int64_t)blocks * FLOATS);
  numbers.to_device(); /* zeros */
  launch(take_turns, (unsigned)blocks, 32, 0, numbers.device, sums.device, copies.device, tickets.device);
  numbers.from_device();
  tickets.from_device();
  sums.from_device();
  copies.from_device();
  CHECK(numbers[0] == (uint32_t)blocks && numbers[1] == (uint32_t)blocks, "%u tickets, turn %u", numbers[0],
        numbers[1]);
  uint32_t taken = 0;
  for (int b = 0; b < blocks; b++) {
    CHECK(tickets[b] < (uint32_t)blocks && !(taken >> tickets[b] & 1), "block %d has ticket %u", b, tickets[b]);
    taken |= 1u << tickets[b];
  }
  for (int i = 0; i < FLOATS; i++) {
    float sum = 1.0f;
    for (int t = 0; t < blocks; t++) {
      const float own = t == 0 ? 1.0f : t % 2 == 1 ? 16777216.0f + (float)i : -16777216.0f;
      CHECK(copies[t * FLOATS + i] == own, "ticket %d, float %d: %g", t, i, (double)copies[t * FLOATS + i]);
      sum = t == 0 ? own : sum + own;
    }
    CHECK(sums[i] == sum, "%d blocks, float %d: %g, not %g", blocks, i, (double)sums[i], (double)sum);
  }
}

int main() {
  CHECK(device_arch() >= 90, "bulk copies of sm_90");
  for (int blocks : {1, 2, 7, 20}) {
    test_turns(blocks);
  }
  puts("turns: passed");
}
