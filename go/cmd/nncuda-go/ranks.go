package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/train"
	"github.com/spf13/pflag"
)

// transports are those that --transport names; the one of threads is for programs.
var transports = map[string]cuda.Transport{
	"auto": cuda.TransportAuto, "self": cuda.TransportSelf, "mpi": cuda.TransportMPI, "nccl": cuda.TransportNCCL,
}

// rankFlags are --transport, --peer-timeout, --log-ranks and --expert-parallel.
type rankFlags struct {
	transport string
	timeout   float64
	log       bool
	experts   int
}

func (r *rankFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&r.transport, "transport", "auto", "How ranks reach each other, auto, self, mpi or nccl; auto: mpi if "+
		"mpiexec started this, nccl if RANK and WORLD_SIZE are set and the device is a GPU, else there is one rank.")
	flags.Float64Var(&r.timeout, "peer-timeout", 600,
		"Seconds without an answer after which a rank counts as lost; 0 waits for ever.")
	flags.BoolVar(&r.log, "log-ranks", false, "Other ranks than the first tell their steps, too, on standard error.")
	addExpertParallel(flags, &r.experts)
}

// addExpertParallel adds --expert-parallel.
func addExpertParallel(flags *pflag.FlagSet, value *int) {
	flags.IntVar(value, "expert-parallel", 1,
		"So many neighbouring ranks share the experts out, each holding as many; it must divide both numbers.")
}

// check refuses wrong values.
func (r *rankFlags) check() error {
	if _, known := transports[r.transport]; !known {
		return usagef("invalid value for '--transport': '%s' is not one of auto, self, mpi, nccl", r.transport)
	}
	if !(r.timeout >= 0 && r.timeout <= 1e9) {
		return usagef("invalid value for '--peer-timeout': %v is not in the range 0<=x<=1e9", r.timeout)
	}
	return nil
}

// patience is how long a rank that cannot begin waits for the others, to tell them.
const patience = time.Minute

// beforeJoining gives back an error that a rank met before it had its communicator, and tells it to the ranks that
// mpiexec started with it: MPI would let them wait for this one for ever.
func beforeJoining(err error) error {
	if err == nil {
		return nil
	}
	ctx, failure := cuda.New("cpu", cuda.WithThreads(1))
	if failure != nil {
		return err
	}
	defer ctx.Close()
	comm, failure := ctx.NewComm(cuda.TransportAuto, "", cuda.Launched, cuda.Launched, patience)
	if failure != nil {
		return err
	}
	return errors.Join(train.TellFailure(comm, err), comm.Close())
}

// join gives the communicator of the ranks that were started with this one, or of this one alone.
func (r *rankFlags) join(ctx *cuda.Context) (*cuda.Comm, error) {
	timeout := time.Duration(r.timeout * float64(time.Second))
	return ctx.NewComm(transports[r.transport], "", cuda.Launched, cuda.Launched, timeout)
}

// options are those of a run on the ranks of a communicator.
func (r *rankFlags) options(comm *cuda.Comm) []train.Option {
	return []train.Option{train.WithComm(comm), train.WithExpertParallel(r.experts)}
}

// localDevice is the GPU that a launcher such as torchrun has for this rank, where a GPU is asked for without a number.
func localDevice(device string) string {
	local := os.Getenv("LOCAL_RANK")
	if _, err := strconv.ParseUint(local, 10, 31); device != "cuda" || err != nil {
		return device
	}
	return "cuda:" + local
}

// isFirst says whether this rank talks.
func isFirst(comm *cuda.Comm) bool { return comm.Rank() == 0 }

// runAside trains as another rank than the first, and tells its steps if that is wished.
func (r *rankFlags) runAside(ctx context.Context, run *train.Run, comm *cuda.Comm, std streams) error {
	if r.log {
		run.OnProgress = func(progress train.Progress) {
			line := fmt.Sprintf("rank %d: step %d, loss %.3f · %.0f tokens/s of all ranks\n", comm.Rank(), progress.Step,
				progress.Loss, progress.TokensPerSecond)
			fmt.Fprint(std.err, line) // in one piece, since other ranks write there, too
		}
	}
	return run.Train(ctx)
}
