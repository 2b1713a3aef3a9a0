"""The tokenizers' fixtures: what SentencePiece itself gives for each model and each text.

    python tests/tokenizer/tokenizer_generate.py           writes the expectations anew from the models that lie here
    python tests/tokenizer/tokenizer_generate.py --train   trains those models first (needs the package protobuf, too)

README.md beside this file says what the files hold.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizer_made import drawn, refused
from tokenizer_texts import LEARNED, LONG_TEXTS, TEXTS

from nncuda.tokenizer import StreamDecoder, Tokenizer, train_tokenizer
from nncuda.tokenizer.tokenizer import TextTokenizer

FOLDER = Path(__file__).parent
MODELS = (
    "own_unigram",
    "own_bpe",
    "ties_unigram",
    "ties_bpe",
    "llama_bpe",
    "nfkc_unigram",
    "rules_bpe",
    "drawn_unigram",
    "drawn_bpe",
)


# Models


def _trained(**options: Any) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LEARNED), model_writer=model, num_threads=1, minloglevel=2, **options
    )
    return model.getvalue()


def _changed(model: bytes, change: Any) -> bytes:
    from sentencepiece import sentencepiece_model_pb2 as proto

    message = proto.ModelProto()
    message.ParseFromString(model)
    message.normalizer_spec.ClearField("normalization_rule_tsv")  # paths of the machine that trained it
    message.denormalizer_spec.ClearField("normalization_rule_tsv")
    change(message)
    return message.SerializeToString(deterministic=True)


def _coarse_scores(message: Any) -> None:
    # Many ways through a text then have one score, and which of them is taken shows.
    for piece in message.pieces:
        if piece.type == piece.NORMAL:
            piece.score = float(round(piece.score / 2) * 2)


def _unused_pieces(message: Any) -> None:
    # Every fifth piece of several characters: known, never given out, cut into what it was merged from.
    long = [piece for piece in message.pieces if piece.type == piece.NORMAL and len(piece.piece) > 1]
    for piece in long[::5]:
        piece.type = piece.UNUSED


def train(rules: Path) -> Iterator[tuple[str, bytes]]:
    """Each model's name and file. `rules` is a file to write rules of normalisation to."""
    unigram = train_tokenizer(LEARNED, vocab_size=400, model_type="unigram", character_coverage=0.98, threads=1)
    bpe = train_tokenizer(LEARNED, vocab_size=400, model_type="bpe", character_coverage=0.98, threads=1)
    yield "own_unigram", unigram
    yield "own_bpe", bpe
    yield "ties_unigram", _changed(unigram, _coarse_scores)
    yield "ties_bpe", _changed(bpe, lambda message: (_coarse_scores(message), _unused_pieces(message)))
    yield (
        "llama_bpe",
        _trained(
            model_type="bpe",
            vocab_size=380,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            split_digits=True,
            character_coverage=0.98,
        ),
    )
    yield "drawn_unigram", drawn(1, 1)
    yield "drawn_bpe", drawn(2, 6)
    symbols = ["<user>", "<us", "<user", "abc", "abcde", "<a b>", "ＡＢ"]
    yield (
        "nfkc_unigram",
        _changed(
            _trained(
                model_type="unigram",
                vocab_size=170,
                normalization_rule_name="nmt_nfkc",
                user_defined_symbols=symbols,
                control_symbols=["<sep>"],
                character_coverage=0.98,
                pad_id=0,
                eos_id=1,
                unk_id=2,
                bos_id=-1,
            ),
            _unused_pieces,
        ),
    )
    # Left sides in hexadecimal code points, then right sides: to several, to one, to nothing, to a space.
    lines = ["FB01\t66 69", "FB03\t66 66 69", "41 42\t43", "41\t61", "200B\t", "3000\t20", "A0\t20 20", "1F600\t3A 29"]
    rules.write_text("\n".join(lines) + "\n", encoding="utf-8")
    back = rules.with_suffix(".back")
    back.write_text("3A 29\t1F600\n71\t51\n", encoding="utf-8")
    yield (
        "rules_bpe",
        _changed(
            _trained(
                model_type="bpe",
                vocab_size=170,
                normalization_rule_tsv=str(rules),
                denormalization_rule_tsv=str(back),
                treat_whitespace_as_suffix=True,
                user_defined_symbols=symbols,
                character_coverage=0.98,
                unk_surface="<?>",
                bos_piece="[begin]",
                eos_piece="[end]",
            ),
            lambda message: None,
        ),
    )


# Expectations


def _sha256(ids: list[int]) -> str:
    return hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()


