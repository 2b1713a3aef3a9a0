package formats

import (
	"encoding/binary"
	"math"

	"github.com/nncuda/nncuda/go/internal/halves"
)

// Widened are the numbers in little-endian bytes of f32, f16 or bf16, in float32, which loses nothing.
func Widened(format string, data []byte) []float32 {
	switch format {
	case "f32":
		values := make([]float32, len(data)/4)
		for at := range values {
			values[at] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*at:]))
		}
		return values
	case "bf16":
		values := make([]float32, len(data)/2)
		for at := range values {
			values[at] = halves.OfBrain(binary.LittleEndian.Uint16(data[2*at:]))
		}
		return values
	}
	values := make([]float32, len(data)/2)
	for at := range values {
		values[at] = halves.Float(binary.LittleEndian.Uint16(data[2*at:]))
	}
	return values
}
