package httplimit

import (
	"fmt"
	"net/http"

	tollgate "github.com/tollgate-limits/tollgate-go"
	"github.com/tollgate-limits/tollgate-go/internal/answer"
)

// HeaderStyle is a style of rate limit headers.
type HeaderStyle string

const (
	// RateLimit is RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset.
	RateLimit HeaderStyle = answer.RateLimit
	// XRateLimit is the same with X-RateLimit-.
	XRateLimit HeaderStyle = answer.XRateLimit
	// Policy is RateLimit-Policy and RateLimit of the IETF draft.
	Policy HeaderStyle = answer.Policy
)

// Count says which requests take hits.
type Count string

const (
	// CountAll counts every request, before it is answered.
	CountAll Count = answer.CountAll
	// CountFailed counts requests that failed, after they were answered.
	CountFailed Count = answer.CountFailed
	// CountSuccessful counts requests that did not fail, after they were answered.
	CountSuccessful Count = answer.CountSuccessful
)

const (
	plainText       = "text/plain; charset=utf-8"
	refusedBody     = "Too Many Requests"
	unavailableBody = "Service Unavailable"
)

type options struct {
	hits           func(*http.Request) int64
	trustedProxies []string
	skipPaths      []string
	skip           func(*http.Request) bool
	shadow         bool
	count          string
	headers        []string
	status         int
	body           string
	contentType    string
	errorStatus    int
	onDecision     func(*http.Request, tollgate.Decision)
}

// Option is a setting of a [Limiter].
type Option func(*options)

func defaultOptions() options {
	return options{
		count:       answer.CountAll,
		headers:     []string{answer.RateLimit},
		status:      http.StatusTooManyRequests,
		body:        refusedBody,
		contentType: plainText,
		errorStatus: http.StatusServiceUnavailable,
	}
}

// WithHits sets the hits of each request: 0 to [tollgate.MaxHits]. Default: 1.
func WithHits(hits int64) Option {
	return WithHitsFunc(func(*http.Request) int64 { return hits })
}

// WithHitsFunc sets a function that returns the hits of a request: 0 to [tollgate.MaxHits].
// Default: 1.
func WithHitsFunc(hits func(*http.Request) int64) Option {
	return func(o *options) { o.hits = hits }
}

// WithTrustedProxies sets the addresses and CIDR blocks whose X-Forwarded-For is read.
// Default: none.
func WithTrustedProxies(proxies ...string) Option {
	return func(o *options) { o.trustedProxies = proxies }
}

// WithSkipPaths sets path templates whose requests pass without a call. Default: none.
func WithSkipPaths(templates ...string) Option {
	return func(o *options) { o.skipPaths = templates }
}

// WithSkip sets a function that lets a request pass without a call. Default: none.
func WithSkip(skip func(*http.Request) bool) Option {
	return func(o *options) { o.skip = skip }
}

// WithShadow makes the check, and lets every request pass, without headers. Default: off.
func WithShadow(shadow bool) Option {
	return func(o *options) { o.shadow = shadow }
}

// WithCount sets which requests take hits. With [CountFailed] and [CountSuccessful] a request is
// checked by a dry run, and takes hits once its status is known: it failed with 400 or more, or with a
// panic. Default: [CountAll].
func WithCount(count Count) Option {
	return func(o *options) { o.count = string(count) }
}

// WithHeaders sets the styles of headers; no styles: no headers but Retry-After.
// Default: [RateLimit].
func WithHeaders(styles ...HeaderStyle) Option {
	return func(o *options) {
		o.headers = make([]string, len(styles))
		for i, style := range styles {
			o.headers[i] = string(style)
		}
	}
}

// WithStatus sets the HTTP status of a refused request: 200 to 599. Default: 429.
func WithStatus(status int) Option {
	return func(o *options) { o.status = status }
}

// WithBody sets the body of a refused request. Default: Too Many Requests.
func WithBody(body string) Option {
	return func(o *options) { o.body = body }
}

// WithContentType sets the content type of the body. Default: text/plain; charset=utf-8.
func WithContentType(contentType string) Option {
	return func(o *options) { o.contentType = contentType }
}

// WithErrorStatus sets the HTTP status of a request that [tollgate.OnErrorDeny] refuses: 200 to 599.
// Default: 503.
func WithErrorStatus(status int) Option {
	return func(o *options) { o.errorStatus = status }
}

// WithOnDecision sets a function that is called after each check. A panic of it does not fail the
// request. Default: none.
func WithOnDecision(onDecision func(*http.Request, tollgate.Decision)) Option {
	return func(o *options) { o.onDecision = onDecision }
}

func (o *options) validate() error {
	if err := answer.ValidateCount(o.count); err != nil {
		return err
	}
	for _, status := range []int{o.status, o.errorStatus} {
		if status < 200 || status > 599 {
			return fmt.Errorf("%w: status %d; use 200 to 599", tollgate.ErrInvalidArgument, status)
		}
	}
	for _, style := range o.headers {
		if style != answer.RateLimit && style != answer.XRateLimit && style != answer.Policy {
			return fmt.Errorf("%w: header style %q; use RateLimit, XRateLimit or Policy",
				tollgate.ErrInvalidArgument, style)
		}
	}
	return nil
}
