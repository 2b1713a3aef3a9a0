package infer_test

import (
	"context"
	"fmt"

	"github.com/nncuda/nncuda/go/infer"
)

// A file and prompts in, texts out; goroutines may share the model.
func ExampleLanguageModel_Generate() {
	model, err := infer.Load("model.gguf", infer.LoadOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer model.Close()
	wanted := infer.Generation{
		Prompts:      []infer.Prompt{{Text: "The sea is"}, {IDs: []int32{1, 5, 9}}},
		MaxNewTokens: 40,
		Sampling:     infer.Sampling{Temperature: 0.8, TopP: 0.95, Seed: 1}, // prompt i draws with Seed + i
		Stop:         []string{"\n\n"},
	}
	for event, err := range model.Generate(context.Background(), wanted) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(event.Prompt, event.Token, event.Text, event.Finish)
	}
}
