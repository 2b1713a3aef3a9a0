"""What would make a run fit that does not: other options, each with the memory that it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import get_args

from ..models import MoEConfig
from .config import MomentsKind, TrainConfig
from .plan import ALONE, Machine, Seat, TooLargeError, plan_training


@dataclasses.dataclass(frozen=True)
class Way:
    """Options to change, and the memory that the run then needs."""

    changes: dict[str, object]
    held: int


def ways_to_fit(
    config: MoEConfig, train: TrainConfig, machine: Machine, free: int, *, held_out: bool = True, seat: Seat = ALONE
) -> tuple[list[Way], Way | None]:
    """Up to three ways to need at most `free` bytes, the cheapest in time first; and, when none does, what needs least.

    One option of each kind is tried alone, with as little of it as will do, then they are tried together; none of these
    changes what is trained, up to rounding and what micro-batches balance. Shorter sequences, which do, come last.
    """
    found: list[Way] = []
    least: Way | None = None
    for kind in (*_alone(config, train), *_together(config, train)):
        for changes in kind:
            if any(way.changes.items() <= changes.items() for way in found):
                continue  # less is enough
            changed = dataclasses.replace(train, **changes)
            try:
                held = plan_training(config, changed, machine, held_out=held_out, seat=seat).held
            except TooLargeError:
                continue
            way = Way(changes, held)
            least = way if least is None or held < least.held else least
            if held <= free:
                found.append(way)
                break
        if len(found) == 3:
            break
    return found, least


def _alone(config: MoEConfig, train: TrainConfig) -> Iterator[list[dict[str, object]]]:
    """Options of one kind after the other; of a kind, what costs less first."""
    yield _micro_batches(train)
    every = train.activation_checkpointing
    if every != 1 and not train.recompute_experts:
        yield [{"recompute_experts": True}]
    if every != 1:
        yield [
            {"activation_checkpointing": count}
            | ({"recompute_experts": train.recompute_experts} if count > 1 else _no_experts(train))
            for count in (3, 2, 1)
            if count <= config.num_layers and (every == 0 or count < every)
        ]
    if _may_be_bf16(config, train):
        yield [{"precision": "bf16"}]
    yield _smaller_moments(train)


def _no_experts(train: TrainConfig) -> dict[str, object]:
    """Where every block is computed again, none has experts of its own to keep."""
    return {"recompute_experts": False} | ({"keep_experts": 0} if train.keep_experts else {})


def _may_be_bf16(config: MoEConfig, train: TrainConfig) -> bool:
    return train.precision == "f32" and not config.ternary


def _together(config: MoEConfig, train: TrainConfig) -> Iterator[list[dict[str, object]]]:
    """Combinations of them, then those with smaller moments, then shorter sequences."""
    again: dict[str, object] = {"activation_checkpointing": 1} | _no_experts(train)
    bf16: dict[str, object] = {"precision": "bf16"}
    micro = _micro_batches(train)
    yield [size | again for size in micro]
    most = {"micro_batch_size": 1} | again
    if _may_be_bf16(config, train):
        yield [again | bf16]
        yield [size | bf16 for size in micro]
        yield [size | again | bf16 for size in micro]
        most |= bf16
    for moments in _smaller_moments(train):
        # Without bf16, too, which keeps a second copy of the weights.
        for rest in (again, again | bf16) if _may_be_bf16(config, train) else (again,):
            yield [rest | moments]
            yield [size | rest | moments for size in micro]
        most |= moments
    lengths = [train.sequence_length >> times for times in range(1, train.sequence_length.bit_length())]
    yield [{"sequence_length": length} for length in lengths]
    yield [most | {"sequence_length": length} for length in lengths]


def _smaller_moments(train: TrainConfig) -> list[dict[str, object]]:
    """Moments of fewer bits."""
    kinds = get_args(MomentsKind)
    return [{"moments": kind} for kind in kinds[kinds.index(train.moments) + 1 :]]


def _micro_batches(train: TrainConfig) -> list[dict[str, object]]:
    """Half the micro-batch, half of that, and so on."""
    size = min(train.micro_batch_size or train.batch_size, train.batch_size)
    sizes: list[dict[str, object]] = []
    while size > 1:
        size = (size + 1) // 2
        sizes.append({"micro_batch_size": size})
    return sizes
