package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/nncuda/nncuda/go/serve"
	"github.com/spf13/cobra"
)

const (
	keyFileBytes = 1 << 16
	mostBatch    = 4096
	mostQueue    = 1 << 20
)

// serveFlags are the flags of `serve`.
type serveFlags struct {
	model, host        string
	port               int
	keys               []string
	keyFile            string
	noAuth, noPage     bool
	name               string
	adapters           adapterFlags
	maxBatch, maxQueue int
	cacheTokens        int // 0 where it is not given
	timeout, drain     float64
	logFormat          string
	engine             engineFlags
	nodes              int
	device             deviceFlags
}

func newServe(std streams) *cobra.Command {
	flags := &serveFlags{}
	command := &cobra.Command{
		Use:   "serve [flags] MODEL",
		Short: "Serve a model over HTTP, in the words of OpenAI's API.",
		Long: `Serve MODEL over HTTP, in the words of OpenAI's API: a GGUF file, a Hugging Face folder (Llama, Qwen, Phi and others), a
checkpoint or a run.

With --adapter, requests choose by their model: NAME is MODEL with that adapter, and all are decoded together.

Requests of many clients are decoded together, and each gets the bytes that it would get alone. SIGTERM ends the server
when running requests have ended. Without an API key it answers on this machine only, unless --no-auth.`,
		Args: exactArguments("MODEL"),
		RunE: func(command *cobra.Command, arguments []string) error {
			flags.model = arguments[0]
			return flags.run(command, std)
		},
	}
	set := command.Flags()
	set.SortFlags = false
	set.StringVar(&flags.host, "host", "127.0.0.1", "The address to listen on.")
	set.IntVar(&flags.port, "port", 8000, "The port; 0 takes a free one.")
	set.StringArrayVar(&flags.keys, "api-key", nil, "A key that requests must have; repeatable.")
	set.StringVar(&flags.keyFile, "api-key-file", "", "A file of such keys, one a line; # begins a comment.")
	set.BoolVar(&flags.noAuth, "no-auth", false, "Serve on an address that others can reach, without a key.")
	set.StringVar(&flags.name, "model-name", "", "The name that requests have for the model.  [default: that of its file]")
	flags.adapters.add(set)
	set.IntVar(&flags.maxBatch, "max-batch", 32, "Texts that are written at once.")
	set.IntVar(&flags.maxQueue, "max-queue", 256, "Texts that may wait beside them; a further one is refused (429).")
	set.IntVar(&flags.cacheTokens, "cache-tokens", 0,
		"Room of the cache for all texts together, at least the context.  [default: four times the context]")
	set.Float64Var(&flags.timeout, "timeout", 600, "The longest that a request may take, in seconds.")
	set.Float64Var(&flags.drain, "drain-seconds", 30, "How long running requests may go on after SIGTERM.")
	set.StringVar(&flags.logFormat, "log-format", "text",
		"How the line that each request has in the log (standard error) is written: text or json.")
	set.BoolVar(&flags.noPage, "no-page", false, "Show no page with a chat at /.")
	set.IntVar(&flags.nodes, "nodes", 1,
		"Memory nodes (NUMA) over which threads, and the weights that they read, are spread.")
	flags.engine.addSizes(set)
	flags.device.add(set)
	return command
}

// check refuses wrong values of flags, and reads the keys.
func (f *serveFlags) check(command *cobra.Command) error {
	given := command.Flags().Changed
	if err := f.device.check(command); err != nil {
		return err
	}
	switch {
	case f.nodes < 1:
		return usagef("invalid value for '--nodes': %d is not in the range from 1", f.nodes)
	case f.port < 0 || f.port > 65535:
		return usagef("invalid value for '--port': %d is not in the range 0 to 65535", f.port)
	case f.maxBatch < 1 || f.maxBatch > mostBatch:
		return usagef("invalid value for '--max-batch': %d is not in the range 1 to %d", f.maxBatch, mostBatch)
	case f.maxQueue < 0 || f.maxQueue > mostQueue:
		return usagef("invalid value for '--max-queue': %d is not in the range 0 to %d", f.maxQueue, mostQueue)
	case given("cache-tokens") && f.cacheTokens < 1:
		return usagef("invalid value for '--cache-tokens': %d is not at least 1", f.cacheTokens)
	case !(f.timeout > 0):
		return usagef("invalid value for '--timeout': %v is not above 0", f.timeout)
	case !(f.drain >= 0):
		return usagef("invalid value for '--drain-seconds': %v is not at least 0", f.drain)
	case !slices.Contains(serve.LogFormats, f.logFormat):
		return usagef("invalid value for '--log-format': '%s' is not one of %s", f.logFormat,
			strings.Join(serve.LogFormats, ", "))
	}
	if err := f.engine.check(given); err != nil {
		return err
	}
	if err := requirePath("MODEL", filepath.Clean(f.model), anyPath); err != nil {
		return err
	}
	if err := f.adapters.check(); err != nil {
		return err
	}
	if err := f.readKeys(); err != nil {
		return err
	}
	if f.name == "" {
		f.name = nameOf(f.model)
	}
	switch {
	case f.noAuth && len(f.keys) > 0:
		return usagef("--no-auth and API keys exclude each other")
	case len(f.keys) == 0 && !f.noAuth && !serve.IsLoopback(f.host):
		return usagef("others can reach %s: give an --api-key or --api-key-file, or --no-auth to serve them without", f.host)
	case slices.Contains(f.adapters.names, f.name):
		return usagef("--adapter %s has the name of the model; choose another, or a --model-name", f.name)
	}
	return nil
}

