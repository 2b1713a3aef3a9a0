package options

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/formats"
)

// No name of ours has as many characters.
const longestName = 64

// Nearest gives the name that was meant: one that a change of a letter makes of it (from six letters on two), or one that
// it is a part of or that is a part of it; of several the one with the fewest changes, then the first. "" is none. Python
// and Rust find the same.
func Nearest(name string, known []string) string {
	if utf8.RuneCountInString(name) > longestName {
		return ""
	}
	wanted := strings.ReplaceAll(strings.ToLower(name), "-", "_")
	best, fewest, most := "", 0, 1
	if utf8.RuneCountInString(wanted) >= 6 {
		most = 2
	}
	for _, candidate := range known {
		count := changes([]rune(wanted), []rune(candidate))
		isPart := min(utf8.RuneCountInString(wanted), len(candidate)) >= 3 &&
			(strings.Contains(candidate, wanted) || strings.Contains(wanted, candidate))
		if (count <= most || isPart) && (best == "" || count < fewest) {
			best, fewest = candidate, count
		}
	}
	return best
}

// Unknown is what to say of an option that there is not; `what` is "model" or "training".
func Unknown(what, name string, fields []Field) error {
	known := make([]string, len(fields))
	for at, field := range fields {
		known[at] = field.Name
	}
	rest := "`train --help` lists them"
	if near := Nearest(name, known); near != "" {
		rest = fmt.Sprintf("did you mean %s?", near)
	}
	return fmt.Errorf("there is no %s option %s; %s", what, formats.Shown(name), rest)
}

// changes counts the letters that must be put in, left out, replaced, or exchanged with the next (Damerau 1964, each
// place once).
func changes(a, b []rune) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = rows[i-1][j-1] + 1
			}
			rows[i][j] = min(rows[i][j], rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-2] == b[j-1] && a[i-1] == b[j-2] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
