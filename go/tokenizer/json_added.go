package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/formats"
)

// addedToken is a token that no merging makes: it is found in a text before all rules, or after the normalizer.
type addedToken struct {
	ID         int32
	Content    string
	SingleWord bool `json:"single_word"`
	LeftStrip  bool `json:"lstrip"`
	RightStrip bool `json:"rstrip"`
	Normalized bool
	Special    bool
}

// addedTokens find the added tokens in a text, the leftmost first and the longest of them.
type addedTokens struct {
	tokens     []addedToken
	contents   []string // what is looked for, by place in tokens
	raw        *trie    // places in tokens of those that are found in the text as it is
	normalized *trie    // of those that are found in normalised text
}

func newAddedTokens(tokens []addedToken, normalize rewriter) (*addedTokens, error) {
	made := &addedTokens{tokens: slices.Clone(tokens), raw: newTrie(), normalized: newTrie()}
	slices.SortStableFunc(made.tokens, func(a, b addedToken) int { // special ones first
		switch {
		case a.Special == b.Special:
			return 0
		case a.Special:
			return -1
		}
		return 1
	})
	for at, token := range made.tokens {
		content, index := token.Content, made.raw
		if token.Normalized {
			index = made.normalized
			if normalize != nil {
				var err error
				if content, err = normalize(content, newEffort(len(content))); err != nil {
					return nil, fmt.Errorf("its normalizer fails for the added token %s: %w", formats.Shown(token.Content), err)
				}
			}
		}
		if content == "" || len(content) > maxPieceBytes {
			return nil, fmt.Errorf("its added token %s has %d bytes for its rules; it must have 1 to %d",
				formats.Shown(token.Content), len(content), maxPieceBytes)
		}
		made.contents = append(made.contents, content)
		if index.longest(content) != len(content) { // of two that the normalizer makes equal the first is found
			index.add(content, at)
		}
	}
	return made, nil
}

// mark is a part of a text: an added token, or text between them where the id is -1.
type mark struct {
	text  string
	start int
	id    int32
}

// cut finds tokens of an index. `special` says whether the special ones count; one that does not hides what is in it.
func (a *addedTokens) cut(text string, index *trie, special bool, left *effort) ([]mark, error) {
	var marks []mark
	done := 0
	for at := 0; at < len(text); {
		place, length, looked := index.find(text[at:])
		if err := left.step(looked); err != nil {
			return nil, err
		}
		if length == 0 {
			at++
			continue
		}
		start, stop := at, at+length
		at = stop
		token := &a.tokens[place]
		if token.Special && !special {
			continue
		}
		if token.SingleWord && (endsIn(text[:start], isOfWord) || beginsWith(text[stop:], isOfWord)) {
			continue
		}
		if token.LeftStrip {
			start = min(start, done) + len(strings.TrimRightFunc(text[min(start, done):start], unicode.IsSpace))
			start = max(start, done)
		}
		if token.RightStrip {
			stop = len(text) - len(strings.TrimLeftFunc(text[stop:], unicode.IsSpace))
			if err := left.step(stop - at); err != nil {
				return nil, err
			}
		}
		if done < start {
			marks = append(marks, mark{text[done:start], done, -1})
		}
		marks = append(marks, mark{"", start, token.ID})
		done = stop
	}
	if done < len(text) {
		marks = append(marks, mark{text[done:], done, -1})
	}
	return marks, nil
}

// isOfWord says whether a character is one of words for added tokens: one that \w matches, or that joins letters.
// (Unicode Technical Standard 18, annex C, "word")
func isOfWord(letter rune) bool { return isWord(letter) || unicode.Is(unicode.Join_Control, letter) }

func endsIn(text string, is func(rune) bool) bool {
	letter, size := utf8.DecodeLastRuneInString(text)
	return size > 0 && is(letter)
}

func beginsWith(text string, is func(rune) bool) bool {
	letter, size := utf8.DecodeRuneInString(text)
	return size > 0 && is(letter)
}
