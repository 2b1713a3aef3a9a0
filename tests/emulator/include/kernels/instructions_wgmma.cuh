/*
 * Twin of cuda/kernels/instructions_wgmma.cuh. Each thread computes its own part of d. From the start of a product
 * until the wait that covers it, its d is filled with NaN, and its operands are read from shared memory only at that
 * wait: d used too early, or operands overwritten too early, show in the results.
 *
 * Sums are in f32 in the order of k, as in instructions_mma.cuh. kernels/wgmma_descriptor.cuh is not used here:
 * descriptors are read bit by bit as PTX 9.7.15.5.1.2.2 says.
 */
#ifndef NN_INSTRUCTIONS_WGMMA_CUH
#define NN_INSTRUCTIONS_WGMMA_CUH

#include "emulator/warp.h"
#include "kernels/instructions_copy.cuh"
#include "kernels/instructions_mma.cuh"
#include "kernels/wgmma_descriptor.cuh"
#include <cuda_runtime.h>
#include <limits>
#include <stdint.h>
#include <string.h>
#include <vector>

/* An operand in shared memory. */
struct nn_emulated_operand_matrix {
  uint32_t start, leading, stride, width; /* bytes; width 16: no swizzle */
  bool mn_major;

  nn_emulated_operand_matrix() = default;
  nn_emulated_operand_matrix(uint64_t descriptor, bool is_mn_major) {
    static constexpr uint32_t widths[4] = {16, 128, 64, 32};
    start = (uint32_t)(descriptor & 0x3fff) << 4;
    leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4;
    stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
    width = widths[descriptor >> 62];
    mn_major = is_mn_major;
    if (descriptor & 0x3ff1c000c000c000 || (descriptor >> 49 & 7)) {
      nn_emulated_fail("wgmma: descriptor %#llx has reserved bits or a base offset", (unsigned long long)descriptor);
    }
    /* Steps inside of a pattern: along k within a row of k; otherwise by whole patterns. */
    const uint32_t in_row = start % width;
    if (width > 16 && (start % (8 * width) >= width || (mn_major ? in_row != 0 : in_row + 32 > width))) {
      nn_emulated_fail("wgmma: start address %#x is not at, or not allowed inside, a pattern of 8 rows of %u bytes",
                       start, width);
    }
  }

  /* Where element (mn, k) lies. The canonical layouts of PTX 9.7.15.5.1.2.1.3, "((T, ...", with T = 8 elements: read
   * from left to right, the indices that the shape splits mn and k into, times the strides. */
  uint32_t address(uint32_t mn, uint32_t k) const {
    const uint32_t T = 8, W = width / 16; /* elements in 16 bytes; 16-byte units in a row */
    uint32_t bytes;
    if (mn_major && W > 1) { /* ((T,W,m),(8,k)):((1,T,LBO),(W T,SBO)) */
      bytes = 2 * (mn % T + mn / T % W * T + k % 8 * W * T) + mn / (T * W) * leading + k / 8 * stride;
    } else if (mn_major) { /* ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO)) */
      bytes = 2 * (mn % T + k % 8 * T) + mn / T * stride + k / 8 * leading;
    } else if (W > 1) { /* ((8,m),(T,2k)):((W T,SBO),(1,T)) */
      bytes = 2 * (mn % 8 * W * T + k % T + k / T * T) + mn / 8 * stride;
    } else { /* ((8,m),(T,2k)):((1T,SBO),(1,LBO)) */
      bytes = 2 * (mn % 8 * T + k % T) + mn / 8 * stride + k / T * leading;
    }
    /* Swizzle<B,4,3>: of the address, the B bits from bit 7 up are XORed into those from bit 4 up; 2^B = W. */
    const uint32_t plain = (start + bytes) & 0x3ffff;
    return plain ^ (plain >> 7 & (W - 1)) << 4;
  }
  /* Its bits. */
  uint16_t element(uint32_t mn, uint32_t k) const {
    uint16_t bits;
    memcpy(&bits, nn_emulated_shared_bytes(address(mn, k), 2, 2, "wgmma"), 2);
    return bits;
  }
  /* All of `count` by 16 elements must have been made known to wgmma. */
  void check_known(uint32_t count) const {
    const nn_emulated_writes &writes = nn_emulated_writes_of_block();
    for (uint32_t mn = 0; mn < count && !writes.writes.empty(); mn += mn_major ? 8 : 1) {
      for (uint32_t k = 0; k < 16; k += mn_major ? 1 : 8) {
        writes.read(address(mn, k), 16, "wgmma");
      }
    }
  }
};

struct nn_emulated_product {
  float *d;
  float (*value)(uint16_t);
  bool accumulate, a_in_registers;
  float a[2][16]; /* from registers: this thread's two rows */
  nn_emulated_operand_matrix a_matrix, b_matrix;
};

