package safetensors_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/safetensors"
)

func tensorsOf(names ...string) (made []safetensors.Tensor) {
	for at, name := range names {
		bytes := []byte{byte(at), 1, 2, 3, 4, 5, 6, 7}
		made = append(made, safetensors.Tensor{Name: name, DType: safetensors.U8, Shape: []int{2, 4}, Bytes: bytes})
	}
	return made
}

func TestTensorFolders(t *testing.T) {
	for files, maxBytes := range map[int]int{1: 100, 2: 17, 4: 3} {
		folder := t.TempDir()
		wanted := tensorsOf("a", "b", "c", "d")
		must.Do(t, safetensors.WriteFolder(folder, wanted, map[string]string{"format": "pt"}, maxBytes))
		if found, _ := filepath.Glob(filepath.Join(folder, "*.safetensors")); len(found) != files {
			t.Errorf("%v with %d bytes a file", found, maxBytes)
		}
		opened := must.Get(safetensors.OpenFolder(folder))(t)
		if found := opened.Names(); !slices.Equal(found, []string{"a", "b", "c", "d"}) {
			t.Error(found)
		}
		for _, tensor := range wanted {
			if found, ok := opened.Tensor(tensor.Name); !ok || !slices.Equal(found.Bytes, tensor.Bytes) {
				t.Errorf("%v, not %v", found, tensor)
			}
		}
		if _, ok := opened.Tensor("e"); ok {
			t.Error("there is a tensor of nobody")
		}
		must.Do(t, opened.Close())
	}
}
