"""A device as Python sees it: contexts, and the tensors, streams, events, graphs, communicators and
profiles that belong to one.

The files refer to one another, since a context makes what belongs to it and that keeps its context alive; everyone else
imports from here.
"""

from .bound import DeviceBound
from .comm import Comm, ExpertEvent, Shard, expert_schedule, expert_shards, replica_merges, shard
from .context import INSTRUCTION_SETS, Context
from .graphs import Graph
from .layout import Layout
from .profiles import Difference, NonFinite, NonFiniteTrace, Profile, ShadowedKernel, ShadowRun, Trace
from .streams import Event, Stream
from .tensor import HostCopy, Tensor
from .turns import Turns, one_thread

__all__ = [
    "INSTRUCTION_SETS",
    "Comm",
    "Context",
    "DeviceBound",
    "Difference",
    "Event",
    "ExpertEvent",
    "Graph",
    "HostCopy",
    "Layout",
    "NonFinite",
    "NonFiniteTrace",
    "Profile",
    "ShadowRun",
    "ShadowedKernel",
    "Shard",
    "Stream",
    "Tensor",
    "Trace",
    "Turns",
    "expert_schedule",
    "expert_shards",
    "one_thread",
    "replica_merges",
    "shard",
]
