package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/options"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// tables are the tables of a configuration file that hold options, and the fields of each.
var tables = []struct {
	name   string
	fields []options.Field
}{{"model", model.Options()}, {"train", train.Options()}}

// optionValue is the value of an option's flag: nil until the flag is given, the text "none" for none.
type optionValue struct {
	field options.Field
	value any
}

func (v *optionValue) String() string { return "" }

// Type names the kind of the value for the help.
func (v *optionValue) Type() string {
	switch {
	case v.field.Choices != nil:
		return strings.Join(v.field.Choices, "|")
	case v.field.Type == reflect.String:
		return "text"
	case v.field.Type == reflect.Float64 && v.field.None:
		return "float|none"
	case v.field.Type == reflect.Float64:
		return "float"
	case v.field.None:
		return "integer|none"
	}
	return "integer"
}

// Set reads one of the choices, where there are some, else a number, or "none" where the option takes it. What the
// number may be is checked with the other options.
func (v *optionValue) Set(text string) error {
	if v.field.Choices != nil {
		if !slices.Contains(v.field.Choices, text) {
			return fmt.Errorf("'%s' is not one of %s", text, strings.Join(v.field.Choices, ", "))
		}
		v.value = text
		return nil
	}
	if v.field.Type == reflect.String {
		v.value = text
		return nil
	}
	kind := "a whole number"
	if v.field.None {
		if strings.EqualFold(text, "none") {
			v.value = "none"
			return nil
		}
	}
	if v.field.Type == reflect.Float64 {
		if number, err := strconv.ParseFloat(text, 64); err == nil {
			v.value = number
			return nil
		}
		kind = "a number"
	} else if number, err := strconv.ParseInt(text, 10, 64); err == nil {
		v.value = number
		return nil
	} else if errors.Is(err, strconv.ErrRange) {
		v.value = json.Number(text)
		return nil
	}
	if v.field.None {
		return fmt.Errorf("%q is neither a number nor 'none'", text)
	}
	return fmt.Errorf("%q is not %s", text, kind)
}

// truthValue is one of the two flags of an option that is true or false.
type truthValue struct {
	option *optionValue
	means  bool // the value that the flag stands for
}

func (v *truthValue) String() string   { return "" }
func (v *truthValue) Type() string     { return "bool" }
func (v *truthValue) IsBoolFlag() bool { return true }

// Set takes the flag alone; a value after it is refused.
func (v *truthValue) Set(text string) error {
	if text != "true" {
		return fmt.Errorf("it takes no value, but was given %q", text)
	}
	v.option.value = v.means
	return nil
}

// optionFlags are the flags of all options, in their order.
type optionFlags []*optionValue

// addOptionFlags adds a flag for every option of model and training, none of them with a default of its own.
func addOptionFlags(flags *pflag.FlagSet) *optionFlags {
	var added optionFlags
	for _, table := range tables {
		for at, field := range table.fields {
			value := &optionValue{field: field}
			added = append(added, value)
			name := flagName(field.Name)
			help := fmt.Sprintf("[%s] %s  [default: %s]", table.name, field.Help, defaultText(table.name, at))
			if field.Type == reflect.Bool {
				flags.VarPF(&truthValue{value, true}, name, "", help).NoOptDefVal = "true"
				flags.VarPF(&truthValue{value, false}, "no-"+name, "", "["+table.name+"] the opposite").NoOptDefVal = "true"
				continue
			}
			flags.Var(value, name, help)
		}
	}
	return &added
}

func flagName(option string) string { return strings.ReplaceAll(option, "_", "-") }

// given lists the names of the options whose flags were given.
func (f optionFlags) given() []string {
	var names []string
	for _, flag := range f {
		if flag.value != nil {
			names = append(names, flag.field.Name)
		}
	}
	return names
}

// configFile is a TOML file with the tables [model] (with `preset` if wanted), [train] and [data].
type configFile struct {
	path   string
	text   string
	tables map[string]*formats.Object
}

// table gives one of the tables, empty where the file, which may be nil, lacks it.
func (f *configFile) table(name string) *formats.Object {
	if f == nil || f.tables[name] == nil {
		return formats.NewObject()
	}
	return f.tables[name]
}

// readConfigFile reads a file; nil where no path is given.
func readConfigFile(path string) (*configFile, error) {
	if path == "" {
		return nil, nil
	}
	data, err := formats.ReadRegular(path, formats.TOMLBytes)
	if err != nil {
		return nil, err
	}
	for at, line := range bytes.Split(data, []byte("\n")) {
		if len(line) > formats.TOMLLineBytes {
			problem := fmt.Sprintf("line %d has %d bytes; a line may have at most %d", at+1, len(line),
				formats.TOMLLineBytes)
			return nil, &formats.Error{Path: path, Problem: problem}
		}
	}
	var values map[string]any
	meta, err := toml.Decode(string(data), &values)
	if err != nil {
		problem := strings.ReplaceAll(err.Error(), "\n", " ")
		return nil, &formats.Error{Path: path, Problem: fmt.Sprintf("is not TOML (%s)", problem), Cause: err}
	}
	file := &configFile{path: path, text: string(data), tables: make(map[string]*formats.Object)}
	for _, key := range meta.Keys() {
		name := key[0]
		table, ok := values[name].(map[string]any)
		if !ok || (name != "model" && name != "train" && name != "data") {
			problem := fmt.Sprintf("has %s; it may have the tables [model], [train] and [data]", formats.Shown(name))
			return nil, file.wrong(problem, name, "")
		}
		if file.tables[name] == nil {
			file.tables[name] = formats.NewObject()
		}
		if len(key) > 1 && !file.tables[name].Has(key[1]) {
			file.tables[name].Set(key[1], plain(table[key[1]]))
		}
	}
	return file, nil
}

