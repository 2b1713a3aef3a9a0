package serve

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// roles are what a template is told for each role. OpenAI calls the system's turn the developer's by now, which templates
// do not.
var roles = map[string]string{
	"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool",
}

// emptyKeys are what answers of this API hold besides, and what clients therefore send back: it must be empty.
var emptyKeys = []string{"refusal", "function_call", "audio", "annotations", "tool_calls"}

// moreKeys are what messages of some roles have besides.
var moreKeys = map[string][]string{"assistant": {"tool_calls"}, "tool": {"tool_call_id", "name"}}

const (
	mostCalls     = 128
	longestCallID = 256
)

// plainMessages are the messages as templates take them: a role and a text each. An assistant's may have calls of tools,
// whose arguments are then objects, and a tool's answer names the call that it is for.
func plainMessages(messages []any) ([]*formats.Object, error) {
	plain := make([]*formats.Object, len(messages))
	for at, message := range messages {
		var err error
		if plain[at], err = plainMessage(fmt.Sprintf("messages[%d]", at), message); err != nil {
			return nil, err
		}
	}
	return plain, nil
}

// placeOfTools is where messages for a template first have something of tools; "" for nowhere.
func placeOfTools(messages []*formats.Object) string {
	for at, message := range messages {
		if message.Get("role") == "tool" {
			return fmt.Sprintf("messages[%d].role", at)
		}
		if message.Has("tool_calls") {
			return fmt.Sprintf("messages[%d].tool_calls", at)
		}
	}
	return ""
}

func plainMessage(name string, value any) (*formats.Object, error) {
	message, ok := value.(*formats.Object)
	if !ok {
		return nil, invalid(name, value, words("message"))
	}
	role, _ := message.Get("role").(string)
	for _, key := range message.Names() {
		place, one := cut(name+"."+key, 256), message.Get(key)
		if key == "role" || key == "content" || slices.Contains(moreKeys[role], key) {
			continue
		}
		if !slices.Contains(emptyKeys, key) {
			return nil, unknown(place, words("a_message"))
		}
		if found, isList := one.([]any); one != nil && one != "" && !(isList && len(found) == 0) {
			return nil, refusal("unsupported_field", place,
				named{"name": place, "value": quoted(one), "why": words("texts_alone")})
		}
	}
	if roles[role] == "" {
		return nil, invalid(name+".role", message.Get("role"), words("role"))
	}
	var calls []any
	if role == "assistant" {
		var err error
		if calls, err = plainCalls(name+".tool_calls", message.Get("tool_calls")); err != nil {
			return nil, err
		}
	}
	// Templates put a text together with others, which null is not.
	text := ""
	if content := message.Get("content"); content != nil || len(calls) == 0 {
		var err error
		if text, err = textOf(name+".content", content, words("content"), textOfPart); err != nil {
			return nil, err
		}
	}
	made := tokenizer.Message(roles[role], text)
	if len(calls) > 0 {
		made.Set("tool_calls", calls)
	}
	if role == "tool" {
		return made, answerOfTool(name, message, made)
	}
	return made, nil
}

// answerOfTool adds what the message of a tool has besides.
func answerOfTool(name string, message, made *formats.Object) error {
	id, err := callID(name+".tool_call_id", message.Get("tool_call_id"))
	if err != nil {
		return err
	}
	made.Set("tool_call_id", id)
	if called := message.Get("name"); called != nil {
		if !isFunctionName(called) {
			return invalid(name+".name", called, words("called_name"))
		}
		made.Set("name", called)
	}
	return nil
}

func plainCalls(name string, value any) ([]any, error) {
	if value == nil {
		return nil, nil
	}
	calls, ok := value.([]any)
	if !ok || len(calls) > mostCalls {
		return nil, invalid(name, value, words("calls"))
	}
	plain := make([]any, len(calls))
	for at, call := range calls {
		var err error
		if plain[at], err = plainCall(fmt.Sprintf("%s[%d]", name, at), call); err != nil {
			return nil, err
		}
	}
	return plain, nil
}

func plainCall(name string, value any) (*formats.Object, error) {
	call, ok := value.(*formats.Object)
	if !ok {
		return nil, invalid(name, value, words("call"))
	}
	if err := checkKeys(call, name, words("a_call"), "id", "type", "function"); err != nil {
		return nil, err
	}
	id, err := callID(name+".id", call.Get("id"))
	if err != nil {
		return nil, err
	}
	if call.Get("type") != "function" {
		return nil, invalid(name+".type", call.Get("type"), words("function_type"))
	}
	function, ok := call.Get("function").(*formats.Object)
	name += ".function"
	if !ok {
		return nil, invalid(name, call.Get("function"), words("called"))
	}
	if err := checkKeys(function, name, words("a_call"), "name", "arguments"); err != nil {
		return nil, err
	}
	called, err := calledFunction(name, function)
	if err != nil {
		return nil, err
	}
	return formats.NewObject("id", id, "type", "function", "function", called), nil
}

// calledFunction has the name and the arguments, as an object, of a call.
func calledFunction(place string, given *formats.Object) (*formats.Object, error) {
	if !isFunctionName(given.Get("name")) {
		return nil, invalid(place+".name", given.Get("name"), words("called_name"))
	}
	arguments, ok := argumentsOf(given.Get("arguments"))
	if !ok {
		return nil, invalid(place+".arguments", given.Get("arguments"), words("arguments"))
	}
	return formats.NewObject("name", given.Get("name"), "arguments", arguments), nil
}

// argumentsOf are those that a text is the JSON of; an empty one is that of none.
func argumentsOf(value any) (*formats.Object, bool) {
	text, ok := value.(string)
	if !ok || text == "" {
		return formats.NewObject(), ok
	}
	found, err := objectOf([]byte(text))
	return found, err == nil && isPlain(found, toolLevels)
}

func callID(name string, value any) (string, error) {
	id, ok := value.(string)
	if length := utf8.RuneCountInString(id); !ok || length == 0 || length > longestCallID {
		return "", invalid(name, value, words("call_id"))
	}
	return id, nil
}

// textOf is the text of a content: a text, or a list of parts whose texts follow one another. must says what it has to be.
func textOf(name string, content any, must string, textOfPart func(name string, part any) (string, error)) (string, error) {
	if text, ok := content.(string); ok {
		return text, nil
	}
	parts, ok := content.([]any)
	if !ok || len(parts) == 0 {
		return "", invalid(name, content, must)
	}
	var text strings.Builder
	for at, part := range parts {
		found, err := textOfPart(fmt.Sprintf("%s[%d]", name, at), part)
		if err != nil {
			return "", err
		}
		text.WriteString(found)
	}
	return text.String(), nil
}

func textOfPart(name string, value any) (string, error) {
	part, ok := value.(*formats.Object)
	if !ok {
		return "", invalid(name, value, words("part"))
	}
	if part.Get("type") != "text" {
		return "", invalid(name+".type", part.Get("type"), words("part_type"))
	}
	for _, key := range part.Names() {
		if key != "type" && key != "text" {
			return "", unknown(name+"."+key, words("a_part"))
		}
	}
	text, ok := part.Get("text").(string)
	if !ok {
		return "", invalid(name+".text", part.Get("text"), words("text"))
	}
	return text, nil
}
