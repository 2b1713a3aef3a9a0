"""Inference: tokens and text from a model, one after another.

`LanguageModel` runs stored models, GGUF files and Hugging Face folders, checkpoints among them, on the engine
(`engine`, `paged_cache`, `scheduler`). `generate` and `TextGenerator` run a `MoETransformer` by the layers that train
(`contiguous`), the same to the bit in every language.
"""

from .constraint import Constraint
from .contiguous import generate, generate_batch, room
from .divided_experts import serve_experts
from .language_model import Event, LanguageModel
from .paged_cache import CacheFullError
from .sampling import Sampling
from .scores import TokenLogprobs
from .text import TextGenerator

__all__ = [
    "CacheFullError",
    "Constraint",
    "Event",
    "LanguageModel",
    "Sampling",
    "TextGenerator",
    "TokenLogprobs",
    "generate",
    "generate_batch",
    "room",
    "serve_experts",
]
