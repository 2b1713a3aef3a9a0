// Code generated from bindings.h by `make generate`. DO NOT EDIT.

package cuda

// Status is an enum of bindings.h. Status codes. Grouped by ten, append-only: a number is never reused.
type Status int32

// Values of Status.
const (
	// success is NNCUDA_SUCCESS.
	success Status = 0

	// ErrInvalidContext is NNCUDA_ERROR_INVALID_CONTEXT: the context, stream, event or graph is null or not one of
	// this library.
	ErrInvalidContext Status = 10

	// ErrNullPointer is NNCUDA_ERROR_NULL_POINTER: a pointer that must not be null is.
	ErrNullPointer Status = 11

	// ErrInvalidSize is NNCUDA_ERROR_INVALID_SIZE: negative, too large for its product to fit, or at odds with
	// another size.
	ErrInvalidSize Status = 12

	// ErrInvalidDType is NNCUDA_ERROR_INVALID_DTYPE: unknown dtype, or one that this function does not take.
	ErrInvalidDType Status = 13

	// ErrInvalidValue is NNCUDA_ERROR_INVALID_VALUE: an option, flag or enum out of its range.
	ErrInvalidValue Status = 14

	// ErrMisaligned is NNCUDA_ERROR_MISALIGNED: a pointer is not a multiple of its element's size.
	ErrMisaligned Status = 15

	// ErrWrongDevice is NNCUDA_ERROR_WRONG_DEVICE: a pointer or handle belongs to another device or context.
	ErrWrongDevice Status = 16

	// ErrAliased is NNCUDA_ERROR_ALIASED: an output overlaps an argument in a way that is not allowed.
	ErrAliased Status = 17

	// ErrOutOfRange is NNCUDA_ERROR_OUT_OF_RANGE: a token id, target, expert index or position is outside its range.
	ErrOutOfRange Status = 20

	// ErrOutOfMemory is NNCUDA_ERROR_OUT_OF_MEMORY: the device or the host has no more; the context stays usable.
	ErrOutOfMemory Status = 30

	// ErrUnsupported is NNCUDA_ERROR_UNSUPPORTED: valid, but this engine cannot do it.
	ErrUnsupported Status = 40

	// ErrNoDevice is NNCUDA_ERROR_NO_DEVICE: no such device on this machine, or no driver for it.
	ErrNoDevice Status = 41

	// ErrCapturing is NNCUDA_ERROR_CAPTURING: not allowed while the context captures a graph.
	ErrCapturing Status = 50

	// ErrState is NNCUDA_ERROR_STATE: begin without end, end without begin, or the like.
	ErrState Status = 51

	// ErrBusy is NNCUDA_ERROR_BUSY: another thread is inside a call on this context.
	ErrBusy Status = 52

	// ErrDevice is NNCUDA_ERROR_DEVICE: the device reported a fault; the context is lost.
	ErrDevice Status = 60

	// ErrPeer is NNCUDA_ERROR_PEER: another rank failed, left, hung or does not match this one; the communicator is
	// lost.
	ErrPeer Status = 61

	// ErrInternal is NNCUDA_ERROR_INTERNAL: a defect of this library: please report it.
	ErrInternal Status = 70
)

// DType is an enum of bindings.h. Element types. Append-only.
type DType int32

// Values of DType.
const (
	// F32 is NNCUDA_F32: IEEE binary32.
	F32 DType = 0

	// F16 is NNCUDA_F16: IEEE binary16.
	F16 DType = 1

	// BF16 is NNCUDA_BF16: bfloat16.
	BF16 DType = 2

	// I32 is NNCUDA_I32.
	I32 DType = 3

	// I8 is NNCUDA_I8.
	I8 DType = 4
)

// Format is an enum of bindings.h. Formats in which weights and caches are stored: dtypes, under their numbers, and
// blocks of GGUF, in which 32 or 256 neighbouring elements of a row share scales. _R16: the same bytes in an order made
// for products. Append-only.
type Format int32

