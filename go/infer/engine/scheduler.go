package engine

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/layer"
)

// pieceBesideDecoding is the tokens of a prompt that are run between two steps of sequences which wait for their next
// token. A short piece keeps them from waiting long; a long one makes better use of the machine, and is taken when no
// other request waits.
const pieceBesideDecoding = 128

// Finish says why a request ended; "" while it goes on.
type Finish string

// Why a request ended.
const (
	End       Finish = "end"       // with one of its end ids
	Stop      Finish = "stop"      // with a stop string, or since its constraint allows no token more
	Length    Finish = "length"    // with as many tokens as were asked for
	Cancelled Finish = "cancelled" // before its next token
	Failed    Finish = "failed"    // by its error
)

// Request is a prompt on its way. It must pass Scheduler.Check, its Sampling Validate and CheckIDs, and its Adapter
// Engine.CheckAdapter.
type Request struct {
	Prompt       []int32
	MaxNewTokens int
	Sampling     Sampling
	EndIDs       []int32
	Logprobs     bool // whether each token comes with its log-probability, and with
	TopLogprobs  int  // so many alternatives
	// PromptLogprobs asks for those of the prompt's tokens, with PromptTopLogprobs alternatives, and Embed for the prompt's
	// vector (Engine.Embed), with no new token: then none of it is taken from the cache.
	PromptLogprobs    bool
	PromptTopLogprobs int
	Embed             bool
	Constraint        Constraint // says which tokens may be drawn; nil for all
	Adapter           string     // the name of one of the engine's; "" for none

	Tokens []int32          // those drawn and not yet taken
	Scores []*TokenLogprobs // as many as tokens, nil where they are not wanted
	// PromptScores are those of the prompt's tokens once it has been run, nil for the first one.
	PromptScores []*TokenLogprobs
	Embedding    []float32 // the prompt's vector, once it has been run
	Shared       int       // tokens of the prompt that were found in the cache when it was admitted
	Admitted     time.Time // when it was; zero before
	Finish       Finish
	Err          error // of the constraint, or the adapter, of a request that Failed

	drawn   int
	number  int      // of its adapter, once it waits
	drawing *Drawing // once it waits
	row     *row     // once it is admitted
	pool    *pool    // once some of it has been run, of a request that is embedded
}

// whole says whether all of the prompt is run, whatever the cache has: pages hold neither logits nor hidden states.
func (r *Request) whole() bool { return r.Embed || r.PromptLogprobs }

// rows of the cache that it may come to need: the last token drawn is never run.
func (r *Request) rows() int { return len(r.Prompt) + max(r.MaxNewTokens, 1) - 1 }

// Statistics are what a scheduler has done so far.
type Statistics struct {
	PromptTokens  int // of the prompts that were admitted
	SharedTokens  int // those of them that were in the cache already
	PrefillTokens int // run in pieces of prompts
	PrefillTime   time.Duration
	DecodeTokens  int // drawn in steps of the batch
	DecodeSteps   int
	DecodeTime    time.Duration
	DecodeBytes   int64 // which the steps read at least
}

// Scheduler serves requests on an engine, first come, first served.
//
// A step admits requests that wait, as far as rows and pages allow, runs the next piece of their prompts, and moves every
// sequence on by one token. A request is admitted only with a promise of all the pages that it may come to need, so that
// none has to be thrown out half-way. (Yu et al. 2022, "Orca", section 3: iteration-level scheduling)
type Scheduler struct {
	Statistics Statistics // counts on from the scheduler's beginning

	engine              *Engine
	batch               *DecodeBatch
	waiting, prefilling []*Request
}

// NewScheduler makes a scheduler, which runs ahead on a GPU.
func NewScheduler(e *Engine) (*Scheduler, error) {
	kind, _ := e.ctx.Device()
	return newScheduler(e, kind != cuda.CPU)
}

func newScheduler(e *Engine, ahead bool) (*Scheduler, error) {
	batch, err := newDecodeBatch(e, ahead)
	if err != nil {
		return nil, err
	}
	return &Scheduler{engine: e, batch: batch}, nil
}

