package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// rewriter changes a text before it is cut. It may take and write as much as is left of an effort.
type rewriter func(text string, left *effort) (string, error)

// readNormalizer reads a normalizer of a tokenizer.json; nil stands for none.
func readNormalizer(part component) (rewriter, error) {
	switch part.kind {
	case "":
		return nil, nil
	case "Sequence":
		var given struct {
			Type        string
			Normalizers []json.RawMessage
		}
		if err := part.read(&given, "normalizers"); err != nil {
			return nil, err
		}
		return readRewriters(part, given.Normalizers, readNormalizer)
	case "Prepend":
		var given struct{ Type, Prepend string }
		err := part.read(&given, "prepend")
		return prepend(given.Prepend), err
	case "Replace":
		return readReplace(part)
	case "Strip":
		var given struct {
			Type       string
			StripLeft  bool `json:"strip_left"`
			StripRight bool `json:"strip_right"`
		}
		err := part.read(&given, "strip_left", "strip_right")
		return func(text string, _ *effort) (string, error) {
			if given.StripLeft {
				text = strings.TrimLeftFunc(text, unicode.IsSpace)
			}
			if given.StripRight {
				text = strings.TrimRightFunc(text, unicode.IsSpace)
			}
			return text, nil
		}, err
	case "NFC":
		return normalForm(norm.NFC), part.readNothing()
	case "NFD":
		return normalForm(norm.NFD), part.readNothing()
	case "NFKC":
		return normalForm(norm.NFKC), part.readNothing()
	case "NFKD":
		return normalForm(norm.NFKD), part.readNothing()
	case "Lowercase":
		return lowercase, part.readNothing()
	case "StripAccents":
		return stripMarks, part.readNothing()
	}
	return nil, part.unknown("Prepend, Replace, Strip, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents and Sequence")
}

