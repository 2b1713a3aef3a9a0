/* What an emulated CUtensorMap holds: written by cuTensorMapEncodeTiled (tensor_map.cpp), read by tensor copies. */
#ifndef NN_EMULATOR_TENSOR_MAP_H
#define NN_EMULATOR_TENSOR_MAP_H

#include <cuda.h>
#include <stdint.h>

struct nn_emulated_tensor_map {
  static constexpr uint32_t made = 0x74656e73; /* in `mark` of every encoded map */
  uint32_t mark;
  uint8_t rank, element_bytes, swizzle_bytes /* 0: none */, unused;
  unsigned char *base;
  uint64_t dims[5];         /* elements, the contiguous dimension first */
  uint64_t strides[4];      /* bytes, of dimensions 1 and up */
  uint16_t box_less_one[5]; /* the box's size in elements, less 1: each is 1 to 256 */
};
static_assert(sizeof(nn_emulated_tensor_map) <= sizeof(CUtensorMap), "it takes a CUtensorMap's place");

#endif
