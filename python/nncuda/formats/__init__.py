"""Files: checkpoints, safetensors, token shards, GGUF, text.

Nothing in here knows a model: a checkpoint is a set of named arrays beside a configuration, whatever they are for.
Every reader checks a file in full before it hands anything out, and says in one sentence what is wrong with it.
"""

from .atomic import write_file, write_folder
from .errors import FormatError
from .safetensors import SafetensorsFile, read_safetensors_folder, write_safetensors, write_safetensors_folder
from .shards import TokenShard, write_documents, write_shard
from .text import find_texts, read_text, split_held_out

__all__ = [
    "FormatError",
    "SafetensorsFile",
    "TokenShard",
    "find_texts",
    "read_safetensors_folder",
    "read_text",
    "split_held_out",
    "write_documents",
    "write_file",
    "write_folder",
    "write_safetensors",
    "write_safetensors_folder",
    "write_shard",
]
