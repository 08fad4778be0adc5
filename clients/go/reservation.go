package tollgate

import (
	"context"
	"sync"
	"time"

	"github.com/tollgate-limits/tollgate-go/internal/pb/tollgatev1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	maxReservationID = 256
	minExpires       = time.Millisecond
	maxExpires       = 24 * time.Hour
)

// OnExpiry is what happens to the hits of a reservation that nobody settles.
type OnExpiry int

const (
	// OnExpiryDefault is the rule's, else OnExpiryCharge.
	OnExpiryDefault OnExpiry = iota
	// OnExpiryCharge keeps the hits charged.
	OnExpiryCharge
	// OnExpiryRelease gives the hits back.
	OnExpiryRelease
)

// ReserveRequest is a reservation of hits.
type ReserveRequest struct {
	// Domain of the rules. Empty: the client's.
	Domain string
	// Descriptors that the rules match. Commit, Release and Extend repeat them.
	Descriptors []Descriptor
	// Hits to reserve: 0 to [MaxHits]. Nil: the amount of each rule.
	Hits *int64
	// ID of the reservation, at most 256 bytes. Empty: the server makes one.
	ID string
	// Expires is when the reservation ends by itself, from now: 1 ms to a day. 0: the rule's, else
	// 60 s.
	Expires time.Duration
	// OnExpiry is what happens to the hits then.
	OnExpiry OnExpiry
}

// Reservation is the result of [Client.Reserve]. Close it at the end of its scope:
//
//	reservation, err := client.Reserve(ctx, request)
//	if err != nil {
//		return err
//	}
//	defer reservation.Close()
//
// A reservation that was refused, or that [OnError] decided, has no ID. Its Commit, Release and
// Extend make no call and succeed.
type Reservation struct {
	Decision
	// ID is the id that the server knows. Empty: nothing to settle.
	ID string
	// Hits are the hits that are reserved.
	Hits uint64
	// Expires is when the reservation ended by itself, from the time of the answer. Nil: no answer.
	Expires *time.Duration

	client      *Client
	domain      string
	descriptors []Descriptor

	mu      sync.Mutex
	settled bool
}

// Settlement is the answer to a commit, a release or an extension.
type Settlement struct {
	// ID of the reservation.
	ID string
	// Reserved are the hits that were reserved.
	Reserved uint64
	// Committed is the true amount; 0 for a release.
	Committed uint64
	// Repeated is whether it was settled before, so that nothing changed. The amounts are those of
	// the first time then.
	Repeated bool
	// Remaining is what is left of the tightest limit. Nil: no limit applies.
	Remaining *uint64
	// Reset is the time until the tightest limit is unused again. Nil: no limit applies.
	Reset *time.Duration
	// Limits are those that apply.
	Limits []Limit
	// Expires is when the reservation ends by itself, from now. Of an extension only.
	Expires *time.Duration
}

// Reserve takes hits from all limits or from none, until they are settled or expire.
//
// Without an answer, [OnError] decides, as for a check. The breaker stops it. The denial cache does
// not. It fails with [ErrInvalidArgument] over [ProtocolEnvoy], with [ErrClosed], and with the error
// of ctx when ctx ends before the answer. It is never sent again.
func (c *Client) Reserve(ctx context.Context, request ReserveRequest) (*Reservation, error) {
	started := time.Now()
	if err := c.validateReserve(&request); err != nil {
		return nil, err
	}
	domain, err := c.prepare(ctx, request.Domain, request.Descriptors, request.Hits)
	if err != nil {
		return nil, err
	}
	ctx, span := c.telemetry.start(ctx, "tollgate.reserve", domain)
	reservation := &Reservation{client: c, domain: domain}
	failure, err := c.guarded(ctx, c.deadline(), "reserve", func(ctx context.Context) error {
		return reservation.send(ctx, request)
	})
	if err == nil {
		err = c.validateDomain(domain, &reservation.Decision)
	}
	if err != nil {
		span.fail(err)
		return nil, err
	}
	if failure != nil {
		reservation.Decision = c.decideOnError(ctx, domain, request.Descriptors, request.Hits, failure)
	}
	reservation.Elapsed = time.Since(started)
	c.telemetry.recordDecision(ctx, &reservation.Decision)
	span.decide(&reservation.Decision)
	return reservation, nil
}

func (c *Client) validateReserve(request *ReserveRequest) error {
	switch {
	case c.options.protocol == ProtocolEnvoy:
		return invalid("the protocol envoy has no reservations; use ProtocolTollgate")
	case len(request.ID) > maxReservationID:
		return invalid("reservation id of %d bytes; use at most %d", len(request.ID), maxReservationID)
	case request.OnExpiry < OnExpiryDefault || request.OnExpiry > OnExpiryRelease:
		return invalid("on expiry %d is unknown; use OnExpiryCharge or OnExpiryRelease", request.OnExpiry)
	case request.Expires != 0:
		return validateExpires(request.Expires)
	}
	return nil
}

func validateExpires(expires time.Duration) error {
	if expires < minExpires || expires > maxExpires {
		return invalid("expiry %v; use %v to %v", expires, minExpires, maxExpires)
	}
	return nil
}

