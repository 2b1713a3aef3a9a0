package main

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/spf13/pflag"
)

// longestName is the most characters of a name that requests have for an adapter.
const longestName = 256

// drawingFlags are those that say how tokens are drawn.
type drawingFlags struct {
	sampling infer.Sampling
	bias     []string // ID=BIAS
}

// add adds the flags, with a command's own defaults and words for 0 and for the seed.
func (f *drawingFlags) add(flags *pflag.FlagSet, temperature float64, zero string, topP float64, seed string) {
	s := &f.sampling
	flags.Float64Var(&s.Temperature, "temperature", temperature, "Sampling temperature; "+zero+".")
	flags.IntVar(&s.TopK, "top-k", 0, "Sample only from the K most likely tokens.")
	flags.Float64Var(&s.TopP, "top-p", topP, "Sample only from the most likely tokens that make up this share of the "+
		"probability.")
	flags.Float64Var(&s.MinP, "min-p", 0, "Sample only from tokens at least this many times as likely as the most likely one.")
	flags.Float64Var(&s.PresencePenalty, "presence-penalty", 0,
		"Subtract this from the logit of a token that was written before.")
	flags.Float64Var(&s.FrequencyPenalty, "frequency-penalty", 0,
		"Subtract this from the logit of a token for each time that it was written.")
	flags.Float64Var(&s.RepetitionPenalty, "repetition-penalty", 1, "Make tokens of the prompt and of what was written less "+
		"likely: a number above 1, such as 1.1, divides their logits.")
	flags.StringArrayVar(&f.bias, "logit-bias", nil, "ID=BIAS: add BIAS to the logit of the token ID; may be repeated.")
	flags.Int64Var(&s.Seed, "seed", 0, "The same seed gives "+seed+".")
}

// read gives how tokens are drawn, and refuses wrong values.
func (f *drawingFlags) read(given func(string) bool, greedy bool) (infer.Sampling, error) {
	s := f.sampling
	switch {
	case !(s.Temperature >= 0):
		return s, usagef("invalid value for '--temperature': %v is not at least 0", s.Temperature)
	case given("top-k") && s.TopK < 1:
		return s, usagef("invalid value for '--top-k': %d is not at least 1", s.TopK)
	case given("top-p") && !(s.TopP > 0 && s.TopP <= 1):
		return s, usagef("invalid value for '--top-p': %v is not above 0 and at most 1", s.TopP)
	case !(s.MinP >= 0 && s.MinP <= 1):
		return s, usagef("invalid value for '--min-p': %v is not 0 to 1", s.MinP)
	case s.RepetitionPenalty == 0:
		return s, usagef("repetition_penalty is 0; it must be a finite number above 0")
	}
	if len(f.bias) > 0 {
		s.LogitBias = make(map[int32]float64)
	}
	for _, text := range f.bias {
		token, number, _ := strings.Cut(text, "=")
		id, err := strconv.ParseUint(token, 10, 31)
		bias, failure := strconv.ParseFloat(number, 64)
		if err != nil || failure != nil {
			return s, usagef("invalid value for '--logit-bias': '%s' is not ID=BIAS, such as 42=-100", text)
		}
		s.LogitBias[int32(id)] = bias
	}
	if greedy {
		s.Temperature = 0
	}
	if err := s.Validate(); err != nil {
		return s, usagef("%v", err)
	}
	return s, nil
}

// engineFlags are those of the inference engine.
type engineFlags struct {
	context              int // 0 where it is not given
	cacheFormat, weights string
	stats                bool
}

func (f *engineFlags) add(flags *pflag.FlagSet) {
	f.addSizes(flags)
	flags.BoolVar(&f.stats, "stats", false, "Print tokens and bytes per second to standard error at the end.")
}

// addSizes adds all of them but --stats, which is of commands that come to an end.
func (f *engineFlags) addSizes(flags *pflag.FlagSet) {
	flags.IntVar(&f.context, "context", 0, "The context length.  [default: the model's, at most 8192]")
	flags.StringVar(&f.cacheFormat, "cache-format", "f16", "Format of the cached keys and values: "+
		strings.Join(engine.CacheFormats, ", ")+".")
	flags.StringVar(&f.weights, "weights", "auto", "On a CPU: copy the weights into memory, which is faster to read, or use "+
		"the mapped file; auto: copy if memory allows ("+strings.Join(engine.Places, ", ")+").")
}

func (f *engineFlags) check(given func(string) bool) error {
	switch {
	case given("context") && f.context < 1:
		return usagef("invalid value for '--context': %d is not at least 1", f.context)
	case !slices.Contains(engine.CacheFormats, f.cacheFormat):
		return usagef("invalid value for '--cache-format': '%s' is not one of %s", f.cacheFormat,
			strings.Join(engine.CacheFormats, ", "))
	case !slices.Contains(engine.Places, f.weights):
		return usagef("invalid value for '--weights': '%s' is not one of %s", f.weights, strings.Join(engine.Places, ", "))
	}
	return nil
}

// usual says whether all of them are as without flags.
func (f *engineFlags) usual() bool {
	return *f == engineFlags{cacheFormat: "f16", weights: "auto"}
}

// adapterFlag is that of what is added to a model's weights.
type adapterFlag struct{ path string } // "" where it is not given

func (f *adapterFlag) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.path, "adapter", "",
		"A LoRA adapter of MODEL: a folder of PEFT, or a GGUF file; the model's weights stay as they are stored.")
}

func (f *adapterFlag) check(given func(string) bool) error {
	if !given("adapter") {
		return nil
	}
	return requirePath("--adapter", f.path, anyPath)
}

// open opens the adapter, for a model with that configuration; nil where there is none.
func (f *adapterFlag) open(config stored.LlamaConfig) (*stored.Adapter, error) {
	if f.path == "" {
		return nil, nil
	}
	return stored.OpenAdapter(f.path, config)
}

// adapterFlags are adapters by the names that requests have for them.
type adapterFlags struct {
	given []string // NAME=PATH
	names []string
	paths []string
}

func (f *adapterFlags) add(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.given, "adapter", nil, "NAME=PATH: a LoRA adapter of MODEL, a folder of PEFT or a GGUF file, and "+
		"the name that requests have for the model with it; repeatable.")
}

// check reads them, and refuses wrong ones, and a name that two have.
func (f *adapterFlags) check() error {
	for _, text := range f.given {
		name, path, _ := strings.Cut(text, "=")
		if length := utf8.RuneCountInString(name); length < 1 || length > longestName || path == "" ||
			!utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
			return usagef("invalid value for '--adapter': '%s' is not NAME=PATH, such as sql=adapters/sql",
				formats.Printable(text))
		}
		if err := requirePath("--adapter", path, anyPath); err != nil {
			return err
		}
		if slices.Contains(f.names, name) {
			return usagef("invalid value for '--adapter': '%s' is the name of two adapters", name)
		}
		f.names, f.paths = append(f.names, name), append(f.paths, path)
	}
	return nil
}

// open opens the adapters, for a model with that configuration. They must be closed, also when one of them is wrong.
func (f *adapterFlags) open(config stored.LlamaConfig) (opened []engine.NamedAdapter, err error) {
	for at, path := range f.paths {
		adapter, err := stored.OpenAdapter(path, config)
		if err != nil {
			return opened, err
		}
		opened = append(opened, engine.NamedAdapter{Name: f.names[at], Adapter: adapter})
	}
	return opened, nil
}
