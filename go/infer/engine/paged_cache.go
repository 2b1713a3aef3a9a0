package engine

import (
	"container/list"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/tensor"
)

// Page is the tokens of a page, as kernel kv_append_paged has it.
const Page = 128

// leastCopied is the tokens from which on a page is copied rather than run: copying one costs about as much as a token or
// two.
const leastCopied = 16

// CacheFormats are the formats of keys and values.
var CacheFormats = []string{"f16", "f32", "bf16", "q8_0", formats.E4M3.Name}

// cacheFormat is one of CacheFormats.
func cacheFormat(name string) formats.BlockFormat {
	if name == formats.E4M3.Name {
		return formats.E4M3
	}
	format, _ := formats.FormatNamed(name)
	return format
}

// noParent is the forerunner of a page whose text is not its own, so that no other sequence may share it.
const noParent = math.MinInt

// text is what a page holds: ids after the text of `parent`, the number of the page's forerunner. A first page has none: its
// parent is 0 or less, -n for texts that adapter n computes, whose keys and values are not those of any other. Numbers are
// never used twice, so equal parents and equal ids mean equal texts from the first token on.
type text struct {
	number, parent int
	ids            []int32 // fewer than Page in a page that a sequence left incomplete
	page           int32
	users          int
	idle           *list.Element // its place among the texts without users
}

func (t *text) full() bool { return len(t.ids) == Page }

// textKey finds a full page by its forerunner's number and its ids.
type textKey struct {
	parent int
	ids    string
}

func keyOf(parent int, ids []int32) textKey {
	return textKey{parent, string(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ids))), 4*len(ids)))}
}

// CachedSequence is a sequence's place in a cache.
type CachedSequence struct {
	Length   int     // rows in the cache: tokens that the next one sees
	Position int     // tokens so far, the place of the next one; more than Length when the oldest pages were dropped
	Pages    []int32 // the pages of the rows, in order
	Shared   int     // rows that it found when it was opened

	adapter  int // the number of the adapter that computes it, 0 without a name
	closed   bool
	texts    []*text // of each full page, nil for one that no other sequence will find
	pending  []int32 // ids of the last page, while it is not full
	parent   int     // number of the last full page's text; noParent when its text is not its own
	reserved int
}

// PagedCache is the keys and values of all layers in pages, in one allocation: who owns which page, and which pages hold
// text that may be met again.
//
// A page holds the keys and values of 128 consecutive tokens of one sequence, in every layer under the same number. Pages
// belong to sequences; a page is also known by its text, so that a sequence which begins alike uses it too instead of
// computing it again. Full pages are shared as they are, since they are not written to again; of a page that begins as
// wanted and then differs, or ends, a sequence takes a copy of its own. Each new page is one that was never used, or one
// whose text has waited longest for somebody to share it.
// (Kwon et al. 2023, "PagedAttention", sections 4.2 and 4.4)
type PagedCache struct {
	Format    formats.BlockFormat
	Context   int // the most rows of a sequence
	NumPages  int
	MaxPages  int // of a sequence
	PageBytes int // of a layer's keys, and as many of its values

	memory       *tensor.Tensor
	keys, values []*tensor.Tensor // u8 [pages, page bytes] of each layer
	free         []int32
	idle         *list.List // texts that nobody uses, the oldest first
	fullTexts    map[textKey]*text
	behind       map[int][]*text // all texts by parent
	lastNumber   int
	reserved     int
}

