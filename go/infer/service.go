package infer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nncuda/nncuda/go/infer/engine"
)

// ErrQueueFull is the error of texts for which a Service has no place left.
var ErrQueueFull = errors.New("all places of the queue are taken; try again later")

// Observer is told what comes of a Service's texts, by the service's goroutine: it must not block. Tokens of a step come
// together.
type Observer interface {
	FirstToken(sinceSubmission time.Duration)
	NextToken(sinceTheOneBefore time.Duration)
	Ended(finish engine.Finish, sinceSubmission time.Duration)
}

// Progress is what became of a text so far. Times are zero for what did not happen yet.
type Progress struct {
	Submitted, Admitted, First, Ended time.Time
	Tokens                            int // drawn, the one that ended the text as well
	Shared                            int // tokens of the prompt that the cache held
	Finish                            engine.Finish
}

// Text is a text that a Service writes. One goroutine takes its events.
type Text struct {
	under *underWay

	mu        sync.Mutex
	events    []Event
	err       error         // what comes after the events
	news      chan struct{} // holds one token when there is something to take
	progress  Progress
	last      time.Time
	running   bool
	cancelled bool // or about to be
}

// Next gives the next event; the one with a Finish is the last. An error when ctx is done, or when the service failed or
// was cut.
func (t *Text) Next(ctx context.Context) (Event, error) {
	for {
		if event, err, found := t.take(); found {
			return event, err
		}
		select {
		case <-t.news:
		case <-ctx.Done():
			return Event{Token: NoToken}, context.Cause(ctx)
		}
	}
}

func (t *Text) take() (event Event, err error, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.events) > 0 {
		event, t.events = t.events[0], t.events[1:]
		return event, nil, true
	}
	return Event{Token: NoToken}, t.err, t.err != nil
}

// PromptIDs are the ids of the text's prompt.
func (t *Text) PromptIDs() []int32 { return t.under.request.Prompt }

// Progress is what became of it so far.
func (t *Text) Progress() Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.progress
}

// fail ends it by an error, after the events that are there.
func (t *Text) fail(err error) {
	t.mu.Lock()
	if t.err == nil {
		t.err = err
	}
	t.mu.Unlock()
	t.wake()
}

