package plan

import "github.com/nncuda/nncuda/go/cuda"

// Device is a GPU that a plan can be for by its name, with what its maker says of it.
type Device struct {
	Name              string
	Machine           cuda.Machine
	Memory            int     // bytes
	Bandwidth         float64 // bytes a second
	FlopsF32, Flops16 float64 // operations a second in f32, and of dense products of 16-bit numbers
}

func gpu(name string, capability, multiprocessors, gigabytes int, bandwidth, flopsF32, flops16 float64) Device {
	machine := cuda.Machine{Device: cuda.CUDA, Capability: capability, Multiprocessors: multiprocessors}
	return Device{name, machine, gigabytes * 1e9, bandwidth, flopsF32, flops16}
}

// Devices are from NVIDIA's data sheets, without sparsity; docs/training.md names them.
var Devices = []Device{
	gpu("t4", 75, 40, 16, 320e9, 8.1e12, 65e12),
	gpu("v100", 70, 80, 32, 900e9, 15.7e12, 125e12),
	gpu("a100", 80, 108, 80, 2039e9, 19.5e12, 312e12),
	gpu("l4", 89, 58, 24, 300e9, 30.3e12, 121e12),
	gpu("l40s", 89, 142, 48, 864e9, 91.6e12, 362e12),
	gpu("h100", 90, 132, 80, 3350e9, 67e12, 989e12),
	gpu("h200", 90, 132, 141, 4800e9, 67e12, 989e12),
}
