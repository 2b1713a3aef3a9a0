"""What the languages are given, made once: text, a tokenizer, shards, options; and their training runs."""

from __future__ import annotations

import fcntl
import functools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import languages
import numpy as np

from nncuda.formats import write_documents, write_file, write_shard
from nncuda.formats.shards import HEADER, MAGIC, PLAIN, tokenizer_digest
from nncuda.tokenizer import Tokenizer, encode_texts, train_tokenizer
from nncuda.train import list_checkpoints, read_metrics

STEPS = 30
VOCABULARY = 320
#: The token of random data that stands for the end of a document: each sixtieth.
DOCUMENT_END = 7

#: Every checkpoint is kept, so that a difference can be traced to the step where it began.
_KEPT = f"save_every = 1\nkeep_checkpoints = {STEPS}\n"


@dataclass(frozen=True)
class Options:
    """A configuration by its TOML text, and the data it trains on (names in the workshop's folder)."""

    model: str
    train: str
    data: str
    held_out: str | None = None
    tokenizer: str | None = None
    steps: int = STEPS

    def toml(self, folder: Path) -> str:
        paths = {"data": self.data, "held_out": self.held_out, "tokenizer": self.tokenizer}
        data = "".join(f'{name} = "{folder / path}"\n' for name, path in paths.items() if path)
        return f"[model]\n{self.model}\n[train]\nsteps = {self.steps}\n{_KEPT}{self.train}\n[data]\n{data}"


OPTIONS = {
    "small": Options(
        """
hidden_size = 32
num_layers = 2
num_heads = 4
head_dim = 8
num_experts = 4
experts_per_token = 2
ffn_size = 24
context = 32
extended_context = 64
""",
        """
batch_size = 4
sequence_length = 16
warmup_steps = 5
learning_rate = 0.003
seed = 3
""",
        "words.tokens",
        tokenizer="tokenizer.model",
    ),
    # Nothing is a multiple of anything, and the experts cannot take all slots: 5 x ceil(0.6 x 65 x 3 / 5) < 65 x 3.
    "ragged": Options(
        """
hidden_size = 24
num_layers = 3
num_heads = 6
num_kv_heads = 2
head_dim = 8
num_experts = 5
experts_per_token = 3
ffn_size = 17
context = 13
extended_context = 64
ntk_alpha = 4.0
rope_base = 5000.0
norm_topk_prob = false
capacity_factor = 0.6
aux_alpha = 0.05
init_std = 0.1
""",
        """
batch_size = 5
sequence_length = 13
warmup_steps = 0
learning_rate = 0.002
weight_decay = 0.03
seed = -7
""",
        "shards",
    ),
    "accumulated": Options(
        """
hidden_size = 40
num_layers = 2
num_heads = 3
head_dim = 16
num_experts = 8
experts_per_token = 2
ffn_size = 32
context = 24
extended_context = 96
norm_eps = 1e-6
init_std = 0.2
""",
        """
batch_size = 7
micro_batch_size = 3
sequence_length = 24
warmup_steps = 4
learning_rate = 0.01
min_rate_share = 0.05
beta1 = 0.8
beta2 = 0.99
eps = 1e-7
clip_norm = 0.05
seed = 9223372036854775807
eval_every = 10
eval_batches = 2
""",
        "wide.tokens",
        held_out="held-out.tokens",
    ),
    # Documents of shards that know them, packed: some are cut into pieces, some pieces have no target that counts, and
    # micro-batches have unlike many that do.
    "conversations": Options(
        """
hidden_size = 40
num_layers = 2
num_heads = 4
num_kv_heads = 2
head_dim = 8
num_experts = 6
experts_per_token = 2
ffn_size = 21
context = 24
extended_context = 24
capacity_factor = 0.9
init_std = 0.2
""",
        """
batch_size = 7
micro_batch_size = 3
sequence_length = 24
warmup_steps = 4
learning_rate = 0.01
seed = 11
eval_every = 10
eval_batches = 2
""",
        "conversations",
        held_out="held-out-conversations.tokens",
    ),
    # Logits of 256 tokens at a time and of the last 14, in two micro-batches of 270.
    "chunked": Options(
        """
hidden_size = 16
num_layers = 1
num_heads = 2
head_dim = 8
num_experts = 4
experts_per_token = 2
ffn_size = 8
context = 90
extended_context = 90
init_std = 0.1
""",
        """
batch_size = 6
micro_batch_size = 3
sequence_length = 90
warmup_steps = 0
learning_rate = 0.03
""",
        "many.tokens",
        steps=3,
    ),
    # One network for all tokens, as in a Llama, whose inner width is a multiple of nothing.
    "dense": Options(
        """
hidden_size = 40
num_layers = 3
num_heads = 5
num_kv_heads = 1
head_dim = 8
num_experts = 0
experts_per_token = 0
ffn_size = 51
context = 24
extended_context = 48
rope_base = 500000.0
init_std = 0.1
""",
        """
batch_size = 5
micro_batch_size = 2
sequence_length = 24
warmup_steps = 3
learning_rate = 0.003
seed = 12
eval_every = 10
eval_batches = 2
""",
        "wide.tokens",
        held_out="held-out.tokens",
    ),
    # Ternary weights from master weights, as in a BitNet, with widths that are multiples of nothing.
    "ternary": Options(
        """
hidden_size = 40
num_layers = 2
num_heads = 5
num_kv_heads = 1
head_dim = 8
num_experts = 0
experts_per_token = 0
ffn_size = 51
context = 24
extended_context = 48
ternary = true
squared_relu = true
tie_embeddings = true
init_std = 0.1
""",
        """
batch_size = 5
micro_batch_size = 2
sequence_length = 24
warmup_steps = 2
learning_rate = 0.01
seed = 13
eval_every = 10
eval_batches = 2
""",
        "wide.tokens",
        held_out="held-out.tokens",
    ),
    # Eleven micro-batches for eight replicas: three of them run two. Parameters are a few pieces of the size that ranks
    # share out, experts drop slots, and no count is a multiple of another.
    "replicas": Options(
        """
hidden_size = 48
num_layers = 2
num_heads = 6
num_kv_heads = 2
head_dim = 8
num_experts = 5
experts_per_token = 3
ffn_size = 67
context = 13
extended_context = 13
capacity_factor = 0.7
aux_alpha = 0.05
init_std = 0.1
""",
        """
batch_size = 11
micro_batch_size = 1
replicas = 8
sequence_length = 13
warmup_steps = 2
learning_rate = 0.003
seed = 5
eval_every = 4
eval_batches = 3
""",
        "shards",
        held_out="rest",
        steps=12,
    ),
}


