// Command embed-go is a service without a network: requests are lines of JSON on the standard input, and what a model
// writes for them are lines on the standard output; see README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/nncuda/nncuda/go/infer"
)

func main() {
	path := flag.String("model", "", "a GGUF file, a Hugging Face folder, a checkpoint or a run")
	device := flag.String("device", "cpu", "cpu, cuda, cuda:INDEX, or auto")
	flag.Parse()
	if *path == "" || flag.NArg() > 0 {
		fmt.Fprintln(flag.CommandLine.Output(), "-model is required, and there are no other arguments:")
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*path, *device); err != nil {
		log.Fatal(err)
	}
}

func run(path, device string) (err error) {
	model, err := infer.Load(path, infer.LoadOptions{Device: device})
	if err != nil {
		return err
	}
	defer func() {
		if closed := model.Close(); err == nil {
			err = closed
		}
	}()
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	return newService(model, os.Stdout).run(stop, os.Stdin)
}
