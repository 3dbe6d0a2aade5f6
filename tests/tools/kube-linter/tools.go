//go:build tools

// Package tools pins kube-linter, so that go.sum holds all of its modules.
package tools

import _ "golang.stackrox.io/kube-linter/cmd/kube-linter"