// Values of Format.
const (
	// FormatF32 is NNCUDA_FORMAT_F32.
	FormatF32 Format = 0

	// FormatF16 is NNCUDA_FORMAT_F16.
	FormatF16 Format = 1

	// FormatBF16 is NNCUDA_FORMAT_BF16.
	FormatBF16 Format = 2

	// FormatQ40 is NNCUDA_FORMAT_Q4_0: 18 bytes for 32: f16 scale, 4 bits each.
	FormatQ40 Format = 10

	// FormatQ41 is NNCUDA_FORMAT_Q4_1: 20 bytes for 32: f16 scale and minimum, 4 bits each.
	FormatQ41 Format = 11

	// FormatQ50 is NNCUDA_FORMAT_Q5_0: 22 bytes for 32: f16 scale, 5 bits each.
	FormatQ50 Format = 12

	// FormatQ51 is NNCUDA_FORMAT_Q5_1: 24 bytes for 32: f16 scale and minimum, 5 bits each.
	FormatQ51 Format = 13

	// FormatQ80 is NNCUDA_FORMAT_Q8_0: 34 bytes for 32: f16 scale, 8 bits each.
	FormatQ80 Format = 14

	// FormatQ4K is NNCUDA_FORMAT_Q4_K: 144 bytes for 256: eight parts with 6-bit scales and minima, 4 bits each.
	FormatQ4K Format = 15

	// FormatQ5K is NNCUDA_FORMAT_Q5_K: 176 bytes for 256: eight parts with 6-bit scales and minima, 5 bits each.
	FormatQ5K Format = 16

	// FormatQ6K is NNCUDA_FORMAT_Q6_K: 210 bytes for 256: sixteen parts with 8-bit scales, 6 bits each.
	FormatQ6K Format = 17

	// FormatIq4Nl is NNCUDA_FORMAT_IQ4_NL: 18 bytes for 32: f16 scale, 4 bits each, which number sixteen values;
	// read, not stored.
	FormatIq4Nl Format = 18

	// FormatMxfp4 is NNCUDA_FORMAT_MXFP4: 17 bytes for 32: scale a power of two, OCP 4-bit floating point; read, not
	// stored.
	FormatMxfp4 Format = 19

	// FormatE4m3 is NNCUDA_FORMAT_E4M3: OCP 8-bit floating point, 1 byte each, without a scale: caches alone.
	FormatE4m3 Format = 20

	// FormatIq4Xs is NNCUDA_FORMAT_IQ4_XS: 136 bytes for 256: eight parts with 6-bit scales, 4 bits each as of
	// iq4_nl; read, not stored.
	FormatIq4Xs Format = 21

	// FormatQ2K is NNCUDA_FORMAT_Q2_K: 84 bytes for 256: sixteen parts with 4-bit scales and minima, 2 bits each.
	FormatQ2K Format = 22

	// FormatQ3K is NNCUDA_FORMAT_Q3_K: 110 bytes for 256: sixteen parts with 6-bit scales, 3 bits each.
	FormatQ3K Format = 23

	// FormatQ40R16 is NNCUDA_FORMAT_Q4_0_R16: q4_0, sixteen rows side by side: cuda_interleave_rows.
	FormatQ40R16 Format = 30

	// FormatQ41R16 is NNCUDA_FORMAT_Q4_1_R16: the others likewise: 20 more than the plain format.
	FormatQ41R16 Format = 31

	// FormatQ50R16 is NNCUDA_FORMAT_Q5_0_R16.
	FormatQ50R16 Format = 32

	// FormatQ51R16 is NNCUDA_FORMAT_Q5_1_R16.
	FormatQ51R16 Format = 33

	// FormatQ80R16 is NNCUDA_FORMAT_Q8_0_R16.
	FormatQ80R16 Format = 34

	// FormatQ4KR16 is NNCUDA_FORMAT_Q4_K_R16.
	FormatQ4KR16 Format = 35

	// FormatQ5KR16 is NNCUDA_FORMAT_Q5_K_R16.
	FormatQ5KR16 Format = 36

	// FormatQ6KR16 is NNCUDA_FORMAT_Q6_K_R16.
	FormatQ6KR16 Format = 37

	// FormatIq4NlR16 is NNCUDA_FORMAT_IQ4_NL_R16.
	FormatIq4NlR16 Format = 38

	// FormatMxfp4R16 is NNCUDA_FORMAT_MXFP4_R16.
	FormatMxfp4R16 Format = 39

	// FormatIq4XsR16 is NNCUDA_FORMAT_IQ4_XS_R16.
	FormatIq4XsR16 Format = 41

	// FormatQ2KR16 is NNCUDA_FORMAT_Q2_K_R16.
	FormatQ2KR16 Format = 42

	// FormatQ3KR16 is NNCUDA_FORMAT_Q3_K_R16.
	FormatQ3KR16 Format = 43
)

// Device is an enum of bindings.h. Devices, numbered as in DLPack.
type Device int32

// Values of Device.
const (
	// CPU is NNCUDA_DEVICE_CPU.
	CPU Device = 1

	// CUDA is NNCUDA_DEVICE_CUDA.
	CUDA Device = 2
)

// ISA is an enum of bindings.h. Instruction sets of the CPU engine, from the plainest to the widest: those of x86-64,
// then those of AArch64. NEON and what is wider on AArch64 have the bits of AVX2.
type ISA int32

