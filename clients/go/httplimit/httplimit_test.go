package httplimit_test

import (
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
