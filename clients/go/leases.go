package tollgate

import (
	"context"
	"sync"
	"time"

	"github.com/tollgate-limits/tollgate-go/internal/pb/tollgatev1"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

const (
	// maxLeaseKeys bounds the keys that are leased, and those that may be soon.
	maxLeaseKeys = 10_000
	// maxLeaseHits bounds the hits that are wanted, and those of a check that takes leased hits.
	maxLeaseHits = 1_000
	// firstLeaseHits are wanted where nothing was admitted lately.
	firstLeaseHits = 32
	// leaseGrowth is how many times the hits that were admitted lately are wanted, roundGrowth by a
	// round: it renews before the hits are used up.
	leaseGrowth = 4
	roundGrowth = 2
	// lowShare is the part of a lease that is left when the next one is asked for: one in so many.
	lowShare = 4
	// leaseRound is the time between two rounds, which give back, say counts and renew.
	leaseRound = 250 * time.Millisecond
	// leaseIdle is how long a key is unused before its hits go back. Two checks within it make a key
	// one that is leased: a lease at the first one would cost keys that are seen once two calls each.
	leaseIdle = time.Second
	// minRenewedValidity bounds the leases that are renewed by age: a round comes in their last quarter.
	minRenewedValidity = time.Second
	// lastPart is the part of its time in which a lease is renewed by a round, and goes back once the
	// next one is there: one in so many. What comes back after the end is lost.
	lastPart = 4
	// minNotLeased and maxNotLeased bound how long a key is not leased whose limits cannot be.
	minNotLeased = time.Second
	maxNotLeased = time.Minute
	// leasesUnsupported is how long a server is not asked that has no leases.
	leasesUnsupported = time.Minute
	// maxBatchCalls bounds a batch, and batchDeadline is the least time that it has. No check waits for it.
	maxBatchCalls = 100
	batchDeadline = time.Second
)

// leaseTable has the leases of a client: hits that the server has taken, for the client to admit.
type leaseTable struct {
	client *Client
	clock  Clock
	// all is whether every check may take leased hits, and not only those of the middleware.
	all bool
	// schedule is nil in tests that make the rounds themselves.
	schedule func(time.Duration, func()) *time.Timer
	// tasks are calls in the background. They begin under mu, while the table is not closed.
	tasks sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	entries map[string]*leaseEntry
	// returns are sent by the next round.
	returns []*tollgatev1.Call
	// timer is that of the next round; nil while the table is empty.
	timer            *time.Timer
	unsupportedUntil time.Duration
}

// leaseEntry is a domain with descriptors.
type leaseEntry struct {
	domain      string
	descriptors []*tollgatev1.Descriptor
	// next takes the place of current once that lacks hits.
	current, next lease
	// newest is the id of the newest lease, answer what its answer said, and granted its hits.
	newest     string
	answer     Decision
	answeredAt time.Duration
	granted    uint64
	lastUse    time.Duration
	// admitted and refused are hits that the server was not told yet.
	admitted, refused uint64
	// noLeaseUntil is when a lease may be asked for again, tellAt when counts are said without one.
	noLeaseUntil, tellAt time.Duration
	// call is the lease that is asked for.
	call *leaseCall
}

type lease struct {
	id                 string
	left               uint64
	validity, validEnd time.Duration
}

// leaseCall is a call for a lease. Its results are set when done is closed.
type leaseCall struct {
	request *tollgatev1.LeaseRequest
	sentAt  time.Duration
	// batched is whether a round makes the call. A round may take longer than a check.
	batched bool
	done    chan struct{}
	failure error
	// refusal is the answer where no hit was left.
	refusal *Decision
}

func newLeaseTable(client *Client) *leaseTable {
	o := &client.options
	if o.protocol == ProtocolEnvoy || o.leases != nil && !*o.leases {
		return nil
	}
	return &leaseTable{
		client: client, clock: o.clock, all: o.leases != nil,
		schedule: time.AfterFunc, entries: make(map[string]*leaseEntry),
	}
}

// hitsOf returns the hits of a check that may take leased hits.
func (l *leaseTable) hitsOf(request *CheckRequest) (uint64, bool) {
	if l == nil || !l.all && !request.Middleware || request.DryRun || len(request.Descriptors) == 0 {
		return 0, false
	}
	for i := range request.Descriptors {
		if request.Descriptors[i].Hits != nil {
			return 0, false
		}
	}
	if request.Hits == nil {
		return 1, true
	}
	return uint64(*request.Hits), *request.Hits > 0 && *request.Hits <= maxLeaseHits
}

// decide decides a check by the leases of its key. It waits for a lease where the key has too few
// hits. A decision without a source means that the check is to be sent. A failure is why a lease has
// no answer.
func (l *leaseTable) decide(
	ctx context.Context, key []byte, domain string, descriptors []Descriptor, hits uint64,
) (decision Decision, failure, err error) {
	l.mu.Lock()
	now := l.clock()
	e, ok := l.entries[string(key)]
	if !ok {
		l.add(string(key), domain, now)
		l.mu.Unlock()
		return Decision{}, nil, nil
	}
	isRepeated := now-e.lastUse < leaseIdle
	e.lastUse = now
	if l.take(e, now, hits) {
		decision = e.decision(now)
		if e.left(now) <= e.granted/lowShare && l.mayLease(e, now) && l.client.breaker.isClosed() {
			l.lease(ctx, e, descriptors, 1)
		}
		l.mu.Unlock()
		return decision, nil, nil
	}
	call := e.call
	if call != nil && call.batched {
		call = nil
	} else if call == nil && isRepeated && l.mayLease(e, now) {
		call = l.lease(ctx, e, descriptors, hits)
	}
	l.mu.Unlock()
	if call == nil {
		return Decision{}, nil, nil
	}
	select {
	case <-call.done:
	case <-ctx.Done():
		return Decision{}, nil, ctx.Err()
	}
	if call.failure == ErrClosed {
		return Decision{}, nil, ErrClosed
	} else if call.failure != nil {
		return Decision{}, call.failure, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now = l.clock()
	switch {
	case l.take(e, now, hits):
		decision = e.decision(now)
	case call.refusal != nil && hits == 1:
		e.refused++
		decision = *call.refusal
	}
	return decision, nil, nil
}

// add adds a key whose first check is sent. A full table keeps its keys.
func (l *leaseTable) add(key, domain string, now time.Duration) {
	if l.closed || len(l.entries) >= maxLeaseKeys {
		return
	}
	l.entries[key] = &leaseEntry{domain: domain, lastUse: now}
	if l.timer == nil && l.schedule != nil {
		l.timer = l.schedule(leaseRound, l.tick)
	}
}

// take takes hits of a lease that has all of them.
func (l *leaseTable) take(e *leaseEntry, now time.Duration, hits uint64) bool {
	if !e.current.has(now, hits) {
		if !e.next.has(now, hits) {
			return false
		}
		l.advance(e, now)
	}
	e.current.left -= hits
	e.admitted += hits
	return true
}

// advance makes the next lease the current one. What was left of that goes back.
func (l *leaseTable) advance(e *leaseEntry, now time.Duration) {
	if e.current.has(now, 1) {
		l.giveBack(e, &e.current)
	}
	e.current, e.next = e.next, lease{}
}

func (l *leaseTable) giveBack(e *leaseEntry, of *lease) {
	l.returns = append(l.returns, returnCall(&tollgatev1.ReturnRequest{
		Domain: e.domain, Descriptors: e.descriptors, Lease: of.id, Unused: of.left,
	}))
}

func (l *leaseTable) mayLease(e *leaseEntry, now time.Duration) bool {
	return !l.closed && e.call == nil && now >= e.noLeaseUntil && now >= l.unsupportedUntil &&
		!e.next.has(now, 1)
}

// lease asks for a lease in the background.
func (l *leaseTable) lease(
	ctx context.Context, e *leaseEntry, descriptors []Descriptor, hits uint64,
) *leaseCall {
	if e.descriptors == nil {
		e.descriptors = descriptorMessages(descriptors)
	}
	call := l.prepare(e, hits, leaseGrowth)
	ctx = context.WithoutCancel(ctx)
	l.tasks.Go(func() {
		response := &tollgatev1.LeaseResponse{}
		failure := l.guarded(ctx, l.client.deadline(), "lease", func(ctx context.Context) error {
			err := l.client.unary(ctx, tollgateService+"Lease", call.request, response)
			if err == nil {
				_, err = isAllowed(response.GetVerdict())
			}
			return err
		})
		l.mu.Lock()
		defer l.mu.Unlock()
		l.finish(e, response, failure)
	})
	return call
}

// guarded makes a call that the breaker may stop, and returns why it has no answer.
func (l *leaseTable) guarded(
	ctx context.Context, deadline time.Time, name string, call func(context.Context) error,
) error {
	failure, err := l.client.guarded(ctx, deadline, name, call)
	if err != nil {
		return err
	}
	return failure
}

// prepare makes the call for a lease that a check of so many hits wants. It wants growth times what
// was admitted.
func (l *leaseTable) prepare(e *leaseEntry, hits, growth uint64) *leaseCall {
	wanted := uint64(firstLeaseHits)
	if e.admitted > 0 {
		wanted = growth * min(e.admitted, maxLeaseHits)
	}
	wanted = min(max(wanted, leaseGrowth*hits), maxLeaseHits)
	e.call = &leaseCall{
		request: &tollgatev1.LeaseRequest{
			Domain: e.domain, Descriptors: e.descriptors, Hits: &wanted, Lease: e.newest,
			Admitted: countMessage(e.admitted), Refused: countMessage(e.refused),
		},
		sentAt: l.clock(),
		done:   make(chan struct{}),
	}
	return e.call
}

// finish records the answer to the call for a lease.
func (l *leaseTable) finish(e *leaseEntry, response *tollgatev1.LeaseResponse, failure error) {
	call, now := e.call, l.clock()
	e.call = nil
	defer close(call.done)
	if failure != nil {
		if failed, ok := failure.(*CallError); ok && failed.Code == codes.Unimplemented {
			l.unsupportedUntil = now + leasesUnsupported
			return
		}
		e.noLeaseUntil = now + leaseRound
		call.failure = failure
		return
	}
	e.admitted -= call.request.GetAdmitted()
	e.refused -= call.request.GetRefused()
	expires := response.GetExpires().AsDuration()
	decision := leaseDecision(response)
	switch {
	case response.GetNotLeased() != "":
		e.noLeaseUntil = now + min(max(expires, minNotLeased), maxNotLeased)
	case !decision.Allowed:
		e.noLeaseUntil = now + denialLifetime(&decision)
		call.refusal = &decision
	default:
		if !e.current.has(now, 1) {
			l.advance(e, now)
		}
		granted := lease{
			id: response.GetLease(), left: response.GetGranted(),
			validity: expires, validEnd: call.sentAt + expires,
		}
		if e.current.has(now, 1) {
			e.next = granted
		} else {
			e.current = granted
		}
		e.newest, e.granted = granted.id, granted.left
		e.answer, e.answeredAt = decision, call.sentAt
		e.tellAt = granted.validEnd + leaseRound
		if granted.left <= 1 { // Near the end plain checks are fair, and cost no more.
			e.noLeaseUntil = granted.validEnd
		}
	}
}

// refuse counts hits that the denial cache refused.
func (l *leaseTable) refuse(key []byte, hits uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[string(key)]; ok {
		e.refused += hits
		e.lastUse = l.clock()
	}
}

// tick makes a round, and plans the next one while the table has keys.
func (l *leaseTable) tick() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.tasks.Add(1)
	defer l.tasks.Done()
	l.mu.Unlock()
	l.round()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	if !l.closed && len(l.entries) > 0 {
		l.timer = l.schedule(leaseRound, l.tick)
	}
}

// round gives back the hits of idle keys, says counts, and renews leases by their age.
func (l *leaseTable) round() {
	isClosed := l.client.breaker.isClosed()
	l.mu.Lock()
	now := l.clock()
	var renewed []*leaseEntry
	for key, e := range l.entries {
		switch {
		case e.call != nil:
		case now-e.lastUse >= leaseIdle:
			l.empty(e, now)
			if now >= e.noLeaseUntil {
				delete(l.entries, key)
			}
		case e.next.has(now, 1) && e.current.validEnd-now <= e.current.validity/lastPart:
			l.advance(e, now)
		case !e.current.has(now, 1):
			if now >= e.tellAt && !e.next.has(now, 1) {
				e.tellAt = now + time.Second
				l.empty(e, now)
			}
		case e.current.validity >= minRenewedValidity && e.current.validEnd-now <= e.current.validity/lastPart &&
			isClosed && l.mayLease(e, now):
			l.prepare(e, 1, roundGrowth).batched = true
			renewed = append(renewed, e)
		}
	}
	returns := l.returns
	l.returns = nil
	l.mu.Unlock()
	l.send(context.Background(), renewed, returns)
}

// empty gives back all hits of a key, and says its counts.
func (l *leaseTable) empty(e *leaseEntry, now time.Duration) {
	if e.next.has(now, 1) {
		l.advance(e, now)
	}
	unused := uint64(0)
	if e.current.has(now, 1) && e.current.id == e.newest {
		unused = e.current.left
	} else if e.current.has(now, 1) {
		l.giveBack(e, &e.current)
	}
	if e.newest != "" && unused+e.admitted+e.refused > 0 {
		l.returns = append(l.returns, returnCall(&tollgatev1.ReturnRequest{
			Domain: e.domain, Descriptors: e.descriptors, Lease: e.newest, Unused: unused,
			Admitted: countMessage(e.admitted), Refused: countMessage(e.refused),
		}))
		e.admitted, e.refused = 0, 0
	}
	e.current = lease{}
}

// send sends renewals and returns in batches.
func (l *leaseTable) send(ctx context.Context, renewed []*leaseEntry, calls []*tollgatev1.Call) {
	for len(renewed)+len(calls) > 0 {
		leases := renewed[:min(len(renewed), maxBatchCalls)]
		returns := calls[:min(len(calls), maxBatchCalls-len(leases))]
		renewed, calls = renewed[len(leases):], calls[len(returns):]
		batch := &tollgatev1.BatchRequest{Calls: make([]*tollgatev1.Call, 0, len(leases)+len(returns))}
		for _, e := range leases {
			batch.Calls = append(batch.Calls, &tollgatev1.Call{
				Call: &tollgatev1.Call_Lease{Lease: e.call.request},
			})
		}
		batch.Calls = append(batch.Calls, returns...)
		response := &tollgatev1.BatchResponse{}
		call := func(ctx context.Context) error {
			return l.client.unary(ctx, tollgateService+"Batch", batch, response)
		}
		deadline := time.Now().Add(max(l.client.options.deadline, batchDeadline))
		if len(leases) == 0 { // As other calls that settle, it does not ask the breaker.
			_, _ = l.client.deadlined(ctx, deadline, "batch", call)
			continue
		}
		failure := l.guarded(ctx, deadline, "batch", call)
		l.mu.Lock()
		for i, e := range leases {
			answer, failure := answerOf(response, i, failure)
			l.finish(e, answer, failure)
		}
		l.mu.Unlock()
	}
}

// answerOf returns the answer to one lease of a batch, or why it has none.
func answerOf(
	response *tollgatev1.BatchResponse, i int, failure error,
) (*tollgatev1.LeaseResponse, error) {
	if failure != nil {
		return nil, failure
	}
	if i < len(response.GetAnswers()) {
		answer := response.GetAnswers()[i]
		if failed := answer.GetFailure(); failed != nil {
			return nil, callError("lease", grpcstatus.FromProto(&status.Status{
				Code: failed.GetCode(), Message: failed.GetMessage(), Details: failed.GetDetails(),
			}).Err())
		}
		if lease := answer.GetLease(); lease != nil {
			if _, err := isAllowed(lease.GetVerdict()); err != nil {
				return nil, callError("lease", err)
			}
			return lease, nil
		}
	}
	return nil, callError("lease", grpcstatus.Error(codes.Internal, "the answer is not one of a lease"))
}

// close gives back all hits, within the deadline of a call.
func (l *leaseTable) close() {
	if l == nil {
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), l.client.deadline())
	defer cancel()
	l.mu.Lock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	l.tasks.Wait()
	l.mu.Lock()
	now := l.clock()
	for _, e := range l.entries {
		l.empty(e, now)
	}
	returns := l.returns
	l.entries, l.returns = nil, nil
	l.mu.Unlock()
	l.send(ctx, nil, returns)
}

