package cuda_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
)

func TestContextAttributes(t *testing.T) {
	ctx := newContext(t, cuda.WithThreads(2), cuda.WithISA(cuda.Baseline))
	if kind, index := ctx.Device(); kind != cuda.CPU || index != 0 || kind.String() != "cpu" {
		t.Errorf("device %v %d", kind, index)
	}
	if threads, err := ctx.Threads(); err != nil || threads != 2 {
		t.Errorf("%d threads (%v)", threads, err)
	}
	if isa, err := ctx.ISA(); err != nil || isa != "baseline" {
		t.Errorf("instruction set %s (%v)", isa, err)
	}
	if err := ctx.SetThreads(1); err != nil {
		t.Error(err)
	}
	if threads, _ := ctx.Threads(); threads != 1 {
		t.Errorf("%d threads after setting 1", threads)
	}
	must.Refuse(t, ctx.SetThreads(1000), cuda.ErrInvalidValue, "1000")
	if nodes, err := ctx.Nodes(); err != nil || nodes != 1 {
		t.Errorf("%d nodes (%v)", nodes, err)
	}
	must.Refuse(t, ctx.SetNodes(1000), cuda.ErrInvalidValue, "1000")
	must.Refuse(t, ctx.SetISA(99), cuda.ErrInvalidValue, "99")
	if err := ctx.SetTF32(true); err != nil {
		t.Error(err)
	}
	if allowed, err := ctx.TF32(); err != nil || !allowed {
		t.Errorf("tf32 %v (%v)", allowed, err)
	}
	if wanted, err := ctx.TwoParts(); err != nil || wanted {
		t.Errorf("two parts %v (%v) unless set", wanted, err)
	}
	if err := ctx.SetTwoParts(true); err != nil {
		t.Error(err)
	}
	if wanted, err := ctx.TwoParts(); err != nil || !wanted {
		t.Errorf("two parts %v (%v)", wanted, err)
	}
	if free, total, err := ctx.MemoryInfo(); err != nil || free <= 0 || total < free {
		t.Errorf("%d bytes free of %d (%v)", free, total, err)
	}
}

func TestBytesAreCounted(t *testing.T) {
	ctx := newContext(t)
	bytes := func(read func() (int64, error)) int64 {
		t.Helper()
		value := must.Get(read())(t)
		return value
	}
	buffer := filled(t, ctx, 1<<20)
	if used := bytes(ctx.BytesUsed); used < 1<<20 {
		t.Errorf("%d bytes are used", used)
	}
	if peak := bytes(ctx.BytesPeak); peak < 1<<20 {
		t.Errorf("the peak is %d bytes", peak)
	}
	must.Do(t, buffer.Close())
	if used, pooled := bytes(ctx.BytesUsed), bytes(ctx.BytesPooled); used != 0 || pooled < 1<<20 {
		t.Errorf("%d bytes are used and %d pooled after closing", used, pooled)
	}
	must.Do(t, errors.Join(ctx.Trim(), ctx.ResetPeak()))
	pooled, arena, peak := bytes(ctx.BytesPooled), bytes(ctx.BytesArena), bytes(ctx.BytesPeak)
	if pooled != 0 || peak > arena {
		t.Errorf("%d bytes pooled, a peak of %d with %d of scratch after starting again", pooled, peak, arena)
	}
}

func TestDevices(t *testing.T) {
	if count, err := cuda.DeviceCount(cuda.CPU); err != nil || count != 1 {
		t.Errorf("%d processors (%v)", count, err)
	}
	if text, err := cuda.DescribeDevice(cuda.CPU, 0); err != nil || text == "" {
		t.Errorf("the processor is %q (%v)", text, err)
	}
	count := must.Get(cuda.DeviceCount(cuda.CUDA))(t)
	if _, err := cuda.DescribeDevice(cuda.CUDA, count); !errors.Is(err, cuda.ErrNoDevice) || err.Error() == "" {
		t.Errorf("a GPU that is not there: %v", err)
	}
	must.Refuse(t, must.Err(cuda.New("cuda:99")), cuda.ErrNoDevice, `device "cuda:99": `)
	for _, device := range []string{"", "gpu", "cuda:", "cuda:-1", "cpu:x", "auto:1"} {
		must.Refuse(t, must.Err(cuda.New(device)), cuda.ErrInvalidValue, "it must be 'auto', 'cpu', 'cuda' or 'cuda:INDEX'")
	}
	ctx := must.Get(cuda.New("auto"))(t)
	if kind, _ := ctx.Device(); (kind == cuda.CUDA) != (count > 0) {
		t.Errorf("auto is %v with %d GPUs", kind, count)
	}
	if err := ctx.Close(); err != nil {
		t.Error(err)
	}
	must.Refuse(t, must.Err(cuda.New("cpu", cuda.WithThreads(-1))), cuda.ErrInvalidValue, "-1")
}

