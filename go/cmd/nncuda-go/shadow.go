package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
	"github.com/spf13/cobra"
)

// shadowFlags are the flags of `shadow` besides those of the options.
type shadowFlags struct {
	model, prompt  string // "" where none is given
	reference, isa string
	config, preset string
	ids, best      bool
	maxTokens      int
	device         deviceFlags
	json           string // the file to write
	options        *optionFlags
	generates      bool
}

func newShadow(std streams) *cobra.Command {
	flags := &shadowFlags{}
	command := &cobra.Command{
		Use:   "shadow [flags] [MODEL]",
		Short: "Run every kernel call a second time on another engine, and compare.",
		Long: `Run every kernel call a second time on another engine, and compare what both wrote with a bound that follows from the
arithmetic of the call. The exit code is 1 when a call is beyond its bound, or none could be compared.

What runs is one training step: of a model with the options of "nncuda-go plan", from the same sources; or of MODEL, a
checkpoint or a run, with its own. With --prompt it is generation by MODEL.`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) > 1 {
				return usagef("got an unexpected extra argument (%s)", arguments[1])
			}
			if len(arguments) == 1 {
				flags.model = filepath.Clean(arguments[0])
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error {
			defer interruptible(command.Context(), std)()
			return flags.run(command, std.out)
		},
	}
	set := command.Flags()
	set.SortFlags = false
	set.StringVar(&flags.reference, "reference", "", "What the calls run on a second time: baseline, a CPU's plainest "+
		"instruction set, or cpu, its widest.  [default: cpu on a GPU, else baseline]")
	set.StringVar(&flags.isa, "isa", "", "Instruction set of the CPU that is checked: "+strings.Join(isaNames(), ", ")+
		".  [default: the widest]")
	set.StringVar(&flags.config, "config", "", "A TOML file.")
	set.StringVar(&flags.preset, "preset", "", presetHelp())
	set.StringVar(&flags.prompt, "prompt", "", "Generate from this with MODEL, greedily, instead of training.")
	set.BoolVar(&flags.ids, "ids", false, "The prompt is token ids; no tokenizer is needed.")
	set.IntVar(&flags.maxTokens, "max-tokens", 16, "With --prompt, tokens to generate.")
	set.BoolVar(&flags.best, "best", false, "For a run, use the checkpoint with the lowest held-out loss instead of the last.")
	flags.device.add(set)
	set.StringVar(&flags.json, "json", "", "A file to write what was found to, for programs.")
	flags.options = addOptionFlags(set)
	return command
}

// isaNames are the instruction sets that --isa takes.
func isaNames() []string {
	var names []string
	for _, isa := range cuda.ISAs() {
		names = append(names, isa.String())
	}
	return names
}

// check refuses wrong values of flags, before anything is opened.
func (f *shadowFlags) check(command *cobra.Command) error {
	set := command.Flags()
	f.generates = set.Changed("prompt")
	switch {
	case f.reference == "f64":
		return usagef("nncuda-go has no --reference f64; the Python package has it: nncuda shadow --reference f64")
	case set.Changed("reference") && f.reference != "baseline" && f.reference != "cpu":
		return usagef("invalid value for '--reference': '%s' is not one of baseline, cpu", f.reference)
	case set.Changed("isa") && !slices.Contains(isaNames(), f.isa):
		return usagef("invalid value for '--isa': '%s' is not one of %s", f.isa, strings.Join(isaNames(), ", "))
	case f.maxTokens < 1:
		return usagef("invalid value for '--max-tokens': %d is not at least 1", f.maxTokens)
	case (f.generates || f.best) && f.model == "":
		return usagef("--prompt and --best need MODEL, a checkpoint or the folder of a run")
	}
	if err := f.device.check(command); err != nil {
		return err
	}
	if err := checkPreset(f.preset); err != nil {
		return err
	}
	if err := requireGiven(set, "config", f.config, filePath); err != nil {
		return err
	}
	if set.Changed("json") {
		if err := requireRoom("--json", f.json); err != nil {
			return err
		}
	}
	if f.model == "" {
		return nil
	}
	var given []string
	for _, other := range []string{"config", "preset"} {
		if set.Changed(other) {
			given = append(given, other)
		}
	}
	if given = append(given, f.options.given()...); len(given) > 0 {
		return usagef("MODEL has its own options; leave out --%s", flagName(given[0]))
	}
	return requirePath("MODEL", f.model, anyPath)
}

func (f *shadowFlags) run(command *cobra.Command, out io.Writer) (err error) {
	if err := f.check(command); err != nil {
		return err
	}
	ctx, err := f.device.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	kind, _ := ctx.Device()
	if f.reference == "" {
		f.reference = "baseline"
		if kind == cuda.CUDA {
			f.reference = "cpu"
		}
	}
	if f.isa != "" {
		if kind == cuda.CUDA {
			return usagef("--isa is for --device cpu")
		}
		isa, err := cuda.ParseISA(f.isa)
		if err == nil {
			err = ctx.SetISA(isa)
		}
		if err != nil {
			return err
		}
	}
	on := deviceFlags{device: "cpu", threads: f.device.threads}
	reference, err := on.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reference.Close()) }()
	if f.reference == "baseline" {
		if err := reference.SetISA(cuda.Baseline); err != nil {
			return err
		}
	}
	told, err := f.shadow(command.Context(), ctx, reference)
	if err != nil {
		return err
	}
	if f.json != "" {
		if err := f.write(ctx, told); err != nil {
			return err
		}
	}
	if err := showShadow(out, told, f.reference); err != nil {
		return err
	}
	return verdict(told)
}

