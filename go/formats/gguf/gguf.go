// Package gguf reads GGUF files, version 2 and 3, little-endian.
//
// A file is a header, entries of metadata, descriptions of the tensors, then their bytes from the next multiple of
// `general.alignment` on (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). All of it but the values is checked
// on opening: every count, length, offset and size against the bytes that are there, before anything is made from it. So
// what opening takes is bounded by the size of the file, whatever the file says. Tensors and arrays of metadata are views
// of the mapped file.
package gguf

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
)

// Entry is a file's description of a tensor.
type Entry struct {
	Type   string // the type's name, "unknown (N)" of a number that has none
	Shape  []int  // row-major: the file's dimensions reversed
	Offset int    // in the file
	Bytes  int    // -1 where the type is unknown

	part *part
}

// Usable says whether this program computes with the type.
func (e Entry) Usable() bool {
	_, known := formats.FormatNamed(e.Type)
	return known
}

// File is an open GGUF file, or all parts of a split one. It must be closed, and its tensors' bytes and arrays must not
// be used from then on. The file must stay as it is while it is open (see formats.Mapping).
type File struct {
	Path    string
	Version uint32
	Metadata

	names   []string
	entries map[string]Entry
	parts   []*part
}

// part is one file.
type part struct {
	path    string
	version uint32
	mapped  *formats.Mapping
	Metadata
	names   []string
	entries map[string]Entry
}

var splitName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// Open opens a GGUF file; of the first part of a split model (NAME-00001-of-0000N.gguf), all its parts. The error is a
// *formats.Error.
func Open(path string) (*File, error) {
	first, err := openPart(path)
	if err != nil {
		return nil, err
	}
	file := &File{Path: path, Version: first.version, Metadata: first.Metadata, parts: []*part{first}}
	if err := file.openOthers(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := file.join(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// openOthers opens the parts after the first.
func (f *File) openOthers() error {
	value, found := f.Get("split.count")
	count, whole := value.Whole()
	if found && (!whole || count < 0 || count > 99999) {
		return wrong(f.Path, "split.count is %s; it must be a whole number, at most 99999", value)
	}
	if count <= 1 {
		return nil
	}
	match := splitName.FindStringSubmatch(filepath.Base(f.Path))
	if match == nil || match[2] != "00001" || match[3] != fmt.Sprintf("%05d", count) {
		return wrong(f.Path, "is a part of a split model; open the part whose name ends with -00001-of-%05d.gguf", count)
	}
	for number := int64(2); number <= count; number++ {
		name := fmt.Sprintf("%s-%05d-of-%05d.gguf", match[1], number, count)
		next, err := openPart(filepath.Join(filepath.Dir(f.Path), name))
		if err != nil {
			return err
		}
		f.parts = append(f.parts, next)
	}
	return nil
}

// join makes one table of the tensors of all parts.
func (f *File) join() error {
	if len(f.parts) == 1 {
		f.names, f.entries = f.parts[0].names, f.parts[0].entries
		return nil
	}
	f.entries = make(map[string]Entry)
	for number, one := range f.parts {
		for _, right := range []struct {
			key   string
			value int64
		}{{"split.no", int64(number)}, {"split.count", int64(len(f.parts))}} {
			found, _ := one.Get(right.key)
			if value, whole := found.Whole(); !whole || value != right.value {
				return wrong(one.path, "%s is %s; the name of this part makes it %d", right.key, found, right.value)
			}
		}
		for _, name := range one.names {
			if other, twice := f.entries[name]; twice {
				return wrong(one.path, "tensor %s is in %s as well", formats.Shown(name), filepath.Base(other.part.path))
			}
			f.names = append(f.names, name)
			f.entries[name] = one.entries[name]
		}
	}
	if total, found := f.Get("split.tensors.count"); found {
		if count, whole := total.Whole(); !whole || count != int64(len(f.names)) {
			return wrong(f.Path, "split.tensors.count is %s, but the parts have %d tensors", total, len(f.names))
		}
	}
	return nil
}

// Close unmaps the file. Closing twice is fine.
func (f *File) Close() error {
	var err error
	for _, one := range f.parts {
		err = errors.Join(err, one.mapped.Close())
	}
	return err
}

// Names lists the tensors in the order of their descriptions.
func (f *File) Names() []string { return slices.Clone(f.names) }

// Len is the number of tensors.
func (f *File) Len() int { return len(f.names) }

// Entry is the description of a tensor, and whether there is one of that name.
func (f *File) Entry(name string) (Entry, bool) {
	entry, found := f.entries[name]
	return entry, found
}

// Tensor gives a tensor. It is an error when there is none of that name, or this program does not compute with its type.
func (f *File) Tensor(name string) (formats.StoredTensor, error) {
	entry, found := f.entries[name]
	if !found {
		return formats.StoredTensor{}, wrong(f.Path, "lacks the tensor %s", name)
	}
	format, usable := formats.FormatNamed(entry.Type)
	if !usable {
		return formats.StoredTensor{}, wrong(
			entry.part.path, "tensor %s is of type %s; this program reads %s", formats.Shown(name), entry.Type, usableNames(),
		)
	}
	data, pages := f.Mapped(name)
	return formats.StoredTensor{Name: name, Format: format, Shape: slices.Clone(entry.Shape), Data: data, Pages: pages}, nil
}

func usableNames() string {
	var names []string
	for _, format := range formats.BlockFormats {
		names = append(names, format.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Mapped are the bytes of a tensor of a known type over the pages of its file, and the file's mapping; none of one whose
// type is unknown.
func (f *File) Mapped(name string) ([]byte, *formats.Mapping) {
	entry := f.entries[name]
	if entry.part == nil {
		return nil, nil
	}
	end := entry.Offset + max(entry.Bytes, 0)
	return entry.part.mapped.Bytes()[entry.Offset:end:end], entry.part.mapped
}

func wrong(path, format string, values ...any) error {
	return &formats.Error{Path: path, Problem: fmt.Sprintf(format, values...)}
}

// number spells a value of 64 bits without a sign.
func number(value uint64) string { return strconv.FormatUint(value, 10) }
