//go:build !race

package cuda_test

// growthRoom is the growth in kB that TestNothingGrows allows: what the runtime itself may take, less than one kB a
// round.
const growthRoom = 8 * 1024
