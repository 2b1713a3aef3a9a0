package serve

import (
	"fmt"
	"slices"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// itemRoles are what a template is told for each role.
var itemRoles = map[string]string{"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

// inputMessages are the messages of an input, a text or items, after the instructions, and the place of the first item that
// has to do with tools, "" for none.
func inputMessages(given any, instructions string) (messages []*formats.Object, aboutTools string, err error) {
	if instructions != "" {
		messages = append(messages, tokenizer.Message("system", instructions))
	}
	if text, ok := given.(string); ok {
		return append(messages, tokenizer.Message("user", text)), "", nil
	}
	var turn *formats.Object // of an assistant, which calls that follow it belong to
	for at, value := range given.([]any) {
		name := fmt.Sprintf("input[%d]", at)
		item, ok := value.(*formats.Object)
		if !ok {
			return nil, "", invalid(name, value, words("item"))
		}
		kind := item.Get("type")
		if kind == "function_call" {
			call, err := callOfItem(name, item)
			if err != nil {
				return nil, "", err
			}
			if turn == nil {
				turn = tokenizer.Message("assistant", "")
				messages = append(messages, turn)
			}
			calls, _ := turn.Get("tool_calls").([]any)
			turn.Set("tool_calls", append(calls, call))
		} else {
			read := messageOfItem
			if kind == "function_call_output" {
				read = outputOfItem
			}
			message, err := read(name, item)
			if err != nil {
				return nil, "", err
			}
			messages, turn = append(messages, message), nil
			if message.Get("role") == "assistant" {
				turn = message
			}
		}
		if aboutTools == "" && kind != nil && kind != "message" {
			aboutTools = name + ".type"
		}
	}
	return messages, aboutTools, nil
}

// callOfItem is a call that an answer had.
func callOfItem(name string, item *formats.Object) (*formats.Object, error) {
	if err := checkItem(name, item, "a_call", "type", "call_id", "name", "arguments"); err != nil {
		return nil, err
	}
	id, err := callID(name+".call_id", item.Get("call_id"))
	if err != nil {
		return nil, err
	}
	called, err := calledFunction(name, item)
	if err != nil {
		return nil, err
	}
	return formats.NewObject("id", id, "type", "function", "function", called), nil
}

// outputOfItem is what a call gave.
func outputOfItem(name string, item *formats.Object) (*formats.Object, error) {
	if err := checkItem(name, item, "an_output", "type", "call_id", "output"); err != nil {
		return nil, err
	}
	id, err := callID(name+".call_id", item.Get("call_id"))
	if err != nil {
		return nil, err
	}
	content, err := textOf(name+".output", item.Get("output"), words("item_content"), textOfItemPart)
	if err != nil {
		return nil, err
	}
	made := tokenizer.Message("tool", content)
	made.Set("tool_call_id", id)
	return made, nil
}

func messageOfItem(name string, item *formats.Object) (*formats.Object, error) {
	if kind := item.Get("type"); kind != nil && kind != "message" {
		return nil, invalid(name+".type", kind, words("item_type"))
	}
	role, _ := item.Get("role").(string)
	keys := []string{"type", "role", "content"}
	if role == "assistant" {
		keys = append(keys, "phase")
	}
	if err := checkItem(name, item, "a_message", keys...); err != nil {
		return nil, err
	}
	if itemRoles[role] == "" {
		return nil, invalid(name+".role", item.Get("role"), words("item_role"))
	}
	content, err := textOf(name+".content", item.Get("content"), words("item_content"), textOfItemPart)
	if err != nil {
		return nil, err
	}
	return tokenizer.Message(itemRoles[role], content), nil
}

// checkItem is an error for a key that an item of its type does not have. What answers give their items besides says
// nothing to a template, and neither does a label.
func checkItem(name string, item *formats.Object, route string, keys ...string) error {
	for _, key := range item.Names() {
		place, one := cut(name+"."+key, 256), item.Get(key)
		text, isText := one.(string)
		switch {
		case key == "id":
			if one != nil && !isText {
				return invalid(place, one, words("text"))
			}
		case key == "status":
			known := text == "in_progress" || text == "completed" || text == "incomplete"
			if one != nil && !(isText && known) {
				return invalid(place, one, words("item_status"))
			}
		case !slices.Contains(keys, key):
			return unknown(place, words(route))
		case key == "phase":
			if one != nil && one != "commentary" && one != "final_answer" {
				return invalid(place, one, words("item_phase"))
			}
		}
	}
	return nil
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
