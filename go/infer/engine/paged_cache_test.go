package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/internal/storedmodel"
	"github.com/nncuda/nncuda/go/tensor"
)

func newCache(t *testing.T, pages, context int) *PagedCache {
	t.Helper()
	ctx := must.Get(cuda.New("cpu", cuda.WithThreads(1)))(t)
	t.Cleanup(func() { must.Do(t, ctx.Close()) })
	return must.Get(newPagedCache(ctx, 2, 1, 8, pages, context, "f32"))(t)
}

// check holds a cache to what must always be true: each page is free, idle or of an open sequence, and what is promised is
// there.
func check(t *testing.T, c *PagedCache, open []*CachedSequence) {
	t.Helper()
	owners, promised := make(map[int32]int), 0
	for _, sequence := range open {
		promised += sequence.reserved
		for at, page := range sequence.Pages {
			if owners[page]++; owners[page] > 1 && sequence.texts[at] == nil {
				t.Fatalf("page %d is shared without a text", page)
			}
		}
	}
	kept := make(map[int32]bool)
	for element := c.idle.Front(); element != nil; element = element.Next() {
		known := element.Value.(*text)
		if known.users != 0 || kept[known.page] || owners[known.page] > 0 {
			t.Fatalf("the idle page %d has users", known.page)
		}
		kept[known.page] = true
	}
	for _, page := range c.free {
		if kept[page] || owners[page] > 0 {
			t.Fatalf("the free page %d is in use", page)
		}
		kept[page] = true
	}
	if len(kept)+len(owners) != c.NumPages || promised != c.reserved || c.Available() < 0 {
		t.Fatalf("%d pages of %d, %d promised of %d, %d available", len(kept)+len(owners), c.NumPages, promised, c.reserved,
			c.Available())
	}
	if c.Used() != len(owners) {
		t.Fatalf("%d are used, not %d", c.Used(), len(owners))
	}
}

func run(t *testing.T, c *PagedCache, sequence *CachedSequence, ids []int32) {
	t.Helper()
	must.Get(c.Extend(sequence, len(ids)))(t)
	c.Advance(sequence, ids...)
}

func TestFullPagesAreShared(t *testing.T) {
	c, ids := newCache(t, 8, 1024), storedmodel.IDs(1, 300)
	first := must.Get(c.Open(ids, 0))(t)
	run(t, c, first, ids)
	second := must.Get(c.Open(ids, 0))(t)
	if second.Shared != 256 || !slices.Equal(second.Pages, first.Pages[:2]) {
		t.Errorf("%d shared, pages %v of %v", second.Shared, second.Pages, first.Pages)
	}
	other := must.Get(c.Open(append([]int32{(ids[0] + 1) % storedmodel.Vocab}, ids[1:]...), 0))(t)
	if other.Shared != 0 {
		t.Errorf("%d rows of another text are shared", other.Shared)
	}
	check(t, c, []*CachedSequence{first, second, other})
	c.Close(first)
	c.Close(first)
	c.Close(second)
	c.Close(other)
	check(t, c, nil)
	// The last id is never found, since somebody wants what follows from it: 299 of them, 43 by a copy.
	if again := must.Get(c.Open(ids, 0))(t); again.Shared != 299 {
		t.Errorf("%d are shared", again.Shared)
	}
	c.Forget()
	if none := must.Get(c.Open(storedmodel.IDs(1, 40), 0))(t); none.Shared != 0 && none.Shared != 39 {
		t.Errorf("%d are shared", none.Shared)
	}
}

func TestAPartOfAPageIsCopied(t *testing.T) {
	c, ids := newCache(t, 4, 512), storedmodel.IDs(2, 100)
	first := must.Get(c.Open(ids, 0))(t)
	must.Get(c.Extend(first, 100))(t)
	values := slices.Repeat([]byte{7}, c.PageBytes)
	page := must.Get(c.keys[1].Narrow(0, int(first.Pages[0]), 1))(t)
	must.Do(t, tensor.Write(page, values))
	c.Advance(first, ids...)
	c.Close(first)
	changed := slices.Clone(ids)
	changed[60] = (changed[60] + 1) % storedmodel.Vocab
	second := must.Get(c.Open(changed, 100))(t)
	if second.Shared != 60 {
		t.Fatalf("%d are shared", second.Shared)
	}
	copied := must.Get(c.keys[1].Narrow(0, int(second.Pages[0]), 1))(t)
	if found := must.Get(tensor.Read[uint8](copied))(t); !slices.Equal(found, values) {
		t.Error("the page was not copied")
	}
	few := must.Get(c.Open(ids[:leastCopied], 0))(t) // 15 may be found
	if few.Shared != 0 {
		t.Errorf("%d are shared: fewer than it takes to copy", few.Shared)
	}
}

