package grpclimit

import (
	"fmt"

	tollgate "github.com/tollgate-limits/tollgate-go"
	"github.com/tollgate-limits/tollgate-go/internal/answer"
)

// HeaderStyle is a style of rate limit metadata.
type HeaderStyle string

const (
	// RateLimit is ratelimit-limit, ratelimit-remaining and ratelimit-reset.
	RateLimit HeaderStyle = answer.RateLimit
	// XRateLimit is the same with x-ratelimit-.
	XRateLimit HeaderStyle = answer.XRateLimit
	// Policy is ratelimit-policy and ratelimit of the IETF draft.
	Policy HeaderStyle = answer.Policy
)

// Count says which calls take hits.
type Count string

const (
	// CountAll counts every call, before it is answered.
	CountAll Count = answer.CountAll
	// CountFailed counts calls that failed, after they were answered.
	CountFailed Count = answer.CountFailed
	// CountSuccessful counts calls that did not fail, after they were answered.
	CountSuccessful Count = answer.CountSuccessful
)

type options struct {
	hits           func(Call) int64
	trustedProxies []string
	skipPaths      []string
	skip           func(Call) bool
	shadow         bool
	count          string
	headers        []string
	onDecision     func(Call, tollgate.Decision)
}

// Option is a setting of a [Limiter].
type Option func(*options)

// WithHits sets the hits of each call: 0 to [tollgate.MaxHits]. Default: 1.
func WithHits(hits int64) Option {
	return WithHitsFunc(func(Call) int64 { return hits })
}

// WithHitsFunc sets a function that returns the hits of a call: 0 to [tollgate.MaxHits].
// Default: 1.
func WithHitsFunc(hits func(Call) int64) Option {
	return func(o *options) { o.hits = hits }
}

// WithTrustedProxies sets the addresses and CIDR blocks whose x-forwarded-for is read.
// Default: none.
func WithTrustedProxies(proxies ...string) Option {
	return func(o *options) { o.trustedProxies = proxies }
}

// WithSkipPaths sets path templates of full methods that pass without a check. Default: none.
func WithSkipPaths(templates ...string) Option {
	return func(o *options) { o.skipPaths = templates }
}

// WithSkip sets a function that lets a call pass without a check. Default: none.
func WithSkip(skip func(Call) bool) Option {
	return func(o *options) { o.skip = skip }
}

// WithShadow makes the check, and lets every call pass, without metadata. Default: off.
func WithShadow(shadow bool) Option {
	return func(o *options) { o.shadow = shadow }
}

// WithCount sets which calls take hits. With [CountFailed] and [CountSuccessful] a call is checked by a
// dry run, and takes hits once it has ended: it failed with any status but OK. Default: [CountAll].
func WithCount(count Count) Option {
	return func(o *options) { o.count = string(count) }
}

// WithHeaders sets the styles of metadata; no styles: no metadata.
// Default: [RateLimit].
func WithHeaders(styles ...HeaderStyle) Option {
	return func(o *options) {
		o.headers = make([]string, len(styles))
		for i, style := range styles {
			o.headers[i] = string(style)
		}
	}
}

// WithOnDecision sets a function that is called after each check. A panic of it does not fail the
// call. Default: none.
func WithOnDecision(onDecision func(Call, tollgate.Decision)) Option {
	return func(o *options) { o.onDecision = onDecision }
}

func (o *options) validate() error {
	if err := answer.ValidateCount(o.count); err != nil {
		return err
	}
	for _, style := range o.headers {
		if style != answer.RateLimit && style != answer.XRateLimit && style != answer.Policy {
			return fmt.Errorf("%w: header style %q; use RateLimit, XRateLimit or Policy",
				tollgate.ErrInvalidArgument, style)
		}
	}
	return nil
}
