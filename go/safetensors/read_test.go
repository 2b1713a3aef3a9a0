package safetensors_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/safetensors"
)

// image is a file of a header and data.
func image(header, data string) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data...)
}

func write(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.safetensors")
	must.Do(t, os.WriteFile(path, content, 0o600))
	return path
}

func TestOpen(t *testing.T) {
	header := `{"__metadata__":{"kind":"test"},"b":{"dtype":"I8","shape":[],"data_offsets":[8,9]},` +
		`"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"none":{"dtype":"BF16","shape":[0,7],"data_offsets":[8,8]}}  `
	file := must.Get(safetensors.Open(write(t, image(header, "abcdefghi"))))(t)
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
		must.Do(t, os.WriteFile(path, content, 0o600))
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