func TestVersionAndWords(t *testing.T) {
	if major, minor, err := cuda.ABIVersion(); err != nil || major != 2 || minor < 0 {
		t.Errorf("ABI %d.%d (%v)", major, minor, err)
	}
	if info, err := cuda.BuildInfo(); err != nil || info == "" {
		t.Errorf("build %q (%v)", info, err)
	}
	if path, err := cuda.LibraryPath(); err != nil || path == "" {
		t.Errorf("path %q (%v)", path, err)
	}
	if name, err := cuda.ErrBusy.Name(); err != nil || name != "NNCUDA_ERROR_BUSY" {
		t.Errorf("name %q (%v)", name, err)
	}
	if advice, err := cuda.ErrBusy.Advice(); err != nil || advice == "" {
		t.Errorf("advice %q (%v)", advice, err)
	}
	if text := cuda.ErrBusy.String(); text != "another thread is inside a call on this context" {
		t.Errorf("text %q", text)
	}
	if text := cuda.Status(12345).String(); text != "unknown status 12345" {
		t.Errorf("text %q", text)
	}
}

func TestRowBytesOfFormats(t *testing.T) {
	for format, want := range map[cuda.Format]int64{
		cuda.FormatF32: 2048, cuda.FormatF16: 1024, cuda.FormatQ40: 288, cuda.FormatQ80: 544, cuda.FormatQ6K: 420,
	} {
		if got, err := format.RowBytes(512); err != nil || got != want {
			t.Errorf("512 elements in format %d take %d bytes (%v); they should take %d", format, got, err, want)
		}
	}
	must.Refuse(t, must.Err(cuda.FormatQ80.RowBytes(33)), cuda.ErrInvalidSize, "nncuda_format_row_bytes")
	must.Refuse(t, must.Err(cuda.Format(77).RowBytes(32)), cuda.ErrInvalidValue, "nncuda_format_row_bytes")
}

func TestDTypes(t *testing.T) {
	for _, name := range []string{"f32", "f16", "bf16", "i32", "i8", "i64", "u8"} {
		dtype, err := cuda.ParseDType(name)
		if err != nil || dtype.String() != name {
			t.Errorf("%s is %v (%v)", name, dtype, err)
		}
		size, err := dtype.LibrarySize()
		if dtype == cuda.I64 || dtype == cuda.U8 {
			must.Refuse(t, err, cuda.ErrInvalidDType, "nncuda_dtype_size")
		} else if err != nil || int(size) != dtype.Size() {
			t.Errorf("%s has %d bytes here and %d in the library (%v)", name, dtype.Size(), size, err)
		}
	}
	must.Refuse(t, must.Err(cuda.ParseDType("float")), cuda.ErrInvalidDType, "float")
	if cuda.DType(77).Size() != 0 {
		t.Error("dtype 77 has a size")
	}
	if isa, err := cuda.ParseISA("avx2"); err != nil || isa != cuda.AVX2 {
		t.Errorf("avx2 is %v (%v)", isa, err)
	}
	must.Refuse(t, must.Err(cuda.ParseISA("sse")), cuda.ErrInvalidValue, "sse")
}

