package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/nncuda/nncuda/go/formats"
	"golang.org/x/term"
)

// isTerminal says whether what is written goes to a terminal.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// printDocument writes an object as indented JSON.
func printDocument(out io.Writer, object *formats.Object) error {
	text, err := formats.JSONDocument(object)
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

// bytesText is a number of bytes for people: 1536 is "1.5 KiB".
func bytesText(count int) string {
	if count < 1024 {
		return fmt.Sprintf("%d B", count)
	}
	amount := float64(count)
	for _, unit := range []string{"KiB", "MiB", "GiB"} {
		amount /= 1024
		if amount < 1024 {
			return fmt.Sprintf("%.1f %s", amount, unit)
		}
	}
	return fmt.Sprintf("%.1f TiB", amount/1024)
}

// countText is a number for people: 15345920 is "15.35 M".
func countText(count int) string {
	for _, step := range []struct {
		limit int
		unit  string
	}{{1e9, "B"}, {1e6, "M"}, {1e3, "k"}} {
		if count >= step.limit {
			return fmt.Sprintf("%.2f %s", float64(count)/float64(step.limit), step.unit)
		}
	}
	return fmt.Sprint(count)
}

// groupedText is a whole number with its digits in groups: 1234567 is "1,234,567".
func groupedText(number float64) string {
	text := strconv.FormatFloat(number, 'f', 0, 64)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
