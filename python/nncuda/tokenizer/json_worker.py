"""The program that runs tokenizers of the `tokenizers` library. Files of strangers get it in the process of a sandbox,
where it is loaded as a file, outside the package; tokenizers that this package made itself are served without one.

Rules for texts are programs: they may make a text longer without end, or look through it for ever, and a broken table
makes the library give up in the middle. The limits are those of the process; who asks sees to the time.
"""

from __future__ import annotations

import json
import os
import resource
from typing import Any

import tokenizers
from tokenizers import processors

# Bytes for anything, for each byte of the file, once to load it and again to answer, and for each character of a text.
# To load a file takes ten times its size, to describe it three times, to encode a text two hundred times its own.
_ANYWAY, _LOADING, _ANSWERING, _EACH = 256 << 20, 24, 8, 512
_PROBE = "The quick brown fox jumps over the lazy dog. ÄÖÜ, 0123456789, 中文\n"


class Served:
    """A tokenizer and what may be asked of it."""

    def __init__(self, tokenizer: tokenizers.Tokenizer):
        self._tokenizer = tokenizer
        # A file may ask for texts filled up to any length, or cut.
        tokenizer.no_padding()
        tokenizer.no_truncation()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """To `describe`, `encode` (`special`: names of control tokens are these tokens), `decode`, or give `json`."""
        if "describe" in request:
            return self._describe()
        if "encode" in request:
            self._tokenizer.encode_special_tokens = not request["special"]
            return {"ids": self._tokenizer.encode(request["encode"], add_special_tokens=False).ids}
        if "decode" in request:
            return {"text": self._tokenizer.decode(request["decode"], skip_special_tokens=True)}
        return {"json": self._json(request["json"])}

    def _describe(self) -> dict[str, Any]:
        """`vocabulary`: ids by name; `unlisted`: [id, name] of others; `decoded`: [id, name] of those that decoding
        knows by another name; `special`: names that decoding leaves out; `first`: what the file lets it put before a
        text, -1 for nothing; `decoder`: its rules, or null."""
        tokenizer = self._tokenizer
        vocabulary = tokenizer.get_vocab()
        known = set(vocabulary.values())
        size = max(known, default=-1) + 1
        between = range(size) if size <= 2 * len(known) else ()  # two tokens may have one name
        others = ((token, tokenizer.id_to_token(token)) for token in between if token not in known)
        tokenizer.encode(_PROBE)  # what cannot encode a text at all is found here
        added = tokenizer.get_added_tokens_decoder()
        # Those that are looked for in normalised text have the normalised name there.
        decoded = [[token, tokenizer.id_to_token(token)] for token in added]
        decoder = tokenizer.decoder
        return {
            "vocabulary": vocabulary,
            "unlisted": [[token, name] for token, name in others if name is not None],
            "decoded": [pair for pair in decoded if pair[1] != added[pair[0]].content],
            "special": [token.content for token in added.values() if token.special],
            "first": next(iter(tokenizer.encode("").ids), -1),
            "decoder": None if decoder is None else json.loads(decoder.__getstate__()),
        }

    def _json(self, first: int | None) -> str:
        """The content of a tokenizer.json, which puts the id `first` before a text, unless it is None."""
        whole = tokenizers.Tokenizer.from_str(self._tokenizer.to_str())
        if first is not None:
            name = whole.id_to_token(first)
            whole.post_processor = processors.TemplateProcessing(
                single=[name, "$A"], pair=[name, "$A", name, "$B"], special_tokens=[(name, first)]
            )
        return whole.to_str(pretty=False)


_served: Served | None = None
_size = 0


def answer(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """The first request is `load`, with the file; for those that follow see `Served`."""
    global _served, _size
    if "load" in request:
        _size = len(data)
        _limit_memory(_ANYWAY + _LOADING * _size)
        _served = Served(tokenizers.Tokenizer.from_buffer(data))
        return {}
    assert _served is not None
    text = len(request.get("encode", "")) + len(request.get("decode", ""))
    _limit_memory(_ANYWAY + _ANSWERING * _size + _EACH * text)
    return _served.answer(request)


def _limit_memory(more: int) -> None:
    """Lets this process map so many bytes more than it has now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (mapped + more, resource.getrlimit(resource.RLIMIT_AS)[1]))
