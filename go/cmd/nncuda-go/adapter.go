package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/spf13/cobra"
)

func newAdapter(std streams) *cobra.Command {
	return &cobra.Command{
		Use:   "adapter [flags] BASE ADAPTER OUT",
		Short: "Write an adapter in its other form: a GGUF file for llama.cpp, or a folder of PEFT.",
		Long: `Write the adapter ADAPTER of the model BASE to OUT, which must not exist: as a GGUF file for llama.cpp where OUT
ends with .gguf, and as a folder of PEFT otherwise.

ADAPTER is either of them, a run or one of its checkpoints. BASE says which matrices there are, and in which order a
GGUF file has their rows; its weights are not read. The numbers stay as they are, each in its dtype.`,
		Args: exactArguments("BASE", "ADAPTER", "OUT"),
		RunE: func(command *cobra.Command, arguments []string) error {
			out := filepath.Clean(arguments[2])
			if err := requireBeside(arguments, out, "it is never replaced"); err != nil {
				return err
			}
			return withAdapter(arguments, func(base *stored.Model, adapter *stored.Adapter) error {
				err := command.Context().Err() // an interrupt that came later is too late
				if err != nil {
					return err
				}
				if strings.HasSuffix(out, ".gguf") {
					err = adapter.WriteGGUF(out, base.Config)
				} else {
					err = adapter.WriteFolder(out, asGiven(arguments[0]))
				}
				if err == nil {
					_, err = fmt.Fprintf(std.out, "%s: %d matrices, rank %d, scale %.6g\n", out, len(adapter.Factors), adapter.Rank,
						adapter.Scale)
				}
				return err
			})
		},
	}
}

// asGiven is a path without what says nothing, as the Python package writes it into files: ".." stays, since a link may lead it
// elsewhere.
func asGiven(path string) string {
	parts := slices.DeleteFunc(strings.Split(path, "/"), func(part string) bool { return part == "" || part == "." })
	switch joined := strings.Join(parts, "/"); {
	case strings.HasPrefix(path, "/"):
		return "/" + joined
	case joined == "":
		return "."
	default:
		return joined
	}
}
