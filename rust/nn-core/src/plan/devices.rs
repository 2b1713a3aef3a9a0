//! GPUs that a plan can be for by their name, with what their maker says of them.

/// A GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpu {
    /// Its name in flags.
    pub name: &'static str,
    /// Compute capability, 90 for 9.0.
    pub capability: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory: usize,
    /// Bytes a second.
    pub bandwidth: f64,
    /// Operations a second in f32.
    pub flops_f32: f64,
    /// Operations a second of dense products of 16-bit numbers.
    pub flops_16: f64,
}

/// From NVIDIA's data sheets, without sparsity; docs/training.md names them.
#[rustfmt::skip]
pub const DEVICES: [Gpu; 7] = [
    Gpu { name: "t4", capability: 75, multiprocessors: 40, memory: 16 * GB, bandwidth: 320e9, flops_f32: 8.1e12, flops_16: 65e12 },
    Gpu { name: "v100", capability: 70, multiprocessors: 80, memory: 32 * GB, bandwidth: 900e9, flops_f32: 15.7e12, flops_16: 125e12 },
    Gpu { name: "a100", capability: 80, multiprocessors: 108, memory: 80 * GB, bandwidth: 2039e9, flops_f32: 19.5e12, flops_16: 312e12 },
    Gpu { name: "l4", capability: 89, multiprocessors: 58, memory: 24 * GB, bandwidth: 300e9, flops_f32: 30.3e12, flops_16: 121e12 },
    Gpu { name: "l40s", capability: 89, multiprocessors: 142, memory: 48 * GB, bandwidth: 864e9, flops_f32: 91.6e12, flops_16: 362e12 },
    Gpu { name: "h100", capability: 90, multiprocessors: 132, memory: 80 * GB, bandwidth: 3350e9, flops_f32: 67e12, flops_16: 989e12 },
    Gpu { name: "h200", capability: 90, multiprocessors: 132, memory: 141 * GB, bandwidth: 4800e9, flops_f32: 67e12, flops_16: 989e12 },
];
const GB: usize = 1_000_000_000;
