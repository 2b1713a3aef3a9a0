package main

import (
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/withlibrary"
)

// TestRanksAreFound: by what a launcher tells, or as the flag says.
func TestRanksAreFound(t *testing.T) {
	ctx := withlibrary.Context(t)
	for _, name := range []string{"PMIX_RANK", "RANK", "WORLD_SIZE"} { // of the last two, which NCCL takes, a CPU knows nothing
		t.Setenv(name, "0")
	}
	flags := rankFlags{transport: "self", timeout: 1}
	comm := must.Get(flags.join(ctx))(t)
	if comm.Rank() != 0 || comm.Ranks() != 1 || !isFirst(comm) {
		t.Errorf("rank %d of %d", comm.Rank(), comm.Ranks())
	}
	must.Do(t, comm.Close())
	flags.transport = "auto"
	t.Setenv("NNCUDA_MPI", "/nowhere/libmpi_abi.so")
	if _, err := flags.join(ctx); err == nil || !strings.Contains(err.Error(), "NNCUDA_MPI") {
		t.Errorf("under mpiexec, but %v", err)
	}
}

func TestLocalDevice(t *testing.T) {
	t.Setenv("LOCAL_RANK", "3")
	for given, want := range map[string]string{"cuda": "cuda:3", "cuda:0": "cuda:0", "cpu": "cpu", "auto": "auto"} {
		if found := localDevice(given); found != want {
			t.Errorf("%s is %s, not %s", given, found, want)
		}
	}
	t.Setenv("LOCAL_RANK", "-1")
	if found := localDevice("cuda"); found != "cuda" {
		t.Errorf("cuda is %s", found)
	}
}

func TestWrongRankFlags(t *testing.T) {
	for words, flags := range map[string]rankFlags{
		"invalid value for '--transport': 'threads' is not one of auto, self, mpi, nccl": {transport: "threads"},
		"invalid value for '--peer-timeout': -1 is not in the range 0<=x<=1e9":           {transport: "auto", timeout: -1},
	} {
		if err := flags.check(); err == nil || err.Error() != words {
			t.Errorf("%v, not %s", err, words)
		}
	}
}
