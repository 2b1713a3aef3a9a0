"""Inference: tokens and text from a model, one after another."""

from .generate import Sampling, generate, generate_batch, room
from .text import TextGenerator

__all__ = ["Sampling", "TextGenerator", "generate", "generate_batch", "room"]
