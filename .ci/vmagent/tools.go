//go:build tools

// Package vmagent pins the agent whose remote write is tested.
package vmagent

import _ "github.com/VictoriaMetrics/VictoriaMetrics/app/vmagent"
