package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/plan"
	"github.com/nncuda/nncuda/go/train"
	"github.com/spf13/cobra"
)

// sizeValue is a number of bytes: "141GB" (10^9), "24GiB" (2^30), "5e9"; -1 until the flag is given.
type sizeValue int

var (
	sizeNotation = regexp.MustCompile(`^([0-9]+(?:\.[0-9]*)?(?:e[0-9]{1,2})?) ?([a-z]*)$`)
	sizeUnits    = map[string]float64{
		"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
		"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	}
)

func (v *sizeValue) String() string { return "" }
func (v *sizeValue) Type() string   { return "size" }

func (v *sizeValue) Set(text string) error {
	parts := sizeNotation.FindStringSubmatch(strings.ToLower(text))
	if parts != nil {
		number, err := strconv.ParseFloat(parts[1], 64)
		unit, known := sizeUnits[parts[2]]
		if size := number * unit; err == nil && known && size < math.MaxInt64 {
			*v = sizeValue(size)
			return nil
		}
	}
	return fmt.Errorf("%s is not a number of bytes, such as 141GB or 24GiB", formats.Shown(text))
}

// planFlags are the flags of `plan` beside those of the options.
type planFlags struct {
	config, preset, data string
	from                 string
	inference, asJSON    bool
	prompt               int
	device               deviceFlags
	available            sizeValue
	ranks, experts       int
	growth               bool
	link                 sizeValue
	options              *optionFlags
}

func newPlan(std streams) *cobra.Command {
	flags := &planFlags{available: -1, link: -1}
	command := &cobra.Command{
		Use:   "plan [flags]",
		Short: "Show how much memory training or generation will need.",
		Long: `Show how much memory training or generation will need on a device, whether the device has it, and how many
operations and bytes a step or the next token takes. Of a GPU that is named, also the least time.

Options are those of "nncuda-go train", from the same sources. No part of the model is created.`,
		Args: exactArguments(),
		RunE: func(command *cobra.Command, _ []string) error {
			defer interruptible(command.Context(), std)()
			if err := flags.check(command); err != nil {
				return err
			}
			return flags.run(std.out)
		},
	}
	set := command.Flags()
	set.SortFlags = false
	set.StringVar(&flags.config, "config", "", "A TOML file.")
	set.StringVar(&flags.preset, "preset", "", presetHelp())
	set.StringVar(&flags.data, "data", "", "A token shard, whose vocabulary size the model gets.")
	set.StringVar(&flags.from, "from", "",
		"The model that training begins with, as of train --from, in place of preset and data: it is planned for, its "+
			"weights are not read.")
	set.BoolVar(&flags.inference, "inference", false,
		"Plan generation: --batch-size sequences of --context tokens.")
	set.IntVar(&flags.prompt, "prompt", 0, "With --inference, the longest prompt.  [default: --context]")
	flags.device.addWith(set, "Number of worker threads; each needs scratch memory of its own.  [default: all cores]")
	names := make([]string, len(plan.Devices))
	for at, device := range plan.Devices {
		names[at] = device.Name
	}
	set.Lookup("device").Usage += " Or the name of a GPU that need not be here: " + strings.Join(names, ", ") + "."
	set.Var(&flags.available, "available",
		"Plan for a device with this much free memory; a GPU need not be present.")
	set.IntVar(&flags.ranks, "ranks", 0,
		"Plan training on so many ranks, up to --replicas, for the rank that needs the most memory.")
	addExpertParallel(set, &flags.experts)
	set.BoolVar(&flags.growth, "growth", false,
		"With --ranks, also a table of what changes with the number of ranks.")
	set.Var(&flags.link, "link",
		"With --ranks and a GPU by its name, bytes a second that a rank sends, such as 50GB, for the time of a step.")
	set.BoolVar(&flags.asJSON, "json", false, "Write JSON, for programs.")
	flags.options = addOptionFlags(set)
	return command
}

// check refuses wrong values of flags, before anything is opened.
func (f *planFlags) check(command *cobra.Command) error {
	if err := f.device.check(command); err != nil {
		return err
	}
	if err := checkPreset(f.preset); err != nil {
		return err
	}
	if err := requireGiven(command.Flags(), "config", f.config, filePath); err != nil {
		return err
	}
	if err := requireGiven(command.Flags(), "data", f.data, anyPath); err != nil {
		return err
	}
	if err := requireGiven(command.Flags(), "from", f.from, anyPath); err != nil {
		return err
	}
	if f.from != "" && (f.preset != "" || f.data != "") {
		return usagef("--from gives the sizes of the model; leave out --preset and --data")
	}
	if command.Flags().Changed("prompt") {
		if f.prompt < 1 {
			return usagef("invalid value for '--prompt': %d is not in the range x>=1", f.prompt)
		}
		if !f.inference {
			return usagef("--prompt is for --inference")
		}
	}
	if f.experts != 1 && !command.Flags().Changed("ranks") {
		return usagef("--expert-parallel is for --ranks")
	}
	return f.checkRanks(command.Flags().Changed("ranks"))
}

// planned is what was planned, for what, and what would make it fit.
type planned struct {
	model   model.Config
	memory  plan.Memory
	work    plan.Work
	what    string   // the work is of
	seconds *float64 // nil where the device is not known by its name
	device  string
	free    int
	ways    []plan.Way
	jobs    []job // with --ranks, what is planned is the last one; those before it are there with --growth
	growth  bool
}

func (f *planFlags) run(out io.Writer) error {
	found := planned{device: f.device.device}
	modelConfig, trainConfig, capacity, err := f.configs()
	if err != nil {
		return err
	}
	found.model = modelConfig
	machine, free, err := f.machine()
	if err != nil {
		return err
	}
	found.free = free
	if f.inference {
		err = f.planInference(&found, trainConfig, machine, capacity)
	} else {
		err = f.planTraining(&found, trainConfig, machine)
	}
	if err != nil {
		return err
	}
	if device := deviceOf(f.device.device); device != nil {
		seconds := found.work.Seconds(*device, trainConfig.Precision)
		found.seconds = &seconds
	}
	if f.asJSON {
		return printDocument(out, found.object())
	}
	return found.show(out)
}

func (f *planFlags) planInference(
	found *planned, options train.Config, machine cuda.Machine, capacity int,
) (err error) {
	prompt := f.prompt
	if prompt == 0 {
		prompt = capacity
	}
	config, precision, batch := found.model, options.Precision, options.BatchSize
	if found.memory, err = plan.Inference(config, precision, machine, batch, capacity, prompt); err != nil {
		return err
	}
	found.what = "the next token"
	found.work, err = plan.InferenceWork(config, precision, machine, batch, capacity)
	return err
}

// deviceOf is the GPU that is known by a name, nil where none is.
func deviceOf(name string) *plan.Device {
	at := slices.IndexFunc(plan.Devices, func(device plan.Device) bool { return device.Name == name })
	if at < 0 {
		return nil
	}
	return &plan.Devices[at]
}

// configs gives the options, and with --inference the tokens of a sequence.
func (f *planFlags) configs() (modelConfig model.Config, trainConfig train.Config, capacity int, err error) {
	file, err := readConfigFile(f.config)
	if err != nil {
		return modelConfig, trainConfig, 0, err
	}
	given := *f.options
	at := func(option string) *optionValue {
		return given[slices.IndexFunc(given, func(flag *optionValue) bool { return flag.field.Name == option })]
	}
	var reach any
	if f.inference {
		reach, at("context").value = at("context").value, nil
		table := file.table("train")
		if at("batch_size").value == nil && !table.Has("batch_size") {
			at("batch_size").value = int64(1)
		}
	}
	modelConfig, trainConfig, err = f.described(file, given)
	if err == nil && trainConfig.LoraRank > 0 {
		err = fmt.Errorf("lora_rank is %d; runs that train an adapter are not planned", trainConfig.LoraRank)
	}
	capacity = modelConfig.Context
	if number, whole := reach.(int64); whole {
		capacity = int(number)
	} else if reach != nil && err == nil {
		err = fmt.Errorf("context is %s; it must be a whole number of 64 bits", formats.Shown(reach))
	}
	return modelConfig, trainConfig, capacity, err
}

// described gives the options of a run, whose model is that of --from where there is one.
func (f *planFlags) described(
	file *configFile, given optionFlags,
) (modelConfig model.Config, trainConfig train.Config, err error) {
	if f.from == "" {
		vocab, err := f.vocabulary(file)
		if err != nil {
			return modelConfig, trainConfig, err
		}
		return buildConfigs(file, f.preset, given, vocab)
	}
	origin, err := train.DescribedOrigin(f.from)
	if err != nil {
		return modelConfig, trainConfig, err
	}
	defer origin.Close() // read only: nothing can be lost
	return begunConfigs(file, given, origin)
}

// vocabulary is that of the data where there are some, else that of the preset.
func (f *planFlags) vocabulary(file *configFile) (int, error) {
	data := f.data
	if named, text := file.table("data").Get("data").(string); data == "" && text {
		data = file.relative(named)
	}
	if data != "" {
		return vocabularyOf(data)
	}
	return presetVocabulary(file, f.preset), nil
}

// presetVocabulary is that of the preset that is named, or that a file names; the default one's if there is none.
func presetVocabulary(file *configFile, preset string) int {
	if named, text := file.table("model").Get("preset").(string); preset == "" && text {
		preset = named
	}
	sizes, err := model.Preset(preset)
	if err != nil {
		sizes, _ = model.Preset(model.UsualPreset)
	}
	return sizes.VocabSize
}

var gpu = regexp.MustCompile(`^cuda(:[0-9]+)?$`)

// usualGPU is what is planned for where no GPU is here: an H100.
var usualGPU = cuda.Machine{Device: cuda.CUDA, Capability: 90}

// machine gives the device to plan for, and the memory that is free.
func (f *planFlags) machine() (machine cuda.Machine, free int, err error) {
	if device := deviceOf(f.device.device); device != nil {
		if free = device.Memory; f.available >= 0 {
			free = int(f.available)
		}
		return device.Machine, free, nil
	}
	if f.available >= 0 && gpu.MatchString(f.device.device) {
		return usualGPU, int(f.available), nil
	}
	ctx, err := f.device.open()
	if err != nil {
		return machine, 0, err
	}
	machine, err = ctx.Machine()
	free = int(f.available)
	if f.available < 0 && err == nil {
		free, err = freeMemory(ctx)
	}
	return machine, free, errors.Join(err, ctx.Close())
}

func freeMemory(ctx *cuda.Context) (int, error) {
	free, _, err := ctx.MemoryInfo()
	return int(free), err
}

// requireFit is a *train.DoesNotFitError, with up to three computed ways out, when a rank of a run needs more than its
// device has free.
func requireFit(ctx *cuda.Context, seat plan.Seat, config model.Config, options train.Config, heldOut bool) error {
	if options.LoraRank > 0 { // of a run that trains an adapter that is not known
		return nil
	}
	free, err := freeMemory(ctx)
	if err != nil {
		return err
	}
	return requireFitIn(free, ctx, seat, config, options, heldOut)
}

func requireFitIn(
	free int, ctx *cuda.Context, seat plan.Seat, config model.Config, options train.Config, heldOut bool,
) error {
	machine, err := ctx.Machine()
	if err != nil {
		return err
	}
	memory, err := plan.TrainingAt(seat, config, options, machine, heldOut)
	needs := bytesText(memory.Held)
	switch {
	case errors.Is(err, plan.ErrTooLarge):
		needs = "more memory than any machine has"
	case err != nil || memory.Held <= free:
		return err
	}
	ways, least, err := plan.WaysToFit(config, options, machine, seat, free, heldOut)
	if err != nil {
		return err
	}
	problem := fmt.Sprintf("this run needs %s; %s has %s free.", needs, deviceText(ctx), bytesText(free))
	if len(ways) > 0 {
		texts := make([]string, len(ways))
		for at, way := range ways {
			texts[at] = wayText(way)
		}
		problem += " It fits with " + strings.Join(texts, "; or with ") + "."
	} else {
		if least != nil {
			problem += fmt.Sprintf(" The least that options can reach is %s: the model itself is too large.", wayText(*least))
		}
		smaller, err := usualRun(machine)
		if err != nil {
			return err
		}
		if smaller <= free {
			problem += fmt.Sprintf(" A model that fits is --preset %s (%s).", model.UsualPreset, bytesText(smaller))
		}
	}
	return &train.DoesNotFitError{Sentence: problem + " --start-anyway starts it nevertheless"}
}

// usualRun is the memory that the usual preset takes.
func usualRun(machine cuda.Machine) (int, error) {
	config, err := model.Preset(model.UsualPreset)
	if err != nil {
		return 0, err
	}
	options, err := train.Preset(model.UsualPreset)
	if err != nil {
		return 0, err
	}
	memory, err := plan.Training(config, options, machine, true)
	return memory.Held, err
}

func wayText(way plan.Way) string {
	var flags []string
	for _, change := range way.Changes {
		switch flag := "--" + flagName(change.Option); change.Value {
		case true:
			flags = append(flags, flag)
		case false:
		default:
			flags = append(flags, fmt.Sprint(flag, " ", change.Value))
		}
	}
	return fmt.Sprintf("%s (%s)", strings.Join(flags, " "), bytesText(way.Held))
}

// object is the plan for programs.
func (p planned) object() *formats.Object {
	counts, bytes := formats.NewObject(), formats.NewObject()
	for _, count := range plan.Parameters(p.model) {
		counts.Set(count.Kind, formats.NewObject("total", count.Total, "active", count.Active))
	}
	for _, kind := range plan.Kinds() {
		bytes.Set(kind.String(), p.memory.Bytes[kind])
	}
	ways, work := make([]any, len(p.ways)), p.work.Sum()
	for at, way := range p.ways {
		options := formats.NewObject()
		for _, change := range way.Changes {
			options.Set(change.Option, change.Value)
		}
		ways[at] = formats.NewObject("options", options, "bytes", way.Held)
	}
	object := formats.NewObject(
		"parameters", formats.NewObject(
			"total", p.model.NumParameters(), "active", p.model.NumActiveParameters(), "kinds", counts,
		),
		"device", p.device, "bytes", bytes, "peak", p.memory.Peak, "held", p.memory.Held, "free", p.free,
		"fits", p.memory.Held <= p.free, "ways", ways,
		"work", formats.NewObject("flops", work.Flops, "bytes", work.Bytes, "seconds", p.secondsOrNone()),
	)
	p.addJobs(object)
	return object
}

// show writes the plan for people.
func (p planned) show(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "parameters\ttotal\tactive per token\n")
	for _, count := range plan.Parameters(p.model) {
		fmt.Fprintf(table, "%s\t%s\t%s\n", count.Kind, countText(count.Total), countText(count.Active))
	}
	total, active := countText(p.model.NumParameters()), countText(p.model.NumActiveParameters())
	fmt.Fprintf(table, "all\t%s\t%s\n\n", total, active)
	fmt.Fprintf(table, "memory of %s at the peak\tsize\n", p.device)
	for _, kind := range plan.Kinds() {
		if size := p.memory.Bytes[kind]; size > 0 {
			fmt.Fprintf(table, "%s\t%s\n", kind.Text(), bytesText(size))
		}
	}
	fmt.Fprintf(table, "peak\t%s\n", bytesText(p.memory.Peak))
	if p.memory.Held != p.memory.Peak {
		fmt.Fprintf(table, "peak, in the pages of the device\t%s\n", bytesText(p.memory.Held))
	}
	fmt.Fprintf(table, "free\t%s\n\n", bytesText(p.free))
	if err := table.Flush(); err != nil {
		return err
	}
	if p.memory.Held <= p.free {
		fmt.Fprintf(out, "It fits, with %s to spare.\n", bytesText(p.free-p.memory.Held))
	} else {
		fmt.Fprintf(out, "It does not fit: %s more are needed.\n", bytesText(p.memory.Held-p.free))
	}
	for _, way := range p.ways {
		fmt.Fprintf(out, "It fits with %s.\n", wayText(way))
	}
	work, least := p.work.Sum(), ""
	if p.seconds != nil {
		least = fmt.Sprintf(": at the peak of %s, %.3g s", p.device, *p.seconds)
	}
	_, err := fmt.Fprintf(out, "%s takes %.3g operations and moves %s%s.\n", strings.ToUpper(p.what[:1])+p.what[1:],
		float64(work.Flops), bytesText(work.Bytes), least)
	return errors.Join(err, p.showJobs(out))
}

func (p planned) secondsOrNone() any {
	if p.seconds == nil {
		return nil
	}
	return *p.seconds
}
