"""The readers under test: how the program opens and uses a file of each kind, and how one is mutated.

A target does what the commands do with a file: all of its metadata and tensors are looked at (the first and last byte
of each, which faults where a view leaves the file), a configuration is built, texts are encoded and decoded.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import pkgutil
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fuzz_files

if TYPE_CHECKING:
    from nncuda.models import StoredModel
    from nncuda.tokenizer.chat_template import ChatTemplate
    from nncuda.tokenizer.tokenizer import TextTokenizer

TEXT = "Hello  wörld\n\t12345 <s>😀 \0é"


@dataclass(frozen=True)
class Target:
    """`name` of the file that holds a case; `use` opens it; `mutate` makes another case of one. It may take `memory`
    bytes beside a multiple of the file."""

    name: str
    use: Callable[[Path], None]
    mutate: Callable[[bytes, random.Random], bytes]
    memory: int = 16 << 20


def load_readers() -> None:
    """Imports all that the targets use, so that no case pays for it."""
    for package in ("nncuda.formats", "nncuda.models", "nncuda.tokenizer"):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
            if not module.name.endswith("_worker"):  # a program of its own
                importlib.import_module(module.name)
    for name in (
        "nncuda.records.encoding",
        "nncuda.cli.inspect",
        "nncuda.cli.options",
        "nncuda.report",
        "nncuda.train.checkpoint",
    ):
        importlib.import_module(name)


def use_gguf(path: Path) -> None:
    """All metadata and every tensor of a GGUF file."""
    from nncuda.cli.inspect import describe
    from nncuda.formats.block_formats import FORMATS
    from nncuda.formats.gguf import open_gguf

    file = open_gguf(path)
    json.dumps(describe(path))  # nncuda inspect
    for value in file.metadata.values():
        if not isinstance(value, (int, float, bool, str)):
            for index in {0, len(value) // 2, len(value) - 1} & set(range(len(value))):
                str(value[index])
    for name, entry in file.entries.items():
        if not entry.usable:
            continue
        tensor = file[name]
        rows = tensor.rows()
        assert rows.nbytes == tensor.nbytes == entry.nbytes and rows.shape[1] == tensor.row_bytes
        assert tensor.nbytes <= path.stat().st_size
        int(rows[0, 0]) + int(rows[-1, -1])
        if FORMATS[tensor.format].numpy is not None:
            assert tensor.numbers().shape == tensor.shape


def use_gguf_model(path: Path) -> None:
    """The model in a GGUF file, and as one that trains, if it is one."""
    from nncuda.formats import FormatError
    from nncuda.models import StoredModel
    from nncuda.models.model_file import ModelFile

    touch(StoredModel.open(path))
    with contextlib.suppress(FormatError):
        weights = ModelFile(path)
        for name, array in weights.tensors.items():
            assert array.dtype.kind in "fV" and array.size > 0, name
        weights.tokenizer()


def touch(model: StoredModel) -> None:
    """The first and last byte of every tensor of a model, which has the shape that its configuration makes it."""
    shapes = model.config.shapes()
    assert not set(model.tensors) & set(model.matrices)
    assert set(model.tensors) | set(model.matrices) == set(shapes)
    for name, matrix in model.matrices.items():
        codes = matrix.codes()
        assert codes.shape == shapes[name] and codes.dtype == "int8"
        assert -1 <= codes.min() and codes.max() <= 1 and 0 < matrix.scale < float("inf")
        if matrix.form == "tern2":
            assert matrix.tern2().nbytes == matrix.nbytes
    for name, tensor in model.tensors.items():
        assert tensor.shape == shapes[name] and tensor.nbytes > 0
        rows = tensor.rows()
        int(rows[0, 0]) + int(rows[-1, -1])
    model.config.rope_options(model.config.extended_context)
    model.config.to_dict()
    if model.tokenizer is not None:
        converse(model.tokenizer)
    assert model.chat_template.template


def converse(tokenizer: TextTokenizer) -> None:
    """Texts to ids and back, and ids as they come from a model."""
    from nncuda.tokenizer import StreamDecoder

    size = tokenizer.vocab_size
    for text in ("", TEXT, "a" * 100):
        for special in (False, True):
            ids = tokenizer.encode(text, begin=True, special=special)
            assert all(0 <= token < size for token in ids)
            tokenizer.decode(ids)
    decoder = StreamDecoder(tokenizer)
    for token in sorted({0, min(1, size - 1), size // 2, size - 1}):
        tokenizer.piece(token)
        decoder.push(token)
    decoder.flush()
    assert -1 <= tokenizer.begin_id < size and all(0 <= token < size for token in tokenizer.end_ids)


def use_safetensors(path: Path) -> None:
    """Every tensor of a safetensors file."""
    from nncuda.formats import SafetensorsFile

    file = SafetensorsFile(path)
    for name in file:
        array = file[name]
        assert array.dtype == file.dtype(name) and array.shape == file.shape(name)
        assert array.nbytes <= path.stat().st_size
        if array.size:
            array.reshape(-1)[[0, -1]]
    dict(file.metadata)


def use_shard(path: Path) -> None:
    """The tokens of a shard."""
    from nncuda.formats import TokenShard

    shard = TokenShard(path)
    shard.read(0, 16)
    shard.read(len(shard) - 1)
    shard.check_ids()
    if shard.has_documents:
        for _ in shard.chunks():
            pass


@functools.cache
def _encoder() -> Any:
    from nncuda.records.records import RecordEncoder

    return RecordEncoder(Path(__file__).resolve().parents[1] / "tokenizer" / "own_bpe.model")


def use_records(path: Path) -> None:
    """The records of a JSONL file, as `nncuda data encode` takes them."""
    from nncuda.records.encoding import encoded_lines, records_of
    from nncuda.records.processes import encoding_here

    encoder = _encoder()
    for lines, records in records_of(path, encoding_here(encoder, encoded_lines)):
        assert len(lines) == len(records)
        for ids, counted in records:
            assert len(ids) == len(counted) >= 2 and counted[1:].any()
            assert 0 <= ids.min() and ids.max() < encoder.vocab_size


def use_mixtral_config(path: Path) -> None:
    """A `config.json` of Mixtral, as this library's checkpoints have it."""
    from nncuda.formats import FormatError
    from nncuda.formats.safetensors import read_json
    from nncuda.models.mixtral import config_from_mixtral

    values = read_json(path)
    try:
        config = config_from_mixtral(values)
    except ValueError as error:
        if not raised_here(error):
            raise
        raise FormatError(path, str(error)) from error
    assert config.num_parameters > config.num_active_parameters > 0 or config.num_experts == config.experts_per_token
    config.to_dict()