// verdict is what is wrong with what a shadow run found.
func verdict(told *cuda.Shadow) error {
	switch {
	case told.Over > 0:
		return &checkError{fmt.Sprintf("%d of %d calls are beyond their bound", told.Over, told.Compared)}
	case told.Compared == 0:
		return &checkError{"no call could be compared"}
	}
	return nil
}

// shadow runs what is asked for.
func (f *shadowFlags) shadow(stop context.Context, ctx, reference *cuda.Context) (told *cuda.Shadow, err error) {
	if f.model == "" {
		file, err := readConfigFile(f.config)
		if err != nil {
			return nil, err
		}
		config, options, err := buildConfigs(file, f.preset, *f.options, presetVocabulary(file, f.preset))
		if err != nil {
			return nil, err
		}
		made, err := model.New(ctx, config, options.Precision, options.Seed)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, made.Close()) }()
		trainer, err := train.NewTrainer(made, options)
		if err != nil {
			return nil, err
		}
		told, err = shadowStep(trainer, reference)
		return told, errors.Join(err, trainer.Close())
	}
	folder, err := train.ResolveCheckpoint(f.model, f.best)
	if err != nil {
		return nil, err
	}
	checkpoint, err := openTrained(folder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, checkpoint.Close()) }()
	if f.generates {
		return f.shadowGeneration(stop, checkpoint, ctx, reference)
	}
	trainer, err := checkpoint.Trainer(ctx)
	if err != nil {
		return nil, err
	}
	told, err = shadowStep(trainer, reference)
	return told, errors.Join(err, trainer.Close(), trainer.Model.Close())
}

// shadowStep does one step on ids that are the same in every language.
func shadowStep(trainer *train.Trainer, reference *cuda.Context) (*cuda.Shadow, error) {
	trainer.NoCapture = true
	batch, length := trainer.Config.BatchSize, trainer.Config.SequenceLength
	var inputs, targets []int32
	for i := range batch * (length + 1) {
		id := int32((31*i*i + 17*i) % trainer.Model.Config.VocabSize)
		if i%(length+1) < length {
			inputs = append(inputs, id)
		}
		if i%(length+1) > 0 {
			targets = append(targets, id)
		}
	}
	return trainer.Model.Context().Shadow(reference, func() error {
		_, err := trainer.TrainStep(inputs, targets, batch)
		return err
	})
}

func (f *shadowFlags) shadowGeneration(
	stop context.Context, checkpoint *train.Checkpoint, ctx, reference *cuda.Context,
) (told *cuda.Shadow, err error) {
	prompt, err := checkpointIDs(checkpoint, f.prompt, f.ids)
	if err != nil {
		return nil, err
	}
	made, err := checkpoint.Model(ctx, model.F32, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	request := infer.Request{
		Prompts: [][]int32{prompt}, MaxNewTokens: f.maxTokens, EndID: infer.NoToken, NoCapture: true,
	}
	return ctx.Shadow(reference, func() error {
		for _, err := range infer.Batch(stop, made, request) {
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// write writes what was found as JSON: what was compared, then the library's result.
func (f *shadowFlags) write(ctx *cuda.Context, told *cuda.Shadow) error {
	found := struct {
		Device    string  `json:"device"`
		ISA       *string `json:"isa"`
		Reference string  `json:"reference"`
		*cuda.Shadow
	}{Device: deviceText(ctx), Reference: f.reference, Shadow: told}
	if kind, _ := ctx.Device(); kind == cuda.CPU {
		isa, err := ctx.ISA()
		if err != nil {
			return err
		}
		found.ISA = &isa
	}
	return formats.WriteJSON(f.json, found)
}

// showShadow writes what was found for people.
func showShadow(out io.Writer, told *cuda.Shadow, reference string) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "kernel\tcalls\tcompared\tover\tlargest share\n")
	for _, kernel := range told.Kernels {
		share := "-"
		if kernel.Largest != nil && kernel.Largest.Share != nil {
			share = fmt.Sprintf("%.3g", *kernel.Largest.Share)
		} else if kernel.Largest != nil {
			share = "beyond"
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\n", kernel.Kernel, kernel.Calls, kernel.Compared, kernel.Over, share)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d calls, %d compared with %s, %d moves of bytes.\n",
		told.Calls, told.Compared, reference, told.Moves)
	for _, kernel := range told.Kernels {
		if kernel.Why != nil {
			fmt.Fprintf(out, "%s was not compared: %s\n", kernel.Kernel, *kernel.Why)
		}
	}
	if first := told.First; first != nil {
		_, err = fmt.Fprintf(out, "First beyond its bound: call %d, %s: %s %s at %s is %s, the reference has %s; bound %.3g.\n",
			first.Call, first.In(), first.Argument, extents(first.Shape), extents(first.Index),
			first.Value, first.Reference, first.Bound)
	}
	return err
}

// extents are whole numbers as "[3, 4]".
func extents(numbers []int) string {
	return strings.ReplaceAll(fmt.Sprint(numbers), " ", ", ")
}