// newPagedCache makes a cache of so many pages for sequences of at most `context` rows.
func newPagedCache(
	ctx *cuda.Context, layers, kvHeads, headDim, pages, context int, formatName string,
) (*PagedCache, error) {
	if !slices.Contains(CacheFormats, formatName) {
		return nil, wrongOption("cache_format", "cache_format is '%s'; it must be one of %s", formatName,
			strings.Join(CacheFormats, ", "))
	}
	format := cacheFormat(formatName)
	rowBytes, err := format.RowBytes(headDim)
	if err != nil {
		return nil, wrongOption("cache_format", "cache_format is %s, whose blocks of %d do not divide heads of %d elements; "+
			"choose f16", formatName, format.Elements, headDim)
	}
	if pages < 1 || context < 1 {
		return nil, wrongOption("cache_tokens", "the cache would have %d pages for sequences of %d tokens; at least 1 each",
			pages, context)
	}
	c := &PagedCache{
		Format: format, Context: context, NumPages: pages, MaxPages: pagesOf(context), PageBytes: kvHeads * Page * rowBytes,
		idle: list.New(), fullTexts: make(map[textKey]*text), behind: make(map[int][]*text),
	}
	for page := pages - 1; page >= 0; page-- {
		c.free = append(c.free, int32(page))
	}
	if c.memory, err = tensor.New(ctx, cuda.U8, layers*2*pages, c.PageBytes); err != nil {
		return nil, err
	}
	for at := range layers * 2 {
		pool, err := c.memory.Narrow(0, at*pages, pages)
		if err != nil {
			return nil, err
		}
		if at%2 == 0 {
			c.keys = append(c.keys, pool)
		} else {
			c.values = append(c.values, pool)
		}
	}
	return c, nil
}

// pagesOf is how many pages so many rows take.
func pagesOf(rows int) int { return (rows + Page - 1) / Page }

// Bytes are the bytes of all pages.
func (c *PagedCache) Bytes() int64 { return c.memory.Bytes() }

// Tokens is the rows that all pages have room for.
func (c *PagedCache) Tokens() int { return c.NumPages * Page }

// Available is the pages that a new sequence could have: never used, or kept for their text alone, and not reserved.
func (c *PagedCache) Available() int { return len(c.free) + c.idle.Len() - c.reserved }

// Used is the pages of open sequences.
func (c *PagedCache) Used() int { return c.NumPages - len(c.free) - c.idle.Len() }

// Open gives a new sequence that will run `ids`, with the pages that hold their beginning already, and with a promise of
// pages for `rows` rows in all. Of the open sequences `beside`, the pages that are not full yet count as well.
//
// Its Length is how many ids are there; the last one is never, since somebody wants what follows from it. One of more
// than Context rows will drop its oldest pages, for which it gets new ones only if they are not shared: it neither looks
// for pages nor lets others find its own. A *CacheFullError, with nothing changed, when so many pages are not available.
func (c *PagedCache) Open(ids []int32, rows int, beside ...*CachedSequence) (*CachedSequence, error) {
	return c.openWith(0, ids, rows, beside...)
}

// openWith is the same of a sequence that an adapter of this number computes: only pages that the same one computed count.
func (c *PagedCache) openWith(adapter int, ids []int32, rows int, beside ...*CachedSequence) (*CachedSequence, error) {
	sequence := &CachedSequence{parent: noParent, adapter: adapter}
	if rows <= c.Context {
		c.find(sequence, ids)
	}
	needed := max(0, pagesOf(min(rows, c.Context))-len(sequence.Pages))
	if available := c.Available(); needed > available {
		c.Close(sequence)
		return nil, cacheFull("a sequence of %d tokens needs %d pages of %d tokens beside those it shares, and %d of the "+
			"cache's %d are available; close a sequence, write fewer tokens, or make the cache larger (cache_tokens is %d)",
			min(rows, c.Context), needed, Page, available, c.NumPages, c.Tokens())
	}
	sequence.reserved = needed
	c.reserved += needed
	if sequence.parent != noParent && (needed > 0 || c.Available() > 0) {
		if err := c.copyPart(sequence, ids[sequence.Length:c.most(ids)], beside); err != nil {
			c.Close(sequence)
			return nil, err
		}
	}
	sequence.Position, sequence.Shared = sequence.Length, sequence.Length
	return sequence, nil
}

