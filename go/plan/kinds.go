package plan

import "github.com/nncuda/nncuda/go/model"

// Kind is what memory is for.
type Kind int

// The kinds, in the order of a report.
const (
	Weights Kind = iota
	Master
	Gradients
	Moments
	Cache
	Fixed
	Kept
	Transient
	Evaluation
	Scratch
	kinds int = iota
)

var kindWords = [kinds][2]string{
	{"weights", "weights that the model computes with"},
	{"master", "f32 parameters behind 16-bit weights"},
	{"gradients", "gradients"},
	{"moments", "moments of AdamW"},
	{"cache", "cache of keys and values"},
	{"fixed", "inputs, tables and counters"},
	{"kept", "activations kept for backward"},
	{"transient", "activations, the largest transient"},
	{"evaluation", "what evaluation needs more"},
	{"scratch", "scratch of kernels"},
}

// Kinds lists all kinds in their order.
func Kinds() []Kind {
	all := make([]Kind, kinds)
	for at := range all {
		all[at] = Kind(at)
	}
	return all
}

// String is the kind's name, for programs.
func (k Kind) String() string { return kindWords[k][0] }

// Text says for people what the memory is for.
func (k Kind) Text() string { return kindWords[k][1] }

// Count is the parameters of a kind of layer: in all, and those that one token meets.
type Count struct {
	Kind          string
	Total, Active int
}

// Parameters counts the parameters of each kind of layer.
func Parameters(config model.Config) []Count {
	hidden, layers := config.HiddenSize, config.NumLayers
	expert, vocabulary := 3*hidden*config.FFNSize, config.VocabSize*hidden
	attention, head := layers*config.AttentionParameters(), config.HeadParameters()
	routers, norms := layers*config.NumExperts*hidden, config.NormParameters()
	feedForward := Count{"experts", layers * config.NumExperts * expert, layers * config.ExpertsPerToken * expert}
	if config.NumExperts == 0 {
		feedForward = Count{"feed-forward", layers * expert, layers * expert}
	}
	return []Count{
		{"embedding", vocabulary, vocabulary},
		{"attention", attention, attention},
		{"routers", routers, routers},
		{"norms", norms, norms},
		{"head", head, head},
		feedForward,
	}
}
