package gguf

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"math/bits"
	"slices"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/formats"
)

const (
	magic            = "GGUF"
	headerBytes      = 24
	alignmentKey     = "general.alignment"
	defaultAlignment = 32
	longestKey       = 65535
	longestName      = 64
	mostDimensions   = 4
	mostEntries      = 65536                 // of metadata, and tensors: each becomes a value here, larger than the least in a file
	leastEntry       = 8 + 1 + 4 + 1         // a key of one byte, its type and a value of one byte
	leastTensor      = 8 + 1 + 4 + 8 + 4 + 8 // a name of one byte, one dimension
)

// valueTypes are the types of values by their number in the file.
var valueTypes = []string{"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"}

// scalarSizes are the bytes of the types of fixed size.
var scalarSizes = map[string]int{
	"u8": 1, "i8": 1, "bool": 1, "u16": 2, "i16": 2, "u32": 4, "i32": 4, "f32": 4, "u64": 8, "i64": 8, "f64": 8,
}

func openPart(path string) (*part, error) {
	mapped, err := formats.MapFile(path, "GGUF file", headerBytes)
	if err != nil {
		return nil, err
	}
	made := &part{path: path, mapped: mapped}
	if err := made.read(); err != nil {
		_ = mapped.Close() // what is wrong with the file says more
		return nil, err
	}
	return made, nil
}

func (p *part) read() error {
	r := &reader{path: p.path, data: p.mapped.Bytes()}
	var err error
	if p.version, err = r.header(); err != nil {
		return err
	}
	tensors, err := r.count("tensors", leastTensor)
	if err != nil {
		return err
	}
	entries, err := r.count("entries of metadata", leastEntry)
	if err != nil {
		return err
	}
	p.values = make(map[string]Value)
	for range entries {
		value, err := r.entry()
		if err != nil {
			return err
		}
		if p.Has(value.key) {
			return r.wrong("the key %s of metadata is there twice", formats.Shown(value.key))
		}
		p.keys = append(p.keys, value.key)
		p.values[value.key] = value
	}
	alignment, err := p.alignment()
	if err != nil {
		return err
	}
	described, err := r.descriptions(tensors, alignment)
	if err != nil {
		return err
	}
	return p.place(described, r.at, alignment)
}

func (p *part) alignment() (int, error) {
	value, given := p.Get(alignmentKey)
	if !given {
		return defaultAlignment, nil
	}
	alignment, _ := value.Whole()
	if value.Type != "u32" || alignment < 8 || alignment&(alignment-1) != 0 {
		return 0, wrong(p.path, "%s is %s (%s); it must be a power of two (u32), 8 or more", alignmentKey, value, value.Type)
	}
	return int(alignment), nil
}

// reader is the part of the file that was read so far, and checked reading of what follows.
type reader struct {
	path string
	data []byte
	at   int
}

func (r *reader) wrong(format string, values ...any) error {
	return wrong(r.path, "at byte %d: %s", r.at, fmt.Sprintf(format, values...))
}

// need refuses what the rest of the file has no room for. `count` times `size` bytes may be more than 64 bits count.
func (r *reader) need(count, size uint64, what string) error {
	left := uint64(len(r.data) - r.at)
	high, low := bits.Mul64(count, size)
	if high == 0 && low <= left {
		return nil
	}
	text := number(low)
	if high > 0 {
		text = wide(high, low)
	}
	return r.wrong("%s takes %s bytes, but only %d are left in the file", what, text, left)
}

// wide spells a number of 128 bits.
func wide(high, low uint64) string {
	whole := new(big.Int).SetUint64(high)
	return whole.Lsh(whole, 64).Or(whole, new(big.Int).SetUint64(low)).String()
}

func (r *reader) take(count int, what string) ([]byte, error) {
	if err := r.need(uint64(count), 1, what); err != nil {
		return nil, err
	}
	r.at += count
	return r.data[r.at-count : r.at : r.at], nil
}

