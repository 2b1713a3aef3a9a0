package tokenizer_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// pipelines are the fixtures of the rules that a tokenizer.json may have.
type pipelines struct {
	Texts []string
	Model json.RawMessage
	Cases []struct {
		Name       string
		Tokenizer  map[string]json.RawMessage
		IDs        [][]int32
		SpecialIDs [][]int32 `json:"special_ids"`
		Decoded    []string
	}
}

func readPipelines(t testing.TB) pipelines {
	t.Helper()
	var read pipelines
	readFixture(t, "pipeline/cases.json", &read)
	for _, one := range read.Cases {
		if string(one.Tokenizer["model"]) == "null" {
			one.Tokenizer["model"] = read.Model
		}
	}
	return read
}

func TestRulesGiveWhatTheLibraryGives(t *testing.T) {
	read := readPipelines(t)
	for _, one := range read.Cases {
		t.Run(one.Name, func(t *testing.T) {
			made := must.Get(tokenizer.NewJSON(must.Get(json.Marshal(one.Tokenizer))(t)))(t)
			for at, text := range read.Texts {
				ids := must.Get(made.Encode(text, tokenizer.Encoding{}))(t)
				if !slices.Equal(ids, one.IDs[at]) {
					t.Errorf("%q is\n%v, not\n%v", text, ids, one.IDs[at])
				}
				special := must.Get(made.Encode(text, tokenizer.Encoding{Special: true}))(t)
				if !slices.Equal(special, one.SpecialIDs[at]) {
					t.Errorf("%q with special tokens is\n%v, not\n%v", text, special, one.SpecialIDs[at])
				}
				if decoded, err := made.Decode(one.IDs[at]); err != nil || decoded != one.Decoded[at] {
					t.Errorf("%v is %q (%v), not %q", one.IDs[at], decoded, err, one.Decoded[at])
				}
			}
		})
	}
}

// changed is the first tokenizer of the fixtures with some parts replaced.
func changed(t testing.TB, parts map[string]string) []byte {
	t.Helper()
	content := readPipelines(t).Cases[0].Tokenizer
	for name, part := range parts {
		content[name] = json.RawMessage(part)
	}
	return must.Get(json.Marshal(content))(t)
}

