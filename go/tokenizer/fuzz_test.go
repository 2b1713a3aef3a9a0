package tokenizer_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// FuzzNew: whatever the bytes are, they make a tokenizer that works, or an error.
func FuzzNew(f *testing.F) {
	models, _ := filepath.Glob(filepath.Join(fixtures, "*.model"))
	for _, path := range models {
		content := must.Get(os.ReadFile(path))(f)
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		made, err := tokenizer.New(content)
		if err != nil {
			return
		}
		ids := must.Get(made.Encode("The cat \t\n sat\u2581on 12\U0001F600\xff\x00", tokenizer.Encoding{}))(t)
		if _, err := made.Decode(ids); err != nil {
			t.Fatalf("it cannot decode its own ids %v: %v", ids, err)
		}
		if id := made.OrdinaryID(); id < 0 || int(id) >= made.VocabSize() {
			t.Fatal("the ordinary id is", id)
		}
	})
}

// FuzzText: models that keep all of a text give every text back, at once and as a stream.
func FuzzText(f *testing.F) {
	var kept []*tokenizer.Tokenizer
	for _, name := range []string{"own_unigram", "own_bpe"} {
		made, err := tokenizer.Open(filepath.Join(fixtures, name+".model"))
		if err != nil {
			f.Skip("the fixtures lie in the source tree, beside this module: ", err)
		}
		kept = append(kept, made)
	}
	for _, seed := range []string{
		"", " ", "a  b\t\n\r", "u\u0308 \U0001F468\u200D\U0001F469", "\xff\xc3", "\u2581", "\uFFFD",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, made := range kept {
			ids := must.Get(made.Encode(text, tokenizer.Encoding{}))(t)
			decoded := must.Get(made.Decode(ids))(t)
			if strings.Contains(decoded, "\uFFFD") {
				continue // a stream holds replacement characters back as what may be the beginning of another
			}
			stream := must.Get(tokenizer.NewStreamDecoder(made))(t)
			var pieces strings.Builder
			for _, id := range ids {
				piece := must.Get(stream.Push(id))(t)
				pieces.WriteString(piece)
			}
			rest, err := stream.Flush()
			if pieces.WriteString(rest); err != nil || pieces.String() != decoded {
				t.Fatalf("%q came as %q (%v), at once as %q", text, pieces.String(), err, decoded)
			}
			// The space symbol itself is the one character that a space takes the place of.
			if utf8.ValidString(text) && !strings.Contains(text, "\u2581") && decoded != text {
				t.Fatalf("%q became %q", text, decoded)
			}
		}
	})
}

// FuzzNewJSON: whatever a tokenizer.json is, it makes a tokenizer that works, or an error; of a text, ids that it decodes,
// or an error.
func FuzzNewJSON(f *testing.F) {
	for _, one := range readPipelines(f).Cases {
		f.Add(must.Get(json.Marshal(one.Tokenizer))(f))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		made, err := tokenizer.NewJSON(content)
		if err != nil {
			return
		}
		ids, err := made.Encode("The cat \t\n sat\u2581on 12\U0001F600\xff\x00", tokenizer.Encoding{Special: true})
		if err != nil {
			return
		}
		for _, id := range ids {
			if id < 0 || int(id) >= made.VocabSize() {
				t.Fatalf("id %d of %d", id, made.VocabSize())
			}
		}
		text, err := made.Decode(ids)
		if err == nil && !utf8.ValidString(text) {
			t.Fatalf("%v is %q", ids, text)
		}
	})
}
