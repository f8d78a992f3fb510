// Requests to the server. Addresses are relative, so that a proxy may add a path.

const KEPT_MS = 60_000;
/** Maximum number of metrics that are listed. */
export const NAMES_MAX = 20_000;

/** An error of the API with the server's message. */
export class ApiError extends Error {
  constructor(message, { status = 0, type = "" } = {}) {
    super(message);
    this.status = status;
    this.type = type;
  }
}

/**
 * The answer of an endpoint: { data, warnings, infos }.
 *
 * Errors: `ApiError`, or an `AbortError` after the signal.
 */
export async function ask(path, parameters = {}, signal = undefined) {
  const body = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    [value].flat().forEach((one) => body.append(name, one));
  }
  const takesForm = /query|labels|series/.test(path) && !path.startsWith("status/");
  const init = takesForm ? { method: "POST", body, signal } : { signal };
  const address = takesForm || body.size === 0 ? path : `${path}?${body}`;
  let response;
  try {
    response = await fetch(`api/v1/${address}`, init);
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    throw new ApiError("The server does not answer. Is it running?");
  }
  return read(response);
}

/**
 * Cancels an active query.
 *
 * Errors: `ApiError`, also if the query has ended.
 */
export async function cancelQuery(id) {
  const path = `api/v1/status/active_queries/${encodeURIComponent(id)}/cancel`;
  let response;
  try {
    response = await fetch(path, { method: "POST" });
  } catch {
    throw new ApiError("The server does not answer. Is it running?");
  }
  if (response.status !== 204) {
    await read(response);
  }
}

async function read(response) {
  if (response.status === 204) {
    return { data: null, warnings: [], infos: [] };
  }
  const text = await response.text();
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    const isStarting = response.status === 503;
    const message = isStarting
      ? "The server is starting or stopping. Try again in a moment."
      : `The server answered with ${response.status}: ${text.slice(0, 200)}`;
    throw new ApiError(message, { status: response.status });
  }
  if (answer.status !== "success") {
    throw new ApiError(answer.error, { status: response.status, type: answer.errorType });
  }
  return { data: answer.data, warnings: answer.warnings ?? [], infos: answer.infos ?? [] };
}

const kept = new Map();

/** Like `ask`, with a cache of answers for a minute. */
export function askKept(path, parameters = {}) {
  const key = `${path}?${new URLSearchParams(parameters)}`;
  const found = kept.get(key);
  if (found && Date.now() - found.at < KEPT_MS) {
    return found.answer;
  }
  const answer = ask(path, parameters);
  kept.set(key, { at: Date.now(), answer });
  answer.catch(() => kept.delete(key));
  return answer;
}

/** The names of all metrics. */
export async function metricNames() {
  return (await askKept("label/__name__/values", { limit: NAMES_MAX })).data;
}

/** The metadata of metrics, by name. */
export async function metadata() {
  return (await askKept("metadata", { limit_per_metric: 1 })).data;
}

/** Names and values for the completion; errors are empty lists. */
export const known = {
  described: {},

  async metrics() {
    const described = metadata().catch(() => ({}));
    const names = await metricNames().catch(() => []);
    this.described = await described;
    return names;
  },

  about(metric) {
    const entry = this.described[metric]?.[0];
    return entry ? `${entry.type} · ${entry.help}` : "";
  },

  async labels(selector) {
    const names = await askKept("labels", matching(selector)).catch(() => ({ data: [] }));
    return names.data.filter((name) => name !== "__name__");
  },

  async values(label, selector) {
    const path = `label/${encodeURIComponent(label.replace(/^"|"$/g, ""))}/values`;
    const parameters = { ...matching(selector), limit: 1000 };
    return (await askKept(path, parameters).catch(() => ({ data: [] }))).data;
  },
};

function matching(selector) {
  return selector === "" || selector === "{}" ? {} : { "match[]": selector.replace(/\{\}$/, "") };
}
