package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/backend/log"
	"github.com/grafana/grafana-plugin-sdk-go/experimental/featuretoggles"
	"github.com/grafana/grafana/pkg/promlib"
)

// refID is the id of a panel's first query.
const refID = "A"

// grafana is the data source, with an instance for each address and settings.
type grafana struct {
	service   *promlib.Service
	config    *backend.GrafanaCfg
	instances map[string]*backend.DataSourceInstanceSettings
}

func newGrafana() *grafana {
	return &grafana{
		service: promlib.NewService(nil, log.NewNullLogger(), nil),
		// Otherwise the page applies the filters of a dashboard, not the data source.
		config:    backend.NewGrafanaCfg(map[string]string{featuretoggles.EnabledFeatures: "promQLScope"}),
		instances: map[string]*backend.DataSourceInstanceSettings{},
	}
}

func (g *grafana) plugin(address string, asked question) backend.PluginContext {
	key := address + " " + string(asked.Settings)
	settings := g.instances[key]
	if settings == nil {
		id := int64(len(g.instances) + 1)
		settings = &backend.DataSourceInstanceSettings{
			ID: id, UID: fmt.Sprint(id), Type: "prometheus", URL: "http://" + address, JSONData: asked.Settings,
		}
		g.instances[key] = settings
	}
	return backend.PluginContext{
		PluginID: "prometheus", DataSourceInstanceSettings: settings, GrafanaConfig: g.config,
	}
}

func (g *grafana) health(ctx context.Context, address string, asked question) (any, error) {
	request := backend.CheckHealthRequest{PluginContext: g.plugin(address, asked)}
	health, err := g.service.CheckHealth(ctx, &request)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"status": health.Status.String(), "message": health.Message, "details": json.RawMessage(health.JSONDetails),
	}, nil
}

// query returns the response of Grafana to its page for a panel: frames with schema, or an error.
func (g *grafana) query(ctx context.Context, address string, asked question) (any, error) {
	query := backend.DataQuery{
		RefID:         refID,
		MaxDataPoints: asked.MaxDataPoints,
		Interval:      time.Duration(asked.IntervalMs) * time.Millisecond,
		TimeRange:     backend.TimeRange{From: time.UnixMilli(asked.From).UTC(), To: time.UnixMilli(asked.To).UTC()},
		JSON:          asked.Model,
	}
	request := backend.QueryDataRequest{
		PluginContext: g.plugin(address, asked), Queries: []backend.DataQuery{query},
	}
	response, err := g.service.QueryData(backend.WithGrafanaConfig(ctx, g.config), &request)
	if err != nil {
		return nil, err
	}
	answer, isThere := response.Responses[refID]
	if !isThere {
		return nil, fmt.Errorf("no answer to query %s", refID)
	}
	return answer, nil
}

func (g *grafana) resource(ctx context.Context, address string, asked question) (any, error) {
	request := backend.CallResourceRequest{
		PluginContext: g.plugin(address, asked),
		Method:        asked.Method,
		Path:          asked.Path,
		URL:           asked.Path + "?" + asked.Query,
		Body:          []byte(asked.Body),
	}
	var answer any
	sender := backend.CallResourceResponseSenderFunc(func(response *backend.CallResourceResponse) error {
		answer = map[string]any{
			"status": response.Status, "type": response.Headers["Content-Type"], "body": string(response.Body),
		}
		return nil
	})
	if err := g.service.CallResource(ctx, &request, sender); err != nil {
		return nil, err
	}
	return answer, nil
}
