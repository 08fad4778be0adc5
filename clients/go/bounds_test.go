package tollgate

import (
	"fmt"
	"testing"
	"time"
)

func TestDenialCacheKeepsItsBound(t *testing.T) {
	const bound = 10_000
	cache := newDenialCache(bound, func() time.Duration { return 0 })
	for i := range 100_000 {
		request := &CheckRequest{Descriptors: []Descriptor{NewDescriptor("user", fmt.Sprint(i))}}
		cache.remember(checkKey(nil, "unit", request.Descriptors), request, Decision{Source: SourceServer})
		if cache.denials.len() > bound || cache.denials.order.Len() > bound {
			t.Fatalf("%d entries after %d refusals", cache.denials.len(), i+1)
		}
	}
	if cache.denials.len() != bound {
		t.Errorf("%d entries, want %d", cache.denials.len(), bound)
	}
}

func TestLocalBucketsKeepTheirBound(t *testing.T) {
	buckets := newLocalBuckets(1, 1, func() time.Duration { return 0 })
	for i := range 2 * maxLocalBuckets {
		buckets.take("unit", []Descriptor{NewDescriptor("user", fmt.Sprint(i))}, 1)
	}
	if buckets.buckets.len() != maxLocalBuckets {
		t.Errorf("%d buckets, want %d", buckets.buckets.len(), maxLocalBuckets)
	}
}

func TestLeasesKeepTheirBound(t *testing.T) {
	leases := newLeaseTable(&Client{options: defaultOptions()})
	leases.schedule = nil
	for i := range 2 * maxLeaseKeys {
		descriptors := []Descriptor{NewDescriptor("user", fmt.Sprint(i))}
		_, _, _ = leases.decide(t.Context(), checkKey(nil, "unit", descriptors), "unit", descriptors, 1)
	}
	if len(leases.entries) != maxLeaseKeys {
		t.Errorf("%d keys, want %d", len(leases.entries), maxLeaseKeys)
	}
}

func TestLateResultsDoNotChangeTheBreaker(t *testing.T) {
	now := time.Duration(0)
	b := breaker{maxFailures: 1, openTime: time.Second, clock: func() time.Duration { return now }}
	early, _ := b.acquire()
	late, _ := b.acquire()
	b.end(early, outcomeFailed, nil)
	b.end(late, outcomeAnswered, nil)
	if _, ok := b.acquire(); ok {
		t.Error("an answer to an earlier call closed the breaker")
	}
	now = time.Second
	probe, ok := b.acquire()
	if !ok || !probe.probe {
		t.Fatal("the breaker lets no call through after its time")
	}
	b.end(probe, outcomeAbandoned, nil)
	if _, ok := b.acquire(); !ok {
		t.Error("an abandoned probe keeps its slot")
	}
}
