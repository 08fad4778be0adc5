package tollgate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	tollgate "github.com/tollgate-limits/tollgate-go"
	"github.com/tollgate-limits/tollgate-go/grpclimit"
	"github.com/tollgate-limits/tollgate-go/httplimit"
	"github.com/tollgate-limits/tollgate-go/internal/pb/rlsv3"
	"github.com/tollgate-limits/tollgate-go/internal/pb/tollgatev1"
	"github.com/tollgate-limits/tollgate-go/internal/testkit"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// readCases reads the cases of one file of vectors.
func readCases[C any](t *testing.T, file string) []C {
	t.Helper()
	return readList[C](t, file, "cases")
}

func readList[C any](t *testing.T, file, list string) []C {
	t.Helper()
	folder := os.Getenv("TOLLGATE_VECTORS")
	if folder == "" {
		folder = "../vectors"
	}
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatalf("reading vectors: %v; set TOLLGATE_VECTORS to their folder", err)
	}
	var vectors map[string]json.RawMessage
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatalf("reading vectors: %v", err)
	}
	var cases []C
	if err := json.Unmarshal(vectors[list], &cases); err != nil {
		t.Fatalf("reading %s of %s: %v", list, file, err)
	}
	if len(cases) == 0 {
		t.Fatalf("%s has no %s", file, list)
	}
	return cases
}

// nameOnFailure writes the name of a case as the vectors have it.
func nameOnFailure(t *testing.T, name string) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("failed case: %s", name)
		}
	})
}

// --- descriptors.json

type entryVector struct {
	Key           string
	Value         *string
	Header        *string
	Method        bool
	Path          bool
	PathTemplates []string `json:"path_templates"`
	RemoteAddress bool     `json:"remote_address"`
	Default       *string
}

type descriptorCase struct {
	Name   string
	Config struct {
		Descriptors    [][]entryVector
		TrustedProxies []string `json:"trusted_proxies"`
		SkipPaths      []string `json:"skip_paths"`
		Hits           *int64
	}
	Request struct {
		Method  string
		Path    string
		Headers [][2]string
		Peer    string
	}
	Expect struct {
		Descriptors [][][2]string
		Hits        *int64
		Skip        bool
	}
}

// recorder is a checker that keeps the request, and answers with a decision.
type recorder struct {
	request  *tollgate.CheckRequest
	decision tollgate.Decision
}

func (r *recorder) Check(_ context.Context, request tollgate.CheckRequest) (tollgate.Decision, error) {
	r.request = &request
	return r.decision, nil
}

func (c *descriptorCase) verify(t *testing.T, got *tollgate.CheckRequest) {
	t.Helper()
	if c.Expect.Skip {
		if got != nil {
			t.Fatalf("checked %+v, want no check", got)
		}
		return
	}
	if got == nil {
		t.Fatal("made no check")
	}
	pairs := make([][][2]string, len(got.Descriptors))
	for i, descriptor := range got.Descriptors {
		for _, entry := range descriptor.Entries {
			pairs[i] = append(pairs[i], [2]string{entry.Key, entry.Value})
		}
	}
	if !reflect.DeepEqual(pairs, c.Expect.Descriptors) {
		t.Errorf("descriptors %v, want %v", pairs, c.Expect.Descriptors)
	}
	if c.Expect.Hits != nil && (got.Hits == nil || *got.Hits != *c.Expect.Hits) {
		t.Errorf("hits %v, want %d", got.Hits, *c.Expect.Hits)
	}
}

func TestVectorsDescriptors(t *testing.T) {
	for _, c := range readCases[descriptorCase](t, "descriptors.json") {
		t.Run("http/"+c.Name, func(t *testing.T) { runHTTPDescriptors(t, &c) })
		if c.Request.Method == http.MethodPost || !usesMethod(&c) {
			t.Run("grpc/"+c.Name, func(t *testing.T) { runGRPCDescriptors(t, &c) })
		}
	}
}

func usesMethod(c *descriptorCase) bool {
	for _, entries := range c.Config.Descriptors {
		for _, e := range entries {
			if e.Method {
				return true
			}
		}
	}
	return false
}

func runHTTPDescriptors(t *testing.T, c *descriptorCase) {
	nameOnFailure(t, c.Name)
	var descriptors []httplimit.Descriptor
	for _, entries := range c.Config.Descriptors {
		var descriptor httplimit.Descriptor
		for _, e := range entries {
			var entry httplimit.Entry
			switch {
			case e.Value != nil:
				entry = httplimit.Value(e.Key, *e.Value)
			case e.Header != nil:
				entry = httplimit.Header(e.Key, *e.Header)
			case e.Method:
				entry = httplimit.Method(e.Key)
			case e.Path:
				entry = httplimit.Path(e.Key)
			case e.PathTemplates != nil:
				entry = httplimit.PathTemplates(e.Key, e.PathTemplates...)
			default:
				entry = httplimit.RemoteAddress(e.Key)
			}
			if e.Default != nil {
				entry = entry.Default(*e.Default)
			}
			descriptor = append(descriptor, entry)
		}
		descriptors = append(descriptors, descriptor)
	}
	options := []httplimit.Option{
		httplimit.WithTrustedProxies(c.Config.TrustedProxies...),
		httplimit.WithSkipPaths(c.Config.SkipPaths...),
	}
	if c.Config.Hits != nil {
		options = append(options, httplimit.WithHits(*c.Config.Hits))
	}
	checker := &recorder{decision: tollgate.Decision{Allowed: true}}
	limiter, err := httplimit.New(checker, descriptors, options...)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(c.Request.Method, "/", nil)
	r.RequestURI, r.RemoteAddr = c.Request.Path, c.Request.Peer
	for _, header := range c.Request.Headers {
		r.Header.Add(header[0], header[1])
	}
	passed := false
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true })
	limiter.Handler(next).ServeHTTP(httptest.NewRecorder(), r)
	if !passed {
		t.Error("the request did not pass")
	}
	c.verify(t, checker.request)
}

