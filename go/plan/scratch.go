package plan

import "github.com/nncuda/nncuda/go/model"

// Scratch memory of the kernels of a training step: what a call takes from the arena, derived from its sizes.
//
// Of the CPU engine's products and attention the cuts are followed as `cuda/cpu/gemm_plan.h` and
// `cuda/cpu/attention_*.c` make them, since they take all but a few per cent of it; where a take depends on the data
// (how many tokens the busiest expert gets) it is the most that it can be: all of them, or the capacity of an expert.
// What takes little is bounded, as is what a GPU takes: there pieces of sums are limited by constants (64 MiB of a
// product), whatever the sizes. The takes of a call are a list, since the arena rounds each.

// Machine is what decides how work is cut: the engine ("cpu" or "cuda"), and of the CPU its threads and instruction
// set.
type Machine struct {
	Engine  string
	Threads int
	ISA     string
}

func (m Machine) onCPU() bool { return m.Engine == "cpu" }

// lanes are the f32 elements of a vector.
func (m Machine) lanes() int {
	switch m.ISA {
	case "baseline":
		return 4
	case "avx2":
		return 8
	}
	return 16
}

// multiplies says whether attention in this precision has products of its own: those of bf16.
func (m Machine) multiplies(precision model.Precision) bool {
	return precision == model.BF16 && m.ISA == "amx"
}

// heads are the sizes of an attention call.
type heads struct {
	batch, length, heads, kvHeads, dim int
}

// attention is of `flash_attention`: a worker's block of queries and scores, and packed keys and values of a round of
// heads.
func (m Machine) attention(precision model.Precision, s heads) []int {
	if !m.onCPU() {
		return nil
	}
	if m.multiplies(precision) {
		const step = 128
		columns := up(s.dim, 32)
		size := up(s.length, step) * columns / 2
		round := 4 * max(1, min(s.batch*s.kvHeads, (1<<18)/(2*size))) * size
		return []int{4 * 64 * (columns/2 + step/2 + step + columns) * m.Threads, round, round}
	}
	lanes := m.lanes()
	columns := 2 * lanes
	worker := up(2*ceil(s.dim, columns)*columns*96+96*(256+16+2+lanes), 16)
	keys, values := up(s.length, columns)*s.dim, ceil(s.dim, columns)*columns*s.length
	pairs := max(1, min(s.batch*s.kvHeads, (1<<19)/(keys+values)))
	return []int{4 * worker * m.Threads, 4 * pairs * keys, 4 * pairs * values}
}

// attentionBackward is of `flash_attention_backward`: a worker's panels, and partial dK and dV of what shares a key
// head.
func (m Machine) attentionBackward(precision model.Precision, s heads) []int {
	group, pairs := s.heads/s.kvHeads, s.batch*s.kvHeads
	if !m.onCPU() {
		// Sums of each row; and partial dK, dV of at most 512 tiles of at most 128 keys.
		pieces, most := min(512, group*s.length/512), 0
		if pieces > 1 {
			most = min(pieces*pairs*s.length, 512*128)
		}
		return []int{16 * s.batch * s.heads * s.length, 8 * most * s.dim}
	}
	const wanted = 8
	wide, blockRows, parts, columns := m.multiplies(precision), 96, group, up(s.dim, 32)
	if wide {
		blockRows = 64
	}
	together := wide && pairs >= wanted && s.length*columns <= 1<<16 // the heads of a key head in one task
	if together {
		parts = 1
	}
	piece := up(ceil(s.length, ceil(wanted, pairs*parts)), blockRows)
	tasks, rows := parts*ceil(s.length, piece), min(piece, s.length)
	worker := m.backwardWorker(rows, s.dim)
	if wide {
		blocks := 1
		if together && group > 1 {
			blocks = ceil(s.length, 64)
		}
		queries, keys := columns*(4*32+64)+2*64, columns*(3*32+2*64)
		worker = up(ceil(rows, 64)*queries+64*(2*64+6*32)+blocks*keys, 16)
	}
	taken := []int{4 * worker * m.Threads}
	if tasks > 1 {
		pair := 2 * tasks * s.length * s.dim
		taken = append(taken, 4*pair*max(1, min(pairs, (1<<24)/pair)))
	}
	return taken
}

// backwardWorker is the panels of a worker, in elements of f32.
func (m Machine) backwardWorker(rows, dim int) int {
	lanes := m.lanes()
	panels := up(dim, 2*lanes)
	if rows += 6; lanes == 16 {
		rows += 6
	}
	return 3*up(rows*panels, 16) + 3*up(rows, 16) + 5*up(256*panels, 16) + 2*up(96*(256+16), 16)
}

// attentionDecode is of `attention_decode`, a bound: pieces of at least 64 keys leave their maximum, sum and output.
func (m Machine) attentionDecode(batch, capacity int, config model.Config) []int {
	pieces := ceil(capacity, 64)
	worker := 4 * (config.NumHeads*(config.HeadDim+16+256) + 32*(256+16))
	return []int{m.Threads * worker, 4 * batch * config.NumHeads * pieces * (config.HeadDim + 18)}
}

// rowsApart is of the backward call of a norm, a bound: at most 64 pieces of rows (128 on a GPU) leave a sum a column.
func rowsApart(rows, columns int) []int { return []int{4 * min(rows, 128) * columns} }

// routing is of the plan of rows, the gathering and its check, and the balancing loss, a bound: a number a slot, and
// one an expert for each so many slots.
func routing(tokens, k, experts int) []int {
	return []int{4*tokens*k + 8*experts*(1+tokens/64)}
}

// scattered is of the embedding's gradient: a GPU sorts the tokens, with two copies of ids and places, and counts
// digits.
func (m Machine) scattered(tokens int) []int {
	if m.onCPU() {
		return nil
	}
	return []int{16*tokens + 1<<20}
}

// squares is of the norm of the gradients, a bound: an f64 for each 16384 of them (32768 on a GPU).
func squares(parameters int) []int { return []int{8 * ceil(parameters, 1<<14)} }
