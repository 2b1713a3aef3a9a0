// Package tinymodel is the model of the tests of packages above `model`, and of its own.
package tinymodel

import "github.com/nncuda/nncuda/go/model"

// Config is a model that is small enough to train in milliseconds.
func Config() model.Config {
	config := model.Default()
	config.VocabSize, config.HiddenSize, config.NumLayers = 48, 24, 2
	config.NumHeads, config.NumKVHeads, config.HeadDim = 4, 2, 8
	config.NumExperts, config.ExpertsPerToken, config.FFNSize = 4, 2, 20
	config.Context, config.ExtendedContext = 32, 64
	config.InitStd = 0.2 // large enough for attention and routing to be far from uniform
	return config
}
