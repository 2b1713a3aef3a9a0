package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nncuda/nncuda/go/train"
)

// training starts a run that saves nothing by itself, and waits until it has written so many lines.
func training(t *testing.T, work, folder string, lines int, options ...string) (
	process *exec.Cmd, rest *bufio.Scanner, failure *bytes.Buffer,
) {
	t.Helper()
	arguments := []string{"train", folder, "--config", filepath.Join(work, "config.toml"), "--steps", "100000",
		"--save-every", "0", "--eval-every", "0"}
	process, failure = command(append(arguments, options...)...), &bytes.Buffer{}
	out, err := process.StdoutPipe()
	check(t, err)
	process.Stderr = failure
	check(t, process.Start())
	rest = bufio.NewScanner(out)
	for range lines {
		if !rest.Scan() {
			t.Fatalf("training ended by itself: %v: %s", process.Wait(), failure)
		}
	}
	return process, rest, failure
}

// TestSignalsSave: the step is finished and saved, the exit code is 0, and the run can be taken up.
func TestSignalsSave(t *testing.T) {
	work := workplace(t)
	for number, name := range map[syscall.Signal]string{syscall.SIGINT: "interrupted", syscall.SIGTERM: "terminated"} {
		folder := filepath.Join(work, name)
		process, rest, failure := training(t, work, folder, 10)
		check(t, process.Process.Signal(number))
		for rest.Scan() {
		}
		if err := process.Wait(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, failure)
		}
		folders := train.ListCheckpoints(filepath.Join(folder, "checkpoints"))
		records, err := train.ReadMetrics(filepath.Join(folder, "metrics.jsonl"))
		check(t, err)
		if len(folders) != 1 {
			t.Fatal(folders)
		}
		state, err := train.ReadState(filepath.Join(folders[0], "training.json"))
		if last := records[len(records)-1].Get("step"); err != nil || last != int64(state.Step) || state.Step < 10 {
			t.Errorf("%s: saved at step %d, the metrics end with %v (%v)", name, state.Step, last, err)
		}
		words := fmt.Sprintf("stopped after step %d of 100000; --resume continues from there\n", state.Step)
		if failure.String() != words {
			t.Errorf("%s: %q, not %q", name, failure, words)
		}
		again := command("train", folder, "--resume")
		out, err := again.StdoutPipe()
		check(t, err)
		check(t, again.Start())
		next := bufio.NewScanner(out)
		if !next.Scan() || !bytes.HasPrefix(next.Bytes(), fmt.Appendf(nil, `{"step":%d,`, state.Step+1)) {
			t.Errorf("%s: taken up, it began with %q", name, next.Text())
		}
		check(t, again.Process.Kill())
		_ = again.Wait() // it was killed
	}
}

// TestSecondSignalEndsAtOnce: in the middle of a step, without saving.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	work := workplace(t)
	folder := filepath.Join(work, "run")
	// Steps take long, so that the second signal comes in the step that the first one waits for.
	process, rest, _ := training(t, work, folder, 1, "--batch-size", "2000", "--micro-batch-size", "50")
	check(t, process.Process.Signal(syscall.SIGINT))
	check(t, process.Process.Signal(syscall.SIGTERM))
	for rest.Scan() {
	}
	err := process.Wait()
	code := syscall.Signal(process.ProcessState.ExitCode() - 128)
	if code != syscall.SIGINT && code != syscall.SIGTERM { // both wait: either may come first
		t.Errorf("it ended with %v", err)
	}
	if saved := train.ListCheckpoints(filepath.Join(folder, "checkpoints")); len(saved) > 0 {
		t.Errorf("it saved %v", saved)
	}
}