func (r *Reservation) send(ctx context.Context, request ReserveRequest) error {
	message := &tollgatev1.ReserveRequest{
		Domain:      r.domain,
		Descriptors: descriptorMessages(request.Descriptors),
		Hits:        hitsMessage(request.Hits),
		Reservation: request.ID,
		OnExpiry:    tollgatev1.OnExpiry(request.OnExpiry),
	}
	if request.Expires != 0 {
		message.Expires = durationpb.New(request.Expires)
	}
	response := &tollgatev1.ReserveResponse{}
	if err := r.client.unary(ctx, tollgateService+"Reserve", message, response); err != nil {
		return err
	}
	allowed, err := isAllowed(response.GetVerdict())
	if err != nil {
		return err
	}
	r.Decision = Decision{
		Allowed:    allowed,
		Source:     SourceServer,
		Remaining:  response.Remaining,
		Reset:      durationOf(response.GetReset_()),
		RetryAfter: durationOf(response.GetRetryAfter()),
		Limits:     limitsOf(response.GetLimits()),
		NoLimit:    noLimitOf(response.GetNoLimit()),
	}
	r.Hits = response.GetHits()
	r.Expires = durationOf(response.GetExpires())
	if allowed {
		r.ID = response.GetReservation()
		r.descriptors = make([]Descriptor, len(request.Descriptors))
		for i := range request.Descriptors {
			r.descriptors[i].Entries = append([]Entry(nil), request.Descriptors[i].Entries...)
		}
	}
	return nil
}

// Commit settles the reservation by the true amount of hits, for all of its descriptors.
//
// It is sent once more after UNAVAILABLE. It fails with a [CallError], and can be repeated then: a
// repeated commit changes nothing. After a commit that was sent, Close does not release.
func (r *Reservation) Commit(ctx context.Context, hits int64) (Settlement, error) {
	if err := validateHits(&hits); err != nil {
		return Settlement{}, err
	}
	return r.settle(ctx, "commit", "Commit", &tollgatev1.CommitRequest{
		Domain:      r.domain,
		Descriptors: descriptorMessages(r.descriptors),
		Reservation: r.ID,
		Hits:        hitsMessage(&hits),
	})
}

// CommitEach settles the reservation by the true amounts, one for each of its descriptors. Otherwise
// it is as Commit.
func (r *Reservation) CommitEach(ctx context.Context, hits ...int64) (Settlement, error) {
	if r.ID != "" && len(hits) != len(r.descriptors) {
		return Settlement{}, invalid("%d amounts for %d descriptors", len(hits), len(r.descriptors))
	}
	messages := descriptorMessages(r.descriptors)
	for i := range hits {
		if err := validateHits(&hits[i]); err != nil {
			return Settlement{}, err
		}
		if i < len(messages) {
			messages[i].Hits = hitsMessage(&hits[i])
		}
	}
	return r.settle(ctx, "commit", "Commit", &tollgatev1.CommitRequest{
		Domain:      r.domain,
		Descriptors: messages,
		Reservation: r.ID,
	})
}

// Release settles the reservation and gives back all of it. It is sent once more after UNAVAILABLE.
// It fails with a [CallError].
func (r *Reservation) Release(ctx context.Context) (Settlement, error) {
	return r.settle(ctx, "release", "Release", &tollgatev1.ReleaseRequest{
		Domain:      r.domain,
		Descriptors: descriptorMessages(r.descriptors),
		Reservation: r.ID,
	})
}

// Extend moves the expiry of the reservation: 1 ms to a day from now. It is sent once more after
// UNAVAILABLE. It fails with a [CallError].
func (r *Reservation) Extend(ctx context.Context, expires time.Duration) (Settlement, error) {
	if err := validateExpires(expires); err != nil {
		return Settlement{}, err
	}
	return r.settle(ctx, "extend", "Extend", &tollgatev1.ExtendRequest{
		Domain:      r.domain,
		Descriptors: descriptorMessages(r.descriptors),
		Reservation: r.ID,
		Expires:     durationpb.New(expires),
	})
}

// Close ends the scope of the reservation. It releases the hits, unless a commit or a release was
// sent. It drops the error of that release: the reservation then ends by its expiry. It waits for
// the deadline of the client at most.
func (r *Reservation) Close() {
	r.mu.Lock()
	settled := r.settled
	r.mu.Unlock()
	if !settled {
		_, _ = r.Release(context.Background())
	}
}

// settle makes a call that the breaker does not stop and does not count.
func (r *Reservation) settle(
	ctx context.Context, name, method string, message proto.Message,
) (Settlement, error) {
	if r.client.closed.Load() {
		return Settlement{}, ErrClosed
	}
	if r.ID == "" {
		return Settlement{}, nil
	}
	if err := ctx.Err(); err != nil {
		return Settlement{}, err
	}
	if name != "extend" {
		r.mu.Lock()
		r.settled = true
		r.mu.Unlock()
	}
	ctx, span := r.client.telemetry.start(ctx, "tollgate."+name, r.domain)
	response := &tollgatev1.SettleResponse{}
	failure, err := r.client.deadlined(ctx, r.client.deadline(), name, func(ctx context.Context) error {
		return r.client.unaryAgain(ctx, tollgateService+method, message, response)
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		span.fail(err)
		return Settlement{}, err
	}
	span.answer()
	return Settlement{
		ID:        response.GetReservation(),
		Reserved:  response.GetReserved(),
		Committed: response.GetCommitted(),
		Repeated:  response.GetRepeated(),
		Remaining: response.Remaining,
		Reset:     durationOf(response.GetReset_()),
		Limits:    limitsOf(response.GetLimits()),
		Expires:   durationOf(response.GetExpires()),
	}, nil
}
