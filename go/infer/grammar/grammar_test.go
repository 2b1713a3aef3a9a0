package grammar

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/tokenizer"
)

var _ engine.Constraint = (*Constraint)(nil)

// spaced is a tokenizer of a few words, which puts a space before every text, as those of Llama do.
type spaced struct {
	tokenizer.TextTokenizer
	ends []int32
}

var spacedWords = []string{"</s>", "a", " ", "{", "}", `"`, ":", `{"`, ` {"`, `"}`, "kind", `":`, `":"`, ` "`, "sea", "1"}

func (spaced) VocabSize() int            { return len(spacedWords) }
func (spaced) OrdinaryID() int32         { return 1 }
func (s spaced) EndIDs() []int32         { return s.ends }
func (spaced) Piece(id int32) string     { return spacedWords[id] }
func (spaced) BeginID() int32            { panic("no text is encoded") }
func idOf(word string) (id int32)        { return int32(slices.Index(spacedWords, word)) }
func schemaOf(text string) any           { value, _ := formats.ParseJSON([]byte(text)); return value }
func object(text string) *formats.Object { return schemaOf(text).(*formats.Object) }

func (spaced) Decode(ids []int32) (string, error) {
	var text strings.Builder
	for _, id := range ids {
		if id > 0 {
			text.WriteString(spacedWords[id])
		}
	}
	return text.String(), nil
}

func grammars(t *testing.T, ends []int32, vocab int) *Grammars {
	t.Helper()
	if err := Load(); err != nil {
		if os.Getenv(LibraryVariable) != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return must.Get(New(spaced{ends: ends}, vocab))(t)
}

// allowed are the words that may be next.
func allowed(t *testing.T, of *Constraint) []string {
	t.Helper()
	var found []string
	for at, word := range must.Get(of.Mask())(t) {
		for bit := range 32 {
			if id := 32*at + bit; word>>bit&1 != 0 {
				found = append(found, append(spacedWords, "16", "17")[id])
			}
		}
	}
	slices.Sort(found)
	return found
}

func TestTheModelCutsTextsIntoTokens(t *testing.T) {
	for _, ends := range [][]int32{{0}, nil, {0, 99}} {
		const sea = `{"type": "object", "properties": {"kind": {"enum": ["sea"]}}, "required": ["kind"], "additionalProperties": false}`
		constraint := must.Get(grammars(t, ends, 17).JSONSchema(object(sea)))(t).Constraint()
		steps := [][]string{{"{", `{"`}, {"kind"}, {`"`, `":`, `":"`}, {"sea"}, {`"`, `"}`}}
		for at, word := range []string{`{"`, "kind", `":"`, "sea", `"}`} {
			if found := allowed(t, constraint); !slices.Equal(found, steps[at]) {
				t.Fatalf("step %d allows %q, not %q", at, found, steps[at])
			}
			must.Do(t, constraint.Accept(idOf(word)))
		}
		if found := allowed(t, constraint); found != nil {
			t.Errorf("after the end %q is allowed", found)
		}
	}
}

func TestAGrammarInLark(t *testing.T) {
	made := grammars(t, []int32{0}, 16)
	rules := must.Get(made.LLGuidance(NoForcing + `start: "a" ("1" | %json {"enum": ["sea"]}) "a"`))(t)
	one, other := rules.Constraint(), rules.Constraint()
	must.Do(t, one.Accept(idOf("a")))
	if found := allowed(t, one); !slices.Equal(found, []string{`"`, "1"}) {
		t.Errorf("%q is allowed", found)
	}
	if found := allowed(t, other); !slices.Equal(found, []string{"a"}) {
		t.Errorf("another text is allowed %q", found)
	}
	must.Do(t, one.Accept(idOf("1")))
	must.Do(t, one.Accept(idOf("a")))
	for range 2 { // and it stays so
		err := one.Accept(idOf(" "))
		if failed := (*Error)(nil); !errors.As(err, &failed) || !strings.HasPrefix(failed.Problem, "the grammar failed: ") {
			t.Error(err)
		}
		if _, err := one.Mask(); err == nil {
			t.Error("a constraint that has failed has a mask")
		}
	}
}

func TestWhatCannotBeEnforced(t *testing.T) {
	made := grammars(t, []int32{0}, 16)
	for text, problem := range map[string]string{
		`{"not": {}}`: `Unimplemented keys: ["not"]`,
		`{"not": {}, "x-guidance": {"lenient": true}}`:    `Unimplemented keys: ["not"]`,
		`{"type": "string", "pattern": "(?=a)"}`:          "regex parse error: (?=a) ^^^ error: look-around",
		`{"$ref": "#"}`:                                   "NoExtensionBias",
		`{"enum": [` + strings.Repeat("1,", 5000) + `2]}`: "it has more than 4096 brackets, commas and colons",
		`{"$ref": "https://example.org/x"}`:               "Resource 'https://example.org/x' is not present",
	} {
		schema := object(text)
		_, err := made.JSONSchema(schema)
		if failed := (*Error)(nil); !errors.As(err, &failed) || !strings.HasPrefix(failed.Problem, problem) {
			t.Errorf("%s: %v", text, err)
		}
		if schema.Len() != object(text).Len() {
			t.Errorf("%s is changed", text)
		}
	}
	for _, text := range []string{"start: @nothing", "start: (", "", "start: \"\x00\""} {
		if _, err := made.LLGuidance(text); err == nil || len(err.Error()) > problemCharacters || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestManyNamesTakeLittleStack(t *testing.T) {
	var names []any
	for at := range 4000 {
		names = append(names, fmt.Sprintf("p%d", at))
	}
	schema := formats.NewObject("type", "object", "required", names)
	must.Do(t, must.Err(grammars(t, []int32{0}, 16).JSONSchema(schema)))
}

func TestGoroutinesShareGrammars(t *testing.T) {
	made := grammars(t, []int32{0}, 16)
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 20 {
				rules, err := made.JSONSchema(object(`{"enum": ["sea", 1]}`))
				if err != nil {
					t.Error(err)
					return
				}
				constraint := rules.Constraint()
				if err := constraint.Accept(idOf("1")); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
}

func TestTheLibraryIsLookedFor(t *testing.T) {
	t.Setenv(LibraryVariable, "")
	found := candidates()
	if len(found) < 3 || !strings.HasSuffix(found[1], "lib/"+libraryFile) || found[len(found)-1] != libraryFile {
		t.Errorf("places %q", found)
	}
	_, err := load([]string{"/no/where/" + libraryFile, "no-such-" + libraryFile})
	if !IsMissing(err) || !strings.HasPrefix(err.Error(), libraryFile+" was not found:\n  /no/where/libllguidance.so: does not exist\n") ||
		!strings.Contains(err.Error(), LibraryVariable) {
		t.Error(err)
	}
	t.Setenv(LibraryVariable, "/some/where.so")
	if places := candidates(); !slices.Equal(places, []string{"/some/where.so"}) {
		t.Errorf("places %q", places)
	}
	path := filepath.Join(t.TempDir(), libraryFile)
	must.Do(t, os.WriteFile(path, []byte("no library"), 0o700))
	if _, err := load([]string{path, "x" + libraryFile}); !IsMissing(err) || !strings.Contains(err.Error(), "  "+path+": ") {
		t.Error(err)
	}
}
