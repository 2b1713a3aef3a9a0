//! What is in use while calls are walked through, and the most that was.

use std::collections::HashMap;

use super::scratch::Machine;

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Weights that the model computes with.
    Weights,
    /// f32 parameters behind 16-bit weights.
    Master,
    /// Gradients.
    Gradients,
    /// Moments of AdamW.
    Moments,
    /// Cache of keys and values.
    Cache,
    /// Activations kept for backward.
    Kept,
    /// Activations, the largest transient.
    Transient,
    /// Logits of a chunk of tokens.
    Logits,
    /// Evaluation on held-out data.
    Evaluation,
    /// Inputs, tables and counters.
    Fixed,
    /// Scratch of kernels.
    Scratch,
}

/// All kinds in the order of a report, each with its name for programs and what people read.
pub const KINDS: [(Kind, &str, &str); 11] = [
    (Kind::Weights, "weights", "weights that the model computes with"),
    (Kind::Master, "master", "f32 parameters behind 16-bit weights"),
    (Kind::Gradients, "gradients", "gradients"),
    (Kind::Moments, "moments", "moments of AdamW"),
    (Kind::Cache, "cache", "cache of keys and values"),
    (Kind::Kept, "kept", "activations kept for backward"),
    (Kind::Transient, "transient", "activations, the largest transient"),
    (Kind::Logits, "logits", "logits of a chunk of tokens"),
    (Kind::Evaluation, "evaluation", "evaluation on held-out data"),
    (Kind::Fixed, "fixed", "inputs, tables and counters"),
    (Kind::Scratch, "scratch", "scratch of kernels"),
];

/// Bytes by kind at the moment when the most is in use, which add up to `peak`.
///
/// Memory of a captured step that is kept for backward at any time counts as kept, other memory of it as what it was
/// last taken for. `held` is what a device gives for the same memory: a GPU gives whole pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    bytes: [usize; KINDS.len()],
    /// The most bytes in use.
    pub peak: usize,
    /// What the device gives for them.
    pub held: usize,
}

impl MemoryPlan {
    /// Bytes of a kind.
    pub fn bytes(&self, kind: Kind) -> usize {
        self.bytes[kind as usize]
    }
}

/// Memory that was taken.
#[derive(Clone, Copy)]
pub(super) struct Block {
    size: usize,
    kind: Kind,
    captured: bool,
}

pub(super) struct Ledger {
    pub(super) machine: Machine,
    used: [usize; KINDS.len()],
    total: usize,
    found: MemoryPlan,
    held: usize,
    arena: Arena,
    graph_arena: Arena,
    capturing: bool,
    /// Of a capture: the kinds of free pieces by their size.
    free: HashMap<usize, Vec<Kind>>,
    /// Cannot be given back before the capture ends.
    late: Vec<Block>,
    calls: Vec<Vec<usize>>,
}

