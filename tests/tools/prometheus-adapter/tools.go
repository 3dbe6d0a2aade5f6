//go:build tools

// Package tools pins prometheus-adapter, so that go.sum holds all of its modules.
package tools

import _ "sigs.k8s.io/prometheus-adapter/cmd/adapter"
