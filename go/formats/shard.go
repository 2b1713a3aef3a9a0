package formats

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"os"
	"slices"
)

// A token shard is the encoded text that training reads. Layout, little-endian: a header of 64 bytes, then `count`
// token ids of `width` bytes each. In version 1 nothing follows them. In version 2 two bits for each token do, those of
// the first kind and then those of the second, each kind in ceil(count / 8) bytes: bit i % 8, from the lowest, of byte
// i / 8 is that of token i, and bits beyond the last are 0.
//
//	bytes  0..7    magic "NNTOKENS"
//	bytes  8..11   version, 1 or 2
//	bytes 12..15   width: 2 (uint16) or 4 (uint32)
//	bytes 16..23   vocab_size: every id is below it
//	bytes 24..31   count
//	bytes 32..63   SHA-256 of the tokenizer file that made the ids; zeros when unknown
//	first bits     1 where the token is the last of its document; a document has at least two tokens
//	second bits    1 where the token counts as a target: a model learns to say it. The first of a document never is one
const (
	ShardMagic       = "NNTOKENS"
	shardHeaderBytes = 64
	plainShard       = 1 // versions
	shardOfDocuments = 2
)

// TokenShard is a shard that was checked: header, version, width and length of the file. Its ids are read when they are
// asked for, and checked then. The file is read and not mapped, since a mapped one that somebody cuts short ends the
// process with a signal; and opened for each reading, since data may have more shards than a process may have files
// open. A shard belongs to one goroutine at a time.
type TokenShard struct {
	Path      string
	VocabSize int      // every id is below it
	Count     int      // tokens
	Width     int      // bytes of an id, 2 or 4
	Tokenizer [32]byte // SHA-256 of the tokenizer file; zeros when unknown
	// HasDocuments says whether it knows where its documents end and which tokens count as targets.
	HasDocuments bool

	size int64  // of the file when it was checked
	raw  []byte // used again by each Read
}

// OpenShard checks a shard.
func OpenShard(path string) (*TokenShard, error) {
	file, size, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // read only: nothing can be lost
	shard := &TokenShard{Path: path, size: size}
	head := make([]byte, min(size, shardHeaderBytes))
	if _, err := io.ReadFull(file, head); err != nil {
		return nil, CannotRead(path, err)
	}
	if problem := shard.readHeader(head); problem != "" {
		return nil, &Error{Path: path, Problem: problem}
	}
	return shard, nil
}

// readHeader says what is wrong with the file that begins with `head`, nothing if it is right.
func (s *TokenShard) readHeader(head []byte) string {
	size := s.size
	if len(head) < len(ShardMagic) || string(head[:len(ShardMagic)]) != ShardMagic {
		return "is not a token shard: it does not begin with " + ShardMagic
	}
	if len(head) < shardHeaderBytes {
		return fmt.Sprintf("is cut off inside its header, at byte %d", size)
	}
	version, width := binary.LittleEndian.Uint32(head[8:]), binary.LittleEndian.Uint32(head[12:])
	vocab, count := binary.LittleEndian.Uint64(head[16:]), binary.LittleEndian.Uint64(head[24:])
	if version != plainShard && version != shardOfDocuments {
		return fmt.Sprintf("is a token shard of version %d; this program reads versions 1 and 2", version)
	}
	if width != 2 && width != 4 {
		return fmt.Sprintf("has ids of %d bytes; they must have 2 or 4", width)
	}
	if vocab < 1 || vocab > 1<<(8*width) {
		return fmt.Sprintf("has a vocabulary of %d, which ids of %d bytes cannot hold", vocab, width)
	}
	// The count is anything that 64 bits hold, so that the bytes it would take may not fit them.
	wanted := new(big.Int).SetUint64(count)
	wanted.Add(wanted.Mul(wanted, big.NewInt(int64(width))), big.NewInt(shardHeaderBytes))
	if version == shardOfDocuments {
		bits := new(big.Int).SetUint64(count)
		wanted.Add(wanted, bits.Mul(bits.Rsh(bits.Add(bits, big.NewInt(7)), 3), big.NewInt(2)))
	}
	if wanted.Cmp(big.NewInt(size)) != 0 {
		return fmt.Sprintf("is %d bytes long, but its %d tokens take %d", size, count, wanted)
	}
	s.VocabSize, s.Count, s.Width, s.HasDocuments = int(vocab), int(count), int(width), version == shardOfDocuments
	copy(s.Tokenizer[:], head[32:])
	return ""
}

