package tollgate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Client checks limits. It is safe for concurrent use. Close ends it.
type Client struct {
	domain    string
	options   options
	conn      *grpc.ClientConn
	stream    *checkStream
	breaker   breaker
	denials   *denialCache
	leases    *leaseTable
	local     *localBuckets
	telemetry *telemetry
	failures  *failureLog

	closed    atomic.Bool
	closeOnce sync.Once
	closeErr  error
}

// New returns a client for the rules of a domain. It connects in the background; see [Client.Ready].
// It returns an error that is [ErrInvalidArgument] if an option can never be right.
func New(domain string, opts ...Option) (*Client, error) {
	o := defaultOptions()
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.validate(domain); err != nil {
		return nil, err
	}
	telemetry, err := newTelemetry(domain, &o)
	if err != nil {
		return nil, err
	}
	conn, err := connect(&o)
	if err != nil {
		return nil, err
	}
	client := &Client{
		domain:    domain,
		options:   o,
		conn:      conn,
		breaker:   breaker{maxFailures: o.breakerFailures, openTime: o.breakerOpen, clock: o.clock},
		denials:   newDenialCache(o.denialCacheEntries, o.clock),
		local:     newLocalBuckets(o.localPerSecond, o.localBurst, o.clock),
		telemetry: telemetry,
		failures:  newFailureLog(&o),
	}
	client.leases = newLeaseTable(client)
	if o.batching {
		client.stream = newCheckStream(conn)
	}
	return client, nil
}

// Close gives back leased hits, within the deadline of a call, and closes the connections. Calls in
// flight fail with [ErrClosed]. Closing twice is fine.
func (c *Client) Close() error {
	c.closeOnce.Do(func() {
		c.closed.Store(true)
		c.leases.close()
		if c.stream != nil {
			c.stream.close()
		}
		c.closeErr = c.conn.Close()
	})
	return c.closeErr
}

// Check takes hits, or refuses.
//
// It does not fail because of the service: without an answer, [OnError] decides, and the decision
// carries the error. It fails with [ErrInvalidArgument], with [ErrClosed], and with the error of ctx
// when ctx ends before the answer. A check is never sent again, since it may have been charged.
func (c *Client) Check(ctx context.Context, request CheckRequest) (Decision, error) {
	started := time.Now()
	if request.DryRun && c.options.protocol == ProtocolEnvoy {
		return Decision{}, invalid("the envoy protocol has no dry run; use ProtocolTollgate")
	}
	domain, err := c.prepare(ctx, request.Domain, request.Descriptors, request.Hits)
	if err != nil {
		return Decision{}, err
	}
	ctx, span := c.telemetry.start(ctx, "tollgate.check", domain)
	decision, err := c.check(ctx, started.Add(c.options.deadline), domain, request)
	if err != nil {
		span.fail(err)
		return Decision{}, err
	}
	decision.Elapsed = time.Since(started)
	c.telemetry.recordCheck(ctx, &decision)
	span.decide(&decision)
	return decision, nil
}

func (c *Client) check(
	ctx context.Context, deadline time.Time, domain string, request CheckRequest,
) (Decision, error) {
	var buffer [keyBuffer]byte
	key := checkKey(buffer[:0], domain, request.Descriptors)
	hits, leased := c.leases.hitsOf(&request)
	if decision, ok := c.denials.find(key, &request); ok {
		if leased {
			c.leases.refuse(key, hits)
		}
		return decision, nil
	}
	if leased && key != nil {
		decision, failure, err := c.leases.decide(ctx, key, domain, request.Descriptors, hits)
		switch {
		case err != nil:
			return Decision{}, err
		case failure != nil:
			return c.decideOnError(ctx, domain, request.Descriptors, request.Hits, failure), nil
		case decision.Source == SourceServer:
			c.denials.remember(key, &request, decision)
			return decision, nil
		case decision.Source == SourceLease:
			return decision, nil
		}
	}
	var decision Decision
	failure, err := c.guarded(ctx, deadline, "check", func(ctx context.Context) (err error) {
		if request.DryRun {
			decision, err = c.sendPeek(ctx, domain, request)
		} else {
			decision, err = c.sendCheck(ctx, domain, request)
		}
		return err
	})
	if err != nil {
		return Decision{}, err
	}
	if failure != nil {
		return c.decideOnError(ctx, domain, request.Descriptors, request.Hits, failure), nil
	}
	if !decision.Allowed {
		c.denials.remember(key, &request, decision)
	}
	return decision, c.validateDomain(domain, &decision)
}