#: By name: one of these configurations, and flags over it. The scale of "f16, overflowing" is too large for the
#: first steps, which are skipped, and grows again later.
PRECISIONS: dict[str, tuple[str, list[object]]] = {
    "bf16": ("ragged", ["--precision", "bf16"]),
    "bf16, accumulated": ("accumulated", ["--precision", "bf16"]),
    "fp8": ("ragged", ["--precision", "fp8"]),
    "fp8, accumulated, experts again": ("accumulated", ["--precision", "fp8", "--recompute-experts"]),
    "f16, overflowing": (
        "accumulated",
        ["--precision", "f16", "--loss-scale", 2**24, "--loss-scale-interval", 6, "--loss-scale-growth", 4],
    ),
    "f16, every block again": ("ragged", ["--precision", "f16", "--activation-checkpointing", 1]),
    "every block again": ("ragged", ["--activation-checkpointing", 1]),
    "every second block and the experts of the others": (
        "accumulated",
        ["--activation-checkpointing", 2, "--recompute-experts"],
    ),
    "experts again, bf16": ("ragged", ["--precision", "bf16", "--recompute-experts", "--keep-experts", 1]),
    "moments in bf16": ("ragged", ["--moments", "bf16"]),
    "moments in 8 bits": ("accumulated", ["--moments", "f8"]),
    "documents": ("accumulated", ["--document-mask", DOCUMENT_END]),
    "documents, bf16, every second block again": (
        "accumulated",
        ["--document-mask", DOCUMENT_END, "--precision", "bf16", "--activation-checkpointing", 2],
    ),
    "dense, bf16, every second block again": ("dense", ["--precision", "bf16", "--activation-checkpointing", 2]),
    "dense, fp8, the network again": ("dense", ["--precision", "fp8", "--recompute-experts"]),
    "dense, f16": ("dense", ["--precision", "f16", "--moments", "f8"]),
    "ternary, SiLU, documents, every second block again": (
        "ternary",
        ["--no-squared-relu", "--no-tie-embeddings", "--document-mask", DOCUMENT_END, "--activation-checkpointing", 2],
    ),
    "conversations, f16, experts again": ("conversations", ["--precision", "f16", "--recompute-experts"]),
    "moments in 8 bits, bf16": ("ragged", ["--moments", "f8", "--precision", "bf16"]),
}


#: Over "accumulated": the rate rises until the model gets worse again.
WORSENING = (
    "--steps 12 --learning-rate 1 --warmup-steps 11 --save-every 2 --eval-every 4 --keep-checkpoints 2 --log-every 3"
).split()


