package formats_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
)

// line is a value as JSON.
func line(t testing.TB, value any) string {
	t.Helper()
	text := must.Get(formats.JSONLine(value))(t)
	return strings.TrimSuffix(string(text), "\n")
}

// TestJSONThatIsWritten: every number comes back as it was; what is not finite is null.
func TestJSONThatIsWritten(t *testing.T) {
	object := formats.NewObject("b", 1, "a", []any{0.5, "<é\u2028>"}, "c", formats.NewObject("d", nil), "e", []any{},
		"f", math.NaN(), "g", math.Inf(-1), "h", 5e-324, "i", math.MaxFloat64, "j", int64(math.MinInt64), "k", math.Nextafter(0.3, 1))
	wanted := `{"b":1,"a":[0.5,"<é\u2028>"],"c":{"d":null},"e":[],"f":null,"g":null,"h":5e-324,` +
		`"i":1.7976931348623157e+308,"j":-9223372036854775808,"k":0.30000000000000004}`
	if found := line(t, object); found != wanted {
		t.Errorf("%s, not %s", found, wanted)
	}
	document := must.Get(formats.JSONDocument(object))(t)
	again := must.Get(formats.ParseJSON(document))(t)
	if found := line(t, again); found != wanted || !strings.HasPrefix(string(document), "{\n  \"b\": 1,\n") {
		t.Errorf("%s came out as %s", document, found)
	}
}

func TestJSONThatIsRead(t *testing.T) {
	deep := strings.Repeat("[", 513) + strings.Repeat("]", 513)
	for text, wanted := range map[string]string{
		" [ 1 ,\n2\t]\r\n":        `[1,2]`,
		`"\u00E9\/\ud800x\udc00"`: `"é/�x�"`,
		`1E2`:                     `100`,
		`1e-400`:                  `0`,
		`12345678901234567890123`: `12345678901234567890123`,
		`{"a":["NaN",NaN],"b":1}`: `{"a":["NaN","not finite"],"b":1}`,
		`[-Infinity,1e400]`:       `["not finite","not finite"]`,
		`-0`:                      `0`,
		deep:                      deep,
	} {
		value, err := formats.ParseJSON([]byte(text))
		if err != nil || line(t, told(value)) != wanted {
			t.Errorf("%.40q became %v (%v), not %.40s", text, value, err, wanted)
		}
	}
}

// told is a value in which text stands for what is not finite.
func told(value any) any {
	switch value := value.(type) {
	case float64:
		if math.IsInf(value, 0) {
			return formats.Shown(value)
		}
	case []any:
		for at := range value {
			value[at] = told(value[at])
		}
	case *formats.Object:
		for _, name := range value.Names() {
			value.Set(name, told(value.Get(name)))
		}
	}
	return value
}

func TestJSONThatIsRefused(t *testing.T) {
	for _, text := range []string{
		``, ` `, `{`, `[`, `[1`, `[1,`, `[1,]`,
		`{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{a:1}`, `{1:1}`, `{"a" 1}`,
		`"`, `"a`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\ud800\u12"`, "\"a\nb\"", "\"\x01\"",
		`01`, `-`, `+1`, `.5`, `1.`, `1e`, `1e+`, `0x1`, `1 2`, `nul`, `True`, `nan`, `1NaN`, `NaN1`, `{NaN: 1}`, `- 1`, `1_000`,
		"\xff", "\"\xc3\"", "\ufeff1", strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 100_000),
		strings.Repeat("1", 5000), `{"a": 1, "b": 2, "a": 3}`, `[{"a": {"b": 1, "b": 1}}]`,
		strings.Repeat("[", 514) + strings.Repeat("]", 514), "[1" + strings.Repeat(",1", formats.JSONMarks) + "]",
	} {
		if value, err := formats.ParseJSON([]byte(text)); err == nil {
			t.Errorf("%.40q became %v", text, value)
		}
	}
}

func TestJSONFilesThatAreRefused(t *testing.T) {
	folder := t.TempDir()
	for name, test := range map[string]struct{ content, words string }{
		"line": {"{\n\"a\": ", "is not JSON (unexpected EOF, at byte 6)"},
		"cut":  {`{"a": `, "is not JSON (unexpected EOF, at byte 5)"},
		"list": {`[1]`, "is not a JSON object"},
		"text": {"\xff\xfe", "is not JSON (it is not UTF-8)"},
		"keys": {`{"a": 1, "a": 1}`, "is not JSON (the key 'a' is twice in one object, at byte 12)"},
		"size": {strings.Repeat(" ", formats.JSONBytes+1),
			"has 4194305 bytes; a file of its kind may have at most 4194304"},
	} {
		path := filepath.Join(folder, name)
		must.Do(t, os.WriteFile(path, []byte(test.content), 0o666))
		if _, err := formats.ReadJSON(path); err == nil || err.Error() != path+": "+test.words {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, path := range []string{filepath.Join(folder, "none"), folder} {
		if _, err := formats.ReadJSON(path); err == nil || !strings.HasPrefix(err.Error(), path+": cannot be read: ") {
			t.Errorf("%v", err)
		}
	}
}

func TestValuesAreShown(t *testing.T) {
	for wanted, value := range map[string]any{
		"null": nil, "true": true, "-3": int64(-3), "0.5": 0.5, "2.0": 2.0, "not finite": math.NaN(), `'it's\n'`: "it's\n",
		`[1,"a"]`: []any{int64(1), "a"}, `{"a":{},"b":3.0}`: formats.NewObject("a", formats.NewObject(), "b", 3.0),
		"'" + strings.Repeat("9", 99) + "…": strings.Repeat("9", 200),
	} {
		if found := formats.Shown(value); found != wanted {
			t.Errorf("%v is shown as %s, not %s", value, found, wanted)
		}
	}
}

func TestObjectsKeepTheirOrder(t *testing.T) {
	object := formats.NewObject("b", 1, "a", 2, "c", 3)
	object.Set("b", 4)
	if object.Delete("a") != any(2) || object.Delete("a") != nil || object.Has("a") || object.Len() != 2 {
		t.Error("deleting failed:", line(t, object))
	}
	object.Set("a", 5)
	if found := line(t, object); found != `{"b":4,"c":3,"a":5}` {
		t.Error(found)
	}
	if found := strings.Join(object.SortedNames(), ""); found != "abc" {
		t.Error(found)
	}
}

func FuzzParseJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a": [1, -2.5e3, "\u00e9\ud83d\ude00", null, true, NaN]}`, `[[[]]]`, `"\ud800"`, `1e400`, `{"a":{"a":{}}}`,
		`{"a":1,"a":2}`, strings.Repeat("[", 520), strings.Repeat("9", 400), `"\u0000\ud83d"`, `{"a":[{},{"b":-0}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		value, err := formats.ParseJSON(data)
		if err != nil {
			return
		}
		// What was read is written in a form that reads as the same again.
		written := line(t, told(value))
		again, err := formats.ParseJSON([]byte(written))
		if err != nil || line(t, again) != written {
			t.Fatalf("%q was written as %q, which reads as %v (%v)", data, written, again, err)
		}
		_ = formats.Shown(value)
	})
}
