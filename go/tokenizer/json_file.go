package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/formats"
)

// tokenizerFile is a tokenizer.json.
type tokenizerFile struct {
	Version       string
	Truncation    json.RawMessage // how long ids may get, and what they are filled up with, when they are a batch to train on
	Padding       json.RawMessage
	AddedTokens   []addedToken `json:"added_tokens"`
	Normalizer    json.RawMessage
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage
	Model         json.RawMessage
}

// NewJSON makes a tokenizer of the content of a tokenizer.json. What the file has that this program does not know is an
// error with its name.
func NewJSON(content []byte) (*JSONTokenizer, error) {
	if !utf8.Valid(content) {
		return nil, errors.New("it is not UTF-8")
	}
	if marks := formats.JSONMarksOf(content); marks > formats.TokenizerJSONMarks {
		return nil, fmt.Errorf("it has more than %d brackets, commas and colons", formats.TokenizerJSONMarks)
	}
	var file tokenizerFile
	if err := strictJSON(content, &file, "it"); err != nil {
		return nil, err
	}
	if file.Version != "1.0" {
		return nil, fmt.Errorf("it is of version %s; this program knows 1.0", formats.Shown(file.Version))
	}
	made := &JSONTokenizer{}
	if err := made.readModel(file.Model); err != nil {
		return nil, err
	}
	if err := made.readRules(&file); err != nil {
		return nil, err
	}
	if err := made.checkAdded(file.AddedTokens); err != nil {
		return nil, err
	}
	var err error
	if made.added, err = newAddedTokens(file.AddedTokens, made.normalize); err != nil {
		return nil, err
	}
	made.ends = newEnds(-1, nil, false)
	return made.finish()
}

// readRules reads what becomes of a text before and after the model.
func (t *JSONTokenizer) readRules(file *tokenizerFile) error {
	part, err := newComponent("normalizer", file.Normalizer)
	if err != nil {
		return err
	}
	if t.normalize, err = readNormalizer(part); err != nil {
		return err
	}
	if part, err = newComponent("pre_tokenizer", file.PreTokenizer); err != nil {
		return err
	}
	if t.cut, err = readPreTokenizer(part); err != nil {
		return err
	}
	if part, err = newComponent("decoder", file.Decoder); err != nil {
		return err
	}
	if t.join, err = readDecoder(part); err != nil {
		return err
	}
	if part, err = newComponent("post_processor", file.PostProcessor); err != nil {
		return err
	}
	around, err := putAround(part, nil)
	if t.first = -1; len(around) > 0 {
		t.first = around[0]
	}
	return err
}

// checkAdded holds the ids of added tokens against those that the library of such files would give them: it takes that of
// the model's vocabulary, else the next one.
func (t *JSONTokenizer) checkAdded(tokens []addedToken) error {
	next := int32(len(t.ids)) // what the model has
	seen := make(map[string]bool)
	for _, token := range tokens {
		wanted, found := t.ids[token.Content]
		if !found {
			wanted = next
		}
		switch {
		case token.Content == "" || seen[token.Content]:
			return fmt.Errorf("its added token %s is empty, or there twice", formats.Shown(token.Content))
		case token.ID != wanted:
			return fmt.Errorf("its added token %s has id %d; its place makes it %d", formats.Shown(token.Content), token.ID,
				wanted)
		}
		seen[token.Content] = true
		next = max(next, wanted+1)
	}
	return nil
}

// readModel reads the vocabulary and how words are cut into it.
func (t *JSONTokenizer) readModel(content json.RawMessage) error {
	var given struct {
		Type   *string
		Merges json.RawMessage
	}
	if err := json.Unmarshal(content, &given); err != nil || len(content) == 0 {
		return errors.New("it has no model, or one that is no object")
	}
	switch {
	case given.Type == nil && given.Merges != nil: // as files before 2020 have it
		return t.readMerges(content)
	case given.Type == nil:
		return errors.New("its model has no type")
	case *given.Type == "BPE":
		return t.readMerges(content)
	case *given.Type == "Unigram":
		return t.readUnigram(content)
	}
	return fmt.Errorf("its model is %s; this program knows BPE and Unigram", formats.Shown(*given.Type))
}

