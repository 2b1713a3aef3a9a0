package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/nncuda/nncuda/go/convert"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/spf13/cobra"
)

func newMerge(std streams) *cobra.Command {
	var device deviceFlags
	command := &cobra.Command{
		Use:   "merge [flags] BASE ADAPTER OUT",
		Short: "Add the adapter ADAPTER to the model BASE, and write the sum to the folder OUT, which must not exist.",
		Long: `Add the adapter ADAPTER to the model BASE, and write the sum to the folder OUT, which must not exist.

BASE is a Hugging Face folder, or a checkpoint, in f32, f16 or bf16. ADAPTER is a LoRA of it: a folder of PEFT
(adapter_config.json and adapter_model.safetensors), a GGUF file, a run or one of its checkpoints. Each sum is made
in f32 and rounded once to the dtype of its matrix; everything else stays as it is.`,
		Args: exactArguments("BASE", "ADAPTER", "OUT"),
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := device.check(command); err != nil {
				return err
			}
			out := filepath.Clean(arguments[2])
			if err := requireBeside(arguments, out, "a folder is never replaced"); err != nil {
				return err
			}
			return withAdapter(arguments, func(base *stored.Model, adapter *stored.Adapter) error {
				ctx, err := device.open()
				if err != nil {
					return err
				}
				err = convert.MergeAdapter(command.Context(), base, adapter, out, ctx)
				if err = errors.Join(err, ctx.Close()); err != nil {
					return err
				}
				_, err = fmt.Fprintf(std.out, "%s: %s parameters; %d matrices with %.6g * B * A of rank %d\n", out,
					countText(base.Config.NumParameters()), len(adapter.Factors), adapter.Scale, adapter.Rank)
				return err
			})
		},
	}
	device.add(command.Flags())
	return command
}

// requireBeside refuses arguments BASE and ADAPTER that do not exist, and an OUT that does, or would be in no folder.
func requireBeside(arguments []string, out, never string) error {
	for at, name := range []string{"BASE", "ADAPTER"} {
		if err := requirePath(name, arguments[at], anyPath); err != nil {
			return err
		}
	}
	return requireNew(out, never)
}

// withAdapter opens a model and an adapter of it, the first two arguments, for `use`.
func withAdapter(arguments []string, use func(base *stored.Model, adapter *stored.Adapter) error) error {
	base, err := stored.Open(filepath.Clean(arguments[0]))
	if err != nil {
		return err
	}
	adapter, err := stored.OpenAdapter(filepath.Clean(arguments[1]), base.Config)
	if err == nil {
		err = errors.Join(use(base, adapter), adapter.Close())
	}
	return errors.Join(err, base.Close())
}
