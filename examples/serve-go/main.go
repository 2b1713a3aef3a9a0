// Command serve-go answers HTTP requests with what a model writes, as it writes it. The model is a checkpoint of any of
// nncuda's languages; see README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/model"
	"github.com/nncuda/nncuda/go/train"
)

// options are the flags.
type options struct {
	model, address, device string
	queue                  int
	grace                  time.Duration
}

func main() {
	var flags options
	flag.StringVar(&flags.model, "model", "", "a checkpoint, or the folder of a run, whose last checkpoint is taken")
	flag.StringVar(&flags.address, "listen", "127.0.0.1:8080", "where to listen")
	flag.StringVar(&flags.device, "device", "cpu", "cpu, cuda, cuda:INDEX, or auto")
	flag.IntVar(&flags.queue, "queue", 16, "how many requests may wait while one generates")
	flag.DurationVar(&flags.grace, "grace", 30*time.Second, "how long requests may go on after an interrupt")
	flag.Parse()
	if flags.model == "" || flags.queue < 0 || flag.NArg() > 0 {
		fmt.Fprintln(flag.CommandLine.Output(), "-model is required, -queue must be at least 0, and there are no other arguments:")
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flags); err != nil {
		log.Fatal(err)
	}
}

func run(flags options) error {
	hardware, err := cuda.New(flags.device)
	if err != nil {
		return err
	}
	defer hardware.Close()
	path, err := train.ResolveCheckpoint(flags.model, false)
	if err != nil {
		return err
	}
	checkpoint, err := train.OpenCheckpoint(path)
	if err != nil {
		return err
	}
	defer checkpoint.Close()
	transformer, err := checkpoint.Model(hardware, model.F32, false)
	if err != nil {
		return err
	}
	defer transformer.Close()

	handler := &service{
		config: transformer.Config, tokens: checkpoint.Tokenizer, queue: newQueue(flags.queue),
		generate: func(
			ctx context.Context, prompt []int32, count int, sampling infer.Sampling, end int32,
		) iter.Seq2[int32, error] {
			return infer.Tokens(ctx, transformer, prompt, count, sampling, end)
		},
	}
	listener, err := net.Listen("tcp", flags.address)
	if err != nil {
		return err
	}
	fmt.Printf("%s at http://%s\n", path, listener.Addr())
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	context.AfterFunc(stop, cancel) // a second signal ends the program at once
	return serve(stop, listener, handler, flags.grace)
}

// serve answers requests until stop is done, and returns when none uses the model any more. What was asked before may go
// on for so long; then it is cut off.
func serve(stop context.Context, listener net.Listener, handler *service, grace time.Duration) error {
	working, abort := context.WithCancel(context.Background())
	defer abort()
	server := &http.Server{
		Handler:           handler.routes(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return working },
	}
	done := make(chan error, 1)
	go func() {
		<-stop.Done()
		limited, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		err := server.Shutdown(limited)
		if errors.Is(err, context.DeadlineExceeded) {
			abort() // each request ends with the token that is being computed
			err = server.Shutdown(context.Background())
		}
		done <- err
	}()
	// Serve returns at once, Shutdown when the requests are done.
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-done
}
