package train_test

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/safetensors"
	"github.com/nncuda/nncuda/go/train"
)

func TestResumeWithMomentsOfFewerBits(t *testing.T) {
	ctx, data := newContext(t), writeShards(t, 48)
	for _, kind := range []train.MomentsKind{train.MomentsBF16, train.MomentsF8} {
		options := runOptions()
		options.Moments = kind
		unbroken, broken := filepath.Join(t.TempDir(), "unbroken"), filepath.Join(t.TempDir(), "broken")
		trainRun(t, startRun(t, ctx, unbroken, data, options), 0)
		trainRun(t, startRun(t, ctx, broken, data, options), 5)
		trainRun(t, must(train.ResumeRun(ctx, broken, data, data, nil))(t), 0)
		requireSameRuns(t, broken, unbroken)
	}
	if used := must(ctx.BytesUsed())(t); used != 0 {
		t.Errorf("%d bytes are still used", used)
	}
}

func TestDamagedMomentsAreRefused(t *testing.T) {
	ctx, data := newContext(t), writeShards(t, 48)
	options := runOptions()
	options.Moments = train.MomentsF8
	run := filepath.Join(t.TempDir(), "run")
	trainRun(t, startRun(t, ctx, run, data, options), 2)
	folder := must(train.ResolveCheckpoint(run, false))(t)
	path := filepath.Join(folder, "optimizer.safetensors")
	file := must(safetensors.Open(path))(t)
	var tensors []safetensors.Tensor
	for _, name := range file.Names() {
		tensor, _ := file.Tensor(name)
		tensor.Bytes = slices.Clone(tensor.Bytes)
		tensors = append(tensors, tensor)
	}
	check(t, file.Close())
	for words, spoil := range map[string]func([]safetensors.Tensor){
		"tensor first.codes is not u8 of shape": func(all []safetensors.Tensor) { at(all, "first.codes").DType = safetensors.I8 },
		"element 1 of tensor second.scales is NaN; a scale is finite and at least 0": func(all []safetensors.Tensor) {
			putScale(at(all, "second.scales"), 1, math.NaN())
		},
		"element 0 of tensor first.scales is -0.5; a scale": func(all []safetensors.Tensor) {
			putScale(at(all, "first.scales"), 0, -0.5)
		},
		"element 0 of tensor first.scales is +Inf; a scale": func(all []safetensors.Tensor) {
			putScale(at(all, "first.scales"), 0, math.Inf(1))
		},
	} {
		spoiled := slices.Clone(tensors)
		for i := range spoiled {
			spoiled[i].Bytes = slices.Clone(tensors[i].Bytes)
		}
		spoil(spoiled)
		replace(t, path, spoiled)
		_, err := train.ResumeRun(ctx, run, data, data, nil)
		var wrong *formats.Error
		if !errors.As(err, &wrong) || wrong.Path != path || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, not %q", err, words)
		}
	}
}

func at(all []safetensors.Tensor, name string) *safetensors.Tensor {
	return &all[slices.IndexFunc(all, func(tensor safetensors.Tensor) bool { return tensor.Name == name })]
}

func putScale(tensor *safetensors.Tensor, i int, scale float64) {
	binary.LittleEndian.PutUint32(tensor.Bytes[4*i:], math.Float32bits(float32(scale)))
}

func replace(t testing.TB, path string, tensors []safetensors.Tensor) {
	t.Helper()
	check(t, os.Remove(path))
	check(t, safetensors.Write(path, tensors, nil))
}
