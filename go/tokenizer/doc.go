// Package tokenizer turns text into token ids and back, and conversations into text. It reads the SentencePiece models of
// tokenizer.model, the tokenizer.json of Hugging Face folders, the tokenizers inside GGUF files, and chat templates; all
// tokenizers are a TextTokenizer.
package tokenizer