// plain makes what TOML has beyond JSON a text, so that messages can show it.
func plain(value any) any {
	switch value := value.(type) {
	case bool, int64, float64, string:
		return value
	case map[string]any:
		object := formats.NewObject()
		for name, entry := range value {
			object.Set(name, plain(entry))
		}
		return object
	case []any:
		entries := make([]any, len(value))
		for at, entry := range value {
			entries[at] = plain(entry)
		}
		return entries
	}
	return []any{fmt.Sprint(value)} // a date, or tables in a row: no option takes such a thing
}

// presetHelp is the help of --preset.
func presetHelp() string {
	return fmt.Sprintf("Sizes, and training options that fit them, to begin with: %s.  [default: %s]",
		strings.Join(model.Presets(), ", "), model.UsualPreset)
}

// defaultText is what an option is without its flag, as the help says it.
func defaultText(table string, at int) string {
	if tables[0].name == table && tables[0].fields[at].Name == "vocab_size" {
		return "that of the data, else the preset's"
	}
	value := func(preset string) any {
		if table == "model" {
			config, _ := model.Preset(preset) // there is one of each name that is asked for
			return model.Options()[at].Get(&config)
		}
		config, _ := train.Preset(preset)
		return train.Options()[at].Get(&config)
	}
	usual := value(model.UsualPreset)
	text, ok := usual.(string)
	if !ok {
		text = formats.Shown(usual)
	}
	switch usual {
	case nil:
		text = "none"
	case true:
		text = "on"
	case false:
		text = "off"
	}
	if slices.ContainsFunc(model.Presets(), func(name string) bool { return value(name) != usual }) {
		return fmt.Sprintf("the preset's; %s: %s", model.UsualPreset, text)
	}
	return text
}

// trainsAdapter says whether the options say so: they are checked later.
func trainsAdapter(file *configFile, flags optionFlags) bool {
	rank := file.table("train").Get("lora_rank")
	for _, flag := range flags {
		if flag.field.Name == "lora_rank" && flag.value != nil {
			rank = flag.value
		}
	}
	return rank != nil && rank != any(int64(0))
}

// buildConfigs gives the options: from a preset with the data's vocabulary, over them a file's (which may be nil), over
// them the flags that were given.
func buildConfigs(file *configFile, preset string, flags optionFlags, vocab int) (model.Config, train.Config, error) {
	var modelConfig model.Config
	var trainConfig train.Config
	named, values, err := givenOptions(file, flags)
	if err != nil {
		return modelConfig, trainConfig, err
	}
	ofFile := preset == "" && named != nil
	if text, ok := named.(string); preset == "" && ok {
		preset = text
	} else if preset == "" {
		preset = model.UsualPreset
		if named != nil {
			preset = formats.Shown(named)
		}
	}
	modelConfig, err = model.Preset(preset)
	if err == nil {
		trainConfig, err = train.Preset(preset)
	}
	if err != nil {
		if ofFile {
			err = file.wrong(err.Error(), "model", "preset")
		}
		return modelConfig, trainConfig, err
	}
	modelConfig.VocabSize = vocab
	err = modelConfig.Assign(values["model"])
	if err == nil {
		err = modelConfig.Validate()
	}
	if err != nil {
		return modelConfig, trainConfig, file.wrongValue(err, "model", flags)
	}
	if err = trainConfig.Assign(values["train"]); err == nil {
		err = trainConfig.Validate()
	}
	return modelConfig, trainConfig, file.wrongValue(err, "train", flags)
}

// begunConfigs gives the options of a run that begins at `origin`: the model's from there, those of training from a file
// (which may be nil), over them the flags that were given. What contradicts the origin is refused by name.
func begunConfigs(
	file *configFile, flags optionFlags, origin *train.Origin,
) (modelConfig model.Config, trainConfig train.Config, err error) {
	modelConfig, trainConfig = origin.Config, origin.Defaults()
	named, values, err := givenOptions(file, flags)
	if err != nil {
		return modelConfig, trainConfig, err
	}
	if named != nil {
		problem := fmt.Sprintf("preset is %s, but --from gives the sizes of the model", formats.Shown(named))
		return modelConfig, trainConfig, file.wrong(problem, "model", "preset")
	}
	if err = origin.CheckModel(values["model"]); err == nil {
		if err = modelConfig.Assign(values["model"]); err == nil {
			err = modelConfig.Validate()
		}
	}
	if err != nil {
		return modelConfig, trainConfig, file.wrongValue(err, "model", flags)
	}
	if err = trainConfig.Assign(values["train"]); err == nil {
		err = trainConfig.Validate()
	}
	if err == nil {
		err = origin.CheckTraining(trainConfig)
	}
	return modelConfig, trainConfig, file.wrongValue(err, "train", flags)
}

