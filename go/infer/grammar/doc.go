// Package grammar has texts obey a JSON schema or a grammar, by llguidance (https://github.com/guidance-ai/llguidance),
// which says after each token which may be next. Its library is opened when the program runs; see [Load].
//
// All else here needs cgo, of which package cuda is the one to say so: this file is why this package does not.
package grammar
