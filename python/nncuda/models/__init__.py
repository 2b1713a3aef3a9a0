"""Models: configurations, parameters in one arena, forward and backward."""

from .config import PRESETS, USUAL_PRESET, MoEConfig
from .frozen import FrozenBase
from .llama import LlamaConfig, Rope
from .low_rank import LowRankOptions, LowRankTransformer
from .mixtral import config_from_mixtral, config_to_mixtral, parameters_from_mixtral
from .moe import MoETransformer
from .parameters import ParameterArena, ParameterLayout, ParameterSpec, initialize
from .stored import StoredModel, StoredTensors

__all__ = [
    "PRESETS",
    "USUAL_PRESET",
    "FrozenBase",
    "LlamaConfig",
    "LowRankOptions",
    "LowRankTransformer",
    "MoEConfig",
    "MoETransformer",
    "ParameterArena",
    "ParameterLayout",
    "ParameterSpec",
    "Rope",
    "StoredModel",
    "StoredTensors",
    "config_from_mixtral",
    "config_to_mixtral",
    "initialize",
    "parameters_from_mixtral",
]
