package grpclimit

import (
	"fmt"

	tollgate "github.com/tollgate-limits/tollgate-go"
	"github.com/tollgate-limits/tollgate-go/internal/request"
)

// Descriptor is a list of entries. It is left out of a check if one of its entries is missing.
type Descriptor []Entry

// Entry is a key, and the source of its value. Make it by a function of this package.
type Entry struct{ entry request.Entry }

// Default returns the entry with the value that it has where its source is missing.
func (e Entry) Default(value string) Entry {
	e.entry.Default = &value
	return e
}

// Value returns an entry of a fixed text.
func Value(key, text string) Entry { return entry(key, request.Value(text)) }

// Header returns an entry of metadata: its values, joined by a comma. An empty one is missing.
func Header(key, name string) Entry { return entry(key, request.Header(name)) }

// Method returns an entry of the HTTP method, which is POST.
func Method(key string) Entry { return entry(key, request.Method) }

// Path returns an entry of the full method: /package.Service/Method.
func Path(key string) Entry { return entry(key, request.Path) }

// PathTemplates returns an entry of the first template that matches the full method, such as
// /shop.Orders/{method}. {name} matches one segment that is not empty. {name...} at the end matches the
// rest. It is missing if none matches.
func PathTemplates(key string, templates ...string) Entry {
	return entry(key, request.PathTemplates(templates))
}

// RemoteAddress returns an entry of the client's address, behind [WithTrustedProxies]. It is missing
// on a Unix socket.
func RemoteAddress(key string) Entry { return entry(key, request.RemoteAddress) }

// Func returns an entry of a function. It is missing where the function returns false. A panic of
// the function is one of the interceptor: grpc-go does not recover it.
func Func(key string, value func(Call) (string, bool)) Entry {
	return entry(key, func(view *request.View, _ *request.Rules) (string, bool) {
		return value(view.Request.(Call))
	})
}

func entry(key string, source request.Source) Entry {
	return Entry{request.Entry{Key: key, Source: source}}
}

func entriesOf(descriptors []Descriptor) ([][]request.Entry, error) {
	made := make([][]request.Entry, len(descriptors))
	for i, descriptor := range descriptors {
		for j, e := range descriptor {
			if e.entry.Source == nil {
				return nil, fmt.Errorf("%w: entry %d of descriptor %d has no source; use a function such as Header",
					tollgate.ErrInvalidArgument, j, i)
			}
			made[i] = append(made[i], e.entry)
		}
	}
	return made, nil
}
