package serve

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nncuda/nncuda/go/formats"
)

// errGone says that the client closed the connection.
var errGone = errors.New("the client left")

// readObject reads the JSON object that a request holds.
func readObject(x *exchange) (*formats.Object, error) {
	contentType, _, _ := strings.Cut(x.r.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(contentType), "application/json") {
		return nil, refusal("not_a_json_type", nil, nil)
	}
	body, err := readBody(x)
	if err != nil {
		return nil, err
	}
	return objectOf(body)
}

// objectOf is the object that a JSON text is.
func objectOf(text []byte) (*formats.Object, error) {
	value, err := formats.ParseJSON(text)
	found, ok := value.(*formats.Object)
	if err != nil || !ok || hasLoneSurrogate(text) {
		return nil, refusal("not_json", nil, nil)
	}
	return found, nil
}

// readBody reads a body, within limits of size and time, and within the time of the request as a whole.
func readBody(x *exchange) ([]byte, error) {
	most, seconds := int64(limit("body_bytes")), limit("body_seconds")
	if x.r.ContentLength > most {
		return nil, refusal("body_too_large", nil, named{"most": most})
	}
	control := x.control
	deadline := time.Now().Add(time.Duration(seconds) * time.Second)
	whole, bounded := x.ctx.Deadline()
	bounded = bounded && whole.Before(deadline)
	if bounded {
		deadline = whole
	}
	if err := control.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, most))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, refusal("body_too_large", nil, named{"most": most})
	case errors.Is(err, os.ErrDeadlineExceeded) && bounded:
		return nil, x.late // not the cause of x.ctx: a read that fails may have cancelled that before
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refusal("body_too_slow", nil, named{"seconds": seconds}).with("Connection", "close")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return nil, errGone
	case err != nil: // chunks that are none
		return nil, refusal("bad_http", nil, nil).with("Connection", "close")
	}
	return body, control.SetReadDeadline(time.Time{})
}

// linger reads on for a while where the answer comes before the end of the request, before the answer and after it: a
// client that still sends when the connection is closed may lose the answer. `after` does the latter.
func linger(w http.ResponseWriter, r *http.Request) (after func()) {
	if r.Body == nil || r.Body == http.NoBody {
		return func() {}
	}
	control := http.NewResponseController(w)
	deadline := time.Now().Add(time.Duration(limit("linger_seconds")) * time.Second)
	if err := control.SetReadDeadline(deadline); err != nil {
		return func() {}
	}
	return func() {
		// Who sends more than any body may have has no further request to lose.
		if _, err := io.CopyN(io.Discard, r.Body, 2*int64(limit("body_bytes"))); errors.Is(err, io.EOF) {
			_ = control.SetReadDeadline(time.Time{})
		}
	}
}

// hasLoneSurrogate says whether a JSON text that was read without an error escapes half of a surrogate pair, which
// becomes a replacement character otherwise.
func hasLoneSurrogate(text []byte) bool {
	high := false // whether the high half of a pair came right before
	for at := 0; at < len(text); at++ {
		escaped := rune(0)
		if text[at] == '\\' {
			if at++; text[at] == 'u' {
				value, _ := strconv.ParseUint(string(text[at+1:at+5]), 16, 16)
				escaped = rune(value)
				at += 4
			}
		}
		isHigh, isLow := escaped >= 0xD800 && escaped < 0xDC00, escaped >= 0xDC00 && escaped < 0xE000
		if high != isLow {
			return true
		}
		high = isHigh
	}
	return high
}