type textAddress string

func (textAddress) Network() string  { return "tcp" }
func (a textAddress) String() string { return string(a) }

func runGRPCDescriptors(t *testing.T, c *descriptorCase) {
	nameOnFailure(t, c.Name)
	var descriptors []grpclimit.Descriptor
	for _, entries := range c.Config.Descriptors {
		var descriptor grpclimit.Descriptor
		for _, e := range entries {
			var entry grpclimit.Entry
			switch {
			case e.Value != nil:
				entry = grpclimit.Value(e.Key, *e.Value)
			case e.Header != nil:
				entry = grpclimit.Header(e.Key, *e.Header)
			case e.Method:
				entry = grpclimit.Method(e.Key)
			case e.Path:
				entry = grpclimit.Path(e.Key)
			case e.PathTemplates != nil:
				entry = grpclimit.PathTemplates(e.Key, e.PathTemplates...)
			default:
				entry = grpclimit.RemoteAddress(e.Key)
			}
			if e.Default != nil {
				entry = entry.Default(*e.Default)
			}
			descriptor = append(descriptor, entry)
		}
		descriptors = append(descriptors, descriptor)
	}
	options := []grpclimit.Option{
		grpclimit.WithTrustedProxies(c.Config.TrustedProxies...),
		grpclimit.WithSkipPaths(c.Config.SkipPaths...),
	}
	if c.Config.Hits != nil {
		options = append(options, grpclimit.WithHits(*c.Config.Hits))
	}
	checker := &recorder{decision: tollgate.Decision{Allowed: true}}
	limiter, err := grpclimit.New(checker, descriptors, options...)
	if err != nil {
		t.Fatal(err)
	}
	md := metadata.MD{}
	for _, header := range c.Request.Headers {
		md.Append(header[0], header[1])
	}
	ctx := metadata.NewIncomingContext(context.Background(), md)
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: textAddress(c.Request.Peer)})
	info := &grpc.UnaryServerInfo{FullMethod: c.Request.Path}
	passed := false
	_, err = limiter.Unary()(ctx, nil, info, func(context.Context, any) (any, error) {
		passed = true
		return nil, nil
	})
	if err != nil || !passed {
		t.Errorf("the call did not pass: %v", err)
	}
	c.verify(t, checker.request)
}

// --- answers.json

type limitVector struct {
	Descriptor      int
	Name            string
	Rule            string
	RequestsPerUnit uint64 `json:"requests_per_unit"`
	Window          string
	Allowed         bool
	Remaining       uint64
	ResetMS         *int64 `json:"reset_ms"`
	RetryAfterMS    *int64 `json:"retry_after_ms"`
}

type answerCase struct {
	Name   string
	Config struct {
		Headers     *[]string
		Status      *int
		Body        *string
		ContentType *string `json:"content_type"`
		ErrorStatus *int    `json:"error_status"`
		Shadow      bool
	}
	Decision struct {
		Allowed      bool
		Source       string
		Remaining    *uint64
		ResetMS      *int64 `json:"reset_ms"`
		RetryAfterMS *int64 `json:"retry_after_ms"`
		Limits       []limitVector
		NoLimit      string `json:"no_limit"`
	}
	Expect struct {
		HTTP struct {
			Pass        bool
			Headers     map[string]string
			Status      int
			Body        string
			ContentType string `json:"content_type"`
		}
		GRPC struct {
			Pass     bool
			Metadata map[string]string
			Code     string
			Message  string
			RetryMS  *int64 `json:"retry_ms"`
		}
	}
}

func millis(ms *int64) *time.Duration {
	if ms == nil {
		return nil
	}
	d := time.Duration(*ms) * time.Millisecond
	return &d
}

func (c *answerCase) decision() tollgate.Decision {
	decision := tollgate.Decision{
		Allowed:    c.Decision.Allowed,
		Source:     tollgate.Source(c.Decision.Source),
		Remaining:  c.Decision.Remaining,
		Reset:      millis(c.Decision.ResetMS),
		RetryAfter: millis(c.Decision.RetryAfterMS),
		NoLimit:    tollgate.NoLimit(c.Decision.NoLimit),
	}
	for _, l := range c.Decision.Limits {
		decision.Limits = append(decision.Limits, tollgate.Limit{
			Descriptor: l.Descriptor, Name: l.Name, Rule: l.Rule, RequestsPerUnit: l.RequestsPerUnit,
			Window: l.Window, Allowed: l.Allowed, Remaining: l.Remaining,
			Reset: millis(l.ResetMS), RetryAfter: millis(l.RetryAfterMS),
		})
	}
	return decision
}

func TestVectorsAnswers(t *testing.T) {
	cases := append(readCases[answerCase](t, "answers.json"), readList[answerCase](t, "leases.json", "answers")...)
	for _, c := range cases {
		t.Run("http/"+c.Name, func(t *testing.T) { runHTTPAnswer(t, &c) })
		t.Run("grpc/"+c.Name, func(t *testing.T) { runGRPCAnswer(t, &c) })
	}
}

