//go:build tools

// Package prometheus pins the version of Prometheus for comparison in tests.
package prometheus

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
