//go:build tools

// Package tools pins the Prometheus Operator, so that go.sum holds all of its modules.
package tools

import (
	_ "github.com/prometheus-operator/prometheus-operator/cmd/operator"
	_ "github.com/prometheus-operator/prometheus-operator/cmd/prometheus-config-reloader"
)