// read fills `into` with bytes of the file from `offset` on.
func (s *TokenShard) read(into []byte, offset int64) error {
	return s.with(func(file *os.File) error {
		_, err := file.ReadAt(into, offset)
		return err
	})
}

// AddTo gives all bytes of the file to a digest, header included.
func (s *TokenShard) AddTo(digest io.Writer) error {
	return s.with(func(file *os.File) error {
		_, err := io.Copy(digest, file)
		return err
	})
}

// with opens the file for one reading. One that ends too early was cut short since the shard was checked.
func (s *TokenShard) with(reading func(*os.File) error) error {
	file, _, err := OpenRegular(s.Path)
	if err != nil {
		return err
	}
	defer file.Close() // read only: nothing can be lost
	err = reading(file)
	if errors.Is(err, io.EOF) {
		info, failure := file.Stat()
		if failure == nil {
			problem := fmt.Sprintf("was cut to %d bytes while it was in use; it had %d", info.Size(), s.size)
			return &Error{Path: s.Path, Problem: problem}
		}
		err = failure
	}
	if err != nil {
		return CannotRead(s.Path, err)
	}
	return nil
}

// Read gives the ids from `start` on, as many as `into` holds. Every id is below VocabSize, else it is an *Error.
func (s *TokenShard) Read(into []int32, start int) error {
	if start < 0 || len(into) > s.Count-start {
		return fmt.Errorf("%s: tokens %d .. %d are not among its %d", s.Path, start, start+len(into), s.Count)
	}
	s.raw = slices.Grow(s.raw[:0], len(into)*s.Width)
	raw := s.raw[:len(into)*s.Width]
	if err := s.read(raw, shardHeaderBytes+int64(start)*int64(s.Width)); err != nil {
		return err
	}
	for at := range into {
		var id uint32
		if s.Width == 2 {
			id = uint32(binary.LittleEndian.Uint16(raw[2*at:]))
		} else {
			id = binary.LittleEndian.Uint32(raw[4*at:])
		}
		// Model sizes stay below 2^31, so what does not fit the signed type is above the vocabulary of any model too.
		if uint64(id) >= uint64(s.VocabSize) || id > math.MaxInt32 {
			problem := fmt.Sprintf("holds the token %d; its vocabulary has %d", id, s.VocabSize)
			return &Error{Path: s.Path, Problem: problem}
		}
		into[at] = int32(id)
	}
	return nil
}

// CheckIDs reads the whole shard; an id that is not below VocabSize is an *Error.
func (s *TokenShard) CheckIDs() error {
	ids := make([]int32, min(s.Count, 1<<20))
	for start := 0; start < s.Count; start += len(ids) {
		ids = ids[:min(len(ids), s.Count-start)]
		if err := s.Read(ids, start); err != nil {
			return err
		}
	}
	return nil
}

// WriteShard writes a shard of ids, in one step. Ids of vocabularies up to 65 536 take two bytes. `tokenizer` is the
// SHA-256 of the tokenizer's file, zeros when unknown. When an id is not below vocabSize it is an error, and nothing is
// written.
func WriteShard(path string, ids []int32, vocabSize int, tokenizer [32]byte) error {
	if vocabSize < 1 || vocabSize > math.MaxInt32 {
		return fmt.Errorf("vocabSize is %d; it must be 1 to %d", vocabSize, math.MaxInt32)
	}
	width := 4
	if vocabSize <= 1<<16 {
		width = 2
	}
	data := make([]byte, shardHeaderBytes, shardHeaderBytes+len(ids)*width)
	copy(data, ShardMagic)
	binary.LittleEndian.PutUint32(data[8:], plainShard)
	binary.LittleEndian.PutUint32(data[12:], uint32(width))
	binary.LittleEndian.PutUint64(data[16:], uint64(vocabSize))
	binary.LittleEndian.PutUint64(data[24:], uint64(len(ids)))
	copy(data[32:], tokenizer[:])
	for at, id := range ids {
		if id < 0 || int(id) >= vocabSize {
			return fmt.Errorf("ids[%d] is %d in a vocabulary of %d", at, id, vocabSize)
		}
		if width == 2 {
			data = binary.LittleEndian.AppendUint16(data, uint16(id))
		} else {
			data = binary.LittleEndian.AppendUint32(data, uint32(id))
		}
	}
	return WriteFile(path, data)
}
