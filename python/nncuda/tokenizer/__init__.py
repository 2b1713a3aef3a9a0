"""Tokenizers and chat templates: text to ids and back, whatever file they come from, and into which files they go.

SentencePiece models (`tokenizer`), tokenizer.json (`json_tokenizer`) and the tables of GGUF files (`gguf`) have one
interface, `TextTokenizer`. Code from strangers runs in a process of its own (`sandbox`).
"""

from .tokenizer import StreamDecoder, TextTokenizer, Tokenizer, encode_texts, train_tokenizer

__all__ = ["StreamDecoder", "TextTokenizer", "Tokenizer", "encode_texts", "train_tokenizer"]