func runHTTPAnswer(t *testing.T, c *answerCase) {
	nameOnFailure(t, c.Name)
	options := []httplimit.Option{httplimit.WithShadow(c.Config.Shadow)}
	if c.Config.Headers != nil {
		var styles []httplimit.HeaderStyle
		for _, style := range *c.Config.Headers {
			styles = append(styles, httplimit.HeaderStyle(style))
		}
		options = append(options, httplimit.WithHeaders(styles...))
	}
	if c.Config.Status != nil {
		options = append(options, httplimit.WithStatus(*c.Config.Status))
	}
	if c.Config.Body != nil {
		options = append(options, httplimit.WithBody(*c.Config.Body))
	}
	if c.Config.ContentType != nil {
		options = append(options, httplimit.WithContentType(*c.Config.ContentType))
	}
	if c.Config.ErrorStatus != nil {
		options = append(options, httplimit.WithErrorStatus(*c.Config.ErrorStatus))
	}
	descriptors := []httplimit.Descriptor{{httplimit.Value("a", "b")}}
	limiter, err := httplimit.New(&recorder{decision: c.decision()}, descriptors, options...)
	if err != nil {
		t.Fatal(err)
	}
	passed := false
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true })
	w := httptest.NewRecorder()
	limiter.Handler(next).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	want := c.Expect.HTTP
	if passed != want.Pass {
		t.Errorf("pass %v, want %v", passed, want.Pass)
	}
	headers := map[string]string{}
	for name, values := range w.Header() {
		name = strings.ToLower(name)
		if strings.Contains(name, "ratelimit") || name == "retry-after" {
			headers[name] = strings.Join(values, ",")
		}
	}
	if !reflect.DeepEqual(headers, want.Headers) {
		t.Errorf("headers %v, want %v", headers, want.Headers)
	}
	if want.Pass {
		return
	}
	got := [3]any{w.Code, w.Body.String(), w.Header().Get("Content-Type")}
	if got != [3]any{want.Status, want.Body, want.ContentType} {
		t.Errorf("answer %q, want %d %q %q", got, want.Status, want.Body, want.ContentType)
	}
}

// transportStream keeps the metadata of a call.
type transportStream struct {
	grpc.ServerTransportStream
	header, trailer metadata.MD
}

func (*transportStream) Method() string                    { return "/test.Service/Method" }
func (s *transportStream) SetHeader(md metadata.MD) error  { s.header = md; return nil }
func (s *transportStream) SetTrailer(md metadata.MD) error { s.trailer = md; return nil }

func runGRPCAnswer(t *testing.T, c *answerCase) {
	nameOnFailure(t, c.Name)
	options := []grpclimit.Option{grpclimit.WithShadow(c.Config.Shadow)}
	if c.Config.Headers != nil {
		var styles []grpclimit.HeaderStyle
		for _, style := range *c.Config.Headers {
			styles = append(styles, grpclimit.HeaderStyle(style))
		}
		options = append(options, grpclimit.WithHeaders(styles...))
	}
	descriptors := []grpclimit.Descriptor{{grpclimit.Value("a", "b")}}
	limiter, err := grpclimit.New(&recorder{decision: c.decision()}, descriptors, options...)
	if err != nil {
		t.Fatal(err)
	}
	stream := &transportStream{}
	ctx := grpc.NewContextWithServerTransportStream(context.Background(), stream)
	passed := false
	info := &grpc.UnaryServerInfo{FullMethod: stream.Method()}
	_, err = limiter.Unary()(ctx, nil, info, func(context.Context, any) (any, error) {
		passed = true
		return nil, nil
	})
	want := c.Expect.GRPC
	if passed != want.Pass {
		t.Errorf("pass %v, want %v", passed, want.Pass)
	}
	sent := stream.trailer
	if want.Pass {
		sent = stream.header
	}
	got := map[string]string{}
	for name, values := range sent {
		got[name] = strings.Join(values, ",")
	}
	if !reflect.DeepEqual(got, want.Metadata) {
		t.Errorf("metadata %v, want %v", got, want.Metadata)
	}
	if want.Pass {
		return
	}
	refused := status.Convert(err)
	if statusName(refused.Code()) != want.Code || refused.Message() != want.Message {
		t.Errorf("status %v %q, want %s %q", refused.Code(), refused.Message(), want.Code, want.Message)
	}
	var retry *time.Duration
	for _, detail := range refused.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			wait := info.GetRetryDelay().AsDuration()
			retry = &wait
		}
	}
	if !reflect.DeepEqual(retry, millis(want.RetryMS)) {
		t.Errorf("retry %v, want %v", retry, millis(want.RetryMS))
	}
}

// --- addresses.json

type addressCase struct {
	Name    string
	Address string
	Expect  struct {
		Valid bool
		Error string
	}
}

func TestVectorsAddresses(t *testing.T) {
	for _, c := range readCases[addressCase](t, "addresses.json") {
		t.Run(c.Name, func(t *testing.T) {
			nameOnFailure(t, c.Name)
			client, err := tollgate.New("vectors", tollgate.WithAddresses(c.Address))
			if err == nil {
				_ = client.Close()
			}
			if c.Expect.Valid {
				if err != nil {
					t.Errorf("%q is refused: %v", c.Address, err)
				}
			} else if !errors.Is(err, tollgate.ErrInvalidArgument) || !strings.Contains(err.Error(), c.Expect.Error) {
				t.Errorf("%v, want an invalid argument with %s", err, c.Expect.Error)
			}
		})
	}
}

// --- sequences.json

type sequenceCase struct {
	Name     string
	Proxy    bool
	Address  string
	Listener string
	Options  struct {
		OnError string `json:"on_error"`
		Local   *struct {
			PerSecond float64 `json:"per_second"`
			Burst     int64
		}
		Breaker *struct {
			Failures int
			OpenMS   int64 `json:"open_ms"`
		}
		DenialCacheEntries *int  `json:"denial_cache_entries"`
		DeadlineMS         int64 `json:"deadline_ms"`
		Protocol           string
		UnknownDomain      string `json:"unknown_domain"`
		Leases             string
	}
	Invalid bool
	Steps   []stepVector
}

