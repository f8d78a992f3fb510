//go:build tools

// Package alertmanager pins the version of Alertmanager that tests send alerts to.
package alertmanager

import _ "github.com/prometheus/alertmanager/cmd/alertmanager"