def raised_here(error: BaseException) -> bool:
    """Whether a line of this library raised it, and not something that the library called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("nncuda")


def use_state(path: Path) -> None:
    """The `training.json` of a checkpoint."""
    from nncuda.train.checkpoint import read_training_state

    state = read_training_state(path)
    json.dumps(state.to_dict())
    assert 0 <= state.step < 1 << 31 and 0 <= state.seconds <= 1e12


def use_metrics(path: Path) -> None:
    """The `metrics.jsonl` of a run: its report, and what is left of it when the run goes on."""
    from nncuda.report import report_html
    from nncuda.train.metrics import drop_records, read_metrics

    records = read_metrics(path)
    assert report_html(path.parent).count('<pre hidden data-file="metrics.jsonl">') == 1
    drop_records(path, 2)
    assert len(read_metrics(path)) <= len(records)


def use_toml(path: Path) -> None:
    """A configuration in TOML, as `nncuda train` takes it."""
    from nncuda.cli.options import build_configs, preset_vocabulary, read_config
    from nncuda.formats import FormatError

    file = read_config(path)
    try:
        model, train = build_configs(file, None, {}, preset_vocabulary(file, None))
    except ValueError as error:
        if not raised_here(error):
            raise
        raise FormatError(path, str(error)) from error
    json.dumps([model.to_dict(), train.to_dict()])


def use_tokenizer_model(path: Path) -> None:
    """A SentencePiece model, as `tokenizer.model`."""
    from nncuda.tokenizer import Tokenizer
    from nncuda.tokenizer.sentencepiece_model import PieceModel

    tokenizer = Tokenizer.load(path)
    converse(tokenizer)
    try:
        parts = PieceModel.from_bytes(tokenizer.model)
    except ValueError:  # SentencePiece is content with what protobuf's rules leave open
        return
    assert len(parts.pieces) == tokenizer.vocab_size


def use_tokenizer_json(path: Path) -> None:
    """A `tokenizer.json`."""
    from nncuda.tokenizer import json_tokenizer

    global _tokenizers
    if _tokenizers is None:
        _tokenizers = _shared_sandbox()
    json_tokenizer.Sandbox = _tokenizers.of  # type: ignore[misc, assignment]
    converse(json_tokenizer.JsonTokenizer.load(path))


def _shared_sandbox() -> Any:
    from nncuda.tokenizer.sandbox import Sandbox

    class SharedSandbox(Sandbox):
        """One process for all cases, as long as it lives: the file of a case is a request like any other."""

        loaded = True

        def of(self, program: str, memory: int, first: tuple[Any, float, bytes]) -> SharedSandbox:
            self._first, self.loaded = first, False
            return self

        def ask(self, request: Any, seconds: float, data: bytes = b"") -> dict[str, Any]:
            alive = self._process is not None and self._process.poll() is None
            self.loaded, load = True, alive and not self.loaded
            if load:
                self._exchange(*self._first)  # type: ignore[misc]
            return super().ask(request, seconds, data)

    return SharedSandbox("json_worker.py", 1 << 28)


_tokenizers: Any = None


def use_template(path: Path) -> None:
    """A chat template, in the process that the program gives it."""
    from nncuda.tokenizer.chat_template import ChatTemplate, template_from_folder

    global _template
    if _template is None:
        _template = ChatTemplate(None, path, begin="<s>", end="</s>")
    folder = path.parent / "template"
    folder.mkdir(exist_ok=True)
    (folder / "chat_template.jinja").write_bytes(path.read_bytes())
    text = template_from_folder(folder)
    assert text is not None
    ChatTemplate(text, path)
    _template.template, _template._source, _template._seconds = text, path, template_seconds
    messages = [{"role": role, "content": "Grüße"} for role in ("system", "user", "assistant", "user")]
    _template.render(messages)


# One worker for all cases, as a program has one for all turns; how long a template may take.
_template: ChatTemplate | None = None
template_seconds = 0.5


def use_folder(path: Path) -> None:
    """A folder of weights, `model.safetensors` or shards with their index."""
    from nncuda.formats import read_safetensors_folder

    tensors = read_safetensors_folder(unpacked(path))
    for name in tensors:
        assert tensors[name].nbytes >= 0


def use_folder_model(path: Path) -> None:
    """The model in a Hugging Face folder; of a Mixtral as a checkpoint too."""
    from nncuda.formats import FormatError
    from nncuda.formats.safetensors import read_json
    from nncuda.models import StoredModel
    from nncuda.tokenizer.to_gguf import tokenizer_metadata
    from nncuda.train.checkpoint import Checkpoint

    folder = unpacked(path)
    model = StoredModel.open(folder)
    touch(model)
    try:
        tokenizer_metadata(folder, model.config.vocab_size)  # nncuda quantize
    except FormatError:  # tokenizers that GGUF files have no counterpart of run all the same
        pass
    if read_json(folder / "config.json")["model_type"] == "mixtral":
        tensors = Checkpoint(folder).tensors
        for name in tensors:
            assert tensors[name].nbytes > 0


@functools.cache
def _llama() -> Any:
    from seeds_others import LLAMA

    from nncuda.models.llama_folder import config_from_folder

    return config_from_folder(LLAMA)


def use_adapter(path: Path) -> None:
    """A folder of PEFT with an adapter of a Llama; and as what it is not, a model."""
    from nncuda.cli.inspect import describe
    from nncuda.formats import FormatError
    from nncuda.models import StoredModel
    from nncuda.models.adapter import Adapter

    folder = unpacked(path)
    adapter = Adapter.open(folder, _llama())
    assert adapter.rank > 0 and abs(adapter.scale) <= 3.5e38 and adapter.num_parameters > 0
    for pair in adapter.factors.values():
        assert pair.a.shape[0] == pair.b.shape[1] == adapter.rank
        assert pair.a.f32().sum() + pair.b.f32().sum() < float("inf")
    json.dumps(describe(folder))  # nncuda inspect
    try:
        StoredModel.open(folder)
    except FormatError:  # unless a mutation makes it one
        pass


def unpacked(path: Path) -> Path:
    """The folder that the bytes of `path` stand for, beside it; empty before."""
    folder = path.with_suffix("")
    folder.mkdir(exist_ok=True)
    for entry in folder.iterdir():
        entry.unlink()
    for name, data in fuzz_files.unpack_folder(path.read_bytes()).items():
        try:
            (folder / name).write_bytes(data)
        except (OSError, ValueError):  # a name that the file system does not take
            continue
    return folder


TARGETS: dict[str, Target] = {
    "gguf": Target("x.gguf", use_gguf, fuzz_files.mutate_gguf),
    "gguf_model": Target("x.gguf", use_gguf_model, fuzz_files.mutate_gguf),
    "safetensors": Target("x.safetensors", use_safetensors, fuzz_files.mutate_safetensors),
    "folder": Target("x.folder", use_folder, fuzz_files.mutate_folder),
    "folder_model": Target("x.folder", use_folder_model, fuzz_files.mutate_folder),
    "bitnet_gguf": Target("x.gguf", use_gguf_model, fuzz_files.mutate_gguf),
    "bitnet_folder": Target("x.folder", use_folder_model, fuzz_files.mutate_folder),
    "adapter": Target("x.folder", use_adapter, fuzz_files.mutate_folder),
    "config": Target("config.json", use_mixtral_config, fuzz_files.mutate_config),
    "state": Target("training.json", use_state, fuzz_files.mutate_config),
    "metrics": Target("metrics.jsonl", use_metrics, fuzz_files.mutate_lines),
    "toml": Target("x.toml", use_toml, fuzz_files.mutate_toml),
    "tokenizer_model": Target("tokenizer.model", use_tokenizer_model, fuzz_files.mutate_tokenizer_model),
    "tokenizer_json": Target("tokenizer.json", use_tokenizer_json, fuzz_files.mutate_tokenizer_json),
    "template": Target(
        # The text of a template is bounded by itself: LONGEST_TEXT, up to 6 bytes a character in JSON, in a few copies.
        "chat_template.jinja",
        use_template,
        fuzz_files.mutate_template,
        128 << 20,
    ),
    "shard": Target("x.tokens", use_shard, fuzz_files.mutate_shard),
    "records": Target("x.jsonl", use_records, fuzz_files.mutate_conversations),
}
