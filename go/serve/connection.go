package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// listener takes connections, so many at once, whose errors are in the form of OpenAI's. net/http answers bytes that are no
// request, and heads that are too large, by itself, as plain text.
type listener struct {
	net.Listener
	open atomic.Int64
}

// Accept waits for a connection for which there is room.
func (l *listener) Accept() (net.Conn, error) {
	for {
		made, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if most := limit("connections"); l.open.Add(1) > int64(most) {
			l.open.Add(-1)
			go refuse(made, refusal("too_many_connections", nil, named{"most": most}))
			continue
		}
		return &connection{Conn: made, from: l}, nil
	}
}

// lastWords is how long a client may take for the error that ends its connection.
const lastWords = time.Second

// refuse answers without the handler, and closes.
func refuse(to net.Conn, err *apiError) {
	_ = to.SetWriteDeadline(time.Now().Add(lastWords))
	_, _ = to.Write(bareResponse(err)) // who does not take it is gone
	_ = to.Close()
}

func bareResponse(err *apiError) []byte {
	body := err.body()
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
		err.status, http.StatusText(err.status), contentJSON, len(body))
	return append([]byte(head), body...)
}

// connection is one of a listener.
type connection struct {
	net.Conn
	from     *listener
	once     sync.Once
	busy     atomic.Bool // while the handler has a request
	idle     atomic.Bool // since an answer, while no byte of the next request has come
	aborting atomic.Bool // net/http ends a read of its own
	told     atomic.Bool // that its head was too slow: nothing else may be said
}

// Close gives the place back.
func (c *connection) Close() error {
	c.once.Do(func() { c.from.open.Add(-1) })
	return c.Conn.Close()
}

// CloseWrite ends what is sent: net/http then waits a while before it closes, since a client that still sends at that
// moment may lose the answer.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetReadDeadline takes note of how net/http ends its reads: with a time long ago.
func (c *connection) SetReadDeadline(at time.Time) error {
	c.aborting.Store(!at.IsZero() && at.Before(time.Unix(1<<20, 0)))
	return c.Conn.SetReadDeadline(at)
}

// Read answers a head that does not come whole in time; after that nothing is left but to close.
func (c *connection) Read(into []byte) (int, error) {
	count, err := c.Conn.Read(into)
	if count > 0 {
		c.idle.Store(false)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.busy.Load() && !c.idle.Load() && !c.aborting.Load() {
		c.told.Store(true)
		slow := refusal("body_too_slow", nil, named{"seconds": limit("header_seconds")})
		_ = c.Conn.SetWriteDeadline(time.Now().Add(lastWords))
		_, _ = c.Conn.Write(bareResponse(slow))
	}
	return count, err
}

// plainError is what the answers that net/http writes by itself have in their heads, and ours never.
var plainError = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// Write puts errors that net/http has written into the form of the others.
func (c *connection) Write(what []byte) (int, error) {
	if c.told.Load() {
		return 0, net.ErrClosed
	}
	if !bytes.HasPrefix(what, []byte("HTTP/1.1 ")) || !bytes.Contains(what, plainError) {
		return c.Conn.Write(what)
	}
	instead := refusal("bad_http", nil, nil)
	if bytes.HasPrefix(what, []byte("HTTP/1.1 431 ")) {
		instead = headersTooLarge()
	}
	if err := c.Conn.SetWriteDeadline(time.Now().Add(lastWords)); err != nil {
		return 0, err
	}
	if _, err := c.Conn.Write(bareResponse(instead)); err != nil {
		return 0, err
	}
	return len(what), nil
}

type connectionKey struct{}

// withConnection has a handler find its connection.
func withConnection(ctx context.Context, of net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, of)
}

// markBusy tells a request's connection that the handler has it, until `done` is called.
func markBusy(r *http.Request) (done func()) {
	of, ok := r.Context().Value(connectionKey{}).(*connection)
	if !ok {
		return func() {}
	}
	of.busy.Store(true)
	return func() {
		of.idle.Store(true)
		of.busy.Store(false)
	}
}
