package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"strings"
)

// openRoutes need no key: the page, which has a place to enter one, and what asks whether the server lives.
var openRoutes = map[string]bool{"/": true, "/health": true, "/health/live": true, "/health/ready": true}

// IsLoopback says whether a name or address is this machine alone.
func IsLoopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

// guard checks each request. Without keys it answers only to loopback names, unless anyone may ask: otherwise a page of
// a stranger could, by a name of its own that leads to this machine.
type guard struct {
	digests [][sha256.Size]byte
	anyone  bool
}

func newGuard(keys []string, anyone bool) *guard {
	made := &guard{anyone: anyone}
	for _, key := range keys {
		made.digests = append(made.digests, sha256.Sum256([]byte(key)))
	}
	return made
}

// check is an error for a request that may not go on.
func (g *guard) check(r *http.Request) error {
	count := 1 + min(len(r.TransferEncoding), 1) // the host, which is not among the others
	for _, found := range r.Header {
		count += len(found)
	}
	switch {
	case count > limit("headers"):
		return headersTooLarge()
	case len(g.digests) > 0:
		if !openRoutes[r.URL.Path] && !g.knows(r.Header.Get("Authorization")) {
			return refusal("invalid_api_key", nil, nil).with("WWW-Authenticate", "Bearer")
		}
	case !g.anyone && !IsLoopback(strings.ToLower(withoutPort(r.Host))):
		return refusal("wrong_host", nil, named{"host": cut(r.Host, 64)})
	}
	return nil
}

func headersTooLarge() *apiError {
	return refusal("headers_too_large", nil, named{"most": limit("header_bytes"), "count": limit("headers")})
}

func (g *guard) knows(authorization string) bool {
	scheme, key, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "bearer") {
		return false
	}
	digest, known := sha256.Sum256([]byte(strings.TrimSpace(key))), 0
	for _, one := range g.digests { // all of them, so that the time tells nothing
		known |= subtle.ConstantTimeCompare(digest[:], one[:])
	}
	return known == 1
}

func withoutPort(host string) string {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		address, _, _ := strings.Cut(inner, "]")
		return address
	}
	if at := strings.LastIndexByte(host, ':'); at >= 0 {
		return host[:at]
	}
	return host
}
