package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
	"github.com/nncuda/nncuda/go/model/stored"
	"github.com/spf13/cobra"
)

const chatHelp = `/clear   forget the conversation, but not the system message
/system  show the system message, or set it: /system TEXT
/stats   show what the conversation has taken so far
/exit    exit, as Ctrl-D does
Ctrl-C stops an answer; pressed twice at the prompt, it exits.`

// chatFlags are the flags of `chat`.
type chatFlags struct {
	model, system string
	maxTokens     int // 0 where it is not given
	drawing       drawingFlags
	engine        engineFlags
	adapter       adapterFlag
	device        deviceFlags
}

func newChat(std streams) *cobra.Command {
	flags := &chatFlags{}
	command := &cobra.Command{
		Use:   "chat [flags] [MODEL]",
		Short: "Talk with a model in the terminal.",
		Long: `Talk with MODEL: a GGUF file, a Hugging Face folder (Llama, Qwen, Phi and others), a checkpoint or a run.

Each line is a message; messages are formatted with the model's chat template. /help lists the commands. Ctrl-C stops
an answer; at the prompt, Ctrl-D or a second Ctrl-C exits.`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if flags.model != "" {
				arguments = append([]string{flags.model}, arguments...)
			}
			if len(arguments) != 1 {
				return usagef("name one MODEL, as the argument or with --model")
			}
			flags.model = arguments[0]
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error { return flags.run(command, std) },
	}
	set := command.Flags()
	set.SortFlags = false
	set.StringVar(&flags.model, "model", "", "The model.")
	set.StringVar(&flags.system, "system", "", "The system message.")
	set.IntVar(&flags.maxTokens, "max-tokens", 0,
		"Maximum number of tokens of an answer.  [default: what the context leaves]")
	flags.drawing.add(set, 0.7, "0 always picks the most likely token", 0.95, "the same answers")
	flags.engine.add(set)
	flags.adapter.add(set)
	flags.device.add(set)
	return command
}

// check refuses wrong values of flags.
func (f *chatFlags) check(command *cobra.Command) error {
	if err := f.device.check(command); err != nil {
		return err
	}
	given := command.Flags().Changed
	if given("max-tokens") && (f.maxTokens < 1 || f.maxTokens > math.MaxInt32) {
		return usagef("invalid value for '--max-tokens': %d is not at least 1", f.maxTokens)
	}
	if err := f.engine.check(given); err != nil {
		return err
	}
	if err := requirePath("MODEL", filepath.Clean(f.model), anyPath); err != nil {
		return err
	}
	return f.adapter.check(given)
}

