package cuda_test

import (
	"math"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
)

func TestCallByName(t *testing.T) {
	ctx := newContext(t)
	x := filled(t, ctx, 16)
	at := cuda.Pointer(x.At(0))
	must.Do(t, ctx.Call("fill", at, cuda.Integer(4), cuda.Real(1.5), cuda.Integer(int64(cuda.F32))))
	if got := download(t, ctx, x, 4); got[3] != 0x3f || got[2] != 0xc0 {
		t.Errorf("got %v", got)
	}
	for _, test := range []struct {
		kernel    string
		arguments []cuda.Argument
		status    cuda.Status
		words     string
	}{
		{"none", nil, cuda.ErrInvalidValue, "there is no kernel cuda_none"},
		{"fill", []cuda.Argument{at}, cuda.ErrInvalidValue, "cuda_fill takes 4 arguments, not 1"},
		{"fill", []cuda.Argument{cuda.Integer(0), cuda.Integer(4), cuda.Real(0), cuda.Integer(0)}, cuda.ErrInvalidValue,
			"y is given as an integer; it must be a pointer"},
		{"fill", []cuda.Argument{at, cuda.Integer(4), cuda.Integer(1), cuda.Integer(0)}, cuda.ErrInvalidValue,
			"value is given as an integer; it must be a real number"},
		{"fill", []cuda.Argument{at, cuda.Integer(4), cuda.Real(math.Inf(1)), cuda.Integer(77)}, cuda.ErrInvalidDType, "77"},
	} {
		must.Refuse(t, ctx.Call(test.kernel, test.arguments...), test.status, test.words)
	}
}
