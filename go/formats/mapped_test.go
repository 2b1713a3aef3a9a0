package formats_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
)

func TestMapFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	content := bytes.Repeat([]byte("mapped"), 10000)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	mapped, err := formats.MapFile(path, "file of words", 6)
	if err != nil {
		t.Fatal(err)
	}
	mapped.Release(mapped.Bytes()[5000:30000])
	mapped.Release(content) // not of this file: it stays as it is
	mapped.Release(nil)
	if !bytes.Equal(mapped.Bytes(), content) {
		t.Error("pages that were given back are read again")
	}
	for range 2 {
		if err := mapped.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if mapped.Bytes() != nil {
		t.Error("a closed mapping has no bytes")
	}
}

func TestFilesThatCannotBeMapped(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "short")
	if err := os.WriteFile(path, []byte("word"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := formats.MapFile(path, "file of words", 6)
	if err == nil || !strings.HasSuffix(err.Error(), "short: has 4 bytes; a file of words has 6 or more") {
		t.Errorf("%v", err)
	}
	if _, err := formats.MapFile(filepath.Join(folder, "none"), "file of words", 6); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := formats.MapFile(folder, "file of words", 6); err == nil {
		t.Error("a folder was mapped")
	}
}
