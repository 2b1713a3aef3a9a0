"""What single tokens add to a text: its characters, and its bytes where it may be a part of a character only."""

from __future__ import annotations

from .gguf import BYTE_PIECE
from .tokenizer import TextTokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def _alphabet() -> dict[str, int]:
    """Byte-level tokenizers write each byte as a character: printable ones as themselves, the others from U+0100 on.

    (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2)
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


_BYTES = _alphabet()


class AddedText:
    """What tokens of a tokenizer add to a text that others have begun."""

    def __init__(self, tokenizer: TextTokenizer):
        self._tokenizer = tokenizer
        # Some models drop the space at the start of a text, so a token is decoded after another one.
        self._anchor = tokenizer.ordinary_id
        self._start = len(tokenizer.decode([self._anchor]))

    def of(self, token: int) -> tuple[str, bytes]:
        """The text of a token and its bytes, both empty for tokens that add no text. They differ where it is a part of
        a character, whose text is U+FFFD. ValueError for an id outside the vocabulary."""
        text = self._tokenizer.decode([self._anchor, token])[self._start :]
        return text, token_bytes(self._tokenizer, token, text)


def token_bytes(tokenizer: TextTokenizer, token: int, text: str) -> bytes:
    """The bytes of a token that decodes to `text`, where that may be a part of a character only."""
    if _REPLACEMENT not in text:
        return text.encode()
    name = tokenizer.piece(token)
    byte = BYTE_PIECE.fullmatch(name)
    if byte is not None:
        return bytes([int(byte[1], 16)])
    if all(sign in _BYTES for sign in name):
        return bytes(_BYTES[sign] for sign in name)
    return text.encode()
