package tollgate_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	tollgate "github.com/tollgate-limits/tollgate-go"
	"github.com/tollgate-limits/tollgate-go/internal/testkit"
)

func TestBatchingBoundsItsCallsAndItsQueue(t *testing.T) {
	server := testkit.StartServer(t)
	release := make(chan struct{})
	server.Script(func(testkit.Received) testkit.Reply {
		<-release
		return allowedReply
	})
	client := newClient(t, "unit", tollgate.WithAddresses(server.Address), tollgate.WithBatching(true),
		tollgate.WithDeadline(20*time.Second))
	const callers, progress, queue = 1200, 64, 1024
	var full atomic.Int64
	var done sync.WaitGroup
	for range callers {
		done.Go(func() {
			decision := check(t, client, "a", "b")
			if decision.Err != nil && strings.Contains(decision.Err.Error(), "queue full") {
				if full.Add(1) == callers-progress-queue {
					close(release)
				}
			}
		})
	}
	done.Wait()
	if calls := len(server.Calls()); full.Load() != callers-progress-queue || calls != progress+queue {
		t.Errorf("%d calls, %d beyond the queue", calls, full.Load())
	}
}

// BenchmarkCheck measures checks of a real tollgate, and the CPU time of this process.
func BenchmarkCheck(b *testing.B) {
	for _, c := range []struct {
		name             string
		batching, leases bool
		callers          int
	}{
		{"unary/1", false, false, 1}, {"batching/1", true, false, 1}, {"leases/1", false, true, 1},
		{"unary/64", false, false, 64}, {"batching/64", true, false, 64}, {"leases/64", false, true, 64},
	} {
		b.Run(c.name, func(b *testing.B) {
			server := testkit.StartTollgate(b, liveRules)
			client := newClient(b, "live", tollgate.WithAddresses(server.GRPC),
				tollgate.WithBatching(c.batching), tollgate.WithLeases(c.leases),
				tollgate.WithDeadline(10*time.Second))
			check(b, client, "many", "ann")
			b.ReportAllocs()
			request := tollgate.CheckRequest{Descriptors: descriptors("many", "ann")}
			left, failed := atomic.Int64{}, atomic.Int64{}
			left.Store(int64(b.N))
			b.ResetTimer()
			before := cpuTime()
			var done sync.WaitGroup
			for range c.callers {
				done.Go(func() {
					for left.Add(-1) >= 0 {
						decision, err := client.Check(context.Background(), request)
						if err != nil || decision.Err != nil {
							failed.Add(1)
						}
					}
				})
			}
			done.Wait()
			b.StopTimer()
			if failed.Load() > 0 {
				b.Errorf("%d checks failed", failed.Load())
			}
			b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "cpu-us/check")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "checks/s")
		})
	}
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
