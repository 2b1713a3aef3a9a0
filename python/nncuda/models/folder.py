"""A model in a folder that the rest of the world opens: config.json and safetensors, as transformers has a Mixtral."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path

from ..dtypes import to_numpy
from ..formats import read_safetensors_folder, write_folder
from ..formats.errors import told_of, unreadable
from ..formats.json_values import read_json
from ..formats.run_folder import check_no_adapter, last_checkpoint
from ..formats.safetensors import DEFAULT_SHARD_BYTES, SafetensorsFolder, SafetensorsFolderLayout
from ..tokenizer import Tokenizer
from ..tokenizer.carried import CarriedTokenizer
from ..tokenizer.to_folder import special_ids, write_tokenizer
from .mixtral import config_from_mixtral, config_to_mixtral, parameters_from_mixtral, window_from_mixtral
from .moe import MoETransformer
from .parameters import ParameterLayout, own_parts
from .transformer import check_names, on_host
from .weights import ModelWeights


class ModelFolder(ModelWeights):
    """A folder with a model, opened: all of it checked except the values of the tensors, nothing loaded yet. `files` is
    what was opened."""

    def __init__(self, folder: str | os.PathLike[str]):
        self.path = Path(folder)
        if not self.path.is_dir():
            raise unreadable(folder, "is not a folder", errno.ENOTDIR if self.path.exists() else errno.ENOENT)
        check_no_adapter(self.path)
        with told_of(self.path / "config.json"):
            values = read_json(self.path / "config.json")
            self.config = config_from_mixtral(values)
            self.window = window_from_mixtral(values)
        self.files: SafetensorsFolder = read_safetensors_folder(self.path)
        with told_of(self.path):
            self.tensors = parameters_from_mixtral(self.files, self.config.tie_embeddings)
            layout = ParameterLayout(self.config)
            check_names(self.tensors, layout.shapes())
            for name, shape in layout.shapes().items():
                if tuple(self.tensors[name].shape) != shape:
                    found = list(self.tensors[name].shape)
                    raise ValueError(f"tensor {name} has shape {found}; config.json makes it {list(shape)}")

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> ModelFolder:
        """The folder itself, or the last checkpoint of a run."""
        return cls(last_checkpoint(path))


def save_model(folder: str | os.PathLike[str], model: MoETransformer, tokenizer: Tokenizer | None = None) -> None:
    """Writes a model, in one step, as a new folder; FileExistsError when there is one."""
    files, whole = ModelFiles(model, tokenizer), range(model.parameters.layout.size)
    with write_folder(folder) as temporary:
        files.create(temporary)
        files.write(temporary, [whole])


class ModelFiles:
    """A model's files in a folder that is being made (see `write_folder`), into which several ranks may write."""

    def __init__(
        self,
        model: MoETransformer,
        tokenizer: Tokenizer | CarriedTokenizer | None = None,
        max_shard_bytes: int = DEFAULT_SHARD_BYTES,
    ):
        self._model = model
        self._tokenizer = tokenizer
        dtype = to_numpy(model.parameters_in(range(0)).dtype)
        tensors = {name: (dtype, shape) for name, shape in model.layout.shapes().items()}
        self._config = {**config_to_mixtral(model.config), "torch_dtype": dtype.name}
        self._tensors = SafetensorsFolderLayout(tensors, {"format": "pt"}, max_shard_bytes)

    def create(self, folder: Path) -> None:
        """Makes them all, with zeros for the parameters."""
        config = self._config
        if isinstance(self._tokenizer, CarriedTokenizer):
            config |= self._tokenizer.special_ids
            self._tokenizer.write(folder)
        elif self._tokenizer is not None:
            config |= special_ids(self._tokenizer)
            write_tokenizer(folder, self._tokenizer)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        self._tensors.create(folder)

    def write(self, folder: Path, own: Sequence[range]) -> None:
        """Writes these elements of the parameters."""
        model = self._model
        model.ctx.synchronize()
        parts = (part for one in own for part in own_parts(model.layout, one, model.parameters_in(one)))
        self._tensors.write(folder, ((name, first, on_host(part)) for name, first, part in parts))