func (t *JSONTokenizer) readMerges(content json.RawMessage) error {
	var given struct {
		Type         string
		Dropout      *float64
		Unknown      *string `json:"unk_token"`
		Prefix       string  `json:"continuing_subword_prefix"`
		Suffix       string  `json:"end_of_word_suffix"`
		FuseUnknown  bool    `json:"fuse_unk"`
		ByteFallback bool    `json:"byte_fallback"`
		IgnoreMerges bool    `json:"ignore_merges"`
		Vocab        map[string]int32
		Merges       mergeList
	}
	if err := strictJSON(content, &given, "its model"); err != nil {
		return err
	}
	if given.Dropout != nil && *given.Dropout != 0 {
		return fmt.Errorf("its model has the dropout %v, by which a text has other ids each time", *given.Dropout)
	}
	model := &mergeModel{
		prefix: given.Prefix, suffix: given.Suffix, fuseUnknown: given.FuseUnknown, byteFallback: given.ByteFallback,
		wholeWords: given.IgnoreMerges,
	}
	if given.Unknown != nil {
		if model.unknown = *given.Unknown; model.unknown == "" {
			return errors.New("its model has an unk_token without a name")
		}
	}
	if err := t.take(given.Vocab); err != nil {
		return err
	}
	model.ids = given.Vocab
	t.model = model
	return model.addMerges(given.Merges)
}

// take makes the vocabulary that of a model.
func (t *JSONTokenizer) take(ids map[string]int32) error {
	t.ids, t.names = make(map[string]int32, len(ids)), make(map[int32]string, len(ids))
	for name, id := range ids {
		if other, twice := t.names[id]; twice || id < 0 || id == 1<<31-1 {
			return fmt.Errorf("its model gives %s and %s the id %d", formats.Shown(min(name, other)),
				formats.Shown(max(name, other)), id)
		}
		t.ids[name], t.names[id] = id, name
	}
	return nil
}

// mergeList reads merges: two tokens each, in a list or, in older files, with a space between.
type mergeList [][2]string

func (m *mergeList) UnmarshalJSON(content []byte) error {
	var lists [][]string
	if err := json.Unmarshal(content, &lists); err == nil {
		for at, parts := range lists {
			if len(parts) != 2 {
				return fmt.Errorf("merge %d has %d parts", at, len(parts))
			}
			*m = append(*m, [2]string(parts))
		}
		return nil
	}
	var lines []string
	if err := json.Unmarshal(content, &lines); err != nil {
		return errors.New("merges are neither pairs nor lines")
	}
	for at, line := range lines {
		if strings.HasPrefix(line, "#version") {
			continue
		}
		pair, err := mergeOf(at, line)
		if err != nil {
			return err
		}
		*m = append(*m, pair)
	}
	return nil
}

// mergeOf reads a merge that is written with a space between.
func mergeOf(at int, line string) ([2]string, error) {
	first, second, _ := strings.Cut(line, " ")
	if first == "" || second == "" || strings.Contains(second, " ") {
		return [2]string{}, fmt.Errorf("merge %d is %s; it must be two tokens with a space between", at, formats.Shown(line))
	}
	return [2]string{first, second}, nil
}

