//! Queries of which a root over shards must return what one node with all series returns.

/// One query per line.
pub const QUERIES: &str = r#"
sum(rate(http_requests_total[5m]))
sum by (job) (rate(http_requests_total[5m]))
sum without (instance) (http_requests_total)
avg(temperature)
avg by (job) (temperature)
count(up)
min by (instance) (temperature)
max(temperature)
group by (job) (up)
topk(3, temperature)
bottomk by (job) (1, temperature)
quantile(0.9, temperature)
stddev by (job) (temperature)
stdvar(temperature)
count_values("v", target_info)
count_values by (job) ("version", up)
temperature
rate(http_requests_total[5m])
temperature > 30
count(temperature > 30)
histogram_quantile(0.9, sum by (le) (rate(latency_seconds_bucket[5m])))
histogram_quantile(0.9, sum by (le, job) (rate(latency_seconds_bucket[5m])))
histogram_quantile(0.9, rate(latency_seconds_bucket[5m]))
histogram_quantile(0.9, sum(rate(native_seconds[5m])))
histogram_count(sum by (job) (rate(native_seconds[5m])))
native_seconds
sum(native_seconds)
memory_bytes / memory_limit_bytes
sum(memory_bytes) / sum(memory_limit_bytes)
sum by (job) (memory_bytes) / on (job) sum by (job) (memory_limit_bytes)
sum by (job) (memory_bytes / memory_limit_bytes)
temperature > bool 30
memory_bytes * on (job, instance) group_left (version) target_info
sum by (version) (memory_bytes * on (job, instance) group_left (version) target_info)
http_requests_total / ignoring (code) group_left sum without (code) (http_requests_total)
vector(1)
time()
1 + 1
absent(nonexistent)
absent(up{job="job0"})
absent_over_time(nonexistent[5m])
absent(up{job="nope"})
scalar(sum(up))
scalar(up{job="job0",instance="host0:9100"})
sum(up) + time()
up * scalar(sum(up))
label_replace(temperature, "host", "$1", "instance", "(.*):.*")
label_replace(temperature, "shard", "x", "instance", ".*")
sum by (shard) (label_replace(temperature, "shard", "x", "instance", ".*"))
sum by (shard) (up)
label_join(up, "a", "-", "job", "instance")
max_over_time(temperature[10m])
quantile_over_time(0.5, temperature[10m])
avg_over_time(temperature[10m:1m])
max_over_time(sum(rate(http_requests_total[5m]))[10m:1m])
sum_over_time(avg(temperature)[10m:1m])
sum(http_requests_total offset 10m)
sum(http_requests_total @ end())
sum(rate(http_requests_total[5m] @ end()))
sum(rate(http_requests_total[5m] offset 5m))
topk(2, rate(http_requests_total[5m] @ end()))
sort(temperature)
sort_desc(sum by (job) (temperature))
sort_by_label(up, "instance")
up or vector(0)
up{job="job0"} or up{job="job1"}
up and on (instance) temperature
up unless on (job, instance) (temperature > 30)
up and temperature > 30
sum by (job) (up) and on (job) (sum by (job) (temperature) > 100)
-temperature
-(sum(temperature))
temperature ^ 2
2 ^ -1 * sum(up)
sum(up) == 24
sum by (job) (up) == bool 8
clamp(temperature, 10, 25)
predict_linear(temperature[10m], 3600)
deriv(temperature[10m])
irate(http_requests_total[5m])
changes(temperature[10m])
resets(http_requests_total[10m])
timestamp(up)
sum(timestamp(up))
day_of_week()
hour(timestamp(up))
double_exponential_smoothing(temperature[10m], 0.5, 0.5)
mad_over_time(temperature[10m])
info(up)
info(rate(http_requests_total[5m]), {version=~".+"})
{__name__=~"memory.*"}
sum by (__name__) ({__name__=~"memory.*"})
up{shard="0"}
sum(up{shard="1"})
avg by (job) (up{shard="1"})
quantile by (shard) (0.5, temperature)
quantile(0.5, temperature{shard="0"})
count(count by (instance) (up))
sum(rate(http_requests_total{shard="0"}[5m])) / sum(rate(http_requests_total{shard="1"}[5m]))
count by (job) (count by (job, instance) (up))
sum(sum_over_time(temperature[5m])) / sum(count_over_time(temperature[5m]))
topk(3, sum by (instance) (rate(http_requests_total[5m])))
sum(topk(2, temperature))
max(avg by (job) (temperature))
avg(avg by (job) (temperature))
stddev(sum by (instance) (temperature))
3.5e3
sum(up) * 1e-9
NaN
-Inf
sum(up) + Inf
sum(up * -1)
sum(up) > -1
{"up"}
sum({"up", job="job0"})
sum by ("job") (up)
up{job="job\x30"}
up{instance=~"host[0-3]:.*"}
up{instance=~"host\\d:.*"}
up{job="a\nb"}
label_replace(up, "x", "a\"b\\c", "job", ".*")
sum by (job) (temperature) > 10 < 500
(sum(up) + 1) * 2
sum(up) - (sum(up) - 1)
sum(up) / (2 * 3)
-sum(up) ^ 2
"#;
