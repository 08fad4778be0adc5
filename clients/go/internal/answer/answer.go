// Package answer makes the headers of a decision. It has what httplimit and grpclimit share.
package answer

import (
	"strconv"
	"time"

	tollgate "github.com/tollgate-limits/tollgate-go"
)

// Names of the styles of headers.
const (
	RateLimit  = "ratelimit"
	XRateLimit = "x-ratelimit"
)

// Unavailable is the wait of a request that is refused because the service has no answer.
const Unavailable = time.Second

// Header is a header of a response, its name in lower case.
type Header struct {
	Name  string
	Value string
}

// IsUnavailable returns whether a decision refuses because the service has no answer.
func IsUnavailable(decision *tollgate.Decision) bool {
	return !decision.Allowed && decision.Source == tollgate.SourceDeny
}

// Headers returns the headers of the tightest limit, in each style.
func Headers(decision *tollgate.Decision, styles []string) []Header {
	tightest := decision.TightestLimit()
	if tightest == nil || IsUnavailable(decision) {
		return nil
	}
	headers := make([]Header, 0, 3*len(styles))
	for _, style := range styles {
		headers = append(headers,
			Header{style + "-limit", strconv.FormatUint(uint64(tightest.RequestsPerUnit), 10)},
			Header{style + "-remaining", strconv.FormatUint(tightest.Remaining, 10)})
		if tightest.Reset != nil {
			headers = append(headers, Header{style + "-reset", seconds(*tightest.Reset, 0)})
		}
	}
	return headers
}

// RetryAfter returns the text of Retry-After of a refused decision, empty for none.
func RetryAfter(decision *tollgate.Decision) string {
	switch {
	case IsUnavailable(decision):
		return seconds(Unavailable, 1)
	case decision.RetryAfter == nil:
		return ""
	default:
		return seconds(*decision.RetryAfter, 1)
	}
}

// seconds returns whole seconds, rounded up.
func seconds(d time.Duration, least int64) string {
	whole := int64(d / time.Second)
	if d%time.Second > 0 {
		whole++
	}
	return strconv.FormatInt(max(whole, least), 10)
}