impl Ledger {
    pub(super) fn new(machine: &Machine) -> Self {
        Self {
            machine: machine.clone(),
            used: Default::default(),
            total: 0,
            found: MemoryPlan::default(),
            held: 0,
            arena: Arena::default(),
            graph_arena: Arena { lasting: true, ..Arena::default() },
            capturing: false,
            free: HashMap::new(),
            late: Vec::new(),
            calls: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, size: usize, kind: Kind) -> Block {
        let free = self.free.entry(size).or_default();
        if self.capturing && !free.is_empty() {
            let same = free.iter().position(|of| *of == kind);
            let at = same.or_else(|| free.iter().position(|of| *of != Kind::Kept)).unwrap_or(0);
            let before = free.remove(at);
            let kind = if before == Kind::Kept { Kind::Kept } else { kind };
            self.used[before as usize] -= size;
            self.used[kind as usize] += size;
            self.note(0);
            return Block { size, kind, captured: true };
        }
        self.used[kind as usize] += size;
        self.total += size;
        self.held += self.machine.rounded(size);
        self.note(0);
        Block { size, kind, captured: self.capturing }
    }

    pub(super) fn give(&mut self, blocks: impl IntoIterator<Item = Block>) {
        for block in blocks {
            if block.captured {
                self.free.entry(block.size).or_default().push(block.kind);
            } else if self.capturing {
                self.late.push(block);
            } else {
                self.used[block.kind as usize] -= block.size;
                self.total -= block.size;
                self.held -= self.machine.rounded(block.size);
            }
        }
    }

    /// A kernel that takes scratch. While capturing nothing runs; the device may note it behind the end.
    pub(super) fn call(&mut self, takes: Vec<usize>) {
        if self.capturing {
            self.calls.push(takes);
        } else if !takes.is_empty() {
            let chunks = self.arena.call(&takes);
            self.note(chunks);
        }
    }

    pub(super) fn begin_capture(&mut self) {
        self.capturing = true;
    }

    pub(super) fn end_capture(&mut self) {
        self.capturing = false;
        if !self.machine.on_cpu() {
            // Scratch of a graph stays where the device noted it.
            for takes in std::mem::take(&mut self.calls) {
                self.graph_arena.call(&takes);
            }
            self.note(0);
        }
        let late = std::mem::take(&mut self.late);
        self.give(late);
    }

    /// Looks whether this is the most, with so many bytes of chunks in the call that runs.
    fn note(&mut self, chunks: usize) {
        let chunks = chunks.max(self.arena.capacity) + self.graph_arena.capacity;
        self.found.held = self.found.held.max(self.held + chunks);
        let total = self.total + chunks;
        if total >= self.found.peak {
            self.found.peak = total;
            self.found.bytes = self.used;
            self.found.bytes[Kind::Scratch as usize] = chunks;
        }
    }

    pub(super) fn plan(&self) -> MemoryPlan {
        self.found
    }
}

/// What the size of a chunk is a multiple of.
const GRAIN: usize = 1 << 18;

/// The chunks of `cuda/abi/arena.c`: the scratch of one call lies in it, the next begins anew.
///
/// The chunks of a context become one as large as all together; those of a graph (`lasting`) stay, for the device noted
/// where they lie.
#[derive(Default)]
struct Arena {
    capacity: usize,
    lasting: bool,
    /// Capacity of the newest chunk: the only one that is looked at.
    last: usize,
    chunks: usize,
    wanted: usize,
}

impl Arena {
    /// The most bytes of chunks during a call with these takes.
    fn call(&mut self, takes: &[usize]) -> usize {
        let (mut used, mut taken) = (0, 0);
        for bytes in takes {
            let size = bytes.next_multiple_of(64).max(64);
            if self.chunks == 0 || self.last - used < size {
                let chunk = size.next_multiple_of(GRAIN);
                self.last = if self.chunks == 0 { chunk.max(self.wanted) } else { chunk };
                self.chunks += 1;
                self.capacity += self.last;
                used = 0;
            }
            used += size;
            taken += size;
        }
        let most = self.capacity;
        if !self.lasting && self.chunks > 1 {
            self.wanted = taken.next_multiple_of(GRAIN);
            (self.capacity, self.chunks, self.last) = (0, 0, 0);
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chunks of one call become one chunk before the next; those of a graph stay.
    #[test]
    fn chunks() {
        let mut arena = Arena::default();
        assert_eq!((arena.call(&[10]), arena.capacity), (GRAIN, GRAIN));
        assert_eq!((arena.call(&[GRAIN - 64, 65]), arena.capacity), (2 * GRAIN, 0));
        assert_eq!((arena.call(&[1]), arena.capacity), (2 * GRAIN, 2 * GRAIN));
        let mut graph = Arena { lasting: true, ..Arena::default() };
        assert_eq!([1, GRAIN + 1, 2].map(|size| graph.call(&[size])), [GRAIN, 3 * GRAIN, 3 * GRAIN]);
    }
}
