package main

import (
	"context"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// embed adds what the client finds of vectors.
func embed(ctx context.Context, client openai.Client, found map[string]any) error {
	asked := openai.EmbeddingNewParams{
		Model: "small",
		Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"the sea", "a ship sails the wide sea"}},
	}
	var all [][][]float64
	var counts []int64
	for _, encoding := range []openai.EmbeddingNewParamsEncodingFormat{"", openai.EmbeddingNewParamsEncodingFormatFloat} {
		asked.EncodingFormat = encoding
		vectors, err := client.Embeddings.New(ctx, asked)
		if err != nil {
			return err
		}
		var numbers [][]float64
		for _, one := range vectors.Data {
			numbers = append(numbers, one.Embedding)
		}
		all, counts = append(all, numbers), append(counts, vectors.Usage.TotalTokens)
	}
	found["embeddings"], found["embedded"] = all, counts
	return nil
}

func tool(name string, parameters map[string]any) responses.ToolUnionParam {
	return responses.ToolUnionParam{OfFunction: &responses.FunctionToolParam{
		Name: name, Parameters: parameters, Strict: openai.Bool(false),
	}}
}

func said(text string) responses.ResponseInputItemUnionParam {
	return responses.ResponseInputItemParamOfMessage(text, responses.EasyInputMessageRoleUser)
}

func response(items ...responses.ResponseInputItemUnionParam) responses.ResponseNewParams {
	place := map[string]any{
		"type": "object", "properties": map[string]any{"to": map[string]any{"type": "string"}}, "required": []string{"to"},
	}
	return responses.ResponseNewParams{
		Model: "small", Temperature: openai.Float(0),
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: items},
		Tools: []responses.ToolUnionParam{tool("sail", place), tool("stop", map[string]any{"type": "object"})},
	}
}

// call adds what the client finds where a model calls tools.
func call(ctx context.Context, client openai.Client, found map[string]any) error {
	whole, err := client.Responses.New(ctx, response(said("<two>")))
	if err != nil {
		return err
	}
	var called []any
	talk := []responses.ResponseInputItemUnionParam{said("<two>")}
	var results []responses.ResponseInputItemUnionParam
	for _, item := range whole.Output {
		switch one := item.AsAny().(type) {
		case responses.ResponseFunctionToolCall:
			called = append(called, []string{one.Name, one.Arguments})
			sent := one.ToParam()
			talk = append(talk, responses.ResponseInputItemUnionParam{OfFunctionCall: &sent})
			results = append(results, responses.ResponseInputItemParamOfFunctionCallOutput(one.CallID, "done"))
		case responses.ResponseOutputMessage:
			called = append(called, one.Content[0].Text)
			sent := one.ToParam()
			talk = append(talk, responses.ResponseInputItemUnionParam{OfOutputMessage: &sent})
		}
	}
	found["called"] = called

	var written []string
	var last responses.Response
	stream := client.Responses.NewStreaming(ctx, response(said("<two>")))
	for stream.Next() {
		switch event := stream.Current().AsAny().(type) {
		case responses.ResponseOutputItemAddedEvent:
			if event.Item.Type == "function_call" {
				written = append(written, "")
			}
		case responses.ResponseFunctionCallArgumentsDeltaEvent:
			written[len(written)-1] += event.Delta
		case responses.ResponseCompletedEvent:
			last = event.Response
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	found["called_stream"] = []any{written, len(last.Output), last.Usage.TotalTokens}

	after, err := client.Responses.New(ctx, response(append(append(talk, results...), said("<none>"))...))
	if err != nil {
		return err
	}
	found["after_calls"] = []any{after.OutputText(), after.Usage.InputTokens}
	return nil
}

// refusedFurther is how the server refuses what it does not do.
func refusedFurther(ctx context.Context, client, caller openai.Client) []any {
	_, first := client.Embeddings.New(ctx, openai.EmbeddingNewParams{
		Model: "small", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("x")}, Dimensions: openai.Int(3),
	})
	asked := response(said("<two>"))
	asked.Tools = []responses.ToolUnionParam{{OfWebSearch: &responses.WebSearchToolParam{Type: "web_search"}}}
	_, second := caller.Responses.New(ctx, asked)
	return []any{refusal(first), refusal(second)}
}