// Extend gives a sequence the pages for that many more rows, and says whether it got any. A *CacheFullError when there is
// none left, another error when it would have more than Context rows.
func (c *PagedCache) Extend(sequence *CachedSequence, rows int) (grown bool, err error) {
	length := sequence.Length + rows
	if sequence.closed {
		return false, wrongOption("sequence", "the sequence is closed")
	}
	if length > c.Context {
		return false, wrongOption("ids", "the sequence would have %d tokens; the context has room for %d", length, c.Context)
	}
	for len(sequence.Pages)*Page < length {
		if sequence.reserved > 0 {
			sequence.reserved--
			c.reserved--
		} else if c.Available() < 1 {
			return grown, cacheFull("a sequence of %d tokens needs a further page, and all %d of the cache are in use or "+
				"promised; close a sequence, or make the cache larger (cache_tokens is %d)", sequence.Length, c.NumPages, c.Tokens())
		}
		sequence.Pages = append(sequence.Pages, c.newPage())
		sequence.texts = append(sequence.texts, nil)
		grown = true
	}
	return grown, nil
}

// Advance counts tokens whose keys and values were written after the sequence's rows. Full pages become known.
func (c *PagedCache) Advance(sequence *CachedSequence, ids ...int32) {
	sequence.Length += len(ids)
	sequence.Position += len(ids)
	sequence.pending = append(sequence.pending, ids...)
	for len(sequence.pending) >= Page {
		at := sequence.Length/Page - len(sequence.pending)/Page
		if sequence.parent != noParent {
			c.knowFull(sequence, at, slices.Clone(sequence.pending[:Page]))
		}
		sequence.pending = append(sequence.pending[:0], sequence.pending[Page:]...)
	}
}

// MakeRoom drops the oldest page of a sequence that has no room for one more row, and says whether it did. Its later rows
// stay where they are and keep their positions.
func (c *PagedCache) MakeRoom(sequence *CachedSequence) bool {
	if sequence.Length < c.Context || c.Context < Page {
		return false
	}
	page, known := sequence.Pages[0], sequence.texts[0]
	sequence.Pages = slices.Delete(sequence.Pages, 0, 1)
	sequence.texts = slices.Delete(sequence.texts, 0, 1)
	sequence.Length -= Page
	// What later pages hold was computed with the page that is gone, or will be without it: no other may share it.
	sequence.parent = noParent
	if c.release(page, known) {
		sequence.reserved++ // a page for a page, so that it cannot fail to get the next one
		c.reserved++
	}
	return true
}

// Close gives the sequence's pages back. Closing twice is fine. Their text can be shared until they are needed.
func (c *PagedCache) Close(sequence *CachedSequence) {
	if sequence.closed {
		return
	}
	sequence.closed = true
	c.reserved -= sequence.reserved
	sequence.reserved = 0
	// Later pages first: they are of use only while those before them are there, and so are needed again earlier.
	full := len(sequence.Pages)
	if sequence.Length%Page != 0 {
		full = sequence.Length / Page
	}
	for at := len(sequence.Pages) - 1; at >= 0; at-- {
		page, known := sequence.Pages[at], sequence.texts[at]
		if at == full && len(sequence.pending) > 0 && sequence.parent != noParent {
			known = c.know(sequence.parent, slices.Clone(sequence.pending), page)
		}
		c.release(page, known)
	}
	sequence.Pages, sequence.texts = nil, nil
}

// Forget forgets the texts of unused pages, so that later sequences share nothing with earlier ones.
func (c *PagedCache) Forget() {
	for c.idle.Len() > 0 {
		c.free = append(c.free, c.oldest())
	}
}

// row is the sequence's row of a page table, i32 [MaxPages].
func (c *PagedCache) row(sequence *CachedSequence) []int32 {
	row := make([]int32, c.MaxPages)
	copy(row, sequence.Pages)
	return row
}

// newPage takes a page, of which there must be one.
func (c *PagedCache) newPage() int32 {
	if last := len(c.free) - 1; last >= 0 {
		page := c.free[last]
		c.free = c.free[:last]
		return page
	}
	return c.oldest()
}

// oldest takes the page whose text has waited longest.
func (c *PagedCache) oldest() int32 {
	known := c.idle.Remove(c.idle.Front()).(*text)
	known.idle = nil
	c.lose(known)
	return known.page
}

