package main

import (
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/internal/options"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What only nncuda has, the command of the Python package: commands, and options of commands that both have.
var (
	commandsElsewhere = []string{"convert", "data", "demo", "doctor", "dump", "eval", "quantize", "tokenizer", "verify", "verify-run"}
	optionsElsewhere  = map[string][]string{
		"generate": {"expert-parallel"},
		"inspect":  {"ternary"},
	}
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
