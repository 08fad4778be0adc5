package tollgate

import (
	"slices"
	"sync"
	"time"
)

// maxDenialAge bounds the age of an entry, so that resets and refunds are seen.
const maxDenialAge = time.Second

// denialCache repeats refusals of the server without a call.
type denialCache struct {
	clock Clock

	mu      sync.Mutex
	denials *boundedMap[string, denial]
}

type denial struct {
	hits     []int64
	decision Decision
	writtenAt,
	lifetime time.Duration
}

// newDenialCache returns nil if entries is 0. A nil cache has no entries.
func newDenialCache(entries int, clock Clock) *denialCache {
	if entries == 0 {
		return nil
	}
	return &denialCache{clock: clock, denials: newBoundedMap[string, denial](entries)}
}

// find returns the refusal of an earlier check with as many hits or fewer. The key may be nil.
func (c *denialCache) find(key []byte, request *CheckRequest) (Decision, bool) {
	if c == nil {
		return Decision{}, false
	}
	c.mu.Lock()
	element, ok := c.denials.entries[string(key)] // Without an allocation.
	if !ok {
		c.mu.Unlock()
		return Decision{}, false
	}
	found := element.Value.(*boundedEntry[string, denial]).value
	age := c.clock() - found.writtenAt
	if age >= found.lifetime {
		c.denials.delete(string(key))
		c.mu.Unlock()
		return Decision{}, false
	}
	c.mu.Unlock()
	hits := hitsOf(request.Descriptors, request.Hits)
	for i, n := range found.hits {
		if hits[i] < n {
			return Decision{}, false
		}
	}
	decision := found.decision.aged(age)
	decision.Source = SourceCache
	return decision, true
}

// denialLifetime is how long a refusal of the server is remembered.
func denialLifetime(decision *Decision) time.Duration {
	if decision.RetryAfter == nil {
		return maxDenialAge
	}
	return min(*decision.RetryAfter, maxDenialAge)
}

// remember keeps a refusal of the server, unless the key is nil or no hits were asked for.
func (c *denialCache) remember(key []byte, request *CheckRequest, decision Decision) {
	if c == nil || key == nil {
		return
	}
	lifetime := denialLifetime(&decision)
	hits := hitsOf(request.Descriptors, request.Hits)
	if lifetime <= 0 || !slices.ContainsFunc(hits, func(n int64) bool { return n > 0 }) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denials.put(string(key), denial{
		hits:      hits,
		decision:  decision,
		writtenAt: c.clock(),
		lifetime:  lifetime,
	})
}