type stepVector struct {
	Do          string
	MS          int64
	Descriptors []descriptorVector
	Hits        json.RawMessage
	DryRun      bool `json:"dry_run"`
	Middleware  bool
	Repeat      int
	ExpiresMS   int64  `json:"expires_ms"`
	OnExpiry    string `json:"on_expiry"`
	Reservation string
	Server      json.RawMessage
	Expect      map[string]any
}

type descriptorVector struct {
	Entries [][2]string
	Hits    *int64
}

func (s *stepVector) descriptors() []tollgate.Descriptor {
	made := make([]tollgate.Descriptor, len(s.Descriptors))
	for i, d := range s.Descriptors {
		made[i].Hits = d.Hits
		for _, pair := range d.Entries {
			made[i].Entries = append(made[i].Entries, tollgate.Entry{Key: pair[0], Value: pair[1]})
		}
	}
	return made
}

func (s *stepVector) oneHits(t *testing.T) *int64 {
	if len(s.Hits) == 0 {
		return nil
	}
	var hits int64
	if err := json.Unmarshal(s.Hits, &hits); err != nil {
		t.Fatal(err)
	}
	return &hits
}

func TestVectorsSequences(t *testing.T) {
	cases := append(readCases[sequenceCase](t, "sequences.json"), readCases[sequenceCase](t, "leases.json")...)
	for _, c := range cases {
		t.Run("unary/"+c.Name, func(t *testing.T) { runSequence(t, &c) })
		if c.Options.Protocol != "envoy" {
			t.Run("batching/"+c.Name, func(t *testing.T) { runSequence(t, &c, tollgate.WithBatching(true)) })
		}
	}
}