def encoded(
    tokenizer: TextTokenizer, texts: Mapping[str, str] = TEXTS, **options: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """By the name of a text, its ids and, where it is another one, the text that they make."""
    for name, text in texts.items():
        ids = tokenizer.encode(text, **options)
        decoded = tokenizer.decode(ids)
        yield name, {"ids": ids} if decoded == text else {"ids": ids, "decoded": decoded}
    for name, (text, repeat) in LONG_TEXTS.items() if texts is TEXTS else ():
        ids = tokenizer.encode(text * repeat, **options)
        decoded = tokenizer.decode(ids)
        expected = {"count": len(ids), "ids_sha256": _sha256(ids)}
        if decoded != text * repeat:
            expected["decoded_sha256"] = hashlib.sha256(decoded.encode()).hexdigest()
        yield name, expected


def _ids_to_decode(tokenizer: TextTokenizer) -> Iterator[list[int]]:
    """Ids as a model may give them, in any order: bytes that are not characters, controls, spaces at the start."""
    size = tokenizer.vocab_size
    draw = random.Random(0)
    yield []
    yield [tokenizer.ordinary_id]
    for _ in range(10):
        yield [draw.randrange(size) for _ in range(draw.randrange(1, 16))]
    few = [token for token in range(size) if tokenizer.decode([tokenizer.ordinary_id, token]).endswith(" ")][:3]
    for _ in range(4):
        yield [draw.choice([*few, 0, 1, 2, 3, *range(4, 12)]) for _ in range(8)]
    ids = tokenizer.encode("\x00")
    if len(ids) == 1 and tokenizer.piece(ids[0]) == "<0x00>":
        zero = ids[0]  # the pieces of the 256 bytes follow one another
        for data in (b"\xe7\x8c\xab", b"\xe7\x8c", b"\x8c\xab", b"\xf0\x9f\x98\x80!", b"\xf0\x9f\x98", b"\xed\xa0\x80",
                     b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xff\xfea\xfd", b"\xe7\x8c\xf0\x9f\x98\x80"):  # fmt: skip
            yield [zero + byte for byte in data]
        yield [zero + 0xE7, zero + 0x8C, tokenizer.ordinary_id, zero + 0xAB]
        yield [zero + 0x20, zero + 0x20, tokenizer.ordinary_id]


def decoded(tokenizer: TextTokenizer, further: Iterable[list[int]] = ()) -> Iterator[dict[str, Any]]:
    """Ids, their text, and what a stream decoder gives for each and at the end."""
    for ids in (*_ids_to_decode(tokenizer), *further):
        decoder = StreamDecoder(tokenizer)
        pushed = [decoder.push(token) for token in ids]
        yield {"ids": ids, "text": tokenizer.decode(ids), "pushed": pushed, "flushed": decoder.flush()}


def expected(model: bytes) -> dict[str, Any]:
    """What SentencePiece says about a model."""
    tokenizer = Tokenizer(model)
    return {
        "vocab_size": tokenizer.vocab_size,
        "begin_id": tokenizer.begin_id,
        "end_id": tokenizer.end_id,
        "ordinary_id": tokenizer.ordinary_id,
        "encode": dict(encoded(tokenizer)),
        "decode": list(decoded(tokenizer)),
    }


def lines(value: Any, depth: int) -> str:
    """JSON with one entry a line down to `depth`, so that a change shows as the line that changed."""
    if depth == 0 or not isinstance(value, (dict, list)):
        return json.dumps(value, separators=(",", ":"))
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {lines(part, depth - 1)}" for name, part in value.items()]
        return "{\n" + ",\n".join(parts) + "\n}"
    return "[\n" + ",\n".join(lines(part, depth - 1) for part in value) + "\n]"


def files() -> dict[str, str]:
    """Name and content of each file of expectations."""
    texts = [{"name": name, "text": text, "repeat": 1} for name, text in TEXTS.items()]
    texts += [{"name": name, "text": text, "repeat": repeat} for name, (text, repeat) in LONG_TEXTS.items()]
    found = {"texts.json": lines(texts, 1) + "\n", "refused.json": lines(refused(), 1) + "\n"}
    for name in MODELS:
        found[f"{name}.json"] = lines(expected((FOLDER / f"{name}.model").read_bytes()), 2) + "\n"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true", help="train the models anew, too")
    if parser.parse_args().train:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            for name, model in train(Path(folder) / "rules.tsv"):
                (FOLDER / f"{name}.model").write_bytes(model)
    for name, content in files().items():
        (FOLDER / name).write_text(content, encoding="ascii")


if __name__ == "__main__":
    main()
