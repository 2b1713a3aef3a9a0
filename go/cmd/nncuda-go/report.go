package main

import (
	"fmt"
	"path/filepath"

	"github.com/nncuda/nncuda/go/report"
	"github.com/spf13/cobra"
)

func newReport(std streams) *cobra.Command {
	out := ""
	command := &cobra.Command{
		Use:   "report [flags] RUN",
		Short: "Write one HTML page about the training run in RUN: curves, experts, checkpoints, options.",
		Long: `Write one HTML page about the training run in RUN: curves, experts, checkpoints, options.

The page is complete in itself: it needs no network and no other file. It may be written while the run is going on, and
shows the run as it stands at that point; it says so where the run's files lack something, or hold it in a form that
cannot be shown.`,
		Args: exactArguments("RUN"),
		RunE: func(command *cobra.Command, arguments []string) error {
			defer interruptible(command.Context(), std)()
			if err := requirePath("RUN", arguments[0], folderPath); err != nil {
				return err
			}
			if out != "" {
				out = filepath.Clean(out)
				if err := requireRoom("--out", out); err != nil {
					return err
				}
			}
			path, size, err := report.Write(filepath.Clean(arguments[0]), out)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(std.out, "%s: %s kB\n", path, groupedText(float64(size)/1e3))
			return err
		},
	}
	command.Flags().StringVar(&out, "out", "", "Where to write it.  [default: RUN/report.html]")
	return command
}
