//go:build tools

// Package tools pins Prometheus 3, whose own module cannot be installed as it stands: it replaces a dependency.
package tools

import _ "github.com/prometheus/prometheus/cmd/prometheus"
