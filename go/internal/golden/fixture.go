// Package golden runs the golden fixtures: inputs and expected results of every kernel, which all languages share.
// Their format stands in tests/golden/README.md.
package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/safetensors"
)

// FolderVariable names the environment variable that chooses another folder of fixtures than that of the source tree.
const FolderVariable = "NNCUDA_GOLDEN"

// A Fixture is one call of a kernel: what goes in, what must come out, and how near.
type Fixture struct {
	Kernel    string
	Name      string
	Scalars   map[string]any     // a json.Number or a string
	Tolerance map[string]float64 // largest absolute error of each output; 0 means equal
	Zeros     map[string]bool    // outputs in which an element that is expected to be 0 must be 0
	Inputs    map[string]safetensors.Tensor
	Outputs   map[string]safetensors.Tensor
}

// Folder is where the fixtures are.
func Folder() (string, error) {
	folder := os.Getenv(FolderVariable)
	if folder == "" {
		_, file, _, _ := runtime.Caller(0)
		folder = filepath.Join(filepath.Dir(file), "..", "..", "..", "tests", "golden")
	}
	if paths, _ := filepath.Glob(filepath.Join(folder, "*", "*.safetensors")); len(paths) == 0 {
		return "", fmt.Errorf("no fixtures in %s; set %s to their folder", folder, FolderVariable)
	}
	return folder, nil
}

// ReadFolder reads the fixtures of all kernels, file after file by name. Their tensors lie in the mapped files, which
// stay open until the process ends.
func ReadFolder(folder string) ([]Fixture, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*", "*.safetensors"))
	if err != nil {
		return nil, err
	}
	var fixtures []Fixture
	for _, path := range paths {
		file, err := safetensors.Open(path)
		if err != nil {
			return nil, err
		}
		more, err := fromFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		fixtures = append(fixtures, more...)
	}
	return fixtures, nil
}

// fromFile is the cases of one kernel, by name.
func fromFile(file *safetensors.File) ([]Fixture, error) {
	var entries map[string]struct {
		Scalars   map[string]any     `json:"scalars"`
		Tolerance map[string]float64 `json:"tolerance"`
		Zeros     []string           `json:"zeros"`
	}
	decoder := json.NewDecoder(strings.NewReader(file.Metadata["cases"]))
	decoder.UseNumber() // whole numbers may need 64 bits
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&entries); err != nil {
		return nil, fmt.Errorf("the metadata has no list of cases as the format says: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something stands behind the list of cases")
	}
	kernel := strings.TrimSuffix(filepath.Base(file.Path), ".safetensors")
	cases := make(map[string]*Fixture, len(entries))
	for name, entry := range entries {
		fixture := &Fixture{Kernel: kernel, Name: name, Scalars: entry.Scalars, Tolerance: entry.Tolerance,
			Zeros: map[string]bool{}, Inputs: map[string]safetensors.Tensor{}, Outputs: map[string]safetensors.Tensor{}}
		for output, tolerance := range entry.Tolerance {
			if tolerance < 0 || math.IsInf(tolerance, 0) {
				return nil, fmt.Errorf("the tolerance of %s in case %s is %v", output, name, tolerance)
			}
		}
		for _, output := range entry.Zeros {
			fixture.Zeros[output] = true
		}
		cases[name] = fixture
	}
	for _, key := range file.Names() {
		parts := strings.Split(key, "/")
		if len(parts) != 3 || cases[parts[0]] == nil || (parts[1] != "in" && parts[1] != "out") {
			return nil, fmt.Errorf("tensor %s is not case/in/parameter or case/out/parameter of a known case", key)
		}
		tensor, _ := file.Tensor(key)
		if parts[1] == "in" {
			cases[parts[0]].Inputs[parts[2]] = tensor
		} else {
			cases[parts[0]].Outputs[parts[2]] = tensor
		}
	}
	fixtures := make([]Fixture, 0, len(cases))
	for _, fixture := range cases {
		fixtures = append(fixtures, *fixture)
	}
	slices.SortFunc(fixtures, func(a, b Fixture) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return fixtures, nil
}

// Integer is a size, flag or whole option.
func (f *Fixture) Integer(name string) (int64, error) {
	number, ok := f.Scalars[name].(json.Number)
	if !ok {
		return 0, fmt.Errorf("%s is %v; it must be a whole number", name, f.Scalars[name])
	}
	return number.Int64()
}

// Real is an option of type float or double.
func (f *Fixture) Real(name string) (float64, error) {
	switch value := f.Scalars[name].(type) {
	case json.Number:
		return value.Float64()
	case string:
		switch value {
		case "inf":
			return math.Inf(1), nil
		case "-inf":
			return math.Inf(-1), nil
		}
	}
	return 0, fmt.Errorf("%s is %v; it must be a number", name, f.Scalars[name])
}
