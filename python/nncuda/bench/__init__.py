"""Benchmarks: every figure a median of interleaved runs, given beside the machine's ceilings and a named peer.

`nncuda bench ceilings` measures what the machine can do at most; `nncuda bench kernels` the kernels; `nncuda bench step` the
training step of the `small` model. `--against torch` runs PyTorch beside each in the same process on the same threads.
"""
