package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/model"
)

const usualTokens = 128

// request is the body of POST /generate: either a prompt as text or ids. What is left out has the defaults of the command
// nncuda-go generate.
type request struct {
	Prompt      *string  `json:"prompt"`
	IDs         []int32  `json:"ids"`
	MaxTokens   *int     `json:"max_tokens"`
	Temperature *float64 `json:"temperature"`
	TopK        *int     `json:"top_k"`
	TopP        *float64 `json:"top_p"`
	Seed        int64    `json:"seed"`
}

// readRequest reads a JSON object with the fields of a request and no others.
func readRequest(body io.Reader) (asked request, err error) {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&asked)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			return asked, errors.New("the body must be one JSON object, and nothing behind it")
		}
		return asked, nil
	}
	var wrong *json.UnmarshalTypeError
	field, unknown := strings.CutPrefix(err.Error(), "json: unknown field ")
	switch {
	case errors.Is(err, io.EOF):
		return asked, errors.New("the body is empty; it must be a JSON object")
	case unknown:
		return asked, fmt.Errorf("there is no field %s; the fields are %s", field, strings.Join(fields(), ", "))
	case errors.As(err, &wrong) && wrong.Field == "":
		return asked, fmt.Errorf("the body is a JSON %s; it must be an object", wrong.Value)
	case errors.As(err, &wrong):
		return asked, fmt.Errorf("%s is a JSON %s; it must be %s", wrong.Field, wrong.Value, kindOf(wrong.Type))
	}
	return asked, fmt.Errorf("the body is not JSON: %w", err)
}

// fields are the names of a request's fields.
func fields() (names []string) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[request]()) {
		names = append(names, field.Tag.Get("json"))
	}
	return names
}

// kindOf says what a value must be.
func kindOf(of reflect.Type) string {
	switch of.Kind() {
	case reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Int32, reflect.Slice:
		return "a list of whole numbers"
	}
	return "text"
}

// sampling is how tokens are to be drawn.
func (r request) sampling() (infer.Sampling, error) {
	sampling := infer.Sampling{Temperature: 1, Seed: r.Seed}
	if r.Temperature != nil {
		sampling.Temperature = *r.Temperature
	}
	if r.TopK != nil {
		if sampling.TopK = *r.TopK; sampling.TopK == 0 { // which means none there
			return sampling, errors.New("top_k is 0; it must be at least 1")
		}
	}
	if r.TopP != nil {
		if sampling.TopP = *r.TopP; sampling.TopP == 0 {
			return sampling, errors.New("top_p is 0; it must be above 0, at most 1")
		}
	}
	return sampling, sampling.Validate()
}

// count is how many tokens to write after a prompt of that many; the model must have room for all of them.
func (r request) count(prompt int, config model.Config) (int, error) {
	// The last token is not read again, so it needs no room.
	room := config.ExtendedContext - prompt + 1
	switch {
	case room < 1:
		return 0, fmt.Errorf("the prompt has %d tokens; this model takes %d at most", prompt, config.ExtendedContext)
	case r.MaxTokens == nil:
		return min(usualTokens, room), nil
	case *r.MaxTokens < 0 || *r.MaxTokens > room:
		return 0, fmt.Errorf("max_tokens is %d; after a prompt of %d tokens it may be 0 to %d",
			*r.MaxTokens, prompt, room)
	}
	return *r.MaxTokens, nil
}
