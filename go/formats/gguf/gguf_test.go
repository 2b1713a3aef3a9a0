package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/formats/gguf"
	"github.com/nncuda/nncuda/go/internal/must"
)

// Types of values by their number.
const (
	u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
)

// image is a file in the making, written byte for byte.
type image struct{ bytes.Buffer }

func (b *image) put(values ...any) *image {
	for _, value := range values {
		switch value := value.(type) {
		case string:
			b.put(uint64(len(value)))
			b.WriteString(value)
		case int:
			b.put(uint32(value))
		default:
			_ = binary.Write(b, binary.LittleEndian, value) // never fails: it goes to memory
		}
	}
	return b
}

// begin is a file of so many tensors and entries of metadata.
func begin(tensors, entries uint64) *image {
	b := &image{}
	b.WriteString("GGUF")
	return b.put(3, tensors, entries)
}

// tensor describes a tensor.
func (b *image) tensor(name string, kind int, offset uint64, sizes ...uint64) *image {
	b.put(name, len(sizes))
	for _, size := range sizes {
		b.put(size)
	}
	return b.put(kind, offset)
}

// data pads to the alignment and adds so many bytes that count up.
func (b *image) data(alignment, count int) *image {
	b.Write(make([]byte, -b.Len()&(alignment-1)))
	for at := range count {
		b.WriteByte(byte(at))
	}
	return b
}

func write(t testing.TB, name string, b *image) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path
}

func TestMetadata(t *testing.T) {
	b := begin(0, 16).put(
		"u8", u8, uint8(200), "i8", i8, int8(-3), "u16", u16, uint16(65535), "i16", i16, int16(-2), "u32", u32, uint32(7),
		"i32", i32, int32(-7), "f32", f32, float32(0.5), "bool", boolean, uint8(1), "text", text, "é", "u64", u64,
		uint64(math.MaxUint64), "i64", i64, int64(math.MinInt64), "f64", f64, 1e300,
		"numbers", array, i32, uint64(3), int32(4), int32(4), int32(4), "mixed", array, u8, uint64(2), uint8(1), uint8(2),
		"texts", array, text, uint64(2), "", "two", "none", array, f32, uint64(0),
	)
	file := must.Get(gguf.Open(write(t, "x.gguf", b)))(t)
	defer file.Close()
	wholes := map[string]int64{
		"u8": 200, "i8": -3, "u16": 65535, "i16": -2, "u32": 7, "i32": -7, "i64": math.MinInt64,
	}
	for key, want := range wholes {
		value, found := file.Get(key)
		if whole, ok := value.Whole(); !found || !ok || whole != want || value.Type != key {
			t.Errorf("%s is %v (%s)", key, value, value.Type)
		}
	}
	largest, _ := file.Get("u64")
	if _, ok := largest.Whole(); ok || largest.String() != "18446744073709551615" {
		t.Errorf("u64 is %v", largest)
	}
	if number, ok := must.Found(file.Get("f64"))(t).Number(); !ok || number != 1e300 {
		t.Errorf("f64 is %v", number)
	}
	if truth, ok := must.Found(file.Get("bool"))(t).Bool(); !ok || !truth {
		t.Error("bool is false")
	}
	if word, ok := must.Found(file.Get("text"))(t).Text(); !ok || word != "é" {
		t.Errorf("text is %s", word)
	}
	numbers, mixed := must.Found(file.Get("numbers"))(t), must.Found(file.Get("mixed"))(t)
	if whole, ok := numbers.Uniform().Whole(); !ok || whole != 4 || numbers.Len() != 3 {
		t.Errorf("numbers are %v", numbers)
	}
	if !mixed.Uniform().IsArray() {
		t.Errorf("mixed is %v", mixed.Uniform())
	}
	texts := must.Found(file.Get("texts"))(t)
	if word := must.Get(texts.TextAt(1))(t); texts.Len() != 2 || word != "two" || len(texts.BytesAt(0)) != 0 {
		t.Errorf("texts are %v", texts)
	}
	if keys := file.Keys(); len(keys) != 16 || keys[0] != "u8" || keys[15] != "none" || file.Has("other") {
		t.Errorf("keys are %v", keys)
	}
}

func TestTensors(t *testing.T) {
	b := begin(3, 1).put("general.alignment", u32, uint32(64))
	b.tensor("a", 0, 0, 2, 3).tensor("blocks", 2, 64, 64).tensor("strange", 99, 128, 5).data(64, 160)
	file := must.Get(gguf.Open(write(t, "x.gguf", b)))(t)
	defer file.Close()
	if names := file.Names(); !slices.Equal(names, []string{"a", "blocks", "strange"}) || file.Len() != 3 {
		t.Errorf("names %v", names)
	}
	a := must.Get(file.Tensor("a"))(t)
	if !slices.Equal(a.Shape, []int{3, 2}) || a.Format.Name != "f32" || len(a.Data) != 24 || a.Data[23] != 23 {
		t.Errorf("a is %v", a)
	}
	blocks := must.Get(file.Tensor("blocks"))(t)
	if blocks.RowBytes() != 36 || len(blocks.Data) != 36 || blocks.Data[0] != 64 || blocks.Rows() != 1 {
		t.Errorf("blocks is %v", blocks)
	}
	if entry, found := file.Entry("strange"); !found || entry.Usable() || entry.Bytes != -1 || entry.Type != "unknown (99)" {
		t.Errorf("strange is %v", entry)
	}
	if _, err := file.Tensor("strange"); err == nil || !strings.Contains(err.Error(), "is of type unknown (99)") {
		t.Errorf("%v", err)
	}
	if _, err := file.Tensor("none"); err == nil || !strings.Contains(err.Error(), "lacks the tensor none") {
		t.Errorf("%v", err)
	}
}

