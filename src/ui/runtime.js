// Build, runtime, flags and configuration of the server, as on Prometheus' page.

import { ask } from "./api.js";
import { el } from "./dom.js";
import { figures, nothing, table } from "./facts.js";
import { formatBytes, formatCount, formatDuration, formatSeconds } from "./numbers.js";
import { ownMetrics } from "./self.js";
import { since } from "./table.js";

/** Runtime and build. */
export async function runtime({ signal }) {
  const [{ data: build }, { data }, own] = await Promise.all([
    ask("status/buildinfo", {}, signal),
    ask("status/runtimeinfo", {}, signal),
    ownMetrics("process_.*|tessella_engine_queries.*", signal),
  ]);
  const [api, version] = build.version.split("+tessella.");
  const started = Date.parse(data.startTime);
  const upMs = Math.floor((Date.parse(data.serverTime) - started) / 1000) * 1000;
  const files = [own.get("process_open_fds"), own.get("process_max_fds")].map(formatCount);
  const running = [
    own.get("tessella_engine_queries"),
    own.get("tessella_engine_queries_concurrent_max"),
  ];
  return [
    el("h2", {}, "Build"),
    figures([
      ["Version", version ?? api],
      ["Revision", el("code", {}, build.revision || "unknown")],
      ["Build date", build.buildDate || "unknown"],
      ["API of Prometheus", api],
    ]),
    el("h2", {}, "Process"),
    figures([
      ["Running since", since(started)],
      ["Uptime", formatDuration(Math.max(0, upMs))],
      ["Host", data.hostname || "unknown"],
      ["Working directory", el("code", {}, data.CWD)],
      ["Configuration read", since(Date.parse(data.lastConfigTime))],
      ["Last reload", data.reloadConfigSuccess ? "successful" : "failed, see the log"],
      ["Retention", data.storageRetention],
      ["Processors", formatCount(data.GOMAXPROCS)],
      ["Tasks", formatCount(data.goroutineCount)],
      ["Threads", formatCount(own.get("process_threads"))],
      ["CPU time", formatSeconds(own.get("process_cpu_seconds_total"))],
      ["Resident memory", formatBytes(own.get("process_resident_memory_bytes"))],
      ["Open files", files.join(" of ")],
      ["Running queries", running.map(formatCount).join(" of ")],
      ["Waiting queries", formatCount(own.get("tessella_engine_queries_waiting"))],
    ]),
  ];
}

/** The flags, with a filter. */
export async function flags({ signal }) {
  const { data } = await ask("status/flags", {}, signal);
  const list = el("div", {});
  const show = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = Object.entries(data)
      .filter(([name, value]) => words.every((word) => `--${name}=${value}`.includes(word)))
      .map(([name, value]) => [el("code", {}, `--${name}`), el("code", {}, value)]);
    const found =
      rows.length > 0 ? table(["Flag", "Value"], rows, false) : nothing("No such flag.");
    list.replaceChildren(found);
  };
  const filter = el("input", {
    type: "search",
    placeholder: "Filter by name or value",
    "aria-label": "Filter flags",
    oninput: show,
  });
  show();
  return [el("div", { class: "filters" }, filter), list];
}

/** The configuration file that is active. */
export async function config({ signal }) {
  const { data } = await ask("status/config", {}, signal);
  return [el("pre", { class: "yaml", tabindex: "0" }, data.yaml)];
}