/* d of products on their way: its true values, and in how many products it takes part. */
struct nn_emulated_accumulator {
  float *d;
  std::vector<float> values;
  int products;
};

struct nn_emulated_products {
  std::vector<std::vector<nn_emulated_product>> groups; /* the last one is still open */
  std::vector<nn_emulated_accumulator> accumulators;
  bool fenced = false; /* since the last wait */
};

inline nn_emulated_products &nn_emulated_products_of_thread() {
  static uint64_t block = ~(uint64_t)0;
  static nn_emulated_products threads[1024];
  if (block != nn_emulated_cluster_serial()) {
    for (auto &products : threads) {
      products = {};
    }
    block = nn_emulated_cluster_serial();
  }
  nn_emulated_products &products = threads[nn_emulated_thread()];
  if (products.groups.empty()) {
    products.groups.emplace_back();
  }
  return products;
}

inline void nn_wgmma_fence(nn_site site = nn_site::here()) {
  nn_emulated_requires(900, "wgmma.fence");
  nn_emulated_gather(0xffffffffu, 0u, site.in("wgmma.fence"));
  nn_emulated_products_of_thread().fenced = true;
}

inline void nn_wgmma_commit(nn_site site = nn_site::here()) {
  nn_emulated_requires(900, "wgmma.commit_group");
  nn_emulated_gather(0xffffffffu, 0u, site.in("wgmma.commit_group"));
  nn_emulated_products_of_thread().groups.emplace_back();
}

/* D's layout, PTX 9.7.15.5.1.1.1, figure 149: element i of thread (warp w of 4, lane 4g + t) is in row
 * 16w + g + 8 * (i / 2 % 2), column 8 * (i / 4) + 2t + i % 2. */
inline void nn_emulated_multiply(const nn_emulated_product &p, nn_emulated_accumulator &accumulator) {
  const uint32_t w = nn_emulated_warp() % 4, g = nn_emulated_lane() / 4, t = nn_emulated_lane() % 4;
  float a[2][16];
  for (uint32_t r = 0; r < 2; r++) {
    for (uint32_t k = 0; k < 16; k++) {
      a[r][k] = p.a_in_registers ? p.a[r][k] : p.value(p.a_matrix.element(16 * w + g + 8 * r, k));
    }
  }
  float *values = accumulator.values.data();
  for (uint32_t i = 0; i < accumulator.values.size(); i += 4) {
    for (uint32_t j = 0; j < 2; j++) {
      float b[16];
      for (uint32_t k = 0; k < 16; k++) {
        b[k] = p.value(p.b_matrix.element(2 * i + 2 * t + j, k));
      }
      for (uint32_t r = 0; r < 2; r++) {
        float sum = p.accumulate ? values[i + 2 * r + j] : 0.0f;
        for (uint32_t k = 0; k < 16; k++) {
          sum += a[r][k] * b[k];
        }
        values[i + 2 * r + j] = sum;
      }
    }
  }
}

/* A product is an operation of the whole warpgroup: once it is complete for one warp, no warp's part of it still reads
 * shared memory. (What one thread of a warpgroup relies on when it gives the operands' buffer back.) */
inline void nn_emulated_warpgroup_sync(nn_site site) {
  static uint64_t block = ~(uint64_t)0;
  static struct {
    uint32_t came, round;
  } groups[8];
  if (block != nn_emulated_cluster_serial()) {
    memset(groups, 0, sizeof groups);
    block = nn_emulated_cluster_serial();
  }
  auto &group = groups[nn_emulated_thread() / 128];
  const uint32_t round = group.round;
  if (++group.came == 128) {
    group.came = 0;
    group.round++;
  }
  while (group.round == round) {
    nn_emulated_yield(site.in("wgmma.wait_group"));
  }
}

template <int PENDING> inline void nn_wgmma_wait(nn_site site = nn_site::here()) {
  nn_emulated_requires(900, "wgmma.wait_group");
  nn_emulated_gather(0xffffffffu, 0u, site.in("wgmma.wait_group"));
  nn_emulated_products &products = nn_emulated_products_of_thread();
  while (products.groups.size() > (size_t)PENDING + 1) {
    for (const nn_emulated_product &product : products.groups.front()) {
      size_t i = 0;
      while (products.accumulators[i].d != product.d) {
        i++;
      }
      nn_emulated_accumulator &accumulator = products.accumulators[i];
      nn_emulated_multiply(product, accumulator);
      if (--accumulator.products == 0) {
        memcpy(accumulator.d, accumulator.values.data(), 4 * accumulator.values.size());
        products.accumulators.erase(products.accumulators.begin() + (ptrdiff_t)i);
      }
    }
    products.groups.erase(products.groups.begin());
  }
  products.fenced = false;
  nn_emulated_warpgroup_sync(site);
}

