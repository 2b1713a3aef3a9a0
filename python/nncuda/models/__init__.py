"""Models: configurations, parameters in one arena, forward and backward."""

from .config import PRESETS, MoEConfig
from .mixtral import config_from_mixtral, config_to_mixtral, parameters_from_mixtral
from .moe import MoETransformer
from .parameters import ParameterArena, ParameterLayout, ParameterSpec, initialize

__all__ = [
    "PRESETS",
    "MoEConfig",
    "MoETransformer",
    "ParameterArena",
    "ParameterLayout",
    "ParameterSpec",
    "config_from_mixtral",
    "config_to_mixtral",
    "initialize",
    "parameters_from_mixtral",
]
