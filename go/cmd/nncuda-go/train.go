package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/plan"
	"github.com/nncuda/nncuda/go/tokenizer"
	"github.com/nncuda/nncuda/go/train"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
)

// trainFlags are the flags of `train` beside those of the options.
type trainFlags struct {
	config, preset, data, heldOut, tokenizer, from string
	withOptimizer, resume, extend, startAnyway     bool
	device                                         deviceFlags
	ranks                                          rankFlags
	options                                        *optionFlags
}

func newTrain(std streams) *cobra.Command {
	flags := &trainFlags{}
	command := &cobra.Command{
		Use:   "train [flags] RUN",
		Short: "Start or resume a training run.",
		Long: `Train a model in the folder RUN.

Options come from --preset (with the vocabulary of the data), overridden by a TOML file with the tables [model]
(also "preset"), [train] and [data] ("data", "held_out", "tokenizer"), overridden by the flags. A run may be
interrupted or even killed: --resume continues from the last checkpoint, to the same bits as a run that never
stopped. SIGINT or SIGTERM ends it after the current step, with a checkpoint; a second one ends it at once.

--extend --steps N makes a run longer; the other options of its learning rate may change, too. The cosine is then
stretched to the new end, so that the rate jumps; a line on standard error says how.

--from MODEL begins with trained weights instead of random ones. The sizes of the model are those there; other
values of its options are refused, but for --capacity-factor and --aux-alpha. Options of training begin at their
defaults, not at a preset's, with 1000 steps and a rate of 5e-5. Checkpoints are folders, whatever MODEL is.

--from MODEL --lora-rank R trains an adapter (LoRA) and leaves the model as it is stored: a dense Llama, Mistral or
Qwen, a folder or a GGUF file in any format. Checkpoints are folders of PEFT, which --adapter of other commands
takes, as it takes RUN. The rate is 2e-4 by default.

A run that needs more memory than the device has free ("nncuda-go plan") is not started.

Several ranks share out a run with --replicas: "mpiexec -n 4 nncuda-go train RUN ...". The first one talks. With
--expert-parallel each holds only some of the experts. How many there are changes no bit; --resume may have others.

If standard output is not a terminal, the lines of RUN/metrics.jsonl are written to it as they come, and nothing else.`,
		Args: func(command *cobra.Command, arguments []string) error {
			return beforeJoining(exactArguments("RUN")(command, arguments))
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			return flags.run(command, filepath.Clean(arguments[0]), std)
		},
	}
	command.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return beforeJoining(wrongFlag(command, err))
	})
	set := command.Flags()
	set.SortFlags = false
	set.StringVar(&flags.config, "config", "", "A TOML file.")
	set.StringVar(&flags.preset, "preset", "", presetHelp())
	set.StringVar(&flags.data, "data", "", "A token shard, or a folder of them.")
	set.StringVar(&flags.heldOut, "held-out", "", "The same, for evaluation.")
	set.StringVar(&flags.tokenizer, "tokenizer", "", "The tokenizer of the data, which is saved with the checkpoints.")
	set.StringVar(&flags.from, "from", "",
		"Begin with weights and tokenizer of a checkpoint, a run, a Mixtral, Llama, Mistral or Qwen of Hugging Face, or a "+
			"GGUF file of one in f32, f16 or bf16; with --lora-rank, train beside any of these.")
	set.BoolVar(&flags.withOptimizer, "with-optimizer", false,
		"With --from: also with the moments, the step and the loss scale of that checkpoint.")
	set.BoolVar(&flags.resume, "resume", false,
		"Resume the run from its last checkpoint, with its original options.")
	set.BoolVar(&flags.extend, "extend", false,
		"Continue the run, finished or not, up to a larger number of --steps; run.json records it.")
	flags.device.add(set)
	flags.ranks.add(set)
	set.BoolVar(&flags.startAnyway, "start-anyway", false,
		"Start even if the device has less free memory than the run needs.")
	flags.options = addOptionFlags(set)
	return command
}

// check refuses wrong values of flags, before anything is opened.
func (f *trainFlags) check(command *cobra.Command, folder string) error {
	if err := f.device.check(command); err != nil {
		return err
	}
	if err := f.ranks.check(); err != nil {
		return err
	}
	if err := checkPreset(f.preset); err != nil {
		return err
	}
	for _, path := range []struct {
		name, value string
		kind        int
	}{
		{"config", f.config, filePath}, {"data", f.data, anyPath},
		{"held-out", f.heldOut, anyPath}, {"tokenizer", f.tokenizer, filePath}, {"from", f.from, anyPath},
	} {
		if err := requireGiven(command.Flags(), path.name, path.value, path.kind); err != nil {
			return err
		}
	}
	if info, err := os.Stat(folder); err == nil && !info.IsDir() {
		return usagef("invalid value for 'RUN': directory '%s' is a file", folder)
	}
	if !f.resume && !f.extend {
		return f.checkFrom()
	}
	if f.resume && f.extend {
		return usagef("--resume continues a run as it is, --extend makes it longer; give one of them")
	}
	verb, changeable := "resume", train.Changeable()
	if f.extend {
		verb, changeable = "extend", append(train.Schedule(), changeable...)
	}
	given := f.options.given()
	for _, other := range []struct{ name, value string }{
		{"config", f.config}, {"preset", f.preset}, {"tokenizer", f.tokenizer}, {"from", f.from},
	} {
		if other.value != "" {
			given = append(given, other.name)
		}
	}
	if f.withOptimizer {
		given = append(given, "with_optimizer")
	}
	for _, name := range given {
		if !slices.Contains(changeable, name) {
			return usagef("--%s keeps the options of the run; leave out --%s. It takes %s",
				verb, flagName(name), flagList(append(changeable, "device", "threads", "data", "held_out")))
		}
	}
	if f.extend && !slices.Contains(given, "steps") {
		return usagef("--extend needs --steps, the new total")
	}
	return nil
}

