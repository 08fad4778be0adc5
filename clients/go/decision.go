package tollgate

import "time"

// MaxHits is the largest number of hits of a call.
const MaxHits = 9007199254740991

// Entry is one key and its value.
type Entry struct {
	Key   string
	Value string
}

// Descriptor is a list of entries that the rules of a domain match.
type Descriptor struct {
	// Entries in the order of the rules.
	Entries []Entry
	// Hits takes the place of the call's hits for this descriptor: 0 to [MaxHits]. Nil: the call's.
	Hits *int64
}

// NewDescriptor returns a descriptor of one entry.
func NewDescriptor(key, value string) Descriptor {
	return Descriptor{Entries: []Entry{{Key: key, Value: value}}}
}

// With returns the descriptor with one more entry.
func (d Descriptor) With(key, value string) Descriptor {
	entries := make([]Entry, 0, len(d.Entries)+1)
	d.Entries = append(append(entries, d.Entries...), Entry{Key: key, Value: value})
	return d
}

// WithHits returns the descriptor with hits of its own.
func (d Descriptor) WithHits(hits int64) Descriptor {
	d.Hits = &hits
	return d
}

// CheckRequest is a check or a peek.
type CheckRequest struct {
	// Domain of the rules. Empty: the client's.
	Domain string
	// Descriptors that the rules match.
	Descriptors []Descriptor
	// Hits to take: 0 to [MaxHits]. Nil: 1.
	Hits *int64
	// DryRun takes no hits, as a peek. It needs [ProtocolTollgate]. A peek ignores it.
	DryRun bool
	// Middleware is whether middleware makes the check, which then may take a hit of a lease. See
	// [WithLeases].
	Middleware bool
}

// Source is where a decision was made.
type Source string

const (
	// SourceServer is the server.
	SourceServer Source = "server"
	// SourceCache is the denial cache: the refusal of an earlier check.
	SourceCache Source = "cache"
	// SourceLease is a lease: hits that the server has taken for this client. See [WithLeases].
	SourceLease Source = "lease"
	// SourceLocal is the token bucket of [OnErrorLocal].
	SourceLocal Source = "local"
	// SourceAllow is [OnErrorAllow].
	SourceAllow Source = "allow"
	// SourceDeny is [OnErrorDeny].
	SourceDeny Source = "deny"
)

// NoLimit is why no limit applied to a call.
type NoLimit string

const (
	// NoLimitUnknownDomain means that no rules have the domain. See [WithUnknownDomain].
	NoLimitUnknownDomain NoLimit = "unknown_domain"
	// NoLimitNoRule means that no rule with a limit matches the descriptors.
	NoLimitNoRule NoLimit = "no_rule"
	// NoLimitUnlimited means that a rule that matches is unlimited.
	NoLimitUnlimited NoLimit = "unlimited"
)

// Decision is the result of a check, a peek or a reservation.
type Decision struct {
	// Allowed is whether the request may pass.
	Allowed bool
	// Source is where the decision was made.
	Source Source
	// Remaining is what is left of the tightest limit. Nil: no limit applies.
	Remaining *uint64
	// Reset is the time until the tightest limit is unused again. Nil: no limit applies.
	Reset *time.Duration
	// RetryAfter is the time until the same hits would pass. Nil: never, or not known.
	RetryAfter *time.Duration
	// Limits are those that apply. Do not change them: decisions of the denial cache and of a lease
	// share them. Those of a lease are as they were when it was made.
	Limits []Limit
	// NoLimit is why no limit applied. Empty: one did, the server did not answer, or the protocol is
	// [ProtocolEnvoy], which does not say.
	NoLimit NoLimit
	// Err is why the call has no answer, with the sources local, allow and deny only: a [CallError], or
	// [ErrBreakerOpen].
	Err error
	// Elapsed is the duration of the call by the real clock.
	Elapsed time.Duration
}

// Limit is what a limit has left.
type Limit struct {
	// Descriptor is the position of the descriptor in the request.
	Descriptor int
	// Name of the rule; empty where it has none.
	Name string
	// Rule is the path of the rule. Empty with [ProtocolEnvoy].
	Rule string
	// RequestsPerUnit is the limit in each window.
	RequestsPerUnit uint64
	// Window in words, such as "1 minute".
	Window string
	// Allowed is whether this limit allows the request.
	Allowed bool
	// Remaining is what is left of the limit.
	Remaining uint64
	// Reset is the time until the limit is unused again. Nil: not known.
	Reset *time.Duration
	// RetryAfter is the time until the same hits would pass. Nil: never, or the limit allows.
	RetryAfter *time.Duration
}

// TightestLimit returns the limit that decides: of an allowed decision the one with the least
// remaining, of a refused one the refused limit with the longest wait. It returns nil where no
// limit applies.
func (d *Decision) TightestLimit() *Limit {
	var tightest *Limit
	for i := range d.Limits {
		limit := &d.Limits[i]
		switch {
		case !d.Allowed && limit.Allowed:
		case tightest == nil:
			tightest = limit
		case d.Allowed:
			if limit.Remaining < tightest.Remaining {
				tightest = limit
			}
		case tightest.RetryAfter == nil:
			return tightest
		case limit.RetryAfter == nil || *limit.RetryAfter > *tightest.RetryAfter:
			tightest = limit
		}
	}
	return tightest
}

// aged returns the decision as it is after a time: every time is less, and not below 0.
func (d *Decision) aged(age time.Duration) Decision {
	older := *d
	if age <= 0 {
		return older
	}
	older.Reset = agedTime(d.Reset, age)
	older.RetryAfter = agedTime(d.RetryAfter, age)
	older.Limits = make([]Limit, len(d.Limits))
	for i, limit := range d.Limits {
		limit.Reset = agedTime(limit.Reset, age)
		limit.RetryAfter = agedTime(limit.RetryAfter, age)
		older.Limits[i] = limit
	}
	return older
}

func agedTime(t *time.Duration, age time.Duration) *time.Duration {
	if t == nil {
		return nil
	}
	left := max(*t-age, 0)
	return &left
}

// validateCall returns an error if the arguments of a call can never be right.
func validateCall(descriptors []Descriptor, hits *int64) error {
	if err := validateHits(hits); err != nil {
		return err
	}
	for i := range descriptors {
		if err := validateHits(descriptors[i].Hits); err != nil {
			return err
		}
	}
	return nil
}

func validateHits(hits *int64) error {
	if hits != nil && (*hits < 0 || *hits > MaxHits) {
		return invalid("hits %d; use 0 to %d", *hits, int64(MaxHits))
	}
	return nil
}

// hitsOf returns the hits of each descriptor.
func hitsOf(descriptors []Descriptor, hits *int64) []int64 {
	of := make([]int64, len(descriptors))
	for i := range descriptors {
		switch {
		case descriptors[i].Hits != nil:
			of[i] = *descriptors[i].Hits
		case hits != nil:
			of[i] = *hits
		default:
			of[i] = 1
		}
	}
	return of
}

// largestHits returns the hits that a check takes from the local bucket.
func largestHits(descriptors []Descriptor, hits *int64) int64 {
	if len(descriptors) == 0 {
		if hits != nil {
			return *hits
		}
		return 1
	}
	var largest int64
	for _, n := range hitsOf(descriptors, hits) {
		largest = max(largest, n)
	}
	return largest
}
