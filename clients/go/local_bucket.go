package tollgate

import (
	"crypto/sha256"
	"math"
	"sync"
	"time"
)

const (
	maxLocalBuckets = 10_000
	// tokenPrecision absorbs the rounding of floating point numbers.
	tokenPrecision = 1e-9
	// maxWaitMicros is about 285 years, so that a wait fits a time.Duration.
	maxWaitMicros = 9e15
)

// localBuckets has a token bucket for each list of descriptors.
type localBuckets struct {
	perSecond float64
	burst     int64
	clock     Clock

	mu      sync.Mutex
	buckets *boundedMap[[sha256.Size]byte, *tokenBucket]
}

type tokenBucket struct {
	tokens    float64
	updatedAt time.Duration
}

func newLocalBuckets(perSecond float64, burst int64, clock Clock) *localBuckets {
	return &localBuckets{
		perSecond: perSecond,
		burst:     burst,
		clock:     clock,
		buckets:   newBoundedMap[[sha256.Size]byte, *tokenBucket](maxLocalBuckets),
	}
}

// take takes all of the hits, or none. Where it takes none, it returns the time until the hits
// would pass, nil if they never will.
func (l *localBuckets) take(domain string, descriptors []Descriptor, hits int64) (bool, *time.Duration) {
	key := descriptorDigest(domain, descriptors)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	bucket, ok := l.buckets.get(key)
	if !ok {
		bucket = &tokenBucket{tokens: float64(l.burst), updatedAt: now}
		l.buckets.put(key, bucket)
	}
	refilled := bucket.tokens + (now-bucket.updatedAt).Seconds()*l.perSecond
	bucket.tokens, bucket.updatedAt = min(refilled, float64(l.burst)), now
	if bucket.tokens+tokenPrecision >= float64(hits) {
		bucket.tokens = max(bucket.tokens-float64(hits), 0)
		return true, nil
	}
	if hits > l.burst {
		return false, nil
	}
	micros := (float64(hits) - bucket.tokens) / l.perSecond * 1e6
	wait := time.Duration(min(math.Ceil(micros-1e-6), maxWaitMicros)) * time.Microsecond
	return false, &wait
}
