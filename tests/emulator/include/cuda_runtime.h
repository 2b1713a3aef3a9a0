/* Stands in for CUDA's header of this name when kernels are compiled for the emulator: see docs/emulator.md. */
#ifndef NN_EMULATOR_CUDA_RUNTIME_H
#define NN_EMULATOR_CUDA_RUNTIME_H

#include "emulator/builtins.h"
#include "emulator/language.h"
#include "emulator/launch.h"
#include "emulator/math.h"
#include "emulator/runtime.h"
#include "emulator/warp.h"

#endif
