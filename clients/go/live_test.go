package tollgate_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	tollgate "github.com/tollgate-limits/tollgate-go"
	"github.com/tollgate-limits/tollgate-go/internal/testkit"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const liveRules = `domain: live
descriptors:
  - key: hundred
    rate_limit: {unit: day, requests_per_unit: 100}
  - key: many
    rate_limit: {unit: day, requests_per_unit: 1000000000}
  - key: budget
    rate_limit: {unit: day, requests_per_unit: 10000, algorithm: sliding_window}
  - key: team
    rate_limit: {unit: day, requests_per_unit: 10000, algorithm: sliding_window}
`

func newClient(t testing.TB, domain string, options ...tollgate.Option) *tollgate.Client {
	t.Helper()
	client, err := tollgate.New(domain, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func descriptors(key, value string) []tollgate.Descriptor {
	return []tollgate.Descriptor{tollgate.NewDescriptor(key, value)}
}

func check(t testing.TB, client *tollgate.Client, key, value string) tollgate.Decision {
	t.Helper()
	request := tollgate.CheckRequest{Descriptors: descriptors(key, value)}
	decision, err := client.Check(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	return decision
}

func TestLiveConcurrentChecksAllowExactlyTheLimit(t *testing.T) {
	server := testkit.StartTollgate(t, liveRules)
	second := testkit.StartTollgate(t, liveRules)
	for name, c := range map[string]struct {
		options []tollgate.Option
		allowed int64
	}{
		"tollgate": {nil, 100},
		"envoy":    {[]tollgate.Option{tollgate.WithProtocol(tollgate.ProtocolEnvoy)}, 100},
		"batching": {[]tollgate.Option{tollgate.WithBatching(true)}, 100},
		"several addresses": {
			// Both processes have a limit of their own.
			[]tollgate.Option{tollgate.WithAddresses(server.GRPC, second.GRPC)}, 200,
		},
	} {
		t.Run(name, func(t *testing.T) {
			options := append([]tollgate.Option{tollgate.WithAddresses(server.GRPC),
				tollgate.WithDeadline(20 * time.Second), tollgate.WithOnError(tollgate.OnErrorDeny),
				tollgate.WithDenialCache(0)}, c.options...)
			client := newClient(t, "live", options...)
			if c.allowed > 100 {
				waitForBoth(t, client, server, second)
			}
			var allowed, failed atomic.Int64
			var callers sync.WaitGroup
			for range 40 {
				callers.Go(func() {
					for range 10 {
						decision := check(t, client, "hundred", name)
						if decision.Allowed {
							allowed.Add(1)
						}
						if decision.Err != nil {
							failed.Add(1)
						}
					}
				})
			}
			callers.Wait()
			if allowed.Load() != c.allowed || failed.Load() != 0 {
				t.Errorf("%d of 400 allowed, %d failed; want %d, 0", allowed.Load(), failed.Load(), c.allowed)
			}
		})
	}
}

func TestLiveUnknownDomain(t *testing.T) {
	server := testkit.StartTollgate(t, liveRules)
	options := []tollgate.Option{tollgate.WithAddresses(server.GRPC), tollgate.WithDeadline(20 * time.Second)}
	decision := check(t, newClient(t, "nowhere", options...), "hundred", "x")
	if decision.NoLimit != tollgate.NoLimitUnknownDomain {
		t.Errorf("no limit: %q", decision.NoLimit)
	}
	strict := newClient(t, "nowhere", append(options, tollgate.WithUnknownDomain(tollgate.UnknownDomainError))...)
	request := tollgate.CheckRequest{Descriptors: []tollgate.Descriptor{tollgate.NewDescriptor("hundred", "x")}}
	if _, err := strict.Check(context.Background(), request); !errors.Is(err, tollgate.ErrInvalidArgument) {
		t.Errorf("%v, want an invalid argument", err)
	}
	request.Domain = "live"
	if _, err := strict.Check(context.Background(), request); err != nil {
		t.Error(err)
	}
}

// waitForBoth waits until calls rotate over two processes: each has its own counter.
func waitForBoth(t *testing.T, client *tollgate.Client, _, _ *testkit.Tollgate) {
	t.Helper()
	for i := range 1000 {
		first, second := check(t, client, "many", fmt.Sprint(i)), check(t, client, "many", fmt.Sprint(i))
		if first.Remaining != nil && second.Remaining != nil && *first.Remaining == *second.Remaining {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("calls do not rotate over both addresses")
}

func TestLiveReservations(t *testing.T) {
	server := testkit.StartTollgate(t, liveRules)
	client := newClient(t, "live", tollgate.WithAddresses(server.GRPC),
		tollgate.WithDeadline(10*time.Second), tollgate.WithOnError(tollgate.OnErrorDeny))
	ctx := context.Background()
	reserve := func(hits int64, d ...tollgate.Descriptor) *tollgate.Reservation {
		t.Helper()
		reservation, err := client.Reserve(ctx, tollgate.ReserveRequest{
			Descriptors: d, Hits: &hits, Expires: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return reservation
	}
	remaining := func(key string) uint64 {
		t.Helper()
		request := tollgate.CheckRequest{Descriptors: descriptors(key, "ann")}
		decision, err := client.Peek(ctx, request)
		if err != nil || decision.Remaining == nil {
			t.Fatalf("peek: %+v, %v", decision, err)
		}
		return *decision.Remaining
	}
	budget, team := tollgate.NewDescriptor("budget", "ann"), tollgate.NewDescriptor("team", "ann")

	first := reserve(800, budget)
	if !first.Allowed || first.ID == "" || first.Hits != 800 || remaining("budget") != 9200 {
		t.Fatalf("reservation %+v", first)
	}
	if _, err := first.Extend(ctx, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	settlement, err := first.Commit(ctx, 120)
	if err != nil || settlement.Committed != 120 || settlement.Repeated || remaining("budget") != 9880 {
		t.Fatalf("commit %+v, %v", settlement, err)
	}
	if settlement, err = first.Commit(ctx, 120); err != nil || !settlement.Repeated {
		t.Errorf("second commit %+v, %v; want repeated", settlement, err)
	}
	first.Close()
	if remaining("budget") != 9880 {
		t.Error("the end of the scope released a committed reservation")
	}

	scoped := reserve(800, budget)
	scoped.Close()
	if remaining("budget") != 9880 {
		t.Error("the end of the scope did not release")
	}

	each := reserve(800, budget, team)
	if _, err := each.CommitEach(ctx, 100, 7); err != nil {
		t.Fatal(err)
	}
	if remaining("budget") != 9780 || remaining("team") != 9993 {
		t.Errorf("after a commit of 100 and 7: %d, %d", remaining("budget"), remaining("team"))
	}

	refused := reserve(1_000_000, budget)
	if refused.Allowed || refused.ID != "" {
		t.Errorf("reservation of too many hits: %+v", refused)
	}
	if _, err := refused.Commit(ctx, 1); err != nil {
		t.Errorf("commit of a refused reservation: %v", err)
	}

	released := reserve(800, budget)
	if _, err := released.Release(ctx); err != nil || remaining("budget") != 9780 {
		t.Errorf("release: %v, remaining %d", err, remaining("budget"))
	}
}

func TestLiveServiceIsKilledAndStartedAgain(t *testing.T) {
	for _, onError := range []tollgate.OnError{
		tollgate.OnErrorAllow, tollgate.OnErrorDeny, tollgate.OnErrorLocal,
	} {
		t.Run(map[tollgate.OnError]string{0: "allow", 1: "deny", 2: "local"}[onError], func(t *testing.T) {
			runKilled(t, onError)
		})
		t.Run(map[tollgate.OnError]string{0: "allow", 1: "deny", 2: "local"}[onError]+"/batching",
			func(t *testing.T) { runKilled(t, onError, tollgate.WithBatching(true)) })
	}
}

func runKilled(t *testing.T, onError tollgate.OnError, options ...tollgate.Option) {
	server := testkit.StartTollgate(t, liveRules)
	const deadline = 250 * time.Millisecond
	options = append(options, tollgate.WithAddresses(server.GRPC), tollgate.WithDeadline(deadline),
		tollgate.WithOnError(onError), tollgate.WithLocalBucket(0.001, 3),
		tollgate.WithBreaker(3, 200*time.Millisecond))
	client := newClient(t, "live", options...)
	waitForSource(t, client, tollgate.SourceServer)

	var late, wrong, localAllowed atomic.Int64
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
				decision := check(t, client, "many", "load")
				if decision.Elapsed > deadline+time.Second {
					late.Add(1)
				}
				right := decision.Err != nil
				switch decision.Source {
				case tollgate.SourceServer:
					right = decision.Allowed && decision.Err == nil
				case tollgate.SourceAllow:
					right = right && onError == tollgate.OnErrorAllow && decision.Allowed
				case tollgate.SourceDeny:
					right = right && onError == tollgate.OnErrorDeny && !decision.Allowed
				case tollgate.SourceLocal:
					right = right && onError == tollgate.OnErrorLocal
					if decision.Allowed {
						localAllowed.Add(1)
					}
				}
				if !right {
					wrong.Add(1)
				}
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	server.Kill()
	time.Sleep(700 * time.Millisecond)
	if decision := check(t, client, "many", "other"); decision.Err == nil {
		t.Errorf("a killed server answered: %+v", decision)
	}
	server.Restart(t)
	waitForSource(t, client, tollgate.SourceServer)
	close(stop)
	callers.Wait()
	if late.Load() != 0 || wrong.Load() != 0 {
		t.Errorf("%d late calls, %d wrong decisions", late.Load(), wrong.Load())
	}
	if onError == tollgate.OnErrorLocal && localAllowed.Load() != 3 {
		t.Errorf("the local bucket allowed %d, want its burst of 3", localAllowed.Load())
	}
}

func waitForSource(t *testing.T, client *tollgate.Client, source tollgate.Source) {
	t.Helper()
	var last tollgate.Decision
	for range 1000 {
		if last = check(t, client, "many", "wait"); last.Source == source {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("no decision of %s: %+v", source, last)
}

func TestLiveStoppedServiceEndsCallsByTheirDeadline(t *testing.T) {
	for name, batching := range map[string]bool{"unary": false, "batching": true} {
		t.Run(name, func(t *testing.T) { runStopped(t, batching) })
	}
}

func runStopped(t *testing.T, batching bool) {
	server := testkit.StartTollgate(t, liveRules)
	client := newClient(t, "live", tollgate.WithAddresses(server.GRPC),
		tollgate.WithDeadline(300*time.Millisecond), tollgate.WithBreaker(1000, time.Second),
		tollgate.WithBatching(batching))
	waitForSource(t, client, tollgate.SourceServer)
	server.Stop(t)
	defer server.Continue()
	for range 3 {
		decision := check(t, client, "many", "ann")
		if status.Code(decision.Err) != codes.DeadlineExceeded ||
			decision.Elapsed < 250*time.Millisecond || decision.Elapsed > 1300*time.Millisecond {
			t.Errorf("decision %+v", decision)
		}
	}
	server.Continue()
	waitForSource(t, client, tollgate.SourceServer)
}

func TestLiveTLS(t *testing.T) {
	folder := t.TempDir()
	openssl := func(args ...string) {
		t.Helper()
		command := exec.Command("openssl", args...)
		command.Dir = folder
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("openssl %v: %v\n%s", args, err, out)
		}
	}
	openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
		"-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test CA")
	leaf := func(name, extensions string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name+".ext"), []byte(extensions), 0o600); err != nil {
			t.Fatal(err)
		}
		openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
			"-keyout", name+".key", "-out", name+".csr", "-subj", "/CN="+name)
		openssl("x509", "-req", "-in", name+".csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
			"-days", "2", "-out", name+".pem", "-extfile", name+".ext")
	}
	leaf("server", "subjectAltName=DNS:limits.test,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
	leaf("client", "extendedKeyUsage=clientAuth\n")
	pem, err := os.ReadFile(filepath.Join(folder, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		t.Fatal("the CA bundle has no certificate")
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "client.pem"), filepath.Join(folder, "client.key"))
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"--grpc-server-use-tls", "true",
		"--grpc-server-tls-cert", filepath.Join(folder, "server.pem"),
		"--grpc-server-tls-key", filepath.Join(folder, "server.key")}
	plain := testkit.StartTollgate(t, liveRules, flags...)
	mutual := testkit.StartTollgate(t, liveRules,
		append(flags, "--grpc-client-tls-cacert", filepath.Join(folder, "ca.pem"))...)
	for _, c := range []struct {
		name    string
		address string
		config  *tls.Config
		answers bool
	}{
		{"TLS", plain.GRPC, &tls.Config{RootCAs: roots}, true},
		{"a server name", plain.GRPC, &tls.Config{RootCAs: roots, ServerName: "limits.test"}, true},
		{"another server name", plain.GRPC, &tls.Config{RootCAs: roots, ServerName: "other.test"}, false},
		{"an unknown CA", plain.GRPC, &tls.Config{}, false},
		{"no TLS", plain.GRPC, nil, false},
		{"mTLS", mutual.GRPC, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, true},
		{"mTLS without a certificate", mutual.GRPC, &tls.Config{RootCAs: roots}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := newClient(t, "live", tollgate.WithAddresses(c.address), tollgate.WithTLS(c.config),
				tollgate.WithDeadline(5*time.Second))
			decision := check(t, client, "many", "ann")
			if c.answers != (decision.Source == tollgate.SourceServer) {
				t.Errorf("decision %+v, want an answer: %v", decision, c.answers)
			}
		})
	}
}

func TestLiveCloseLeavesNothingBehind(t *testing.T) {
	server := testkit.StartTollgate(t, liveRules)
	before := runtime.NumGoroutine()
	for i := range 6 {
		client := newClient(t, "live", tollgate.WithAddresses(server.GRPC),
			tollgate.WithDeadline(5*time.Second), tollgate.WithBatching(i%2 == 1))
		if decision := check(t, client, "many", "ann"); decision.Source != tollgate.SourceServer {
			t.Fatalf("decision %+v", decision)
		}
		reservation, err := client.Reserve(context.Background(),
			tollgate.ReserveRequest{Descriptors: descriptors("budget", "ann"), Hits: new(int64(5))})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(client.Close(), client.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
		request := tollgate.CheckRequest{Descriptors: descriptors("many", "ann")}
		_, checkErr := client.Check(context.Background(), request)
		_, peekErr := client.Peek(context.Background(), request)
		_, commitErr := reservation.Commit(context.Background(), 1)
		for _, err := range []error{checkErr, peekErr, commitErr} {
			if !errors.Is(err, tollgate.ErrClosed) {
				t.Errorf("a call after close: %v, want ErrClosed", err)
			}
		}
	}
	waitForGoroutines(t, before)
}

func waitForGoroutines(t *testing.T, before int) {
	t.Helper()
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before,
		bytes.ReplaceAll(stacks, []byte("\n\n"), []byte("\n")))
}

func TestUnreachableServerEndsByTheDeadline(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // It accepts connections, and never answers.
	client := newClient(t, "live", tollgate.WithAddresses(listener.Addr().String()),
		tollgate.WithDeadline(200*time.Millisecond))
	decision := check(t, client, "many", "ann")
	if decision.Source != tollgate.SourceAllow || decision.Elapsed > 1200*time.Millisecond {
		t.Errorf("decision %+v", decision)
	}
}
