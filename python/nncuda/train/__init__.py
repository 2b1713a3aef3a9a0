"""Training: one step, the loop around it, its data, its metrics, its checkpoints."""

from ..formats.run_folder import list_checkpoints
from .adapter import FrozenOrigin
from .checkpoint import Checkpoint, load_model, resolve_checkpoint
from .config import TrainConfig
from .data import TokenWindows
from .metrics import MetricsLog, read_metrics
from .origin import Origin
from .run import TrainingRun
from .trainer import StepResult, Trainer

__all__ = [
    "Checkpoint",
    "FrozenOrigin",
    "MetricsLog",
    "Origin",
    "StepResult",
    "TokenWindows",
    "TrainConfig",
    "Trainer",
    "TrainingRun",
    "list_checkpoints",
    "load_model",
    "read_metrics",
    "resolve_checkpoint",
]