func runSequence(t *testing.T, c *sequenceCase, options ...tollgate.Option) {
	t.Parallel()
	if c.Proxy && os.Getenv("https_proxy") != deadProxy {
		runProxied(t)
		return
	}
	nameOnFailure(t, c.Name)
	server, clock := testkit.StartServer(t), &testkit.Clock{}
	address := server.Address
	switch {
	case c.Proxy:
		address = anyAddress(address)
	case c.Listener == "http1":
		address = startHTTP1(t)
	case c.Address != "":
		address = c.Address
	}
	warnings := &warningLog{}
	deadline := 2 * time.Second
	if c.Options.DeadlineMS != 0 {
		deadline = time.Duration(c.Options.DeadlineMS) * time.Millisecond
	}
	options = append(options, tollgate.WithAddresses(address), tollgate.WithClock(clock.Now),
		tollgate.WithDeadline(deadline), tollgate.WithLogger(slog.New(warnings)))
	options = append(options, sequenceOptions(t, c)...)
	client, err := tollgate.New("vectors", options...)
	if c.Invalid {
		if !errors.Is(err, tollgate.ErrInvalidArgument) {
			t.Errorf("%v, want an invalid argument", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	client.StopRounds()
	run := &sequenceRun{
		client: client, clock: clock, server: server, address: address, warnings: warnings,
	}
	for i := range c.Steps {
		step := &c.Steps[i]
		for repeat := range max(step.Repeat, 1) {
			where := fmt.Sprintf("step %d (%s), repeat %d", i, step.Do, repeat)
			if !run.step(t, where, step) {
				return
			}
		}
	}
}

// startHTTP1 starts a listener that answers each connection as a server of HTTP/1 answers HTTP/2.
func startHTTP1(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

// warningLog is a [slog.Handler] that keeps the attributes of what is logged.
type warningLog struct {
	mu       sync.Mutex
	warnings []map[string]slog.Value
}

func (*warningLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *warningLog) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l *warningLog) WithGroup(string) slog.Handler          { return l }

func (l *warningLog) Handle(_ context.Context, record slog.Record) error {
	fields := map[string]slog.Value{"message": slog.StringValue(record.Level.String() + " " + record.Message)}
	record.Attrs(func(attr slog.Attr) bool {
		fields[attr.Key] = attr.Value
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warnings = append(l.warnings, fields)
	return nil
}

// take returns the one warning since the last call by the names of the vectors, or nil for none.
func (l *warningLog) take(t *testing.T, address string) any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	warnings := l.warnings
	l.warnings = nil
	if len(warnings) == 0 {
		return nil
	}
	fields := warnings[0]
	if len(warnings) > 1 || fields["addresses"].String() != address ||
		fields["message"].String() != "WARN no answer from tollgate" {
		t.Errorf("warnings %v, want one of %s", warnings, address)
	}
	text := fields["error"].String()
	name, _, _ := strings.Cut(text, ":")
	return map[string]any{
		"on_error":  fields["on_error"].String(),
		"decisions": float64(fields["decisions"].Int64()),
		"error":     name,
		"text":      text,
	}
}

// deadProxy is a proxy that takes no connection.
const deadProxy = "http://127.0.0.1:1"

// runProxied runs this test again where the environment names the proxy: a process reads it once.
func runProxied(t *testing.T) {
	again := exec.Command(os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), "no_proxy=", "NO_PROXY=")
	for _, scheme := range []string{"http", "https", "grpc", "all"} {
		again.Env = append(again.Env, scheme+"_proxy="+deadProxy, strings.ToUpper(scheme)+"_PROXY="+deadProxy)
	}
	output, err := again.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()) {
		t.Fatalf("%v: %s", err, output)
	}
}

// anyAddress is 0.0.0.0 with the port of an address on loopback, which it reaches. Go uses no proxy
// for loopback.
func anyAddress(loopback string) string {
	_, port, _ := net.SplitHostPort(loopback)
	return net.JoinHostPort("0.0.0.0", port)
}

func TestHTTPProxyOfTheEnvironmentIsAnOption(t *testing.T) {
	t.Parallel()
	if os.Getenv("https_proxy") != deadProxy {
		runProxied(t)
		return
	}
	server := testkit.StartServer(t)
	client, err := tollgate.New("vectors", tollgate.WithAddresses(anyAddress(server.Address)),
		tollgate.WithHTTPProxy(true), tollgate.WithDeadline(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	_, err = client.Peek(t.Context(), tollgate.CheckRequest{
		Descriptors: []tollgate.Descriptor{{Entries: []tollgate.Entry{{Key: "user", Value: "ann"}}}},
	})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Fatalf("the proxy was not used: %v", err)
	}
}

func sequenceOptions(t *testing.T, c *sequenceCase) []tollgate.Option {
	var options []tollgate.Option
	switch c.Options.OnError {
	case "", "allow":
	case "deny":
		options = append(options, tollgate.WithOnError(tollgate.OnErrorDeny))
	case "local":
		options = append(options, tollgate.WithOnError(tollgate.OnErrorLocal))
	default:
		t.Fatalf("on_error %q is unknown", c.Options.OnError)
	}
	if local := c.Options.Local; local != nil {
		options = append(options, tollgate.WithLocalBucket(local.PerSecond, local.Burst))
	}
	if b := c.Options.Breaker; b != nil {
		options = append(options, tollgate.WithBreaker(b.Failures, time.Duration(b.OpenMS)*time.Millisecond))
	}
	if c.Options.DenialCacheEntries != nil {
		options = append(options, tollgate.WithDenialCache(*c.Options.DenialCacheEntries))
	}
	if c.Options.Protocol == "envoy" {
		options = append(options, tollgate.WithProtocol(tollgate.ProtocolEnvoy))
	}
	switch c.Options.UnknownDomain {
	case "":
	case "allow":
		options = append(options, tollgate.WithUnknownDomain(tollgate.UnknownDomainAllow))
	case "error":
		options = append(options, tollgate.WithUnknownDomain(tollgate.UnknownDomainError))
	default:
		t.Fatalf("unknown_domain %q is unknown", c.Options.UnknownDomain)
	}
	if c.Options.Leases != "" {
		options = append(options, tollgate.WithLeases(c.Options.Leases == "on"))
	}
	return options
}

type sequenceRun struct {
	client      *tollgate.Client
	clock       *testkit.Clock
	server      *testkit.Server
	address     string
	warnings    *warningLog
	reservation *tollgate.Reservation
}

// step carries out a step, and returns whether it went as expected.
func (r *sequenceRun) step(t *testing.T, where string, step *stepVector) bool {
	t.Helper()
	if step.Do == "advance" {
		r.clock.Advance(time.Duration(step.MS) * time.Millisecond)
		return true
	}
	if step.Do == "stop" {
		r.server.Stop()
		return true
	}
	var unexpected atomic.Bool
	replies := r.repliesOf(t, step.Server)
	next := make(chan replyFunc, len(replies))
	for _, reply := range replies {
		next <- reply
	}
	r.server.Script(func(call testkit.Received) testkit.Reply {
		select {
		case reply := <-next:
			return reply(call)
		default:
			unexpected.Store(true)
			return testkit.Reply{Code: codes.Aborted}
		}
	})
	got, err := r.call(t, step)
	r.client.WaitForTasks()
	calls := r.server.Calls()
	got["calls"] = float64(len(calls))
	got["warning"] = r.warnings.take(t, r.address)
	if err != nil {
		got["fails"] = failureName(err)
	}
	if len(calls) > 0 {
		got["request"] = requestFields(calls[len(calls)-1])
	}
	good := !unexpected.Load()
	if !good {
		t.Errorf("%s: more calls than replies: %v", where, calls)
	}
	if _, fails := step.Expect["fails"]; err != nil && !fails {
		t.Errorf("%s: failed: %v", where, err)
		good = false
	}
	for name, want := range step.Expect {
		if name == "message" {
			if err == nil || !strings.Contains(err.Error(), text(want)) {
				t.Errorf("%s: %v, want an error with %s", where, err, want)
				good = false
			}
			continue
		}
		if difference := compare(got[name], want); difference != "" {
			t.Errorf("%s: %s: %s", where, name, difference)
			good = false
		}
	}
	return good
}

// call makes the call of a step, and returns its result by the names of the vectors.
func (r *sequenceRun) call(t *testing.T, step *stepVector) (map[string]any, error) {
	t.Helper()
	ctx := context.Background()
	request := tollgate.CheckRequest{Descriptors: step.descriptors()}
	switch step.Do {
	case "tick":
		r.client.MakeRound()
		return map[string]any{}, nil
	case "close":
		return map[string]any{}, r.client.Close()
	case "check", "peek":
		request.Hits, request.DryRun, request.Middleware = step.oneHits(t), step.DryRun, step.Middleware
		call := r.client.Check
		if step.Do == "peek" {
			call = r.client.Peek
		}
		decision, err := call(ctx, request)
		return decisionFields(&decision), err
	case "ready":
		limited, cancel := context.WithTimeout(ctx, time.Duration(step.MS)*time.Millisecond)
		defer cancel()
		err := r.client.Ready(limited)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return map[string]any{}, err
		}
		return map[string]any{"ready": err == nil}, nil
	case "reserve":
		onExpiry := map[string]tollgate.OnExpiry{
			"": tollgate.OnExpiryDefault, "charge": tollgate.OnExpiryCharge, "release": tollgate.OnExpiryRelease,
			"ON_EXPIRY_CHARGE": tollgate.OnExpiryCharge, "ON_EXPIRY_RELEASE": tollgate.OnExpiryRelease,
		}
		reservation, err := r.client.Reserve(ctx, tollgate.ReserveRequest{
			Descriptors: request.Descriptors, Hits: step.oneHits(t), ID: step.Reservation,
			Expires: time.Duration(step.ExpiresMS) * time.Millisecond, OnExpiry: onExpiry[step.OnExpiry],
		})
		r.reservation = reservation
		if err != nil {
			return map[string]any{}, err
		}
		fields := decisionFields(&reservation.Decision)
		fields["hits"] = float64(reservation.Hits)
		if reservation.ID != "" {
			fields["reservation"] = reservation.ID
		}
		return fields, nil
	case "end_scope":
		r.reservation.Close()
		return map[string]any{}, nil
	}
	settlement, err := r.settle(t, ctx, step)
	fields := map[string]any{
		"reserved":   float64(settlement.Reserved),
		"committed":  float64(settlement.Committed),
		"repeated":   settlement.Repeated,
		"remaining":  number(settlement.Remaining),
		"reset_ms":   milliseconds(settlement.Reset),
		"expires_ms": milliseconds(settlement.Expires),
		"limits":     limitFields(settlement.Limits),
	}
	if settlement.ID != "" {
		fields["reservation"] = settlement.ID
	}
	return fields, err
}

func (r *sequenceRun) settle(
	t *testing.T, ctx context.Context, step *stepVector,
) (tollgate.Settlement, error) {
	t.Helper()
	switch step.Do {
	case "commit":
		if strings.HasPrefix(string(step.Hits), "[") {
			var hits []int64
			if err := json.Unmarshal(step.Hits, &hits); err != nil {
				t.Fatal(err)
			}
			return r.reservation.CommitEach(ctx, hits...)
		}
		return r.reservation.Commit(ctx, *step.oneHits(t))
	case "release":
		return r.reservation.Release(ctx)
	case "extend":
		return r.reservation.Extend(ctx, time.Duration(step.ExpiresMS)*time.Millisecond)
	}
	t.Fatalf("the step %q is unknown", step.Do)
	return tollgate.Settlement{}, nil
}

func decisionFields(decision *tollgate.Decision) map[string]any {
	fields := map[string]any{
		"allowed":        decision.Allowed,
		"source":         string(decision.Source),
		"remaining":      number(decision.Remaining),
		"reset_ms":       milliseconds(decision.Reset),
		"retry_after_ms": milliseconds(decision.RetryAfter),
		"limits":         limitFields(decision.Limits),
	}
	setText(fields, "no_limit", string(decision.NoLimit))
	if decision.Err != nil {
		fields["error"] = failureName(decision.Err)
	}
	return fields
}

func limitFields(limits []tollgate.Limit) []any {
	fields := make([]any, len(limits))
	for i, limit := range limits {
		fields[i] = map[string]any{
			"descriptor": float64(limit.Descriptor), "name": limit.Name, "rule": limit.Rule,
			"requests_per_unit": float64(limit.RequestsPerUnit), "window": limit.Window,
			"allowed": limit.Allowed, "remaining": float64(limit.Remaining),
			"reset_ms": milliseconds(limit.Reset), "retry_after_ms": milliseconds(limit.RetryAfter),
		}
	}
	return fields
}

func failureName(err error) string {
	switch {
	case errors.Is(err, tollgate.ErrBreakerOpen):
		return "breaker"
	case errors.Is(err, tollgate.ErrInvalidArgument):
		return "argument"
	default:
		return statusName(status.Code(err))
	}
}

func statusName(code codes.Code) string {
	names := [...]string{"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED",
		"NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
		"ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
		"UNAUTHENTICATED"}
	return names[code]
}

func statusCode(t *testing.T, name string) codes.Code {
	t.Helper()
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		if statusName(code) == name {
			return code
		}
	}
	t.Fatalf("the status %q is unknown", name)
	return codes.Unknown
}

func number(n *uint64) any {
	if n == nil {
		return nil
	}
	return float64(*n)
}

func milliseconds(d *time.Duration) any {
	if d == nil {
		return nil
	}
	return float64(*d) / 1e6
}

// sorted returns the calls of a batch as sorted texts.
func sorted(calls any) []string {
	list, _ := calls.([]any)
	texts := make([]string, len(list))
	for i, call := range list {
		text, _ := json.Marshal(call)
		texts[i] = string(text)
	}
	slices.Sort(texts)
	return texts
}

// compare returns how a value differs from the expected one. Fields that are not expected are not
// compared, and nil is absent.
func compare(got, want any) string {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%v, want %v", got, want)
		}
		for name, value := range want {
			if name == "descriptors" && !reflect.DeepEqual(fields[name], value) {
				return fmt.Sprintf("descriptors: %v, want %v", fields[name], value)
			}
			if calls, ok := value.([]any); ok && name == "calls" {
				if got := sorted(fields[name]); !reflect.DeepEqual(got, sorted(calls)) {
					return fmt.Sprintf("calls: %v, want %v", got, sorted(calls))
				}
				continue
			}
			if difference := compare(fields[name], value); difference != "" {
				return name + ": " + difference
			}
		}
	case []any:
		items, ok := got.([]any)
		if !ok || len(items) != len(want) {
			return fmt.Sprintf("%v, want %v", got, want)
		}
		for i := range want {
			if difference := compare(items[i], want[i]); difference != "" {
				return fmt.Sprintf("%d: %s", i, difference)
			}
		}
	default:
		if got != want {
			return fmt.Sprintf("%v, want %v", got, want)
		}
	}
	return ""
}

