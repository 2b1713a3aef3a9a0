package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/infer/grammar"
	"github.com/nncuda/nncuda/go/internal/must"
)

const (
	kindSchema = `{"type": "object", "properties": {"kind": {"enum": ["sea", "ship"]}}, "required": ["kind"], ` +
		`"additionalProperties": false}`
	badSchema = `{"type": "object", "properties": {"a": {"type": "string", "format": "x"}}}`
)

// constraining runs a server of a model that writes calls as Hermes does, with or without llguidance.
func constraining(t *testing.T) (r *running, grammars bool) {
	t.Helper()
	err := grammar.Load()
	if err != nil && (os.Getenv(grammar.LibraryVariable) != "" || !grammar.IsMissing(err)) {
		t.Fatal(err)
	}
	folder, template := smallModel(t), "{% if tools %}<tool_call>{% endif %}{{ messages[-1]['content'] }}"
	must.Do(t, os.WriteFile(filepath.Join(folder, "chat_template.jinja"), []byte(template), 0o600))
	return startModel(t, folder, Options{}), err == nil
}

// refuses is an error of that parameter and code, whose message begins so.
func (r *running) refuses(path, body, param, code, message string) {
	r.t.Helper()
	status, found := r.answer("POST", path, body)
	var failed struct {
		Error struct{ Message, Param, Code string }
	}
	must.Do(r.t, json.Unmarshal([]byte(found), &failed))
	one := failed.Error
	if status != 400 || one.Param != param || one.Code != code || !strings.HasPrefix(one.Message, message) {
		r.t.Errorf("%s: %d %s", body, status, found)
	}
}

func isKind(text string) bool {
	var found map[string]string
	err := json.Unmarshal([]byte(text), &found)
	return err == nil && len(found) == 1 && (found["kind"] == "sea" || found["kind"] == "ship")
}

// TestFormatsOfResponses has a random model, hot: every text that ends by itself obeys.
func TestFormatsOfResponses(t *testing.T) {
	r, grammars := constraining(t)
	asked := func(format string, seed int) string {
		return fmt.Sprintf(`{"input": "x", "temperature": 1.5, "seed": %d, "text": {"format": %s}}`, seed, format)
	}
	for format, wrong := range map[string][2]string{
		`{}`:                                    {".type", "invalid_value"},
		`{"type": "x"}`:                         {".type", "invalid_value"},
		`{"type": "text", "schema": {}}`:        {".schema", "unknown_field"},
		`{"type": "json_object", "schema": {}}`: {".schema", "unknown_field"},
		`{"type": "json_schema", "schema": {}, "more": 1}`:     {".more", "unknown_field"},
		`{"type": "json_schema", "schema": []}`:                {".schema", "invalid_value"},
		`{"type": "json_schema", "schema": {}, "name": 1}`:     {".name", "invalid_value"},
		`{"type": "json_schema", "schema": {}, "strict": "x"}`: {".strict", "invalid_value"},
	} {
		r.refuses("/v1/responses", asked(format, 0), textFormatField+wrong[0], wrong[1], textFormatField+wrong[0])
	}
	wanted := `{"type": "json_schema", "name": "k", "strict": true, "schema": ` + kindSchema + `}`
	if !grammars {
		for _, format := range []string{wanted, `{"type": "json_object"}`} {
			r.refuses("/v1/responses", asked(format, 0), textFormatField, "unsupported_field", textFormatField+" is {")
		}
		return
	}
	r.refuses("/v1/responses", asked(`{"type": "json_schema", "schema": `+badSchema+`}`, 0), "text.format.schema",
		"bad_schema", "text.format.schema cannot be enforced: Unknown format: x")
	for seed := range 6 {
		status, body := r.answer("POST", "/v1/responses", asked(wanted, seed))
		var found struct {
			Status string
			Text   struct{ Format json.RawMessage }
			Output []struct{ Content []struct{ Text string } }
		}
		must.Do(t, json.Unmarshal([]byte(body), &found))
		if status != 200 || found.Status != "completed" || !isKind(found.Output[0].Content[0].Text) {
			t.Errorf("seed %d: %d %s", seed, status, body)
		}
		shown := `{"type":"json_schema","name":"k","description":null,"schema":null,"strict":true}`
		if string(found.Text.Format) != shown {
			t.Errorf("the format is %s, not %s", found.Text.Format, shown)
		}
	}
}

func TestEnforcedCalls(t *testing.T) {
	r, grammars := constraining(t)
	asked := func(schema, strict, choice string, seed int) string {
		return fmt.Sprintf(`{"messages": [{"role": "user", "content": "x"}], "temperature": 1.5, "seed": %d, `+
			`"parallel_tool_calls": false, "tool_choice": %s, "tools": [{"type": "function", "function": {"name": "other"}}, `+
			`{"type": "function", "function": {"name": "sail", "strict": %s, "parameters": %s}}]}`,
			seed, choice, strict, schema)
	}
	const sail = `{"type": "function", "function": {"name": "sail"}}`
	const other = `{"type": "function", "function": {"name": "other"}}`
	if !grammars {
		for _, choice := range []string{`"required"`, sail} {
			r.refuses(chatPath, asked(kindSchema, "false", choice, 0), "tool_choice", "unsupported_field", "tool_choice is ")
		}
		r.refuses(chatPath, asked(kindSchema, "true", `"auto"`, 0), "tools[1].function.strict", "unsupported_field",
			"tools[1].function.strict is true")
		return
	}
	const place = "tools[1].function.parameters"
	for choice, strict := range map[string]string{`"auto"`: "true", `"required"`: "false", sail: "false"} {
		r.refuses(chatPath, asked(badSchema, strict, choice, 0), place, "bad_schema", place+" cannot be enforced: ")
	}
	for seed := range 6 {
		for choice, schema := range map[string]string{`"required"`: kindSchema, sail: kindSchema, other: badSchema} {
			status, body := r.answer("POST", chatPath, asked(schema, "false", choice, seed))
			var found struct {
				Choices []struct {
					Message struct {
						Content *string
						Calls   []struct {
							Function struct{ Name, Arguments string }
						} `json:"tool_calls"`
					}
					Finish string `json:"finish_reason"`
				}
			}
			must.Do(t, json.Unmarshal([]byte(body), &found))
			if status != 200 || found.Choices[0].Finish != "tool_calls" || len(found.Choices[0].Message.Calls) != 1 ||
				found.Choices[0].Message.Content != nil {
				t.Errorf("seed %d, %s: %d %s", seed, choice, status, body)
				continue
			}
			called := found.Choices[0].Message.Calls[0].Function
			switch {
			case called.Name == "sail" && isKind(called.Arguments) && choice != other:
			case called.Name == "other" && len(strings.TrimFunc(called.Arguments, isBraceOrSpace)) == 0 && choice != sail:
			default:
				t.Errorf("seed %d, %s: %s", seed, choice, body)
			}
		}
	}
}

// isBraceOrSpace are what the arguments of a function without parameters are of.
func isBraceOrSpace(sign rune) bool { return strings.ContainsRune("{} \n\r\t", sign) }
