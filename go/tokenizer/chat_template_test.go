package tokenizer_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/jinja"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/tokenizer"
)

var names = tokenizer.SpecialNames{Begin: "<s>", End: "</s>"}

// conversation is one of the fixtures.
type conversation struct {
	name     string
	messages []*formats.Object
	how      tokenizer.Rendering
}

func conversations(t testing.TB) []conversation {
	t.Helper()
	var all []json.RawMessage
	readFixture(t, "chat/conversations.json", &all)
	made := make([]conversation, len(all))
	for at, one := range all {
		object := must.Get(formats.ParseJSON(one))(t).(*formats.Object)
		made[at].name = object.Get("name").(string)
		for _, message := range object.Get("messages").([]any) {
			made[at].messages = append(made[at].messages, message.(*formats.Object))
		}
		variables := object.Get("variables").(*formats.Object)
		prompt, given := variables.Delete("add_generation_prompt").(bool)
		made[at].how = tokenizer.Rendering{NoGenerationPrompt: given && !prompt, Variables: variables}
	}
	return made
}

func TestTemplatesGiveWhatPythonGives(t *testing.T) {
	paths := must.Get(filepath.Glob(filepath.Join(fixtures, "chat", "*.json")))(t)
	if len(paths) < 2 {
		t.Fatal("no templates among the fixtures")
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		if name == "conversations" {
			continue
		}
		var expected struct {
			Template string
			Rendered map[string]struct{ Text, Refused, Fails *string }
		}
		readFixture(t, "chat/"+name+".json", &expected)
		template := must.Get(tokenizer.NewChatTemplate(expected.Template, "model", names))(t)
		for _, talk := range conversations(t) {
			t.Run(name+"/"+talk.name, func(t *testing.T) {
				text, err := template.Render(talk.messages, talk.how)
				var failed *jinja.Error
				switch wanted := expected.Rendered[talk.name]; {
				case wanted.Text != nil:
					if err != nil || text != *wanted.Text {
						t.Errorf("%q (%v), not\n%q", text, err, *wanted.Text)
					}
				case wanted.Refused != nil:
					if !errors.As(err, &failed) || failed.Kind != "TemplateError" || failed.Message != *wanted.Refused {
						t.Errorf("%q (%v), not %s", text, err, *wanted.Refused)
					}
				case wanted.Fails == nil || !errors.As(err, &failed) || failed.Kind != *wanted.Fails:
					t.Errorf("%q (%v), not %v", text, err, wanted.Fails)
				}
			})
		}
	}
}

func TestTheTemplateOfAFolder(t *testing.T) {
	folder := t.TempDir()
	render := func() string {
		t.Helper()
		template := must.Get(tokenizer.ChatTemplateFromFolder(folder))(t)
		return must.Get(template.Render([]*formats.Object{tokenizer.Message("user", "Hi")}, tokenizer.Rendering{}))(t)
	}
	if text := render(); text != "User: Hi\nAssistant:" {
		t.Errorf("%q", text)
	}
	described := filepath.Join(folder, "tokenizer_config.json")
	write := func(content string) { must.Do(t, os.WriteFile(described, []byte(content), 0o600)) }
	write(`{"chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "bos_token": "<s>",
		"eos_token": {"content": "</s>"}}`)
	if text := render(); text != "<s>Hi</s>" {
		t.Errorf("%q", text)
	}
	write(`{"chat_template": [{"name": "other", "template": "a"}, {"name": "default", "template": "b"}]}`)
	if text := render(); text != "b" {
		t.Errorf("%q", text)
	}
	for sentence, content := range map[string]string{
		"none of them named 'default'": `{"chat_template": [{"name": "other", "template": "a"}]}`,
		"neither a string nor a list":  `{"chat_template": 7}`,
	} {
		write(content)
		if _, err := tokenizer.ChatTemplateFromFolder(folder); err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("%v, not %s", err, sentence)
		}
	}
	must.Do(t, os.WriteFile(filepath.Join(folder, "chat_template.jinja"), []byte("c"), 0o600))
	if text := render(); text != "c" {
		t.Errorf("%q", text)
	}
}

func TestIDsBeginOnce(t *testing.T) {
	made := must.Get(tokenizer.Open(filepath.Join(fixtures, "llama_bpe.model")))(t)
	messages := []*formats.Object{tokenizer.Message("user", "Hi</s>")}
	for _, text := range []string{"{{ bos_token }}a{{ eos_token }}", "a{{ eos_token }}"} {
		template := must.Get(tokenizer.NewChatTemplate(text, "model", names))(t)
		ids := must.Get(template.IDs(made, messages, tokenizer.Rendering{}))(t)
		if ids[0] != made.BeginID() || ids[1] == made.BeginID() || ids[len(ids)-1] != made.EndID() {
			t.Errorf("%s: %v", text, ids)
		}
	}
	plain := must.Get(tokenizer.PlainChatTemplate("model").IDs(made, messages, tokenizer.Rendering{}))(t)
	if plain[0] != made.BeginID() || len(plain) < 10 {
		t.Errorf("%v", plain)
	}
	for _, id := range plain[1:] {
		if id == made.EndID() {
			t.Errorf("%v", plain)
		}
	}
}

func TestWhatStrangersWriteIsNoBegin(t *testing.T) {
	made := must.Get(tokenizer.Open(filepath.Join(fixtures, "llama_bpe.model")))(t)
	plain := must.Get(tokenizer.ChatTemplateFromGGUF(metadata{formats.NewObject()}, "m.gguf", names))(t)
	messages := []*formats.Object{tokenizer.Message("system", names.Begin)}
	ids := must.Get(plain.IDs(made, messages, tokenizer.Rendering{}))(t)
	if ids[0] != made.BeginID() || ids[1] == made.BeginID() || plain.Names() != names {
		t.Errorf("%v", ids)
	}
}

func TestTheTemplateOfMetadata(t *testing.T) {
	made := must.Get(tokenizer.ChatTemplateFromGGUF(
		metadata{formats.NewObject("tokenizer.chat_template", "x{{ eos_token }}")}, "m.gguf", names))(t)
	if text := must.Get(made.Render(nil, tokenizer.Rendering{}))(t); text != "x</s>" || made.Plain() {
		t.Errorf("%q", text)
	}
	if made = must.Get(tokenizer.ChatTemplateFromGGUF(metadata{formats.NewObject()}, "m.gguf", names))(t); !made.Plain() {
		t.Error("it is not plain")
	}
	wrong := metadata{formats.NewObject("tokenizer.chat_template", int64(5))}
	if _, err := tokenizer.ChatTemplateFromGGUF(wrong, "m.gguf", names); err == nil ||
		err.Error() != "m.gguf: tokenizer.chat_template is not a string" {
		t.Error(err)
	}
	_, err := tokenizer.NewChatTemplate(strings.Repeat("x", 1<<20+1), "m.gguf", names)
	if err == nil || !strings.Contains(err.Error(), "it may have at most 1048576") {
		t.Error(err)
	}
}