// Values of ISA.
const (
	// Baseline is NNCUDA_ISA_BASELINE: what every processor of the architecture has.
	Baseline ISA = 0

	// AVX2 is NNCUDA_ISA_AVX2: x86-64 with AVX2, FMA and F16C.
	AVX2 ISA = 1

	// AVX512 is NNCUDA_ISA_AVX512: AVX-512 F, BW, DQ, VL.
	AVX512 ISA = 2

	// AVX512BF16 is NNCUDA_ISA_AVX512BF16: the above, AVX512_BF16 and AVX512_VNNI.
	AVX512BF16 ISA = 3

	// AMX is NNCUDA_ISA_AMX: the above, AVX512_VBMI and AMX tiles of bf16 and int8.
	AMX ISA = 4

	// NEON is NNCUDA_ISA_NEON: every AArch64 processor.
	NEON ISA = 5

	// DotProd is NNCUDA_ISA_DOTPROD: the above and dot products of bytes (FEAT_DotProd).
	DotProd ISA = 6

	// I8MM is NNCUDA_ISA_I8MM: the above and matrix products of bytes (FEAT_I8MM).
	I8MM ISA = 7
)

// attribute is an enum of bindings.h. Attributes of a context, for nncuda_ctx_get and nncuda_ctx_set.
type attribute int32

// Values of attribute.
const (
	// ctxThreads is NNCUDA_CTX_THREADS: worker threads, the caller included; may be set (1..256). Default: the cores
	// allowed. 0 on a GPU.
	ctxThreads attribute = 0

	// ctxISA is NNCUDA_CTX_ISA: instruction set in use; may be set to any that this processor has. On a GPU, where
	// it is read-only, the compute capability: 90 for 9.0.
	ctxISA attribute = 1

	// ctxDevice is NNCUDA_CTX_DEVICE: NNCUDA_DEVICE_*.
	ctxDevice attribute = 2

	// ctxDeviceIndex is NNCUDA_CTX_DEVICE_INDEX: which of them.
	ctxDeviceIndex attribute = 3

	// ctxBytesUsed is NNCUDA_CTX_BYTES_USED: bytes now handed out by nncuda_malloc.
	ctxBytesUsed attribute = 4

	// ctxBytesPeak is NNCUDA_CTX_BYTES_PEAK: the most that BYTES_USED and the arena together ever were; set 0 to
	// start again.
	ctxBytesPeak attribute = 5

	// ctxBytesPooled is NNCUDA_CTX_BYTES_POOLED: bytes freed and kept for reuse; set 0 to return them to the system.
	ctxBytesPooled attribute = 6

	// ctxBytesArena is NNCUDA_CTX_BYTES_ARENA: size of the scratch memory, that of graphs included.
	ctxBytesArena attribute = 7

	// ctxTF32 is NNCUDA_CTX_TF32: 1 allows f32 products on a GPU to round their factors to tf32, 10 bits; default 0.
	ctxTF32 attribute = 8

	// ctxMeasuring is NNCUDA_CTX_MEASURING: 1 when the context runs nothing (nncuda_ctx_create_measuring): its
	// memory cannot be read.
	ctxMeasuring attribute = 9

	// ctxMultiprocessors is NNCUDA_CTX_MULTIPROCESSORS: of the GPU; 0 on the CPU engine.
	ctxMultiprocessors attribute = 10

	// ctxBytesHeld is NNCUDA_CTX_BYTES_HELD: BYTES_PEAK in the pages that the device gives at once; on the CPU
	// engine BYTES_PEAK.
	ctxBytesHeld attribute = 11

	// ctxTwoParts is NNCUDA_CTX_TWO_PARTS: 1 has flash_attention_backward in 16 bits multiply probabilities and
	// their gradients as two 16-bit numbers each on every GPU, where it else does so on Hopper only below 512 keys;
	// default 0.
	ctxTwoParts attribute = 12

	// ctxNodes is NNCUDA_CTX_NODES: memory nodes (NUMA) over which worker threads are spread, each kept on one; may
	// be set (1 to as many as the process may use). With more than 1, what a copy or a kernel writes first lies on
	// the node whose threads read it later. Default 1: as the system likes. 0 on a GPU.
	ctxNodes attribute = 13
)

// copyKind is an enum of bindings.h. What nncuda_memcpy moves. On the CPU engine all three are a copy.
type copyKind int32

// Values of copyKind.
const (
	// hostToDevice is NNCUDA_HOST_TO_DEVICE.
	hostToDevice copyKind = 1

	// deviceToHost is NNCUDA_DEVICE_TO_HOST.
	deviceToHost copyKind = 2

	// deviceToDevice is NNCUDA_DEVICE_TO_DEVICE.
	deviceToDevice copyKind = 3
)