func (r *reader) u32(what string) (uint32, error) {
	raw, err := r.take(4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(raw), nil
}

func (r *reader) u64(what string) (uint64, error) {
	raw, err := r.take(8, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(raw), nil
}

// text reads a string; `longest` bounds its bytes, 0 for none.
func (r *reader) text(what string, longest uint64) (string, error) {
	length, err := r.u64("the length of " + what)
	if err != nil {
		return "", err
	}
	if longest > 0 && (length < 1 || length > longest) {
		return "", r.wrong("%s has %d bytes; it may have 1 to %d", what, length, longest)
	}
	if err := r.need(length, 1, what); err != nil {
		return "", err
	}
	raw, err := r.take(int(length), what)
	if err != nil {
		return "", err
	}
	return text(r.path, raw, fmt.Sprintf("%s at byte %d", what, r.at-len(raw)))
}

// text is a string of a file, if it is UTF-8.
func text(path string, raw []byte, what string) (string, error) {
	if utf8.Valid(raw) {
		return string(raw), nil
	}
	at := 0
	for {
		letter, size := utf8.DecodeRune(raw[at:])
		if letter == utf8.RuneError && size == 1 {
			return "", wrong(path, "%s is not UTF-8 (at its byte %d)", what, at)
		}
		at += size
	}
}

func (r *reader) header() (uint32, error) {
	if begin := string(r.data[:4]); begin != magic {
		return 0, wrong(r.path, "begins with %s; a GGUF file begins with '%s'", formats.Shown(begin), magic)
	}
	r.at = 4
	version, err := r.u32("the version")
	switch {
	case err != nil:
		return 0, err
	case version == 2, version == 3:
		return version, nil
	case version == 2<<24, version == 3<<24:
		return 0, wrong(r.path, "is a big-endian GGUF file; this program reads little-endian ones")
	}
	return 0, wrong(r.path, "is a GGUF file of version %d; this program reads versions 2 and 3", version)
}

func (r *reader) count(what string, least int) (int, error) {
	value, err := r.u64("the number of " + what)
	if err != nil {
		return 0, err
	}
	if most := uint64((len(r.data) - r.at) / least); value > most {
		return 0, r.wrong("the header promises %d %s; the rest of the file has room for %d at most", value, what, most)
	}
	if value > mostEntries {
		return 0, r.wrong("the header promises %d %s; this program reads %d at most", value, what, mostEntries)
	}
	return int(value), nil
}

func (r *reader) entry() (Value, error) {
	key, err := r.text("a key of metadata", longestKey)
	if err != nil {
		return Value{}, err
	}
	made := Value{path: r.path, key: key}
	if made.Type, err = r.kind("the type of " + key); err != nil {
		return made, err
	}
	switch made.Type {
	case "array":
		return r.array(made)
	case "string":
		made.scalar, err = r.text(key, 0)
		return made, err
	}
	raw, err := r.take(scalarSizes[made.Type], key)
	if err != nil {
		return made, err
	}
	if made.Type == "bool" && raw[0] > 1 {
		return made, r.wrong("%s is %d; as a bool it must be 0 or 1", key, raw[0])
	}
	made.scalar = scalar(made.Type, raw)
	return made, nil
}

func (r *reader) kind(what string) (string, error) {
	number, err := r.u32(what)
	if err != nil {
		return "", err
	}
	if number >= uint32(len(valueTypes)) {
		return "", r.wrong("%s is %d; it must be 0 to %d", what, number, len(valueTypes)-1)
	}
	return valueTypes[number], nil
}

func (r *reader) array(made Value) (Value, error) {
	kind, err := r.kind("the element type of the array " + made.key)
	if err != nil {
		return made, err
	}
	made.Type = kind + "[]"
	if kind == "array" {
		return made, r.wrong("%s is an array of arrays; this program reads arrays of numbers, bools and strings", made.key)
	}
	length, err := r.u64("the length of the array " + made.key)
	if err != nil {
		return made, err
	}
	if kind == "string" {
		return r.strings(made, length)
	}
	size := uint64(scalarSizes[kind])
	if err := r.need(length, size, fmt.Sprintf("the array %s of %d × %s", made.key, length, kind)); err != nil {
		return made, err
	}
	made.length = int(length)
	made.data = r.data[r.at : r.at+int(length*size)]
	if kind == "bool" && length > 0 && slices.Max(made.data) > 1 {
		return made, r.wrong("the array %s has a bool of %d; it must be 0 or 1", made.key, slices.Max(made.data))
	}
	r.at += len(made.data)
	return made, nil
}

func (r *reader) strings(made Value, length uint64) (Value, error) {
	if err := r.need(length, 8, fmt.Sprintf("the array %s of %d strings", made.key, length)); err != nil {
		return made, err
	}
	made.length, made.data = int(length), r.data
	made.starts = make([]int, length) // as many bytes as the lengths alone take in the file
	for index := range made.starts {
		size, err := r.u64(fmt.Sprintf("the length of string %d of %s", index, made.key))
		if err != nil {
			return made, err
		}
		if err := r.need(size, 1, fmt.Sprintf("string %d of %s", index, made.key)); err != nil {
			return made, err
		}
		made.starts[index] = r.at
		r.at += int(size)
	}
	return made, nil
}
