package gguf

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/nncuda/nncuda/go/formats"
)

// blockSizes are elements and bytes of a block.
type blockSizes struct {
	name            string
	elements, bytes int
	tail            int
}

// otherTypes are types of tensors that this program only names.
var otherTypes = map[uint32]blockSizes{
	9:  {"q8_1", 32, 40, 0},
	15: {"q8_k", 256, 292, 0},
	16: {"iq2_xxs", 256, 66, 0},
	17: {"iq2_xs", 256, 74, 0},
	18: {"iq3_xxs", 256, 98, 0},
	19: {"iq1_s", 256, 50, 0},
	21: {"iq3_s", 256, 110, 0},
	22: {"iq2_s", 256, 82, 0},
	24: {"i8", 1, 1, 0},
	25: {"i16", 1, 2, 0},
	26: {"i32", 1, 4, 0},
	27: {"i64", 1, 8, 0},
	28: {"f64", 1, 8, 0},
	29: {"iq1_m", 256, 56, 0},
	40: {"nvfp4", 64, 36, 0},
}

// typeOf gives the sizes of a type of tensors, and whether it is known.
func typeOf(number uint32) (blockSizes, bool) {
	for _, format := range formats.BlockFormats {
		if format.GGUFType == number {
			return blockSizes{format.Name, format.Elements, format.Bytes, 0}, true
		}
	}
	for _, format := range formats.TernaryFormats {
		if format.GGUFType == number {
			return blockSizes{format.Name, format.Elements, format.Bytes, format.Tail}, true
		}
	}
	other, known := otherTypes[number]
	return other, known
}

// description is what a file says of a tensor; its offset is counted from where the tensors begin.
type description struct {
	name, kind string
	shape      []int
	offset     uint64
	bytes      uint64
	tooLarge   string // its bytes, where they are more than 64 bits count
	unknown    bool
}

func (r *reader) descriptions(count, alignment int) ([]description, error) {
	described := make([]description, 0, count)
	seen := make(map[string]bool, count)
	for range count {
		name, err := r.text("the name of a tensor", longestName)
		if err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, r.wrong("tensor %s is described twice", formats.Shown(name))
		}
		seen[name] = true
		one, err := r.description(name, alignment)
		if err != nil {
			return nil, err
		}
		described = append(described, one)
	}
	return described, nil
}

func (r *reader) description(name string, alignment int) (description, error) {
	made, shown := description{name: name}, formats.Shown(name)
	dimensions, err := r.u32("the number of dimensions of tensor " + shown)
	if err != nil {
		return made, err
	}
	if dimensions < 1 || dimensions > mostDimensions {
		return made, r.wrong("tensor %s has %d dimensions; it may have 1 to %d", shown, dimensions, mostDimensions)
	}
	sizes := make([]uint64, dimensions)
	for at := range sizes {
		if sizes[at], err = r.u64("a dimension of tensor " + shown); err != nil {
			return made, err
		}
	}
	if slices.Min(sizes) < 1 {
		return made, r.wrong("tensor %s has the dimensions %s; each must be 1 or more", shown, list(sizes))
	}
	number, err := r.u32("the type of tensor " + shown)
	if err != nil {
		return made, err
	}
	if made.offset, err = r.u64("the offset of tensor " + shown); err != nil {
		return made, err
	}
	if made.offset%uint64(alignment) != 0 {
		return made, r.wrong("tensor %s has the offset %d; it must be a multiple of %d", shown, made.offset, alignment)
	}
	kind, known := typeOf(number)
	if made.kind = kind.name; !known {
		made.kind, made.unknown = fmt.Sprintf("unknown (%d)", number), true
		kind.elements = 1
	}
	if sizes[0]%uint64(kind.elements) != 0 {
		return made, r.wrong("tensor %s has rows of %d elements; blocks of %s have %d", shown, sizes[0], kind.name, kind.elements)
	}
	made.measure(sizes, kind)
	return made, nil
}

// measure sets shape and bytes. Sizes whose product no file holds keep their sentence for when the file's end is known.
func (d *description) measure(sizes []uint64, kind blockSizes) {
	d.shape = make([]int, len(sizes))
	total, fits := uint64(1), true
	for at, size := range sizes {
		high, low := bits.Mul64(total, size)
		fits = fits && high == 0 && low <= math.MaxInt64/512 // times the bytes of the largest block, over its elements
		total = low
		if fits {
			d.shape[len(sizes)-1-at] = int(size)
		}
	}
	switch {
	case !fits && d.unknown:
		d.tooLarge = "an unknown number of"
	case !fits:
		d.tooLarge = "more than any file's"
	case !d.unknown:
		d.bytes = total/uint64(kind.elements)*uint64(kind.bytes) + uint64(kind.tail)
	}
}

func list(sizes []uint64) string {
	text := "["
	for at, size := range sizes {
		if at > 0 {
			text += ", "
		}
		text += number(size)
	}
	return text + "]"
}

// place checks where the tensors lie, which begin at the first multiple of the alignment from `end` on.
func (p *part) place(described []description, end, alignment int) error {
	size := uint64(len(p.mapped.Bytes()))
	start := (uint64(end) + uint64(alignment) - 1) / uint64(alignment) * uint64(alignment)
	p.entries = make(map[string]Entry, len(described))
	for _, one := range described {
		from, carry := bits.Add64(start, one.offset, 0)
		if one.tooLarge != "" || carry > 0 || from > size || one.bytes > size-from {
			bytes, begin := number(one.bytes), number(from)
			if one.tooLarge != "" {
				bytes = one.tooLarge
			}
			if carry > 0 {
				begin = wide(1, from)
			}
			return wrong(p.path, "tensor %s has %s bytes from byte %s on, but the file ends at byte %d", formats.Shown(one.name),
				bytes, begin, size)
		}
		entry := Entry{Type: one.kind, Shape: one.shape, Offset: int(from), Bytes: int(one.bytes), part: p}
		if one.unknown {
			entry.Bytes = -1
		}
		p.names = append(p.names, one.name)
		p.entries[one.name] = entry
	}
	if err := p.checkOverlap(int(start)); err != nil {
		return err
	}
	return p.checkI2S(alignment)
}

// inOrder are the tensors by their offsets.
func (p *part) inOrder() []string {
	ordered := slices.Clone(p.names)
	slices.SortStableFunc(ordered, func(a, b string) int { return cmp.Compare(p.entries[a].Offset, p.entries[b].Offset) })
	return ordered
}

func (p *part) checkOverlap(end int) error {
	before := ""
	for _, name := range p.inOrder() {
		entry := p.entries[name]
		if entry.Offset < end {
			return wrong(p.path, "tensor %s begins at byte %d, inside tensor %s before it", formats.Shown(name), entry.Offset,
				formats.Shown(before))
		}
		end, before = entry.Offset+max(entry.Bytes, 1), name
	}
	return nil
}

// checkI2S refuses what is no i2_s: number 36 has been another type in other programs. As an i2_s, a tensor ends where the
// next begins.
func (p *part) checkI2S(alignment int) error {
	ordered := p.inOrder()
	for at, name := range ordered {
		entry := p.entries[name]
		next := len(p.mapped.Bytes())
		if at+1 < len(ordered) {
			next = p.entries[ordered[at+1]].Offset
		}
		if room := next - entry.Offset; entry.Type == "i2_s" && room >= entry.Bytes+alignment {
			return wrong(p.path, "tensor %s of type 36 has %d bytes to the next tensor; as i2_s it takes %d, so that this is "+
				"another type of this number", formats.Shown(name), room, entry.Bytes)
		}
	}
	return nil
}
