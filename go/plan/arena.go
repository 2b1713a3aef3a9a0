package plan

// arenaGrain is what the size of a chunk is a multiple of.
const arenaGrain = 1 << 18

// arena is the chunks of `cuda/abi/arena.c`: the scratch of one call lies in it, the next begins anew.
//
// The chunks of a context become one as large as all together; those of a graph (`lasting`) stay, for the device noted
// where they lie.
type arena struct {
	capacity int
	lasting  bool
	last     int // capacity of the newest chunk: the only one that is looked at
	chunks   int
	wanted   int
}

// call gives the most bytes of chunks during a call with these takes.
func (a *arena) call(takes []int) int {
	used, taken := 0, 0
	for _, bytes := range takes {
		size := max(64, up(bytes, 64))
		if a.chunks == 0 || a.last-used < size {
			chunk := up(size, arenaGrain)
			if a.chunks == 0 && a.wanted > chunk {
				chunk = a.wanted
			}
			a.last = chunk
			a.chunks++
			a.capacity += chunk
			used = 0
		}
		used += size
		taken += size
	}
	most := a.capacity
	if !a.lasting && a.chunks > 1 {
		a.wanted = up(taken, arenaGrain)
		a.capacity, a.chunks, a.last = 0, 0, 0
	}
	return most
}
