package tokenizer_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// Vocabularies that make a text take the square of its length end with an error, and soon.
func TestVocabulariesAreBounded(t *testing.T) {
	long := strings.Repeat("a", 4000) + "b"
	pieces := [][]any{{"a", -1}, {"<unk>", -2}, {strings.Repeat("a", 1<<17) + "b", -3}}
	unigram := must.Get(json.Marshal(map[string]any{"type": "Unigram", "unk_id": 1, "vocab": pieces}))(t)
	added := func(content string, right bool) string {
		return string(must.Get(json.Marshal([]map[string]any{{
			"id": 15, "content": content, "single_word": false, "lstrip": true, "rstrip": right, "normalized": false,
			"special": false,
		}}))(t))
	}
	for name, parts := range map[string]map[string]string{
		"long pieces":   {"model": string(unigram)},
		"long tokens":   {"added_tokens": added(long, false)},
		"spaces around": {"added_tokens": added("\t", true)},
	} {
		made := must.Get(tokenizer.NewJSON(changed(t, parts)))(t)
		text := strings.Repeat("a", 1<<17)
		if name == "spaces around" {
			text = strings.Repeat("\t", 1<<17)
		}
		start := time.Now()
		_, err := made.Encode(text, tokenizer.Encoding{})
		if err == nil || !strings.Contains(err.Error(), "too many steps") {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}
