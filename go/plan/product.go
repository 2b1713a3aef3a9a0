package plan

import (
	"math"

	"github.com/nncuda/nncuda/go/model"
)

const (
	sharedBytes  = 1 << 25
	partialBytes = 1 << 20
	blockBytes   = 3 << 18
	streamBytes  = 16 << 20
	fewRows      = 8
)

// tile has the constants of `cuda/cpu/gemm_job.h` for one instruction set: see there.
type tile struct {
	unit, rows, columns, depth, aLanes, group, ahead, products, taskWork int
}

func (m Machine) tile(bf16 bool) tile {
	lanes := m.lanes()
	switch {
	case m.ISA == "amx" && bf16:
		return tile{2, 32, 2 * lanes, 256, 32, 8, 1, 512, 1 << 23}
	case lanes == 16:
		unit := 1
		if m.ISA == "avx512bf16" && bf16 {
			unit = 2
		}
		return tile{unit, 8, 3 * lanes, 768, lanes, 4, 0, 32, 1 << 20}
	}
	return tile{1, 6, 2 * lanes, 512, 6, 8, 0, 2 * lanes, 1 << 18}
}

// product is c [m, n] of k products an element, for each of `count` matrices. `ragged` is "m" or "k" when the matrices
// share m rows or a depth of k among them, "" when each has them; `longest` is the most of k that one can have.
// `precision` is that of the factors; `wide` when c is f32.
type product struct {
	m, n, k        int
	precision      model.Precision
	wide           bool
	transA, transB bool
	count          int
	ragged         string
	longest        int
	beta           float64
}

// scratch gives the bytes that the product takes.
func (p product) scratch(machine Machine) []int {
	if !machine.onCPU() {
		return p.onGPU()
	}
	bf16 := p.precision == model.BF16
	tile, threads := machine.tile(bf16), machine.Threads
	row := 4 * up(ceil(p.k, tile.unit), machine.lanes())
	if p.ragged == "" && p.m <= fewRows {
		return []int{p.count * p.m * row}
	}
	var taken []int
	if p.ragged == "m" { // groups of few rows go apart: at most all of them have so many
		taken = []int{8 * p.count, min(p.m, fewRows*p.count) * row}
		if p.m <= fewRows {
			return taken
		}
		taken = append(taken, 8*(p.count+1))
	}
	m, k := p.m, p.k
	if p.ragged == "m" {
		m = ceil(m, p.count)
	}
	if p.ragged == "k" {
		k = ceil(k, p.count)
	}
	units, blocks := tile.cutDepth(p.k)
	once := p.beta == 0 && p.m*p.n >= streamBytes/4 && blocks <= 2
	add := p.wide && !once
	columns, rows, share := p.cut(machine, tile, m, k, add)
	if share {
		taken = append(taken, 4*units*blocks*up(p.n, tile.columns)*p.count)
	}
	longestUnits, longestBlocks := tile.cutDepth(p.longest)
	whole := longestUnits * longestBlocks * columns
	one := min(longestUnits*longestBlocks, tile.depth) * columns
	block := min(max(one, blockBytes/4), whole)
	if share {
		block = 0
	}
	panels, group := 1+tile.ahead, tile.rows
	if p.transA {
		panels, group = tile.group+tile.ahead, tile.group*tile.aLanes
	}
	step := up(4*block, 64) + up(4*panels*(tile.aLanes*tile.depth+machine.lanes()), 64)
	if !add && longestBlocks > 1 {
		if keptBlocks(longestUnits, longestBlocks, columns) != longestBlocks {
			group = rows
		}
		step += up(4*group*columns, 64)
	}
	return append(taken, threads*(up(step, 4096)+320))
}

// onGPU cuts k in pieces of 256 or more, at most 32 of them and 64 MiB; in none when m or k is ragged.
func (p product) onGPU() []int {
	size := p.count * p.m * p.n
	pieces := min(32, p.k/256, (64<<20)/4/max(size, 1))
	if p.ragged != "" || pieces < 2 {
		return nil
	}
	return []int{4 * pieces * size}
}

// cut gives columns and rows of a block, and whether B is packed once for all: the cheapest, as `gemm_cut` finds it.
// The conversions of products keep a compiler from fusing them with the sum: every language comes to the same cut.
func (p product) cut(machine Machine, tile tile, m, k int, add bool) (columns, rows int, share bool) {
	threads, n, tall := machine.Threads, float64(p.n), 0
	dtype := model.F32
	if tile.unit != 1 {
		dtype = model.BF16
	}
	aCost, bCost := 1.0, 0.8
	if !p.transA && p.precision == dtype && p.k%tile.unit == 0 {
		aCost = 0.2
	}
	if p.transB {
		bCost = 1.0
	}
	most := 1.0
	if threads > 1 {
		most = 4.0 * float64(threads)
	}
	busy := math.Max(float64(tile.products)/5.0, n)
	wanted := math.Min(float64(m)*busy*float64(k)*float64(p.count)/float64(tile.taskWork), most)
	pieces := ceil(max(1, int(wanted)), p.count)
	nPanels, mPanels := ceil(p.n, tile.columns), ceil(m, tile.rows)
	each, blocks := tile.cutDepth(k)
	deep := each
	if tile.ahead != 0 || each == 0 {
		deep = tile.depth
	}
	area, units := float64(m*p.n)*float64(tile.unit)/float64(tile.products), each*blocks
	mayShare := p.ragged != "k" && units*nPanels*tile.columns*p.count <= sharedBytes/4
	best, found := 0.0, false
	for wide := min(blockBytes/4/deep/tile.columns, nPanels); wide > 0; wide-- {
		nBlocks := ceil(nPanels, wide)
		passing := blocks == 0 || keptBlocks(each, blocks, wide*tile.columns) == blocks
		tall = ceil(mPanels, ceil(pieces, nBlocks))
		if !add && !passing {
			tall = min(tall, partialBytes/4/(wide*tile.columns*tile.rows))
		}
		mBlocks := ceil(mPanels, max(tall, 1))
		tasks := nBlocks * mBlocks * p.count
		tall = ceil(mPanels, mBlocks)
		idle := float64(float64(up(tasks, threads)-tasks) * area / float64(tasks))
		padding := float64(float64(nBlocks*wide-nPanels) / float64(nBlocks*nPanels) * area)
		again := 0.0
		if !passing && !add {
			again = float64(0.5 * float64(m) * n / float64(each))
		}
		own := float64(float64(mBlocks*p.n) * bCost)
		shared := float64(n*bCost) + float64(float64(mBlocks*p.n)*0.2) + 16e3/float64(units+1)
		may := mayShare && shared < own
		reading := own
		if may {
			reading = shared
		}
		cost := float64(float64(nBlocks*m)*aCost) + idle + padding + again + reading
		if !found || best == 0 || cost < best {
			best, found = cost, true
			columns, rows, share = wide*tile.columns, tall*tile.rows, may
		}
	}
	return columns, rows, share
}

// cutDepth gives the units of a block of k, padded, and the blocks.
func (t tile) cutDepth(k int) (each, blocks int) {
	units := ceil(k, t.unit)
	if blocks = ceil(units, t.depth); blocks == 0 {
		return 0, 0
	}
	each = up(ceil(units, blocks), 16)
	return each, ceil(units, each)
}

// keptBlocks are the blocks of k of so many columns that stay packed at once.
func keptBlocks(units, blocks, columns int) int {
	return max(1, min(blockBytes/4/(units*columns), blocks))
}

func ceil(a, b int) int { return (a + b - 1) / b }

func up(a, b int) int { return ceil(a, b) * b }