// release ends one use of a page and says whether it is unused now.
func (c *PagedCache) release(page int32, known *text) bool {
	if known == nil {
		c.free = append(c.free, page)
		return true
	}
	known.users--
	if known.users == 0 {
		known.idle = c.idle.PushBack(known)
	}
	return known.users == 0
}

// most is how many of its ids a new sequence may find: not the last.
func (c *PagedCache) most(ids []int32) int { return max(0, min(len(ids)-1, c.Context)) }

// commonPrefix is how many ids two texts begin with alike.
func commonPrefix(ids, others []int32) int {
	common := 0
	for common < min(len(ids), len(others)) && ids[common] == others[common] {
		common++
	}
	return common
}

// find gives a new sequence the full pages that hold the beginning of its ids.
func (c *PagedCache) find(sequence *CachedSequence, ids []int32) {
	parent := -sequence.adapter
	for start := 0; start+Page <= c.most(ids); start += Page {
		known := c.fullTexts[keyOf(parent, ids[start:start+Page])]
		if known == nil {
			break
		}
		if known.users == 0 {
			c.idle.Remove(known.idle)
			known.idle = nil
		}
		known.users++
		sequence.Pages = append(sequence.Pages, known.page)
		sequence.texts = append(sequence.texts, known)
		sequence.Length += Page
		parent = known.number
	}
	sequence.parent = parent
}

// copyPart gives a sequence, behind its full pages, a copy of the page that has most of the rest's beginning.
func (c *PagedCache) copyPart(sequence *CachedSequence, rest []int32, beside []*CachedSequence) error {
	best, most := int32(-1), leastCopied-1
	look := func(ids []int32, page int32) {
		if common := commonPrefix(ids, rest); common > most {
			best, most = page, common
		}
	}
	for _, known := range c.behind[sequence.parent] {
		look(known.ids, known.page)
	}
	for _, other := range beside {
		if other.parent == sequence.parent && len(other.pending) > 0 {
			look(other.pending, other.Pages[other.Length/Page])
		}
	}
	if best < 0 {
		return nil
	}
	if _, err := c.Extend(sequence, most); err != nil {
		return err
	}
	page := sequence.Pages[len(sequence.Pages)-1]
	if page != best { // it is, when no other was left than that which waited longest
		for _, pool := range slices.Concat(c.keys, c.values) {
			if err := copyPage(pool, page, best); err != nil {
				return err
			}
		}
	}
	sequence.pending = slices.Clone(rest[:most])
	sequence.Length += most
	return nil
}

func copyPage(pool *tensor.Tensor, to, from int32) error {
	target, err := pool.Narrow(0, int(to), 1)
	if err != nil {
		return err
	}
	source, err := pool.Narrow(0, int(from), 1)
	if err != nil {
		return err
	}
	return target.Copy(source)
}

// know makes the text of a page findable.
func (c *PagedCache) know(parent int, ids []int32, page int32) *text {
	c.lastNumber++
	known := &text{number: c.lastNumber, parent: parent, ids: ids, page: page, users: 1}
	c.behind[parent] = append(c.behind[parent], known)
	if known.full() {
		c.fullTexts[keyOf(parent, ids)] = known
	}
	return known
}

// knowFull makes a full page findable, unless another one with the same text is: then that one stays the known one.
func (c *PagedCache) knowFull(sequence *CachedSequence, at int, ids []int32) {
	known := c.fullTexts[keyOf(sequence.parent, ids)]
	if known == nil {
		known = c.know(sequence.parent, ids, sequence.Pages[at])
		sequence.texts[at] = known
	}
	sequence.parent = known.number
}

// lose forgets the text of an unused page.
func (c *PagedCache) lose(known *text) {
	if known.full() {
		delete(c.fullTexts, keyOf(known.parent, known.ids))
	}
	siblings := c.behind[known.parent]
	at := slices.Index(siblings, known)
	if siblings = slices.Delete(siblings, at, at+1); len(siblings) == 0 {
		delete(c.behind, known.parent)
		return
	}
	c.behind[known.parent] = siblings
}
