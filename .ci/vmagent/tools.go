//go:build tools

// Package vmagent pins the version of VictoriaMetrics' programs for tests: a sender, a server whose data
// are imported, and an evaluator of rules.
package vmagent

import (
	_ "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics"
	_ "github.com/VictoriaMetrics/VictoriaMetrics/app/vmagent"
	_ "github.com/VictoriaMetrics/VictoriaMetrics/app/vmalert"
)
