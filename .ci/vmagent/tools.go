//go:build tools

// Package vmagent pins the version of vmagent for tests of remote write.
package vmagent

import _ "github.com/VictoriaMetrics/VictoriaMetrics/app/vmagent"