// Idle says whether there is nothing to do.
func (s *Scheduler) Idle() bool { return len(s.waiting)+len(s.prefilling)+len(s.batch.rows) == 0 }

// Waiting is how many requests are not admitted yet, and Running how many are.
func (s *Scheduler) Waiting() int { return len(s.waiting) }

// Running is how many requests are admitted.
func (s *Scheduler) Running() int { return len(s.prefilling) + len(s.batch.rows) }

// Check refuses what can never be served: with an *OptionError a prompt that is empty or longer than the context, with a
// *CacheFullError one for whose continuation the cache has not as many pages as it may come to need.
func (s *Scheduler) Check(prompt []int32, maxNewTokens int) error {
	cache := s.engine.Cache
	if len(prompt) == 0 {
		return wrongOption("prompt", "a prompt must have at least one token; the one that begins a text is enough")
	}
	if len(prompt) > cache.Context {
		return wrongOption("prompt", "the prompt has %d tokens; the context has room for %d", len(prompt), cache.Context)
	}
	if maxNewTokens < 0 {
		return wrongOption("max_new_tokens", "max_new_tokens is %d; it must be at least 0", maxNewTokens)
	}
	length := len(prompt) + max(maxNewTokens, 1) - 1
	if length > cache.Context && cache.Context < Page { // there is no whole page to drop
		return wrongOption("max_new_tokens", "the prompt has %d tokens, %d with the new ones; the context has room for %d",
			len(prompt), length, cache.Context)
	}
	if needed := pagesOf(min(length, cache.Context)); needed > cache.NumPages {
		return cacheFull("a prompt of %d tokens with %d new ones needs %d pages of %d tokens; the cache has %d: write fewer "+
			"tokens, or make it larger (cache_tokens is %d)", len(prompt), maxNewTokens, needed, Page, cache.NumPages,
			cache.Tokens())
	}
	return nil
}

// Add puts a request into the queue.
func (s *Scheduler) Add(request *Request) {
	number, err := s.engine.Weights.adapters.number(request.Adapter)
	if err != nil {
		s.fail(request, err)
		return
	}
	request.number = number
	if request.MaxNewTokens == 0 && !request.whole() {
		request.Finish = Length
		return
	}
	if request.PromptLogprobs {
		request.PromptScores = []*TokenLogprobs{nil}
	}
	request.drawing = NewDrawing(request.Sampling, request.Prompt, request.MaxNewTokens)
	s.waiting = append(s.waiting, request)
	if request.Constraint != nil {
		s.constrain(request)
	}
}

// Cancel ends a request now, wherever it is. One that has ended stays as it is.
func (s *Scheduler) Cancel(request *Request) {
	if request.Finish == "" {
		s.end(request, Cancelled)
	}
}

// Step runs one piece of prompts, if there are any, and one token for every sequence after its prompt. A *CacheFullError
// when requests wait for pages that none of the others holds.
func (s *Scheduler) Step() error {
	pieces, err := s.nextPieces()
	if err == nil && len(pieces) > 0 {
		err = s.prefill(pieces)
	}
	if err == nil && len(s.batch.rows) > 0 {
		err = s.decode()
	}
	return err
}

// Close cancels all requests and frees what the scheduler has on the device.
func (s *Scheduler) Close() error {
	for _, request := range slices.Concat(s.waiting, s.prefilling) {
		s.Cancel(request)
	}
	for _, row := range slices.Clone(s.batch.rows) {
		s.Cancel(row.request)
	}
	return s.batch.close()
}

// piece is a part of a request's prompt.
type piece struct {
	request *Request
	part    Part
}

