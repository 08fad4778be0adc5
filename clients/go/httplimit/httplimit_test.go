package httplimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	tollgate "github.com/tollgate-limits/tollgate-go"
	"github.com/tollgate-limits/tollgate-go/httplimit"
	"github.com/tollgate-limits/tollgate-go/internal/testkit"
)

const rules = `domain: edge
descriptors:
  - key: remote_address
    rate_limit: {unit: day, requests_per_unit: 5}
`

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func TestSixthRequestIsRefused(t *testing.T) {
	server := testkit.StartTollgate(t, rules)
	client, err := tollgate.New("edge", tollgate.WithAddresses(server.GRPC),
		tollgate.WithDeadline(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var decisions []tollgate.Decision
	limiter, err := httplimit.New(client,
		[]httplimit.Descriptor{{httplimit.RemoteAddress("remote_address")}},
		httplimit.WithSkipPaths("/healthz"),
		httplimit.WithSkip(func(r *http.Request) bool { return r.Header.Get("X-Skip") != "" }),
		httplimit.WithOnDecision(func(_ *http.Request, decision tollgate.Decision) {
			decisions = append(decisions, decision)
			panic("an on decision that fails")
		}))
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(limiter.Handler(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })))
	defer web.Close()
	for i := range 6 {
		response, body := get(t, web.URL+"/")
		wantStatus, wantBody, wantRemaining := 200, "hello", string(rune('4'-i))
		if i == 5 {
			wantStatus, wantBody, wantRemaining = 429, "Too Many Requests", "0"
		}
		if response.StatusCode != wantStatus || body != wantBody ||
			response.Header.Get("RateLimit-Limit") != "5" ||
			response.Header.Get("RateLimit-Remaining") != wantRemaining ||
			response.Header.Get("RateLimit-Reset") == "" ||
			(response.Header.Get("Retry-After") != "") != (i == 5) {
			t.Errorf("request %d: %d %q %v", i, response.StatusCode, body, response.Header)
		}
	}
	if response, body := get(t, web.URL+"/healthz"); response.StatusCode != 200 || body != "hello" {
		t.Errorf("a skipped path: %d %q", response.StatusCode, body)
	}
	if len(decisions) != 6 || decisions[5].Allowed {
		t.Errorf("decisions %+v", decisions)
	}
}

