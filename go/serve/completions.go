package serve

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/infer/grammar"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// textForm has texts as the older of OpenAI's two routes gives them.
type textForm struct{}

func (textForm) idPrefix() string                    { return "cmpl" }
func (textForm) wholeObject() string                 { return "text_completion" }
func (textForm) chunkObject() string                 { return "text_completion" }
func (textForm) logprobs(names *tokenNames) logprobs { return &completionLogprobs{names: names} }
func (textForm) begins(string)                       {}
func (textForm) mark(int32) string                   { return "" }
func (textForm) begin(int) object                    { return nil }

func (textForm) choice(index int, text, finish string, scores any) object {
	return textChoice(index, text, finish, scores)
}

func (textForm) pieces(index int, text string, scores any) []object {
	return []object{textChoice(index, text, nil, scores)}
}

func (textForm) end(index int, finish string) []object {
	return []object{textChoice(index, "", finish, nil)}
}

func textChoice(index int, text string, finish, scores any) object {
	return object{{"index", index}, {"text", text}, {"logprobs", scores}, {"finish_reason", finish}}
}

// served is a model and its adapters by their names, of at most so many texts at once.
type served struct {
	model   *infer.LanguageModel
	name    string // of the model without a named adapter; no adapter has it
	names   *tokenNames
	formats *textFormats
	places  int
}

// completions makes answers of the bodies of /v1/completions.
type completions struct {
	*served
	checker *checker
}

const completionsPath = "/v1/completions"

func newCompletions(of *served) *completions {
	return &completions{of, newChecker("completions", completionsPath)}
}

// prepare gives the texts that a body asks for, not submitted yet.
func (c *completions) prepare(body *formats.Object) (reply, error) {
	v, err := c.checker.check(body)
	if err != nil {
		return nil, err
	}
	of, err := c.find(v["model"])
	if err != nil {
		return nil, err
	}
	given := v["prompt"].([]any)
	wanted, counted, err := c.shared(v, len(given))
	if err != nil {
		return nil, err
	}
	alternatives, scored := v["logprobs"].(int64)
	echo := v.flag("echo")
	wanted.Logprobs, wanted.TopLogprobs = scored, int(alternatives)
	wanted.PromptLogprobs, wanted.PromptTopLogprobs = scored && echo, int(alternatives)
	rules, err := c.formats.of(v[formatField])
	if err != nil {
		return nil, err
	}
	made := &answer{form: textForm{}, model: of.name, stream: v.flag("stream"), usage: counted, user: v.text("user")}
	if scored {
		made.names = c.names
	}
	prompts, err := c.allPromptIDs(given, "prompt")
	if err != nil {
		return nil, err
	}
	for at, ids := range prompts {
		made.promptTokens += len(ids)
		begin := ""
		if echo {
			if begin, err = c.echo(given[at], ids); err != nil {
				return nil, err
			}
		}
		for _, one := range c.texts(wanted, v, of.prompt(ids), v.whole("max_tokens"), rules) {
			made.generations, made.echoes = append(made.generations, one), append(made.echoes, begin)
		}
	}
	return made, nil
}

// echo is the text of a prompt.
func (s *served) echo(given any, ids []int32) (string, error) {
	if text, ok := given.(string); ok {
		return text, nil
	}
	if s.model.Tokenizer() == nil {
		return "", noTokenizer("echo")
	}
	return s.decode(ids)
}

func noTokenizer(name string) error { return refusal("no_tokenizer", name, named{"name": name}) }

// chosen is what a request asks for by its model: the name that its answer bears, and the adapter that computes it, "" for the
// model alone.
type chosen struct{ name, adapter string }

// prompt is ids for it.
func (c chosen) prompt(ids []int32) infer.Prompt { return infer.Prompt{IDs: ids, Adapter: c.adapter} }

// all are the names of what is served, the model's first.
func (s *served) all() []string { return append([]string{s.name}, s.model.Adapters()...) }

// find is what a request asks for, by a text or nil. An error for a name that there is not.
func (s *served) find(asked any) (chosen, error) {
	name, ok := asked.(string)
	if !ok || name == s.name {
		return chosen{name: s.name}, nil
	}
	if !slices.Contains(s.model.Adapters(), name) {
		there := strings.Join(s.all(), ", ")
		return chosen{}, refusal("model_not_found", "model", named{"value": cut(name, 256), "model": there})
	}
	return chosen{name, name}, nil
}

// checkChoices is an error for more texts at once than this server ever takes, before any of them is looked into.
func (s *served) checkChoices(count int) error {
	if count > s.places {
		return refusal("too_many_choices", nil, named{"choices": count, "places": s.places})
	}
	return nil
}

