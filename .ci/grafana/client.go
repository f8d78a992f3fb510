package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
)

// call calls a method of Prometheus' client and returns its result, warnings and error.
func call(ctx context.Context, address string, asked question) (any, error) {
	client, err := api.NewClient(api.Config{Address: "http://" + address})
	if err != nil {
		return nil, err
	}
	result, warnings, failure := invoke(ctx, v1.NewAPI(client), asked)
	if errors.Is(failure, errNoMethod) {
		return nil, failure
	}
	answer := map[string]any{"type": fmt.Sprintf("%T", result), "result": result, "warnings": warnings}
	var known *v1.Error
	if errors.As(failure, &known) {
		answer["error"] = map[string]any{"type": known.Type, "message": known.Msg, "detail": known.Detail}
	} else if failure != nil {
		answer["error"] = failure.Error()
	}
	return answer, nil
}

var errNoMethod = errors.New("the client has no such method")

func invoke(ctx context.Context, client v1.API, asked question) (result any, warnings v1.Warnings, err error) {
	from, to := time.UnixMilli(asked.From), time.UnixMilli(asked.To)
	var options []v1.Option
	limit := ""
	if asked.Limit > 0 {
		options = append(options, v1.WithLimit(asked.Limit))
		limit = strconv.FormatUint(asked.Limit, 10)
	}
	switch asked.Call {
	case "Query":
		result, warnings, err = client.Query(ctx, asked.Expr, to, append(options, v1.WithTimeout(time.Minute))...)
	case "QueryRange":
		steps := v1.Range{Start: from, End: to, Step: time.Duration(asked.StepMs) * time.Millisecond}
		result, warnings, err = client.QueryRange(ctx, asked.Expr, steps, options...)
	case "QueryExemplars":
		result, err = client.QueryExemplars(ctx, asked.Expr, from, to)
	case "Series":
		result, warnings, err = client.Series(ctx, asked.Matches, from, to, options...)
	case "LabelNames":
		result, warnings, err = client.LabelNames(ctx, asked.Matches, from, to, options...)
	case "LabelValues":
		result, warnings, err = client.LabelValues(ctx, asked.Label, asked.Matches, from, to, options...)
	case "Metadata":
		result, err = client.Metadata(ctx, asked.Metric, limit)
	case "TSDB":
		result, err = client.TSDB(ctx, options...)
	case "Buildinfo":
		result, err = client.Buildinfo(ctx)
	case "Runtimeinfo":
		result, err = client.Runtimeinfo(ctx)
	case "Config":
		result, err = client.Config(ctx)
	case "Flags":
		result, err = client.Flags(ctx)
	case "WalReplay":
		result, err = client.WalReplay(ctx)
	case "Alerts":
		result, err = client.Alerts(ctx)
	case "AlertManagers":
		result, err = client.AlertManagers(ctx)
	case "Rules":
		result, err = client.Rules(ctx)
	case "Targets":
		result, err = client.Targets(ctx)
	case "TargetsMetadata":
		result, err = client.TargetsMetadata(ctx, asked.Expr, asked.Metric, limit)
	case "DeleteSeries":
		err = client.DeleteSeries(ctx, asked.Matches, from, to)
	case "CleanTombstones":
		err = client.CleanTombstones(ctx)
	case "Snapshot":
		result, err = client.Snapshot(ctx, false)
	default:
		err = fmt.Errorf("%w: %q", errNoMethod, asked.Call)
	}
	return result, warnings, err
}
