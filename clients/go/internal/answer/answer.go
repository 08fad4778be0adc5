// Package answer makes the headers of a decision. It has what httplimit and grpclimit share.
package answer

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	tollgate "github.com/tollgate-limits/tollgate-go"
)

// Names of the styles of headers.
const (
	RateLimit  = "ratelimit"
	XRateLimit = "x-ratelimit"
	Policy     = "ratelimit-policy"
)

// Values of the option that says which requests take hits.
const (
	CountAll        = "all"
	CountFailed     = "failed"
	CountSuccessful = "successful"
)

// TakeHits takes the hits of a request that was checked by a dry run, if its outcome counts. It does
// not wait for the answer.
func TakeHits(
	ctx context.Context, check func(context.Context, tollgate.CheckRequest) (tollgate.Decision, error),
	request tollgate.CheckRequest, decision *tollgate.Decision, count string, failed bool,
) {
	// Nothing is counted without the service.
	if count == CountAll || decision.Err != nil || failed != (count == CountFailed) {
		return
	}
	// Not by a lease: dry runs see the hits of leases as taken.
	request.DryRun, request.Middleware = false, false
	go func() { _, _ = check(context.WithoutCancel(ctx), request) }()
}

// ValidateCount returns an error if there is no such count.
func ValidateCount(count string) error {
	switch count {
	case CountAll, CountFailed, CountSuccessful:
		return nil
	default:
		return fmt.Errorf("%w: count %q; use CountAll, CountFailed or CountSuccessful",
			tollgate.ErrInvalidArgument, count)
	}
}

// Unavailable is the wait of a request that is refused because the service has no answer.
const Unavailable = time.Second

// Header is a header of a response.
type Header struct {
	// Name is in lower case. Canonical is as net/http writes it, which spares an allocation.
	Name, Canonical string
	Value           string
}

// limitHeaders has the headers of the styles but Policy: limit, remaining and reset.
var limitHeaders = map[string][3]Header{
	RateLimit:  namesOf(RateLimit),
	XRateLimit: namesOf(XRateLimit),
}

func namesOf(style string) (headers [3]Header) {
	for i, suffix := range []string{"-limit", "-remaining", "-reset"} {
		headers[i] = headerOf(style + suffix)
	}
	return headers
}

func headerOf(name string) Header {
	return Header{Name: name, Canonical: http.CanonicalHeaderKey(name)}
}

func (h Header) with(value string) Header {
	h.Value = value
	return h
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
	if decision.Source == tollgate.SourceLease && decision.Remaining != nil {
		// The limit is as it was when the lease was made.
		now := *tightest
		now.Remaining, now.Reset = *decision.Remaining, decision.Reset
		tightest = &now
	}
	headers := make([]Header, 0, 3*len(styles))
	for _, style := range styles {
		if style == Policy {
			headers = append(headers, policyHeaders(tightest)...)
			continue
		}
		names := limitHeaders[style]
		headers = append(headers,
			names[0].with(strconv.FormatUint(tightest.RequestsPerUnit, 10)),
			names[1].with(strconv.FormatUint(tightest.Remaining, 10)))
		if tightest.Reset != nil {
			headers = append(headers, names[2].with(seconds(*tightest.Reset, 0)))
		}
	}
	return headers
}

// policyHeaders returns the headers of draft-ietf-httpapi-ratelimit-headers-10.
func policyHeaders(limit *tollgate.Limit) []Header {
	name := quote(limit.Name)
	policy := name + ";q=" + strconv.FormatUint(limit.RequestsPerUnit, 10)
	if window := windowSeconds(limit.Window); window > 0 {
		policy += ";w=" + strconv.FormatInt(window, 10)
	}
	current := name + ";r=" + strconv.FormatUint(limit.Remaining, 10)
	if limit.Reset != nil {
		current += ";t=" + seconds(*limit.Reset, 0)
	}
	return []Header{headerOf(Policy).with(policy), headerOf(RateLimit).with(current)}
}

// quote returns the name of a limit as a string of structured fields, which is printable ASCII.
func quote(name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		name = "default"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
}

// unitSeconds has the units of a window whose length is fixed.
var unitSeconds = map[string]int64{
	"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800,
}

// windowSeconds returns the seconds of a window such as 15 minutes, 0 for months and years.
func windowSeconds(window string) int64 {
	number, unit, _ := strings.Cut(window, " ")
	count, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return 0
	}
	return count * unitSeconds[strings.TrimSuffix(unit, "s")]
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
