// Command client says what OpenAI's client for Go finds at an address, and at that of a model that calls tools, as one line of
// JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func main() {
	at := func(address string) openai.Client {
		return openai.NewClient(option.WithBaseURL(address), option.WithAPIKey("none"), option.WithMaxRetries(0))
	}
	ctx, client, caller := context.Background(), at(os.Args[1]), at(os.Args[2])
	found, err := look(ctx, client)
	if err == nil {
		err = errors.Join(embed(ctx, client, found), call(ctx, caller, found))
		found["refused_further"] = refusedFurther(ctx, client, caller)
	}
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}

func completion() openai.CompletionNewParams {
	return openai.CompletionNewParams{
		Model:  "small",
		Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("the sea")}, MaxTokens: openai.Int(12),
		Temperature: openai.Float(0.8), Seed: openai.Int(3),
	}
}

func chat() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:               "small",
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("sail"), openai.UserMessage("the wide sea")},
		MaxCompletionTokens: openai.Int(10), Temperature: openai.Float(0.9), Seed: openai.Int(5),
	}
}

// refusal is status, field and code of an error of the server.
func refusal(err error) any {
	var refused *openai.Error
	if !errors.As(err, &refused) {
		return nil
	}
	var param any
	if refused.Param != "" {
		param = refused.Param
	}
	return []any{refused.StatusCode, param, refused.Code}
}

func look(ctx context.Context, client openai.Client) (map[string]any, error) {
	found := make(map[string]any)
	models, err := client.Models.List(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, model := range models.Data {
		ids = append(ids, model.ID)
	}
	found["models"] = ids
	model, err := client.Models.Get(ctx, "small")
	if err != nil {
		return nil, err
	}
	found["model"] = model.OwnedBy

	asked := completion()
	asked.N, asked.Logprobs = openai.Int(2), openai.Int(1)
	whole, err := client.Completions.New(ctx, asked)
	if err != nil {
		return nil, err
	}
	var texts [][]any
	for _, choice := range whole.Choices {
		texts = append(texts, []any{choice.Text, choice.FinishReason})
	}
	found["completion"] = texts
	found["logprobs"] = whole.Choices[0].Logprobs.TokenLogprobs
	found["usage"] = []int64{whole.Usage.PromptTokens, whole.Usage.CompletionTokens}

	text := ""
	parts := client.Completions.NewStreaming(ctx, completion())
	for parts.Next() {
		for _, choice := range parts.Current().Choices {
			text += choice.Text
		}
	}
	if err := parts.Err(); err != nil {
		return nil, err
	}
	found["completion_stream"] = text

	question := chat()
	question.Logprobs, question.TopLogprobs = openai.Bool(true), openai.Int(2)
	answer, err := client.Chat.Completions.New(ctx, question)
	if err != nil {
		return nil, err
	}
	found["chat"] = []any{answer.Choices[0].Message.Content, answer.Choices[0].FinishReason}
	var top []float64
	for _, one := range answer.Choices[0].Logprobs.Content[0].TopLogprobs {
		top = append(top, one.Logprob)
	}
	found["top"] = top

	question = chat()
	question.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := client.Chat.Completions.NewStreaming(ctx, question)
	joined := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		if !joined.AddChunk(stream.Current()) {
			return nil, errors.New("an event does not go on with the answer")
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	found["chat_stream"] = []any{joined.Choices[0].Message.Content, joined.Choices[0].FinishReason, joined.Usage.TotalTokens}

	hot, empty, other := completion(), chat(), chat()
	hot.Temperature, empty.Messages, other.Model = openai.Float(5), []openai.ChatCompletionMessageParamUnion{}, "other"
	_, first := client.Completions.New(ctx, hot)
	_, second := client.Chat.Completions.New(ctx, empty)
	_, third := client.Chat.Completions.New(ctx, other)
	found["refused"] = []any{refusal(first), refusal(second), refusal(third)}
	return found, nil
}
