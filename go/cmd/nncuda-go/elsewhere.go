package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/options"
	"github.com/nncuda/nncuda/go/train"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What only nncuda has, the command of the Python package: commands, options of commands that both have, and models.
var (
	commandsElsewhere = []string{"chat", "convert", "data", "demo", "doctor", "dump", "quantize", "serve", "tokenizer", "verify"}
	optionsElsewhere  = map[string][]string{
		"generate": {"cache-format", "context", "contiguous", "stats", "weights"},
		"inspect":  {"ternary"},
	}
	modelsElsewhere = []string{"bitnet", "llama"} // by the model_type of their config.json
)

// newElsewhere makes the commands that this program does not have, which say so.
func newElsewhere() []*cobra.Command {
	commands := make([]*cobra.Command, len(commandsElsewhere))
	for at, name := range commandsElsewhere {
		commands[at] = &cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				return usagef("nncuda-go has no command '%s'; the Python package has it: nncuda %s", name, name)
			},
		}
	}
	return commands
}

// wrongFlag is the error of flags that cannot be read, by the words of their parser.
func wrongFlag(command *cobra.Command, err error) error {
	name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
	if unknown && slices.Contains(optionsElsewhere[command.Name()], name) {
		return usagef("nncuda-go has no option '--%s'; the Python package has it: nncuda %s --%s",
			name, command.Name(), name)
	}
	var known []string
	command.Flags().VisitAll(func(flag *pflag.Flag) { known = append(known, strings.ReplaceAll(flag.Name, "-", "_")) })
	if near := options.Nearest(name, known); unknown && near != "" {
		return usagef("%v; did you mean --%s?", err, flagName(near))
	}
	return &usageError{err.Error()}
}

// openCheckpoint opens a folder for a command; a model that this program does not run is an error that says which does.
func openCheckpoint(folder, command string) (*train.Checkpoint, error) {
	checkpoint, err := train.OpenCheckpoint(folder)
	if err == nil {
		return checkpoint, nil
	}
	path := filepath.Join(folder, "config.json")
	config, failure := formats.ReadJSON(path)
	if failure != nil {
		return nil, err
	}
	if kind, ok := config.Get("model_type").(string); ok && slices.Contains(modelsElsewhere, kind) {
		problem := fmt.Sprintf("model_type is '%s'; nncuda-go runs 'mixtral' alone, the checkpoints of the MoE model", kind)
		return nil, &formats.Error{Path: path, Problem: problem + insteadOf(command, folder)}
	}
	return nil, err
}

// refuseGGUF is an error when a path is that of a GGUF file.
func refuseGGUF(path, command string) error {
	if is, err := beginsWith(path, "GGUF"); err != nil || !is {
		return nil // what it is instead, others say
	}
	return &formats.Error{Path: path, Problem: "is a GGUF file, which nncuda-go does not read" + insteadOf(command, path)}
}

// insteadOf is how the Python package does with a path what a command cannot.
func insteadOf(command, path string) string {
	if regexp.MustCompile(`[^\w@%+=:,./-]`).MatchString(path) {
		path = "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	if command == "generate" {
		path += " PROMPT"
	}
	return fmt.Sprintf("; the Python package does: nncuda %s %s", command, path)
}
