/* Tensor maps, made by the driver, which is found at run time. */
#include "kernels/tensormap.cuh"

#include "interface.h"
#include "kernels/driver.cuh"
#include <cuda_runtime.h>

using nn_encode = decltype(&cuTensorMapEncodeTiled);

/* The driver's function, or null. Looked for until it is found; several threads may do so at once. */
static nn_encode encoder() {
  static nn_encode found;
  nn_encode encode = __atomic_load_n(&found, __ATOMIC_RELAXED);
  if (encode == nullptr) {
    if (!nn_driver_find(encode, "cuTensorMapEncodeTiled")) {
      return nullptr;
    }
    __atomic_store_n(&found, encode, __ATOMIC_RELAXED);
  }
  return encode;
}

bool nn_tensor_map(CUtensorMap *map, int32_t dtype, int rank, const void *base, const int64_t *dims,
                   const int64_t *strides, const int32_t *box, nn_swizzle swizzle) {
  const int64_t bytes = dtype == NNCUDA_F32 ? 4 : dtype == NNCUDA_I8 ? 1 : 2;
  const CUtensorMapDataType type = dtype == NNCUDA_F32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                   : dtype == NNCUDA_I8   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : dtype == NNCUDA_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                          : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  cuuint64_t sizes[5], byte_strides[5];
  cuuint32_t boxes[5], ones[5];
  if (rank < 1 || rank > 5 || reinterpret_cast<uintptr_t>(base) % 16 != 0) {
    return false;
  }
  for (int i = 0; i < rank; i++) {
    if (dims[i] < 1 || dims[i] > INT64_C(1) << 32 || box[i] < 1 || box[i] > 256) {
      return false;
    }
    sizes[i] = static_cast<cuuint64_t>(dims[i]);
    boxes[i] = static_cast<cuuint32_t>(box[i]);
    ones[i] = 1;
    if (i > 0) {
      const int64_t stride = strides[i - 1];
      if (stride < 0 || stride >= (INT64_C(1) << 40) / bytes || stride * bytes % 16 != 0) {
        return false;
      }
      byte_strides[i - 1] = static_cast<cuuint64_t>(stride * bytes);
    }
  }
  const int64_t row = box[0] * bytes;
  if (swizzle == NN_SWIZZLE_NONE ? row % 16 != 0 : row != nn_swizzle_bytes(swizzle)) {
    return false;
  }
  const nn_encode encode = encoder();
  return encode != nullptr &&
         encode(map, type, static_cast<cuuint32_t>(rank), const_cast<void *>(base), sizes, byte_strides, boxes, ones,
                CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle == NN_SWIZZLE_128  ? CU_TENSOR_MAP_SWIZZLE_128B
                : swizzle == NN_SWIZZLE_64 ? CU_TENSOR_MAP_SWIZZLE_64B
                : swizzle == NN_SWIZZLE_32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                           : CU_TENSOR_MAP_SWIZZLE_NONE,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
