//go:build tools

// Package prometheus pins the Prometheus that the tests compare with.
package prometheus

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