// --- the scripted server's side of sequences.json

// replyFunc makes the reply to a call.
type replyFunc func(testkit.Received) testkit.Reply

func (r *sequenceRun) repliesOf(t *testing.T, text json.RawMessage) []replyFunc {
	t.Helper()
	if len(text) == 0 {
		return nil
	}
	var list []map[string]any
	if err := json.Unmarshal(text, &list); err != nil {
		var one map[string]any
		if err := json.Unmarshal(text, &one); err != nil {
			t.Fatal(err)
		}
		list = []map[string]any{one}
	}
	replies := make([]replyFunc, len(list))
	for i, reply := range list {
		if batch, ok := reply["batch"].(map[string]any); ok {
			replies[i] = func(call testkit.Received) testkit.Reply { return batchReply(t, call, batch) }
			continue
		}
		made := replyOf(t, reply)
		pause := time.Duration(float(reply["advance_ms"])) * time.Millisecond
		replies[i] = func(testkit.Received) testkit.Reply {
			r.clock.Advance(pause)
			return made
		}
	}
	return replies
}

// batchReply answers each lease of a batch alike, and each return by all of its hits.
func batchReply(t *testing.T, call testkit.Received, reply map[string]any) testkit.Reply {
	request, ok := call.Request.(*tollgatev1.BatchRequest)
	if !ok {
		t.Errorf("the call is no batch: %v", call)
		return testkit.Reply{Code: codes.Aborted}
	}
	response := &tollgatev1.BatchResponse{}
	for _, call := range request.Calls {
		answer := &tollgatev1.Answer{Tag: call.Tag}
		if back := call.GetGiveBack(); back != nil {
			answer.Answer = &tollgatev1.Answer_GiveBack{GiveBack: &tollgatev1.ReturnResponse{Returned: back.Unused}}
		} else if made := replyOf(t, reply); made.Message != nil {
			answer.Answer = &tollgatev1.Answer_Lease{Lease: made.Message.(*tollgatev1.LeaseResponse)}
		} else {
			failure := &tollgatev1.Failure{Code: int32(made.Code), Message: made.Text}
			answer.Answer = &tollgatev1.Answer_Failure{Failure: failure}
		}
		response.Answers = append(response.Answers, answer)
	}
	return testkit.Reply{Message: response}
}

