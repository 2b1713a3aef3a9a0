package cuda_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
)

// The package was made from its own copy of the header, and in the source tree that copy is the header.
func TestHeaderIsTheOneThatThisWasMadeFrom(t *testing.T) {
	mine := must.Get(os.ReadFile("bindings.h"))(t)
	if sum := fmt.Sprintf("%x", sha256.Sum256(mine)); sum != cuda.HeaderSHA256 {
		t.Errorf("bindings.h has the hash %s, the generated files were made from %s: run `make generate`", sum,
			cuda.HeaderSHA256)
	}
	theirs, err := os.ReadFile("../../bindings.h")
	if os.IsNotExist(err) {
		t.Log("this is the module alone: there is no source tree to compare with")
		return
	}
	must.Do(t, err)
	if !bytes.Equal(mine, theirs) {
		t.Error("bindings.h differs from the one of the source tree: run `make generate`")
	}
}

// functions is the names of all functions of the header.
func functions(t *testing.T) []string {
	t.Helper()
	text := must.Get(os.ReadFile("bindings.h"))(t)
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^NNCUDA_API [^(]*?(\w+)\(`).FindAllSubmatch(text, -1) {
		names = append(names, string(match[1]))
	}
	if len(names) < 100 {
		t.Fatalf("only %d functions were found in bindings.h", len(names))
	}
	return names
}

// A goFunction is a function or method of the package: the C functions and Go functions that it names.
type goFunction struct {
	exported bool
	c        []string
	calls    []string
}

// source is the functions of the Go files of a folder, by name; methods by their own name.
func source(t *testing.T, folder string) map[string]*goFunction {
	t.Helper()
	paths := must.Get(filepath.Glob(filepath.Join(folder, "*.go")))(t)
	found := map[string]*goFunction{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file := must.Get(parser.ParseFile(token.NewFileSet(), path, nil, 0))(t)
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			entry := found[function.Name.Name]
			if entry == nil { // methods of several types may share a name: they count as one
				entry = &goFunction{}
				found[function.Name.Name] = entry
			}
			entry.exported = entry.exported || function.Name.IsExported()
			ast.Inspect(function, func(node ast.Node) bool {
				switch node := node.(type) {
				case *ast.SelectorExpr:
					if from, ok := node.X.(*ast.Ident); ok && from.Name == "C" {
						entry.c = append(entry.c, strings.TrimPrefix(node.Sel.Name, "call_"))
					} else {
						entry.calls = append(entry.calls, node.Sel.Name)
					}
				case *ast.Ident:
					entry.calls = append(entry.calls, node.Name)
				}
				return true
			})
		}
	}
	return found
}

// reachable is the C functions that an exported function calls, itself or by others.
func reachable(found map[string]*goFunction) map[string]string {
	by := map[string]string{}
	for name, function := range found {
		if !function.exported {
			continue
		}
		seen := map[string]bool{name: true}
		for pending := []string{name}; len(pending) > 0; {
			current := found[pending[0]]
			pending = pending[1:]
			for _, c := range current.c {
				by[c] = name
			}
			for _, called := range current.calls {
				if found[called] != nil && !seen[called] {
					seen[called] = true
					pending = append(pending, called)
				}
			}
		}
	}
	return by
}

func TestEveryFunctionOfTheHeaderIsReachable(t *testing.T) {
	by := reachable(source(t, "."))
	for _, name := range functions(t) {
		if by[name] == "" {
			t.Errorf("no exported function of package cuda calls %s", name)
		}
	}
	if by["nncuda_no_such_function"] != "" || by["nncuda_event_elapsed"] != "Elapsed" {
		t.Error("the search itself is wrong")
	}
}

func TestEveryKernelHasItsFunctions(t *testing.T) {
	context := reflect.TypeFor[*cuda.Context]()
	typed := source(t, "../tensor")
	var names []string
	for _, kernel := range cuda.Kernels() {
		names = append(names, "cuda_"+kernel.Name)
		method, ok := context.MethodByName(kernel.Function)
		if !ok {
			t.Errorf("cuda_%s: Context has no method %s", kernel.Name, kernel.Function)
		} else if count := method.Type.NumIn() - 1; count != len(kernel.Params) {
			t.Errorf("cuda_%s has %d parameters, its method %d", kernel.Name, len(kernel.Params), count)
		}
		if typed[kernel.Function] == nil || !slices.Contains(typed[kernel.Function].calls, kernel.Function) {
			t.Errorf("cuda_%s: package tensor has no function %s that calls it", kernel.Name, kernel.Function)
		}
	}
	kernels := slices.DeleteFunc(functions(t), func(name string) bool { return !strings.HasPrefix(name, "cuda_") })
	if !slices.Equal(names, kernels) {
		t.Errorf("the kernels are %v, those of the header %v", names, kernels)
	}
}

func TestGeneratedFilesAreFormatted(t *testing.T) {
	for _, folder := range []string{".", "../tensor"} {
		paths, err := filepath.Glob(filepath.Join(folder, "*_gen.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no generated files in %s (%v)", folder, err)
		}
		for _, path := range paths {
			text := must.Get(os.ReadFile(path))(t)
			if formatted, err := format.Source(text); err != nil || !bytes.Equal(formatted, text) {
				t.Errorf("%s is not as gofmt writes it (%v)", path, err)
			}
		}
	}
}