// checkFrom refuses what does not go with --from, or needs it.
func (f *trainFlags) checkFrom() error {
	switch {
	case f.from == "" && f.withOptimizer:
		return usagef("--with-optimizer needs --from, the checkpoint that has its state")
	case f.from != "" && f.preset != "":
		return usagef("--from gives the sizes of the model; leave out --preset")
	}
	return nil
}

// checkAdapter refuses what does not go with --lora-rank; `tokens` is the path of a tokenizer.
func (f *trainFlags) checkAdapter(tokens string) error {
	switch {
	case f.from == "":
		return usagef("--lora-rank needs --from, the model beside which an adapter is trained")
	case f.withOptimizer:
		return usagef("--lora-rank begins with an optimizer of its own; leave out --with-optimizer")
	case tokens != "":
		return usagef("the tokenizer stays with the model of --from; leave out --tokenizer")
	}
	return nil
}

// flagList names the flags of options in a sentence.
func flagList(options []string) string {
	flags := make([]string, len(options))
	for at, name := range options {
		flags[at] = "--" + flagName(name)
	}
	last := len(flags) - 1
	return strings.Join(flags[:last], ", ") + " and " + flags[last]
}

func (f *trainFlags) run(command *cobra.Command, folder string, std streams) error {
	if err := f.check(command, folder); err != nil {
		return beforeJoining(err)
	}
	stop := interruptible(command.Context(), std)
	defer stop()
	f.device.device = localDevice(f.device.device)
	ctx, err := f.device.open()
	if err != nil {
		return beforeJoining(err)
	}
	comm, err := f.ranks.join(ctx)
	if err != nil {
		return errors.Join(err, ctx.Close())
	}
	open := f.start
	if f.resume || f.extend {
		open = f.reopen
	}
	run, err := open(ctx, folder, comm)
	if err != nil {
		return errors.Join(train.TellFailure(comm, err), comm.Close(), ctx.Close())
	}
	if run.Notice != "" && isFirst(comm) {
		fmt.Fprintln(std.err, run.Notice)
	}
	stopping, release := stoppable(command.Context())
	defer release()
	stop() // from here on a signal saves first
	if isFirst(comm) {
		err = runToEnd(stopping, run, std)
	} else {
		err = f.ranks.runAside(stopping, run, comm, std)
	}
	if errors.Is(err, context.Canceled) {
		if done, steps := run.Trainer.Step(), run.Trainer.Config.Steps; isFirst(comm) {
			fmt.Fprintf(std.err, "stopped after step %d of %d; --resume continues from there\n", done, steps)
		}
		err = nil
	}
	return errors.Join(err, run.Close(), comm.Close(), ctx.Close())
}

func (f *trainFlags) start(ctx *cuda.Context, folder string, comm *cuda.Comm) (*train.Run, error) {
	file, err := readConfigFile(f.config)
	if err != nil {
		return nil, err
	}
	data, heldOut, tokens, err := f.paths(file)
	if err != nil {
		return nil, err
	}
	more := f.ranks.options(comm)
	var modelConfig model.Config
	var trainConfig train.Config
	adapter := trainsAdapter(file, *f.options)
	if adapter {
		if err := f.checkAdapter(tokens); err != nil {
			return nil, err
		}
	}
	if f.from != "" {
		open := func() (*train.Origin, error) { return train.OpenOrigin(f.from, f.withOptimizer) }
		if adapter {
			open = func() (*train.Origin, error) { return train.OpenAdapterOrigin(f.from) }
		}
		origin, err := open()
		if err != nil {
			return nil, err
		}
		defer origin.Close() // read only: nothing can be lost
		if tokens != "" && origin.HasTokenizer() {
			return nil, usagef("the tokenizer of %s comes along; leave out --tokenizer", f.from)
		}
		if modelConfig, trainConfig, err = begunConfigs(file, *f.options, origin); err != nil {
			return nil, err
		}
		more = append(more, train.WithOrigin(origin))
	} else {
		vocab, err := vocabularyOf(data)
		if err != nil {
			return nil, err
		}
		if modelConfig, trainConfig, err = buildConfigs(file, f.preset, *f.options, vocab); err != nil {
			return nil, err
		}
	}
	if !f.startAnyway {
		if err := requireFit(ctx, plan.SeatOf(comm, f.ranks.experts), modelConfig, trainConfig, heldOut != ""); err != nil {
			return nil, err
		}
	}
	var made *tokenizer.Tokenizer
	if tokens != "" {
		if made, err = tokenizer.Open(tokens); err != nil {
			return nil, err
		}
	}
	return train.StartRun(ctx, folder, modelConfig, trainConfig, data, heldOut, made, more...)
}

