"""Language-model kernels for NVIDIA GPUs and for the CPU, behind one C ABI."""