// nextPieces gives the next piece: of prompts that are under way first, then of those that can be admitted.
func (s *Scheduler) nextPieces() ([]piece, error) {
	room := s.engine.Piece
	if len(s.batch.rows) > 0 {
		room = min(pieceBesideDecoding, room)
	}
	var pieces []piece
	for room > 0 {
		if len(pieces) == len(s.prefilling) {
			if admitted, err := s.admit(); err != nil || !admitted {
				return pieces, err
			}
		}
		request := s.prefilling[len(pieces)]
		sequence := request.row.sequence
		end := min(sequence.Length+room, len(request.Prompt))
		ids := request.Prompt[sequence.Length:end]
		room -= len(ids)
		wanted := end == len(request.Prompt) && request.MaxNewTokens > 0
		pieces = append(pieces, piece{request, Part{sequence, ids, wanted}})
	}
	return pieces, nil
}

// admit moves the request that has waited longest to the prompts under way, if there is room for it, and says whether it
// did.
func (s *Scheduler) admit() (bool, error) {
	if len(s.waiting) == 0 || s.Running() == s.engine.MaxBatch {
		return false, nil
	}
	request := s.waiting[0]
	known := request.Prompt
	if request.whole() {
		known = nil
	}
	if s.comes(known, request.number) {
		return false, nil
	}
	sequence, err := s.engine.Cache.openWith(request.number, known, request.rows(), s.sequences()...)
	if full := (*CacheFullError)(nil); errors.As(err, &full) && s.Running() > 0 {
		return false, nil // one of those ends and makes room; where there is none, others that hold pages must
	}
	if err != nil {
		return false, err
	}
	s.waiting = s.waiting[1:]
	request.Shared, request.Admitted = sequence.Shared, time.Now()
	s.Statistics.PromptTokens += len(request.Prompt)
	s.Statistics.SharedTokens += sequence.Shared
	request.row = &row{
		sequence: sequence, drawing: request.drawing, request: request, token: -1,
		scored: request.Logprobs, alternatives: request.TopLogprobs,
	}
	s.prefilling = append(s.prefilling, request)
	return true, nil
}

// sequences are those that are open.
func (s *Scheduler) sequences() []*CachedSequence {
	var open []*CachedSequence
	for _, row := range s.batch.rows {
		open = append(open, row.sequence)
	}
	for _, request := range s.prefilling {
		open = append(open, request.row.sequence)
	}
	return open
}

// comes says whether a prompt under way has yet to run what `known` begins with, too, and by the same adapter, so that it is
// better to wait for it: texts of one prompt run it once.
func (s *Scheduler) comes(known []int32, adapter int) bool {
	if len(known) == 0 {
		return false
	}
	for _, request := range s.prefilling {
		if request.number != adapter || request.rows() > s.engine.Cache.Context { // the latter keep their pages to themselves
			continue
		}
		if commonPrefix(request.Prompt, known[:len(known)-1])-request.row.sequence.Length >= leastCopied {
			return true
		}
	}
	return false
}

func (s *Scheduler) prefill(pieces []piece) error {
	start := time.Now()
	var parts []Part
	var done []*row
	for _, one := range pieces {
		parts = append(parts, one.part)
		if one.part.Wanted {
			done = append(done, one.request.row)
		}
	}
	logits, err := s.engine.Prefill(parts)
	if err != nil {
		return err
	}
	var tokens []int32
	if logits != nil {
		if tokens, err = s.batch.firstTokens(logits, done); err != nil {
			return err
		}
	}
	if err := cmp.Or(s.scorePrompts(pieces), s.embedPrompts(pieces)); err != nil {
		return err
	}
	for _, part := range parts {
		s.Statistics.PrefillTokens += len(part.IDs)
	}
	s.Statistics.PrefillTime += time.Since(start)
	for at, row := range done {
		s.prefilling = without(s.prefilling, row.request)
		s.batch.join(row)
		s.take(row, tokens[at])
	}
	for _, one := range pieces {
		if one.request.MaxNewTokens == 0 && one.part.Sequence.Length == len(one.request.Prompt) {
			s.end(one.request, Length)
		}
	}
	return nil
}

