package plan

import "slices"

// Kind is what memory is for.
type Kind int

// The kinds, in the order of a report.
const (
	Weights Kind = iota
	Master
	Gradients
	Moments
	Cache
	Kept
	Transient
	Logits
	Evaluation
	Fixed
	Scratch
	kinds int = iota
)

var kindWords = [kinds][2]string{
	{"weights", "weights that the model computes with"},
	{"master", "f32 parameters behind 16-bit weights"},
	{"gradients", "gradients"},
	{"moments", "moments of AdamW"},
	{"cache", "cache of keys and values"},
	{"kept", "activations kept for backward"},
	{"transient", "activations, the largest transient"},
	{"logits", "logits of a chunk of tokens"},
	{"evaluation", "evaluation on held-out data"},
	{"fixed", "inputs, tables and counters"},
	{"scratch", "scratch of kernels"},
}

// Kinds lists all kinds in their order.
func Kinds() []Kind {
	all := make([]Kind, kinds)
	for at := range all {
		all[at] = Kind(at)
	}
	return all
}

// String is the kind's name, for programs.
func (k Kind) String() string { return kindWords[k][0] }

// Text says for people what the memory is for.
func (k Kind) Text() string { return kindWords[k][1] }

// Memory is the bytes by kind at the moment when the most is in use, which add up to Peak.
//
// Memory of a captured step that is kept for backward at any time counts as kept, other memory of it as what it was
// last taken for. Held is what a device gives for the same memory: a GPU gives whole pages.
type Memory struct {
	Bytes [kinds]int
	Peak  int
	Held  int
}

// block is memory that was taken; nil is none.
type block struct {
	size     int
	kind     Kind
	captured bool
}

// ledger is what is in use while calls are walked through, and the most that was.
type ledger struct {
	machine    Machine
	used       [kinds]int
	total      int // of used
	found      Memory
	held       int
	arena      arena
	graphArena arena
	capturing  bool
	free       map[int][]Kind // of a capture: the kinds of free pieces by their size
	late       []*block       // cannot be given back before the capture ends
	calls      [][]int
}

func newLedger(machine Machine) *ledger {
	return &ledger{machine: machine, graphArena: arena{lasting: true}, free: make(map[int][]Kind)}
}

func (l *ledger) take(size int, kind Kind) *block {
	if free := l.free[size]; l.capturing && len(free) > 0 {
		at := slices.Index(free, kind)
		if at < 0 {
			at = max(0, slices.IndexFunc(free, func(of Kind) bool { return of != Kept }))
		}
		before := free[at]
		l.free[size] = slices.Delete(free, at, at+1)
		if before == Kept {
			kind = Kept
		}
		l.used[before] -= size
		l.used[kind] += size
		l.note(0)
		return &block{size, kind, true}
	}
	l.used[kind] += size
	l.total += size
	l.held += l.machine.rounded(size)
	l.note(0)
	return &block{size, kind, l.capturing}
}

func (l *ledger) give(blocks ...*block) {
	for _, given := range blocks {
		switch {
		case given == nil:
		case given.captured:
			l.free[given.size] = append(l.free[given.size], given.kind)
		case l.capturing:
			l.late = append(l.late, given)
		default:
			l.used[given.kind] -= given.size
			l.total -= given.size
			l.held -= l.machine.rounded(given.size)
		}
	}
}

// call is a kernel that takes scratch. While capturing nothing runs; the device may note it behind the end.
func (l *ledger) call(takes []int) {
	if l.capturing {
		l.calls = append(l.calls, takes)
	} else if len(takes) > 0 {
		l.note(l.arena.call(takes))
	}
}

func (l *ledger) endCapture() {
	l.capturing = false
	if !l.machine.onCPU() { // scratch of a graph stays where the device noted it
		for _, takes := range l.calls {
			l.graphArena.call(takes)
		}
		l.note(0)
	}
	l.give(l.late...)
	l.late = nil
}

// note looks whether this is the most, with so many bytes of chunks in the call that runs.
func (l *ledger) note(chunks int) {
	chunks = max(chunks, l.arena.capacity) + l.graphArena.capacity
	l.found.Held = max(l.found.Held, l.held+chunks)
	if total := l.total + chunks; total >= l.found.Peak {
		l.found.Peak, l.found.Bytes = total, l.used
		l.found.Bytes[Scratch] = chunks
	}
}

// rounded is what a device gives for so many bytes (`cuda/abi/pool.c`); pages of the host that nobody touches cost
// nothing.
func (m Machine) rounded(size int) int {
	if m.onCPU() || size == 0 {
		return size
	}
	step := 256
	for (size-1)/step >= 16 {
		step *= 2
	}
	if size > 16<<20 {
		step = 2 << 20
	}
	return up(size, step)
}