func TestPromises(t *testing.T) {
	c := newCache(t, 4, 512)
	first := must.Get(c.Open(nil, 300))(t) // three pages
	_, err := c.Open(nil, 200)
	var full *CacheFullError
	if !errors.As(err, &full) || !strings.Contains(err.Error(), "needs 2 pages of 128 tokens beside those it shares, and 1 of") {
		t.Errorf("%v", err)
	}
	second := must.Get(c.Open(nil, 0))(t)
	run(t, c, second, storedmodel.IDs(1, 128))
	if _, err := c.Extend(second, 1); !errors.As(err, &full) || !strings.Contains(err.Error(), "all 4 of the cache are in use or promised") {
		t.Errorf("%v", err)
	}
	run(t, c, first, storedmodel.IDs(2, 300))
	check(t, c, []*CachedSequence{first, second})
	if _, err := c.Extend(first, 300); err == nil || !strings.Contains(err.Error(), "would have 600 tokens; the context has room for 512") {
		t.Errorf("%v", err)
	}
	c.Close(first)
	if _, err := c.Extend(first, 1); err == nil {
		t.Error("a closed sequence grows")
	}
}

func TestTheOldestPageIsDropped(t *testing.T) {
	c, ids := newCache(t, 3, 256), storedmodel.IDs(4, 256)
	sequence := must.Get(c.Open(ids, 400))(t) // of more rows than the context
	run(t, c, sequence, ids)
	pages := slices.Clone(sequence.Pages)
	if !c.MakeRoom(sequence) || c.MakeRoom(sequence) {
		t.Error("it has room after one page")
	}
	if sequence.Length != 128 || sequence.Position != 256 || !slices.Equal(sequence.Pages, pages[1:]) {
		t.Errorf("%+v", sequence)
	}
	run(t, c, sequence, ids[:1])
	check(t, c, []*CachedSequence{sequence})
	if other := must.Get(c.Open(ids, 0))(t); other.Shared != 0 {
		t.Error("it shares pages of a text whose beginning was dropped")
	}
}

// Sequences come and go at random, and no page is lost or has two owners.
func TestPagesAreNeverLost(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	c := newCache(t, 12, 512)
	texts := [][]int32{storedmodel.IDs(1, 512), storedmodel.IDs(2, 512)}
	texts = append(texts, storedmodel.Joined(texts[0][:200], texts[1][:312]))
	var open []*CachedSequence
	for range 4000 {
		ids := texts[random.IntN(len(texts))][:1+random.IntN(500)]
		switch random.IntN(3) {
		case 0:
			sequence, err := c.Open(ids, random.IntN(700))
			if err == nil {
				open = append(open, sequence)
			}
		case 1:
			if len(open) == 0 {
				continue
			}
			sequence := open[random.IntN(len(open))]
			c.MakeRoom(sequence)
			more := storedmodel.IDs(uint64(random.IntN(3)), 1+random.IntN(150))
			if _, err := c.Extend(sequence, len(more)); err == nil {
				c.Advance(sequence, more...)
			}
		case 2:
			if len(open) > 0 {
				at := random.IntN(len(open))
				c.Close(open[at])
				open = slices.Delete(open, at, at+1)
			}
		}
		check(t, c, open)
	}
	for _, sequence := range open {
		c.Close(sequence)
	}
	c.Forget()
	if check(t, c, nil); len(c.free) != 12 || len(c.behind)+len(c.fullTexts) != 0 {
		t.Errorf("%d pages are free, %d texts are known", len(c.free), len(c.behind))
	}
}

func TestEveryFormatOfCachesHasRowsOfItsSize(t *testing.T) {
	ctx := must.Get(cuda.New("cpu", cuda.WithThreads(1)))(t)
	defer ctx.Close()
	rows := []int{64, 128, 64, 34, 32}
	for i, name := range CacheFormats {
		c := must.Get(newPagedCache(ctx, 2, 2, 32, 3, Page, name))(t)
		if c.PageBytes != 2*Page*rows[i] || c.Bytes() != int64(2*2*3*c.PageBytes) {
			t.Errorf("%s: %d bytes a page, %d in all", name, c.PageBytes, c.Bytes())
		}
	}
}

func TestCachesThatCannotBe(t *testing.T) {
	ctx := must.Get(cuda.New("cpu", cuda.WithThreads(1)))(t)
	defer ctx.Close()
	for words, make := range map[string]func() (*PagedCache, error){
		"cache_format is 'q4_0'; it must be one of f16, f32, bf16, q8_0, e4m3": func() (*PagedCache, error) {
			return newPagedCache(ctx, 1, 1, 8, 1, 1, "q4_0")
		},
		"cache_format is q8_0, whose blocks of 32 do not divide heads of 8 elements": func() (*PagedCache, error) {
			return newPagedCache(ctx, 1, 1, 8, 1, 1, "q8_0")
		},
		"the cache would have 0 pages": func() (*PagedCache, error) { return newPagedCache(ctx, 1, 1, 8, 0, 1, "f16") },
	} {
		var wrong *OptionError
		if _, err := make(); !errors.As(err, &wrong) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, not %s", err, words)
		}
	}
}
