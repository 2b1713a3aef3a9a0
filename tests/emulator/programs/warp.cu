/* Every exchange of a warp against its definition, computed on the host: for full and partial masks, and widths. */
#include "program.cuh"

#include <mma.h>

enum { LANES = 32, CASES = 8 };

__device__ unsigned value_of(unsigned lane) { return (lane * 2654435761u) >> 27; }

/* Lane by lane, what each instruction returned. Lanes outside the mask leave early. */
__global__ void exchanges(unsigned mask, int width, unsigned *out) {
  const unsigned lane = threadIdx.x, mine = value_of(lane);
  if (!(mask >> lane & 1)) {
    return;
  }
  unsigned n = 0;
  const auto put = [&](unsigned value) { out[n++ * LANES + lane] = value; };
  put(__shfl_sync(mask, mine, (int)(lane + 3), width));
  put(__shfl_up_sync(mask, mine, 3, width));
  put(__shfl_down_sync(mask, mine, 5, width));
  put(__shfl_xor_sync(mask, mine, 5, width));
  put(__ballot_sync(mask, mine & 1));
  put(__match_any_sync(mask, mine / 4));
  const double wide = __shfl_xor_sync(mask, (double)mine, 5, width);
  put((unsigned)wide);
  __syncwarp(mask);
  put((unsigned)__popc(mask));
}

void expect(unsigned mask, int width, const unsigned *got) {
  unsigned odd = 0;
  for (unsigned lane = 0; lane < LANES; lane++) {
    odd |= (mask >> lane & value_of(lane) & 1) << lane;
  }
  for (unsigned lane = 0; lane < LANES; lane++) {
    if (!(mask >> lane & 1)) {
      continue;
    }
    const int segment = (int)lane / width * width, inside = (int)lane - segment;
    unsigned n = 0;
    const auto given = [&](int source) { return mask >> source & 1 ? value_of((unsigned)source) : ~0u; };
    const auto next = [&] { return got[n++ * LANES + lane]; };
    const int flipped = (int)lane ^ 5;
    const unsigned crossed = given(flipped < segment + width ? flipped : (int)lane);
    CHECK(next() == given(segment + ((int)lane + 3) % width));
    CHECK(next() == given(inside >= 3 ? (int)lane - 3 : (int)lane));
    CHECK(next() == given(inside + 5 < width ? (int)lane + 5 : (int)lane));
    CHECK(next() == crossed);
    CHECK(next() == odd);
    unsigned matching = 0;
    for (unsigned other = 0; other < LANES; other++) {
      matching |= (unsigned)((mask >> other & 1) && value_of(other) / 4 == value_of(lane) / 4) << other;
    }
    CHECK(next() == matching);
    const unsigned wide = next();
    CHECK(crossed == ~0u || wide == crossed);
    CHECK(next() == (unsigned)__builtin_popcount(mask));
    CHECK(n <= CASES);
  }
}

/* Two halves of a warp that exchange by themselves, a different number of times, and then all together: a lane must
 * still find the values of its own exchange, however far the others have gone on. */
__global__ void halves(unsigned *out) {
  const unsigned lane = threadIdx.x % 32;
  unsigned value = threadIdx.x;
  if (lane < 16) {
    for (int i = 0; i < 5; i++) {
      value += __shfl_xor_sync(0x0000ffffu, value, 1);
    }
  } else {
    for (int i = 0; i < 2; i++) {
      value += __shfl_xor_sync(0xffff0000u, value, 1);
    }
  }
  out[threadIdx.x] = __shfl_sync(~0u, value, 31 - (int)lane);
}

__global__ void tile(const __half *a, const __half *b, const float *c, float *d) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
  fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
  fragment<accumulator, 16, 16, 16, float> fc, fd;
  load_matrix_sync(fa, a, 16);
  load_matrix_sync(fb, b, 24);
  load_matrix_sync(fc, c, 16, mem_col_major);
  fill_fragment(fd, 0.0f);
  mma_sync(fd, fa, fb, fc);
  store_matrix_sync(d, fd, 20, mem_row_major);
}

void check_tile() {
  __half a[16 * 16], b[16 * 24];
  float c[16 * 16], d[16 * 20];
  for (int i = 0; i < 16 * 24; i++) {
    b[i] = __float2half_rn((float)(i * 7 % 11 - 5));
  }
  for (int i = 0; i < 16 * 16; i++) {
    a[i] = __float2half_rn((float)(i * 5 % 13 - 6));
    c[i] = (float)(i % 17);
  }
  __half *da = device_array<__half>(16 * 16), *db = device_array<__half>(16 * 24);
  float *dc = device_array<float>(16 * 16), *dd = device_array<float>(16 * 20);
  OK(cudaMemcpy(da, a, sizeof a, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(db, b, sizeof b, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(dc, c, sizeof c, cudaMemcpyHostToDevice));
  OK(launch(tile, 1, 32, 0, nullptr, (const __half *)da, (const __half *)db, (const float *)dc, dd));
  OK(cudaMemcpy(d, dd, sizeof d, cudaMemcpyDeviceToHost));
  for (int row = 0; row < 16; row++) {
    for (int column = 0; column < 16; column++) {
      float sum = c[column * 16 + row];
      for (int k = 0; k < 16; k++) {
        sum += __half2float(a[row * 16 + k]) * __half2float(b[column * 24 + k]);
      }
      CHECK(d[row * 20 + column] == sum);
    }
  }
}

int main() {
  unsigned *out = device_array<unsigned>(CASES * LANES), got[CASES * LANES];
  for (unsigned mask : {~0u, 0xffffu, 0x0ff0ff00u, 0x80000001u, 0x00000010u}) {
    for (int width : {32, 16, 8}) {
      OK(launch(exchanges, 1, 32, 0, nullptr, mask, width, out));
      OK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
      expect(mask, width, got);
    }
  }
  OK(launch(halves, 1, 64, 0, nullptr, out));
  OK(cudaMemcpy(got, out, 64 * sizeof *got, cudaMemcpyDeviceToHost));
  for (unsigned thread = 0; thread < 64; thread++) {
    const unsigned source = thread / 32 * 32 + 31 - thread % 32, pair = 2 * source + (source % 2 ? -1 : 1);
    CHECK(got[thread] == (source % 32 < 16 ? 16 * pair : 2 * pair));
  }
  check_tile();
  puts("ok");
}