// Whatever is done with a closed context, or with what was made on it, is an error, except closing it again.
func TestClosedContextIsRefused(t *testing.T) {
	ctx := must.Get(cuda.New("cpu"))(t)
	buffer := filled(t, ctx, 64)
	host := must.Get(ctx.AllocateHost(64))(t)
	stream := must.Get(ctx.NewStream())(t)
	event := must.Get(ctx.NewEvent())(t)
	graph := must.Get(ctx.Capture(func() error { return ctx.Fill(buffer.At(0), 1, 1, cuda.F32) }))(t)
	must.Do(t, ctx.Close())
	for name, err := range map[string]error{
		"Synchronize":        ctx.Synchronize(),
		"SetThreads":         ctx.SetThreads(1),
		"Threads":            must.Err(ctx.Threads()),
		"Allocate":           must.Err(ctx.Allocate(1)),
		"AllocateHost":       must.Err(ctx.AllocateHost(1)),
		"NewStream":          must.Err(ctx.NewStream()),
		"NewEvent":           must.Err(ctx.NewEvent()),
		"Capture":            must.Err(ctx.Capture(func() error { return nil })),
		"Set":                ctx.Set(buffer.At(0), 0, 1),
		"Copy":               ctx.Copy(buffer.At(0), buffer.At(8), 1),
		"Upload":             ctx.Upload(buffer.At(0), []byte{1}),
		"Download":           ctx.Download([]byte{1}, buffer.At(0)),
		"Download host":      ctx.Download([]byte{1}, host.At(0)),
		"CopyAsync":          ctx.CopyAsync(stream, buffer.At(0), host.At(0), 1),
		"Add":                ctx.Add(buffer.At(0), buffer.At(0), buffer.At(0), 1, cuda.F32),
		"Call":               ctx.Call("fill", cuda.Pointer(buffer.At(0)), cuda.Integer(1), cuda.Real(0), cuda.Integer(0)),
		"Stream.Synchronize": stream.Synchronize(),
		"Stream.Wait":        stream.Wait(event),
		"Event.Record":       event.Record(stream),
		"Event.Synchronize":  event.Synchronize(),
		"Event.Happened":     must.Err(event.Happened()),
		"Event.Elapsed":      must.Err(event.Elapsed(event)),
		"Graph.Launch":       graph.Launch(),
		"Graph.Size":         must.Err(graph.Size()),
		"BeginProfile":       ctx.BeginProfile(),
		"EndProfile":         ctx.EndProfile(),
		"ProfileReport":      must.Err(ctx.ProfileReport(cuda.ReportTable)),
		"BeginTrace":         ctx.BeginTrace(0),
		"EndTrace":           ctx.EndTrace(),
		"TraceText":          must.Err(ctx.TraceText()),
		"DataOrder":          must.Err(ctx.DataOrder(1, 0, 1, 1)),
	} {
		if !errors.Is(err, cuda.ErrInvalidContext) || !strings.HasSuffix(err.Error(), "the context is closed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !ctx.Closed() || !buffer.Closed() {
		t.Error("they do not say that they are closed")
	}
	for _, err := range []error{ctx.Close(), buffer.Close(), host.Close(), stream.Close(), event.Close(), graph.Close()} {
		if err != nil {
			t.Errorf("closing after the context: %v", err)
		}
	}
}

func TestDataOrder(t *testing.T) {
	ctx := newContext(t)
	order := must.Get(ctx.DataOrder(7, 0, 20, 10))(t)
	for epoch := range 2 {
		seen := slices.Sorted(slices.Values(order[10*epoch : 10*epoch+10]))
		if !slices.Equal(seen, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
			t.Errorf("epoch %d visits %v", epoch, seen)
		}
	}
	later, err := ctx.DataOrder(7, 5, 15, 10)
	if err != nil || !slices.Equal(later, order[5:]) {
		t.Errorf("from position 5 on: %v, not %v (%v)", later, order[5:], err)
	}
	if none, err := ctx.DataOrder(7, 0, 0, 10); err != nil || len(none) != 0 {
		t.Errorf("no positions: %v (%v)", none, err)
	}
	must.Refuse(t, must.Err(ctx.DataOrder(7, 0, 1, 0)), cuda.ErrInvalidValue, "windows")
	must.Refuse(t, must.Err(ctx.DataOrder(7, 0, -1, 1)), cuda.ErrInvalidSize, "count")
}
