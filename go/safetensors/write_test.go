package safetensors_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/safetensors"
)

// The golden fixtures were written by the format's first implementation: writing what they hold gives the same bytes.
func TestWriteGivesTheBytesOfOthers(t *testing.T) {
	paths, err := filepath.Glob("../../tests/golden/*/*.safetensors")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no fixtures in ../../tests/golden (%v)", err)
	}
	for _, path := range paths {
		file := must.Get(safetensors.Open(path))(t)
		defer file.Close()
		var tensors []safetensors.Tensor
		for _, name := range file.Names() {
			tensor, _ := file.Tensor(name)
			tensors = append(tensors, tensor)
		}
		slices.Reverse(tensors) // the order does not matter
		copied := filepath.Join(t.TempDir(), "copy.safetensors")
		must.Do(t, safetensors.Write(copied, tensors, file.Metadata))
		want := must.Get(os.ReadFile(path))(t)
		if got, err := os.ReadFile(copied); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the copy differs (%v)", path, err)
		}
	}
}

func TestWriteEveryType(t *testing.T) {
	var tensors []safetensors.Tensor
	for _, dtype := range []safetensors.DType{safetensors.F64, safetensors.F32, safetensors.F16, safetensors.BF16,
		safetensors.I64, safetensors.I32, safetensors.I16, safetensors.I8, safetensors.U64, safetensors.U32,
		safetensors.U16, safetensors.U8, safetensors.Bool} {
		content := bytes.Repeat([]byte(dtype)[:1], 6*dtype.Size())
		tensor := safetensors.Tensor{Name: "<" + string(dtype) + ">", DType: dtype, Shape: []int{2, 3}, Bytes: content}
		tensors = append(tensors, tensor)
	}
	tensors = append(tensors, safetensors.Tensor{Name: "none", DType: safetensors.F32, Shape: []int{0, 4}})
	path := filepath.Join(t.TempDir(), "file.safetensors")
	must.Do(t, safetensors.Write(path, tensors, nil))
	file := must.Get(safetensors.Open(path))(t)
	defer file.Close()
	if file.Metadata != nil {
		t.Errorf("metadata %v", file.Metadata)
	}
	for _, want := range tensors {
		got, ok := file.Tensor(want.Name)
		if !ok || got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) || !bytes.Equal(got.Bytes, want.Bytes) {
			t.Errorf("%s came back as %v", want.Name, got)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	good := safetensors.Tensor{Name: "a", DType: safetensors.I8, Shape: []int{1}, Bytes: []byte("x")}
	reserved := good
	reserved.Name = "__metadata__"
	for words, tensors := range map[string][]safetensors.Tensor{
		"'a' cannot be written: another":    {good, good},
		"'__metadata__' cannot be written":  {reserved},
		"it has 1 bytes, but its shape [2]": {{Name: "a", DType: safetensors.I8, Shape: []int{2}, Bytes: []byte("x")}},
		"none can have the shape [-1]":      {{Name: "a", DType: safetensors.I8, Shape: []int{-1}, Bytes: []byte("x")}},
		"of F1 takes":                       {{Name: "a", DType: "F1", Shape: []int{1}, Bytes: nil}},
	} {
		path := filepath.Join(t.TempDir(), "file.safetensors")
		err := safetensors.Write(path, tensors, nil)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v does not say %q", err, words)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%q: a file was written", words)
		}
	}
	path := write(t, []byte("mine"))
	if err := safetensors.Write(path, []safetensors.Tensor{good}, nil); err == nil {
		t.Error("a file that was there was overwritten")
	}
}

// TestWriteLoads: tensors that are loaded when they are written give the same file, and a load that fails fails it.
func TestWriteLoads(t *testing.T) {
	folder := t.TempDir()
	held := []safetensors.Tensor{
		{Name: "b", DType: safetensors.I16, Shape: []int{3}, Bytes: []byte("abcdef")},
		{Name: "a", DType: safetensors.U8, Shape: []int{2, 2}, Bytes: []byte("wxyz")},
		{Name: "none", DType: safetensors.U8, Shape: []int{0}},
	}
	loaded := make([]safetensors.Tensor, len(held))
	for i, tensor := range held {
		content := tensor.Bytes
		tensor.Parts = []safetensors.Part{{End: len(content), Load: func(into []byte) error {
			if copy(into, content) != len(content) {
				t.Errorf("%d bytes were asked for, not %d", len(into), len(content))
			}
			return nil
		}}}
		tensor.Bytes = nil
		loaded[i] = tensor
	}
	var files [2][]byte
	for i, tensors := range [][]safetensors.Tensor{held, loaded} {
		path := filepath.Join(folder, string(rune('a'+i)))
		must.Do(t, safetensors.Write(path, tensors, nil))
		content := must.Get(os.ReadFile(path))(t)
		files[i] = content
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("loaded tensors give another file")
	}
	failure := errors.New("the device is gone")
	loaded[1].Parts[0].Load = func([]byte) error { return failure }
	if err := safetensors.Write(filepath.Join(folder, "c"), loaded, nil); !errors.Is(err, failure) {
		t.Error(err)
	}
}

// TestFilledInParts: a file has the same bytes, whoever writes which part of it, and in what order.
func TestFilledInParts(t *testing.T) {
	folder := t.TempDir()
	random := rand.New(rand.NewPCG(7, 8))
	var tensors []safetensors.Tensor
	for at, size := range []int{4, 0, 10, 3, 16} {
		content := make([]byte, 4*size)
		for i := range content {
			content[i] = byte(random.Uint32())
		}
		tensors = append(tensors, safetensors.Tensor{
			Name: string(rune('a' + at)), DType: safetensors.F32, Shape: []int{size}, Bytes: content,
		})
	}
	whole, parted := filepath.Join(folder, "whole"), filepath.Join(folder, "parted")
	must.Do(t, os.Mkdir(whole, 0o777))
	must.Do(t, os.Mkdir(parted, 0o777))
	must.Do(t, safetensors.WriteFolder(whole, tensors, map[string]string{"format": "pt"}, 60))
	must.Do(t, safetensors.CreateFolder(parted, tensors, map[string]string{"format": "pt"}, 60))
	for _, cuts := range [][][2]int{{{20, 32}, {36, 44}}, {{0, 20}, {32, 36}}, {{44, 1 << 20}}} { // of each writer
		own := slices.Clone(tensors)
		for at, tensor := range own {
			own[at].Bytes, own[at].Parts = nil, []safetensors.Part{}
			for _, cut := range cuts {
				begin, end := min(cut[0], tensor.Size()), min(cut[1], tensor.Size())
				own[at].Parts = append(own[at].Parts, safetensors.Part{Begin: begin, End: end, Load: func(into []byte) error {
					if copy(into, tensor.Bytes[begin:end]) != len(into) {
						t.Errorf("%d bytes were asked for, not %d", len(into), end-begin)
					}
					return nil
				}})
			}
		}
		must.Do(t, safetensors.FillFolder(parted, own, map[string]string{"format": "pt"}, 60))
	}
	names := must.Get(os.ReadDir(whole))(t)
	if len(names) < 4 {
		t.Errorf("there are only %v", names)
	}
	for _, entry := range names {
		wanted := must.Get(os.ReadFile(filepath.Join(whole, entry.Name())))(t)
		if found := must.Get(os.ReadFile(filepath.Join(parted, entry.Name())))(t); !bytes.Equal(found, wanted) {
			t.Errorf("%s differs", entry.Name())
		}
	}
	if err := safetensors.Fill(filepath.Join(folder, "nowhere"), tensors, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
