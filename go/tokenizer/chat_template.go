package tokenizer

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/jinja"
)

// For models without a template: each turn as `User: …` or `Assistant: …` on its own line, the system's text above.
const plainTemplate = `{%- for message in messages -%}` +
	`{%- if message['role'] == 'system' -%}{{ message['content'] + '\n\n' }}` +
	`{%- else -%}{{ message['role'] | capitalize + ': ' + message['content'] + '\n' }}` +
	`{%- endif -%}{%- endfor -%}` +
	`{%- if add_generation_prompt -%}{{ 'Assistant:' }}{%- endif -%}`

// Characters of a template, and of the text that it makes: about a million tokens.
const (
	longestTemplate = 1 << 20
	longestText     = 1 << 22
)

// ChatTemplate makes the turns of a conversation the text that a model was trained on. It is a program in Jinja from a
// file of strangers, so its steps, its depth and its text are bounded. Many goroutines may use one.
// (https://huggingface.co/docs/transformers/chat_templating)
type ChatTemplate struct {
	plain  bool
	source string // the file, for messages
	text   string
	names  SpecialNames
	parsed func() (*jinja.Template, error)
}

// SpecialNames are the names of the tokens that a template knows as bos_token and eos_token; empty for none.
type SpecialNames struct{ Begin, End string }

// NewChatTemplate makes a template of its text, from the file or folder `source`. What is wrong with the template shows
// when it is rendered, since a model can be used without one; its length is checked here.
func NewChatTemplate(template, source string, names SpecialNames) (*ChatTemplate, error) {
	if size := utf8.RuneCountInString(template); size > longestTemplate {
		problem := fmt.Sprintf("the chat template has %d characters; it may have at most %d", size, longestTemplate)
		return nil, &formats.Error{Path: source, Problem: problem}
	}
	parsed := sync.OnceValues(func() (*jinja.Template, error) { return jinja.Parse(template) })
	return &ChatTemplate{source: source, text: template, names: names, parsed: parsed}, nil
}

// PlainChatTemplate is for models that have no template: the system's text and an empty line, then `User: …` and
// `Assistant: …`, a turn a line.
func PlainChatTemplate(source string) *ChatTemplate { return plainChatTemplate(source, SpecialNames{}) }

func plainChatTemplate(source string, names SpecialNames) *ChatTemplate {
	parsed := sync.OnceValues(func() (*jinja.Template, error) { return jinja.Parse(plainTemplate) })
	return &ChatTemplate{plain: true, source: source, text: plainTemplate, names: names, parsed: parsed}
}

// Plain says that the model has no template.
func (c *ChatTemplate) Plain() bool { return c.plain }

// Text is the template itself.
func (c *ChatTemplate) Text() string { return c.text }

// Names are those that the template knows, also a plain one, which has no use for them.
func (c *ChatTemplate) Names() SpecialNames { return c.names }

// Message is a message of a conversation, as templates get it. Others may have more in them, such as tool_calls.
func Message(role, content string) *formats.Object {
	return formats.NewObject("role", role, "content", content)
}

// Rendering says how a conversation is rendered. The zero value opens the turn of the model.
type Rendering struct {
	// NoGenerationPrompt leaves the turn of the model unopened.
	NoGenerationPrompt bool

	// Variables are further values that the template asks for, such as tools; nil for none.
	Variables *formats.Object
}

// Render gives the text of a conversation. The error is a *formats.Error when the template is wrong, fails, or takes too
// many steps or too much text.
func (c *ChatTemplate) Render(messages []*formats.Object, how Rendering) (string, error) {
	// Templates are written for transformers, which gives them all of these.
	values := formats.NewObject("bos_token", c.names.Begin, "eos_token", c.names.End, "tools", nil, "documents", nil)
	if how.Variables != nil {
		values.Update(how.Variables)
	}
	list := make([]any, len(messages))
	for at, message := range messages {
		list[at] = message
	}
	values.Set("messages", list)
	values.Set("add_generation_prompt", !how.NoGenerationPrompt)
	template, err := c.parsed()
	var text string
	if err == nil {
		text, err = template.Render(values, longestText, time.Now)
	}
	if err != nil {
		problem := fmt.Sprintf("the chat template fails: %v", err)
		return "", &formats.Error{Path: c.source, Problem: problem, Cause: err}
	}
	return text, nil
}

// IDs gives the ids of a conversation's text, its control tokens recognised; the begin id once, where the tokenizer adds
// it or the template wrote it.
func (c *ChatTemplate) IDs(tokens TextTokenizer, messages []*formats.Object, how Rendering) ([]int32, error) {
	text, err := c.Render(messages, how)
	if err != nil {
		return nil, err
	}
	// A plain template writes no begin, but strangers may write its name.
	written := !c.plain && c.names.Begin != "" && strings.HasPrefix(text, c.names.Begin)
	return tokens.Encode(text, Encoding{Begin: tokens.AddsBegin() && !written, Special: !c.plain})
}

// ChatTemplateFromGGUF gives the chat template in the metadata of the GGUF file at `path`, or the plain one. The error is
// a *formats.Error.
func ChatTemplateFromGGUF(metadata Metadata, path string, names SpecialNames) (*ChatTemplate, error) {
	if !metadata.Has("tokenizer.chat_template") {
		return plainChatTemplate(path, names), nil
	}
	template, ok := metadata.Text("tokenizer.chat_template")
	if !ok {
		return nil, &formats.Error{Path: path, Problem: "tokenizer.chat_template is not a string"}
	}
	return NewChatTemplate(template, path, names)
}

// ChatTemplateFromFolder gives the chat template of a folder: chat_template.jinja, or that of tokenizer_config.json (the
// default of several), or the plain one. The error is a *formats.Error.
func ChatTemplateFromFolder(folder string) (*ChatTemplate, error) {
	path := filepath.Join(folder, "tokenizer_config.json")
	described, err := optionalJSON(path)
	if err != nil {
		return nil, err
	}
	names := SpecialNames{tokenName(described, "bos_token"), tokenName(described, "eos_token")}
	if own := filepath.Join(folder, "chat_template.jinja"); formats.Present(own) {
		content, err := formats.ReadRegular(own, formats.TemplateBytes)
		if err != nil {
			return nil, err
		}
		if !utf8.Valid(content) {
			return nil, &formats.Error{Path: own, Problem: "is not UTF-8"}
		}
		return NewChatTemplate(string(content), folder, names)
	}
	template := described.Get("chat_template")
	if several, ok := template.([]any); ok {
		if template, ok = defaultTemplate(several); !ok {
			problem := "has several chat templates, none of them named 'default'"
			return nil, &formats.Error{Path: path, Problem: problem}
		}
	}
	switch template := template.(type) {
	case nil:
		return plainChatTemplate(folder, names), nil
	case string:
		return NewChatTemplate(template, folder, names)
	}
	problem := "chat_template is neither a string nor a list of named ones"
	return nil, &formats.Error{Path: path, Problem: problem}
}

func defaultTemplate(several []any) (any, bool) {
	for _, one := range several {
		if entry, ok := one.(*formats.Object); ok && entry.Get("name") == "default" {
			return entry.Get("template"), true
		}
	}
	return nil, false
}
