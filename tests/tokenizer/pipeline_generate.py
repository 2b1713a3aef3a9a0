"""What the library `tokenizers` makes of texts by each rule that a tokenizer.json may have, one tokenizer a rule.

    python tests/tokenizer/pipeline_generate.py

README.md beside this file says what the file holds.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from tokenizer_generate import lines
from tokenizers import Tokenizer

PATH = Path(__file__).parent / "pipeline" / "cases.json"

TEXTS = (
    "The cat sat, on 12345 mats!  It's   fine\r\n\n\tYES'LL don't I'VE\n",
    " ab  abc<a> <b>x <c>y<a>z <b> ab<c>\u00a0<s> w<d>w <d> ab.abc-ab",
    "Über e\u0301té İx ÅΣ ﬁ ① ab\u0327\u0301 中文ab 3.14 ٣٤ ½ _x_ a_b",
    "'\u017f 'S K\u212a\u2028 a\u200db \U0001f600\U0001f3fd",
    "",
    "   ",
)

LETTERS = ["<unk>", "a", "b", "c", "ab", "abc", "▁", "▁a", "▁ab", " ", "x", "y", "z", "aa", "_"]
MERGES = [["a", "b"], ["ab", "c"], ["▁", "ab"], ["▁", "a"], ["a", "a"]]


def bpe(**options: Any) -> dict[str, Any]:
    """A model of few letters."""
    model: dict[str, Any] = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None}
    model |= {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return model | {"vocab": {name: at for at, name in enumerate(LETTERS)}, "merges": MERGES} | options


def every_character() -> dict[str, Any]:
    """A model with each character of the texts, as it is, in small and spelled in bytes: cuts show as the merges of
    neighbours that they keep apart."""
    from tokenizers import pre_tokenizers

    found = {"<unk>", *pre_tokenizers.ByteLevel.alphabet(), "▁", "i", "\u0307", "\u0301", "\u0327"}
    for text in TEXTS:
        found |= {*text, *text.lower()}
    names = sorted(found)
    pairs = sorted({(a, b) for text in (*TEXTS, "Ġa") for a, b in itertools.pairwise(text)})
    pairs += [("Ġ", "c"), ("Ġ", "Ġ"), ("Ċ", "Ċ"), ("▁", "▁"), ("▁", "c"), ("č", "Ċ"), ("I", "'")]
    vocabulary = {name: at for at, name in enumerate(dict.fromkeys([*names, *("".join(pair) for pair in pairs)]))}
    return bpe(vocab=vocabulary, merges=[list(pair) for pair in dict.fromkeys(pairs)])


def unigram(unknown: int | None = 0, **options: Any) -> dict[str, Any]:
    pieces = [["<unk>", 0.0], ["a", -2.0], ["b", -2.5], ["ab", -3.0], ["c", -1.5], ["abc", -4.4], ["▁", -1.0]]
    pieces += [["▁ab", -4.0], ["x", -2.0], ["xy", -9.0], ["y", -1.0], [" ", -1.0], ["a", -1.0]]
    return {"type": "Unigram", "unk_id": unknown, "vocab": pieces, "byte_fallback": False} | options


def split(regex: str, behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(of: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", of: list(parts)}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
METASPACE = {"type": "Metaspace", "replacement": "▁", "split": True}
#: Expressions as published tokenizers have them, and others that use what expressions may.
EXPRESSIONS = {
    "possessive": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s*[\r\n]|\s+(?!\S)|\s",
    "cases": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "nested": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "runs": r"[一-龥぀-ゟ゠-ヿ]+|[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+",
    "lazy": r"a.*?b|\d{2}|\D\d??",
    "ahead": r"\w+(?=,)|(?>\w+)(?!')|(?:ab|a)(?:bc|c)",
    "places": r"^ *\S|\b\w|\w\b|.$|\B[.,]|\s++$",
    "thousands": r"\d{1,3}(?=(?:\d{3})*\b)",
    "counted": r"\p{N}{1,3}+|(?:ab){2,}+|[a-z]{2}+",
    "line_ends": r"\n$|$\n|^.|\n^",
    "words": r"\w+|[^\w\s]+",
    "counts": r"(?:ab){1,2}|\S{3,}|[^\n]{2}",
    "escapes": r"\x41|\x{e9}|\u0301|\p{^L}|\P{Ll}|[\-\]\\ab]|\t",
}


def tokenizers() -> dict[str, dict[str, Any]]:
    """Parts of a tokenizer.json by name."""
    whole = every_character()
    made: dict[str, dict[str, Any]] = {
        "bpe": {"model": bpe()},
        "bpe_fused": {"model": bpe(fuse_unk=True)},
        "bpe_dropping": {"model": bpe(unk_token=None)},
        "bpe_lines": {"model": bpe(merges=["a b", "ab c"])},
        "bpe_without_type": {"model": {name: value for name, value in bpe().items() if name != "type"}},
        "bpe_whole_words": {"model": bpe(ignore_merges=True, merges=[]), "pre_tokenizer": split(" ", "Removed")},
        "bpe_affixes": {
            "model": bpe(
                continuing_subword_prefix="##",
                end_of_word_suffix="</w>",
                vocab={"<unk>": 0, "a": 1, "##b": 2, "##b</w>": 3, "a</w>": 4, "ab</w>": 5, "ab": 6, "##c</w>": 7},
                merges=[["a", "##b"], ["a", "##b</w>"]],
            ),
            "pre_tokenizer": {"type": "WhitespaceSplit"},
        },
        "unigram": {"model": unigram()},
        "unigram_bytes": {
            "model": unigram(
                byte_fallback=True,
                vocab=[["<unk>", 0.0], ["a", -1.0], ["ab", -1.5], *([f"<0x{byte:02X}>", -5.0] for byte in range(256))],
            )
        },
        "unigram_spaced": {
            "model": unigram(),
            "normalizer": sequence("normalizers", {"type": "NFKC"}, {"type": "Lowercase"}),
            "pre_tokenizer": METASPACE | {"prepend_scheme": "always"},
            "decoder": METASPACE | {"prepend_scheme": "always"},
        },
        "added": {
            "model": bpe(),
            "normalizer": replace({"String": "ab"}, "a b"),
            "added_tokens": [
                {
                    "id": 5 if name == "abc" else 15 + at,
                    "content": name,
                    "special": name == "<s>",
                    "normalized": name == "abc",
                }
                | {"single_word": name == "<d>", "lstrip": name == "<b>", "rstrip": name == "<a>"}
                for at, name in enumerate(("<a>", "<b>", "<c>", "<d>", "<s>", "<a> <", "abc"))
            ],
        },
        "first_spaced": {
            "model": bpe(fuse_unk=True, byte_fallback=True),
            "pre_tokenizer": METASPACE | {"prepend_scheme": "first", "split": False},
            "decoder": sequence(
                "decoders",
                replace({"String": "▁"}, " "),
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ),
            "added_tokens": [
                {"id": 15, "content": "<a>", "special": True, "normalized": False}
                | {"single_word": False, "lstrip": False, "rstrip": False}
            ],
        },
        "old_spaced": {
            "model": bpe(),
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
            "decoder": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
        },
        "never_spaced": {
            "model": bpe(),
            "pre_tokenizer": METASPACE | {"prepend_scheme": "never"},
            "decoder": METASPACE | {"prepend_scheme": "never"},
        },
    }
    byte_level = {"model": whole, "decoder": BYTES}
    for name, expression in EXPRESSIONS.items():
        made[name] = byte_level | {"pre_tokenizer": sequence("pretokenizers", split(expression), BYTES)}
    for behavior in ("Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext"):
        made[f"split_{behavior}"] = {"model": whole, "pre_tokenizer": split(r"[ab\s]", behavior)}
        made[f"inverted_{behavior}"] = {"model": whole, "pre_tokenizer": split(r"[ab\s]", behavior, True)}
        made[f"punctuation_{behavior}"] = {
            "model": whole,
            "pre_tokenizer": {"type": "Punctuation", "behavior": behavior},
        }
    for name, part in {
        "text_split": {"type": "Split", "pattern": {"String": "ab"}, "behavior": "MergedWithNext", "invert": False},
        "digits": {"type": "Digits", "individual_digits": False},
        "each_digit": {"type": "Digits", "individual_digits": True},
        "gpt2": BYTES | {"use_regex": True, "add_prefix_space": True},
    }.items():
        made[name] = byte_level | {"pre_tokenizer": part}
    for name, rule in {
        "NFC": {"type": "NFC"},
        "NFD": {"type": "NFD"},
        "NFKC": {"type": "NFKC"},
        "NFKD": {"type": "NFKD"},
        "lowercase": {"type": "Lowercase"},
        "accents": sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}),
        "stripped": {"type": "Strip", "strip_left": True, "strip_right": True},
        "stripped_left": {"type": "Strip", "strip_left": True, "strip_right": False},
        "prepended": {"type": "Prepend", "prepend": "ab"},
        "replaced": replace({"Regex": r"\s+|b*"}, "_"),
    }.items():
        made[name] = {"model": whole, "normalizer": rule}
    return made


def case(name: str, parts: dict[str, Any]) -> dict[str, Any]:
    """The tokenizer, the ids of each text, and what decoding them gives."""
    empty = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None}
    content = empty | {"pre_tokenizer": None, "post_processor": None, "decoder": None} | parts
    library = Tokenizer.from_str(json.dumps(content))
    library.encode_special_tokens = True
    plain = [library.encode(text, add_special_tokens=False).ids for text in TEXTS]
    library.encode_special_tokens = False
    special = [library.encode(text, add_special_tokens=False).ids for text in TEXTS]
    decoded = [library.decode(ids) for ids in plain]
    return {"name": name, "tokenizer": content, "ids": plain, "special_ids": special, "decoded": decoded}


def content() -> str:
    """The file. The models with every character, which are one, stand in it once."""
    whole = every_character()
    cases = [case(name, parts) for name, parts in tokenizers().items()]
    for one in cases:
        if one["tokenizer"]["model"] == whole:
            one["tokenizer"]["model"] = None
    return lines({"texts": list(TEXTS), "model": whole, "cases": cases}, 2) + "\n"


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(content(), encoding="ascii")