// givenOptions gives the preset of a file, which may be nil, and by table the options of the file and, over them, of the
// flags.
func givenOptions(file *configFile, flags optionFlags) (preset any, values map[string]*formats.Object, err error) {
	values = map[string]*formats.Object{"model": formats.NewObject(), "train": formats.NewObject()}
	if file != nil {
		if err := file.checkNames(); err != nil {
			return nil, nil, err
		}
		for name := range values {
			values[name].Update(file.table(name))
		}
	}
	preset = values["model"].Delete("preset")
	at := 0
	for _, table := range tables {
		for range table.fields {
			if flag := flags.at(at); flag != nil && flag.value != nil {
				values[table.name].Set(flag.field.Name, flag.value)
			}
			at++
		}
		for _, option := range values[table.name].Names() {
			if values[table.name].Get(option) == any("none") {
				values[table.name].Set(option, nil)
			}
		}
	}
	return preset, values, nil
}

// at gives the flag of an option, nil where no flags were made.
func (f optionFlags) at(index int) *optionValue {
	if index < len(f) {
		return f[index]
	}
	return nil
}

// checkPreset refuses a name that no preset has; "" is allowed.
func checkPreset(name string) error {
	if name != "" && !slices.Contains(model.Presets(), name) {
		known := strings.Join(model.Presets(), ", ")
		return usagef("invalid value for '--preset': '%s' is not one of %s", name, known)
	}
	return nil
}

// checkPrecision refuses what no model computes in.
func checkPrecision(name string) error {
	if model.Precision(name).Validate() != nil {
		known := strings.Join(model.Precisions(), ", ")
		return usagef("invalid value for '--precision': '%s' is not one of %s", name, known)
	}
	return nil
}

// deviceFlags are --device and --threads.
type deviceFlags struct {
	device  string
	threads int
}

func (d *deviceFlags) add(flags *pflag.FlagSet) {
	d.addWith(flags, "Number of worker threads, 1 to 256; it does not affect results.  [default: all cores]")
}

func (d *deviceFlags) addWith(flags *pflag.FlagSet, threads string) {
	flags.StringVar(&d.device, "device", "cpu", "cpu, cuda, cuda:INDEX, or auto: a GPU if there is one.")
	flags.IntVar(&d.threads, "threads", 0, threads)
}

// check refuses a number of threads that no context has.
func (d *deviceFlags) check(command *cobra.Command) error {
	if command.Flags().Changed("threads") && (d.threads < 1 || d.threads > 256) {
		return usagef("invalid value for '--threads': %d is not in the range 1 to 256", d.threads)
	}
	return nil
}

func (d *deviceFlags) open() (*cuda.Context, error) {
	var options []cuda.Option
	if d.threads > 0 {
		options = append(options, cuda.WithThreads(d.threads))
	}
	return cuda.New(d.device, options...)
}

// deviceText is the device of a context as --device names it.
func deviceText(ctx *cuda.Context) string {
	kind, index := ctx.Device()
	if kind == cuda.CPU {
		return "cpu"
	}
	return fmt.Sprintf("cuda:%d", index)
}

// Kinds of paths that arguments name.
const (
	anyPath = iota
	filePath
	folderPath
)

// requireGiven is requirePath for the value of a flag, if it was given.
func requireGiven(flags *pflag.FlagSet, name, value string, kind int) error {
	if !flags.Changed(name) {
		return nil
	}
	return requirePath("--"+name, value, kind)
}

// requirePath refuses a path that does not exist, or is of another kind.
func requirePath(argument, path string, kind int) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return usagef("invalid value for '%s': path '%s' does not exist", argument, path)
	case kind == filePath && info.IsDir():
		return usagef("invalid value for '%s': file '%s' is a directory", argument, path)
	case kind == folderPath && !info.IsDir():
		return usagef("invalid value for '%s': directory '%s' is a file", argument, path)
	}
	return nil
}

// requireRoom refuses a file to write that is a folder, or lies in none.
func requireRoom(argument, path string) error {
	if isFolder(path) {
		return usagef("invalid value for '%s': file '%s' is a directory", argument, path)
	}
	if folder := filepath.Dir(path); !isFolder(folder) {
		return usagef("there is no folder %s for %s", folder, argument)
	}
	return nil
}

// requireNew refuses a file or folder to write that exists, for which `never` says why, or would be in a folder that does not: a
// mistyped path would otherwise grow into folders.
func requireNew(path, never string) error {
	if _, err := os.Stat(path); err == nil {
		return usagef("%s exists; %s", path, never)
	}
	if folder := filepath.Dir(path); !isFolder(folder) {
		return usagef("%s would be in %s, which is no folder; make it first", path, folder)
	}
	return nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
