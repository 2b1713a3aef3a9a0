package serve

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"net/http"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
)

// embeddings makes answers of the bodies of /v1/embeddings: the vectors of texts.
type embeddings struct {
	*served
	checker *checker
}

const embeddingsPath = "/v1/embeddings"

func newEmbeddings(of *served) *embeddings {
	return &embeddings{of, newChecker("embeddings", embeddingsPath)}
}

// prepare gives the inputs of a body, not submitted yet.
func (e *embeddings) prepare(body *formats.Object) (reply, error) {
	v, err := e.checker.check(body)
	if err != nil {
		return nil, err
	}
	of, err := e.find(v["model"])
	if err != nil {
		return nil, err
	}
	given := v["input"].([]any)
	if err := e.checkChoices(len(given)); err != nil {
		return nil, err
	}
	made := &vectors{model: of.name, user: v.text("user"), encoded: v.text("encoding_format") == "base64"}
	prompts, err := e.allPromptIDs(given, "input")
	if err != nil {
		return nil, err
	}
	for _, ids := range prompts {
		made.promptTokens += len(ids)
		made.inputs = append(made.inputs, infer.Generation{Prompts: []infer.Prompt{of.prompt(ids)}, Embed: true})
	}
	return made, nil
}

// vectors is a request for vectors on its way.
type vectors struct {
	model, user  string
	encoded      bool // in base64
	promptTokens int
	inputs       []infer.Generation
	texts        []*infer.Text // the inputs, once they are submitted; they end without a token
}

func (v *vectors) submit(service *infer.Service) (err error) {
	v.texts, err = service.Submit(v.inputs)
	return err
}

func (v *vectors) submitted() []*infer.Text { return v.texts }

func (v *vectors) streams() bool { return false }

// sendError is not called: nothing of an answer is sent before all of it is there.
func (v *vectors) sendError(*response, *apiError) error { return nil }

// logged has no id: OpenAI's have none.
func (v *vectors) logged() object { return loggedTexts("", v.user, v.promptTokens, v.texts) }

func (v *vectors) send(ctx context.Context, to *response) error {
	data := make(list, len(v.texts))
	for index, text := range v.texts {
		event, err := text.Next(ctx) // the only one
		if err != nil {
			return err
		}
		written, err := v.written(event.Embedding)
		if err != nil {
			return err
		}
		data[index] = object{{"object", "embedding"}, {"index", index}, {"embedding", written}}
	}
	return to.respond(http.StatusOK, contentJSON, jsonOf(object{
		{"object", "list"}, {"data", data}, {"model", v.model},
		{"usage", object{{"prompt_tokens", v.promptTokens}, {"total_tokens", v.promptTokens}}},
	}))
}

// written is a vector as JSON has it.
func (v *vectors) written(vector []float32) (any, error) {
	numbers, bytes := make(list, len(vector)), make([]byte, 0, 4*len(vector))
	finite := vector != nil
	for at, number := range vector {
		numbers[at], bytes = number, binary.LittleEndian.AppendUint32(bytes, math.Float32bits(number))
		finite = finite && !math.IsNaN(float64(number)) && !math.IsInf(float64(number), 0)
	}
	switch {
	case !finite:
		return nil, errors.New("the model gives a text a vector that is not finite, which JSON cannot have")
	case v.encoded:
		return base64.StdEncoding.EncodeToString(bytes), nil
	}
	return numbers, nil
}