func (f *chatFlags) run(command *cobra.Command, std streams) (err error) {
	if err := f.check(command); err != nil {
		return err
	}
	stop := interruptible(command.Context(), std)
	defer stop()
	sampling, err := f.drawing.read(command.Flags().Changed, false)
	if err != nil {
		return err
	}
	start := time.Now()
	opened, err := stored.Open(filepath.Clean(f.model))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	adapter, err := f.adapter.open(opened.Config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, adapter.Close()) }()
	template, err := opened.ChatTemplate()
	if err != nil {
		return err
	}
	device, err := f.device.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	made, err := infer.New(opened, device, engine.Options{
		Context: f.engine.context, CacheFormat: f.engine.cacheFormat, Weights: f.engine.weights, MaxBatch: 1,
		Adapter: adapter,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	session := &chatSession{
		conversation: &infer.Conversation{
			Model: made, System: f.system, Generation: infer.Generation{MaxNewTokens: f.maxTokens, Sampling: sampling},
		},
		device: device, loaded: time.Since(start), std: std, out: newSpokenWriter(std.out),
		interrupts: make(chan os.Signal, 1),
	}
	if err := session.conversation.Check(); err != nil {
		return err
	}
	if template.Plain() {
		fmt.Fprintln(std.err, "The model has no chat template: it is given lines that begin with User: and Assistant:")
	}
	stop() // from here on an interrupt is the session's
	// The command's context ends with the first interrupt, and the session does not.
	session.ctx = context.WithoutCancel(command.Context())
	signal.Notify(session.interrupts, os.Interrupt)
	defer signal.Stop(session.interrupts)
	if err := session.run(); err != nil || !f.engine.stats {
		return err
	}
	return session.writeStatistics()
}

// chatSession is the terminal's side of a conversation.
type chatSession struct {
	ctx           context.Context
	conversation  *infer.Conversation
	device        *cuda.Context
	loaded, first time.Duration // how long loading took, and the first token
	std           streams
	out           *spokenWriter
	interrupts    chan os.Signal
}

// input is a line that was read, or why none was.
type input struct {
	line string
	err  error
}

// lines reads lines as they come. The goroutine ends with the input, or the program.
func (s *chatSession) lines() <-chan input {
	lines := make(chan input)
	go func() {
		reader := bufio.NewReader(s.std.in)
		for {
			line, err := reader.ReadString('\n')
			if line != "" {
				lines <- input{line: strings.TrimRight(line, "\r\n")}
			}
			if err != nil {
				lines <- input{err: err}
				return
			}
		}
	}()
	return lines
}

// run reads messages and writes answers until the user leaves.
func (s *chatSession) run() error {
	file, isFile := s.std.in.(*os.File)
	prompts := isFile && isTerminal(file)
	lines := s.lines()
	interrupted := false
	for {
		if prompts {
			if err := s.out.write("> "); err != nil {
				return err
			}
		}
		select {
		case <-s.interrupts:
			if err := s.out.write("\n"); err != nil || interrupted {
				return err
			}
			interrupted = true
			fmt.Fprintln(s.std.err, "Press Ctrl-C again, or Ctrl-D, to exit.")
		case read := <-lines:
			interrupted = false
			switch line := strings.TrimSpace(read.line); {
			case read.err != nil && prompts:
				return errors.Join(s.out.write("\n"), notEnd(read.err))
			case read.err != nil:
				return notEnd(read.err)
			case line == "/exit", line == "/quit":
				return nil
			case strings.HasPrefix(read.line, "/"):
				if err := s.command(read.line); err != nil {
					return err
				}
			case line != "":
				if err := s.answer(read.line); err != nil {
					return err
				}
			}
		}
	}
}

// notEnd is an error of reading, unless it is the end of the input.
func notEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (s *chatSession) command(line string) error {
	name, rest, _ := strings.Cut(line, " ")
	switch rest = strings.TrimSpace(rest); {
	case name == "/clear":
		s.conversation.Clear()
	case name == "/system" && rest != "":
		s.conversation.System = rest
	case name == "/system" && s.conversation.System == "":
		return s.out.write("there is none\n")
	case name == "/system":
		return s.out.write(s.conversation.System + "\n")
	case name == "/stats":
		return s.writeStatistics()
	case name == "/help":
		return s.out.write(chatHelp + "\n")
	default:
		fmt.Fprintf(s.std.err, "There is no command %s. %s\n", formats.Printable(name), chatHelp)
	}
	return nil
}

// answer writes the answer to a text. What the user or the model's template got wrong does not end the session.
func (s *chatSession) answer(text string) error {
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan struct{})
	go func() {
		select {
		case <-s.interrupts:
			cancel()
		case <-ended:
		}
	}()
	defer cancel()
	defer close(ended)
	leftOut, start, first := s.conversation.LeftOut, time.Now(), true
	for piece, err := range s.conversation.Answer(ctx, text) {
		var wrong *engine.OptionError
		var failed *formats.Error
		switch {
		case errors.Is(err, context.Canceled): // the user has read enough
		case errors.As(err, &wrong), errors.As(err, &failed):
			fmt.Fprintf(s.std.err, "Error: %s\n", sentence(err))
			return nil
		case err != nil:
			return err
		}
		if first {
			// Templates end before the space that many models begin an answer with.
			piece = strings.TrimLeftFunc(piece, unicode.IsSpace)
			if first = false; s.first == 0 {
				s.first = time.Since(start)
			}
		}
		if err := s.out.write(piece); err != nil {
			return err
		}
	}
	if err := s.out.write("\n"); err != nil {
		return err
	}
	if s.conversation.LeftOut > leftOut {
		fmt.Fprintf(s.std.err, "(The conversation no longer fits in %d tokens: its first %d messages were dropped.)\n",
			s.conversation.Model.Context(), s.conversation.LeftOut)
	}
	return nil
}

func (s *chatSession) writeStatistics() error {
	return writeStatistics(s.ctx, s.std.err, s.conversation.Model, s.device, s.loaded, s.first)
}
