package tokenizer_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/internal/must"
	"github.com/nncuda/nncuda/go/tokenizer"
)

// Fixtures that SentencePiece itself made; their README says what is in them.
const fixtures = "../../tests/tokenizer"

func readFixture(t testing.TB, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(fixtures, name))
	if err != nil {
		t.Skip("the fixtures lie in the source tree, beside this module: ", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(name, err)
	}
}

type text struct {
	Name, Text string
	Repeat     int
}

type encoding struct {
	IDs           []int32
	Decoded       *string
	Count         int
	IDsSHA256     string  `json:"ids_sha256"`
	DecodedSHA256 *string `json:"decoded_sha256"`
}

type expectation struct {
	VocabSize  int   `json:"vocab_size"`
	BeginID    int32 `json:"begin_id"`
	EndID      int32 `json:"end_id"`
	OrdinaryID int32 `json:"ordinary_id"`
	Encode     map[string]encoding
	Decode     []decoding
}

type decoding struct {
	IDs     []int32
	Text    string
	Pushed  []string
	Flushed string
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func TestModelsGiveWhatSentencePieceGives(t *testing.T) {
	var texts []text
	readFixture(t, "texts.json", &texts)
	models, err := filepath.Glob(filepath.Join(fixtures, "*.model"))
	if err != nil || len(models) == 0 {
		t.Fatal("no models among the fixtures", err)
	}
	for _, path := range models {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".model"), func(t *testing.T) {
			made := must.Get(tokenizer.Open(path))(t)
			var expected expectation
			readFixture(t, strings.TrimSuffix(filepath.Base(path), ".model")+".json", &expected)
			found := []int32{int32(made.VocabSize()), made.BeginID(), made.EndID(), made.OrdinaryID()}
			wanted := []int32{int32(expected.VocabSize), expected.BeginID, expected.EndID, expected.OrdinaryID}
			if !slices.Equal(found, wanted) {
				t.Errorf("size, begin, end and ordinary id are %v, not %v", found, wanted)
			}
			for _, text := range texts {
				t.Run(text.Name, func(t *testing.T) {
					checkText(t, made, strings.Repeat(text.Text, text.Repeat), tokenizer.Encoding{}, expected.Encode[text.Name])
				})
			}
			for _, decode := range expected.Decode {
				checkDecode(t, made, decode)
			}
		})
	}
}

func checkText(
	t *testing.T, made tokenizer.TextTokenizer, text string, how tokenizer.Encoding, expected encoding,
) {
	t.Helper()
	ids := must.Get(made.Encode(text, how))(t)
	decoded := must.Get(made.Decode(ids))(t)
	if expected.IDsSHA256 == "" {
		if !slices.Equal(ids, expected.IDs) {
			t.Errorf("ids are\n%v, not\n%v", ids, expected.IDs)
		}
		wanted := text
		if expected.Decoded != nil {
			wanted = *expected.Decoded
		}
		if decoded != wanted {
			t.Errorf("decoded to %q, not %q", decoded, wanted)
		}
		return
	}
	bytes := must.Get(binary.Append(nil, binary.LittleEndian, ids))(t)
	if len(ids) != expected.Count || hash(bytes) != expected.IDsSHA256 {
		t.Errorf("%d ids, not the %d expected, or others", len(ids), expected.Count)
	}
	wanted := hash([]byte(text))
	if expected.DecodedSHA256 != nil {
		wanted = *expected.DecodedSHA256
	}
	if hash([]byte(decoded)) != wanted {
		t.Error("decoded to another text")
	}
}

func checkDecode(t *testing.T, made tokenizer.TextTokenizer, expected decoding) {
	t.Helper()
	decoded, err := made.Decode(expected.IDs)
	if err != nil || decoded != expected.Text {
		t.Errorf("%v decoded to %q (%v), not %q", expected.IDs, decoded, err, expected.Text)
	}
	stream := must.Get(tokenizer.NewStreamDecoder(made))(t)
	var found []string
	for _, id := range expected.IDs {
		piece := must.Get(stream.Push(id))(t)
		found = append(found, piece)
	}
	rest, err := stream.Flush()
	if err != nil || !slices.Equal(found, expected.Pushed) || rest != expected.Flushed {
		t.Errorf("%v streamed as %q and %q (%v), not %q and %q", expected.IDs, found, rest, err, expected.Pushed,
			expected.Flushed)
	}
}

func TestBrokenModelsAreRefused(t *testing.T) {
	var models []struct{ Name, Model string }
	readFixture(t, "refused.json", &models)
	for _, model := range models {
		content := must.Get(base64.StdEncoding.DecodeString(model.Model))(t)
		if _, err := tokenizer.New(content); err == nil {
			t.Errorf("%s was taken", model.Name)
		}
	}
}

func TestIdsOutsideTheVocabularyAreRefused(t *testing.T) {
	made, err := tokenizer.Open(filepath.Join(fixtures, "own_unigram.model"))
	if err != nil {
		t.Skip(err)
	}
	for _, id := range []int32{-1, int32(made.VocabSize())} {
		if _, err := made.Decode([]int32{4, id}); err == nil || !strings.Contains(err.Error(), "ids[1] is") {
			t.Errorf("id %d: %v", id, err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, name := range []string{"own_unigram", "own_bpe"} {
		made, err := tokenizer.Open(filepath.Join(fixtures, name+".model"))
		if err != nil {
			b.Skip(err)
		}
		text := strings.Repeat("The cat sat on the mat, and the dog sat on the log.\n", 100)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				must.Get(made.Encode(text, tokenizer.Encoding{}))(b)
			}
		})
	}
}
