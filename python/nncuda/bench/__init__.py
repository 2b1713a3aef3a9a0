"""Benchmarks: every figure a median of interleaved runs, given beside the machine's ceilings and a named peer.

`nncuda bench ceilings` measures what the machine can do at most; `nncuda bench` the kernels and the training step of
the `small` model. `--against torch` runs PyTorch beside each of them, in the same process, on the same threads.
"""
