package tollgate

import (
	"sync"
	"time"
)

const (
	// maxDenialAge bounds the age of an entry, so that resets and refunds are seen.
	maxDenialAge = time.Second
	// maxDenialBytes bounds the keys and values of an entry.
	maxDenialBytes = 1024
)

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

// key returns the key and the hits of a check, and whether the check can be remembered.
func (c *denialCache) key(domain string, descriptors []Descriptor, hits *int64) (string, []int64, bool) {
	if c == nil || descriptorBytes(descriptors) > maxDenialBytes {
		return "", nil, false
	}
	of := hitsOf(descriptors, hits)
	for _, n := range of {
		if n > 0 {
			return string(appendDescriptorKey(nil, domain, descriptors)), of, true
		}
	}
	return "", nil, false
}

// find returns the refusal of an earlier check with as many hits or fewer.
func (c *denialCache) find(key string, hits []int64) (Decision, bool) {
	c.mu.Lock()
	found, ok := c.denials.get(key)
	if !ok {
		c.mu.Unlock()
		return Decision{}, false
	}
	age := c.clock() - found.writtenAt
	if age >= found.lifetime {
		c.denials.delete(key)
		c.mu.Unlock()
		return Decision{}, false
	}
	c.mu.Unlock()
	for i, n := range found.hits {
		if hits[i] < n {
			return Decision{}, false
		}
	}
	decision := found.decision.aged(age)
	decision.Source = SourceCache
	return decision, true
}

// remember keeps a refusal of the server.
func (c *denialCache) remember(key string, hits []int64, decision Decision) {
	lifetime := maxDenialAge
	if decision.RetryAfter != nil {
		lifetime = min(*decision.RetryAfter, maxDenialAge)
	}
	if lifetime <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denials.put(key, denial{
		hits:      hits,
		decision:  decision,
		writtenAt: c.clock(),
		lifetime:  lifetime,
	})
}