// readKeys adds the keys of the file.
func (f *serveFlags) readKeys() error {
	if f.keyFile != "" {
		if err := requirePath("--api-key-file", f.keyFile, filePath); err != nil {
			return err
		}
		content, err := formats.ReadRegular(f.keyFile, keyFileBytes)
		if err != nil {
			return err
		}
		found := false
		for line := range strings.Lines(string(content)) {
			if key := strings.TrimSpace(line); key != "" && !strings.HasPrefix(line, "#") {
				f.keys, found = append(f.keys, key), true
			}
		}
		if !found {
			return usagef("%s holds no API key", f.keyFile)
		}
	}
	for _, key := range f.keys {
		if key == "" || strings.ContainsFunc(key, func(sign rune) bool { return sign <= ' ' || sign >= 0x7F }) {
			return usagef("an API key must be of visible ASCII characters, at least one")
		}
	}
	return nil
}

func (f *serveFlags) run(command *cobra.Command, std streams) (err error) {
	if err := f.check(command); err != nil {
		return err
	}
	address := net.JoinHostPort(f.host, strconv.Itoa(f.port))
	// Whether the address can be had shows before the model is loaded; but until then clients are to be told that nobody
	// is there.
	if tried, err := listen(address); err != nil {
		return err
	} else if err := tried.Close(); err != nil {
		return err
	}
	stop := interruptible(command.Context(), std)
	defer stop()
	start := time.Now()
	fmt.Fprintf(std.err, "loading %s\n", f.model)
	opened, err := stored.Open(filepath.Clean(f.model))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	adapters, err := f.adapters.open(opened.Config)
	defer func() {
		for _, one := range adapters {
			err = errors.Join(err, one.Adapter.Close())
		}
	}()
	if err != nil {
		return err
	}
	device, err := f.device.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	if f.nodes != 1 {
		if err := device.SetNodes(f.nodes); err != nil {
			return err
		}
	}
	made, err := infer.New(opened, device, engine.Options{
		Context: f.engine.context, CacheFormat: f.engine.cacheFormat, Weights: f.engine.weights, MaxBatch: f.maxBatch,
		CacheTokens: f.cacheTokens, Adapters: adapters,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	state, err := made.State(command.Context())
	if err != nil {
		return err
	}
	fmt.Fprintf(std.err, "loaded in %.1f s: %s parameters, context %d, cache %s for %d tokens, %s\n",
		time.Since(start).Seconds(), withCommas(made.Config().NumParameters()), made.Context(),
		bytesText(int(state.CacheBytes)), state.CachePages*engine.Page, deviceText(device))
	server, err := serve.New(made, serve.Options{
		Name: f.name, Keys: f.keys, Anyone: f.noAuth, MaxQueue: f.maxQueue, Timeout: duration(f.timeout),
		Drain: duration(f.drain), LogFormat: f.logFormat, NoPage: f.noPage, Log: std.err,
	})
	if err != nil {
		return err
	}
	on, err := listen(address)
	if err != nil {
		return err
	}
	stop() // from here on a signal is the server's
	signals, over := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, stopSignals...)
	defer signal.Stop(signals)
	defer close(over)
	go func() {
		for {
			select {
			case number := <-signals:
				why := "SIGTERM"
				if number == os.Interrupt {
					why = "SIGINT"
				}
				server.Stop(why)
			case <-over:
				return
			}
		}
	}()
	fmt.Fprintf(std.err, "serving %s on http://%s\n", f.name, on.Addr())
	return server.Serve(on)
}

// listen opens a socket there; an error says where it cannot be had.
func listen(address string) (net.Listener, error) {
	made, err := net.Listen("tcp", address)
	if err == nil {
		return made, nil
	}
	reason := err
	var system *os.SyscallError
	if errors.As(err, &system) {
		reason = system.Err
	}
	return nil, fmt.Errorf("%s: cannot listen there (%w)", address, reason)
}

// nameOf is the name of a model by its path: that of its file, without the ending.
func nameOf(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	base := filepath.Base(path)
	if at := strings.LastIndexByte(base, '.'); at > 0 && at < len(base)-1 {
		base = base[:at]
	}
	if base == string(filepath.Separator) {
		return "model"
	}
	return base
}

// duration is so many seconds; what is longer than a duration can be is the longest.
func duration(seconds float64) time.Duration {
	if seconds >= float64(math.MaxInt64)/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(seconds * float64(time.Second))
}

// withCommas is a whole number, its digits in groups of three.
func withCommas(number int) string {
	text := strconv.Itoa(number)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