func replyOf(t *testing.T, reply map[string]any) testkit.Reply {
	t.Helper()
	for kind, value := range reply {
		fields, _ := value.(map[string]any)
		switch kind {
		case "hang":
			return testkit.Reply{Hang: true}
		case "error":
			return testkit.Reply{Code: statusCode(t, value.(string)), Text: text(reply["message"])}
		case "message", "advance_ms":
		case "check":
			return testkit.Reply{Message: &tollgatev1.CheckResponse{
				Verdict: verdictOf(fields), Remaining: optional(fields["remaining"]),
				Reset_: duration(fields["reset_ms"]), RetryAfter: duration(fields["retry_after_ms"]),
				Limits: limitMessages(fields["limits"]), NoLimit: text(fields["no_limit"]),
			}}
		case "reserve":
			return testkit.Reply{Message: &tollgatev1.ReserveResponse{
				Verdict: verdictOf(fields), Reservation: text(fields["reservation"]),
				Hits: uint64(float(fields["hits"])), Expires: duration(fields["expires_ms"]),
				Remaining: optional(fields["remaining"]), Reset_: duration(fields["reset_ms"]),
				RetryAfter: duration(fields["retry_after_ms"]), Limits: limitMessages(fields["limits"]),
				NoLimit: text(fields["no_limit"]),
			}}
		case "settle":
			repeated, _ := fields["repeated"].(bool)
			return testkit.Reply{Message: &tollgatev1.SettleResponse{
				Reservation: text(fields["reservation"]), Reserved: uint64(float(fields["reserved"])),
				Committed: uint64(float(fields["committed"])), Repeated: repeated,
				Remaining: optional(fields["remaining"]), Reset_: duration(fields["reset_ms"]),
				Limits: limitMessages(fields["limits"]), Expires: duration(fields["expires_ms"]),
			}}
		case "lease":
			return testkit.Reply{Message: &tollgatev1.LeaseResponse{
				Verdict: verdictOf(fields), Lease: text(fields["lease"]), Granted: uint64(float(fields["granted"])),
				Expires: duration(fields["expires_ms"]), Remaining: optional(fields["remaining"]),
				Reset_: duration(fields["reset_ms"]), RetryAfter: duration(fields["retry_after_ms"]),
				Limits: limitMessages(fields["limits"]), NotLeased: text(fields["not_leased"]),
			}}
		case "envoy":
			return testkit.Reply{Message: envoyMessage(fields)}
		}
	}
	t.Fatalf("the reply %v is unknown", reply)
	return testkit.Reply{}
}

func text(value any) string   { s, _ := value.(string); return s }
func float(value any) float64 { f, _ := value.(float64); return f }

func optional(value any) *uint64 {
	if value == nil {
		return nil
	}
	return proto.Uint64(uint64(float(value)))
}

func duration(value any) *durationpb.Duration {
	if value == nil {
		return nil
	}
	return durationpb.New(time.Duration(float(value) * 1e6))
}

func verdictOf(fields map[string]any) tollgatev1.Verdict {
	return tollgatev1.Verdict(tollgatev1.Verdict_value[text(fields["verdict"])])
}

func limitMessages(value any) []*tollgatev1.LimitStatus {
	list, _ := value.([]any)
	messages := make([]*tollgatev1.LimitStatus, len(list))
	for i, item := range list {
		fields := item.(map[string]any)
		messages[i] = &tollgatev1.LimitStatus{
			Descriptor_: uint32(float(fields["descriptor"])), Name: text(fields["name"]),
			Rule: text(fields["rule"]), RequestsPerUnit: uint64(float(fields["requests_per_unit"])),
			Window: text(fields["window"]), Verdict: verdictOf(fields),
			Remaining: uint64(float(fields["remaining"])), Reset_: duration(fields["reset_ms"]),
			RetryAfter: duration(fields["retry_after_ms"]),
		}
	}
	return messages
}

