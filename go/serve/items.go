package serve

import (
	"fmt"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// itemRoles are what a template is told for each role.
var itemRoles = map[string]string{"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

// inputMessages are the messages of an input, a text or items, after the instructions.
func inputMessages(given any, instructions string) ([]*formats.Object, error) {
	var messages []*formats.Object
	if instructions != "" {
		messages = append(messages, tokenizer.Message("system", instructions))
	}
	if text, ok := given.(string); ok {
		return append(messages, tokenizer.Message("user", text)), nil
	}
	for at, item := range given.([]any) {
		message, err := messageOfItem(fmt.Sprintf("input[%d]", at), item)
		if err != nil {
			return nil, err
		}
		messages = append(messages, message)
	}
	return messages, nil
}

func messageOfItem(name string, value any) (*formats.Object, error) {
	item, ok := value.(*formats.Object)
	if !ok {
		return nil, invalid(name, value, words("item"))
	}
	if kind := item.Get("type"); kind != nil && kind != "message" {
		return nil, invalid(name+".type", kind, words("item_type"))
	}
	for _, key := range item.Names() {
		place, one := cut(name+"."+key, 256), item.Get(key)
		text, isText := one.(string)
		switch key {
		case "type", "role", "content":
		case "id":
			if one != nil && !isText {
				return nil, invalid(place, one, words("text"))
			}
		case "status": // of a message that answers of this API have, and clients therefore send back
			known := text == "in_progress" || text == "completed" || text == "incomplete"
			if one != nil && !(isText && known) {
				return nil, invalid(place, one, words("item_status"))
			}
		default:
			return nil, unknown(place, words("a_message"))
		}
	}
	role, _ := item.Get("role").(string)
	if itemRoles[role] == "" {
		return nil, invalid(name+".role", item.Get("role"), words("item_role"))
	}
	content, err := textOf(name+".content", item.Get("content"), words("item_content"), textOfItemPart)
	if err != nil {
		return nil, err
	}
	return tokenizer.Message(itemRoles[role], content), nil
}

func textOfItemPart(name string, value any) (string, error) {
	part, ok := value.(*formats.Object)
	if !ok {
		return "", invalid(name, value, words("part"))
	}
	if kind := part.Get("type"); kind != "input_text" && kind != "output_text" {
		return "", invalid(name+".type", kind, words("item_part_type"))
	}
	for _, key := range part.Names() {
		place, one := cut(name+"."+key, 256), part.Get(key)
		found, isList := one.([]any)
		switch {
		case key == "type", key == "text", one == nil && (key == "annotations" || key == "logprobs"):
		case key == "annotations":
			if !isList || len(found) > 0 {
				return "", refusal("unsupported_field", place,
					named{"name": place, "value": quoted(one), "why": words("texts_alone")})
			}
		case key == "logprobs": // of a text that was written: they change nothing in what comes
			if !isList {
				return "", invalid(place, one, words("log_probabilities"))
			}
		default:
			return "", unknown(place, words("an_item_part"))
		}
	}
	text, ok := part.Get("text").(string)
	if !ok {
		return "", invalid(name+".text", part.Get("text"), words("text"))
	}
	return text, nil
}
