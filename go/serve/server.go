package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
)

// Options say how a model is served.
type Options struct {
	Name   string   // of the model, as requests have it
	Keys   []string // API keys, of which a request must have one; without any, loopback names alone are answered, unless
	Anyone bool     // anyone may ask
	// MaxQueue is how many texts may wait beside those that run.
	MaxQueue int
	Timeout  time.Duration // of a request, from its head to its last byte
	// Drain is how long running requests may go on after the first Stop.
	Drain     time.Duration
	LogFormat string // "text" or "json"; "": text
	NoPage    bool   // no page at /
	Log       io.Writer
}

// goodbye is how long clients may take for the error that ends what runs.
const goodbye = 2 * time.Second

// Server is a model over HTTP.
type Server struct {
	service *infer.Service
	app     *app
	http    *http.Server
	log     *accessLog
	drain   time.Duration

	stops  chan string // why Stop was called, two at most
	failed chan error
}

// New makes a server of a model, which stays the caller's, to be closed after Serve, which must be called. An *engine.OptionError when the
// model's cache has not room for one text of the context's length.
func New(model *infer.LanguageModel, options Options) (*Server, error) {
	state, err := model.State(context.Background())
	if err != nil {
		return nil, err
	}
	if room := state.CachePages * engine.Page; room < model.Context() {
		return nil, &engine.OptionError{Option: "cache_tokens", Problem: fmt.Sprintf("cache_tokens is %d, less than the context "+
			"of %d tokens; make it larger, or the context smaller", room, model.Context())}
	}
	s := &Server{
		log:   &accessLog{json: options.LogFormat == "json", to: cmp.Or(options.Log, io.Discard)},
		drain: options.Drain, stops: make(chan string, 2), failed: make(chan error, 1),
	}
	counted := newMetrics(options.Name)
	s.service = infer.NewService(model, options.MaxQueue, counted, func(err error) {
		s.app.failed.Store(true)
		s.failed <- err
	})
	of := &served{
		model: model, name: options.Name, names: newTokenNames(model.Tokenizer()), formats: newTextFormats(model),
		places: s.service.Places(),
	}
	s.app = newApp(of, s.service, counted, s.log, options)
	s.http = &http.Server{
		Handler: s.app,
		// net/http reads 4096 bytes more than it is told.
		MaxHeaderBytes:    limit("header_bytes") - 4096,
		ReadHeaderTimeout: time.Duration(limit("header_seconds")) * time.Second,
		IdleTimeout:       time.Duration(limit("keep_alive_seconds")) * time.Second,
		ErrorLog:          log.New(s.log, "", 0),
		ConnContext:       withConnection,

		DisableGeneralOptionsHandler: true,
	}
	return s, nil
}

// Serve answers requests on a listener, which it closes, until Stop ends it. The error is what ended the engine or the
// listener, should one fail.
func (s *Server) Serve(on net.Listener) error {
	ended := make(chan error, 1)
	go func() { ended <- s.http.Serve(&listener{Listener: on}) }()
	var failure error
	select {
	case failure = <-ended:
	case failure = <-s.failed:
	case why := <-s.stops:
		running, waiting := s.service.Counts()
		s.log.record(object{{"level", "info"}, {"message", why + ": shutting down"}, {"texts", running + waiting}})
	}
	s.shutDown()
	s.service.Close()
	select { // while it shut down
	case found := <-s.failed:
		failure = cmp.Or(failure, found)
	default:
	}
	if errors.Is(failure, http.ErrServerClosed) {
		return nil
	}
	return failure
}

// shutDown lets what runs end, and cuts it when its time is over, or at a second Stop.
func (s *Server) shutDown() {
	s.app.draining.Store(true)
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Add(1)
	go func() {
		defer group.Done()
		timer := time.NewTimer(s.drain)
		defer timer.Stop()
		select {
		case <-done:
			return
		case <-timer.C:
		case <-s.stops:
		}
		s.service.Cut(refusal("draining", nil, nil))
		timer.Reset(goodbye)
		select {
		case <-done:
		case <-timer.C:
			_ = s.http.Close() // whatever is left to send
		}
	}()
	_ = s.http.Shutdown(context.Background()) // ends when the last connection does
	close(done)
	group.Wait()
}

// Stop ends Serve: no new requests; those that run go on until they end, or are cut after Options.Drain. The second time
// they are cut at once. The log says why: "SIGTERM".
func (s *Server) Stop(why string) {
	select {
	case s.stops <- why:
	default:
	}
}
