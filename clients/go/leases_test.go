package tollgate_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	tollgate "github.com/tollgate-limits/tollgate-go"
	"github.com/tollgate-limits/tollgate-go/internal/pb/tollgatev1"
	"github.com/tollgate-limits/tollgate-go/internal/testkit"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
)

func leaseReply(granted uint64) testkit.Reply {
	return testkit.Reply{Message: &tollgatev1.LeaseResponse{
		Verdict: tollgatev1.Verdict_VERDICT_OK, Lease: "l1", Granted: granted,
		Expires: durationpb.New(time.Minute),
	}}
}

func TestLeasesOneCallServesAllChecksThatWait(t *testing.T) {
	const callers = 40
	server := testkit.StartServer(t)
	client := newClient(t, "unit", tollgate.WithAddresses(server.Address), tollgate.WithLeases(true),
		tollgate.WithDeadline(20*time.Second), tollgate.WithClock((&testkit.Clock{}).Now))
	client.StopRounds()
	var started, done sync.WaitGroup
	started.Add(callers)
	server.Script(func(call testkit.Received) testkit.Reply {
		if call.Method == "Lease" {
			started.Wait()
			return leaseReply(1000)
		}
		return allowedReply
	})
	check(t, client, "a", "b")
	var leased atomic.Int64
	for range callers {
		done.Go(func() {
			started.Done()
			if check(t, client, "a", "b").Source == tollgate.SourceLease {
				leased.Add(1)
			}
		})
	}
	done.Wait()
	if calls := len(server.Calls()); calls != 2 || leased.Load() != callers {
		t.Errorf("%d calls, %d of %d by lease; want a check and a lease", calls, leased.Load(), callers)
	}
}

func TestLeasesGoBackByThemselves(t *testing.T) {
	server, clock := testkit.StartServer(t), &testkit.Clock{}
	returned := make(chan *tollgatev1.BatchRequest, 1)
	server.Script(func(call testkit.Received) testkit.Reply {
		switch call.Method {
		case "Lease":
			return leaseReply(16)
		case "Batch":
			returned <- call.Request.(*tollgatev1.BatchRequest)
			return testkit.Reply{Code: codes.Unavailable}
		}
		return allowedReply
	})
	client := newClient(t, "unit", tollgate.WithAddresses(server.Address), tollgate.WithLeases(true),
		tollgate.WithDeadline(20*time.Second), tollgate.WithClock(clock.Now))
	check(t, client, "a", "b")
	check(t, client, "a", "b")
	clock.Advance(time.Second)
	if back := (<-returned).GetCalls()[0].GetGiveBack(); back.GetLease() != "l1" || back.GetUnused() != 15 {
		t.Errorf("returned %v", back)
	}
}

func TestChecksDoNotWaitForARoundOfLeases(t *testing.T) {
	server, clock := testkit.StartServer(t), &testkit.Clock{}
	arrived, answer := make(chan struct{}, 2), make(chan struct{})
	server.Script(func(call testkit.Received) testkit.Reply {
		switch call.Method {
		case "Lease":
			lease := leaseReply(2).Message.(*tollgatev1.LeaseResponse)
			lease.Expires = durationpb.New(1200 * time.Millisecond)
			return testkit.Reply{Message: lease}
		case "Batch":
			arrived <- struct{}{}
			<-answer
			return testkit.Reply{Code: codes.Unavailable}
		}
		return allowedReply
	})
	client := newClient(t, "unit", tollgate.WithAddresses(server.Address), tollgate.WithLeases(true),
		tollgate.WithDeadline(20*time.Second), tollgate.WithClock(clock.Now))
	client.StopRounds()
	check(t, client, "a", "b")
	check(t, client, "a", "b")
	clock.Advance(950 * time.Millisecond)
	var round sync.WaitGroup
	round.Go(client.MakeRound)
	<-arrived
	for _, source := range []tollgate.Source{tollgate.SourceLease, tollgate.SourceServer} {
		if decision := check(t, client, "a", "b"); decision.Source != source {
			t.Errorf("decision %+v, want one of %s", decision, source)
		}
	}
	close(answer)
	round.Wait()
}

const leaseRules = `domain: live
descriptors:
  - key: thousand
    rate_limit: {unit: day, requests_per_unit: 1000}
`

// sweep makes plain checks until one is refused, and returns how many passed.
func sweep(t *testing.T, server *testkit.Tollgate, value string) int64 {
	t.Helper()
	client := newClient(t, "live", tollgate.WithAddresses(server.GRPC), tollgate.WithLeases(false),
		tollgate.WithDeadline(20*time.Second), tollgate.WithOnError(tollgate.OnErrorDeny))
	for passed := int64(0); ; passed++ {
		decision := check(t, client, "thousand", value)
		if decision.Err != nil {
			t.Fatal(decision.Err)
		}
		if !decision.Allowed {
			return passed
		}
	}
}

func TestLiveClientsWithLeasesAdmitExactlyTheLimit(t *testing.T) {
	server := testkit.StartTollgate(t, leaseRules)
	for name, attempts := range map[string]int{"not all of it": 400, "more than it": 1500} {
		t.Run(name, func(t *testing.T) {
			var clients [2]*tollgate.Client
			var callers sync.WaitGroup
			var allowed, leased atomic.Int64
			for i := range clients {
				client := newClient(t, "live", tollgate.WithAddresses(server.GRPC), tollgate.WithLeases(true),
					tollgate.WithDeadline(20*time.Second), tollgate.WithOnError(tollgate.OnErrorDeny))
				clients[i] = client
				for range 5 {
					callers.Go(func() {
						for range attempts / 5 {
							decision := check(t, client, "thousand", name)
							if decision.Err != nil {
								t.Error(decision.Err)
							}
							if decision.Allowed {
								allowed.Add(1)
							}
							if decision.Source == tollgate.SourceLease {
								leased.Add(1)
							}
						}
					})
				}
			}
			callers.Wait()
			for _, client := range clients {
				_ = client.Close()
			}
			rest := sweep(t, server, name)
			if allowed.Load()+rest != 1000 || leased.Load() < 200 {
				t.Errorf("%d admitted, %d of them by lease, and %d after; want 1,000 in all",
					allowed.Load(), leased.Load(), rest)
			}
		})
	}
}

func TestLiveKilledClientLosesWhatItHeld(t *testing.T) {
	const role = "TOLLGATE_TEST_HOLDER"
	if address := os.Getenv(role); address != "" {
		client := newClient(t, "live", tollgate.WithAddresses(address), tollgate.WithLeases(true),
			tollgate.WithDeadline(20*time.Second), tollgate.WithClock((&testkit.Clock{}).Now))
		for range 2 {
			fmt.Print(check(t, client, "thousand", "killed").Source, " ")
		}
		fmt.Println()
		<-context.Background().Done() // Until it is killed.
	}
	server := testkit.StartTollgate(t, leaseRules)
	holder := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	holder.Env = append(os.Environ(), role+"="+server.GRPC)
	output, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(output).ReadString('\n')
	_ = holder.Process.Kill()
	_ = holder.Wait()
	if line != "server lease \n" {
		t.Fatalf("the holder printed %q", line)
	}
	// It admitted two requests, and held 31 of 32 hits.
	if rest := sweep(t, server, "killed"); rest != 1000-2-31 {
		t.Errorf("%d admitted after the holder was killed, want 967", rest)
	}
}