// RopeLayout is an enum of bindings.h. How rotary embedding pairs the elements of a head.
type RopeLayout int32

// Values of RopeLayout.
const (
	// RopeHalf is NNCUDA_ROPE_HALF: element i with i + head_dim/2 (GPT-NeoX, Llama in transformers).
	RopeHalf RopeLayout = 0

	// RopeInterleaved is NNCUDA_ROPE_INTERLEAVED: element 2i with 2i+1 (the paper; Llama in GGUF).
	RopeInterleaved RopeLayout = 1
)

// Activation is an enum of bindings.h. What gemm_epilogue applies to the product.
type Activation int32

// Values of Activation.
const (
	// ActivationNone is NNCUDA_ACTIVATION_NONE.
	ActivationNone Activation = 0

	// ActivationSiLU is NNCUDA_ACTIVATION_SILU.
	ActivationSiLU Activation = 1
)

// ReportForm is an enum of bindings.h. Forms of nncuda_profile_report.
type ReportForm int32

// Values of ReportForm.
const (
	// ReportTable is NNCUDA_REPORT_TABLE.
	ReportTable ReportForm = 0

	// ReportJSON is NNCUDA_REPORT_JSON.
	ReportJSON ReportForm = 1

	// ReportChromeTrace is NNCUDA_REPORT_CHROME_TRACE.
	ReportChromeTrace ReportForm = 2
)

// Transport is an enum of bindings.h. How the ranks of a communicator reach each other. Append-only.
type Transport int32

// Values of Transport.
const (
	// TransportSelf is NNCUDA_TRANSPORT_SELF: a rank alone.
	TransportSelf Transport = 0

	// TransportThreads is NNCUDA_TRANSPORT_THREADS: contexts of one process, each in a thread of its own, on the CPU
	// engine.
	TransportThreads Transport = 1

	// TransportMPI is NNCUDA_TRANSPORT_MPI: processes that an MPI launcher started: MPI's standard ABI,
	// libmpi_abi.so; CPU memory.
	TransportMPI Transport = 2

	// TransportNCCL is NNCUDA_TRANSPORT_NCCL: GPUs: libnccl.so.2.
	TransportNCCL Transport = 3

	// TransportAuto is NNCUDA_TRANSPORT_AUTO: NCCL on a GPU where RANK and WORLD_SIZE are set; MPI where its
	// launcher began the process; else a rank alone.
	TransportAuto Transport = 4
)

// ExpertEventKind is an enum of bindings.h. Kinds of the events of nncuda_expert_schedule.
type ExpertEventKind int32

// Values of ExpertEventKind.
const (
	// ExpertsRun is NNCUDA_EXPERTS_RUN.
	ExpertsRun ExpertEventKind = 0

	// ExpertsAdd is NNCUDA_EXPERTS_ADD.
	ExpertsAdd ExpertEventKind = 1

	// ExpertsCopy is NNCUDA_EXPERTS_COPY.
	ExpertsCopy ExpertEventKind = 2

	// ExpertsRound is NNCUDA_EXPERTS_ROUND.
	ExpertsRound ExpertEventKind = 3
)

// statusText is what a status means; empty for a number that is none.
func statusText(s Status) string {
	switch s {
	case success:
		return "success"
	case ErrInvalidContext:
		return "the context, stream, event or graph is null or not one of this library"
	case ErrNullPointer:
		return "a pointer that must not be null is"
	case ErrInvalidSize:
		return "negative, too large for its product to fit, or at odds with another size"
	case ErrInvalidDType:
		return "unknown dtype, or one that this function does not take"
	case ErrInvalidValue:
		return "an option, flag or enum out of its range"
	case ErrMisaligned:
		return "a pointer is not a multiple of its element's size"
	case ErrWrongDevice:
		return "a pointer or handle belongs to another device or context"
	case ErrAliased:
		return "an output overlaps an argument in a way that is not allowed"
	case ErrOutOfRange:
		return "a token id, target, expert index or position is outside its range"
	case ErrOutOfMemory:
		return "the device or the host has no more; the context stays usable"
	case ErrUnsupported:
		return "valid, but this engine cannot do it"
	case ErrNoDevice:
		return "no such device on this machine, or no driver for it"
	case ErrCapturing:
		return "not allowed while the context captures a graph"
	case ErrState:
		return "begin without end, end without begin, or the like"
	case ErrBusy:
		return "another thread is inside a call on this context"
	case ErrDevice:
		return "the device reported a fault; the context is lost"
	case ErrPeer:
		return "another rank failed, left, hung or does not match this one; the communicator is lost"
	case ErrInternal:
		return "a defect of this library: please report it"
	}
	return ""
}
