package formats_test

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/internal/must"
)

// head is a shard's header.
func head(version, width uint32, vocab, count uint64) []byte {
	data := make([]byte, 64)
	copy(data, formats.ShardMagic)
	binary.LittleEndian.PutUint32(data[8:], version)
	binary.LittleEndian.PutUint32(data[12:], width)
	binary.LittleEndian.PutUint64(data[16:], vocab)
	binary.LittleEndian.PutUint64(data[24:], count)
	return data
}

func TestShardsReadAsTheyWereWritten(t *testing.T) {
	for _, test := range []struct {
		vocab, width int
		ids          []int32
	}{{65536, 2, []int32{0, 65535, 7}}, {65537, 4, []int32{0, 65536, 7}}, {1, 2, nil}} {
		path := filepath.Join(t.TempDir(), "x.tokens")
		digest := [32]byte{1, 31: 9}
		must.Do(t, formats.WriteShard(path, test.ids, test.vocab, digest))
		shard := must.Get(formats.OpenShard(path))(t)
		if shard.Count != len(test.ids) || shard.VocabSize != test.vocab || shard.Width != test.width ||
			shard.Tokenizer != digest {
			t.Errorf("%+v", shard)
		}
		must.Do(t, shard.CheckIDs())
		ids := make([]int32, len(test.ids))
		must.Do(t, shard.Read(ids, 0))
		if !slices.Equal(ids, test.ids) {
			t.Errorf("%v, not %v", ids, test.ids)
		}
		for _, start := range []int{-1, 1, 1 << 62} {
			if err := shard.Read(make([]int32, len(test.ids)), start); err == nil && len(test.ids) > 0 {
				t.Errorf("%d tokens were read from %d on", len(test.ids), start)
			}
		}
	}
}

func TestShardsThatAreNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tokens")
	for _, ids := range [][]int32{{0, 48}, {-1}} {
		if err := formats.WriteShard(path, ids, 48, [32]byte{}); err == nil {
			t.Errorf("%v was written", ids)
		}
	}
	if err := formats.WriteShard(path, nil, 0, [32]byte{}); err == nil {
		t.Error("a vocabulary of none was written")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("something was left")
	}
}

// TestShardThatIsCutShortWhileItIsRead: reading past the file's new end is an error, not the end of the process, and
// says how much of the file is left.
func TestShardThatIsCutShortWhileItIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tokens")
	must.Do(t, formats.WriteShard(path, make([]int32, 1<<16), 300, [32]byte{}))
	shard := must.Get(formats.OpenShard(path))(t)
	must.Do(t, os.Truncate(path, 64+2*100))
	must.Do(t, shard.Read(make([]int32, 100), 0))
	wanted := path + ": was cut to 264 bytes while it was in use; it had 131136"
	for what, err := range map[string]error{
		"half there": shard.Read(make([]int32, 16), 90),
		"all gone":   shard.Read(make([]int32, 16), 1<<15),
	} {
		var found *formats.Error
		if !errors.As(err, &found) || err.Error() != wanted {
			t.Errorf("%s: %v, not %q", what, err, wanted)
		}
	}
	must.Do(t, os.Remove(path))
	wanted = path + ": cannot be read: no such file or directory"
	for _, err := range []error{shard.Read(make([]int32, 16), 0), shard.AddTo(io.Discard)} {
		if err == nil || err.Error() != wanted {
			t.Errorf("%v, not %q", err, wanted)
		}
	}
}

func FuzzOpenShard(f *testing.F) {
	f.Add(append(head(1, 2, 300, 2), 1, 0, 2, 0))
	f.Add(head(1, 4, 1<<32, 1<<63))
	f.Add(append(head(2, 2, 300, 3), 1, 0, 2, 0, 3, 0, 4, 6))
	f.Add(head(2, 2, 300, 1<<64-1))
	path := filepath.Join(f.TempDir(), "x.tokens")
	f.Fuzz(func(t *testing.T, data []byte) {
		must.Do(t, os.WriteFile(path, data, 0o666))
		shard, err := formats.OpenShard(path)
		if err != nil {
			return
		}
		_ = shard.CheckIDs()
		if shard.HasDocuments {
			_ = shard.Documents(func(int, bool, bool) {})
		}
	})
}

// TestShardOfDocuments: its bits, which tokens are targets, and files whose bits make no documents.
func TestShardOfDocuments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tokens")
	write := func(bits ...byte) {
		must.Do(t, os.WriteFile(path, append(append(head(2, 2, 300, 10), make([]byte, 20)...), bits...), 0o666))
	}
	write(0b00000100, 0b10, 0b11111010, 0b01)
	shard := must.Get(formats.OpenShard(path))(t)
	var ends, targets []int
	must.Do(t, shard.Documents(func(at int, end, target bool) {
		if end {
			ends = append(ends, at)
		}
		if target {
			targets = append(targets, at)
		}
	}))
	if !slices.Equal(ends, []int{2, 9}) || !slices.Equal(targets, []int{1, 4, 5, 6, 7, 8}) {
		t.Errorf("%v, %v", ends, targets)
	}
	bits := must.Get(shard.Bits(7, 10))(t)
	if !slices.Equal(bits.Ends, []bool{false, false, true}) || !slices.Equal(bits.Targets, []bool{true, true, false}) {
		t.Errorf("%v", bits)
	}
	for _, wrong := range [][2]int{{-1, 2}, {3, 2}, {4, 11}} {
		if _, err := shard.Bits(wrong[0], wrong[1]); err == nil {
			t.Errorf("bits of %v", wrong)
		}
	}
	for _, test := range []struct {
		bits    []byte
		problem string
	}{
		{[]byte{1, 2, 0, 0}, "the document at token 0 has one token; it must have two"},
		{[]byte{0b100, 3, 0, 0}, "the document at token 9 has one token; it must have two"},
		{[]byte{4, 0, 0, 0}, "its last token does not end a document"},
		{[]byte{4, 2, 0}, "is 87 bytes long, but its 10 tokens take 88"},
	} {
		write(test.bits...)
		shard, err := formats.OpenShard(path)
		if err == nil {
			err = shard.Documents(func(int, bool, bool) {})
		}
		if err == nil || err.Error() != path+": "+test.problem {
			t.Errorf("%v: %v", test.bits, err)
		}
	}
}
