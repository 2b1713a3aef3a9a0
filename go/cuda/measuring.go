package cuda

/*
#include "calls_gen.h"
*/
import "C"

import "fmt"

// A Machine is what of a device decides how much memory and work a program needs there. What is zero is as this machine
// has it, Multiprocessors as the usual GPU of the capability does.
type Machine struct {
	Device          Device
	Threads         int // of the CPU engine
	ISA             ISA // of the CPU engine, where HasISA
	HasISA          bool
	Capability      int // of a GPU: 90 for 9.0
	Multiprocessors int // of a GPU
}

// NewMeasuring makes a context that measures what a program would need of a machine, which need not be there: a program
// runs on it as on a real one, but its kernels do nothing. Arguments are checked, BytesPeak and its like are those of the
// real device, and the profile has calls, bytes and operations, without times. Its memory costs none; reading it gives
// zeros.
//
// Close it. [ErrInvalidValue] for a machine that there cannot be, [ErrNoDevice] for a GPU like this machine's, which has
// none.
func NewMeasuring(machine Machine) (*Context, error) {
	if err := Load(); err != nil {
		return nil, err
	}
	isa := C.int32_t(-1)
	switch {
	case machine.Device == CUDA && machine.Capability != 0:
		isa = C.int32_t(machine.Capability)
	case machine.Device == CPU && machine.HasISA:
		isa = C.int32_t(machine.ISA)
	}
	var handle *C.nncuda_ctx
	status := Status(C.call_nncuda_ctx_create_measuring(C.int32_t(machine.Device), isa, C.int32_t(machine.Threads),
		C.int32_t(machine.Multiprocessors), &handle))
	if status != success {
		return nil, &Error{Status: status, Function: "nncuda_ctx_create_measuring",
			Message: fmt.Sprintf("no context can measure for %+v: %v", machine, status)}
	}
	return newContext(handle, machine.Device, 0), nil
}

// Machine is the one that the context computes on, or measures for.
func (ctx *Context) Machine() (Machine, error) {
	machine := Machine{Device: ctx.device}
	isa, err := ctx.get(ctxISA)
	if err != nil {
		return machine, err
	}
	if ctx.device == CUDA {
		machine.Capability = int(isa)
		sms, err := ctx.get(ctxMultiprocessors)
		machine.Multiprocessors = int(sms)
		return machine, err
	}
	machine.ISA, machine.HasISA = ISA(isa), true
	machine.Threads, err = ctx.Threads()
	return machine, err
}

// Measures says whether the context only measures.
func (ctx *Context) Measures() (bool, error) {
	value, err := ctx.get(ctxMeasuring)
	return value != 0, err
}
