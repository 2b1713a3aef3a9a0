package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// stopSignals ask a training run to stop: the terminal's interrupt, and what systems send to what they shut down.
var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// stoppable gives a context that the first of the stopSignals cancels. A second ends the program at once, as it would
// have without us: 128 and its number is the exit code. `release` ends both.
func stoppable(parent context.Context) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2) // two may come before the first is looked at
	signal.Notify(signals, stopSignals...)
	done := make(chan struct{})
	go func() {
		asked := false
		for {
			select {
			case number := <-signals:
				if asked {
					os.Exit(128 + int(number.(syscall.Signal)))
				}
				asked = true
				cancel()
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}