func TestWhatIsNotKnownIsRefusedByName(t *testing.T) {
	split := func(regex string) string {
		return `{"type": "Split", "pattern": {"Regex": ` + string(must.Get(json.Marshal(regex))(t)) +
			`}, "behavior": "Isolated", "invert": false}`
	}
	added := func(more string) string {
		return `[{"content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true,` +
			more + `}]`
	}
	for _, one := range []struct{ part, content, sentence string }{
		{"version", `"2.0"`, "it is of version '2.0'"},
		{"new_part", `{}`, `it has "new_part", which this program does not know`},
		{"normalizer", `{"type": "Nmt"}`, `its normalizer is "Nmt"`},
		{"normalizer", `{"type": "NFC", "form": 1}`, `its normalizer NFC has "form"`},
		{"normalizer", `{"type": "Prepend"}`, "its normalizer Prepend has no prepend"},
		{"normalizer", `{"type": "Sequence", "normalizers": [{"type": "Nmt"}]}`, `its part of its normalizer is "Nmt"`},
		{"normalizer", `{"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": []}]}`, "a sequence inside"},
		{"normalizer", `{"type": "Replace", "pattern": {"String": ""}, "content": ""}`, "neither one Regex nor one String"},
		{"normalizer", `7`, "its normalizer is no object with a type"},
		{"pre_tokenizer", `{"type": "UnicodeScripts"}`, `its pre_tokenizer is "UnicodeScripts"`},
		{"pre_tokenizer", `{"type": "Metaspace", "replacement": "__"}`, "it must be one character"},
		{"pre_tokenizer", `{"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"}`, `the prepend_scheme "last"`},
		{"pre_tokenizer", `{"type": "Metaspace", "replacement": "_", "add_prefix_space": false}`, "adds no prefix space"},
		{"pre_tokenizer", `{"type": "Punctuation", "behavior": "Odd"}`, `the behavior "Odd"`},
		{"pre_tokenizer", split(`a\G`), `has \G, which`},
		{"pre_tokenizer", split(`*a`), `has * where`},
		{"pre_tokenizer", split(`(?<=a)b`), `has a group that begins with "(?<="`},
		{"pre_tokenizer", split(`(?i)a`), `has a group that begins with "(?i)`},
		{"pre_tokenizer", split(`(?i:ss)`), "has ss of either case"},
		{"pre_tokenizer", split(`(?i:é)`), "letters beyond ASCII of either case"},
		{"pre_tokenizer", split(`(?i:\p{Lu})`), "a class of characters of either case"},
		{"pre_tokenizer", split(`(?i:s+)`), "repeats letters of either case"},
		{"pre_tokenizer", split(`[[:alpha:]]`), "has [: in brackets"},
		{"pre_tokenizer", split(`[a&&b]`), "has && in brackets"},
		{"pre_tokenizer", split(`\p{Unknown}`), `has \p{Unknown}`},
		{"pre_tokenizer", split(`\p{C}`), `has \p{C}`},
		{"pre_tokenizer", split(`(a*)*`), "repeats what may be empty"},
		{"pre_tokenizer", split(`a**`), "repeats a repetition"},
		{"pre_tokenizer", split(`a{2}?`), "repeats a repetition"},
		{"pre_tokenizer", split(`a{0,2}+`), "repeats what may be empty"},
		{"pre_tokenizer", split(`^*`), "repeats what may be empty"},
		{"pre_tokenizer", split(`a{2`), "which is no {n}"},
		{"pre_tokenizer", split(`a{5000}`), "which is no {n}"},
		{"pre_tokenizer", split(`(((a{1000}b){1000}c){1000}d)`), "is too large with its repetitions written out"},
		{"pre_tokenizer", split(`(a`), "has a ( without its )"},
		{"pre_tokenizer", split(`a)`), "has a ) without its ("},
		{"pre_tokenizer", split(`[a`), "has a [ without its ]"},
		{"pre_tokenizer", split(`[b-a]`), "has a range whose end"},
		{"pre_tokenizer", split(`\1`), `has \1, which`},
		{"pre_tokenizer", split(`\xff`), `has \xff, which is no character`},
		{"pre_tokenizer", split(strings.Repeat("(", 100) + strings.Repeat(")", 100)), "nested deeper than"},
		{"decoder", `{"type": "CTC"}`, `its decoder is "CTC"`},
		{"decoder", `{"type": "Strip", "content": "ab", "start": 0, "stop": 0}`, "it must be one character and counts"},
		{"post_processor", `{"type": "Other"}`, `its post_processor is "Other"`},
		{"post_processor", `{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}],
			"pair": [], "special_tokens": {}}`, "puts '<s>', which it does not describe"},
		{"added_tokens", added(`"id": 99`), "its added token '<s>' has id 99; its place makes it 15"},
		{"added_tokens", added(`"id": 15, "color": 1`), `it has "color"`},
		{"model", `null`, "its model has no type"},
		{"model", `{"type": "WordPiece"}`, "its model is 'WordPiece'"},
		{"model", `{"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1}`, "the dropout 0.1"},
		{"model", `{"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}`, "its model gives 'a' and 'b' the id 0"},
		{"model", `{"type": "BPE", "vocab": {"a": -1}, "merges": []}`, "the id -1"},
		{"model", `{"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}`, "merge 0 has 'b', which is no token"},
		{"model", `{"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}`, "merge 0 makes 'aa', which is no token"},
		{"model", `{"type": "BPE", "vocab": {"a": 0}, "merges": ["aa"]}`, "merge 0 is 'aa'"},
		{"model", `{"type": "BPE", "vocab": {"a": 0}, "merges": [], "cache": 1}`, `its model has "cache"`},
		{"model", `{"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "b"}`, "its unknown token 'b' is no token"},
		{"model", `{"type": "BPE", "vocab": {}, "merges": []}`, "it has no tokens"},
		{"model", `{"type": "Unigram", "vocab": [["a", -1]], "unk_id": 1}`, "the unk_id 1"},
		{"model", `{"type": "Unigram", "vocab": [["a", -1]]}`, "there is no unknown piece"},
		{"model", `{"type": "Unigram", "vocab": [["a"]]}`, "a piece is not a name and a score"},
	} {
		_, err := tokenizer.NewJSON(changed(t, map[string]string{one.part: one.content}))
		if err == nil || !strings.Contains(err.Error(), one.sentence) {
			t.Errorf("%s %s: %v, not %s", one.part, one.content, err, one.sentence)
		}
	}
	for content, sentence := range map[string]string{
		"\xff": "it is not UTF-8", "[]": "it has a array", "{": "unexpected EOF", "{}{}": "something follows its end",
		`{"version":` + strings.Repeat("[", 1<<24): "it has more than 16777216 brackets",
	} {
		if _, err := tokenizer.NewJSON([]byte(content)); err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("%.40q: %v, not %s", content, err, sentence)
		}
	}
}

// Rules that would take for ever, or make a text without end, end with an error.
func TestRulesAreBounded(t *testing.T) {
	text := strings.Repeat("a", 3000)
	double := `{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}`
	for name, parts := range map[string]map[string]string{
		"backtracking": {"pre_tokenizer": `{"type": "Split", "pattern": {"Regex": "(?:a|aa)+b"}, "behavior": "Isolated",
			"invert": false}`},
		"doubling": {"normalizer": `{"type": "Sequence", "normalizers": [` + strings.Repeat(double+",", 40) + double + `]}`},
	} {
		made, err := tokenizer.NewJSON(changed(t, parts))
		if err == nil {
			_, err = made.Encode(text, tokenizer.Encoding{})
		}
		if err == nil || !strings.Contains(err.Error(), "its rules") {
			t.Errorf("%s: %v", name, err)
		}
	}
	made := must.Get(tokenizer.NewJSON(changed(t, map[string]string{
		"decoder": `{"type": "Sequence", "decoders": [` + strings.Repeat(double+",", 40) + double + `]}`,
	})))(t)
	if _, err := made.Decode([]int32{1, 1, 1}); err == nil || !strings.Contains(err.Error(), "make too much of a text") {
		t.Error(err)
	}
}