// readRewriters reads the parts of a sequence and does one after the other.
func readRewriters(
	whole component, parts []json.RawMessage, read func(component) (rewriter, error),
) (rewriter, error) {
	var steps []rewriter
	for _, content := range parts {
		part, err := whole.inner(content)
		if err != nil {
			return nil, err
		}
		step, err := read(part)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return func(text string, left *effort) (string, error) {
		for _, step := range steps {
			var err error
			if text, err = step(text, left); err != nil {
				return "", err
			}
		}
		return text, nil
	}, nil
}

func prepend(prefix string) rewriter {
	return func(text string, left *effort) (string, error) {
		if text == "" {
			return "", nil
		}
		return prefix + text, left.write(len(prefix) + len(text))
	}
}

func readReplace(part component) (rewriter, error) {
	var given struct {
		Type    string
		Pattern json.RawMessage
		Content string
	}
	if err := part.read(&given, "pattern", "content"); err != nil {
		return nil, err
	}
	expression, literal, err := part.pattern(given.Pattern)
	if err != nil {
		return nil, err
	}
	if expression == nil { // a text as it is
		return func(text string, left *effort) (string, error) {
			growth := len(given.Content) - len(literal)
			if err := left.write(len(text) + max(0, growth)*strings.Count(text, literal)); err != nil {
				return "", err
			}
			return strings.ReplaceAll(text, literal, given.Content), nil
		}, nil
	}
	return func(text string, left *effort) (string, error) {
		parts, err := expression.find(text, left)
		if err != nil {
			return "", err
		}
		var out strings.Builder
		for _, part := range parts {
			piece := text[part.start:part.end]
			if part.match {
				piece = given.Content
			}
			if err := left.write(len(piece)); err != nil {
				return "", err
			}
			out.WriteString(piece)
		}
		return out.String(), nil
	}, nil
}

// Package norm puts a joiner of its own after so many marks on one character, for the sake of streams.
const mostMarks = 30

func normalForm(form norm.Form) rewriter {
	return func(text string, left *effort) (string, error) {
		marks := 0
		for at := 0; at < len(text); {
			properties := norm.NFKD.PropertiesString(text[at:])
			if marks++; properties.CCC() == 0 {
				marks = 0
			}
			if marks >= mostMarks-4 { // one character may become several marks
				return "", fmt.Errorf("a character of the text has more than %d marks", mostMarks-4)
			}
			at += max(properties.Size(), 1)
		}
		formed := form.String(text)
		return formed, left.write(len(formed))
	}
}

func lowercase(text string, left *effort) (string, error) {
	if err := left.write(len(text)); err != nil {
		return "", err
	}
	var out strings.Builder
	for _, letter := range text {
		if letter == 'İ' { // the one letter of which this makes two
			out.WriteString("i\u0307")
			continue
		}
		out.WriteRune(unicode.ToLower(letter))
	}
	return out.String(), nil
}

func stripMarks(text string, left *effort) (string, error) {
	return strings.Map(func(letter rune) rune {
		if unicode.IsMark(letter) {
			return -1
		}
		return letter
	}, text), left.write(len(text))
}

// component is a part of a tokenizer.json that has a type: a normalizer, a pre-tokenizer, a decoder, a post-processor.
type component struct {
	role, kind string
	content    json.RawMessage
}

// newComponent looks at the type of a part; the kind is empty where there is none.
func newComponent(role string, content json.RawMessage) (component, error) {
	if len(content) == 0 || string(content) == "null" {
		return component{role: role}, nil
	}
	var given struct{ Type string }
	if err := json.Unmarshal(content, &given); err != nil {
		return component{}, fmt.Errorf("its %s is no object with a type", role)
	}
	if given.Type == "" {
		return component{}, fmt.Errorf("its %s has no type", role)
	}
	return component{role, given.Type, content}, nil
}

// inner is a part of a sequence.
func (c component) inner(content json.RawMessage) (component, error) {
	part, err := newComponent("part of its "+strings.TrimPrefix(c.role, "part of its "), content)
	switch {
	case err == nil && part.kind == "":
		err = fmt.Errorf("its %s has an empty part", c.role)
	case err == nil && part.kind == "Sequence":
		err = fmt.Errorf("its %s has a sequence inside a sequence", c.role)
	}
	return part, err
}

// read takes what a part says. A name that `into` has not, or a needed one that is missing, is an error.
func (c component) read(into any, needed ...string) error {
	var names map[string]json.RawMessage
	if err := json.Unmarshal(c.content, &names); err != nil {
		return fmt.Errorf("its %s %s is wrong (%w)", c.role, c.kind, err)
	}
	for _, name := range needed {
		if _, found := names[name]; !found {
			return fmt.Errorf("its %s %s has no %s", c.role, c.kind, name)
		}
	}
	return strictJSON(c.content, into, fmt.Sprintf("its %s %s", c.role, c.kind))
}

// readNothing is read for a part that has a type alone.
func (c component) readNothing() error {
	var given struct{ Type string }
	return c.read(&given)
}

// strictJSON takes an object; a name that `into` has not is an error that tells whose it is.
func strictJSON(content []byte, into any, whose string) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil {
		if _, err = decoder.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("something follows its end")
	}
	var wrong *json.UnmarshalTypeError
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return fmt.Errorf("%s has %s, which this program does not know", whose, name)
	} else if errors.As(err, &wrong) {
		return fmt.Errorf("%s has a %s at %s", whose, wrong.Value, wrong.Field)
	}
	return fmt.Errorf("%s is wrong (%w)", whose, err)
}

func (c component) unknown(known string) error {
	return fmt.Errorf("its %s is %q; this program knows %s", c.role, c.kind, known)
}

// pattern reads what a rule looks for: an expression, or a text as it is.
func (c component) pattern(content json.RawMessage) (expression *pattern, literal string, err error) {
	var given struct{ String, Regex *string }
	if err := strictJSON(content, &given, fmt.Sprintf("the pattern of its %s %s", c.role, c.kind)); err != nil {
		return nil, "", err
	}
	switch {
	case given.Regex != nil && given.String == nil:
		if expression, err = newPattern(*given.Regex); err != nil {
			return nil, "", fmt.Errorf("the expression of its %s %s %w", c.role, c.kind, err)
		}
		return expression, "", nil
	case given.String != nil && given.Regex == nil && *given.String != "":
		return nil, *given.String, nil
	}
	return nil, "", fmt.Errorf("the pattern of its %s %s is neither one Regex nor one String", c.role, c.kind)
}

// validText is a text with the replacement character for each byte that is not UTF-8.
func validText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string([]rune(text))
}
