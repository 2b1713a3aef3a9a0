/* The driver's cuTensorMapEncodeTiled, with the rules that cuda.h states for it (CUDA 13.0). */
#include "emulator/tensor_map.h"
#include "emulator/warp.h"

#include <string.h>

static CUresult encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                             const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                             const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                             CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                             CUtensorMapFloatOOBfill fill) {
  unsigned element_bytes;
  switch (type) {
  case CU_TENSOR_MAP_DATA_TYPE_UINT8:
    element_bytes = 1;
    break;
  case CU_TENSOR_MAP_DATA_TYPE_UINT16:
  case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
  case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
    element_bytes = 2;
    break;
  case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    element_bytes = 4;
    break;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!map || (uintptr_t)map % 64 != 0 || rank < 1 || rank > 5 || !address || (uintptr_t)address % 16 != 0 || !dims ||
      (rank > 1 && !strides) || !box || !element_strides || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
      swizzle < CU_TENSOR_MAP_SWIZZLE_NONE || swizzle > CU_TENSOR_MAP_SWIZZLE_128B ||
      promotion < CU_TENSOR_MAP_L2_PROMOTION_NONE || promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
      fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  nn_emulated_tensor_map made = {};
  made.mark = nn_emulated_tensor_map::made;
  made.rank = (uint8_t)rank;
  made.element_bytes = (uint8_t)element_bytes;
  made.swizzle_bytes = (uint8_t)(swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : 16 << swizzle);
  made.base = (unsigned char *)address;
  for (unsigned i = 0; i < rank; i++) {
    if (dims[i] < 1 || dims[i] > (uint64_t)1 << 32 || box[i] < 1 || box[i] > 256 || element_strides[i] != 1) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    made.dims[i] = dims[i];
    made.box_less_one[i] = (uint16_t)(box[i] - 1);
    if (i > 0) {
      if (strides[i - 1] % 16 != 0 || strides[i - 1] >= (uint64_t)1 << 40) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      made.strides[i - 1] = strides[i - 1];
    }
  }
  const unsigned row = box[0] * element_bytes;
  if (row % 16 != 0 || (made.swizzle_bytes && row > made.swizzle_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (made.swizzle_bytes && row != made.swizzle_bytes) {
    nn_emulated_fail("cuTensorMapEncodeTiled: how rows of %u bytes lie under a swizzle of %u is not documented", row,
                     made.swizzle_bytes);
  }
  memset(map, 0, sizeof *map);
  memcpy(map, &made, sizeof made);
  return CUDA_SUCCESS;
}

static const nn_emulated_entry_point entry_point("cuTensorMapEncodeTiled", (void *)encode_tiled);