// scorePrompts gives requests that want them the log-probabilities of the tokens that follow those which were just run.
func (s *Scheduler) scorePrompts(pieces []piece) error {
	first := 0
	for _, one := range pieces {
		request, count := one.request, len(one.part.IDs)
		if request.PromptLogprobs {
			start := one.part.Sequence.Length - count
			following := request.Prompt[start+1 : min(start+1+count, len(request.Prompt))]
			found, err := s.engine.scores(first, following, request.PromptTopLogprobs)
			if err != nil {
				return err
			}
			request.PromptScores = append(request.PromptScores, found...)
		}
		first += count
	}
	return nil
}

// embedPrompts adds what was just run to the vectors of the requests that want one.
func (s *Scheduler) embedPrompts(pieces []piece) error {
	first := 0
	for _, one := range pieces {
		request, count := one.request, len(one.part.IDs)
		if request.Embed {
			if request.pool == nil {
				made, err := s.engine.newPool()
				if err != nil {
					return err
				}
				request.pool = made
			}
			err := layer.Run(s.engine.ctx, func(p *layer.Pass) {
				request.pool.add(p, s.engine, first, count)
				if one.part.Sequence.Length == len(request.Prompt) {
					request.Embedding = request.pool.read(p)
				}
			})
			if err != nil {
				return err
			}
		}
		first += count
	}
	return nil
}

func (s *Scheduler) decode() error {
	start, rows, adapters := time.Now(), 0, make(map[int]bool)
	// Whether all of them want the token after the next one, too, and keep one another's company until then.
	goOn := len(s.prefilling) == 0
	for _, row := range s.batch.rows {
		rows += row.sequence.Length + 1
		adapters[row.sequence.adapter] = true
		goOn = goOn && row.request.drawn+1 < row.request.MaxNewTokens
	}
	s.Statistics.DecodeBytes += s.engine.bytesPerStep(len(s.batch.rows), rows, adapters)
	found, err := s.batch.step(goOn)
	if err != nil {
		return err
	}
	s.Statistics.DecodeTime += time.Since(start)
	s.Statistics.DecodeSteps++
	s.Statistics.DecodeTokens += len(found)
	for _, one := range found {
		s.take(one.row, one.token)
	}
	return nil
}

// take gives a row's request its next token.
func (s *Scheduler) take(row *row, token int32) {
	request := row.request
	request.Tokens, request.Scores = append(request.Tokens, token), append(request.Scores, row.logprobs)
	request.drawn++
	switch {
	case slices.Contains(request.EndIDs, token):
		s.end(request, End)
	case request.drawn == request.MaxNewTokens:
		s.end(request, Length)
	case request.Constraint != nil:
		if err := request.Constraint.Accept(token); err != nil {
			s.fail(request, err)
			return
		}
		s.constrain(request)
	}
}

// constrain has a request's constraint say which tokens may be next.
func (s *Scheduler) constrain(request *Request) {
	mask, err := request.Constraint.Mask()
	if err != nil {
		s.fail(request, err)
		return
	}
	some := false
	if request.drawing.mask, some = checkedMask(mask, s.engine.Config.VocabSize); !some {
		s.end(request, Stop)
	}
}

// fail ends a request with the error of its constraint, or of its adapter.
func (s *Scheduler) fail(request *Request, err error) {
	request.Err = err
	s.end(request, Failed)
}

func (s *Scheduler) end(request *Request, finish Finish) {
	request.Finish = finish
	s.waiting, s.prefilling = without(s.waiting, request), without(s.prefilling, request)
	if request.pool != nil {
		_ = request.pool.close() // the device fails with the next step, if it did
		request.pool = nil
	}
	row := request.row
	request.row = nil
	if row == nil {
		return
	}
	if slices.Contains(s.batch.rows, row) {
		s.batch.leave(row)
	}
	s.engine.Cache.Close(row.sequence)
}

// without is a queue without a request.
func without(queue []*Request, request *Request) []*Request {
	return slices.DeleteFunc(queue, func(other *Request) bool { return other == request })
}
