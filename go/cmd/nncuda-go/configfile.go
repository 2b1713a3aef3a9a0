package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/options"
)

// relative is a path that the file has, which is relative to it.
func (f *configFile) relative(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(f.path), path)
}

// wrong is the error of an entry of a table of the file, or of the table itself.
func (f *configFile) wrong(problem, table, name string) error {
	if line := f.line(table, name); line > 0 {
		problem = fmt.Sprintf("line %d: %s", line, problem)
	}
	return &formats.Error{Path: f.path, Problem: problem}
}

// wrongValue is the error of options: that of the file, with the line, where the option that it begins with is of
// `table` there and no flag says otherwise; else as it is.
func (f *configFile) wrongValue(err error, table string, flags optionFlags) error {
	if err == nil || f == nil {
		return err
	}
	name, _, _ := strings.Cut(err.Error(), " ")
	if !f.table(table).Has(name) || slices.Contains(flags.given(), name) {
		return err
	}
	return f.wrong(err.Error(), table, name)
}

// checkNames refuses what is not an option of its table.
func (f *configFile) checkNames() error {
	for at, table := range tables {
		kind, other := "model", tables[1-at]
		if table.name == "train" {
			kind = "training"
		}
		for _, name := range f.table(table.name).Names() {
			if hasField(table.fields, name) || (table.name == "model" && name == "preset") {
				continue
			}
			problem := options.Unknown(kind, name, table.fields).Error()
			if hasField(other.fields, name) {
				problem = fmt.Sprintf("there is no %s option %s; it belongs under [%s]", kind, formats.Shown(name), other.name)
			}
			return f.wrong(problem, table.name, name)
		}
	}
	return nil
}

func hasField(fields []options.Field, name string) bool {
	return slices.ContainsFunc(fields, func(field options.Field) bool { return field.Name == name })
}

// line is where `name` is set, else where its table begins; 0 when neither is found, as in unusual notations.
func (f *configFile) line(table, name string) int {
	var header []string
	first := 0
	for at, line := range strings.Split(f.text, "\n") {
		line = strings.TrimSpace(line)
		var key []string
		if strings.HasPrefix(line, "[") {
			within, _, _ := strings.Cut(strings.TrimLeft(line, "["), "]")
			header = keyParts(within)
			key = header
		} else if before, _, sets := strings.Cut(line, "="); sets {
			key = slices.Concat(header, keyParts(before))
		} else {
			continue
		}
		if len(key) > 1 && key[0] == table && key[1] == name {
			return at + 1
		}
		if key[0] == table && first == 0 {
			first = at + 1
		}
	}
	return first
}

func keyParts(key string) []string {
	parts := strings.Split(key, ".")
	for at, part := range parts {
		parts[at] = strings.Trim(part, " \t\"'")
	}
	return parts
}
