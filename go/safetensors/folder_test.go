package safetensors_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/safetensors"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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
		check(t, safetensors.WriteFolder(folder, wanted, map[string]string{"format": "pt"}, maxBytes))
		if found, _ := filepath.Glob(filepath.Join(folder, "*.safetensors")); len(found) != files {
			t.Errorf("%v with %d bytes a file", found, maxBytes)
		}
		opened, err := safetensors.OpenFolder(folder)
		check(t, err)
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
		check(t, opened.Close())
	}
}

func TestTensorFoldersThatAreRefused(t *testing.T) {
	const index = "model.safetensors.index.json"
	for words, change := range map[string]func(folder string) error{
		"holds neither model.safetensors nor": func(folder string) error { return os.Remove(filepath.Join(folder, index)) },
		"has no weight_map": func(f string) error {
			return os.WriteFile(filepath.Join(f, index), []byte("{}"), 0o666)
		},
		"from tensor names to file names": func(f string) error {
			return os.WriteFile(filepath.Join(f, index), []byte(`{"weight_map": {"a": 1}}`), 0o666)
		},
		"names the file \"../x\", which is outside": func(f string) error {
			return os.WriteFile(filepath.Join(f, index), []byte(`{"weight_map": {"a": "../x"}}`), 0o666)
		},
		"says that tensor \"z\" is in model-00001-of-00002.safetensors, which lacks it": func(f string) error {
			return replace(filepath.Join(f, index), `"a":`, `"z":`)
		},
		"tensor \"a\" is in model-00001-of-00002.safetensors as well": func(f string) error {
			data, err := os.ReadFile(filepath.Join(f, "model-00001-of-00002.safetensors"))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(f, "model-00002-of-00002.safetensors"), data, 0o666)
		},
		"model-00002-of-00002.safetensors: cannot be read": func(f string) error {
			return os.Remove(filepath.Join(f, "model-00002-of-00002.safetensors"))
		},
	} {
		folder := t.TempDir()
		check(t, safetensors.WriteFolder(folder, tensorsOf("a", "b"), nil, 8))
		check(t, change(folder))
		if _, err := safetensors.OpenFolder(folder); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, not %q", err, words)
		}
	}
}

func replace(path, old, with string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.ReplaceAll(string(data), old, with)), 0o666)
}
