package infer

import "github.com/nncuda/nncuda/go/infer/engine"

// Sampling says how the next token is chosen. The zero value always picks the most likely token.
type Sampling = engine.Sampling