func TestFunctionsOfTheRequest(t *testing.T) {
	server := testkit.StartTollgate(t, rules)
	client, err := tollgate.New("edge", tollgate.WithAddresses(server.GRPC),
		tollgate.WithDeadline(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := httplimit.New(client, []httplimit.Descriptor{{
		httplimit.Func("remote_address", func(r *http.Request) (string, bool) {
			return r.URL.Query().Get("user"), r.URL.Query().Has("user")
		}),
	}}, httplimit.WithHitsFunc(func(r *http.Request) int64 {
		if r.URL.Query().Has("negative") {
			return -1
		}
		return 3
	}))
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(limiter.Handler(http.NotFoundHandler()))
	defer web.Close()
	for _, c := range []struct {
		path   string
		status int
	}{
		{"/", 404}, {"/?user=ann", 404}, {"/?user=ann", 429}, {"/?user=bob", 404},
		{"/?user=carl&negative", 500},
	} {
		if response, _ := get(t, web.URL+c.path); response.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", c.path, response.StatusCode, c.status)
		}
	}
	_ = client.Close()
	if response, _ := get(t, web.URL+"/?user=ann"); response.StatusCode != 500 {
		t.Errorf("with a closed client: %d, want 500", response.StatusCode)
	}
}

func TestArgumentsThatCanNeverBeRight(t *testing.T) {
	for name, option := range map[string]httplimit.Option{
		"trusted proxy": httplimit.WithTrustedProxies("10.0.0.0/99"),
		"status":        httplimit.WithStatus(99),
		"error status":  httplimit.WithErrorStatus(1000),
		"headers":       httplimit.WithHeaders("unknown"),
		"count":         httplimit.WithCount("most"),
	} {
		if _, err := httplimit.New(nil, nil, option); !errors.Is(err, tollgate.ErrInvalidArgument) {
			t.Errorf("%s: %v, want ErrInvalidArgument", name, err)
		}
	}
	empty := []httplimit.Descriptor{{httplimit.Entry{}}}
	if _, err := httplimit.New(nil, empty); !errors.Is(err, tollgate.ErrInvalidArgument) {
		t.Errorf("an empty entry: %v, want ErrInvalidArgument", err)
	}
}

// hitsTaken checks by a client, and reports each check that takes hits.
type hitsTaken struct {
	*tollgate.Client
	done chan tollgate.Decision
}

func (h hitsTaken) Check(ctx context.Context, request tollgate.CheckRequest) (tollgate.Decision, error) {
	decision, err := h.Client.Check(ctx, request)
	if !request.DryRun {
		h.done <- decision
	}
	return decision, err
}

func TestOnlyFailedOrSuccessfulRequestsAreCounted(t *testing.T) {
	handler := http.NewServeMux()
	handler.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	handler.Handle("/missing", http.NotFoundHandler())
	handler.HandleFunc("/broken", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for _, c := range []struct {
		count         httplimit.Count
		counted, free []string
	}{
		{httplimit.CountFailed, []string{"/missing", "/broken"}, []string{"/"}},
		{httplimit.CountSuccessful, []string{"/"}, []string{"/missing", "/broken"}},
	} {
		server := testkit.StartTollgate(t, rules)
		client, err := tollgate.New("edge", tollgate.WithAddresses(server.GRPC),
			tollgate.WithDeadline(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		checker := hitsTaken{client, make(chan tollgate.Decision, 1)}
		limiter, err := httplimit.New(checker,
			[]httplimit.Descriptor{{httplimit.RemoteAddress("remote_address")}}, httplimit.WithCount(c.count))
		if err != nil {
			t.Fatal(err)
		}
		web := httptest.NewServer(limiter.Handler(handler))
		defer web.Close()
		status := func(path string) int {
			response, err := http.Get(web.URL + path)
			if err != nil { // the handler panicked
				return 0
			}
			_ = response.Body.Close()
			return response.StatusCode
		}
		want := map[string]int{"/": 200, "/missing": 404, "/broken": 0}
		for i := range 5 {
			for _, path := range c.free {
				if got := status(path); got != want[path] {
					t.Errorf("%s: %s: %d, want %d", c.count, path, got, want[path])
				}
			}
			path := c.counted[i%len(c.counted)]
			if got := status(path); got != want[path] {
				t.Errorf("%s: %s: %d, want %d", c.count, path, got, want[path])
			}
			if decision := <-checker.done; *decision.Remaining != uint64(4-i) {
				t.Errorf("%s: hit %d: %d remain", c.count, i, *decision.Remaining)
			}
		}
		for path := range want {
			if got := status(path); got != 429 {
				t.Errorf("%s: %s: %d, want 429", c.count, path, got)
			}
		}
	}
}

func TestAHandlerWritesTheRefusal(t *testing.T) {
	wait, reset := 1500*time.Millisecond, time.Minute
	refused := tollgate.Decision{
		Source: tollgate.SourceServer, RetryAfter: &wait,
		Limits: []tollgate.Limit{{RequestsPerUnit: 5, Reset: &reset, RetryAfter: &wait}},
	}
	written := httptest.NewRecorder()
	err := httplimit.WriteRefusal(written, refused, httplimit.WithHeaders(httplimit.XRateLimit),
		httplimit.WithBody("slow down"))
	header := written.Header()
	if err != nil || written.Code != 429 || written.Body.String() != "slow down" ||
		header.Get("Retry-After") != "2" || header.Get("X-RateLimit-Limit") != "5" ||
		header.Get("RateLimit-Limit") != "" {
		t.Errorf("%v: %d %q %v", err, written.Code, written.Body, header)
	}
	written = httptest.NewRecorder()
	if err := httplimit.WriteRefusal(written, tollgate.Decision{Allowed: true}); err != nil ||
		written.Body.Len() > 0 || len(written.Header()) > 0 {
		t.Errorf("allowed: %v, %q %v", err, written.Body, written.Header())
	}
	err = httplimit.WriteRefusal(written, refused, httplimit.WithStatus(99))
	if !errors.Is(err, tollgate.ErrInvalidArgument) {
		t.Errorf("status 99: %v, want ErrInvalidArgument", err)
	}
}
