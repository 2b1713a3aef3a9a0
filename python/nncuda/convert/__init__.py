"""Stored models in other forms: other block formats (`quantize`), other ternary ones (`model`), tokenizers in GGUF."""
