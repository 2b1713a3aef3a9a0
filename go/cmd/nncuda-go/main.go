// Command nncuda-go trains and runs mixture-of-experts language models, on the CPU or on a GPU: the same commands,
// files and bits as those of the Python package.
//
// Exit codes: 0 success; 1 a check failed, or training diverged; 2 wrong use of the command; 3 a file or its content is
// wrong; 4 the library, the device or its memory fails; 130 interrupted. Training that is interrupted or terminated saves
// and ends with 0; a second signal ends it at once, with 128 and the signal's number. A server ends with 0.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/internal/options"
	"github.com/nncuda/nncuda/go/train"
	"github.com/spf13/cobra"
)

const (
	exitFailed      = 1
	exitUsage       = 2
	exitWrongFile   = 3
	exitNoDevice    = 4
	exitInterrupted = 130
)

// streams are what a command reads from and writes to.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	// Without this a closed pipe would end the program in the middle of a write, with a signal.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	cuda.Exit(code)
}

// run runs the command line and gives the exit code.
func run(ctx context.Context, arguments []string, std streams) int {
	root := newRoot(std)
	root.SetArgs(arguments)
	called, err := root.ExecuteContextC(ctx)
	if err == nil || errors.Is(err, syscall.EPIPE) { // the reader of our output went away
		return 0
	}
	code := exitCode(err)
	switch code {
	case exitInterrupted:
		fmt.Fprintln(std.err, "interrupted")
	case exitUsage:
		help := called.CommandPath() + " --help"
		fmt.Fprintf(std.err, "Usage: %s\nTry '%s' for help.\n\nError: %v\n", called.UseLine(), help, err)
	default:
		fmt.Fprintf(std.err, "Error: %s\n", sentence(err))
	}
	return code
}

func newRoot(std streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "nncuda-go",
		Short: "Train and run mixture-of-experts language models on the CPU or a GPU.",
		Long: "Train and run mixture-of-experts language models on the CPU or a GPU.\n\n" +
			"The Python package's command, nncuda, does what this one does not: it makes tokenizers and token shards (`nncuda\n" +
			"tokenizer train`, `nncuda data encode`), and converts models (`nncuda quantize`, `nncuda convert`).",
		Version: train.Version,
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) > 0 {
				var known []string
				for _, command := range command.Commands() {
					known = append(known, command.Name())
				}
				if near := options.Nearest(arguments[0], known); near != "" {
					return usagef("no such command %q; did you mean %s?", arguments[0], near)
				}
				return usagef("no such command %q", arguments[0])
			}
			return usagef("missing command")
		},
		RunE:              func(*cobra.Command, []string) error { return nil },
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetVersionTemplate("nncuda-go, version {{.Version}}\n")
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	root.SetFlagErrorFunc(wrongFlag)
	root.AddCommand(newElsewhere()...)
	root.AddCommand(newTrain(std), newPlan(std), newGenerate(std), newChat(std), newServe(std), newInspect(std), newReport(std),
		newShadow(std), newMerge(std), newAdapter(std), newBench(std))
	return root
}

// usageError is a wrong use of the command.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

// checkError is what a check found wrong.
type checkError struct{ message string }

func (e *checkError) Error() string { return e.message }

func usagef(format string, values ...any) error { return &usageError{fmt.Sprintf(format, values...)} }

func exitCode(err error) int {
	var usage *usageError
	var device *cuda.Error
	var library *cuda.LibraryError
	var tooLarge *train.DoesNotFitError
	var check *checkError
	var full *engine.CacheFullError
	switch {
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, train.ErrDiverged), errors.As(err, &check):
		return exitFailed
	case errors.As(err, &library), errors.As(err, &tooLarge), errors.As(err, &full):
		return exitNoDevice
	case errors.As(err, &device):
		// A name that no device has is a wrong value, not a device that fails.
		if device.Function == "nncuda_ctx_create" && device.Status == cuda.ErrInvalidValue {
			return exitWrongFile
		}
		return exitNoDevice
	}
	return exitWrongFile
}

// sentence is an error on one line: of the system, the path and its reason. Only that of a missing library is a list.
func sentence(err error) string {
	var library *cuda.LibraryError
	if errors.As(err, &library) {
		return library.Error()
	}
	return strings.ReplaceAll(words(err), "\n", "; ")
}

func words(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) && errors.Is(err, path) && path.Error() == err.Error() {
		return fmt.Sprintf("%s: %v", path.Path, path.Err)
	}
	var device *cuda.Error
	if errors.As(err, &device) {
		if name, failure := device.Status.Name(); failure == nil && name != "" {
			return fmt.Sprintf("%v (%s)", err, name)
		}
	}
	return err.Error()
}

// exactArguments takes as many arguments as it has names.
func exactArguments(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, arguments []string) error {
		if len(arguments) < len(names) {
			return usagef("missing argument '%s'", names[len(arguments)])
		}
		if len(arguments) > len(names) {
			return usagef("got an unexpected extra argument (%s)", arguments[len(names)])
		}
		return nil
	}
}

// interruptible makes an interrupt end the program at once, while `stop` was not called: what runs now holds nothing
// that would be lost.
func interruptible(ctx context.Context, std streams) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		fmt.Fprintln(std.err, "interrupted")
		os.Exit(exitInterrupted)
	})
}