// Peek says what a check would answer, and takes nothing.
//
// It has no [OnError]: without an answer it fails with a [CallError] or [ErrBreakerOpen]. It is sent
// once more after UNAVAILABLE.
func (c *Client) Peek(ctx context.Context, request CheckRequest) (Decision, error) {
	started := time.Now()
	domain, err := c.prepare(ctx, request.Domain, request.Descriptors, request.Hits)
	if err != nil {
		return Decision{}, err
	}
	ctx, span := c.telemetry.start(ctx, "tollgate.peek", domain)
	var decision Decision
	failure, err := c.guarded(ctx, c.deadline(), "peek", func(ctx context.Context) (err error) {
		decision, err = c.sendPeek(ctx, domain, request)
		return err
	})
	if err == nil {
		err = failure
	}
	if err == nil {
		err = c.validateDomain(domain, &decision)
	}
	if err != nil {
		span.fail(err)
		return Decision{}, err
	}
	decision.Elapsed = time.Since(started)
	span.decide(&decision)
	return decision, nil
}

// prepare validates a call, and returns its domain.
func (c *Client) prepare(
	ctx context.Context, domain string, descriptors []Descriptor, hits *int64,
) (string, error) {
	if err := validateCall(descriptors, hits); err != nil {
		return "", err
	}
	if c.closed.Load() {
		return "", ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if domain == "" {
		domain = c.domain
	}
	return domain, nil
}

// validateDomain returns an error if no rules have the domain, and that is an error.
func (c *Client) validateDomain(domain string, decision *Decision) error {
	if c.options.unknownDomain == UnknownDomainError && decision.NoLimit == NoLimitUnknownDomain {
		return invalid(`no rules have the domain "%s"; add rules for it, or correct the domain`, domain)
	}
	return nil
}

// guarded makes a call that the breaker may stop. The first error is why it has no answer, the
// second one is for the caller: its own cancellation, or a closed client.
func (c *Client) guarded(
	ctx context.Context, deadline time.Time, name string, call func(context.Context) error,
) (failure, err error) {
	permit, ok := c.breaker.acquire()
	if !ok {
		return ErrBreakerOpen, nil
	}
	result := outcomeAbandoned
	var failed *CallError
	defer func() { c.breaker.end(permit, result, failed) }()
	var sent error
	failure, err = c.deadlined(ctx, deadline, name, func(ctx context.Context) error {
		sent = call(ctx)
		return sent
	})
	if err != nil {
		return nil, err
	}
	if sent == errQueueFull {
		return failure, nil
	}
	result = outcomeAnswered
	if failed, ok = failure.(*CallError); ok && isServiceFailure(failed.Code) {
		result = outcomeFailed
	}
	return failure, nil
}

// deadline returns the deadline of a call that begins now.
func (c *Client) deadline() time.Time { return time.Now().Add(c.options.deadline) }

// deadlined makes a call that ends by a deadline of the client.
func (c *Client) deadlined(
	ctx context.Context, deadline time.Time, name string, call func(context.Context) error,
) (failure, err error) {
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err = call(limited)
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case status.Code(err) == codes.DeadlineExceeded && sameDeadline(ctx, limited):
		// The server saw the end of the caller's own deadline first.
		return nil, context.DeadlineExceeded
	case c.closed.Load():
		return nil, ErrClosed
	default:
		return callError(name, err), nil
	}
}

// sameDeadline returns whether the deadline of the caller is the one that limits a call.
func sameDeadline(caller, limited context.Context) bool {
	callers, ok := caller.Deadline()
	limit, _ := limited.Deadline()
	return ok && callers.Equal(limit)
}

// decideOnError decides a check or a reservation that has no answer.
func (c *Client) decideOnError(
	ctx context.Context, domain string, descriptors []Descriptor, hits *int64, failure error,
) Decision {
	cause, ok := failure.(*CallError)
	if !ok { // the breaker stopped the call
		cause = c.breaker.lastCause()
	}
	c.failures.decided(ctx, cause)
	switch c.options.onError {
	case OnErrorDeny:
		return Decision{Source: SourceDeny, Err: failure}
	case OnErrorLocal:
		allowed, retryAfter := c.local.take(domain, descriptors, largestHits(descriptors, hits))
		return Decision{Allowed: allowed, Source: SourceLocal, RetryAfter: retryAfter, Err: failure}
	default:
		return Decision{Allowed: true, Source: SourceAllow, Err: failure}
	}
}
