package stored

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/safetensors"
)

// Files of a folder of Hugging Face's PEFT.
const (
	AdapterConfig  = formats.AdapterConfig
	AdapterWeights = "adapter_model.safetensors"
)

var (
	folderFactor = regexp.MustCompile(`^base_model\.model\.(.+)\.lora_(A|B)\.weight$`)
	adaptedName  = regexp.MustCompile(`^model\.layers\.\d+\.(self_attn|mlp)\.[a-z]+_proj\.weight$`)

	// Ways to begin an adapter that leave the base's weights as they are, beside true and false.
	adapterBeginnings = []string{"gaussian", "eva", "orthogonal"}
	// Options that say how an adapter is trained, or which matrices it is of, which its tensors say, too.
	adapterNeutral = strings.Fields("auto_mapping base_model_name_or_path revision inference_mode peft_version lora_dropout " +
		"target_modules exclude_modules layers_to_transform layers_pattern megatron_core eva_config ensure_weight_tying " +
		"qalora_group_size runtime_config")
	adapterRead = strings.Fields("peft_type task_type r lora_alpha use_rslora bias init_lora_weights")
)

// LowRank is the factors of one matrix: A [rank, in] and B [out, rank], each in f32, f16 or bf16.
type LowRank struct{ A, B formats.StoredTensor }

// Adapter is an adapter of a model: for some of its matrices W, by their names in LlamaConfig.Shapes, W + Scale * B * A. It
// must be closed, and its factors not be used from then on.
//
// (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1; Kalajdzievski 2023, "A Rank
// Stabilization Scaling Factor for Fine-Tuning with LoRA"; PEFT's documentation, "LoRA" and "PEFT checkpoint format")
type Adapter struct {
	Rank    int
	Scale   float64
	Factors map[string]LowRank

	file interface{ Close() error }
}

// FactorPrefix is what the names of factors in a folder begin with.
const FactorPrefix = "base_model.model."

// AdapterValues are the content of adapter_config.json of an adapter of a model that is said to be `base`.
func AdapterValues(options model.LowRank, base string) *formats.Object {
	var alpha any = json.Number(formats.JSONFloat(options.Alpha)) // with Python's exponents
	if whole := math.Trunc(options.Alpha); whole == options.Alpha && math.Abs(whole) < 1<<53 {
		alpha = int64(whole)
	}
	var targets []any
	for _, name := range slices.Sorted(slices.Values(options.Targets)) {
		targets = append(targets, name)
	}
	return formats.NewObject(
		"base_model_name_or_path", base, "bias", "none", "fan_in_fan_out", false, "inference_mode", true,
		"init_lora_weights", true, "lora_alpha", alpha, "lora_dropout", 0.0, "modules_to_save", nil, "peft_type", "LORA",
		"r", options.Rank, "target_modules", targets, "task_type", "CAUSAL_LM", "use_dora", false, "use_rslora", false,
	)
}

// IsAdapter says whether a folder is that of an adapter, as PEFT writes it.
func IsAdapter(folder string) bool { return formats.Present(filepath.Join(folder, AdapterConfig)) }

// factor is a tensor of a file of an adapter: its name there, what that says of its matrix ("": it is no factor of one), the
// matrix's name in LlamaConfig.Shapes ("": there is no such one), and which of the two it is, "A" or "B".
type factor struct {
	theirs, module, name, which string
	tensor                      formats.StoredTensor
}

// OpenAdapter opens the PEFT folder, or the GGUF file, of an adapter of a model with that configuration; of a run that trains
// one, the last checkpoint. A *formats.Error when it is of another, is wrong, or asks for what this program does not do.
func OpenAdapter(path string, config LlamaConfig) (*Adapter, error) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().IsRegular() {
		return openAdapterGGUF(path, config)
	}
	if path, err = formats.LastCheckpoint(path); err != nil {
		return nil, err
	}
	values, err := formats.ReadJSON(filepath.Join(path, AdapterConfig))
	if err != nil {
		return nil, err
	}
	made := &Adapter{}
	if made.Rank, made.Scale, err = adapterOptions(values); err != nil {
		return nil, formats.Wrap(filepath.Join(path, AdapterConfig), err)
	}
	weights, pickle := filepath.Join(path, AdapterWeights), filepath.Join(path, "adapter_model.bin")
	if !formats.Present(weights) {
		if formats.Present(pickle) {
			return nil, wrong(pickle, "is a pickle, which can run anything; save %s", AdapterWeights)
		}
		return nil, formats.Missing(path, "holds no "+AdapterWeights)
	}
	file, err := safetensors.Open(weights)
	if err != nil {
		return nil, err
	}
	made.file = file
	factors, err := factorsOfFolder(file)
	if err == nil {
		err = made.take(weights, factors, config)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return made, nil
}

// Close releases the file. Closing twice is fine, and so is closing nil.
func (a *Adapter) Close() error {
	if a == nil {
		return nil
	}
	return a.file.Close()
}