func (t *JSONTokenizer) readUnigram(content json.RawMessage) error {
	var given struct {
		Type         string
		Unknown      *int32 `json:"unk_id"`
		ByteFallback bool   `json:"byte_fallback"`
		Vocab        []scored
	}
	if err := strictJSON(content, &given, "its model"); err != nil {
		return err
	}
	unknown := int32(-1)
	if given.Unknown != nil {
		if unknown = *given.Unknown; unknown < 0 || int(unknown) >= len(given.Vocab) {
			return fmt.Errorf("its model has the unk_id %d; it must be 0 to %d", unknown, len(given.Vocab)-1)
		}
	}
	names, scores := make([]string, len(given.Vocab)), make([]float64, len(given.Vocab))
	t.names = make(map[int32]string, len(names))
	for id, piece := range given.Vocab {
		names[id], scores[id] = piece.name, piece.score
		t.names[int32(id)] = piece.name
	}
	model := newListedUnigram(names, scores, unknown, given.ByteFallback)
	t.ids = make(map[string]int32, len(names))
	for name, id := range model.ids {
		t.ids[name] = id
	}
	t.model = model
	return nil
}

// scored is a piece and its score, as a list of two.
type scored struct {
	name  string
	score float64
}

func (s *scored) UnmarshalJSON(content []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(content, &parts); err != nil || len(parts) != 2 {
		return errors.New("a piece is not a name and a score")
	}
	return errors.Join(json.Unmarshal(parts[0], &s.name), json.Unmarshal(parts[1], &s.score))
}

// putAround gives the ids of a text with what a post-processor puts around them.
func putAround(part component, ids []int32) ([]int32, error) {
	switch part.kind {
	case "":
		return ids, nil
	case "Sequence":
		var given struct {
			Type       string
			Processors []json.RawMessage
		}
		if err := part.read(&given, "processors"); err != nil {
			return nil, err
		}
		for _, content := range given.Processors {
			inner, err := part.inner(content)
			if err != nil {
				return nil, err
			}
			if ids, err = putAround(inner, ids); err != nil {
				return nil, err
			}
		}
		return ids, nil
	case "ByteLevel": // which moves places in the text alone
		var given struct {
			Type           string
			AddPrefixSpace bool `json:"add_prefix_space"`
			TrimOffsets    bool `json:"trim_offsets"`
			UseRegex       bool `json:"use_regex"`
		}
		return ids, part.read(&given)
	case "BertProcessing", "RobertaProcessing":
		var given struct {
			Type           string
			Sep, Cls       namedID
			AddPrefixSpace bool `json:"add_prefix_space"`
			TrimOffsets    bool `json:"trim_offsets"`
		}
		err := part.read(&given, "sep", "cls")
		return append(slices.Insert(ids, 0, given.Cls.id), given.Sep.id), err
	case "TemplateProcessing":
		return putTemplate(part, ids)
	}
	return nil, part.unknown("ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing and Sequence")
}

// namedID is a token and its id, as a list of two.
type namedID struct{ id int32 }

func (n *namedID) UnmarshalJSON(content []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(content, &parts); err != nil || len(parts) != 2 {
		return errors.New("a token is not a name and an id")
	}
	return json.Unmarshal(parts[1], &n.id)
}

func putTemplate(part component, ids []int32) ([]int32, error) {
	type place struct {
		ID     string
		TypeID int `json:"type_id"`
	}
	var given struct {
		Type   string
		Single []struct{ SpecialToken, Sequence *place }
		Pair   json.RawMessage
		Tokens map[string]struct {
			ID     string
			IDs    []int32
			Tokens []string
		} `json:"special_tokens"`
	}
	if err := part.read(&given, "single", "special_tokens"); err != nil {
		return nil, err
	}
	var around []int32
	for _, step := range given.Single {
		switch {
		case step.SpecialToken != nil && step.Sequence == nil:
			token, found := given.Tokens[step.SpecialToken.ID]
			if !found {
				return nil, fmt.Errorf("its %s puts %s, which it does not describe", part.role,
					formats.Shown(step.SpecialToken.ID))
			}
			around = append(around, token.IDs...)
		case step.Sequence != nil && step.SpecialToken == nil && step.Sequence.ID == "A":
			around = append(around, ids...)
		default:
			return nil, fmt.Errorf("its %s has a part that is neither a SpecialToken nor the Sequence A", part.role)
		}
	}
	return around, nil
}
