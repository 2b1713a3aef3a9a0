package safetensors_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/safetensors"
)

// image is a file of a header and data.
func image(header, data string) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data...)
}

func write(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.safetensors")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpen(t *testing.T) {
	header := `{"__metadata__":{"kind":"test"},"b":{"dtype":"I8","shape":[],"data_offsets":[8,9]},` +
		`"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"none":{"dtype":"BF16","shape":[0,7],"data_offsets":[8,8]}}  `
	file, err := safetensors.Open(write(t, image(header, "abcdefghi")))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if names := file.Names(); !slices.Equal(names, []string{"a", "none", "b"}) {
		t.Errorf("names %v", names)
	}
	if file.Metadata["kind"] != "test" {
		t.Errorf("metadata %v", file.Metadata)
	}
	tensor, ok := file.Tensor("a")
	if !ok || tensor.DType != safetensors.F32 || !slices.Equal(tensor.Shape, []int{1, 2}) ||
		string(tensor.Bytes) != "abcdefgh" {
		t.Errorf("a is %v", tensor)
	}
	if tensor, _ := file.Tensor("b"); string(tensor.Bytes) != "i" || len(tensor.Shape) != 0 {
		t.Errorf("b is %v", tensor)
	}
	if _, ok := file.Tensor("c"); ok {
		t.Error("there is a c")
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}

// refused checks that a file of that content is refused, and why.
func refused(t *testing.T, content []byte, words string) {
	t.Helper()
	path := write(t, content)
	_, err := safetensors.Open(path)
	if err == nil {
		t.Fatal("it was opened")
	}
	if !strings.HasPrefix(err.Error(), path+": is truncated, or not a safetensors file (") ||
		!strings.Contains(err.Error(), words) {
		t.Errorf("%q does not say %q", err, words)
	}
}

func TestWhatIsNoSafetensorsFileIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		content []byte
		words   string
	}{
		"empty":              {nil, "it is empty"},
		"short":              {[]byte("1234567"), "shorter than the length"},
		"huge header":        {binary.LittleEndian.AppendUint64(nil, 1<<63), "it may have at most 33554432"},
		"header beyond end":  {binary.LittleEndian.AppendUint64(nil, 10), "does not fit"},
		"not an object":      {image(`[]`, ""), "not a JSON object"},
		"not JSON":           {image(`{"a":`, ""), "not JSON"},
		"unended":            {image(`{`, ""), "not JSON"},
		"tail":               {image(`{}x`, ""), "something follows"},
		"metadata of number": {image(`{"__metadata__":{"a":1}}`, ""), "metadata"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, test.content, test.words) })
	}
}

func TestTensorsThatDoNotFitAreRefused(t *testing.T) {
	const byteAt0 = `"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}`
	for name, test := range map[string]struct{ tensors, data, words string }{
		"twice":           {byteAt0 + "," + byteAt0, "x", "the key \"a\" is twice"},
		"unknown dtype":   {`"a":{"dtype":"F1","shape":[1],"data_offsets":[0,1]}`, "x", "dtype F1"},
		"no shape":        {`"a":{"dtype":"I8","data_offsets":[0,1]}`, "x", "lacks"},
		"three offsets":   {`"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1,2]}`, "x", "two offsets"},
		"negative extent": {`"a":{"dtype":"I8","shape":[-1],"data_offsets":[0,1]}`, "x", "no whole numbers"},
		"overflow":        {`"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,1]}`, "x", "none can have"},
		"fraction":        {`"a":{"dtype":"I8","shape":[1.5],"data_offsets":[0,1]}`, "x", "\"a\""},
		"wrong size":      {`"a":{"dtype":"F32","shape":[1],"data_offsets":[0,3]}`, "xyz", "takes 4"},
		"backwards":       {`"a":{"dtype":"I8","shape":[1],"data_offsets":[1,0]}`, "x", "bytes 1 to 0"},
		"beyond end":      {`"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}`, "x", "ends at byte 2 of 1"},
		"hole":            {`"a":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}`, "xy", "not at 0"},
		"overlap": {`"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},` +
			`"b":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}`, "xy", "not at 2"},
		"uncovered": {byteAt0, "xy", "cover 1 bytes of 2"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, image("{"+test.tensors+"}", test.data), test.words) })
	}
}

// described is a header of so many tensors of one byte.
func described(count int) string {
	var header strings.Builder
	for at := range count {
		fmt.Fprintf(&header, `,"%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}`, at, at, at+1)
	}
	return "{" + strings.TrimPrefix(header.String(), ",") + "}"
}

func TestHeadersMadeToHurtAreRefused(t *testing.T) {
	const many = formats.FileTensors + 1
	shape := strings.Repeat("1,", 100_000) + "1"
	for words, content := range map[string][]byte{
		"131073 tensors; a file may have at most 131072": image(described(many), strings.Repeat("x", many)),
		"more than 2097152 brackets":                     image(described(200_000), strings.Repeat("x", 200_000)),
		"a header of 33554433 bytes; it may":             image("{"+strings.Repeat(" ", formats.HeaderBytes-1)+"}", ""),
		"its shape [1,1,1,1,":                            image(`{"a":{"dtype":"U8","shape":[`+shape+`],"data_offsets":[0,2]}}`, "xy"),
		"tensor \"aaaaaaaaaa": image(
			`{"`+strings.Repeat("a", 99_999)+`":{"dtype":"F1","shape":[1],"data_offsets":[0,1]}}`, "x"),
		"has dtype bbbbbbbb": image(
			`{"a":{"dtype":"`+strings.Repeat("b", 99_999)+`","shape":[1],"data_offsets":[0,1]}}`, "x"),
	} {
		path := write(t, content)
		if _, err := safetensors.Open(path); err == nil || !strings.Contains(err.Error(), words) ||
			len(err.Error()) > len(path)+500 {
			t.Errorf("%.800v, not %q", err, words)
		}
	}
	file, err := safetensors.Open(write(t, image(described(many-1), strings.Repeat("x", many-1))))
	check(t, err)
	if found := len(file.Names()); found != many-1 {
		t.Error(found)
	}
	check(t, file.Close())
}

func TestAFileThatIsNotThere(t *testing.T) {
	_, err := safetensors.Open(filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.Contains(err.Error(), ": cannot be read: no such file or directory") {
		t.Errorf("got %v", err)
	}
}

// Whatever the bytes, Open gives a file whose tensors are inside it, or an error.
func FuzzOpen(f *testing.F) {
	f.Add(image(`{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, "x"))
	f.Add(image(`{"__metadata__":{"a":"b"}}`, ""))
	for _, hostile := range []string{
		`{"a":{"dtype":"I8","shape":[0,18446744073709551612],"data_offsets":[0,0]}}`,
		`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`,
		`{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}`,
		`{"__metadata__":{"a":"b","a":"c"}}`, `{"a":{"dtype":"I8","shape":[1],"data_offsets":[1,0]}}`,
		strings.Repeat(`{"a":`, 600),
	} {
		f.Add(image(hostile, "x"))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := safetensors.Open(path)
		if err != nil {
			return
		}
		defer file.Close()
		total := 0
		for _, name := range file.Names() {
			tensor, _ := file.Tensor(name)
			total += len(tensor.Bytes)
		}
		if total > len(content) {
			t.Errorf("tensors of %d bytes in a file of %d", total, len(content))
		}
	})
}