// adapterOptions gives rank and scale. An error for what this program does not do.
func adapterOptions(options *formats.Object) (rank int, scale float64, err error) {
	given := ofObject(options)
	read := reading{values: given}
	shown := func(name string) string { return formats.Shown(options.Get(name)) }
	oneOf := func(name string, known ...any) bool { return slices.Contains(known, options.Get(name)) }
	begun, isText := options.Get("init_lora_weights").(string)
	switch {
	case !oneOf("peft_type", "LORA"):
		return 0, 0, fmt.Errorf("peft_type is %s; this program reads 'LORA'", shown("peft_type"))
	case !oneOf("task_type", nil, "CAUSAL_LM"):
		return 0, 0, fmt.Errorf("task_type is %s; this program reads adapters of 'CAUSAL_LM'", shown("task_type"))
	case !oneOf("bias", nil, "none"):
		return 0, 0, fmt.Errorf("bias is %s; this program reads adapters without biases, 'none'", shown("bias"))
	case !oneOf("init_lora_weights", nil, true, false) && (!isText || !slices.Contains(adapterBeginnings, begun)):
		return 0, 0, fmt.Errorf("init_lora_weights is %s, which may change the base's own weights", shown("init_lora_weights"))
	}
	for _, name := range options.Names() {
		if !slices.Contains(adapterRead, name) && !slices.Contains(adapterNeutral, name) && !formats.SaysNo(options.Get(name)) {
			return 0, 0, fmt.Errorf("%s is %s; this program does not know that option of an adapter", formats.Shown(name), shown(name))
		}
	}
	rank, alpha := read.wholeOf("r", required), read.numberOf("lora_alpha", requiredNumber)
	divisor := float64(rank)
	if read.flagOf("use_rslora", false) {
		divisor = math.Sqrt(divisor)
	}
	if read.err != nil {
		return 0, 0, read.err
	}
	if scale = alpha / divisor; math.Abs(scale) > math.MaxFloat32 {
		return 0, 0, fmt.Errorf("lora_alpha is %s; divided by the rank it must fit f32", shown("lora_alpha"))
	}
	return rank, scale, nil
}

func factorsOfFolder(file *safetensors.File) ([]factor, error) {
	var found []factor
	for _, theirs := range file.Names() {
		tensor, err := file.Stored(theirs)
		if err != nil {
			return nil, err
		}
		made := factor{theirs: theirs, tensor: tensor}
		if match := folderFactor.FindStringSubmatch(theirs); match != nil {
			made.module, made.name, made.which = match[1], match[1]+".weight", match[2]
		}
		found = append(found, made)
	}
	return found, nil
}

// take checks the factors and keeps them.
func (a *Adapter) take(path string, factors []factor, config LlamaConfig) error {
	shapes := make(map[string][]int)
	for _, shape := range config.Shapes() {
		shapes[shape.Name] = shape.Sizes
	}
	found := make(map[string]map[string]formats.StoredTensor)
	for _, one := range factors {
		if one.module == "" {
			return wrong(path, "has the tensor %s, which is no factor of an adapted matrix", formats.Shown(one.theirs))
		}
		whole, known := shapes[one.name]
		if !known || !adaptedName.MatchString(one.name) {
			return wrong(path, "adapts %s; of this model it may be the projections of a layer's attention and SwiGLU",
				formats.Shown(one.module))
		}
		shape := []int{whole[0], a.Rank}
		if one.which == "A" {
			shape = []int{a.Rank, whole[1]}
		}
		if !slices.Equal(one.tensor.Shape, shape) {
			return wrong(path, "tensor %s has shape %s; with r %d the model makes it %s", one.theirs, sizes(one.tensor.Shape),
				a.Rank, sizes(shape))
		}
		if !one.tensor.Format.IsPlain() {
			return wrong(path, "tensor %s is in %s; factors must be in f32, f16 or bf16", one.theirs, one.tensor.Format.Name)
		}
		numbers, err := one.tensor.Floats()
		if err != nil {
			return formats.Wrap(path, err)
		}
		for _, number := range numbers {
			if value := float64(number); math.IsNaN(value) || math.IsInf(value, 0) {
				return wrong(path, "tensor %s has values that are not finite", one.theirs)
			}
		}
		if found[one.name] == nil {
			found[one.name] = make(map[string]formats.StoredTensor)
		} else if _, twice := found[one.name][one.which]; twice {
			return wrong(path, "has lora_%s of %s twice", one.which, strings.TrimSuffix(one.name, ".weight"))
		}
		found[one.name][one.which] = one.tensor
	}
	a.Factors = make(map[string]LowRank, len(found))
	for _, one := range factors { // in their order, so that of several mistakes it is always the same that is told
		pair := found[one.name]
		if len(pair) < 2 {
			return wrong(path, "has lora_%s of %s alone", one.which, strings.TrimSuffix(one.name, ".weight"))
		}
		a.Factors[one.name] = LowRank{pair["A"], pair["B"]}
	}
	if len(found) == 0 {
		return wrong(path, "adapts nothing")
	}
	return nil
}