func (t *Text) wake() {
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// Service writes the texts of many callers on one model, in a goroutine of its own, which runs steps as long as a text is
// left: a caller that is slow to take its events holds up nobody, and a text that is cancelled has left the batch before
// the next step.
//
// Any number of goroutines may use one. The model stays the caller's, to be closed after the service.
type Service struct {
	model     *LanguageModel
	places    int
	observer  Observer
	onFailure func(error)
	wake      chan struct{} // holds one token when the goroutine was asked for something
	done      chan struct{}

	mu      sync.Mutex
	added   []*Text
	cancels []*Text
	open    map[*Text]struct{} // submitted, and not known to have ended
	running int
	closed  error // why nothing is taken any more
	ending  bool
}

// NewService starts a service with places for maxQueue texts beside those of the batch. The observer may be nil; so may
// onFailure, which is called when the device fails: then nothing more can be served.
func NewService(model *LanguageModel, maxQueue int, observer Observer, onFailure func(error)) *Service {
	s := &Service{
		model: model, places: model.MaxBatch() + maxQueue, observer: observer, onFailure: onFailure,
		wake: make(chan struct{}, 1), done: make(chan struct{}), open: make(map[*Text]struct{}),
	}
	if s.observer == nil {
		s.observer = noObserver{}
	}
	go s.run()
	return s
}

// Places is how many texts may run and wait at once.
func (s *Service) Places() int { return s.places }

// Counts are how many texts have a place in the batch, and how many wait for one.
func (s *Service) Counts() (running, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running, len(s.open) - s.running
}

// CheckPlaces is ErrQueueFull when so many texts could not be submitted now, and what ended the service when it ended.
func (s *Service) CheckPlaces(count int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkPlaces(count)
}

func (s *Service) checkPlaces(count int) error {
	if s.closed != nil {
		return s.closed
	}
	if len(s.open)+count > s.places {
		return ErrQueueFull
	}
	return nil
}

// Submit takes all of these texts, of one prompt each, or none: with ErrQueueFull when there are not places for all, with
// the errors of Generate when one cannot be written at all.
func (s *Service) Submit(wanted []Generation) ([]*Text, error) {
	texts := make([]*Text, len(wanted))
	for at, one := range wanted {
		if len(one.Prompts) != 1 {
			return nil, &engine.OptionError{Option: "prompts", Problem: fmt.Sprintf("text %d has %d prompts; it must have one", at,
				len(one.Prompts))}
		}
		under, err := s.model.prepare(one)
		if err != nil {
			return nil, err
		}
		texts[at] = &Text{under: under[0], news: make(chan struct{}, 1)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkPlaces(len(texts)); err != nil {
		return nil, err
	}
	now := time.Now()
	for _, text := range texts {
		text.progress.Submitted = now
		s.open[text] = struct{}{}
	}
	s.added = append(s.added, texts...)
	s.ask()
	return texts, nil
}

// Cancel ends those of the texts that have not ended; before the next step their places are free.
func (s *Service) Cancel(texts []*Text) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel(texts)
}

func (s *Service) cancel(texts []*Text) {
	for _, text := range texts {
		if _, open := s.open[text]; open && !text.cancelled {
			text.cancelled = true
			s.cancels = append(s.cancels, text)
		}
	}
	s.ask()
}

// Cut ends all texts with an error, and takes no others.
func (s *Service) Cut(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed == nil {
		s.closed = err
	}
	texts := make([]*Text, 0, len(s.open))
	for text := range s.open {
		text.fail(err)
		texts = append(texts, text)
	}
	s.cancel(texts)
}

// Close ends all texts and the service, and waits for the step that is under way.
func (s *Service) Close() {
	s.Cut(ErrClosed)
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.ask()
	<-s.done
}

func (s *Service) ask() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run is the service's goroutine.
func (s *Service) run() {
	defer close(s.done)
	var texts []*Text
	for {
		idle, ended, err := s.turn(&texts)
		if err != nil {
			s.failed(err)
			return
		}
		if ended {
			return
		}
		if idle {
			<-s.wake
		}
	}
}

// turn does what was asked since the last one, and runs a step.
func (s *Service) turn(texts *[]*Text) (idle, ended bool, err error) {
	if err := s.model.acquire(context.Background()); err != nil {
		return false, false, err
	}
	defer s.model.release()
	s.mu.Lock()
	added, cancels := s.added, s.cancels
	s.added, s.cancels, ended = nil, nil, s.ending
	s.mu.Unlock()
	for _, text := range added {
		s.model.scheduler.Add(text.under.request)
	}
	*texts = append(*texts, added...)
	for _, text := range cancels {
		request := text.under.request
		s.model.scheduler.Cancel(request)
		request.Tokens, request.Scores = nil, nil
	}
	s.tell(texts) // of those that were cancelled, rather than after the next step
	if ended {
		return true, true, nil
	}
	if s.model.scheduler.Idle() {
		return true, false, nil
	}
	if err := s.model.scheduler.Step(); err != nil {
		return false, false, err
	}
	s.tell(texts)
	return false, false, nil
}

// tell hands over what is new; texts that ended leave the list.
func (s *Service) tell(texts *[]*Text) {
	now := time.Now()
	*texts = slices.DeleteFunc(*texts, func(text *Text) bool {
		request := text.under.request
		events, err := s.model.eventsOf(0, text.under)
		if err == nil && len(events) == 0 {
			err = request.Err
		}
		if err != nil {
			s.model.scheduler.Cancel(request)
		}
		s.count(text, len(events) > 0 || err != nil || !request.Admitted.IsZero())
		ended := err != nil || text.under.over
		if ended {
			s.forget(text) // before its caller knows, who may come with the next one
		}
		s.handOver(text, events, err, now)
		return ended
	})
}

// count makes a text one of those that run, if it began.
func (s *Service) count(text *Text, began bool) {
	if !began || text.running {
		return
	}
	text.running = true
	s.mu.Lock()
	s.running++
	s.mu.Unlock()
}

func (s *Service) forget(text *Text) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, text)
	s.running--
}

func (s *Service) handOver(text *Text, events []Event, err error, now time.Time) {
	if len(events) == 0 && err == nil {
		return
	}
	text.mu.Lock()
	done := &text.progress
	done.Admitted, done.Shared = text.under.request.Admitted, text.under.request.Shared
	for _, event := range events {
		if event.Finish != "" {
			done.Finish, done.Ended = event.Finish, now
			s.observer.Ended(event.Finish, now.Sub(done.Submitted))
		}
		if event.Token == NoToken {
			continue
		}
		done.Tokens++
		if text.last.IsZero() {
			done.First = now
			s.observer.FirstToken(now.Sub(done.Submitted))
		} else {
			s.observer.NextToken(now.Sub(text.last))
		}
		text.last = now
	}
	if err != nil {
		done.Finish, done.Ended = engine.Failed, now
		s.observer.Ended(engine.Failed, now.Sub(done.Submitted))
	}
	if text.err == nil { // nobody waits for what comes after a cut
		text.events, text.err = append(text.events, events...), err
	}
	text.mu.Unlock()
	text.wake()
}

// failed ends all texts by what ended the engine.
func (s *Service) failed(err error) {
	if s.onFailure != nil {
		s.onFailure(err) // before any text tells of it
	}
	s.mu.Lock()
	s.closed = err
	for text := range s.open {
		text.fail(err)
	}
	s.open, s.running = make(map[*Text]struct{}), 0
	s.mu.Unlock()
}

type noObserver struct{}

func (noObserver) FirstToken(time.Duration)           {}
func (noObserver) NextToken(time.Duration)            {}
func (noObserver) Ended(engine.Finish, time.Duration) {}
