package tokenizer_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// Tokenizers of the library `tokenizers` and of GGUF files; the fixtures' README says what is in them.
const library = fixtures + "/library"

// Folders of kinds that Go refuses, with what it says.
var refusedKinds = map[string]string{
	"unigram":   `is "Precompiled"`,
	"wordpiece": `its model is 'WordPiece'`,
	"words":     `its model is 'WordLevel'`,
}

// metadata are entries of a GGUF file that stand in JSON.
type metadata struct{ *formats.Object }

func listOf[T any](object *formats.Object, key string) ([]T, bool) {
	values, ok := object.Get(key).([]any)
	list := make([]T, len(values))
	for at, value := range values {
		if list[at], ok = value.(T); !ok {
			return nil, false
		}
	}
	return list, ok
}

func (m metadata) Text(key string) (string, bool) {
	value, ok := m.Get(key).(string)
	return value, ok
}

func (m metadata) Bool(key string) (value, ok bool) {
	value, ok = m.Get(key).(bool)
	return value, ok
}

func (m metadata) Whole(key string) (int64, bool) {
	value, ok := m.Get(key).(int64)
	return value, ok
}

func (m metadata) Texts(key string) ([]string, bool)   { return listOf[string](m.Object, key) }
func (m metadata) Wholes(key string) ([]int64, bool)   { return listOf[int64](m.Object, key) }
func (m metadata) Floats(key string) ([]float64, bool) { return listOf[float64](m.Object, key) }
func (m metadata) Shown(key string) string             { return formats.Shown(m.Get(key)) }

// opened opens a tokenizer of the fixtures by its name.
func opened(name string) (tokenizer.TextTokenizer, error) {
	if strings.HasPrefix(name, "gguf_") {
		content, err := formats.ReadJSON(filepath.Join(library, name+".json"))
		if err != nil {
			return nil, err
		}
		return tokenizer.FromGGUF(metadata{content}, name)
	}
	return tokenizer.FromFolder(filepath.Join(library, name))
}

func TestTokenizersGiveWhatTheLibraryGives(t *testing.T) {
	var texts, special []text
	readFixture(t, "texts.json", &texts)
	readFixture(t, "library/texts.json", &special)
	for at := range special {
		special[at].Repeat = 1
	}
	paths, err := filepath.Glob(filepath.Join(library, "*.expected.json"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no expectations among the fixtures", err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".expected.json")
		t.Run(name, func(t *testing.T) {
			made, err := opened(name)
			if words, refused := refusedKinds[name]; refused {
				if err == nil || !strings.Contains(err.Error(), words) {
					t.Fatalf("%v, not %s", err, words)
				}
				return
			}
			must.Do(t, err)
			var expected struct {
				VocabSize  int     `json:"vocab_size"`
				BeginID    int32   `json:"begin_id"`
				EndIDs     []int32 `json:"end_ids"`
				AddsBegin  bool    `json:"adds_begin"`
				OrdinaryID int32   `json:"ordinary_id"`
				Pieces     []string
				Encode     map[string]encoding
				Special    map[string]encoding `json:"encode_special"`
				Decode     []decoding
			}
			readFixture(t, "library/"+name+".expected.json", &expected)
			if made.VocabSize() != expected.VocabSize || made.BeginID() != expected.BeginID ||
				made.AddsBegin() != expected.AddsBegin || made.OrdinaryID() != expected.OrdinaryID ||
				!slices.Equal(made.EndIDs(), expected.EndIDs) {
				t.Errorf("size %d, begin %d (%v), ends %v, ordinary %d", made.VocabSize(), made.BeginID(), made.AddsBegin(),
					made.EndIDs(), made.OrdinaryID())
			}
			for at, piece := range expected.Pieces {
				if found := made.Piece(int32(7 * at)); found != piece {
					t.Errorf("piece %d is %q, not %q", 7*at, found, piece)
				}
			}
			for _, text := range slices.Concat(texts, special) {
				t.Run(text.Name, func(t *testing.T) {
					content := strings.Repeat(text.Text, text.Repeat)
					checkText(t, made, content, tokenizer.Encoding{}, expected.Encode[text.Name])
					if wanted, found := expected.Special[text.Name]; found {
						checkText(t, made, content, tokenizer.Encoding{Special: true}, wanted)
					}
				})
			}
			if len(expected.Special) != len(special) || len(expected.Encode) != len(texts)+len(special) {
				t.Errorf("%d and %d texts", len(expected.Encode), len(expected.Special))
			}
			for _, decode := range expected.Decode {
				checkDecode(t, made, decode)
			}
		})
	}
}

func TestFoldersWithoutATokenizer(t *testing.T) {
	folder := t.TempDir()
	if made, err := tokenizer.FromFolder(folder); made != nil || err != nil {
		t.Errorf("%v, %v", made, err)
	}
	for sentence, content := range map[string]string{
		"add_bos_token is 1; it must be true or false": `{"add_bos_token": 1}`,
		"is not a JSON object":                         `[]`,
	} {
		must.Do(t, os.WriteFile(filepath.Join(folder, "tokenizer_config.json"), []byte(content), 0o600))
		if _, err := tokenizer.FromFolder(folder); err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("%v, not %s", err, sentence)
		}
	}
}

// The ways to cut that GGUF files have names for: the ids of the library, from the metadata and from the tokenizer.json that
// comes along with a model.
func TestCutsGiveWhatTheLibraryGives(t *testing.T) {
	var given struct {
		Texts []string
		Cuts  map[string]struct {
			Names  []string
			Begins bool
			IDs    [][]int32
		}
	}
	readFixture(t, "cuts/cases.json", &given)
	entries := must.Get(formats.ReadJSON(filepath.Join(fixtures, "cuts", "cases.json")))(t).Get("metadata").(*formats.Object)
	if len(given.Cuts) < 8 || len(given.Texts) < 10 {
		t.Fatal(len(given.Cuts), "cuts,", len(given.Texts), "texts")
	}
	for _, cut := range given.Cuts {
		for _, name := range cut.Names {
			entries.Set("tokenizer.ggml.pre", name)
			made := must.Get(tokenizer.FromGGUF(metadata{entries}, name))(t)
			if made.AddsBegin() != cut.Begins {
				t.Errorf("%s begins texts: %v", name, made.AddsBegin())
			}
			files := must.Get(must.Get(tokenizer.CarryGGUF(made, metadata{entries}))(t).Files())(t)
			carried := must.Get(tokenizer.NewJSON(files["tokenizer.json"]))(t)
			for at, text := range given.Texts {
				for _, one := range []tokenizer.TextTokenizer{made, carried} {
					ids := must.Get(one.Encode(text, tokenizer.Encoding{Special: true}))(t)
					if !slices.Equal(ids, cut.IDs[at]) {
						t.Errorf("%s, %q: ids are\n%v, not\n%v", name, text, ids, cut.IDs[at])
					}
				}
			}
		}
	}
}
