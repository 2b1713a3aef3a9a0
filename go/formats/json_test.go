package formats_test

import (
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestJSONIsThatOfPython: lines that json.dumps of Python wrote come out as they went in.
func TestJSONIsThatOfPython(t *testing.T) {
	for _, line := range []string{
		`null`, `true`, `[]`, `{}`, `[1, -2, 0]`, `{"b": 1, "a": [{"c": null}]}`,
		`0.1`, `1.0`, `-0.0`, `100000.0`, `1e-05`, `0.0001`, `1.5e+16`, `1e+16`, `9999999999999998.0`, `123456789.125`,
		`5e-324`, `1.7976931348623157e+308`, `NaN`, `Infinity`, `-Infinity`,
		`12345678901234567890123`, `-9223372036854775808`,
		`"a\"b\\c\n\r\t\b\f/"`, `"\u0000\u001f\u007f"`, `"\u00e9\u2581\ufffd"`, `"\ud83d\ude00"`,
	} {
		value, err := formats.ParseJSON([]byte(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if found := formats.JSONLine(value); found != line {
			t.Errorf("%s came out as %s", line, found)
		}
	}
	object := formats.NewObject("a", 1, "b", []any{0.5, "x"}, "c", formats.NewObject("d", nil), "e", []any{})
	wanted := "{\n  \"a\": 1,\n  \"b\": [\n    0.5,\n    \"x\"\n  ],\n  \"c\": {\n    \"d\": null\n  },\n  \"e\": []\n}\n"
	if found := formats.JSONDocument(object); found != wanted {
		t.Errorf("%q, not %q", found, wanted)
	}
}

func TestJSONThatIsRead(t *testing.T) {
	deep := strings.Repeat("[", 513) + strings.Repeat("]", 513)
	for text, wanted := range map[string]string{
		" [ 1 ,\n2\t]\r\n":        `[1, 2]`,
		`"\u00E9\/\ud800x\udc00"`: `"\u00e9/\ufffdx\ufffd"`,
		`1E2`:                     `100.0`,
		`1e400`:                   `Infinity`,
		`-1e400`:                  `-Infinity`,
		`1e-400`:                  `0.0`,
		`-0`:                      `0`,
		deep:                      deep,
	} {
		value, err := formats.ParseJSON([]byte(text))
		if err != nil || formats.JSONLine(value) != wanted {
			t.Errorf("%.40q became %v (%v), not %.40s", text, value, err, wanted)
		}
	}
}

func TestJSONThatIsRefused(t *testing.T) {
	for _, text := range []string{
		``, ` `, `{`, `[`, `[1`, `[1,`, `[1,]`,
		`{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{a:1}`, `{1:1}`, `{"a" 1}`,
		`"`, `"a`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\ud800\u12"`, "\"a\nb\"", "\"\x01\"",
		`01`, `-`, `+1`, `.5`, `1.`, `1e`, `1e+`, `0x1`, `1 2`, `nul`, `True`, `nan`, `- 1`, `1_000`,
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
		"line": {"{\n\"a\": ", "is not JSON (a value was expected, in line 2, at byte 7)"},
		"cut":  {`{"a": `, "is not JSON (a value was expected, at byte 6)"},
		"list": {`[1]`, "is not a JSON object"},
		"text": {"\xff\xfe", "is not JSON (it is not UTF-8)"},
		"keys": {`{"a": 1, "a": 1}`, "is not JSON (the key 'a' is twice in one object, at byte 15)"},
		"size": {strings.Repeat(" ", formats.JSONBytes+1),
			"has 4194305 bytes; a file of its kind may have at most 4194304"},
	} {
		path := filepath.Join(folder, name)
		check(t, os.WriteFile(path, []byte(test.content), 0o666))
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

func TestReprIsThatOfPython(t *testing.T) {
	huge, _ := new(big.Int).SetString(strings.Repeat("9", 50), 10)
	for wanted, value := range map[string]any{
		"None": nil, "True": true, "False": false, "-3": int64(-3), "0.5": 0.5, "nan": math.NaN(), "-inf": math.Inf(-1),
		"1e-05": 1e-5, "'a'": "a", `"it's"`: "it's", `'"\''`: `"'`,
		`'\n\t\\\x01é\u2028\U000e0001'`: "\n\t\\\x01é\u2028\U000e0001",
		"[1, 'a']":                      []any{int64(1), "a"}, "{'a': {}}": formats.NewObject("a", formats.NewObject()),
		"a number of 167 bits": huge,
	} {
		if found := formats.Repr(value); found != wanted {
			t.Errorf("%v is shown as %s, not %s", value, found, wanted)
		}
	}
}

func TestObjectsKeepTheirOrder(t *testing.T) {
	object := formats.NewObject("b", 1, "a", 2, "c", 3)
	object.Set("b", 4)
	if object.Delete("a") != any(2) || object.Delete("a") != nil || object.Has("a") || object.Len() != 2 {
		t.Error("deleting failed:", formats.JSONLine(object))
	}
	object.Set("a", 5)
	if found := formats.JSONLine(object); found != `{"b": 4, "c": 3, "a": 5}` {
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
		line := formats.JSONLine(value)
		again, err := formats.ParseJSON([]byte(line))
		if err != nil || formats.JSONLine(again) != line {
			t.Fatalf("%q was written as %q, which reads as %v (%v)", data, line, again, err)
		}
		_ = formats.Repr(value)
	})
}
