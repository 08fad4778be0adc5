// Package request makes descriptors of requests. It has what httplimit and grpclimit share.
package request

import (
	"fmt"
	"net/netip"
	"strings"

	tollgate "github.com/tollgate-limits/tollgate-go"
)

// View is what a source reads of a request.
type View struct {
	// Request is the request of the framework, for functions.
	Request any
	Method  string
	// Path is as it was sent. It may have a query.
	Path string
	// Header returns the values of a header or of metadata, by any case of its name.
	Header func(name string) []string
	// Peer is the address of the connection, with a port. Empty: none.
	Peer string
}

// Source returns a value of a request, and whether it has one.
type Source func(view *View, rules *Rules) (string, bool)

// Entry is an entry of a descriptor.
type Entry struct {
	Key     string
	Source  Source
	Default *string
}

// Rules are the settings that the sources share.
type Rules struct {
	trusted []netip.Prefix
	skipped []template
}

// NewRules parses trusted proxies (addresses and CIDR blocks), and paths that are not limited.
func NewRules(trustedProxies, skipPaths []string) (*Rules, error) {
	rules := &Rules{skipped: parseTemplates(skipPaths)}
	for _, text := range trustedProxies {
		prefix, err := parsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%w: trusted proxy %q is no address and no CIDR block: %w",
				tollgate.ErrInvalidArgument, text, err)
		}
		rules.trusted = append(rules.trusted, prefix)
	}
	return rules, nil
}

// Skips returns whether the path of a request is not limited.
func (r *Rules) Skips(view *View) bool {
	_, ok := firstMatch(r.skipped, pathOf(view))
	return ok
}

// Descriptors returns the descriptors of a request. A descriptor with a missing entry is left out.
func (r *Rules) Descriptors(view *View, descriptors [][]Entry) []tollgate.Descriptor {
	made := make([]tollgate.Descriptor, 0, len(descriptors))
	for _, entries := range descriptors {
		if descriptor, ok := r.descriptor(view, entries); ok {
			made = append(made, descriptor)
		}
	}
	return made
}

func (r *Rules) descriptor(view *View, entries []Entry) (tollgate.Descriptor, bool) {
	made := tollgate.Descriptor{Entries: make([]tollgate.Entry, 0, len(entries))}
	for i := range entries {
		value, ok := entries[i].Source(view, r)
		if !ok {
			if entries[i].Default == nil {
				return tollgate.Descriptor{}, false
			}
			value = *entries[i].Default
		}
		made.Entries = append(made.Entries, tollgate.Entry{Key: entries[i].Key, Value: value})
	}
	return made, true
}

// Value is the source of a fixed text.
func Value(text string) Source {
	return func(*View, *Rules) (string, bool) { return text, true }
}

// Header is the source of a header: its values, joined by a comma. An empty one is missing.
func Header(name string) Source {
	return func(view *View, _ *Rules) (string, bool) {
		text := strings.Join(view.Header(name), ",")
		return text, text != ""
	}
}

// Method is the source of the method.
func Method(view *View, _ *Rules) (string, bool) { return view.Method, true }

// Path is the source of the path without the query, as sent.
func Path(view *View, _ *Rules) (string, bool) { return pathOf(view), true }

// PathTemplates is the source of the first template that matches the path.
func PathTemplates(texts []string) Source {
	templates := parseTemplates(texts)
	return func(view *View, _ *Rules) (string, bool) {
		return firstMatch(templates, pathOf(view))
	}
}

// RemoteAddress is the source of the client's address, behind trusted proxies.
func RemoteAddress(view *View, rules *Rules) (string, bool) {
	client, ok := parseAddress(view.Peer)
	if !ok {
		return "", false
	}
	if !rules.trusts(client) {
		return client.String(), true
	}
	headers := view.Header("x-forwarded-for")
	for i := len(headers) - 1; i >= 0; i-- {
		texts := strings.Split(headers[i], ",")
		for j := len(texts) - 1; j >= 0; j-- {
			address, ok := parseAddress(strings.Trim(texts[j], " \t"))
			if !ok {
				return client.String(), true
			}
			client = address
			if !rules.trusts(client) {
				return client.String(), true
			}
		}
	}
	return client.String(), true
}

func pathOf(view *View) string {
	path, _, _ := strings.Cut(view.Path, "?")
	return path
}