template <class T, int COUNT> inline void nn_wgmma_hold(T (&registers)[COUNT]) {
  static_assert(sizeof(T) == 4, "float or uint32_t");
  (void)registers;
}

inline void nn_wgmma_wait_after(float a, float b) {
  nn_emulated_requires(900, "wgmma");
  if (a < 0.0f || b < 0.0f) {
    nn_emulated_fail("nn_wgmma_wait_after: %g, %g: a negative number would sleep", (double)a, (double)b);
  }
}

inline void nn_emulated_start_product(const nn_emulated_product &product, int count) {
  nn_emulated_products &products = nn_emulated_products_of_thread();
  if (nn_emulated_lane() == 0) {
    if (!product.a_in_registers) {
      product.a_matrix.check_known(64);
    }
    product.b_matrix.check_known(2 * (uint32_t)count);
  }
  products.groups.back().push_back(product);
  for (nn_emulated_accumulator &accumulator : products.accumulators) {
    if (accumulator.d == product.d) {
      if (accumulator.values.size() != (size_t)count) {
        nn_emulated_fail("wgmma: accumulators of another shape are in use without a wgmma.fence between");
      }
      accumulator.products++;
      return;
    }
    if (product.d < accumulator.d + accumulator.values.size() && accumulator.d < product.d + count) {
      nn_emulated_fail("wgmma: accumulators overlap those of a product that is not finished");
    }
  }
  if (!products.fenced) {
    nn_emulated_fail("wgmma: no wgmma.fence between the last use of the accumulators and this product");
  }
  products.accumulators.push_back({product.d, std::vector<float>(product.d, product.d + count), 1});
  for (int i = 0; i < count; i++) {
    product.d[i] = std::numeric_limits<float>::quiet_NaN();
  }
}

inline void nn_emulated_check_group(uint64_t a, uint64_t b, int n, nn_site site) {
  nn_emulated_requires(900, "wgmma");
  struct operands {
    uint64_t a, b;
  };
  const operands *lanes = nn_emulated_gather(0xffffffffu, operands{a, b}, site.in("wgmma.mma_async"));
  if (lanes[0].a != a || lanes[0].b != b) {
    nn_emulated_fail("wgmma: lanes of a warp pass different descriptors");
  }
  if (n != 64 && n != 128 && n != 192 && n != 256) {
    nn_emulated_fail("wgmma: no n of %d here", n);
  }
}

template <class T, bool A_MN_MAJOR = false, bool B_MN_MAJOR = false, int COUNT>
inline void nn_wgmma(float (&d)[COUNT], uint64_t a_descriptor, uint64_t b_descriptor, bool accumulate,
                     nn_site site = nn_site::here()) {
  nn_emulated_check_group(a_descriptor, b_descriptor, 2 * COUNT, site);
  nn_emulated_product product = {};
  product.d = d;
  product.value = nn_emulated_operand<T>::value;
  product.accumulate = accumulate;
  product.a_matrix = nn_emulated_operand_matrix(a_descriptor, A_MN_MAJOR);
  product.b_matrix = nn_emulated_operand_matrix(b_descriptor, B_MN_MAJOR);
  nn_emulated_start_product(product, COUNT);
}

/* A in registers, figure 148: as in nn_mma_m16n8k16 for the warp's 16 rows. */
template <class T, bool B_MN_MAJOR = false, int COUNT>
inline void nn_wgmma(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b_descriptor, bool accumulate,
                     nn_site site = nn_site::here()) {
  nn_emulated_check_group(0, b_descriptor, 2 * COUNT, site);
  struct registers {
    uint32_t a[4];
  };
  const registers *lanes =
      nn_emulated_gather(0xffffffffu, registers{{a[0], a[1], a[2], a[3]}}, site.in("wgmma.mma_async"));
  nn_emulated_product product = {};
  product.d = d;
  product.value = nn_emulated_operand<T>::value;
  product.accumulate = accumulate;
  product.a_in_registers = true;
  for (unsigned r = 0; r < 2; r++) {
    for (unsigned k = 0; k < 16; k++) {
      const unsigned element = k % 2 + 2 * r + 4 * (k / 8); /* of the lane with k % 8 / 2 in its group of 4 */
      const uint32_t pair = lanes[nn_emulated_lane() / 4 * 4 + k % 8 / 2].a[element / 2];
      product.a[r][k] = product.value((uint16_t)(pair >> 16 * (element % 2)));
    }
  }
  product.b_matrix = nn_emulated_operand_matrix(b_descriptor, B_MN_MAJOR);
  nn_emulated_start_product(product, COUNT);
}

#endif