// paths gives data, held-out data and tokenizer: from the flags, else from the file's [data], relative to the file.
func (f *trainFlags) paths(file *configFile) (data, heldOut, tokens string, err error) {
	chosen := map[string]string{"data": f.data, "held_out": f.heldOut, "tokenizer": f.tokenizer}
	if file != nil && file.tables["data"] != nil {
		table := file.tables["data"]
		for _, name := range table.Names() {
			path, text := table.Get(name).(string)
			flag, known := chosen[name]
			if !text || !known {
				problem := "[data] has %s; it may have data, held_out and tokenizer, as text"
				return "", "", "", file.wrong(fmt.Sprintf(problem, formats.Shown(name)), "data", name)
			}
			if flag == "" {
				chosen[name] = file.relative(path)
			}
		}
	}
	if chosen["data"] == "" {
		return "", "", "", usagef("say what to train on: --data, or `data` under [data] in the --config file")
	}
	return chosen["data"], chosen["held_out"], chosen["tokenizer"], nil
}

func vocabularyOf(data string) (int, error) {
	shards, err := train.OpenShards(data)
	if err != nil {
		return 0, err
	}
	return shards[0].VocabSize, nil
}

func (f *trainFlags) reopen(ctx *cuda.Context, folder string, comm *cuda.Comm) (*train.Run, error) {
	sources, err := train.ReadSources(folder)
	if err != nil {
		return nil, err
	}
	if f.data != "" {
		sources.Data = f.data
	}
	if f.heldOut != "" {
		sources.HeldOut = f.heldOut
	}
	changes := formats.NewObject()
	for _, flag := range *f.options {
		switch flag.value {
		case nil:
		case "none":
			changes.Set(flag.field.Name, nil)
		default:
			changes.Set(flag.field.Name, flag.value)
		}
	}
	var admit train.Admission
	if !f.startAnyway {
		admit = func(config model.Config, options train.Config) error {
			return requireFit(ctx, plan.SeatOf(comm, f.ranks.experts), config, options, sources.HeldOut != "")
		}
	}
	open := train.ResumeAdmitted
	if f.extend {
		open = train.ExtendRun
	}
	return open(ctx, folder, sources.Data, sources.HeldOut, changes, admit, f.ranks.options(comm)...)
}

// runToEnd trains with a progress bar on a terminal; elsewhere the output gets the lines of metrics.jsonl.
func runToEnd(ctx context.Context, run *train.Run, std streams) error {
	if !isTerminal(std.out) {
		run.OnRecord = func(record *formats.Object) error {
			return printObject(std.out, record, true)
		}
		return run.Train(ctx)
	}
	config := run.Trainer.Model.Config
	if run.Trainer.Model.LowRank != nil {
		fmt.Fprintf(std.out, "an adapter of %s beside ", countText(run.Trainer.Model.Layout.Size))
	}
	fmt.Fprintf(std.out, "%s parameters, %s active per token; %s tokens to train on\n", countText(config.NumParameters()),
		countText(config.NumActiveParameters()), countText(run.Data.Count*run.Data.Length))
	steps := run.Trainer.Config.Steps
	bar := progressbar.NewOptions(steps,
		progressbar.OptionSetWriter(std.out), progressbar.OptionShowCount(), progressbar.OptionFullWidth(),
		progressbar.OptionSetDescription("training"), progressbar.OptionSetPredictTime(true))
	_ = bar.Set(run.Trainer.Step()) // what the bar could not draw stops no training
	run.OnProgress = func(progress train.Progress) {
		_ = bar.Set(progress.Step)
		bar.Describe("training · " + lossesText(progress))
	}
	err := run.Train(ctx)
	fmt.Fprintln(std.out)
	if err == nil || errors.Is(err, context.Canceled) {
		fmt.Fprintf(std.out, "%d of %d steps; checkpoints in %s\n", run.Trainer.Step(), steps, run.Checkpoints)
	}
	return err
}

func lossesText(progress train.Progress) string {
	heldOut := ""
	if progress.HeldOutLoss != nil {
		heldOut = fmt.Sprintf(", held-out %.3f", *progress.HeldOutLoss)
	}
	skipped := ""
	if progress.SkippedSteps > 0 {
		skipped = fmt.Sprintf(", %d steps skipped", progress.SkippedSteps)
	}
	speed := int(math.Round(progress.TokensPerSecond))
	return fmt.Sprintf("loss %.3f%s%s · %d tokens/s", progress.Loss, heldOut, skipped, speed)
}