// shared checks what both routes have, for so many prompts, and gives how their texts are drawn and end, and where a
// stream is to count its tokens.
func (s *served) shared(v values, prompts int) (wanted infer.Generation, counted usage, err error) {
	if asked, ok := v["stream_options"].(usage); ok {
		if counted = asked; !v.flag("stream") {
			return wanted, usageNowhere, refusal("needs_field", "stream_options",
				named{"name": "stream_options", "other": "stream"})
		}
	}
	if err := s.checkChoices(prompts * v.choices()); err != nil {
		return wanted, usageNowhere, err
	}
	wanted.Stop = v.texts("stop")
	tokens := s.model.Tokenizer()
	if len(wanted.Stop) > 0 && tokens == nil {
		return wanted, usageNowhere, noTokenizer("stop")
	}
	wanted.EndIDs = []int32{}
	if tokens != nil && !v.flag("ignore_eos") {
		wanted.EndIDs = append(wanted.EndIDs, tokens.EndIDs()...)
	}
	wanted.Sampling = infer.Sampling{
		Temperature: v.number("temperature"), TopK: int(max(v.whole("top_k"), 0)), TopP: v.number("top_p"),
		Seed: v.whole("seed"), MinP: v.number("min_p"), PresencePenalty: v.number("presence_penalty"),
		FrequencyPenalty: v.number("frequency_penalty"), RepetitionPenalty: v.number("repetition_penalty"),
	}
	biases, _ := v["logit_bias"].([]bias)
	for _, one := range biases {
		if most := s.model.Config().VocabSize - 1; one.id > int64(most) {
			name := fmt.Sprintf("logit_bias.%d", one.id)
			return wanted, usageNowhere, refusal("unknown_token", name, named{"name": name, "most": most})
		}
		if wanted.Sampling.LogitBias == nil {
			wanted.Sampling.LogitBias = make(map[int32]float64, len(biases))
		}
		wanted.Sampling.LogitBias[int32(one.id)] = one.value
	}
	return wanted, counted, nil
}

// texts are those of a prompt: each with a seed of its own, of at most so many tokens, and obeying rules where they are not
// nil. A full context ends them, too.
func (s *served) texts(
	wanted infer.Generation, v values, prompt infer.Prompt, most int64, rules *grammar.Grammar,
) []infer.Generation {
	wanted.MaxNewTokens = int(min(most, int64(s.model.Room(len(prompt.IDs)))))
	if wanted.MaxNewTokens == 0 {
		wanted.MaxNewTokens = infer.NoNewTokens
	}
	wanted.Prompts = []infer.Prompt{prompt}
	made := make([]infer.Generation, v.choices())
	for at := range made {
		made[at] = wanted
		made[at].Sampling = wanted.Sampling.Of(at)
		if rules != nil {
			made[at].Constraints = []engine.Constraint{rules.Constraint()}
		}
	}
	return made
}

// allPromptIDs gives the ids of prompts in a field of this name; an error has their number where there are several.
func (s *served) allPromptIDs(prompts []any, name string) ([][]int32, error) {
	found := make([][]int32, len(prompts))
	for at, prompt := range prompts {
		of := name
		if len(prompts) > 1 {
			of = fmt.Sprintf("%s[%d]", name, at)
		}
		ids, err := s.promptIDs(prompt, of)
		if err != nil {
			return nil, err
		}
		found[at] = ids
	}
	return found, nil
}

// promptIDs are the ids of a prompt, a text or ids.
func (s *served) promptIDs(prompt any, name string) ([]int32, error) {
	text, ok := prompt.(string)
	if !ok {
		ids := prompt.([]any)
		if err := s.checkLength(len(ids), name); err != nil {
			return nil, err
		}
		return s.checkedIDs(ids, name)
	}
	tokens := s.model.Tokenizer()
	if tokens == nil {
		return nil, noTokenizer(name)
	}
	ids, err := tokens.Encode(text, tokenizer.Encoding{Begin: tokens.AddsBegin()})
	if err != nil {
		return nil, err
	}
	return ids, s.checkLength(len(ids), name)
}

// checkLength is an error for a prompt that is empty or longer than the context.
func (s *served) checkLength(length int, name string) error {
	if length == 0 {
		return refusal("empty_prompt", name, named{"name": name})
	}
	if context := s.model.Context(); length > context {
		return refusal("context_length_exceeded", name, named{"tokens": length, "context": context})
	}
	return nil
}

// checkedIDs are whole numbers as ids. An error for one that is outside the vocabulary.
func (s *served) checkedIDs(given []any, name string) ([]int32, error) {
	most := s.model.Config().VocabSize - 1
	ids := make([]int32, len(given))
	for at, one := range given {
		id, ok := one.(int64)
		if !ok || id < 0 || id > int64(most) {
			place := fmt.Sprintf("%s[%d]", name, at)
			return nil, refusal("invalid_value", place, named{
				"name": place, "value": one, "must": filled(words("token_id"), named{"most": most}),
			})
		}
		ids[at] = int32(id)
	}
	return ids, nil
}

// decode is the text of ids; those that the model has beyond its tokenizer have none.
func (s *served) decode(ids []int32) (string, error) {
	tokens := s.model.Tokenizer()
	known := make([]int32, 0, len(ids))
	for _, id := range ids {
		if int(id) < tokens.VocabSize() {
			known = append(known, id)
		}
	}
	return tokens.Decode(known)
}