class Workshop:
    """A folder with the inputs, and every run that was asked for, each made once: by the first of several processes
    that asks for it, for which the others wait."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "made").mkdir(parents=True, exist_ok=True)
        self.once("inputs", self._make_inputs)
        self.run = functools.cache(self._run)

    def once(self, name: str, make: Callable[[], object]) -> None:
        """Makes something of this name in the folder, unless it was made before."""
        with open(self.folder / "made" / name, "a+") as mark:
            fcntl.flock(mark, fcntl.LOCK_EX)
            mark.seek(0)
            told = mark.read()
            if told.startswith("failed: "):  # and has left its folder, which a second try would only stumble over
                raise AssertionError(f"{name} was tried before, and {told}")
            if not told:
                try:
                    make()
                except Exception as error:
                    mark.write(f"failed: {error}")
                    raise
                mark.write("made")

    def config(self, name: str) -> Path:
        """The TOML file of a configuration."""
        return self.folder / f"{name}.toml"

    def options(self, name: str) -> list[object]:
        """Arguments of `train` behind the folder of the run."""
        name, flags = PRECISIONS.get(name, (name, []))
        return ["--config", self.config(name), *flags]

    def _run(self, language: str, options: str, threads: int = 1) -> Path:
        run = self.folder / "runs" / f"{language}-{options}-{threads}"
        train = ["train", run, *self.options(options), "--threads", threads]
        self.once(run.name, lambda: languages.find(language).run(*train))
        return run

    def reference(self, options: str) -> Path:
        """The run that all are compared with: Python's, with more threads than the others have."""
        return self.run("python", options, 2)

    def worsening(self) -> Path:
        """Python's run with the flags `WORSENING`: its best checkpoint is not among the two newest."""
        run = self.folder / "runs" / "worsening"
        train = ["train", run, *self.options("accumulated"), *WORSENING, "--threads", 2]
        self.once(run.name, lambda: languages.find("python").run(*train))
        return run

    def cut(self, run: Path, step: int, name: str) -> Path:
        """A copy of a run as it was when `step` was the last step saved."""
        copy = self.folder / "cuts" / name
        shutil.copytree(run, copy)
        for checkpoint in list_checkpoints(copy / "checkpoints"):
            if int(checkpoint.name.removeprefix("step-")) > step:
                shutil.rmtree(checkpoint)
        return copy

    def _make_inputs(self) -> None:
        texts = [
            "".join(
                f"line {line} of {number}: the quick brown fox\n\tjumps over {line * number}\n" for line in range(9)
            )
            for number in range(40)
        ]
        model = train_tokenizer(texts, vocab_size=VOCABULARY, model_type="bpe")
        write_file(self.folder / "tokenizer.model", model)
        encoded = encode_texts(Tokenizer(model), texts)
        write_shard(self.folder / "words.tokens", encoded, VOCABULARY, tokenizer_digest(model))
        draw = np.random.default_rng(0)
        (self.folder / "shards").mkdir()
        for number, count in enumerate((301, 13, 407)):  # the second holds no window
            write_shard(self.folder / "shards" / f"{number}.tokens", [_ids(draw, count, 97)], 97)
        (self.folder / "rest").mkdir()
        write_shard(self.folder / "rest" / "0.tokens", [_ids(draw, 13 * 40 + 1, 97)], 97)
        write_shard(self.folder / "held-out.tokens", [_ids(draw, 24 * 9 + 1, 60)], 60)
        write_shard(self.folder / "many.tokens", [_ids(draw, 2000, 60)], 8200)
        write_wide_shard(self.folder / "wide.tokens", _ids(draw, 2000, 60), 60)
        (self.folder / "conversations").mkdir()
        for number, count in enumerate((70, 1, 40)):
            write_documents(self.folder / "conversations" / f"{number}.tokens", _conversations(draw, count), 60)
        write_documents(self.folder / "held-out-conversations.tokens", _conversations(draw, 30), 60)
        for name, options in OPTIONS.items():
            self.config(name).write_text(options.toml(self.folder))


def write_wide_shard(path: Path, ids: np.ndarray, vocabulary: int) -> None:
    """A shard of four bytes an id, which the format allows for small vocabularies too."""
    path.write_bytes(HEADER.pack(MAGIC, PLAIN, 4, vocabulary, len(ids), bytes(32)) + ids.astype("<u4").tobytes())


def _ids(draw: np.random.Generator, count: int, vocabulary: int) -> np.ndarray:
    """Ids that a model can learn something about: each is near the one before."""
    return np.cumsum(draw.integers(0, 5, count)) % vocabulary


def _conversations(draw: np.random.Generator, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Documents of 2 to 59 tokens, the later ones of which count: a third of all."""
    for _ in range(count):
        length = int(draw.integers(2, 60))
        yield _ids(draw, length, 60), np.arange(length) >= 2 * length // 3


def metrics_of(run: Path) -> list[dict]:
    """The records of a run's steps."""
    return [record for record in read_metrics(run / "metrics.jsonl") if "loss" in record]
