"""Inference: tokens and text from a model, one after another.

`LanguageModel` runs stored models, GGUF files and Hugging Face folders, on the engine (`engine`, `pages`, `scheduler`);
`generate` and `TextGenerator` run a `MoETransformer` as it trains, the same to the bit in every language.
"""

from .generate import Sampling, generate, generate_batch, room
from .language_model import Event, LanguageModel
from .pages import CacheFullError
from .text import TextGenerator

__all__ = [
    "CacheFullError",
    "Event",
    "LanguageModel",
    "Sampling",
    "TextGenerator",
    "generate",
    "generate_batch",
    "room",
]
