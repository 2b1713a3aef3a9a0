/*
 * How the kernels of the GPU engine lay out their workspaces: host C without CUDA, in every build, so that a run on a
 * GPU can be planned on a machine, and by a library, without one. A family's layouts stand in <family>_workspace.h,
 * which its .cu file includes, too.
 */
#include "runtime/device.h"

const nn_layout nn_gpu_workspaces[NN_OP_ALL] = {NULL};
