//go:build tools

// Package tools pins metrics-server, so that go.sum holds all of its modules.
package tools

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"
