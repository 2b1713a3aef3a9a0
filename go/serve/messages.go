package serve

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// roles are what a template is told for each role. OpenAI calls the system's turn the developer's by now, which templates
// do not.
var roles = map[string]string{"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

// emptyKeys are what answers of this API hold besides, and what clients therefore send back: it must be empty.
var emptyKeys = []string{"refusal", "tool_calls", "function_call", "audio", "annotations"}

// plainMessages are the messages as templates take them: a role and a text each.
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

func plainMessage(name string, value any) (*formats.Object, error) {
	message, ok := value.(*formats.Object)
	if !ok {
		return nil, invalid(name, value, words("message"))
	}
	for _, key := range message.Names() {
		place, one := cut(name+"."+key, 256), message.Get(key)
		if slices.Contains(emptyKeys, key) {
			if found, isList := one.([]any); one != nil && one != "" && !(isList && len(found) == 0) {
				return nil, refusal("unsupported_field", place,
					named{"name": place, "value": quoted(one), "why": words("texts_alone")})
			}
		} else if key != "role" && key != "content" {
			return nil, unknown(place, words("a_message"))
		}
	}
	role, _ := message.Get("role").(string)
	if roles[role] == "" {
		return nil, invalid(name+".role", message.Get("role"), words("role"))
	}
	content, err := textOf(name+".content", message.Get("content"))
	if err != nil {
		return nil, err
	}
	return tokenizer.Message(roles[role], content), nil
}

// textOf is the text of a message's content.
func textOf(name string, content any) (string, error) {
	if text, ok := content.(string); ok {
		return text, nil
	}
	parts, ok := content.([]any)
	if !ok || len(parts) == 0 {
		return "", invalid(name, content, words("content"))
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
