//go:build race

package cuda_test

// growthRoom is the growth in kB that TestNothingGrows allows. The race detector keeps memory of its own for what was
// allocated, however long ago.
const growthRoom = 32 * 1024
