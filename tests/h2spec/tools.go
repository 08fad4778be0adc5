//go:build tools

// The one program that this module pins: `make deps` builds it below target/.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