func TestSplitFiles(t *testing.T) {
	folder := t.TempDir()
	name := func(number string) string { return filepath.Join(folder, "x-"+number+"-of-00002.gguf") }
	part := func(number uint16, tensor string, total int32) *image {
		b := begin(1, 3).put("split.no", u16, number, "split.count", u16, uint16(2), "split.tensors.count", i32, total)
		return b.tensor(tensor, 0, 0, 2).data(32, 8)
	}
	save := func(number string, b *image) { must.Do(t, os.WriteFile(name(number), b.Bytes(), 0o600)) }
	save("00001", part(0, "a", 2))
	save("00002", part(1, "b", 2))
	file := must.Get(gguf.Open(name("00001")))(t)
	if b := must.Get(file.Tensor("b"))(t); file.Len() != 2 || b.Data[7] != 7 {
		t.Errorf("%v", file.Names())
	}
	must.Do(t, file.Close())
	for sentence, second := range map[string]*image{
		"tensor 'a' is in x-00001-of-00002.gguf as well":  part(1, "a", 2),
		"split.no is 0; the name of this part makes it 1": part(0, "b", 2),
		"but the parts have 2 tensors":                    part(1, "b", 2),
	} {
		if strings.HasPrefix(sentence, "but") {
			save("00001", part(0, "a", 3))
		}
		save("00002", second)
		if _, err := gguf.Open(name("00001")); err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("%v, not %s", err, sentence)
		}
		save("00001", part(0, "a", 2))
	}
	if _, err := gguf.Open(name("00002")); err == nil || !strings.Contains(err.Error(), "is a part of a split model") {
		t.Errorf("%v", err)
	}
	must.Do(t, os.Remove(name("00002")))
	if _, err := gguf.Open(name("00001")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestHostileFiles(t *testing.T) {
	for sentence, b := range map[string]*image{
		"has 3 bytes; a GGUF file has 24 or more":                                        {*bytes.NewBufferString("GGU")},
		"begins with 'GGML'":                                                             {*bytes.NewBufferString("GGML" + strings.Repeat("x", 40))},
		"promises 4294967296 entries of metadata; the rest":                              begin(0, 1<<32),
		"promises 1099511627776 tensors":                                                 begin(1<<40, 0),
		"a key of metadata has 0 bytes; it may have 1 to 65535":                          begin(0, 1).put("", u8, uint64(0)),
		"a key of metadata at byte 32 is not UTF-8 (at its byte 1)":                      begin(0, 1).put("a\xff", u8, uint64(0)),
		"the key 'a' of metadata is there twice":                                         begin(0, 2).put("a", u8, uint8(1), "a", u8, uint8(1)),
		"the type of a is 13; it must be 0 to 12":                                        begin(0, 1).put("a", 13, uint64(0)),
		"a is 2; as a bool it must be 0 or 1":                                            begin(0, 1).put("a", boolean, uint8(2)),
		"takes 4294967296 bytes, but only 0":                                             begin(0, 1).put("a", text, uint64(1<<32)),
		"the array a of 2305843009213693953 × u64 takes 18446744073709551624 bytes":      begin(0, 1).put("a", array, u64, uint64(1<<61+1)),
		"takes 147573952589676412920 bytes":                                              begin(0, 1).put("a", array, u64, uint64(math.MaxUint64)),
		"a is an array of arrays":                                                        begin(0, 1).put("a", array, array, uint64(1)),
		"the array a has a bool of 9":                                                    begin(0, 1).put("a", array, boolean, uint64(2), uint8(0), uint8(9)),
		"string 0 of a takes 99 bytes":                                                   begin(0, 1).put("a", array, text, uint64(1), uint64(99)),
		"general.alignment is 24 (u32); it must be a power of two":                       begin(0, 1).put("general.alignment", u32, uint32(24)),
		"general.alignment is '32' (string)":                                             begin(0, 1).put("general.alignment", text, "32"),
		"the name of a tensor has 65 bytes":                                              begin(1, 0).tensor(strings.Repeat("n", 65), 0, 0, 1),
		"tensor 'a' has 5 dimensions; it may have 1 to 4":                                begin(1, 0).tensor("a", 0, 0, 1, 1, 1, 1, 1),
		"tensor 'a' has the dimensions [4, 0]; each":                                     begin(1, 0).tensor("a", 0, 0, 4, 0),
		"tensor 'a' has rows of 33 elements; blocks of q4_0 have 32":                     begin(1, 0).tensor("a", 2, 0, 33),
		"tensor 'a' has the offset 4; it must be a multiple of 32":                       begin(1, 0).tensor("a", 0, 4, 1),
		"tensor 'a' is described twice":                                                  begin(2, 0).tensor("a", 0, 0, 1).tensor("a", 0, 32, 1),
		"tensor 'a' has 16 bytes from byte 64 on, but the file ends at byte 72":          begin(1, 0).tensor("a", 0, 0, 4).data(32, 8),
		"tensor 'a' has more than any file's bytes from byte 96 on":                      begin(1, 0).tensor("a", 0, 0, 4194305, 4194305, 211106198978564).data(32, 8),
		"tensor 'a' has 4 bytes from byte 18446744073709551648 on, but the file ends at": begin(1, 0).tensor("a", 0, math.MaxUint64-31, 1).data(32, 8),
		"tensor 'b' begins at byte 128, inside tensor 'a' before it":                     begin(2, 0).tensor("a", 0, 0, 16).tensor("b", 0, 32, 1).data(32, 64),
		"tensor 'a' of type 36 has 128 bytes to the next tensor; as i2_s it takes 64":    begin(1, 0).tensor("a", 36, 0, 128).data(32, 128),
	} {
		_, err := gguf.Open(write(t, "x.gguf", b))
		if err == nil || !strings.Contains(err.Error(), sentence) || !strings.Contains(err.Error(), "x.gguf: ") {
			t.Errorf("%v, not %s", err, sentence)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(begin(1, 1).put("general.alignment", u32, uint32(64)).tensor("a", 0, 0, 2, 3).data(64, 64).Bytes())
	f.Add(begin(0, 2).put("a", array, text, uint64(2), "", "two", "b", array, f32, uint64(1), float32(1)).Bytes())
	f.Add(begin(1, 0).tensor("a", 36, 0, 128).data(32, 64).Bytes())
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "x.gguf")
		must.Do(t, os.WriteFile(path, content, 0o600))
		file, err := gguf.Open(path)
		if err != nil {
			return
		}
		defer file.Close()
		for _, key := range file.Keys() {
			value, _ := file.Get(key)
			_ = value.String()
			for at := range min(value.Len(), 3) {
				_, _ = value.At(at)
			}
		}
		for _, name := range file.Names() {
			if made, err := file.Tensor(name); err == nil && len(made.Data) != made.Rows()*made.RowBytes() {
				t.Errorf("%s of shape %v has %d bytes", name, made.Shape, len(made.Data))
			}
		}
	})
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "x.gguf")
	tensor := func(name, format string, bytes string, shape ...int) formats.StoredTensor {
		known, _ := formats.FormatNamed(format)
		return formats.StoredTensor{Name: name, Format: known, Shape: shape, Data: []byte(bytes)}
	}
	written := []formats.StoredTensor{tensor("b", "bf16", "abcdef", 3, 1), tensor("a", "f32", "ghij", 1)}
	metadata := []gguf.KeyValue{{Key: "general.type", Value: "é"}, {Key: "alpha", Value: float32(0.1)}}
	must.Do(t, gguf.Write(path, metadata, written))
	file := must.Get(gguf.Open(path))(t)
	defer file.Close()
	alpha, _ := file.Get("alpha")
	if number, _ := alpha.Number(); file.Version != 3 || alpha.Type != "f32" || number != float64(float32(0.1)) {
		t.Errorf("%v", alpha)
	}
	if kind, _ := file.Text("general.type"); kind != "é" || !slices.Equal(file.Names(), []string{"b", "a"}) {
		t.Errorf("%s, %v", kind, file.Names())
	}
	for _, tensor := range written {
		found := must.Get(file.Tensor(tensor.Name))(t)
		if found.Format != tensor.Format || !slices.Equal(found.Shape, tensor.Shape) || !bytes.Equal(found.Data, tensor.Data) {
			t.Errorf("%v, not %v", found, tensor)
		}
	}
	must.Do(t, os.Remove(path))
	one := tensor("a", "f32", "abcd", 1)
	for words, tensors := range map[string][]formats.StoredTensor{
		"two tensors have the name 'a'":          {one, one},
		"tensor '' of shape [1]: a name has 1 t": {tensor("", "f32", "abcd", 1)},
		"tensor 'a' of shape [2 0]":              {tensor("a", "f32", "", 2, 0)},
	} {
		if err := gguf.Write(path, nil, tensors); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, not %s", err, words)
		}
	}
	err := gguf.Write(path, []gguf.KeyValue{{Key: "k", Value: 1}}, nil)
	if err == nil || !strings.Contains(err.Error(), "k is a int; what is written is a string or a float32") {
		t.Errorf("%v", err)
	}
	if left := must.Get(os.ReadDir(folder))(t); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
