package tollgate

import (
	"sync"
	"time"
)

// breaker is a circuit breaker. It stops calls to a service that fails.
type breaker struct {
	maxFailures int
	openTime    time.Duration
	clock       Clock

	mu       sync.Mutex
	failures int
	open     bool
	probing  bool
	// openedAt is the time of the opening, while open.
	openedAt time.Duration
	// period is the number of openings and closings. Results of an earlier period do not count.
	period uint64
	// cause is the failure that opened the breaker last.
	cause *CallError
}

// permit is the right to make one call. Its holder ends it exactly once.
type permit struct {
	period uint64
	probe  bool
}

type outcome int

const (
	// outcomeAnswered is an answer of the service, with or without an error.
	outcomeAnswered outcome = iota
	// outcomeFailed is a failure of the service.
	outcomeFailed
	// outcomeAbandoned is a call that its caller cancelled. It says nothing of the service.
	outcomeAbandoned
)

// acquire returns whether a call may be made.
func (b *breaker) acquire() (permit, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return permit{period: b.period}, true
	}
	if b.probing || b.clock()-b.openedAt < b.openTime {
		return permit{}, false
	}
	b.probing = true
	return permit{period: b.period, probe: true}, true
}

// isClosed returns whether every call may be made.
func (b *breaker) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.open
}

// end records how the call of a permit ended. The failure is that of outcomeFailed.
func (b *breaker) end(p permit, result outcome, failure *CallError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.period != b.period {
		return
	}
	switch result {
	case outcomeAbandoned:
		if p.probe {
			b.probing = false
		}
	case outcomeAnswered:
		b.failures = 0
		if p.probe {
			b.open, b.probing = false, false
			b.period++
		}
	case outcomeFailed:
		b.failures++
		if p.probe || b.failures >= b.maxFailures {
			b.open, b.probing = true, false
			b.openedAt, b.failures, b.cause = b.clock(), 0, failure
			b.period++
		}
	}
}

// lastCause returns the failure that opened the breaker last.
func (b *breaker) lastCause() *CallError {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cause
}
