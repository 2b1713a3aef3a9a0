"""Models: configurations, parameters in one arena, forward and backward."""

from .config import PRESETS, USUAL_PRESET, MoEConfig
from .llama import LlamaConfig, Rope
from .mixtral import config_from_mixtral, config_to_mixtral, parameters_from_mixtral
from .moe import MoETransformer
from .parameters import ParameterArena, ParameterLayout, ParameterSpec, initialize
from .stored import StoredModel, StoredTensors

__all__ = [
    "PRESETS",
    "USUAL_PRESET",
    "LlamaConfig",
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
