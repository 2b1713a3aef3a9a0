package serve

import (
	"math"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
)

func TestJSONOfAnswers(t *testing.T) {
	for wanted, value := range map[string]any{
		`{"b":[null,true,-3],"a":{}}`:   object{{"b", list{nil, true, -3}}, {"a", object{}}},
		`"\"\\\b\f\n\r\t\u0000\u001f"`:  "\"\\\b\f\n\r\t\x00\x1f",
		"\"/<>&\x7f\u2028ö\U0001f30a\"": "/<>&\x7f\u2028ö\U0001f30a",
		`"�x"`:                          "\xffx",
		`-9999`:                         float32(leastLogprob),
		`0.1`:                           float32(0.1),
		`-0.00000011920929`:             float32(-1.1920929e-7),
		`0`:                             finite(float32(math.Copysign(0, -1))),
	} {
		if found := string(jsonOf(value)); found != wanted {
			t.Errorf("%s, not %s", found, wanted)
		}
	}
	for _, none := range []float64{math.NaN(), math.Inf(-1), -10000} {
		if found := finite(float32(none)); found != leastLogprob {
			t.Errorf("%v of %v", found, none)
		}
	}
}

func TestNumbersOfRequestsAreWrittenAsPythonDoes(t *testing.T) {
	for text, wanted := range map[string]string{
		"1.0": "1.0", "1e0": "1.0", "-0.0": "-0.0", "0.0001": "0.0001", "0.00001": "1e-05", "123456789012345678.0": "1.2345678901234568e+17",
		"1e15": "1000000000000000.0", "1e16": "1e+16", "1e-300": "1e-300", "5e-324": "5e-324", "1e999": "Infinity", "7": "7",
		"100000000000000000000": "100000000000000000000", `{"a": [1.5, "ö"]}`: `{"a":[1.5,"ö"]}`,
	} {
		if found := quoted(must.Get(formats.ParseJSON([]byte(text)))(t)); found != wanted {
			t.Errorf("%s: %s, not %s", text, found, wanted)
		}
	}
	long := quoted(string(make([]byte, 0)) + "ööööööööööööööööööööööööööööööööööööööööööööööööööööööööööööööööö")
	if runes := []rune(long); len(runes) != 61 || runes[60] != '…' {
		t.Error(long)
	}
}

func TestLoneSurrogates(t *testing.T) {
	for text, lone := range map[string]bool{
		`"\ud83c\udf0a"`: false, `"\ud83c"`: true, `"\udf0a"`: true, `"\ud83cx\udf0a"`: true, `"\\ud83c"`: false,
		`"\ud83c\ud83c\udf0a"`: true, `"\u0041\ud83c\udf0a\n"`: false, `"\ud83c\n"`: true, `"\ud83c", "\udf0a"`: true, `""`: false,
	} {
		if found := hasLoneSurrogate([]byte(text)); found != lone {
			t.Errorf("%s: %v", text, found)
		}
	}
}

// Every word that a sentence of the table leaves open is one that the sources fill in.
func TestSentences(t *testing.T) {
	entries := api.Get("errors").(*formats.Object)
	for _, code := range entries.Names() {
		found := refusal(code, nil, named{
			"name": "n", "must": "m", "value": "v", "route": "r", "why": "w", "most": 1, "other": "o", "tokens": 2, "context": 3,
			"choices": 4, "places": 5, "host": "h", "model": "m", "method": "x", "seconds": 6, "count": 7,
		})
		if found.status < 400 || openWord.MatchString(found.sentence) || found.kind == "" {
			t.Errorf("%+v", found)
		}
	}
	if found := refusal("route_not_found", nil, named{"route": "{name}"}).Error(); found != "there is no route {name}" {
		t.Error(found) // what strangers send is not looked into again
	}
}