func (l *lease) has(now time.Duration, hits uint64) bool { return l.left >= hits && now < l.validEnd }

// left returns the hits of both leases.
func (e *leaseEntry) left(now time.Duration) uint64 {
	left := uint64(0)
	for _, l := range [...]*lease{&e.current, &e.next} {
		if l.has(now, 1) {
			left += l.left
		}
	}
	return left
}

// decision returns the decision of a check that took leased hits.
func (e *leaseEntry) decision(now time.Duration) Decision {
	decision := e.answer
	decision.Source = SourceLease
	figures := &struct {
		remaining uint64
		reset     time.Duration
	}{}
	if e.answer.Remaining != nil {
		figures.remaining = *e.answer.Remaining + e.left(now)
		decision.Remaining = &figures.remaining
	}
	if e.answer.Reset != nil {
		figures.reset = max(*e.answer.Reset-(now-e.answeredAt), 0)
		decision.Reset = &figures.reset
	}
	return decision
}

func leaseDecision(response *tollgatev1.LeaseResponse) Decision {
	return Decision{
		Allowed:    response.GetVerdict() == tollgatev1.Verdict_VERDICT_OK,
		Source:     SourceServer,
		Remaining:  response.Remaining,
		Reset:      durationOf(response.GetReset_()),
		RetryAfter: durationOf(response.GetRetryAfter()),
		Limits:     limitsOf(response.GetLimits()),
	}
}

func returnCall(request *tollgatev1.ReturnRequest) *tollgatev1.Call {
	return &tollgatev1.Call{Call: &tollgatev1.Call_GiveBack{GiveBack: request}}
}

func countMessage(hits uint64) *uint64 {
	if hits == 0 {
		return nil
	}
	return &hits
}
