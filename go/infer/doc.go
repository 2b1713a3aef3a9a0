// Package infer generates tokens and text.
//
// A [LanguageModel] runs stored models, GGUF files and Hugging Face folders, checkpoints among them, on the inference
// engine (package engine): weights multiplied as their file has them, several prompts decoded together, beginnings of
// prompts computed once. Any number of goroutines may share one. A [Service] writes texts of many callers on one in a
// goroutine of its own, with a queue: what a server needs.
//
// [Tokens], [Batch] and [TextGenerator] run a model.MoETransformer, which may be one that is being trained, by the layers
// that train, over a contiguous cache. Its tokens are those of the engine but for the last bits of sums.
package infer
