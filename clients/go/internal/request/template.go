package request

import "strings"

// template is a path template. Its segments are literal, one variable segment, or the rest.
type template struct {
	text     string
	segments []segment
}

type segment struct {
	kind    segmentKind
	literal string
}

type segmentKind int

const (
	literalSegment segmentKind = iota
	variableSegment
	restSegment
)

func parseTemplates(texts []string) []template {
	templates := make([]template, len(texts))
	for i, text := range texts {
		templates[i] = parseTemplate(text)
	}
	return templates
}

func parseTemplate(text string) template {
	parts := strings.Split(text, "/")
	parsed := template{text: text, segments: make([]segment, len(parts))}
	for i, part := range parts {
		parsed.segments[i] = segment{literal: part}
		name, ok := variableName(part)
		switch {
		case !ok:
		case !strings.HasSuffix(name, "..."):
			parsed.segments[i].kind = variableSegment
		case i == len(parts)-1 && name != "...":
			parsed.segments[i].kind = restSegment
		}
	}
	return parsed
}

// variableName returns what is between the braces of a segment.
func variableName(part string) (string, bool) {
	if len(part) < 3 || part[0] != '{' || part[len(part)-1] != '}' {
		return "", false
	}
	name := part[1 : len(part)-1]
	return name, !strings.ContainsAny(name, "{}")
}

// firstMatch returns the text of the first template that matches a path without a query.
func firstMatch(templates []template, path string) (string, bool) {
	for i := range templates {
		if templates[i].matches(path) {
			return templates[i].text, true
		}
	}
	return "", false
}

func (t *template) matches(path string) bool {
	rest, more := path, true
	for _, expected := range t.segments {
		if !more {
			return false
		}
		if expected.kind == restSegment {
			return true
		}
		var found string
		found, rest, more = strings.Cut(rest, "/")
		if expected.kind == variableSegment && found == "" ||
			expected.kind == literalSegment && found != expected.literal {
			return false
		}
	}
	return !more
}
