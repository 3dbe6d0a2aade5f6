//go:build tools

// Package tools pins h2spec, so that go.sum holds all of its modules.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