func envoyCode(value any) rlsv3.RateLimitResponse_Code {
	return rlsv3.RateLimitResponse_Code(rlsv3.RateLimitResponse_Code_value[text(value)])
}

func envoyMessage(fields map[string]any) *rlsv3.RateLimitResponse {
	message := &rlsv3.RateLimitResponse{OverallCode: envoyCode(fields["overall_code"])}
	statuses, _ := fields["statuses"].([]any)
	for _, item := range statuses {
		status := item.(map[string]any)
		made := &rlsv3.RateLimitResponse_DescriptorStatus{
			Code: envoyCode(status["code"]), LimitRemaining: uint32(float(status["limit_remaining"])),
			DurationUntilReset: duration(status["duration_until_reset_ms"]),
		}
		if limit, ok := status["current_limit"].(map[string]any); ok {
			unit := rlsv3.RateLimitResponse_RateLimit_Unit_value[text(limit["unit"])]
			made.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{
				Name: text(limit["name"]), RequestsPerUnit: uint32(float(limit["requests_per_unit"])),
				Unit: rlsv3.RateLimitResponse_RateLimit_Unit(unit),
			}
			if count, ok := limit["unit_multiplier"].(float64); ok {
				made.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(uint32(count))
			}
		}
		message.Statuses = append(message.Statuses, made)
	}
	return message
}

// requestFields returns a call by the names of the vectors. An absent field is missing.
func requestFields(call testkit.Received) map[string]any {
	fields := map[string]any{"method": call.Method}
	switch request := call.Request.(type) {
	case *tollgatev1.BatchRequest:
		calls := make([]any, len(request.Calls))
		for i, call := range request.Calls {
			if back := call.GetGiveBack(); back != nil {
				calls[i] = requestFields(testkit.Received{Method: "Return", Request: back})
			} else {
				calls[i] = requestFields(testkit.Received{Method: "Lease", Request: call.GetLease()})
			}
		}
		fields["calls"] = calls
	case *tollgatev1.LeaseRequest:
		fields["domain"], fields["descriptors"] = request.Domain, descriptorFields(request.Descriptors)
		setHits(fields, request.Hits)
		setText(fields, "lease", request.Lease)
		setCount(fields, "admitted", request.Admitted)
		setCount(fields, "refused", request.Refused)
	case *tollgatev1.ReturnRequest:
		fields["domain"], fields["descriptors"] = request.Domain, descriptorFields(request.Descriptors)
		setText(fields, "lease", request.Lease)
		setCount(fields, "unused", &request.Unused)
		setCount(fields, "admitted", request.Admitted)
		setCount(fields, "refused", request.Refused)
	case *tollgatev1.CheckRequest:
		fields["domain"], fields["descriptors"] = request.Domain, descriptorFields(request.Descriptors)
		setHits(fields, request.Hits)
	case *tollgatev1.ReserveRequest:
		fields["domain"], fields["descriptors"] = request.Domain, descriptorFields(request.Descriptors)
		setHits(fields, request.Hits)
		setText(fields, "reservation", request.Reservation)
		setExpires(fields, request.Expires)
		if request.OnExpiry != tollgatev1.OnExpiry_ON_EXPIRY_UNSPECIFIED {
			fields["on_expiry"] = request.OnExpiry.String()
		}
	case *tollgatev1.CommitRequest:
		fields["domain"], fields["descriptors"] = request.Domain, descriptorFields(request.Descriptors)
		setHits(fields, request.Hits)
		setText(fields, "reservation", request.Reservation)
	case *tollgatev1.ReleaseRequest:
		fields["domain"], fields["descriptors"] = request.Domain, descriptorFields(request.Descriptors)
		setText(fields, "reservation", request.Reservation)
	case *tollgatev1.ExtendRequest:
		fields["domain"], fields["descriptors"] = request.Domain, descriptorFields(request.Descriptors)
		setText(fields, "reservation", request.Reservation)
		setExpires(fields, request.Expires)
	case *rlsv3.RateLimitRequest:
		fields["domain"] = request.Domain
		if request.HitsAddend != 0 {
			fields["hits"] = float64(request.HitsAddend)
		}
		list := make([]any, len(request.Descriptors))
		for i, descriptor := range request.Descriptors {
			entries := make([]any, len(descriptor.Entries))
			for j, entry := range descriptor.Entries {
				entries[j] = []any{entry.Key, entry.Value}
			}
			item := map[string]any{"entries": entries}
			if descriptor.HitsAddend != nil {
				item["hits"] = float64(descriptor.HitsAddend.Value)
			}
			list[i] = item
		}
		fields["descriptors"] = list
	}
	return fields
}

func descriptorFields(descriptors []*tollgatev1.Descriptor) []any {
	list := make([]any, len(descriptors))
	for i, descriptor := range descriptors {
		entries := make([]any, len(descriptor.Entries))
		for j, entry := range descriptor.Entries {
			entries[j] = []any{entry.Key, entry.Value}
		}
		item := map[string]any{"entries": entries}
		setHits(item, descriptor.Hits)
		list[i] = item
	}
	return list
}

func setHits(fields map[string]any, hits *uint64) { setCount(fields, "hits", hits) }

func setCount(fields map[string]any, name string, count *uint64) {
	if count != nil {
		fields[name] = float64(*count)
	}
}

func setText(fields map[string]any, name, value string) {
	if value != "" {
		fields[name] = value
	}
}

func setExpires(fields map[string]any, expires *durationpb.Duration) {
	if expires != nil {
		fields["expires_ms"] = float64(expires.AsDuration()) / 1e6
	}
}
