package main

import (
	"bufio"
	"errors"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
)

// spokenWriter writes what a model writes, as it comes: to a terminal without escape sequences, which would be orders to
// it; to a file or pipe as it is.
type spokenWriter struct {
	out      *bufio.Writer
	terminal bool
}

func newSpokenWriter(out io.Writer) *spokenWriter {
	return &spokenWriter{bufio.NewWriter(out), isTerminal(out)}
}

func (w *spokenWriter) write(text string) error {
	if w.terminal {
		var fit strings.Builder
		for _, letter := range text {
			if letter == '\n' || letter == '\t' {
				fit.WriteRune(letter)
			} else {
				fit.WriteString(formats.Printable(string(letter)))
			}
		}
		text = fit.String()
	}
	_, err := w.out.WriteString(text)
	return errors.Join(err, w.out.Flush())
}

// write writes the continuations in the order of the prompts, each on its line; the time until the first token.
func (g *generation) write(events iter.Seq2[infer.Event, error], prompts int) (first time.Duration, err error) {
	out, start := newSpokenWriter(g.std.out), time.Now()
	parts, ended := make([]strings.Builder, prompts), make([]bool, prompts)
	now := 0
	for event, err := range events {
		if err != nil {
			return first, err
		}
		if first == 0 {
			first = time.Since(start)
		}
		text := event.Text
		if g.ids {
			text = idText(event.Token, parts[event.Prompt].Len() == 0)
		}
		parts[event.Prompt].WriteString(text)
		ended[event.Prompt] = event.Finish != ""
		if event.Prompt == now {
			if err := out.write(text); err != nil {
				return first, err
			}
		}
		for now < prompts && ended[now] {
			end := "\n"
			if now++; now < prompts {
				end = "\n---\n" + parts[now].String()
			}
			if err := out.write(end); err != nil {
				return first, err
			}
		}
	}
	return first, nil
}

// idText is an id as it is written after others; nothing of an event without a token.
func idText(id int32, first bool) string {
	switch text := strconv.Itoa(int(id)); {
	case id < 0:
		return ""
	case first:
		return text
	default:
		return " " + text
	}
}
