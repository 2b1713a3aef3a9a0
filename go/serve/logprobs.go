package serve

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// leastLogprob stands for a log-probability that is less, or that is none, as JSON has no infinity.
const leastLogprob = -9999

// scored is a token and what came with it, nil for the first one of a prompt.
type scored struct {
	token  int32
	scores *engine.TokenLogprobs
}

// tokenName is what a token is called, what it adds to a text, and its bytes.
type tokenName struct {
	name, text string
	bytes      []byte
}

// tokenNames are the tokens of a vocabulary, each looked up once. A token is called by its text; by its bytes, as
// `bytes:\xe2`, where it is a part of a character; and as the vocabulary calls it where it adds no text.
type tokenNames struct {
	tokenizer tokenizer.TextTokenizer

	mu    sync.Mutex
	known map[int32]tokenName
}

func newTokenNames(tokens tokenizer.TextTokenizer) *tokenNames {
	return &tokenNames{tokenizer: tokens, known: make(map[int32]tokenName)}
}

func (n *tokenNames) of(token int32) (tokenName, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, known := n.known[token]
	if known {
		return found, nil
	}
	found, err := n.lookUp(token)
	if err == nil {
		n.known[token] = found
	}
	return found, err
}

func (n *tokenNames) lookUp(token int32) (tokenName, error) {
	if n.tokenizer == nil || int(token) >= n.tokenizer.VocabSize() {
		return tokenName{name: fmt.Sprintf("token_id:%d", token)}, nil
	}
	text, found, err := tokenizer.Added(n.tokenizer, token)
	if err != nil {
		return tokenName{}, err
	}
	switch {
	case string(found) != text:
		var name strings.Builder
		name.WriteString("bytes:")
		for _, one := range found {
			fmt.Fprintf(&name, `\x%02x`, one)
		}
		return tokenName{name.String(), text, found}, nil
	case text == "":
		return tokenName{n.tokenizer.Piece(token), text, found}, nil
	}
	return tokenName{text, text, found}, nil
}

// logprobs are the log-probabilities of one text, in the form of a route.
type logprobs interface {
	// of gives those of its next tokens.
	of(tokens []scored) (object, error)
}

// completionLogprobs are those of one text of /v1/completions, piece by piece.
type completionLogprobs struct {
	names  *tokenNames
	offset int
}

// Of alternatives with the same name the likeliest stands; the token itself is among them. Offsets count characters of
// the tokens' texts.
func (l *completionLogprobs) of(tokens []scored) (object, error) {
	names, found, tops, offsets := list{}, list{}, list{}, list{}
	for _, one := range tokens {
		known, err := l.names.of(one.token)
		if err != nil {
			return nil, err
		}
		names, offsets = append(names, known.name), append(offsets, l.offset)
		l.offset += utf8.RuneCountInString(known.text)
		if one.scores == nil {
			found, tops = append(found, nil), append(tops, nil)
			continue
		}
		found = append(found, finite(one.scores.Logprob))
		top, seen := object{}, make(map[string]bool)
		for _, other := range append(one.scores.Top[:len(one.scores.Top):len(one.scores.Top)],
			engine.TopLogprob{ID: one.token, Logprob: one.scores.Logprob}) {
			known, err := l.names.of(other.ID)
			if err != nil {
				return nil, err
			}
			if !seen[known.name] {
				seen[known.name] = true
				top = append(top, member{known.name, finite(other.Logprob)})
			}
		}
		tops = append(tops, top)
	}
	return object{{"tokens", names}, {"token_logprobs", found}, {"top_logprobs", tops}, {"text_offset", offsets}}, nil
}

// chatLogprobs are those of one answer of /v1/chat/completions.
type chatLogprobs struct{ names *tokenNames }

func (l *chatLogprobs) of(tokens []scored) (object, error) {
	content, err := l.entries(tokens)
	return object{{"content", content}, {"refusal", nil}}, err
}

// entries are those of the next tokens, one for each.
func (l *chatLogprobs) entries(tokens []scored) (list, error) {
	content := list{}
	for _, one := range tokens {
		top := list{}
		for _, other := range one.scores.Top {
			entry, err := l.entry(other.ID, other.Logprob)
			if err != nil {
				return nil, err
			}
			top = append(top, entry)
		}
		entry, err := l.entry(one.token, one.scores.Logprob)
		if err != nil {
			return nil, err
		}
		content = append(content, append(entry, member{"top_logprobs", top}))
	}
	return content, nil
}

func (l *chatLogprobs) entry(token int32, logprob float32) (object, error) {
	known, err := l.names.of(token)
	bytes := list{}
	for _, one := range known.bytes {
		bytes = append(bytes, int(one))
	}
	return object{{"token", known.name}, {"logprob", finite(logprob)}, {"bytes", bytes}}, err
}

// finite is a log-probability that JSON can have.
func finite(logprob float32) float32 {
	switch {
	case !(logprob > leastLogprob):
		return leastLogprob
	case logprob == 0:
		return 0 // which may have been -0
	}
	return logprob
}
