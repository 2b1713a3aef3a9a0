package tokenizer_test

import (
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/tokenizer"
)

func BenchmarkEncodeKinds(b *testing.B) {
	text := strings.Repeat("The cat sat on the mat, and the dog sat on 12 logs.\n", 1000)
	for _, name := range []string{"llama3", "qwen", "llama2", "gguf_llama2"} {
		made := must.Get(opened(name))(b)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				must.Get(made.Encode(text, tokenizer.Encoding{}))(b)
			}
		})
	}
}
